"""Anonymised releases as a kind of work: which models, no charge, nothing told before people have looked at it."""

import base64
import copy
import hashlib
import io
import json
import re
import threading
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

import cloister as cl
from cloister.anonymize.checking.verifier import check
from cloister.client.dataset import RemoteDataset
from cloister.client.jobs import Waiting
from cloister.data.hospital import SCHEMA, hospital
from cloister.hub import approvals
from cloister.hub.core.models import AuditEntry, Decision, Output, Person, Request
from cloister.hub.jobs import gateway, output_check
from cloister.hub.jobs.job_ledger import Cancelled, Lost
from cloister.hub.jobs.job_types import KINDS
from cloister.hub.jobs.job_types import anonymise as making
from cloister.hub.users import sessions, tokens
from cloister.hub.web.app import create_app
from cloister.privacy.errors import BadForm, BadInput, BadSchema, CloisterError, Denied, NotHere, NotNow
from cloister.privacy.loss import rho

ANON = KINDS["anonymise"]
FORM = {"quasi": "age, ward", "sensitive": "stay_days", "models": "k=5, l=2 (stay_days)", "suppression": "10%"}
BLOCK = 'anonymised: {at_least: "k=5, l=2", suppression_at_most: 10%}\nroles:'


@pytest.fixture(scope="module")
def table():
    return pa.table(hospital(1_500))


@pytest.fixture
def data(table, tmp_path):
    with cl.open(table, schema=SCHEMA, budget=rho(1_000), ledger=tmp_path, name="visits") as opened:
        yield opened


def quiet(_share, _words):
    pass


def asked(**form):
    return ANON.parse({**FORM, **form})


def rows_of(result):
    return pq.read_table(io.BytesIO(base64.b64decode(result["file"])))


# The form


def test_a_form_is_read_into_plain_parameters_that_fill_it_in_again():
    read = asked(quasi=["age", " ward"])
    assert (read["quasi"], read["suppression"], read["method"]) == ("age, ward", "0.1", "recode")
    assert ANON.parse(read) == read == json.loads(json.dumps(read))


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"quasi": "nobody"}, BadSchema),
        ({"quasi": "patient"}, BadSchema),
        ({"quasi": ""}, BadForm),
        ({"sensitive": "age"}, BadForm),
        ({"models": "k = many"}, BadInput),
        ({"models": "k=5, l=3 (cost)"}, BadInput),
        ({"models": "k-map=5"}, BadForm),
        ({"table": "salaries"}, BadSchema),
    ],
)
def test_what_cannot_be_made_is_refused_by_the_plan(data, form, error):
    with pytest.raises(error):
        ANON.plan(data, asked(**form))


@pytest.mark.parametrize("share", ["100%", "-1", "much", "1"])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(BadInput, match="no share"):
        asked(suppression=share)


# Plan and run


@pytest.mark.parametrize("method", ["recode", "mondrian"])
def test_a_table_satisfies_its_models_by_the_independent_verifier_and_charges_nothing(data, method):
    planned = ANON.plan(data, asked(method=method))
    assert not planned.loss.amount
    assert "no epsilon" in " ".join(planned.lines)
    held = ANON.run(data, asked(method=method), quiet).held
    assert not data.account.spent.amount
    result = json.loads(json.dumps(held.result, allow_nan=False))
    rows = rows_of(result)
    assert rows.column_names == ["age", "ward", "stay_days"]
    checked = check(rows, quasi=["age", "ward"], sensitive=["stay_days"])
    assert not checked.meets(k=5, l={"stay_days": 2})
    assert result["protected"].endswith("not differentially private")
    assert {"prosecutor", "marketer"} <= {line["name"] for line in result["risk"]}


def test_of_each_person_one_row_is_released_so_that_k_rows_are_k_people(data, table):
    people = len(set(table.column("patient").to_pylist()))
    assert people < table.num_rows
    held = ANON.run(data, asked(suppression="0"), quiet).held
    assert held.result["rows"] == people


def test_the_rows_are_those_of_the_policys_view(data):
    narrow = data.through({"visits": "SELECT ward, FLOOR(age / 50) * 50 AS age FROM visits WHERE ward <> 'maternity'"})
    held = ANON.run(narrow, asked(sensitive="ward", quasi="age", models="k=5"), quiet).held
    assert "maternity" not in rows_of(held.result).column("ward").to_pylist()
    with pytest.raises(BadSchema, match="no column 'cost'"):
        ANON.plan(narrow, asked(sensitive="cost"))


