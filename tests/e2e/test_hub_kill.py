"""The server killed: inside every request that changes something, before and after each commit; and as a whole, while
people hand work in. Nothing that was acknowledged is lost, nothing is half done, nothing is charged twice.

Workers killed at every state of a job are in test_hub_worker.py.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Decision, Job, PolicyVersion, Request, Upload, Version
from cloister.hub.core.settings import Settings
from cloister.privacy.loss import Loss

from . import hub_world

pytestmark = pytest.mark.e2e


WORK = {"form": {"sql": "SELECT COUNT(*) AS n FROM visits", "spend": "rho 0.01"}, "purpose": "health-research"}
POLICY = (
    "dataset: fresh\npurposes: [research]\nbudget: {lifetime: {epsilon: 1}}\nroles: {a: {who: anyone, may: [query]}}"
)
PIECE = "x" * 70_000
# Who sends what. {words} are filled in from what the town says about itself.
REQUESTS = {
    "submit": ("ada", "POST", "/api/datasets/visits/jobs", WORK),
    "submit, with approval": (
        "ada",
        "POST",
        "/api/datasets/visits/jobs",
        {**WORK, "form": {**WORK["form"], "spend": "rho 1.2"}},
    ),
    "cancel": ("ada", "POST", "/api/jobs/{waiting}/cancel", None),
    "decide": ("owner", "POST", "/api/requests/{request}/decision", {"agreed": True}),
    "release": ("owner", "POST", "/api/requests/{release}/decision", {"agreed": True}),
    "publish": ("owner", "PUT", "/api/datasets/visits/policy", {"text": "{policy}"}),
    "pause": ("owner", "POST", "/api/datasets/visits/pause", {"paused": True}),
    "create": ("owner", "POST", "/api/datasets", {"name": "fresh", "policy": POLICY}),
    "delete": ("owner", "DELETE", "/api/datasets/visits", None),
    "announce": ("owner", "POST", "/api/datasets/visits/uploads", {"table": "visits", "file": "v.csv", "size": 9}),
    "piece": ("owner", "PUT", "/api/uploads/{open}?offset=0", PIECE),
    "version": ("owner", "POST", "/api/datasets/visits/versions", {"uploads": {"visits": "{upload}"}}),
}

# Runs one request in a process that kills itself before or after its k-th commit. k = 0: says how many there were.
DIES = """
import json, os, shutil, signal, sys
from pathlib import Path
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.web.app import _routers, api, create_app, pages

_routers(api), _routers(pages)  # loaded once, not in every child

def run(folder, case, kill_at, before):
    hub = Hub(Settings(folder=folder, country="DE", requests_per_minute=10**9))
    commits = 0

    def count(phase, session):
        nonlocal commits
        if not session.connection().get_execution_options().get("cloister_writing") if phase == "before" else False:
            return
        commits += phase == "before"
        if commits == kill_at and phase == ("before" if before else "after"):
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(Session, "before_commit", lambda session: count("before", session), insert=True)
    sa.event.listen(Session, "after_commit", lambda session: count("after", session), insert=True)
    web = TestClient(create_app(hub), headers={"authorization": f"Bearer {case['token']}"})
    body = case["body"]
    sent = {"content": body.encode()} if isinstance(body, str) else {"json": body}
    answer = web.request(case["method"], case["path"], **sent)
    assert answer.status_code < 300, answer.text
    return commits

template, place = Path(sys.argv[1]), Path(sys.argv[2])
for case in json.loads(sys.argv[3]):
    def one(name, kill_at, before):
        folder = place / name
        shutil.copytree(template, folder)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.write(writing, str(run(folder, case, kill_at, before)).encode())
            os._exit(0)
        os.close(writing)
        _, status = os.waitpid(child, 0)
        said = os.read(reading, 20)
        os.close(reading)
        assert os.WIFSIGNALED(status) == bool(kill_at), (case, kill_at, before, status)
        return int(said or 0)

    total = one(f"{case['name']}-whole", 0, True)
    assert total
    for number in range(1, total + 1):
        one(f"{case['name']}-before-{number}", number, True)
        one(f"{case['name']}-after-{number}", number, False)
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "hub"
    town = hub_world.copied(folder)
    facts = {"request": town.visits.request, "upload": town.visits.upload}
    for who in ("ada", "owner"):
        facts[who] = town.token(who)
    facts["waiting"] = town.submit("ada", sql="SELECT SUM(age) AS s FROM visits").id
    facts["release"] = town.rows(sa.select(Request.id).where(Request.kind == "release"))[0]
    facts["open"] = town.call(
        "owner", "POST", "/api/datasets/visits/uploads", body={"table": "visits", "file": "w.csv", "size": 140_000}
    ).json()["id"]
    facts["policy"] = town.rows(sa.select(PolicyVersion.text).where(PolicyVersion.text.contains("dataset: visits")))[0]
    town.web.get("/health")
    town.hub.close()
    return folder, facts


