"""What a request may cost: transactions that are held, results that are kept, bodies that are read, odd values."""

import asyncio
import functools
import hashlib
import itertools
import json
import logging
import threading
import time

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from cloister.hub.approvals.visibility import SAME
from cloister.hub.core.models import Job, Notice, Request, Survey
from cloister.hub.core.settings import Settings
from cloister.hub.jobs import gateway
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.users import sessions, sign_in, tokens, user_actions
from cloister.hub.users.passwords import seal
from cloister.hub.users.rate_limits import Limiter
from cloister.hub.web import security
from cloister.hub.web.app import create_app
from cloister.hub.web.context import guard
from cloister.hub.web.respondent import page as respondent_page
from cloister.hub.web.respondent.answers import slowed
from cloister.hub.web.security import BodyLimit, KnownHosts, NoSurprises
from cloister.privacy.errors import BadForm, NotHere, NotNow, OverBudget, QueryRefused, SignInFailed, TooMany

PASSWORD = "eleven green bottles"


def program(world, who="ada", scopes=("read", "work", "share")):
    """The application, asked with somebody's token."""
    with world.hub.database.writing() as session:
        secret = tokens.make(session, world.people[who], "t", list(scopes), 3)
    return TestClient(
        create_app(world.hub), headers={"Authorization": f"Bearer {secret}"}, raise_server_exceptions=False
    )


def browser(world, who="ada"):
    """The application, asked with somebody's cookie; and the token of their pages."""
    with world.hub.database.writing() as session:
        secret, kept = sessions.begin(session, world.hub.settings, world.people[who], True)
    client = TestClient(create_app(world.hub), raise_server_exceptions=False, follow_redirects=False)
    client.cookies.set("cloister-session", secret)
    return client, kept.csrf


# Transactions


def test_questions_are_certified_before_a_transaction_begins(hospital_hub, monkeypatch):
    """While mechanisms are chosen somebody else can write: the database has one writer at a time."""
    web, wrote = program(hospital_hub), []
    certify = SurveyQuestion.question

    def slow(self, *asked, **more):
        done = threading.Event()

        def write():
            with hospital_hub.hub.database.writing() as session:
                session.add(Notice(person_id=hospital_hub.ada.id, text="A word."))
            done.set()

        threading.Thread(target=write).start()
        wrote.append(done.wait(5))
        return certify(self, *asked, **more)

    monkeypatch.setattr(SurveyQuestion, "question", slow)
    asked = [{"id": f"q{time.time_ns()}"[:20], "type": "yes_no", "text": "Well?", "levels": "light 2"}]
    facts = {"title": "Sleep", "purpose": "To learn.", "consent": "I agree.", "asked": asked}
    assert web.post("/api/surveys", json={"name": "sleep", **facts}).status_code == 201
    assert web.post("/api/surveys/sleep/publish").status_code == 200
    assert len(wrote) >= 2
    assert all(wrote)


def test_a_busy_database_is_answered_with_503_and_when_to_come_back(hospital_hub, monkeypatch):
    web = program(hospital_hub)

    def busy(*_, **__):
        raise sa.exc.OperationalError("SELECT secret", {}, Exception("database is locked"))

    monkeypatch.setattr(surveys, "mine", busy)
    answer = web.get("/api/surveys")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "secret" not in answer.text


def test_costly_requests_count_as_several(world_maker, tmp_path):
    world = world_maker(tmp_path / "hub", requests_per_minute=50, web_processes=1)
    web = program(world)
    web.app.state.limiter = Limiter(50, 60, clock=lambda: 0.0)  # a slow machine grants no more
    question = {"question": {"type": "yes_no", "text": "Well?"}}
    answers = [web.post("/api/surveys/advice", json=question).status_code for _ in range(8)]
    assert answers.count(200) == 5
    assert answers[-1] == 429
    world.hub.close()


def test_all_processes_together_grant_no_more_than_the_limit(tmp_path, hospital_hub):
    hospital_hub.hub.settings = Settings(
        folder=tmp_path, web_processes=4, requests_per_minute=100, answers_per_minute=40
    )
    assert create_app(hospital_hub.hub).state.limiter.most == 25
    assert create_app(hospital_hub.hub).state.answers.most == 10
    limiter = Limiter(10, clock=lambda: 0.0)
    limiter.check("a", 10)
    with pytest.raises(TooMany):
        limiter.check("a")


# Results


def test_an_answer_of_too_many_cells_is_refused_before_it_is_paid_for(world_maker, tmp_path):
    world = world_maker(tmp_path / "hub", result_cells=100)
    sql = "SELECT ward, age, COUNT(*) AS n FROM visits GROUP BY ward, age"
    with pytest.raises(QueryRefused, match="100 are kept here"):
        world.submit("ada", sql)
    assert world.submit("ada").state == "queued"
    assert not world.spent().amount
    world.hub.close()


