"""Numbers for Prometheus: right, protected, and without anybody's secrets."""

import asyncio
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cloister.hub.core import models
from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.metrics import RequestMetrics, read
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import NotHere, SignInFailed
from cloister.privacy.loss import rho

TOKEN = "a token of the settings"


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub", metrics_token=TOKEN)) as made:
        yield made


def numbers(hub):
    text = read(hub, f"Bearer {TOKEN}").decode()
    return {name: float(value) for name, value in re.findall(r"^([^#\n].*) (\S+)$", text, re.MULTILINE)}


def ask(app, path, route=None, status=200, method="GET"):
    async def inner(scope, receive, send):
        scope["route"] = route and SimpleNamespace(path=route)
        if status is None:
            raise RuntimeError
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def send(message):
        return None

    asyncio.run(app(inner)({"type": "http", "method": method, "path": path}, None, send))


def test_nobody_reads_them_unless_a_token_is_set(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub")) as hub:
        for shown in ("", "Bearer", "Bearer "):
            with pytest.raises(NotHere):
                read(hub, shown)


@pytest.mark.parametrize("shown", ["", "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer ü"])
def test_the_token_must_be_shown(hub, shown):
    with pytest.raises(SignInFailed):
        read(hub, shown)


def test_requests_are_counted_by_the_pattern_of_their_route(hub):
    before = numbers(hub).get('cloister_requests_total{method="GET",route="/reset/{secret}",status="200"}', 0)
    ask(RequestMetrics, "/reset/SECRET", "/reset/{secret}")
    ask(RequestMetrics, "/reset/OTHER", "/reset/{secret}")
    found = numbers(hub)
    assert found['cloister_requests_total{method="GET",route="/reset/{secret}",status="200"}'] == before + 2
    assert found['cloister_request_seconds_count{method="GET",route="/reset/{secret}"}'] >= 2
    assert "SECRET" not in read(hub, f"Bearer {TOKEN}").decode()


def test_paths_and_methods_that_somebody_invents_do_not_fill_the_memory(hub):
    for number in range(20):
        ask(RequestMetrics, f"/nowhere/{number}", status=404, method=f"X{number}")
    invented = [name for name in numbers(hub) if name.startswith("cloister_requests_total") and "404" in name]
    assert invented == ['cloister_requests_total{method="other",route="none",status="404"}']


def test_a_request_that_ends_in_an_error_is_counted_as_one(hub):
    with pytest.raises(RuntimeError):
        ask(RequestMetrics, "/x", "/broken", status=None)
    assert numbers(hub)['cloister_requests_total{method="GET",route="/broken",status="500"}'] == 1


def test_jobs_charges_and_budgets_are_read_from_the_books(hub):
    hub.ledger.open_account("visits", rho(1)).reserve(rho("0.25"), "q")
    with hub.database.writing() as session:
        person = models.Person(email="p@x.org", name="P")
        dataset = models.Dataset(name="visits", owner=person, budget=rho(1).to_json())
        session.add(dataset)
        session.flush()
        facts = {"kind": "query", "dataset_id": dataset.id, "person_id": person.id, "purpose": "p", "parameters": {}}
        made = [
            models.Job(**facts, policy_number=1, state=state, created=now() - age)
            for state, age in (("queued", 50), ("queued", 10), ("done", 500))
        ]
        session.add_all(made)
        session.flush()
        loss = rho("0.25").to_json()
        spent = {"dataset_id": dataset.id, "person_id": person.id, "job_id": made[2].id, "purpose": "p"}
        session.add(models.Spent(**spent, loss=loss, own=loss, total=loss, own_total=loss))
    found = numbers(hub)
    assert found['cloister_jobs{state="queued"}'] == 2
    assert found['cloister_jobs{state="running"}'] == 0
    assert 50 <= found["cloister_queue_age_seconds"] < 60
    assert found["cloister_charges_total"] == 1
    assert found['cloister_budget_left{dataset="visits",measure="rho"}'] == 0.75
    assert found['cloister_budget{dataset="visits",measure="rho"}'] == 1
    assert found["cloister_ledger_readable"] == 1
    assert found["cloister_ledger_spends"] == 1
    assert found["cloister_workers"] == 0
    assert found["cloister_ledger_entries_total"] == 4  # create, the note of a new hub, open, reserve


COUNT = """
import asyncio, sys
from types import SimpleNamespace
from cloister.hub.core.metrics import RequestMetrics
async def app(scope, receive, send):
    scope["route"] = SimpleNamespace(path="/shared")
    await send({"type": "http.response.start", "status": 200, "headers": []})
async def send(message): pass
for _ in range(3):
    asyncio.run(RequestMetrics(app)({"type": "http", "method": "GET", "path": "/"}, None, send))
"""
READ = """
import sys
from pathlib import Path
from cloister.hub.core.hub import Hub
from cloister.hub.core.metrics import read
from cloister.hub.core.settings import Settings
with Hub.open(Settings(folder=Path(sys.argv[1]), metrics_token="t")) as hub:
    sys.stdout.buffer.write(read(hub, "Bearer t"))
"""


def test_the_counts_of_several_processes_are_added_up(hub, tmp_path, monkeypatch):
    folder = tmp_path / "counts"
    folder.mkdir()
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(folder))
    for _ in range(2):
        subprocess.run([sys.executable, "-c", COUNT], check=True)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(hub.folder)], check=True, capture_output=True, text=True
    ).stdout
    assert 'cloister_requests_total{method="GET",route="/shared",status="200"} 6.0' in done
    assert "cloister_people 0.0" in done