@pytest.mark.parametrize("form", [{}, {"method": "mondrian"}, {"models": "k=100000"}])
def test_the_progress_that_the_requester_sees_says_the_same_for_all_rows(data, form):
    heard = set()
    ANON.run(data, asked(plain="cost", **form), lambda share, words: heard.add((share, words)))
    assert heard == {(0.5, "making the table, and looking at its risk")}


def test_a_table_that_cannot_be_made_is_a_matter_for_the_checkers(data, monkeypatch):
    held = ANON.run(data, asked(models="k=100000"), quiet).held
    assert held.result is None
    assert held.failure
    monkeypatch.setattr(making, "MOST_ROWS", 10)
    assert "10 of 3 columns" in ANON.run(data, asked(), quiet).held.failure


# In a hub


@pytest.fixture
def world(hospital_hub):
    may = "may: [see schema, query, profile]"
    hospital_hub.publish(change=[(may, may.replace("profile", "profile, anonymise")), ("roles:", BLOCK)])
    return hospital_hub


def submit(world, who="ada", **form):
    return gateway.submit(world.hub, world.people[who], order(world, **form))


def order(world, **form):
    return gateway.JobOrder("visits", "anonymise", {**FORM, **form}, "health-research", world.here)


def checking(world, who="ada", **form):
    """A job whose output waits, and the request for it."""
    job = submit(world, who, **form)
    assert world.work() == ["checking"]
    return job.id, world.rows(sa.select(Request).where(Request.job_id == job.id))[0].id


def seen(world, who, number):
    with world.hub.database.reading() as session:
        return output_check.look(world.hub, session, world.people[who], session.get_one(Request, number))


def vote(world, who, number, agreed=True, reason="Fine.", digest=None):
    if digest is None:
        digest = world.rows(sa.select(Output.digest).join(Request, Request.job_id == Output.job_id)
                            .where(Request.id == number))[0]  # fmt: skip
    with world.hub.database.writing() as session:
        person, request = session.get_one(Person, world.people[who].id), session.get_one(Request, number)
        return output_check.decide(world.hub, session, person, request, agreed, reason, digest).state


def test_whoever_may_not_anonymise_gets_nothing(hospital_hub):
    with pytest.raises(Denied):
        submit(hospital_hub)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"models": "k=3, l=2 (stay_days)"}, "at least k=5 is required"),
        ({"models": "k=5"}, r"at least l=2 \(stay_days\) is required"),
        ({"suppression": "20%"}, "at most 10% of the rows"),
        ({"sensitive": "", "models": "k=5"}, r"l=2 \(every sensitive column\) is required"),
    ],
)
def test_weaker_models_than_the_policy_asks_are_refused_when_planned(world, form, words):
    with pytest.raises(Denied, match=words) as refused:
        gateway.plan(world.hub, world.people["ada"], order(world, **form))
    verdict, _ = gateway.recall(world.hub, world.people["ada"], "visits", refused.value.decision, world.here)
    assert verdict.rule == "anonymised"


def test_two_people_look_before_the_requester_reads_anything(world):
    job, number = checking(world)
    assert world.job(job).result is None
    with world.hub.database.reading() as session:
        assert gateway.find_job(session, world.people["ada"], job).result is None
    for who in ("ada", "ben", "cleo", "stranger"):
        with pytest.raises(NotHere):
            seen(world, who, number)
    assert seen(world, "owner", number).result["rows"]
    assert vote(world, "owner", number) == "open"
    assert world.job(job).state == "checking"
    assert vote(world, "reviewer", number) == "granted"
    done = world.job(job)
    assert done.state == "done"
    assert rows_of(done.result).num_rows == done.result["rows"]
    assert json.loads(done.result["label"])["label"]["job"] == job
    assert not world.spent().amount
    log = [entry for entry in world.rows(sa.select(AuditEntry)) if entry.action == "output.released"]
    assert [entry.detail["epsilon"] for entry in log] == ["none"]
    assert log[0].detail["digest"] == world.rows(sa.select(Output))[0].digest


def test_whether_a_table_can_be_made_is_not_told_to_the_requester(world):
    possible, _ = checking(world)
    hopeless, number = checking(world, models="k=100000, l=2 (stay_days)")
    first, second = world.job(possible), world.job(hopeless)
    for name in ("state", "problem", "stage", "progress", "result", "owner_detail", "loss", "size"):
        assert getattr(first, name) == getattr(second, name)
    assert seen(world, "owner", number).failure
    with pytest.raises(NotNow, match="nothing to agree to"):
        vote(world, "owner", number)
    with pytest.raises(Denied):
        vote(world, "ada", number)
    assert vote(world, "owner", number, agreed=False, reason="Too few people.") == "denied"