def test_a_repeated_question_keeps_its_result_once(hospital_hub):
    numbers = []
    for _ in range(4):
        numbers.append(hospital_hub.submit("ada").id)
        assert hospital_hub.work() == ["done"]
    kept = hospital_hub.rows(sa.select(Job.result).order_by(Job.id))
    assert sum(SAME not in one for one in kept) <= 2  # paid for, and from the record: they differ in what they cost
    assert kept[-1][SAME] in numbers
    with hospital_hub.hub.database.reading() as session:
        shown = [gateway.find_job(session, hospital_hub.ada, one).result for one in numbers]
    assert all(one["rows"] == shown[0]["rows"] for one in shown)
    assert len({one["label"] for one in shown}) >= 2  # each has its own
    answer = program(hospital_hub).get(f"/api/jobs/{numbers[-1]}").json()
    assert answer["result"]["rows"] == shown[0]["rows"]
    with hospital_hub.hub.database.reading() as session:
        assert gateway.find_job(session, hospital_hub.owner, numbers[0]).result is None  # it is its asker's


def test_lists_load_no_result(hospital_hub):
    hospital_hub.submit("ada")
    hospital_hub.work()
    web, asked = program(hospital_hub), []
    owner = program(hospital_hub, "owner")

    def note(_, __, statement, *___):
        asked.append(statement)

    sa.event.listen(hospital_hub.hub.database.engine, "before_cursor_execute", note)
    for client, paths in (
        (web, ("/api/jobs", "/api/datasets/visits/jobs", "/api/ledger")),
        (owner, ("/api/datasets/visits/jobs", "/api/datasets/visits/ledger", "/api/requests")),
    ):
        for path in paths:
            assert client.get(path).status_code == 200, path
    page, _ = browser(hospital_hub)
    for path in ("/jobs", "/", "/work/query/visits", "/ledger"):
        assert page.get(path).status_code == 200, path
    page, _ = browser(hospital_hub, "owner")
    for path in ("/datasets/visits/activity", "/datasets/visits/ledger", "/requests"):
        assert page.get(path).status_code == 200, path
    assert any("FROM jobs" in one for one in asked)
    assert not any("jobs.result" in one or "jobs_1.result" in one for one in asked)


def test_a_result_is_sent_as_it_is_stored_and_a_repeated_one_with_its_own_label(hospital_hub):
    numbers = [hospital_hub.submit("ada").id for _ in range(3)]
    assert hospital_hub.work() == ["done"] * 3
    web, owner = program(hospital_hub), program(hospital_hub, "owner")
    for number in numbers:
        assert web.get(f"/api/jobs/{number}").json()["result"] == hospital_hub.job(number).result
        assert owner.get(f"/api/jobs/{number}").json()["result"] is None
    assert SAME in hospital_hub.rows(sa.select(Job).where(Job.id == numbers[2]))[0].result


def kept_by(world, who, *states):
    mine = sa.select(sa.func.coalesce(sa.func.sum(Job.size), 0)).where(Job.person_id == world.people[who].id)
    return world.rows(mine.where(Job.state.in_(states)))[0]


def test_what_is_kept_for_one_person_is_limited_and_can_be_removed(world_maker, tmp_path):
    world = world_maker(tmp_path / "hub", results_mb=1)
    first = world.submit("ada").id
    assert world.work() == ["done"]
    with world.hub.database.writing() as session:
        session.execute(sa.update(Job).where(Job.id == first).values(size=10**6 - 1000))
    with pytest.raises(NotNow, match=r"1 MB of results are kept.* Remove some"):
        world.submit("ada")
    world.submit("ben")  # others are not concerned
    gateway.forget(world.hub, world.ada, first)
    assert world.job(first).result is None
    assert world.submit("ada").state == "queued"
    for who in ("ben", "owner"):
        with pytest.raises(NotHere):
            gateway.forget(world.hub, world.people[who], first)
    world.hub.close()


def test_results_of_jobs_under_way_count_before_they_are_kept(world_maker, tmp_path):
    """So what was charged can be kept: the limit holds when all of them are done."""
    world = world_maker(tmp_path / "hub", results_mb=1)
    jobs, refusals = [], []
    for number in range(20):
        sql = f"SELECT ward, COUNT(*) AS n{number} FROM visits WHERE age > {number} GROUP BY ward"
        try:
            jobs.append(world.submit("ada", sql, "rho 0.0001").id)
        except NotNow as error:
            refusals.append(str(error))
    assert len(jobs) > 3
    assert "Wait until your jobs under way are done" in refusals[0]
    assert kept_by(world, "ada", "queued") <= 10**6
    gateway.cancel(world.hub, world.ada, jobs[0])
    jobs.append(world.submit("ada").id)  # a cancelled one keeps no space
    assert set(world.work()) == {"done"}
    assert 0 < kept_by(world, "ada", "done") < 10**6
    assert world.submit("ada", spend="rho 0.002").state == "queued"  # they took less than they might have
    world.hub.close()


