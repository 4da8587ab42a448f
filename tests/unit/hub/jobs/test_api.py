"""Work over HTTP: planned, handed in, waited for, cancelled, with a receipt; and nobody else's."""

import threading
import time

import pytest
from fastapi.testclient import TestClient

from cloister.client import wire
from cloister.hub.jobs.worker import work
from cloister.hub.users import tokens
from cloister.hub.web.app import create_app
from cloister.privacy.loss import Loss, rho
from cloister.privacy.receipt import Receipt

WORK = {
    "kind": "query",
    "form": {"sql": "SELECT COUNT(*) AS n FROM visits", "spend": "rho 0.01"},
    "purpose": "health-research",
}


@pytest.fixture
def call(hospital_hub):
    """Ask the API as somebody: call("ada").get(...)."""
    app = create_app(hospital_hub.hub)
    with TestClient(app) as client:

        def as_person(name, scopes=("read", "work")):
            with hospital_hub.hub.database.writing() as session:
                person = session.merge(hospital_hub.people[name])
                secret = tokens.make(session, person, "test", list(scopes), 1)
            other = TestClient(app, headers={"Authorization": f"Bearer {secret}"})
            other.portal = client.portal  # one event loop, as in a server
            return other

        yield as_person


@pytest.fixture
def worker(hospital_hub):
    """A worker in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(hospital_hub.hub, "thread", stop))
    thread.start()
    yield
    stop.set()
    thread.join()


def test_a_plan_travels_as_the_client_reads_it(call):
    answer = call("ada").post("/api/datasets/visits/plan", json=WORK)
    assert answer.status_code == 200
    assert wire.plan_from_json(answer.json()).loss == rho("0.01")
    assert Loss.from_json(answer.json()["own"]) == rho("0.01")


def test_an_answer_is_waited_for_without_asking_again(call, worker, hospital_hub):
    ada = call("ada")
    job = ada.post("/api/datasets/visits/jobs", json=WORK)
    assert job.status_code == 202
    begun = time.monotonic()
    done = ada.get(f"/api/jobs/{job.json()['id']}?wait=20").json()
    assert done["state"] == "done"
    assert time.monotonic() - begun < 15
    answer = wire.answer_from_json(done["result"]["answer"])
    assert answer.value.num_rows == 1
    receipt = ada.get(f"/api/jobs/{done['id']}/receipt")
    Receipt.parse(receipt.text).verify(hospital_hub.hub.key.public)
    assert done["receipts"] == [receipt.text]
    assert [one["id"] for one in ada.get("/api/jobs").json()["jobs"]] == [done["id"]]


def test_many_wait_at_once_without_a_thread_each(call, hospital_hub):
    ada = call("ada")
    jobs = [ada.post("/api/datasets/visits/jobs", json=WORK).json()["id"] for _ in range(60)]
    found = []
    waiting = [
        threading.Thread(target=lambda job=job: found.append(ada.get(f"/api/jobs/{job}?wait=20").json()))
        for job in jobs
    ]
    for one in waiting:
        one.start()
    time.sleep(0.3)
    assert ada.get("/api/me").status_code == 200  # those who wait stand in nobody's way
    hospital_hub.work()
    for one in waiting:
        one.join()
    assert [one["state"] for one in found] == ["done"] * 60


def test_waiting_ends_when_the_time_is_over(call):
    ada = call("ada")
    job = ada.post("/api/datasets/visits/jobs", json=WORK).json()["id"]
    begun = time.monotonic()
    assert ada.get(f"/api/jobs/{job}?wait=0.3").json()["state"] == "queued"
    assert 0.25 < time.monotonic() - begun < 5


def test_a_job_is_its_askers_and_the_owner_sees_no_result(call, hospital_hub):
    job = call("ada").post("/api/datasets/visits/jobs", json=WORK).json()["id"]
    hospital_hub.work()
    assert call("ben").get(f"/api/jobs/{job}").status_code == 404
    assert call("ben").get(f"/api/jobs/{job}/receipt").status_code == 404
    assert call("ben").post(f"/api/jobs/{job}/cancel").status_code == 404
    seen = call("owner").get(f"/api/jobs/{job}").json()
    assert seen["state"] == "done"
    assert seen["person"] == "ada@university.example"
    assert seen["result"] is None
    assert seen["receipts"] == []
    (listed,) = call("owner").get("/api/datasets/visits/jobs").json()["jobs"]
    assert listed["id"] == job
    assert listed["result"] is None
    assert call("ben").get("/api/datasets/visits/jobs").json()["jobs"] == []


def test_refusals_have_their_status(call):
    ada = call("ada")
    assert ada.post("/api/datasets/nothing/plan", json=WORK).status_code == 404
    assert call("stranger").post("/api/datasets/visits/plan", json=WORK).status_code == 404
    assert ada.post("/api/datasets/visits/jobs", json={**WORK, "purpose": "marketing"}).status_code == 403
    assert ada.post("/api/datasets/visits/jobs", json={**WORK, "kind": "magic"}).status_code == 404
    bad = {**WORK, "form": {"sql": "SELECT age FROM visits", "spend": "rho 0.01"}}
    assert ada.post("/api/datasets/visits/plan", json=bad).status_code == 422
    assert (
        ada.post("/api/datasets/visits/plan", json={**WORK, "form": {"sql": "a\0b", "spend": "x"}}).status_code == 422
    )
    assert ada.get("/api/jobs/99999999999999999999").status_code == 404
    assert ada.get("/api/jobs/1?wait=1e9").status_code == 422
    assert call("ada", ["read"]).post("/api/datasets/visits/plan", json=WORK).status_code == 403
    job = ada.post("/api/datasets/visits/jobs", json=WORK).json()["id"]
    assert ada.get(f"/api/jobs/{job}/receipt").status_code == 404
    assert ada.post(f"/api/jobs/{job}/cancel").json()["state"] == "cancelled"
    assert ada.post(f"/api/jobs/{job}/cancel").status_code == 409