def test_one_denial_ends_it_and_erases_the_file(world):
    job, number = checking(world)
    assert vote(world, "owner", number) == "open"
    with pytest.raises(BadForm):
        vote(world, "reviewer", number, agreed=False, reason="")
    assert vote(world, "reviewer", number, agreed=False, reason="Age is too fine.") == "denied"
    assert world.job(job).state == "refused"
    assert world.rows(sa.select(Output.sealed)) == [None]
    assert [one.reason for one in world.rows(sa.select(Decision))] == ["Fine.", "Age is too fine."]
    with pytest.raises(NotNow):
        vote(world, "reviewer", number)


def test_nobody_votes_twice_for_themself_or_for_other_bytes(world):
    _, number = checking(world)
    with pytest.raises(Denied):
        vote(world, "ada", number)
    with pytest.raises(NotHere):
        vote(world, "ben", number)
    for digest in ("", "0" * 64):
        with pytest.raises(NotNow, match="not the output"):
            vote(world, "owner", number, digest=digest)
    vote(world, "owner", number)
    with pytest.raises(NotNow, match="already"):
        vote(world, "owner", number)


def test_no_other_way_of_agreeing_releases_an_output(world):
    job, number = checking(world)
    with world.hub.database.writing() as session, pytest.raises(NotNow):
        approvals.decide(world.hub, session, world.people["owner"], session.get_one(Request, number), True, "")
    assert world.job(job).state == "checking"


def test_an_output_that_was_exchanged_in_the_database_is_not_released(world):
    first, number = checking(world)
    second, _ = checking(world, models="k=20, l=2 (stay_days)")
    vote(world, "owner", number)
    with world.hub.database.writing() as session:
        other = session.get_one(Output, second)
        session.execute(sa.update(Output).where(Output.job_id == first).values(sealed=other.sealed))
    with pytest.raises(CloisterError):
        vote(world, "reviewer", number)
    assert world.job(first).state == "checking"


def test_the_requester_may_withdraw_until_it_is_released(world):
    job, number = checking(world)
    vote(world, "owner", number)
    with world.hub.database.writing() as session:
        request = session.get_one(Request, number)
        approvals.withdraw(world.hub, session, session.get_one(Person, world.people["ada"].id), request)
    assert (world.job(job).state, world.rows(sa.select(Output.sealed))) == ("cancelled", [None])
    with pytest.raises(NotNow):
        vote(world, "reviewer", number)
    other, _ = checking(world, models="k=6, l=2 (stay_days)")
    assert gateway.cancel(world.hub, world.people["ada"], other).state == "cancelled"


def test_an_output_that_nobody_decides_on_expires_and_is_erased(world):
    job, number = checking(world)
    with world.hub.database.writing() as session:
        session.get_one(Request, number).ends = 1.0
    with world.hub.database.writing() as session:
        assert approvals.expire(world.hub, session) == 1
    assert (world.job(job).state, world.rows(sa.select(Output.sealed))) == ("refused", [None])


def test_somebody_of_the_owners_organisation_is_among_those_who_agree(world):
    change = [("[reviewer@hospital.example]", "[ben@university.example, cleo@college.example]")]
    may = "may: [see schema, query, profile]"
    world.publish(change=[*change, (may, may.replace("profile", "profile, anonymise")), ("roles:", BLOCK)])
    job, number = checking(world)
    assert vote(world, "ben", number) == "open"
    assert vote(world, "cleo", number) == "open"
    assert world.job(job).state == "checking"
    assert vote(world, "owner", number) == "granted"


def test_too_few_checkers_are_told_before_anything_runs(world):
    may = "may: [see schema, query, profile]"
    changes = [("reviewers: [reviewer@hospital.example]\n", ""), (may, may.replace("profile", "profile, anonymise"))]
    world.publish(change=changes)
    assert "2 people besides you" in gateway.plan(world.hub, world.people["ada"], order(world)).blocked
    with pytest.raises(NotNow, match="name reviewers"):
        submit(world)