def test_a_job_whose_result_is_not_known_counts_with_the_most_that_one_may_have(world_maker, tmp_path):
    world = world_maker(tmp_path / "hub", results_mb=100, result_mb=40)
    world.publish(change=[("query, profile]", "query, profile, synthesise]")])
    form = {"kind": "synthesise", "method": "independent", "table": "visits", "columns": "ward", "rows": "10"}
    first, _ = (world.submit("ada", spend=f"rho 0.000{i}", **form) for i in (1, 2))
    with pytest.raises(NotNow, match=r"jobs under way may add 80 MB, and this one 40 MB"):
        world.submit("ada", spend="rho 0.0003", **form)
    with world.hub.database.writing() as session:  # as an older version has stored it
        session.execute(sa.update(Job).where(Job.id == first.id).values(size=None))
    with pytest.raises(NotNow, match=r"jobs under way may add 80 MB"):
        world.submit("ada", spend="rho 0.0003", **form)
    assert world.work() == ["done", "done"]
    assert world.submit("ada", spend="rho 0.0003", **form).state == "queued"
    world.hub.close()


def test_a_result_has_no_more_bytes_than_its_plan_says(hospital_hub):
    for sql in (
        "SELECT COUNT(*) AS n FROM visits",
        "SELECT ward, COUNT(*) AS n, SUM(age) AS s, AVG(age) AS a FROM visits GROUP BY ward",
        "SELECT ward, age, COUNT(*) AS n FROM visits GROUP BY ward, age",
        "SELECT ward, age, COUNT(*) AS n FROM visits GROUP BY GROUPING SETS ((ward, age), (ward), ())",
        f"SELECT CASE WHEN age > 50 THEN '{'ü' * 4000}' ELSE 'ü' END AS w, COUNT(*) AS n FROM visits GROUP BY w",
        f'SELECT ward, COUNT(*) / 2 AS "{"ü" * 50}" FROM visits WHERE age IN ({"3, " * 3000} 4) GROUP BY ward',
        "SELECT " + ", ".join(f"COUNT(*) + {i} AS column_{i}" for i in range(100)) + " FROM visits",
    ):
        number = hospital_hub.submit("ada", sql, "rho 0.001").id
        largest = kept_by(hospital_hub, "ada", "queued")
        assert hospital_hub.work() == ["done"]
        assert 0 < hospital_hub.job(number).size <= largest < 10**7, sql


def test_a_profile_has_no_more_bytes_than_its_plan_says(hospital_hub):
    number = hospital_hub.submit("ada", kind="profile", table="visits", bins="40").id
    largest = kept_by(hospital_hub, "ada", "queued")
    assert hospital_hub.work() == ["done"]
    assert 0 < hospital_hub.job(number).size <= largest < 10**7


def test_texts_that_are_not_known_beforehand_have_no_bound(hospital_hub):
    for sql in (
        "SELECT ward, CASE WHEN COUNT(*) > 5 THEN 'many' ELSE 'few' END AS n FROM visits GROUP BY ward",
        "SELECT UPPER(ward) AS w, COUNT(*) AS n FROM visits GROUP BY ward",
    ):
        form = {"sql": sql, "spend": "rho 0.01"}
        order = gateway.JobOrder("visits", "query", form, "health-research", hospital_hub.here)
        assert gateway.pass_gate(hospital_hub.hub, hospital_hub.ada, order).planned.largest == 0, sql


# Approvals


def test_releases_that_wait_are_counted_and_added_up(hospital_hub):
    waiting = [hospital_hub.submit("ada", f"SELECT SUM(age) AS s{i} FROM visits", "rho 0.04") for i in range(2)]
    assert {one.state for one in waiting} == {"waiting"}
    with pytest.raises(OverBudget, match="your limit on this dataset"):  # 0.12 of 0.1
        hospital_hub.submit("ada", "SELECT SUM(age) AS again FROM visits WHERE age > 3", "rho 0.04")
    assert len(hospital_hub.rows(sa.select(Request))) == 2


def test_no_more_than_twenty_wait_for_a_decision(hospital_hub):
    hospital_hub.publish(change=[("per_user: {rho: 0.1}", "per_user: {rho: 2}")])
    for number in range(20):
        hospital_hub.submit("ada", f"SELECT COUNT(*) AS n FROM visits WHERE age > {number}", "rho 0.04")
    with pytest.raises(NotNow, match="wait for somebody to agree"):
        hospital_hub.submit("ada", "SELECT COUNT(*) AS n FROM visits WHERE age > 99", "rho 0.04")


def test_an_answer_on_record_asks_as_many_people_as_the_policy_will_ask_for(hospital_hub):
    hospital_hub.publish(change=[("approvals: [{above: {rho: 0.03}, needs: 1}]",
                                  "approvals: [{above: {rho: 0.03}, needs: 2}]"),
                                 ("reviewers: [reviewer@hospital.example]",
                                  "reviewers: [reviewer@hospital.example, cleo@college.example]")])  # fmt: skip
    from cloister.hub.approvals import decide

    def approved(job):
        for who in ("owner", "reviewer"):
            with hospital_hub.hub.database.writing() as session:
                request = session.scalar(sa.select(Request).where(Request.job_id == job.id))
                assert request.needs == 2
                decide(hospital_hub.hub, session, hospital_hub.people[who], request, True, "")
        return hospital_hub.work()

    assert approved(hospital_hub.submit("ada", spend="rho 0.04")) == ["done"]
    second = hospital_hub.submit("ben", spend="rho 0.04")  # costs the dataset nothing, and ben as much as ada
    assert approved(second) == ["done"]