def filled(value, facts):
    if isinstance(value, dict):
        return {name: filled(one, facts) for name, one in value.items()}
    for name, fact in facts.items():
        value = value.replace(f"{{{name}}}", str(fact)) if isinstance(value, str) else value
    return value


def state(hub):
    """What a request changes, without numbers and times that differ from run to run."""
    with hub.database.reading() as session:
        return {
            "jobs": Counter((one.state, one.kind) for one in session.scalars(sa.select(Job))),
            "requests": Counter((one.kind, one.state) for one in session.scalars(sa.select(Request))),
            "decisions": len(session.scalars(sa.select(Decision)).all()),
            "policies": len(session.scalars(sa.select(PolicyVersion)).all()),
            "datasets": sorted(
                (one.name, one.paused, one.deleted is None, one.wrapped_key is None)
                for one in session.scalars(sa.select(Dataset))
            ),
            "uploads": sorted((one.size, one.received, one.state) for one in session.scalars(sa.select(Upload))),
            "versions": Counter(one.state for one in session.scalars(sa.select(Version))),
        }


@pytest.fixture(scope="module")
def died(template, tmp_path_factory):
    """Every request, killed before and after each of its commits; the folders that are left, and what was sent."""
    folder, facts = template
    place, cases = tmp_path_factory.mktemp("died"), {}
    for name, (who, method, path, body) in REQUESTS.items():
        sent = {"path": filled(path, facts), "body": filled(body, facts), "method": method, "token": facts[who]}
        cases[name] = {"name": name.replace(", ", "-").replace(" ", "-"), **sent}
    arguments = [sys.executable, "-c", DIES, folder, place, json.dumps(list(cases.values()))]
    subprocess.run(arguments, check=True, timeout=600)
    return place, cases


def opened(folder):
    return Hub(Settings(folder=folder, country="DE", requests_per_minute=10**9))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_dies_anywhere_is_done_or_not_done_and_can_be_sent_again(template, died, name):
    place, case = died[0], died[1][name]
    with opened(template[0]) as hub:
        untouched, spent = state(hub), hub.ledger.balance("visits").spent
    with opened(place / f"{case['name']}-whole") as hub:
        whole = state(hub)
    assert whole != untouched
    left = [*place.glob(f"{case['name']}-before-*"), *place.glob(f"{case['name']}-after-*")]
    assert len(left) >= 2
    seen = set()
    for folder in left:
        with opened(folder) as hub:
            found = state(hub)
            assert found in (untouched, whole), (folder.name, found)
            seen.add(found == whole)
            with hub.database.reading() as session:
                hub.audit.verify(session)
            if found == untouched:  # whoever heard nothing sends it again
                answer = _again(hub, case)
                assert answer.status_code < 300, (folder.name, answer.text)
                assert state(hub) == whole, folder.name
            assert hub.ledger.balance("visits").spent == spent  # nothing was charged by any of it
    assert seen == {True, False}  # it died on both sides of the commit that counts


def _again(hub, case):
    from fastapi.testclient import TestClient

    from cloister.hub.web.app import create_app

    web = TestClient(create_app(hub), headers={"authorization": f"Bearer {case['token']}"})
    sent = {"content": case["body"].encode()} if isinstance(case["body"], str) else {"json": case["body"]}
    return web.request(case["method"], case["path"], **sent)


# The whole server