def test_a_stricter_policy_holds_for_what_is_queued_and_for_what_is_being_looked_at(world):
    job, number = checking(world)
    vote(world, "owner", number)
    waiting = submit(world, models="k=7, l=2 (stay_days)")
    may = "may: [see schema, query, profile]"
    stricter = BLOCK.replace("k=5", "k=10")
    world.publish(change=[(may, may.replace("profile", "profile, anonymise")), ("roles:", stricter)])
    assert world.work() == ["refused"]
    assert "k=10" in world.job(waiting.id).problem
    with pytest.raises(NotNow, match="no longer allows"):
        vote(world, "reviewer", number)
    assert world.job(job).state == "checking"


def test_a_laxer_policy_lowers_nothing_for_what_is_being_looked_at(world):
    may = "may: [see schema, query, profile]"
    three = BLOCK.replace("10%}", "10%, reviewers: 3}")
    named = ("[reviewer@hospital.example]", "[reviewer@hospital.example, cleo@college.example]")
    change = [(may, may.replace("profile", "profile, anonymise")), named]
    world.publish(change=[*change, ("roles:", three)])
    submit(world)
    world.publish(change=[*change, ("roles:", BLOCK)])
    assert world.work() == ["checking"]
    number = world.rows(sa.select(Request))[0].id
    assert [vote(world, who, number) for who in ("owner", "reviewer", "cleo")] == ["open", "open", "granted"]