# Bodies


def test_files_carry_their_token_beside_the_body(hospital_hub):
    page, csrf = browser(hospital_hub, "owner")
    kind = {"content-type": "multipart/form-data; boundary=b"}
    body = f'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{csrf}\r\n--b--\r\n'.encode()
    path = "/datasets/visits/versions/files"
    assert page.post(path, headers=kind, content=body).status_code == 403
    assert page.post(path, headers=kind, content=body, params={"csrf": csrf}).status_code == 422  # a file is missing
    assert page.post(path, headers={**kind, "x-csrf": csrf}, content=body).status_code == 422
    assert program(hospital_hub).put("/api/uploads/x?offset=0", content=b"x" * 100).status_code == 404


def test_forms_are_parsed_only_after_rights_are_checked(hospital_hub, monkeypatch):
    def never(self, *_, **__):
        raise AssertionError("the form was read")

    page, csrf = browser(hospital_hub, "stranger")
    monkeypatch.setattr(HttpRequest, "form", never)
    kind = {"content-type": "multipart/form-data; boundary=b"}
    for path in ("/datasets/visits/versions/files", "/datasets/visits/tables"):
        assert page.post(path, params={"csrf": csrf}, headers=kind, content=b"--b--\r\n").status_code == 404


FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("body", [b"&" * (2**21 - 10), b"a=" + b"%41" * 600_000, b"a&" * 1_000_000, b"=&" * 40_000])
def test_a_form_of_a_stranger_is_refused_before_it_is_parsed(hospital_hub, within, body):
    web = TestClient(create_app(hospital_hub.hub), raise_server_exceptions=False)
    answer = within(0.5, lambda: web.post("/sign-in", content=body, headers=FORM))
    assert answer.status_code == 413
    assert "64 KB" in answer.text


def test_a_form_has_a_number_of_fields_that_is_checked_before_it_is_parsed(hospital_hub, within):
    page, csrf = browser(hospital_hub)
    for body in (b"&" * (2**21 - 10), b"a&" * 1_000_000):
        answer = within(0.5, functools.partial(page.post, "/account/password", content=body, headers=FORM))
        assert answer.status_code == 422
        assert "2,000 fields" in answer.text
    page.post("/account", content=f"csrf={csrf}&name=%C3%A9+x&b".encode(), headers=FORM)


@pytest.mark.parametrize("path", ["/api/surveys", "/api/datasets/visits/versions", "/api/datasets/visits/plan"])
def test_a_body_of_very_many_members_is_refused_in_few_words_before_it_is_checked(hospital_hub, within, path):
    web = program(hospital_hub)
    kind = {"content-type": "application/json"}
    unknown = json.dumps({"name": "abc", **{str(number): 1 for number in range(190_000)}})
    numbers = json.dumps({"uploads": list(range(190_000)), "asked": [{}] * 100})
    nested = json.dumps({"name": "abc", "asked": [[]] * 100_000})
    for body in (unknown, numbers, nested):
        answer = within(0.5, functools.partial(web.post, path, content=body, headers=kind))
        assert answer.status_code == 413
        assert answer.json()["code"] == "CLO-506"
        assert len(answer.content) < 1000
    few = json.dumps({"name": "abc", **{str(number): 1 for number in range(4_000)}})
    answer = web.post(path, content=few, headers=kind)
    assert answer.status_code in (404, 422)
    assert len(answer.content) < 5000


def test_a_body_that_hides_its_members_is_counted_in_no_time(hospital_hub, within):
    kind = {"content-type": "application/json"}
    web = TestClient(create_app(hospital_hub.hub), raise_server_exceptions=False)
    open_text = b"," * 5001 + b'"' + b'\\"' * 1_000_000  # every quotation mark could begin a text that does not end
    wide = ('["\u0122"' + ",0" * 400_000 + ',"\u0122"]').encode("utf-16")  # half of this letter is a quotation mark
    for body in (open_text, wide):
        answer = within(3, functools.partial(web.post, "/api/datasets/visits/plan", content=body, headers=kind))
        assert answer.status_code in (401, 413, 422)


def test_the_limit_of_a_strangers_form_holds_however_its_type_and_token_are_written(hospital_hub, within):
    web = TestClient(create_app(hospital_hub.hub), raise_server_exceptions=False)
    visit = "v" * 40
    token = hashlib.sha256(b"cloister csrf " + visit.encode()).hexdigest()
    for kind in ("application/x-www-form-urlencoded", "Application/X-WWW-Form-Urlencoded; charset=utf-8"):
        for more in ({}, {"x-csrf": token}):
            headers = {"content-type": kind, "cookie": f"cloister-visit={visit}", **more}
            answer = within(3, functools.partial(web.post, "/sign-in", content=b"&" * 2_000_000, headers=headers))
            assert answer.status_code == 413
            assert "64 KB" in answer.text


def test_commas_in_a_text_are_no_members(hospital_hub):
    text = "a, [b], {c} " * 5000
    answer = program(hospital_hub, "owner").put("/api/datasets/visits/policy", json={"text": text + '\\"' * 10})
    assert answer.status_code == 422
    assert "the policy has a problem" in answer.text