class Server:
    """`cloister hub serve` in processes of its own."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.process = None

    def start(self):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CLOISTER_")}
        plain |= {"CLOISTER_WEB_PROCESSES": "1", "CLOISTER_WORKER_PROCESSES": "1", "CLOISTER_COUNTRY": "DE"}
        plain |= {"CLOISTER_REQUESTS_PER_MINUTE": "1000000", "CLOISTER_LOG_LEVEL": "error"}
        command = "from cloister.cli import main; main()"
        words = ["hub", "serve", "--folder", str(self.folder), "--port", str(self.port)]
        self.process = subprocess.Popen([sys.executable, "-c", command, *words], env=plain)
        self.until(lambda: self.send("GET", "/health") is not None)

    def kill(self):
        """Every process of it, at once and without a word."""
        for one in (self.process.pid, *_descendants(self.process.pid)):
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)

    def send(self, method, path, token="", body=None):
        """The answer's JSON; None if there was none."""
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()) from None
        except (OSError, http.client.IncompleteRead):  # killed before, or while it answered
            return None

    def until(self, condition, seconds=90):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.05)


def _descendants(process):
    parents = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, last = [], [process]
    while last:
        last = [one for one, parent in parents.items() if parent in last]
        found += last
    return found


def reserves(hub):
    """How often each request was charged, by its digest."""
    with hub.ledger._store.reading() as tables:
        rows = [json.loads(body) for page in tables.pages() for _, _, body, _, _ in page]
    return Counter(one["request"] for one in rows if one["kind"] == "reserve")


@pytest.mark.long
def test_a_server_killed_again_and_again_loses_no_work_and_charges_none_twice(template, tmp_path):
    folder = tmp_path / "hub"
    shutil.copytree(template[0], folder)
    server, token = Server(folder), template[1]["ada"]
    told, number, lock = {}, iter(range(10_000)), threading.Lock()
    stop = threading.Event()

    def hand_in():
        while not stop.is_set():
            with lock:
                mine = next(number)
            sql = f"SELECT COUNT(*) AS n FROM visits WHERE cost > {mine}"
            body = {"form": {"sql": sql, "spend": "rho 0.001"}, "purpose": "health-research"}
            answer = server.send("POST", "/api/datasets/visits/jobs", token, body)
            if answer is None:
                stop.wait(0.1)
            else:
                told[answer["id"]] = sql

    threads = [threading.Thread(target=hand_in) for _ in range(3)]
    try:
        for round_ in range(3):
            server.start()
            if not round_:
                for one in threads:
                    one.start()
                for process in _descendants(server.process.pid):  # a dump of their memory would hold rows and keys
                    limits = (Path("/proc") / str(process) / "limits").read_text()
                    assert re.search(r"Max core file size +0 +0", limits), limits
            before = len(told)
            server.until(lambda before=before: len(told) > before + 12)
            server.kill()
        stop.set()
        for one in threads:
            one.join()
        with Hub.open(Settings(folder=folder, country="DE")) as hub:
            with hub.database.writing() as session:  # as if half a minute had passed
                session.execute(sa.update(Job).where(Job.heartbeat.is_not(None)).values(heartbeat=Job.heartbeat - 60))
            server.start()
            server.until(lambda: _settled(hub))
            server.stop()
            _check(hub, told)
    finally:
        stop.set()
        if server.process.poll() is None:
            server.kill()


def _settled(hub):
    with hub.database.reading() as session:
        moving = sa.select(sa.func.count()).select_from(Job).where(Job.state.in_(("queued", "running", "charged")))
        return session.scalar(moving) == 0


def _check(hub, told):
    with hub.database.reading() as session:
        jobs = {one.id: one for one in session.scalars(sa.select(Job).options(sa.orm.undefer(Job.result)))}
        assert hub.audit.verify(session) > len(told)
    assert len(told) > 36
    for number, sql in told.items():  # whatever was acknowledged is there, as it was handed in
        assert jobs[number].parameters["sql"] == sql
    charges = reserves(hub)
    assert set(charges.values()) == {1}
    paid = Loss.nothing("rho")
    for job in jobs.values():
        if job.state == "waiting":
            continue
        assert job.state in ("done", "interrupted"), (job.state, job.problem)
        assert (job.result is not None) == (job.state == "done")
        assert charges[job.charge] == 1
        paid = paid + Loss.from_json(job.plan["loss"])
    assert len(charges) == sum(job.state != "waiting" for job in jobs.values())
    mine = hub.ledger.balance("visits").spent + hub.ledger.balance("lakeside").spent
    assert mine == paid
    interrupted = sum(job.state == "interrupted" for job in jobs.values())
    assert interrupted <= 3  # one worker, killed three times
