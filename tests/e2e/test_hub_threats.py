"""Attacks on a hub, one by one: what somebody tries, and that it does not work. docs/promises/hub.md lists them."""

import gzip
import itertools
import json
import re
import shutil
import socket
import sqlite3
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pyotp
import pytest
import sqlalchemy as sa

from cloister.hub.core.models import Dataset, Job, Person, PolicyVersion, Spent, Upload, Version
from cloister.hub.datasets import datasets, ingest
from cloister.hub.jobs import dataset_pool, queue
from cloister.hub.jobs.authorise import ASKED, BASIS
from cloister.hub.jobs.runner import run_job
from cloister.hub.policy.versions import publish
from cloister.hub.users import sign_in, totp
from cloister.hub.web.security import CONTENT_SECURITY_POLICY
from cloister.privacy.errors import RolledBack
from cloister.privacy.loss import rho

from . import hub_world
from . import test_hub_matrix as matrix

pytestmark = pytest.mark.e2e


PURPOSE = {"purpose": "health-research"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A town for attacks that leave no trace, or are taken back."""
    made = hub_world.copied(tmp_path_factory.mktemp("town") / "hub")
    for who in ("ada", "cleo", "owner"):
        made.token(who)
    made.remember()
    yield made
    made.hub.close()


@pytest.fixture
def town(tmp_path):
    """A town of its own, to be broken."""
    made = hub_world.copied(tmp_path / "hub", connect_hosts="Hospital=db.example:5432", login_tries=5)
    yield made
    made.hub.close()


def ask(town, who, sql, spend="rho 0.01", do="plan", **form):
    body = {"form": {"sql": sql, "spend": spend, **form}, **PURPOSE}
    return town.call(who, "POST", f"/api/datasets/visits/{do}", body=body)


# Browsers: headers, hosts, redirects, cookies


def test_every_answer_carries_what_stops_framing_sniffing_and_keeping(shared):
    for key in matrix.TABLE:
        for who in ("ada", "stranger"):
            answer = matrix.request(shared, who, key, "visits")
            # A respondent's page sends no form at all, and shows no picture that is written into it.
            stricter = CONTENT_SECURITY_POLICY.replace(" data:", "").replace("form-action 'self'", "form-action 'none'")
            expected = stricter if key == "GET /s/{name}" and answer.status_code == 200 else CONTENT_SECURITY_POLICY
            assert answer.headers["content-security-policy"] == expected, key
            assert answer.headers["x-frame-options"] == "DENY", key
            assert answer.headers["x-content-type-options"] == "nosniff", key
            assert answer.headers["cache-control"] == "no-store", key
            assert "access-control-allow-origin" not in answer.headers, key
            for cookie in answer.headers.get_list("set-cookie"):
                assert {"HttpOnly", "SameSite=lax"} <= set(cookie.split("; ")), (key, cookie)
    shared.restore()
    for method, path in (
        ("GET", "/nothing"),
        ("PATCH", "/datasets"),
        ("OPTIONS", "/api/datasets"),
        ("GET", "/static/x"),
    ):
        answer = shared.ask("ada", method, path, origin="https://evil.example")
        assert answer.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in answer.headers


def test_the_host_that_a_request_names_is_never_believed(shared):
    lies = {"host": "evil.example", "x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
    for key in matrix.TABLE:
        for who in ("ada", "operator", "stranger"):
            answer = matrix.request(shared, who, key, "visits", **lies)
            assert "evil.example" not in answer.text + str(answer.headers), key
    for path in ("/datasets/", "/datasets/visits/", "/api/datasets/", "/jobs/", "/sign-in/"):
        answer = shared.ask("ada", "GET", path, **lies)
        assert (answer.status_code, answer.headers.get("location")) == (404, None), path
    shared.restore()


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "/%0d%0aX: y",
        " //evil.example",
        "/\t/evil.example",
        "///evil.example",
        "http:evil.example",
        "@evil.example",
        "/..//evil.example",
    ],
)
def test_no_redirect_leads_out_of_the_hub(shared, place):
    answers = [
        shared.ask("ada", "GET", "/sign-in?next=" + place.replace("\t", "%09").replace(" ", "%20")),
        shared.ask("half", "GET", "/second-factor?next=" + place.replace("\t", "%09").replace(" ", "%20")),
    ]
    data = {"email": "ada@university.example", "password": hub_world.PASSWORD, "next": place}
    answers.append(shared.ask("stranger", "POST", "/sign-in", data=data))
    assert answers[-1].status_code == 303
    for answer in answers:
        there = answer.headers.get("location", "/")
        assert re.fullmatch(r"/([\w.%-].*)?", there), there
        assert "\n" not in there
    shared.restore()


def test_a_cookie_that_somebody_planted_is_not_taken_over(shared):
    planted = "p" * 43
    token = shared.send("GET", "/sign-in", {"cookie": f"cloister-session={planted}; cloister-visit={'v' * 40}"})
    csrf = re.search(r'name="csrf" value="(\w+)"', token.text).group(1)
    data = {"email": "ada@university.example", "password": hub_world.PASSWORD, "csrf": csrf}
    entered = shared.send(
        "POST", "/sign-in", {"cookie": f"cloister-session={planted}; cloister-visit={'v' * 40}"}, data
    )
    (cookie,) = [one for one in entered.headers.get_list("set-cookie") if "session" in one]
    secret = cookie.partition("=")[2].partition(";")[0]
    assert secret != planted
    assert len(secret) >= 43
    assert shared.send("GET", "/account", {"cookie": f"cloister-session={planted}"}).status_code == 303
    assert shared.send("GET", "/account", {"cookie": f"cloister-session={secret}"}).status_code == 200
    shared.restore()


# What people type

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{991*991}}",
    "${991*991}",
    "{% for x in () %}",
    "'; DROP TABLE people; --",
    "' OR '1'='1",
    "1; ATTACH 'x' AS y",
    '{"$ne": null}',
    "../../../etc/passwd",
    "\x00",
    "\r\nX: y",
    "%00",
    "💥\u202e",
    "A" * 3000,
    "-1",
    "99999999999999999999",
    "1e999",
    "NaN",
    "[]",
    "=cmd()|' /C calc'!A0",
)


@pytest.mark.parametrize("share", [4, 1])
def test_no_field_of_any_form_is_run_as_code_or_breaks_the_hub(shared, share):
    """Every field of every request that changes something, with one in `share` of the payloads, by turns."""
    turns = itertools.count()
    tables = {table.name for table in Dataset.metadata.sorted_tables}
    for key, line in matrix.TABLE.items():
        method, _, pattern = key.partition(" ")
        if method == "GET" or not line.sent or pattern.startswith(("/invitation", "/reset", "/sign-up", "/account")):
            continue
        who = sorted(line.visits or {"ada"})[0]
        for name in line.sent:
            for payload in PAYLOADS:
                if next(turns) % share:
                    continue
                things = shared.visits
                path = things.fill(pattern, getattr(things, line.number) if line.number else 0) + line.after
                sent = {**matrix.filled(line.sent, things), name: payload}
                if pattern.startswith("/api/"):
                    answer = shared.call(who, method, path, body=sent)
                else:
                    answer = shared.ask(who, method, path, data=sent)
                assert answer.status_code < 500, (key, name, payload, answer.text[:300])
                if "html" in answer.headers.get("content-type", ""):
                    assert not re.search("<script>alert|<img src=x", answer.text), (key, name, payload)
                assert "982081" not in answer.text, (key, name, payload)
                assert "x" not in answer.headers, (key, name)
        shared.restore()
    with shared.hub.database.reading() as session:
        assert tables <= set(sa.inspect(session.connection()).get_table_names())
        assert len(session.scalars(sa.select(Person)).all()) == len(hub_world.PEOPLE)


def test_what_people_wrote_is_shown_to_others_as_text(town):
    """Stored, then drawn on every page that shows it, for everybody who reads it."""
    mark = "<script>alert(1)</script>"
    with town.hub.database.writing() as session:
        for one in session.scalars(sa.select(Person)):
            one.name = f"{one.name} {mark}"
        for one in session.scalars(sa.select(Dataset)):
            one.title, one.about = mark, mark
        for one in session.scalars(sa.select(hub_world.models.Organisation)):
            one.country = "<b"
        for one in session.scalars(sa.select(hub_world.models.SavedQuery)):
            one.name = mark
        for one in session.scalars(sa.select(hub_world.models.Notice)):
            one.text = mark
        for one in session.scalars(sa.select(hub_world.models.Request)):
            one.text = mark
        for one in session.scalars(sa.select(Upload)):
            one.file = one.table = mark
        for one in session.scalars(sa.select(hub_world.models.Token)):
            one.label = mark
        job = session.get_one(Job, town.visits.job)
        job.parameters = {**job.parameters, "sql": mark}
        job.purpose = mark
    town.ask("dora", "POST", f"/requests/{town.visits.request}/comment", data={"text": mark})
    shown = 0
    for key, line in matrix.TABLE.items():
        if key.startswith("GET /") and not key.startswith("GET /api"):
            for who in sorted(line.visits or {"ada"}):
                answer = matrix.request(town, who, key, "visits")
                assert answer.status_code < 500, (key, who, answer.text[-400:])
                if "html" in answer.headers.get("content-type", ""):
                    assert mark not in answer.text, (key, who)
                    shown += "&lt;script&gt;" in answer.text
    assert shown > 60


def test_names_and_files_do_not_lead_out_of_their_folder(town):
    before = set(town.hub.folder.parent.rglob("*"))
    with town.hub.database.reading() as session:
        dataset = datasets.find(session, "visits")
    for name in (
        "../../../../tmp/x.csv",
        "..\\..\\x.csv",
        "/etc/passwd.csv",
        "a/b/c.csv",
        "\u202ex.csv",
        "%2e%2e%2fx.csv",
    ):
        for table in ("visits", "../../x", "/etc/passwd", "x/../../y"):
            body = {"table": table, "file": name, "size": 40}
            begun = town.call("owner", "POST", "/api/datasets/visits/uploads", body=body)
            if begun.status_code == 201:
                number = begun.json()["id"]
                put = town.call("owner", "PUT", f"/api/uploads/{number}?offset=0", content=b"p,w\n" * 10)
                assert put.status_code == 200
                town.call("owner", "DELETE", f"/api/uploads/{number}")
    new = set(town.hub.folder.parent.rglob("*")) - before
    assert all(path.is_relative_to(town.hub.folder) and ".." not in path.parts for path in new)
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
        assert town.web.get(path).status_code == 404
    for name in ("../x", "new", "a", "A", "x" * 61, "visits@person-4", "x/y", "", " visits", "visits\n", "--"):
        body = {"name": name, "policy": matrix.POLICY.format(name or "x")}
        assert town.call("owner", "POST", "/api/datasets", body=body).status_code == 422, name
    assert dataset.id == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ((b"0" * 1023 + b"\n") * (120 * 2**10), "times its size"),
        (b"0" * (120 * 2**20), "a line has more than 16 MB"),
    ],
)
def test_a_bomb_is_stopped_while_it_is_unpacked(town, content, said):
    raw = gzip.compress(b"patient,ward,age,cost,comment\n" + content, 9)
    assert len(raw) < 500_000
    with town.hub.database.reading() as session:
        dataset = datasets.find(session, "visits")
    sent = hub_world.send(town, "owner", dataset, "visits", raw, "visits.csv.gz")
    with town.hub.database.writing() as session:
        version = datasets.new_version(town.hub, session, town.people["owner"], dataset, uploads={"visits": sent})
    assert ingest.prepare(town.hub, version.id) == "failed"
    problem = town.rows(sa.select(Version.problem).where(Version.id == version.id))[0]
    assert said in problem


def test_a_body_that_is_too_long_is_not_read_and_strangers_send_no_files(shared):
    long = "x" * (3 * 2**20)
    answer = shared.ask("ada", "POST", "/work/query/visits", data={"sql": long})
    assert answer.status_code == 413
    assert shared.call("ada", "POST", "/api/datasets/visits/plan", body={"form": {"sql": long}}).status_code == 413
    form = {"content-type": "multipart/form-data; boundary=b", "cookie": f"cloister-visit={'v' * 40}"}
    part = b'--b\r\ncontent-disposition: form-data; name="file"; filename="x.csv"\r\n\r\nx\r\n--b--\r\n'
    for path in ("/sign-in", "/datasets/visits/versions/files"):
        answer = shared.send("POST", path, {**form, "accept": "text/html"}, content=part)
        assert answer.status_code == 401, path
    for length in (b"-1", b"x", b"\xb2", b"9" * 40):
        answer = shared.send("POST", "/sign-in", {"content-length": length}, content=b"x")
        assert answer.status_code == 413, length


# The network


def test_an_address_makes_the_hub_knock_nowhere(town):
    """A listener that must hear nothing, whatever an owner types."""
    with socket.socket() as heard:
        heard.bind(("127.0.0.1", 0))
        heard.listen(5)
        heard.settimeout(0.3)
        port = heard.getsockname()[1]
        for host in (
            "127.0.0.1",
            "localhost",
            "[::1]",
            "0.0.0.0",
            "0",
            "127.1",
            "2130706433",
            "0x7f000001",
            "169.254.169.254",
            "db.example@127.0.0.1",
            "127.0.0.1#db.example",
            "127.0.0.1%00db.example",
            "db.example,127.0.0.1",
            "db.example.127.0.0.1.nip.io",
            "metadata.google.internal",
            "[::ffff:127.0.0.1]",
        ):
            for address in (
                f"postgresql://u:p@{host}:{port}/x",
                f"postgres://{host}:{port}/x",
                f"sc://{host}:{port}/;token=x",
                f"postgresql://u:p@db.example/x?host=127.0.0.1&port={port}",
                f"http://{host}:{port}/",
                f"file://{host}/etc",
                f"postgresql://u:p@db.example/x?hostaddr=127.0.0.1&port={port}",
            ):
                answer = town.call("owner", "POST", "/api/datasets/visits/versions", body={"address": address})
                assert answer.status_code == 422, (address, answer.text)
        for path in ("/", "/etc", "/proc/self", str(town.hub.folder), "../x", "/tmp/../etc"):
            answer = town.call("owner", "POST", "/api/datasets/visits/versions", body={"address": path})
            assert answer.status_code == 422, path
        with pytest.raises(TimeoutError):
            heard.accept()


# Passwords, codes, tokens


def test_an_unknown_address_takes_as_long_as_a_wrong_password(shared):
    def spent(email, number):
        begun = time.process_time()
        data = {"email": email, "password": f"a wrong password {number}"}
        assert shared.ask("stranger", "POST", "/sign-in", data=data).status_code == 401
        shared.restore()
        return time.process_time() - begun

    known = [spent("ada@university.example", number) for number in range(7)]
    unknown = [spent(f"nobody-{number}@university.example", number) for number in range(7)]
    assert statistics.median(known) == pytest.approx(statistics.median(unknown), rel=0.35)


@pytest.mark.parametrize("email", ["ada@university.example", "nobody@university.example"])
def test_guessing_is_locked_out_even_if_all_guesses_come_at_once(town, email):
    def guess(number):
        data = {"email": email, "password": f"guess number {number:02d}"}
        return town.ask("stranger", "POST", "/sign-in", data=data).status_code

    with ThreadPoolExecutor(12) as many:
        answers = list(many.map(guess, range(24)))
    assert answers.count(401) == town.hub.settings.login_tries
    assert answers.count(429) == 24 - town.hub.settings.login_tries
    right = {"email": "ada@university.example", "password": hub_world.PASSWORD}
    assert town.ask("stranger", "POST", "/sign-in", data=right).status_code == 429


def test_a_code_works_once_even_if_it_comes_eight_times_at_once(town):
    with town.hub.database.writing() as session:
        text, _ = totp.enroll(session, town.hub.keys, town.people["ada"])
        totp.confirm(session, town.hub.keys, town.people["ada"], pyotp.TOTP(text).at(int(time.time()) - 30))
    right = {"email": "ada@university.example", "password": hub_world.PASSWORD}
    halves = []
    for number in range(8):
        entered = sign_in.sign_in(town.hub, **right, address=f"10.0.0.{number}")
        assert not entered.session.complete
        halves.append((entered.secret, entered.session.csrf))
    code = pyotp.TOTP(text).now()

    def show(half):
        headers = {"cookie": f"cloister-session={half[0]}", "x-csrf": half[1], "accept": "text/html"}
        return town.send("POST", "/second-factor", headers, {"code": code})

    with ThreadPoolExecutor(8) as many:
        answers = list(many.map(show, halves))
    entered = [one for one in answers if one.status_code == 303]
    assert len(entered) == 1
    assert {one.status_code for one in answers} <= {303, 401, 429}
    for secret, _ in halves:
        assert town.send("GET", "/account", {"cookie": f"cloister-session={secret}"}).status_code == 303


def test_a_token_ends_with_its_account_its_role_and_its_person(town):
    ada, operator = town.token("ada"), town.people["operator"]
    assert town.call("ada", "GET", "/api/me").status_code == 200
    for tricks in (
        {"x-http-method-override": "DELETE"},
        {"x-original-url": "/api/audit"},
        {"x-rewrite-url": "/people"},
    ):
        assert town.call("ada", "GET", "/api/me", **tricks).json()["name"] == "Ada"
    for shown in (ada[:-1], ada + "x", ada.upper(), f"{ada} ", "clo_", "", "null", "Bearer"):
        answer = town.send("GET", "/api/me", {"authorization": f"Bearer {shown}"})
        assert answer.status_code == (200 if shown.strip() == ada else 401), shown
    town.ask("operator", "POST", f"/people/{town.people['owner'].id}/roles", data={"roles": "data user"})
    body = {"name": "fresh", "policy": matrix.POLICY.format("fresh")}
    assert town.call("owner", "POST", "/api/datasets", body=body).status_code == 403
    town.ask("operator", "POST", f"/people/{town.people['ada'].id}/close")
    assert town.call("ada", "GET", "/api/me").status_code == 401
    assert town.ask("ada", "GET", "/account").status_code == 303
    assert operator.roles == ["operator"]


# The last of a budget


@pytest.mark.parametrize("limit", ["lifetime", "person", "period"])
def test_thirty_two_posts_at_once_never_spend_more_than_there_is(town, limit):
    budget = {
        "lifetime": "{lifetime: {rho: 0.05}}",
        "person": "{lifetime: {rho: 5}, per_user: {rho: 0.05}}",
        "period": "{lifetime: {rho: 5}, period: {days: 30, rho: 0.05}}",
    }[limit]
    policy = f"dataset: race\npurposes: [health-research]\nbudget: {budget}\njoins: any\n"
    policy += "roles: {all: {who: {people: [ada@university.example]}, may: [see schema, query]}}\n"
    files = {"visits": hub_world.rows_of_visits(), "salaries": hub_world.rows_of_salaries()}
    hub_world.share(town, "owner", "race", policy, hub_world.SCHEMA, files)

    def post(number):
        sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"
        body = {"form": {"sql": sql, "spend": "rho 0.01"}, **PURPOSE}
        return town.call("ada", "POST", "/api/datasets/race/jobs", body=body).status_code

    town.token("ada")
    with ThreadPoolExecutor(32) as many:
        answers = list(many.map(post, range(32)))
    assert set(answers) <= {202, 409}
    assert answers.count(202) >= 5

    def work(name):
        pool = hub_world.DatasetPool(
            town.hub, lambda one, version, who: datasets.open_for_work(town.hub, one, version, who)
        )
        while (job := queue.claim(town.hub.database, name)) is not None:
            run_job(town.hub, job, name, pool)
        pool.close()

    workers = [threading.Thread(target=work, args=(f"worker {number}",)) for number in range(4)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    states = [one.state for one in town.rows(sa.select(Job)) if one.dataset.name == "race"]
    assert states.count("done") == 5
    assert set(states) <= {"done", "refused"}
    assert town.hub.ledger.balance("race").spent == rho("0.05")
    assert answers.count(202) == len(states)


# Around the policy

GUESSES = (
    "SELECT COUNT(*) AS n FROM visits WHERE {} = 'x'",
    "SELECT {}, COUNT(*) FROM visits GROUP BY {}",
    "SELECT COUNT(*) AS {} FROM visits WHERE visits.{} IS NULL",
    "SELECT COUNT(*) FROM visits v WHERE v.{} IS NULL",
    "SELECT COUNT(DISTINCT {}) FROM visits",
    "SELECT SUM({}) FROM visits",
    "SELECT MAX({}) FROM visits",
    "SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVING MAX({}) > 1",
    "SELECT COUNT(*) n FROM visits ORDER BY {}",
    "SELECT COUNT(*) FROM (SELECT {} FROM visits) x",
    "WITH x AS (SELECT {} AS ward FROM visits) SELECT COUNT(*) FROM x",
    "SELECT COUNT(*) FROM visits a JOIN visits b USING ({})",
    'SELECT COUNT(*) FROM visits WHERE "{}" IS NULL',
    "SELECT COUNT(*) FILTER (WHERE {} IS NULL) FROM visits",
    "SELECT CASE WHEN {} IS NULL THEN 1 END FROM visits",
    "SELECT ward, COUNT(*) FROM visits GROUP BY GROUPING SETS ((ward), ({}))",
    "SELECT COUNT(*) FROM visits WHERE {} = {}",
    "SELECT COUNT(*) FROM visits WHERE age IN (SELECT {} FROM visits)",
    "SELECT {}.age FROM visits",
    "SELECT {} FROM visits",
    "SELECT COUNT(*) AS n FROM visits WHERE ward = 'x' AND NOT ({} > 1)",
    "SELECT AVG(LENGTH({})) FROM visits",
)
TABLES = (
    "SELECT COUNT(*) FROM {}",
    "SELECT COUNT(*) FROM visits JOIN {} USING (age)",
    'SELECT COUNT(*) FROM "{}"',
    "SELECT COUNT(*) FROM visits WHERE age IN (SELECT pay FROM {})",
    "SELECT COUNT(*) FROM visits, {}",
    "WITH x AS (SELECT * FROM {}) SELECT COUNT(*) FROM x",
    "SELECT COUNT(*) FROM {} s",
    "SELECT SUM(pay) FROM main.{}",
    "SELECT COUNT(*) FROM visits UNION ALL SELECT COUNT(*) FROM {}",
    "SELECT {}.pay FROM visits",
    "SELECT COUNT(*) FROM x.{}",
)


def test_a_hidden_column_cannot_be_told_from_one_that_is_not_there(shared):
    """cleo sees ward and age of visits; cost, comment and patient are there, xcost and so on are not."""
    for guess in GUESSES:
        for hidden in ("cost", "comment", "patient", "COST", "Comment"):
            missing = f"x{hidden[1:]}"  # of the same length, so that even a place in the text is the same
            told = [ask(shared, "cleo", guess.replace("{}", one)) for one in (hidden, missing)]
            assert told[0].status_code == told[1].status_code == 422, (guess, told[0].text)
            said = [
                re.sub(one, "…", answer.text, flags=re.I) for one, answer in zip((hidden, missing), told, strict=True)
            ]
            assert said[0] == said[1], guess
        assert ask(shared, "ada", "SELECT COUNT(*) AS n FROM visits WHERE cost > 3").status_code == 200


def test_a_hidden_table_cannot_be_told_from_one_that_is_not_there(shared):
    for guess in TABLES:
        for hidden in ("salaries", "SALARIES"):
            missing = f"x{hidden[1:]}"
            told = [ask(shared, "cleo", guess.replace("{}", one)) for one in (hidden, missing)]
            assert told[0].status_code == told[1].status_code, (guess, told[0].text, told[1].text)
            said = [
                re.sub(one, "…", answer.text, flags=re.I) for one, answer in zip((hidden, missing), told, strict=True)
            ]
            assert said[0] == said[1], guess
    for table in ("salaries", "xalaries", ""):
        body = {"kind": "profile", "form": {"table": table, "spend": "rho 0.01"}, **PURPOSE}
        told = shared.call("cleo", "POST", "/api/datasets/visits/plan", body=body)
        assert told.status_code == (200 if not table else 422), told.text
        assert "salaries" not in told.text.replace(table or "…", "")
    for path in ("/api/datasets/visits/mock/{}", "/datasets/visits/mock/{}"):
        told = [shared.ask("cleo", "GET", path.format(one)) for one in ("salaries", "xalaries")]
        assert told[0].status_code == told[1].status_code == 404
    for path in (
        "/datasets/visits",
        "/datasets/visits/policy",
        "/datasets/visits/schema",
        "/work/query/visits",
        "/work/profile/visits",
        "/datasets/visits/why?operation=query&purpose=health-research",
    ):
        page = shared.ask("cleo", "GET", path)
        assert page.status_code == 200
        for word in ("salaries", "comment", "maternity'", "pay<"):
            assert word not in page.text.replace("maternity</", ""), (path, word)


def test_rows_that_a_view_leaves_out_are_not_counted(town):
    for who, least, most in (("ada", 20, 10**6), ("cleo", -40, 19)):
        sql = "SELECT COUNT(*) AS n FROM visits WHERE ward = 'maternity'"
        job = ask(town, who, sql, "rho 0.5", "jobs").json()["id"]
        assert town.work() == ["done"]
        (cell,) = town.call(who, "GET", f"/api/jobs/{job}").json()["result"]["rows"][0]
        assert least <= cell["value"] <= most, who


def test_tables_that_may_not_be_joined_are_not_and_a_person_cannot_be_looked_for(town):
    """The hospital's data must not be linked with the pharmacy's, nor a member of staff be found in them."""
    join = "SELECT COUNT(*) AS n FROM visits JOIN salaries USING (patient)"
    assert ask(town, "ada", join).status_code == 200
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        text = session.scalar(sa.select(PolicyVersion.text).where(PolicyVersion.dataset_id == dataset.id))
        publish(town.hub, session, town.people["owner"], dataset, text.replace("joins: any\n", ""))
    for sql in (
        join,
        "SELECT COUNT(*) FROM visits WHERE patient IN (SELECT patient FROM salaries)",
        "WITH s AS (SELECT * FROM salaries), v AS (SELECT * FROM visits) SELECT COUNT(*) FROM s JOIN v USING (patient)",
        "SELECT COUNT(*) FROM visits UNION ALL SELECT COUNT(*) FROM salaries",
    ):
        answer = ask(town, "ada", sql)
        assert answer.status_code in (403, 422), sql
        if answer.status_code == 403:
            assert "may not be used together" in answer.text
    assert ask(town, "cleo", "SELECT COUNT(*) FROM visits WHERE patient = 'p1'").status_code == 422


def test_nobody_reads_what_another_asked(shared):
    things = shared.visits
    for who in ("ben", "cleo", "reviewer", "operator", "auditor"):
        for path in (
            f"/work/query/visits?job={things.job}",
            f"/work/query/visits?saved={things.saved}",
            "/jobs",
            "/ledger",
        ):
            page = shared.ask(who, "GET", path)
            assert not re.search("Mine visits|FROM visits GROUP BY", page.text), (who, path)
    page = shared.ask("cleo", "GET", f"/work/query/visits?job={things.job}")
    assert page.status_code == 200
    assert "GROUP BY ward</textarea>" not in page.text


# Whoever has the disk


def test_a_ledger_put_back_under_a_running_hub_spends_no_more(town):
    ledger, old = town.hub.folder / "ledger.db", town.hub.folder.parent / "old.db"
    with closing(sqlite3.connect(ledger)) as live, closing(sqlite3.connect(old)) as copy:
        live.backup(copy)
    assert ask(town, "ada", "SELECT SUM(age) AS s FROM visits", do="jobs").status_code == 202
    assert town.work() == ["done"]
    waiting = ask(town, "ada", "SELECT SUM(cost) AS s FROM visits", do="jobs").json()["id"]
    with closing(sqlite3.connect(old)) as copy, closing(sqlite3.connect(ledger)) as live:
        copy.backup(live)
    town.work()
    job = town.rows(sa.select(Job).where(Job.id == waiting))[0]
    assert job.state in ("refused", "failed", "running", "charged"), job.state
    assert job.result is None
    with pytest.raises(RolledBack):
        town.hub.ledger.account("visits").charge(rho("0.001"), "anything")
    answer = town.call("auditor", "GET", "/api/ledger/verify")
    assert answer.status_code == 503 or answer.json()["ok"] is False


@pytest.mark.parametrize("harm", ["changed", "exchanged", "cut", "gone"])
def test_a_sealed_table_that_was_touched_is_not_read_and_nothing_is_paid(town, harm):
    mine, other = (next(iter((town.hub.folder / "sealed" / number).rglob("0.parquet"))) for number in ("1", "2"))
    raw = mine.read_bytes()
    if harm == "changed":
        mine.write_bytes(raw[:500] + bytes([raw[500] ^ 1]) + raw[501:])
    elif harm == "cut":
        mine.write_bytes(raw[:-100])
    elif harm == "exchanged":
        shutil.copyfile(other, mine)
    else:
        mine.unlink()
    before = town.hub.ledger.balance("visits").spent
    job = ask(town, "ada", "SELECT SUM(age) AS s FROM visits", do="jobs").json()["id"]
    assert town.work() == ["failed"]
    found = town.rows(sa.select(Job).where(Job.id == job))[0]
    assert "is not what was sealed" in found.problem
    assert found.result is None
    assert town.hub.ledger.balance("visits").spent == before


def test_a_policy_that_was_changed_in_the_database_allows_nothing(town):
    waiting = ask(town, "ada", hub_world.COUNT.replace("n ", "m "), do="jobs").json()["id"]
    with town.hub.database.writing() as session:
        kept = session.scalars(sa.select(PolicyVersion).where(PolicyVersion.dataset_id == 1)).one()
        kept.text = kept.text.replace("organisations: [University]", "organisations: [University, College]")
    for who in ("ada", "ben", "cleo", "dora"):
        assert ask(town, who, hub_world.COUNT).status_code == 404, who
        assert town.ask(who, "GET", "/datasets/visits").status_code == 404, who
    assert "not what was published" in town.ask("owner", "GET", "/datasets/visits").text
    town.work()
    assert town.rows(sa.select(Job.state).where(Job.id == waiting)) == ["refused"]


def test_an_older_policy_cannot_be_put_back_as_the_newest(town):
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        first = session.scalars(sa.select(PolicyVersion).where(PolicyVersion.dataset_id == dataset.id)).one()
        text = first.text.replace("organisations: [University]", "organisations: [Academy]")
        publish(town.hub, session, town.people["owner"], dataset, text)
        session.add(
            PolicyVersion(
                dataset_id=dataset.id, number=3, text=first.text, signature=first.signature, made_by=first.made_by
            )
        )
    assert ask(town, "ada", hub_world.COUNT).status_code == 404


def test_a_policy_that_was_deleted_does_not_put_the_one_before_in_force(town):
    assert ask(town, "ada", hub_world.COUNT).status_code == 200
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        first = session.scalars(sa.select(PolicyVersion).where(PolicyVersion.dataset_id == dataset.id)).one()
        strict = first.text.replace("organisations: [University]", "organisations: [Academy]")
        publish(town.hub, session, town.people["owner"], dataset, strict)
    with town.hub.database.writing() as session:
        session.execute(sa.delete(PolicyVersion).where(PolicyVersion.number == 2))
    assert ask(town, "ada", hub_world.COUNT).status_code == 404
    assert "is not what was published last, so nothing is allowed" in town.ask("owner", "GET", "/datasets/visits").text
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        assert publish(town.hub, session, town.people["owner"], dataset, first.text) == 3
    assert ask(town, "ada", hub_world.COUNT).status_code == 200


def test_a_private_table_is_not_made_public_by_a_schema_that_was_changed_in_the_database(town):
    """One person's pay, by bisection: what a public table joins is counted row by row."""
    spent = town.hub.ledger.balance("visits").spent
    sql = "SELECT COUNT(*) AS n FROM visits v JOIN salaries s ON v.patient = s.patient WHERE s.pay >= {}"
    assert ask(town, "ada", sql.format(100)).status_code == 200
    waiting = ask(town, "ada", sql.format(200), do="jobs").json()["id"]
    with town.hub.database.writing() as session:
        version = session.scalars(sa.select(Version).where(Version.dataset_id == 1)).one()
        start, end = version.schema.split("  salaries:\n    unit: patient\n    columns:\n")
        version.schema = f"{start}  salaries:\n    public: true\n    columns:\n      patient: {{type: text}}\n{end}"
    for do in ("plan", "jobs"):
        answer = ask(town, "ada", sql.format(300), do=do)
        assert answer.status_code == 503
        assert "version 1 of visits is not what its owner made" in answer.json()["message"]
    for path in ("/api/datasets/visits/schema", "/api/datasets/visits/mock/salaries"):
        assert town.call("ada", "GET", path).status_code == 503, path
    assert town.work() == ["failed"]
    (job,) = town.rows(sa.select(Job).where(Job.id == waiting))
    assert job.result is None
    assert "is not what its owner made" in job.problem
    assert town.hub.ledger.balance("visits").spent == spent
    assert "is not what its owner made" in town.ask("owner", "GET", "/datasets/visits").text


def test_older_tables_and_a_lifted_pause_are_not_taken_from_the_database(town):
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        made = datasets.new_version(town.hub, session, town.people["owner"], dataset)
    assert ingest.prepare(town.hub, made.id) == "ready"
    assert ask(town, "ada", hub_world.COUNT).status_code == 200
    body = {"paused": True}
    assert town.call("owner", "POST", "/api/datasets/visits/pause", body=body).status_code == 200
    with town.hub.database.writing() as session:
        datasets.find(session, "visits").paused = False
    answer = ask(town, "ada", hub_world.COUNT)
    assert answer.status_code == 409
    assert "was changed so that it seems open" in answer.json()["message"]
    assert town.call("owner", "POST", "/api/datasets/visits/pause", body={"paused": False}).status_code == 200
    assert ask(town, "ada", hub_world.COUNT).status_code == 200
    with town.hub.database.writing() as session:
        session.get_one(Version, made.id).state = "failed"
    answer = ask(town, "ada", hub_world.COUNT)
    assert answer.status_code == 503
    assert "version 2 of visits was ready and is missing" in answer.json()["message"]


def test_a_budget_raised_in_the_database_does_not_bind_the_ledger(town):
    assert ask(town, "ada", hub_world.COUNT).status_code == 200  # now the account is open in this process
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        dataset.budget = {**dataset.budget, "amount": "1000"}
    ask(town, "ada", "SELECT SUM(age) AS s FROM visits", do="jobs")
    assert town.work() == ["refused"]
    (problem,) = town.rows(sa.select(Job.problem).where(Job.state == "refused"))
    assert "A budget never changes" in problem


def test_a_hub_that_is_started_with_a_raised_budget_plans_nothing(town):
    with town.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        dataset.budget = {**dataset.budget, "amount": "1000"}
    answer = ask(town, "ada", "SELECT SUM(age) AS s FROM visits", do="jobs")
    assert answer.status_code == 422
    assert "A budget never changes" in answer.json()["message"]


def test_a_persons_limit_holds_when_the_database_has_forgotten_what_they_spent(town):
    policy = "dataset: small\npurposes: [health-research]\nbudget: {lifetime: {rho: 1}, per_user: {rho: 0.02}}\n"
    policy += "roles: {all: {who: {people: [ada@university.example]}, may: [see schema, query]}}\n"
    files = {"visits": hub_world.rows_of_visits(), "salaries": hub_world.rows_of_salaries()}
    hub_world.share(town, "owner", "small", policy, hub_world.SCHEMA, files)
    for number, ended in ((1, ["done"]), (2, ["done"]), (3, [])):
        with town.hub.database.writing() as session:
            session.execute(sa.delete(Spent))
        body = {
            "form": {"sql": f"SELECT COUNT(*) AS n FROM visits WHERE age > {number}", "spend": "rho 0.01"},
            **PURPOSE,
        }
        answer = town.call("ada", "POST", "/api/datasets/small/jobs", body=body)
        assert answer.status_code == (202 if ended else 409), answer.text
        assert town.work() == ended
    assert town.hub.ledger.balance("small").spent == rho("0.02")


def test_a_job_made_cheaper_in_the_database_is_not_run(town):
    job = ask(town, "ada", "SELECT SUM(age) AS s FROM visits", "rho 0.5", "jobs").json()["id"]
    before = town.hub.ledger.balance("visits").spent
    with town.hub.database.writing() as session:
        kept = session.get_one(Job, job)
        small = {**kept.plan["loss"], "amount": "1/1000"}
        kept.plan = {**kept.plan, "loss": small, "own": small}
    assert town.work() == ["refused"]
    assert town.hub.ledger.balance("visits").spent == before


@pytest.mark.parametrize("change", ["parameters", "purpose", "person", "asked", "basis"])
def test_a_question_that_was_exchanged_in_the_database_is_not_run(town, change):
    """The hub would answer the other one, and sign it as the answer to the first."""
    job = ask(town, "ada", "SELECT COUNT(*) AS n FROM visits WHERE age > 40", "rho 0.02", "jobs").json()["id"]
    before = town.hub.ledger.balance("visits").spent
    with town.hub.database.writing() as session:
        kept = session.get_one(Job, job)
        if change == "parameters":
            kept.parameters = {**kept.parameters, "sql": kept.parameters["sql"].replace("40", "41")}
        elif change == "purpose":
            kept.purpose = "epidemiology"
        elif change == "person":
            kept.person_id = session.scalars(sa.select(Person.id).where(Person.email.like("ben@%"))).one()
        elif change == "asked":
            kept.plan = {**kept.plan, ASKED: "0" * 64}
        else:
            kept.plan = {name: value for name, value in kept.plan.items() if name != BASIS}
    assert town.work() == ["refused"]
    assert town.hub.ledger.balance("visits").spent == before


def test_a_number_changed_in_a_record_is_not_answered(town):
    """The hub would sign it as an answer; the statistic is measured again, and paid for."""
    sql = "SELECT COUNT(*) AS n FROM visits WHERE age > 43"
    ask(town, "ada", sql, "rho 0.02", "jobs")
    assert town.work() == ["done"]
    for file in (town.hub.folder / "records").glob("visits-*.record"):
        changed = []
        for line in file.read_text().splitlines():
            text, _, mac = line.rpartition("\t")
            name, noise, values = json.loads(text)
            changed.append(f"{json.dumps([name, noise, [np.multiply(50, part).tolist() for part in values]])}\t{mac}\n")
        file.write_text("".join(changed))
    dataset_pool.twins(town.hub).close()
    before = town.hub.ledger.balance("visits").spent
    ask(town, "ada", sql, "rho 0.02", "jobs")
    assert town.work() == ["done"]
    assert town.hub.ledger.balance("visits").spent != before


def test_an_audit_log_that_was_changed_says_so(town):
    with town.hub.database.engine.begin() as connection, pytest.raises(sa.exc.DatabaseError):
        connection.exec_driver_sql("UPDATE audit SET person_id = 1 WHERE number = 3")
    with town.hub.database.engine.begin() as connection:
        for name in ("audit_no_update", "audit_no_delete", "audit_in_order"):
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.exec_driver_sql("UPDATE audit SET person_id = 99 WHERE number = 3")
    told = town.call("auditor", "GET", "/api/audit/verify").json()
    assert told["ok"] is False
    assert "audit entry 3 was changed" in told["reason"]
    assert "audit entry 3" in town.ask("auditor", "POST", "/audit/verify").text


def test_a_schema_that_its_policy_does_not_fit_makes_no_version(town):
    """A role whose column is gone would show nothing; worse, a new column could show what a rule kept back."""
    smaller = hub_world.SCHEMA.replace("      age: {type: integer, bounds: [0, 110]}\n", "")
    answer = town.call("owner", "POST", "/api/datasets/visits/versions", body={"schema": smaller})
    assert answer.status_code == 422
    assert "roles.juniors.tables.visits" in answer.json()["message"]
    empty = {"uploads": {"visits": town.visits.upload}, "schema": ""}
    assert town.call("owner", "POST", "/api/datasets/visits/versions", body=empty).status_code == 202