async def ask(app, path="/api/surveys", token="", address="192.0.2.1", form=b"", **more):
    """Ask the application on the running event loop; its status, headers and body."""
    sent, method = [], "POST" if form else "GET"

    async def receive():
        return {"type": "http.request", "body": form, "more_body": False}

    async def send(message):
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in more.items()]
    headers += [(b"authorization", f"Bearer {token}".encode())] * bool(token)
    headers += [(b"content-type", FORM["content-type"].encode())] * bool(form)
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": headers}
    await app({**scope, "root_path": "", "scheme": "http", "client": (address, 1)}, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}, body


async def until(happened):
    """Wait for something, however busy the machine is; then a moment more, for what must not happen."""
    for _ in range(300):
        if happened():
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)


def secrets_of(world, *names):
    with world.hub.database.writing() as session:
        return [tokens.make(session, world.people[name], "t", ["read", "work"], 3) for name in names]


def test_one_person_holds_a_part_of_the_threads_only(hospital_hub, monkeypatch):
    """Sixty slow requests of Ada are under way; Ben is answered at once."""
    hold, app, begun = threading.Event(), create_app(hospital_hub.hub), []

    def slow(session, person):
        begun.append(person.email)
        if person.email.startswith("ada"):
            hold.wait(60)
        return []

    monkeypatch.setattr(surveys, "mine", slow)
    ada, ben = secrets_of(hospital_hub, "ada", "ben")

    async def flood():
        many = [asyncio.create_task(ask(app, token=ada)) for _ in range(60)]
        await until(lambda: len(begun) >= 10)
        held = len(begun)
        status, *_ = await asyncio.wait_for(ask(app, token=ben), 30)
        hold.set()
        return held, status, {status for status, *_ in await asyncio.gather(*many)}

    try:
        assert asyncio.run(flood()) == (10, 200, {200})
    finally:
        hold.set()


def test_every_route_takes_a_turn(hospital_hub):
    """Files under /static are no routes: the server reads them piece by piece."""
    without, count = set(), 0
    for entry in create_app(hospital_hub.hub).routes:
        router = getattr(entry, "original_router", None)
        before = [] if router is None else [needed.dependency for needed in entry.include_context.dependencies]
        for route in [entry] if router is None else router.routes:
            needed = {part.call for part in route.dependant.dependencies} if hasattr(route, "dependant") else set()
            without |= set() if {guard, slowed} & {*before, *needed} else {route.path}
            count += 1
    assert without == {"/static", "/static/local"}
    assert count > 90


def test_a_request_that_waits_too_long_for_its_turn_is_answered_with_503_and_when_to_come_back(
    hospital_hub, monkeypatch
):
    hold, app, begun = threading.Event(), create_app(hospital_hub.hub), threading.Semaphore(0)
    monkeypatch.setattr(surveys, "mine", lambda *_: [begun.release(), hold.wait(60), []][2])
    monkeypatch.setattr(security, "WAIT_S", 0.3)
    (ada,) = secrets_of(hospital_hub, "ada")

    async def flood():
        many = [asyncio.create_task(ask(app, token=ada)) for _ in range(10)]
        for _ in many:
            await asyncio.to_thread(begun.acquire, timeout=30)
        late = await asyncio.wait_for(ask(app, token=ada), 30)
        hold.set()
        return late, {status for status, *_ in await asyncio.gather(*many)}, (await ask(app, token=ada))[0]

    try:
        (status, headers, body), others, after = asyncio.run(flood())
    finally:
        hold.set()
    assert status == 503
    assert int(headers["retry-after"]) > 0
    assert json.loads(body)["code"] == "CLO-405"
    assert (others, after) == ({200}, 200)


@pytest.fixture
def survey_page(hospital_hub, answered):
    """A hub with a survey, and what is asked of it."""
    answered([{"id": "well", "type": "yes_no", "text": "Well?"}], [])
    return create_app(hospital_hub.hub)


KINDS = ["application/json", "", "text/plain", "multipart/form-data; boundary=b", "application/x-www-form-urlencoded"]


def test_members_of_a_strangers_json_are_counted_whatever_its_header_says(survey_page, monkeypatch):
    parsed, parse = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text, **more: parsed.append(len(text)) or parse(text, **more))
    web = TestClient(survey_page, raise_server_exceptions=False)
    whole = b'{"blinded":[' + b"{}," * 174_000 + b"{}]}"
    longer = b'{"blinded":[' + b"{}," * 180_000
    answers = {}
    for path, kind, body in itertools.product(("/s/sleep/ballot", "/s/sleep/answers"), KINDS, (whole, longer)):
        headers = {"content-type": kind} if kind else {}
        answer = web.post(path, content=iter([body, b" " * 100]), headers=headers)
        answers[path, kind, len(body)] = answer.status_code
    assert set(answers.values()) == {413}, answers
    assert parsed == []


def test_a_body_that_is_longer_than_a_ballot_may_be_is_not_parsed(survey_page):
    web = TestClient(survey_page, raise_server_exceptions=False)
    answer = web.post("/s/sleep/ballot", content=b'{"secret":"' + b"x" * 600_000 + b'"}')
    assert answer.status_code == 413
    assert "512 KB" in answer.text