def test_votes_at_the_same_time_count_once_each_and_release_once(world):
    job, number = checking(world)
    ends = []

    def agree(who):
        try:
            ends.append(vote(world, who, number))
        except NotNow as error:
            ends.append(str(error))

    threads = [threading.Thread(target=agree, args=(who,)) for who in ("owner", "reviewer", "owner", "reviewer")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(end for end in ends if not end.startswith("CLO")) == ["granted", "open"]
    assert world.job(job).state == "done"
    assert len([entry for entry in world.rows(sa.select(AuditEntry)) if entry.action == "output.released"]) == 1


# Pages, the API and the client


@pytest.fixture
def web(world):
    return TestClient(create_app(world.hub), follow_redirects=False)


@pytest.fixture
def cookie(world):
    def make(who):
        with world.hub.database.writing() as session:
            person = session.get_one(Person, world.people[who].id)
            return {
                "cookie": f"cloister-session={sessions.begin(session, world.hub.settings, person, complete=True)[0]}"
            }

    return make


@pytest.fixture
def token(world):
    def make(who):
        person = world.people[who]
        with world.hub.database.writing() as session:
            secret = tokens.make(session, session.get_one(Person, person.id), "t", ("read", "work", "share"), 1)
        return {"authorization": f"Bearer {secret}"}

    return make


FILES = ("/output.parquet", "/output.csv")


def test_the_page_shows_the_output_to_those_who_check_it_and_to_nobody_else(world, web, cookie):
    job, number = checking(world)
    result = seen(world, "owner", number).result
    for who in ("owner", "reviewer"):
        page = web.get(f"/requests/{number}", headers=cookie(who))
        assert page.status_code == 200
        assert "Some of the rows" in page.text
        assert "prosecutor" in page.text
        assert seen(world, "owner", number).digest in page.text
        assert web.get(f"/requests/{number}/output.parquet", headers=cookie(who)).content == base64.b64decode(
            result["file"]
        )
        assert len(web.get(f"/requests/{number}/output.csv", headers=cookie(who)).text.splitlines()) > 5
    mine = web.get(f"/requests/{number}", headers=cookie("ada"))
    assert mine.status_code == 200
    assert "Some of the rows" not in mine.text
    assert "Withdraw" in mine.text
    assert {web.get(f"/requests/{number}{one}", headers=cookie("ada")).status_code for one in FILES} == {404}
    for who in ("ben", "stranger"):
        paths = ("", *FILES)
        assert {web.get(f"/requests/{number}{one}", headers=cookie(who)).status_code for one in paths} == {404}
    page = web.get(f"/jobs/{job}", headers=cookie("ada"))
    assert "<progress" not in page.text  # people look at it: nothing progresses
    assert "Others look at the table" in page.text
    for after in ("/table.parquet", "/table.csv", "/table.side.json", "/label"):
        assert web.get(f"/jobs/{job}{after}", headers=cookie("ada")).status_code == 404
    looks = [entry.person_id for entry in world.rows(sa.select(AuditEntry)) if entry.action == "output.downloaded"]
    assert set(looks) == {world.people["owner"].id, world.people["reviewer"].id}


def csrf_of(text):
    return re.search(r'name="csrf" value="([^"]+)"', text)[1]


def test_two_people_agree_on_the_page_and_the_requester_downloads(world, web, cookie):
    job, number = checking(world)
    for who in ("owner", "reviewer"):
        mine = cookie(who)
        text = web.get(f"/requests/{number}", headers=mine).text
        digest = re.search(r'name="digest" value="([0-9a-f]{64})"', text)[1]
        sent = {"csrf": csrf_of(text), "word": "agree", "digest": digest}
        assert web.post(f"/requests/{number}/decide", data=sent, headers=mine).status_code == 303
    ada = cookie("ada")
    got = {after: web.get(f"/jobs/{job}{after}", headers=ada) for after in ("", "/table.parquet", "/table.side.json")}
    assert {one.status_code for one in got.values()} == {200}
    assert "not differentially private" in got[""].text
    side = got["/table.side.json"].json()
    assert hashlib.sha256(got["/table.parquet"].content).hexdigest() == side["sha256"]
    assert "Released without epsilon" in web.get("/datasets/visits/ledger", headers=cookie("owner")).text
    assert "Anonymised releases" in web.get("/datasets/visits", headers=cookie("owner")).text
    assert "Anonymised releases" not in web.get("/datasets/visits", headers=ada).text
    assert web.get(f"/jobs/{job}/table.parquet", headers=cookie("owner")).status_code == 404


def test_the_rows_that_are_shown_are_of_many_classes():
    table = pa.table({"age": [age for age in range(100) for _ in range(50)]})
    shown = making._spread(table)
    assert shown.num_rows == 20
    assert len(set(shown["age"].to_pylist())) == 20
    assert making._spread(table.slice(0, 7)).num_rows == 7


def test_the_form_of_the_work_is_drawn_and_planned(world, web, cookie):
    ada = cookie("ada")
    text = web.get("/work/anonymise/visits", headers=ada).text
    assert "Quasi-identifiers" in text
    # Nobody has to be refused to learn what is asked of a release.
    rule = (
        "By the policy, a release satisfies at least k=5, l=2, leaves out at most 10% of the rows, and leaves after 2"
    )
    assert rule in text
    assert 'value="k=5, l=2"' in text  # what is filled in is not refused
    assert "By the policy, " not in web.get("/work/query/visits", headers=ada).text
    sent = {**FORM, "table": "visits", "method": "recode", "purpose": "health-research", "csrf": csrf_of(text)}
    planned = web.post("/work/anonymise/visits", data={**sent, "action": "plan"}, headers=ada)
    assert planned.status_code == 200
    assert "Others look at the table before you get it" in planned.text
    assert "Left for everybody" not in planned.text  # no budget limits it
    weak = web.post("/work/anonymise/visits", data={**sent, "models": "k=2", "action": "plan"}, headers=ada)
    assert weak.status_code == 403
    assert "k=5" in weak.text


class Hub:
    """The hub's API, as the client's transport and client see it."""

    owner_key = None

    def __init__(self, web, headers, key):
        self.web, self.headers, self.owner_key = web, headers, key
        self.transport = SimpleNamespace(address="http://hub")

    def get(self, path):
        return self.web.get(path, headers=self.headers).json()

    def post(self, path, body):
        answer = self.web.post(path, json=body, headers=self.headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def checked(self, receipt):
        return receipt


def test_the_client_asks_waits_for_people_and_gets_the_signed_rows(world, web, token):
    visits = RemoteDataset(Hub(web, token("ada"), world.hub.key.public), "visits", "health-research")
    job = visits.anonymise(models=FORM["models"], quasi=["age", "ward"], sensitive=["stay_days"], wait_s=0)
    assert world.work() == ["checking"]
    with pytest.raises(Waiting, match="people look at its output"):
        job.anonymised()
    assert job.record["result"] is None
    owner, reviewer = (Hub(web, token(who), None) for who in ("owner", "reviewer"))
    (waiting,) = owner.get("/api/requests")["waiting"]
    assert waiting["kind"] == "output"
    path = f"/api/requests/{waiting['id']}"
    facts = owner.get(f"{path}/output")
    assert "file" not in facts["result"]
    assert web.get(f"{path}/output/file", headers=owner.headers).content.startswith(b"PAR1")
    assert web.get(f"{path}/output", headers=token("ada")).status_code == 404
    assert web.get(f"{path}/output/file", headers=token("ben")).status_code == 404
    vote_of = {"agreed": True, "digest": facts["digest"]}
    assert owner.post(f"{path}/decision", vote_of)["state"] == "open"
    assert reviewer.post(f"{path}/decision", vote_of)["state"] == "granted"
    job.refresh()
    table = job.anonymised()
    assert table.label == "k=5, l=2 (stay_days): not differentially private"
    assert not check(table.rows, quasi=["age", "ward"], sensitive=["stay_days"]).meets(k=5)
    assert web.get(f"/api/jobs/{job.id}/table", headers=token("ada")).content.startswith(b"PAR1")
    (line,) = owner.get("/api/datasets/visits/ledger")["without_epsilon"]
    assert (line["job"], line["purpose"]) == (job.id, "health-research")
    other = copy.deepcopy(job.record)
    other["result"]["rows"] += 1
    job.record = other
    with pytest.raises(CloisterError):
        job.anonymised()


def test_the_owner_reads_what_an_earlier_release_adds(world, web, cookie):
    for models in (FORM["models"], "k=9, l=2 (stay_days)"):
        job, number = checking(world, models=models)
        pages = {who: web.get(f"/requests/{number}", headers=cookie(who)).text for who in ("owner", "reviewer")}
        vote(world, "owner", number)
        vote(world, "reviewer", number)
    assert "Together with other releases" in pages["owner"]
    assert "Together with other releases" not in pages["reviewer"]
    with world.hub.database.reading() as session:
        newest, first = output_check.earlier_releases(world.hub, session, world.dataset())
    assert (newest.job_id, first.intersection) == (job, ())
    (line,) = newest.intersection
    assert (line["jobs"], line["column"]) == ([first.job_id], "stay_days")
    assert 0 <= line["at_risk"] <= line["people"]
    assert line["contradictions"] <= line["people"] // 5  # those whose rows one of the two leaves out
    assert len(line["notes"]) == bool(line["contradictions"])
    assert f"with job {first.job_id}" in web.get("/datasets/visits", headers=cookie("owner")).text


def test_the_card_for_people_in_the_data_says_that_its_limits_do_not_cover_such_a_table(world, web, cookie):
    card = "/datasets/visits/subject"
    assert "No limit on this page" not in web.get(card, headers=cookie("owner")).text
    _, number = checking(world)
    vote(world, "owner", number)
    vote(world, "reviewer", number)
    assert "No limit on this page covers them" in web.get(card, headers=cookie("owner")).text


# Roles of the schema


STATED = {"zip": "quasi-identifier", "disease": "sensitive", "email": "identifier", "cost": ""}


def test_columns_that_the_form_leaves_out_have_the_roles_of_the_schema():
    assert making._columns("", "quasi-identifier", STATED, "visits") == ("zip",)
    assert making._columns("", "sensitive", STATED, "visits") == ("disease",)
    assert making._columns("", "plain", STATED, "visits") == ()
    assert making._columns("COST", "plain", STATED, "visits") == ("cost",)


@pytest.mark.parametrize(
    ("name", "role", "words"),
    [
        ("email", "plain", "never released"),
        ("disease", "plain", "sensitive column by the schema"),
        ("zip", "sensitive", "quasi-identifier column by the schema"),
    ],
)
def test_a_request_cannot_change_the_role_that_the_schema_states(name, role, words):
    with pytest.raises(BadSchema, match=words):
        making._columns(name, role, STATED, "visits")


def test_an_unforeseen_failure_is_a_matter_for_the_checkers_too(tmp_path):
    """One huge number in a column without bounds: no hierarchy of intervals is made of it."""
    rows = {"wage": [10.0, 20.0, 30.0, 1e308, -1e308], "sick": ["yes", "no", "yes", "no", "yes"]}
    schema = {
        "unit": {"name": "row"},
        "tables": {"staff": {"columns": {"wage": {"type": "real"}, "sick": {"type": "text"}}}},
    }
    form = ANON.parse({"quasi": "wage", "plain": "sick", "models": "k=2"})

    def fails(*_):
        raise ValueError("ZZ a row")

    with (
        cl.open(pa.table(rows), schema=schema, budget=rho(1), ledger=tmp_path, name="staff") as data,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert ANON.run(data, form, quiet).held is not None
        patch.setattr(making, "_make", fails)
        held = ANON.run(data, form, quiet).held
    assert held.result is None
    assert "ValueError" in held.failure
    assert "ZZ" not in held.failure


def test_a_job_that_is_taken_away_while_a_table_is_made_is_no_failure_of_it(data):
    def lost(_share, words):
        raise Lost

    with pytest.raises(Lost):
        ANON.run(data, asked(), lost)

    calls = iter(range(100))

    def cancelled(_share, words):
        if next(calls):
            raise Cancelled

    with pytest.raises(Cancelled):
        ANON.run(data, asked(), cancelled)
