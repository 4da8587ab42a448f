"""Pages offer what can be done: no button that ends in a refusal, and no refusal that loses what was typed."""

import functools
import html
import re
import threading
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from cloister.hub.datasets import datasets
from cloister.hub.jobs import limits
from cloister.hub.policy import versions
from cloister.hub.web import problems
from cloister.hub.web.app import create_app
from cloister.hub.web.refill import Refill
from cloister.privacy.loss import rho

GUESTS = """roles:
  guests:
    who: {roles: [data user]}
    may: [see schema, query]
    by_request: true
"""
PLAN = {"sql": "SELECT COUNT(*) AS n FROM visits", "confidence": "0.95", "action": "plan"}
QUALITY = [("purposes: [health-research]", "purposes: [health-research, quality-assurance]"),
           ("roles:\n  researchers:", GUESTS + "  researchers:\n    purposes: [health-research]")]  # fmt: skip


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=QUALITY)
    return hospital_hub


@pytest.fixture
def visit(world, visits_of):
    return visits_of(world)


def work_links(text):
    return set(re.findall(r'href="/work/(\w+)/visits"', text))


# Only what the policy allows


def test_a_dataset_offers_each_person_what_the_policy_lets_them_do(visit):
    assert work_links(visit("ada").get("/datasets/visits").text) == {"query", "profile"}
    assert work_links(visit("stranger").get("/datasets/visits").text) == set()


def test_whoever_may_do_nothing_is_shown_one_way_on(visit):
    stranger = visit("stranger")
    assert "Ask for access" in stranger.get("/datasets/visits").text
    sent = {"role": "guests", "purpose": "health-research", "text": "To count visits."}
    path = stranger.post("/datasets/visits/requests", **sent).headers["location"]
    text = stranger.get("/datasets/visits").text
    assert path in text
    assert "Ask for access" not in text
    owner = visit("owner")
    text = owner.get("/datasets/visits").text
    assert work_links(text) == set()
    assert "Give yourself a role in the policy" in text


def test_a_paused_dataset_offers_nothing(world, visit):
    with world.hub.database.writing() as session:
        datasets.pause(world.hub, session, world.people["owner"], datasets.find(session, "visits"), True)
    assert work_links(visit("ada").get("/datasets/visits").text) == set()
    text = visit("ada").get("/work/query/visits").text
    assert "paused" in text
    assert "Plan: what would it cost?" not in text


def test_a_form_offers_the_purposes_that_would_be_allowed(visit):
    text = visit("ada").get("/work/query/visits").text
    assert 'value="health-research"' in text
    assert 'value="quality-assurance"' not in text


def test_what_one_may_not_do_has_no_form(visit):
    answer = visit("ada").get("/work/train/visits")
    assert answer.status_code == 403
    assert "/datasets/visits/why?decision=" in answer.text
    assert "/datasets/visits/tables" not in visit("ada").get("/datasets/visits").text


def test_every_link_on_a_datasets_page_opens(visit):
    for name in ("ada", "stranger", "owner"):
        person = visit(name)
        links = re.findall(r'href="(/[^"#]*)"', person.get("/datasets/visits").text)
        for link in {html.unescape(one) for one in links if not one.startswith("/static")}:
            answer = person.get(link)
            assert answer.status_code < 400, (name, link)


# A plan that cannot run


def test_a_plan_that_passes_a_limit_has_no_button_and_names_a_spend_that_fits(world, visit):
    for column in ("age", "stay_days", "cost"):
        world.submit("ada", f"SELECT SUM({column}) AS s FROM visits", spend="rho 0.03")
    world.work()
    ada = visit("ada")
    question = {**PLAN, "sql": "SELECT AVG(age) AS a FROM visits", "purpose": "health-research"}
    text = ada.post("/work/query/visits", **question, spend="rho 0.02").text
    assert "This cannot run now" in text
    assert 'value="run"' not in text
    fits = re.search(r"Plan with (rho [\d.]+)", text)[1]
    text = ada.post("/work/query/visits", **question, spend=fits).text
    assert "This cannot run now" not in text
    assert 'value="run"' in text