def test_pages_of_a_survey_asked_from_one_address_hold_a_part_of_the_threads_only(
    hospital_hub, survey_page, monkeypatch
):
    """Sixty strangers of one address wait for a page that is slow to render; others are answered at once."""
    hold, loops, values = threading.Event(), [], respondent_page._values

    def slow(*facts):
        loops.append(threading.current_thread() is threading.main_thread())
        hold.wait(60)
        return values(*facts)

    monkeypatch.setattr(respondent_page, "_values", slow)
    (ben,) = secrets_of(hospital_hub, "ben")

    async def flood():
        many = [asyncio.create_task(ask(survey_page, "/s/sleep", address="192.0.2.9")) for _ in range(60)]
        await until(lambda: loops)
        quick = [ask(survey_page, token=ben), ask(survey_page, "/sign-in"), ask(survey_page, "/s/sleep/survey.json")]
        others = [status for status, *_ in await asyncio.wait_for(asyncio.gather(quick[0], quick[1]), 30)]
        hold.set()
        others.append((await quick[2])[0])
        return others, {status for status, *_ in await asyncio.gather(*many)}

    try:
        assert asyncio.run(flood()) == ([200, 200, 200], {200})
    finally:
        hold.set()
    assert loops == [False]  # off the event loop, and once for all


def test_respondents_wait_for_the_turn_of_their_address_among_its_other_strangers(
    hospital_hub, survey_page, monkeypatch
):
    monkeypatch.setattr(security, "WAIT_S", 0.3)
    taken = {}

    async def flood():
        lines, ends = {}, asyncio.Event()

        async def hold():
            async def app(scope, receive, send):
                await security.take_turn(HttpRequest(scope), "address/192.0.2.9")
                await ends.wait()

            held = security.Turns(app)
            held.lines = lines
            await held({"type": "http"}, None, None)

        served = survey_page.build_middleware_stack()
        survey_page.middleware_stack = served
        inner = served
        while not isinstance(inner, security.Turns):
            inner = inner.app
        inner.lines = lines
        many = [asyncio.create_task(hold()) for _ in range(10)]
        await asyncio.sleep(0.1)
        for path in ("/s/sleep", "/s/sleep/survey.json"):
            taken[path] = (await ask(survey_page, path, address="192.0.2.9"))[0]
        taken["other"] = (await ask(survey_page, "/s/sleep", address="192.0.2.8"))[0]
        taken["form"] = (await ask(survey_page, "/sign-in", address="192.0.2.9", form=b"csrf=x&email=a"))[0]
        ends.set()
        await asyncio.gather(*many)
        taken["after"] = (await ask(survey_page, "/s/sleep", address="192.0.2.9"))[0]
        assert not lines

    asyncio.run(flood())
    assert taken == {"/s/sleep": 503, "/s/sleep/survey.json": 503, "other": 200, "form": 503, "after": 200}


def test_a_survey_is_rendered_once_and_the_page_holds_nothing_of_a_visitor(hospital_hub, survey_page, monkeypatch):
    calls, values = [], respondent_page._values
    monkeypatch.setattr(respondent_page, "_values", lambda *facts: [calls.append(facts[1]), values(*facts)][1])
    web = TestClient(survey_page)
    web.cookies.set("cloister-session", "marked-session")
    web.cookies.set("cloister-visit", "marked-visit" * 4)
    marked = {"authorization": "Bearer clo_marked", "x-csrf": "marked", "referer": "http://testserver/marked"}
    first = web.get("/s/sleep?lang=de&secret=marked", headers={**marked, "user-agent": "marked"})
    assert "marked" not in first.text
    plain = TestClient(survey_page).get("/s/sleep", headers={"accept-language": "de"})
    assert plain.content == first.content
    assert "set-cookie" not in {*first.headers, *plain.headers}
    assert TestClient(survey_page).get("/s/sleep", headers={"accept-language": "fr"}).content != first.content
    assert calls == ["de", "fr"]
    facts = web.get("/s/sleep/survey.json")
    assert facts.json() == surveys.public(hospital_hub.rows(sa.select(Survey))[0])
    with hospital_hub.hub.database.writing() as session:
        surveys.close(hospital_hub.hub, session, surveys.find(session, "sleep"))
    survey_page.state.intake._known.clear()  # kept for a second
    assert web.get("/s/sleep?lang=de").content != first.content
    assert web.get("/s/sleep/survey.json").json()["open"] is False


def test_a_body_that_does_not_come_is_given_up(monkeypatch):
    monkeypatch.setattr("cloister.hub.web.security._SILENCE_S", 0.05)
    caught = []

    async def app(scope, receive, send):
        try:
            await receive()
        except Exception as error:
            caught.append(getattr(error, "status_code", None))

    async def silent():
        await asyncio.sleep(10)

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "query_string": b""}
    asyncio.run(BodyLimit(app)(scope, silent, None))
    assert caught == [408]


def body_of(pieces, wait=0.0):
    """What a server hands to the application: a body that does not end."""
    sent = iter(pieces)

    async def receive():
        await asyncio.sleep(wait)
        return {"type": "http.request", "body": next(sent), "more_body": True}

    return receive