def test_the_room_is_the_least_of_all_limits(world):
    with world.hub.database.reading() as session:
        dataset = datasets.find(session, "visits")
        policy, _ = versions.current(world.hub, session, dataset)
        found = limits.room(session, limits.Payer(dataset, world.people["ada"].id, policy, world.hub.ledger))
    assert found == rho("0.05")


# What was typed is kept


def sent_from(person, page, action, **fields):
    """Send a form as a browser does, which says what page it is on."""
    headers = {"referer": f"http://testserver{page}", "accept": "text/html"}
    return person.web.post(action, data={**fields, "csrf": person._csrf}, headers=headers)


def test_a_denial_without_a_reason_comes_back_with_the_form(visit):
    asked = {"role": "guests", "purpose": "health-research", "text": "To count <b>visits</b>."}
    path = visit("stranger").post("/datasets/visits/requests", **asked).headers["location"]
    answer = sent_from(visit("owner"), path, f"{path}/decide", word="deny", reason="", days="17")
    assert answer.status_code == 422
    assert 'role="alert" id="problem"' in answer.text
    assert f'action="{path}/decide"' in answer.text
    assert re.search(r'name="days"[^>]*value="17"', answer.text)
    assert "first page" not in answer.text


def test_asking_twice_keeps_the_words(visit):
    stranger = visit("stranger")
    page, first = "/datasets/visits/requests", "To count </textarea><script>visits</script>."
    asked = {"role": "guests", "purpose": "health-research", "text": first}
    assert sent_from(stranger, page, page, **asked).status_code == 303
    answer = sent_from(stranger, page, page, **asked)
    assert answer.status_code == 409
    assert "To count &lt;/textarea&gt;&lt;script&gt;visits&lt;/script&gt;." in answer.text
    assert "<script>visits" not in answer.text
    again = re.search(r'name="cloister-page" value="([^"]+)"', answer.text)[1]
    assert again == page
    # Sent once more from the page that was shown again, whose own address takes no visit.
    more = sent_from(stranger, "/requests/9/decide", page, **asked, **{"cloister-page": again})
    assert more.status_code == 409
    assert "To count &lt;/textarea&gt;" in more.text


def test_a_name_that_was_typed_wrongly_to_delete_unfolds_the_form(visit):
    owner = visit("owner")
    answer = sent_from(owner, "/datasets/visits", "/datasets/visits/delete", confirm="visit")
    assert answer.status_code == 422
    assert 'value="visit"' in answer.text
    assert re.search(r'<details class="fold" open="">\s*<summary>Delete this dataset', answer.text)


def test_a_page_elsewhere_or_a_program_gets_the_sentence_alone(visit):
    owner = visit("owner")
    sent = {"data": {"confirm": "visit", "csrf": owner._csrf}}
    for headers in ({"referer": "http://other.example/datasets/visits"}, {}, {"accept": "application/json"}):
        answer = owner.web.post("/datasets/visits/delete", headers={"accept": "text/html", **headers}, **sent)
        assert answer.status_code == 422
        assert "cloister-page" not in answer.text


def test_passwords_and_files_are_not_filled_in_and_ticks_are():
    page = (
        '<main><form action="/a"><input type="hidden" name="csrf" value="n"><input name="t" value="old">'
        '<input type="password" name="p"><input type="file" name="f"><textarea name="x">old &amp; old</textarea>'
        '<input type="checkbox" name="c" value="1" checked><input type="checkbox" name="c" value="2">'
        '<select name="s"><option value="u" selected>U</option><option value="v">V</option></select></form>'
        '<form action="/b"><input name="t" value="other"></form></main>'
    )
    sent = [("csrf", "old"), ("t", 'a"b'), ("p", "secret"), ("f", "file"), ("x", "1 < 2"), ("c", "2"), ("s", "v")]
    out = Refill("/page", "/a", sent, "/page", "<p>wrong</p>").of(page)
    assert "secret" not in out
    assert '<input name="t" value="a&quot;b">' in out
    assert '<input name="t" value="other">' in out
    assert "1 &lt; 2</textarea>" in out
    assert "old &amp; old" not in out
    assert '<input type="checkbox" name="c" value="1"><input type="checkbox" name="c" value="2" checked="">' in out
    assert '<option value="u">U</option><option value="v" selected="">V</option>' in out
    assert out.startswith("<main><p>wrong</p>")