def reader(caught, ends=None):
    async def app(scope, receive, send):
        scope.update(scope.pop("limit", {}))
        try:
            while True:
                await receive()
        except (StopIteration, RuntimeError):
            await ends.wait()
        except Exception as error:
            caught.append(getattr(error, "status_code", None) or str(error))

    return app


def request_of(address, **more):
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "query_string": b""}
    return {**scope, "client": (address, 1), **more}


def test_bodies_under_way_from_one_address_have_a_sum_that_is_limited(monkeypatch):
    monkeypatch.setattr(security, "_ONE_ADDRESS", 1000)
    monkeypatch.setattr(security, "_ALL_ADDRESSES", 1500)
    caught = []

    async def flood():
        ends = asyncio.Event()
        limit = BodyLimit(reader(caught, ends), Settings())
        held = [asyncio.create_task(limit(request_of("192.0.2.1"), body_of([b"x" * 300] * 3), None))]
        await asyncio.sleep(0.05)
        await limit(request_of("192.0.2.1"), body_of([b"x" * 300] * 3), None)
        assert caught == [503]
        held.append(asyncio.create_task(limit(request_of("192.0.2.2"), body_of([b"x" * 500]), None)))
        await asyncio.sleep(0.05)
        await limit(request_of("192.0.2.3"), body_of([b"x" * 300] * 3), None)
        assert caught == [503, 503]
        ends.set()
        await asyncio.gather(*held)
        assert not limit.held

    asyncio.run(flood())


def test_a_body_that_arrives_byte_by_byte_is_given_up(monkeypatch):
    monkeypatch.setattr(security, "_SILENCE_S", 0.2)
    caught = []
    asyncio.run(BodyLimit(reader(caught))(request_of("192.0.2.1"), body_of([b"x"] * 1000, 0.01), None))
    assert caught == [408]


def test_a_route_that_knows_its_visitor_sets_a_smaller_limit_before_the_body_is_read():
    caught = []
    body = body_of([b"x" * 50_000] * 10)
    asyncio.run(BodyLimit(reader(caught))(request_of("192.0.2.1", limit={security.SMALLER: 64 * 1024}), body, None))
    assert "longer than 64 KB" in caught[0]


def test_a_client_that_gives_up_is_no_unforeseen_error(caplog):
    async def app(scope, receive, send):
        raise ClientDisconnect

    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [], "query_string": b""}
    with caplog.at_level(logging.INFO, "cloister"):
        asyncio.run(NoSurprises(app)(scope, None, None))
    assert [one.levelname for one in caplog.records] == ["INFO"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("hub.example", 200), ("HUB.example:8400", 200), ("other.example", 200), ("evil.example", 421), ("", 421),
     ("127.0.0.1", 421), ("[::1", 421)],
)  # fmt: skip
def test_only_the_names_of_the_hub_are_served(host, status):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    sent = []

    async def send(message):
        sent.append(message)

    settings = Settings(address="https://hub.example", hosts="other.example")
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host.encode())], "query_string": b""}
    asyncio.run(KnownHosts(app, settings)(scope, None, send))
    assert sent[0]["status"] == status
    sent.clear()
    asyncio.run(KnownHosts(app, settings)({**scope, "path": "/health"}, None, send))
    assert sent[0]["status"] == 200


def test_plain_http_beyond_this_machine_is_noticed():
    assert Settings(host="0.0.0.0").exposed
    assert not Settings(host="0.0.0.0", address="https://hub.example").exposed
    assert not Settings().exposed


# Spans


def test_the_frameworks_telemetry_is_off(hospital_hub):
    app = create_app(hospital_hub.hub)
    assert not app._native_telemetry.enabled()
    assert not any(app._telemetry[one] for one in ("tracing", "metrics", "logs", "operation_spans", "auto_configure"))


# Odd values

ODD = ["1e900", "-1e900", "1e-900", "1e99999999", "nan", "inf", "\ud800", "a\ud800b", "\0", "9" * 5000, 10**400, 1e308,
       -1, "", [], {}, [[[[]]]], True, None, {"\ud800": "\ud800"}]  # fmt: skip
FIELDS = {
    "query": ("sql", "spend", "within", "confidence"),
    "profile": ("table", "spend", "bins", "confidence"),
    "train": ("estimator", "table", "target", "features", "spend", "evaluate", "group", "parts"),
    "synthesise": ("method", "table", "columns", "spend", "rows", "bins", "score"),
}
GOOD = {
    "query": {"sql": "SELECT COUNT(*) AS n FROM visits", "spend": "rho 0.001"},
    "profile": {"table": "visits", "spend": "rho 0.001"},
    "train": {"estimator": "MixedNB", "table": "visits", "target": "ward", "features": "age", "spend": "rho 0.001"},
    "synthesise": {"method": "independent", "table": "visits", "columns": "ward", "spend": "rho 0.001"},
}


def dumps(body):
    return json.dumps(body, ensure_ascii=True).encode()