def test_of_two_forms_to_one_address_the_one_that_was_sent_is_filled_in(visit):
    page = '<form action="/a"><button name="go"></button></form><form action="/a?csrf=n"><input name="t"></form>'
    assert 'name="t" value="mine"' in Refill("/page", "/a", [("csrf", "n"), ("t", "mine")], "/page").of(page)
    answer = visit("owner").post("/datasets/visits/versions", address="postgresql://ann:s3cr/t@db.example/visits")
    assert answer.status_code == 422


def test_codes_and_passwords_inside_addresses_are_not_filled_in():
    page = '<form action="/a"><input name="c" autocomplete="one-time-code"><input name="t"></form>'
    for address in ("postgresql://ann:s3cret@h/d", "postgresql://ann:s3c/@ret@h/d", "host=h password=s3cret dbname=d"):
        out = Refill("/page", "/a", [("c", "123456"), ("t", address)], "/page").of(page)
        assert "123456" not in out
        assert "ret" not in out
        assert "h" in re.search(r'name="t" value="([^"]*)"', out)[1]


def connecting(world, visits_of):
    """An owner who may connect tables that stay where they are."""
    world.hub.settings = replace(world.hub.settings, connect_hosts="Hospital=db.example:5432")
    return visits_of(world)("owner")


@pytest.mark.parametrize(
    "address",
    ["postgresql://ann:S3CRET@host:5432/db", "postgresql:/ann:S3CRET@host:5432/db", "jdbc:postgresql://ann:S3CRET@host/db",
     "ann:S3CRET@host:5432/db", "//ann:S3CRET@host/db", "/ann:S3CRET@host/db", "postgresql://ann:S3CRET", "S3CRET",
     "host=db user=ann password=S3CRET", "host=db user=ann password = S3CRET", "host=db password='my S3CRET'",
     "postgresql ://ann:S3CRET@host/db", "sc://host:15002/;token=S3CRET", "sc:/host:15002/;token=S3CRET",
     "host:15002/;token=S3CRET", "<postgresql://ann:S3CRET@host/db>", '"postgresql://ann:S3CRET@host/db"',
     "postgresql://ann:pass@S3CRET", "sc://S3CRET@host", "sc://host/;S3CRET", "POSTGRES://ann:S3CRET@host/db"],
)  # fmt: skip
def test_an_address_that_may_hold_a_password_is_not_filled_in_however_it_is_misspelt(world, visits_of, address):
    answer = connecting(world, visits_of).post("/datasets/visits/versions", address=address)
    assert answer.status_code == 422
    assert 'name="address"' in answer.text
    assert "S3CRET" not in answer.text


@pytest.mark.parametrize("address", ["/data/visits 2026/a.b", "sc://spark.example:15002", "sc://spark.example/"])
def test_an_address_without_a_secret_is_filled_in(world, visits_of, address):
    answer = connecting(world, visits_of).post("/datasets/visits/versions", address=address)
    assert answer.status_code == 422
    assert re.search(r'name="address"[^>]*value="([^"]*)"', answer.text)[1] == address


def test_a_form_whose_database_was_busy_comes_back_filled_in(visit, monkeypatch):
    stranger, page = visit("stranger"), "/datasets/visits/requests"

    def busy(*_):
        raise OperationalError("INSERT", {}, Exception("database is locked"))

    monkeypatch.setattr("cloister.hub.approvals.ask_access", busy)
    asked = {"role": "guests", "purpose": "health-research", "text": "To count visits."}
    answer = sent_from(stranger, page, page, **asked)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert "To count visits.</textarea>" in answer.text


def test_a_refused_form_is_not_a_way_to_another_site(visit):
    stranger = visit("stranger")
    for page in ("//evil.example/", "https://evil.example/", "/\\evil.example"):
        answer = stranger.post("/datasets/visits/requests", role="x", purpose="y", text="z", **{"cloister-page": page})
        assert answer.status_code == 422
        assert "evil.example" not in answer.text


def test_the_only_form_is_filled_in_though_its_hidden_version_is_newer():
    fields = '<input type="hidden" name="after" value="2"><textarea name="x"></textarea>'
    page = f'<main><form action="/a">{fields}</form></main>'
    out = Refill("/page", "/a", [("after", "1"), ("x", "mine")], "/page", "<p>changed</p>").of(page)
    assert "mine</textarea>" in out
    assert 'name="after" value="2"' in out


def test_a_stranger_whose_page_was_too_old_gets_a_link_to_a_page_that_works(world, monkeypatch):
    web = TestClient(create_app(world.hub), follow_redirects=False, headers={"accept": "text/html"})
    sent = {"email": "ada@university.example", "password": "wrong horse battery", "csrf": "old"}
    with monkeypatch.context() as patch:
        patch.setattr("cloister.hub.web.problems._get", None)  # no page is rendered for it
        answer = web.post("/sign-in", data=sent, headers={"referer": "http://testserver/sign-in?next=/datasets"})
    assert answer.status_code == 403
    assert "Load the page again" in answer.text
    link = re.search(r'href="(/sign-in[^"]*)">Back to the page', answer.text)[1]
    fresh = re.search(r'name="csrf" value="([^"]+)"', web.get(link).text)[1]
    answer = web.post("/sign-in", data={**sent, "csrf": fresh})
    assert answer.status_code != 403


def test_a_signed_in_person_whose_page_was_too_old_gets_it_back_with_what_was_typed(visit):
    page, fields = "/datasets/visits/requests", {"role": "guests", "purpose": "health-research", "text": "To count."}
    stranger = visit("stranger")
    headers = {"referer": f"http://testserver{page}", "accept": "text/html"}
    answer = stranger.web.post(page, data={**fields, "csrf": "old"}, headers=headers)
    assert answer.status_code == 403
    assert "To count.</textarea>" in answer.text


@pytest.mark.parametrize("page", ["/s/sleep", "/%73/sleep", "/s%2Fsleep", "/trust", "/datasets", "/api/me", "/nowhere"])
def test_only_a_page_with_the_form_that_was_sent_is_shown_again(visit, page, answered):
    answered([{"id": "q", "type": "yes_no", "text": "Well?"}], [])
    asked = {"role": "none", "purpose": "health-research", "text": "To count visits."}
    answer = visit("stranger").post("/datasets/visits/requests", **asked, **{"cloister-page": page})
    assert answer.status_code == 422
    assert len(answer.text) < 10_000
    assert "To count visits." not in answer.text
    assert "Well?" not in answer.text
    assert 'id="problem"' not in answer.text


def test_a_long_page_is_not_filled_in_again(within):
    form = '<form action="/a"><input name="t"></form>'
    sent = [("t", "mine")]
    assert 'value="mine"' in Refill("/page", "/a", sent, "/page").of("<p>x</p>" * 5_000 + form)
    for more in ("<p>x</p>" * 20_000, "&amp;" * 30_000, "x" * 2_000_000):
        refill = Refill("/page", "/a", sent, "/page")
        assert within(0.1, functools.partial(refill.of, more + form)) is None


def test_a_refused_form_is_filled_in_off_the_event_loop_and_under_its_turn(visit, monkeypatch):
    threads, loops, inner = [], [], []
    fill, get = Refill.of, problems._get

    def note(self, words):
        threads.append(threading.get_ident())
        return fill(self, words)

    async def within(request, address):
        loops.append(threading.get_ident())
        inner.append([line.requests for line in request.scope["cloister.turns"].values()])
        answer = await get(request, address)
        inner.append([line.requests for line in request.scope["cloister.turns"].values()])
        return answer

    monkeypatch.setattr(Refill, "of", note)
    monkeypatch.setattr(problems, "_get", within)
    page = "/datasets/visits/requests"
    answer = sent_from(visit("stranger"), page, page, role="none", purpose="health-research", text="To count.")
    assert answer.status_code == 422
    assert "To count.</textarea>" in answer.text
    assert set(threads).isdisjoint(loops)
    assert inner == [[1], [1]]


def test_a_form_in_json_is_flat(world, visit):
    nested = "x"
    for _ in range(700):
        nested = [nested]
    for form in ({"sql": nested}, {"sql": {"a": 1}}, {"sql": [["a"]]}):
        answer = visit("ada").api.post("/api/datasets/visits/plan", json={"form": form, "purpose": "health-research"})
        assert answer.status_code == 422