@pytest.mark.parametrize("kind", FIELDS)
def test_no_odd_value_in_a_form_of_work_is_an_unforeseen_error(hospital_hub, kind):
    hospital_hub.publish(
        change=[("may: [see schema, query, profile]", "may: [see schema, query, profile, train, synthesise]")]
    )
    web = program(hospital_hub)
    sent = {"headers": {"Content-Type": "application/json"}}
    for name in FIELDS[kind]:
        for odd in ODD:
            form = {**GOOD[kind], name: odd}
            if name == "within":
                form.pop("spend")
            body = dumps({"kind": kind, "form": form, "purpose": "health-research"})
            answer = web.post("/api/datasets/visits/plan", content=body, **sent)
            assert answer.status_code < 500, (name, odd, answer.text)


BODIES = [
    ("POST", "/api/datasets/visits/plan", {"kind": "query", "form": {}, "purpose": "x"}),
    ("POST", "/api/datasets", {"name": "fresh", "title": "x", "about": "x", "policy": "x", "schema": "x"}),
    ("PUT", "/api/datasets/visits/policy", {"text": "x", "after": 1, "publish": False}),
    ("POST", "/api/datasets/visits/versions", {"uploads": {}, "schema": "x", "address": "x"}),
    ("POST", "/api/datasets/visits/uploads", {"table": "x", "file": "x.csv", "size": 5}),
    ("POST", "/api/requests", {"dataset": "visits", "role": "x", "purpose": "x", "text": "x"}),
    ("POST", "/api/surveys", {"name": "abc", "title": "x", "purpose": "x", "consent": "x", "target": 50, "ends": None,
                              "asked": [{"id": "q", "type": "number", "text": "x", "low": "0", "high": "5"}]}),
    ("POST", "/api/surveys/advice", {"question": {"type": "scale", "text": "x", "low": "0", "high": "5"}, "people": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body"), BODIES, ids=[f"{one[0]} {one[1]}" for one in BODIES])
def test_no_odd_value_in_a_body_is_an_unforeseen_error(hospital_hub, method, path, body):
    web = program(hospital_hub, "owner")

    def places(value, at=()):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from places(inner, (*at, key))
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                yield from places(inner, (*at, number))
        yield at

    def changed(value, at, odd):
        if not at:
            return odd
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[at[0]] = changed(copy[at[0]], at[1:], odd)
        return copy

    for at in places(body):
        for odd in ODD:
            sent = dumps(changed(body, at, odd))
            answer = web.request(method, path, content=sent, headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, (at, odd, answer.text)


# Accounts


def with_password(world, who="ada"):
    with world.hub.database.writing() as session:
        found = session.get_one(type(world.people[who]), world.people[who].id)
        found.password = seal(PASSWORD)
    world.people[who] = found
    return found


def test_making_a_token_asks_for_the_password(hospital_hub):
    with_password(hospital_hub)
    page, csrf = browser(hospital_hub)
    form = {"csrf": csrf, "label": "laptop", "scopes": "read", "days": "3"}
    assert page.post("/account/tokens", data=form).status_code == 401
    assert page.post("/account/tokens", data={**form, "token_password": "wrong wrong wrong"}).status_code == 401
    assert "clo_" in page.post("/account/tokens", data={**form, "token_password": PASSWORD}).text


def test_changing_the_password_ends_tokens_unless_they_may_stay(hospital_hub):
    ada = with_password(hospital_hub)
    for end, left in ((False, 1), (True, 0)):
        with hospital_hub.hub.database.writing() as session:
            tokens.revoke_all(session, ada)
            tokens.make(session, ada, "t", ["read"], 3)
        user_actions.change_password(hospital_hub.hub, ada, PASSWORD, PASSWORD, "192.0.2.1", end_tokens=end)
        with hospital_hub.hub.database.reading() as session:
            assert len(tokens.of(session, ada)) == left


def test_removing_a_second_factor_that_is_not_there_locks_nobody_out(hospital_hub):
    ada = with_password(hospital_hub)
    for _ in range(hospital_hub.hub.settings.login_tries + 2):
        with pytest.raises(NotNow, match="no second factor"):
            sign_in.remove_factor(hospital_hub.hub, ada, "000000", "192.0.2.1")
    sign_in.prove(hospital_hub.hub, ada, PASSWORD, "192.0.2.1")
    with pytest.raises(SignInFailed):
        sign_in.prove(hospital_hub.hub, ada, "wrong wrong wrong", "192.0.2.1")


def test_an_error_that_is_acceptable_has_limits(hospital_hub):
    for within in ("1e900", "1e31", "1e-31", "0", "-1"):
        with pytest.raises((BadForm, ValueError)):
            hospital_hub.plan("ada", spend="", within=within)
    assert hospital_hub.plan("ada", spend="", within="50").own.amount


def test_only_a_piece_of_an_upload_may_be_long():
    limit = BodyLimit(None)
    assert limit.most({"method": "PUT", "path": "/api/uploads/x"}) == 16 * 2**20
    assert limit.most({"method": "POST", "path": "/api/uploads/x"}) == 2 * 2**20
    assert limit.most({"method": "DELETE", "path": "/api/uploads/x"}) == 2 * 2**20
