"""Workers as processes: killed at every state, racing for one queue, stopped at their limits. Nothing runs twice."""

import importlib.util
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from cloister.hub.core.child_process import memory_of
from cloister.hub.core.models import Attack, Job, Spent, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import bounded, datasets
from cloister.hub.jobs import gateway, queue, worker
from cloister.hub.jobs.attacks import store
from cloister.privacy.loss import Loss, rho

pytestmark = pytest.mark.e2e

_place = Path(__file__).parents[1] / "unit" / "hub" / "conftest.py"
_spec = importlib.util.spec_from_file_location("hub_worlds", _place)
worlds = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worlds)

WORKER = "import sys\nfrom pathlib import Path\nfrom cloister.hub.core.settings import Settings\n"
WORKER += "from cloister.hub.jobs.worker import run_worker\n"
WORKER += (
    "if __name__ == '__main__':\n    run_worker(Settings(folder=Path(sys.argv[1]), job_seconds=int(sys.argv[2])))\n"
)

STEPS = ("running", "opened", "aside", "charged", "released", "done")
DIES = """
import os, signal, sys
from pathlib import Path
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import bounded, datasets
from cloister.hub.jobs import queue
from cloister.hub.jobs.runner import run_job
from cloister.hub.jobs.dataset_pool import DatasetPool

for word in sys.argv[2:]:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        continue
    step = lambda name: name == word and os.kill(os.getpid(), signal.SIGKILL)
    hub = Hub(Settings(folder=Path(sys.argv[1])))
    job = queue.claim(hub.database, f"gone at {word}")
    run_job(hub, job, f"gone at {word}", DatasetPool(hub, lambda *asked: datasets.open_for_work(hub, *asked)), step)
    os._exit(1)
"""


def question(number):
    return f"SELECT COUNT(*) AS n FROM visits WHERE cost > {number}"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "hub"
    worlds.build(folder)
    return folder


@pytest.fixture
def world(template, tmp_path):
    folder = tmp_path / "hub"
    shutil.copytree(template, folder)
    made = worlds.open_world(folder)
    yield made
    made.hub.close()


@pytest.fixture
def start(world):
    """Start workers as `cloister hub worker` does."""
    running = []

    def begin(job_seconds=60):
        arguments = [sys.executable, "-c", WORKER, str(world.hub.folder), str(job_seconds)]
        running.append(subprocess.Popen(arguments, start_new_session=True))
        return running[-1]

    yield begin
    for one in running:
        one.terminate()
    for one in running:
        one.wait(30)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def ended(world):
    return all(one.state in queue.ENDED for one in world.rows(sa.select(Job)))


def charges(world):
    """How many charges the dataset's account holds, each once."""
    ledger = world.hub.ledger
    with ledger._store.reading() as tables:
        rows = [row for page in tables.pages() for row in page]
    return sum('"kind":"reserve"' in body for _, _, body, _, _ in rows)


def test_a_worker_killed_at_any_state_loses_nothing_and_runs_nothing_twice(world, start):
    jobs = {step: world.submit("ada", question(number)).id for number, step in enumerate(STEPS)}
    subprocess.run([sys.executable, "-c", DIES, str(world.hub.folder), *STEPS], check=True)
    left = {step: world.job(number).state for step, number in jobs.items()}
    assert left == dict(zip(STEPS, ("running", "running", "charged", "charged", "charged", "done"), strict=True))
    assert charges(world) == 3
    with world.hub.database.writing() as session:  # as if half a minute had passed
        session.execute(sa.update(Job).values(heartbeat=Job.heartbeat - queue.LEASE_S - 1))
    start()
    until(lambda: ended(world))
    final = {step: world.job(number) for step, number in jobs.items()}
    for step, job in final.items():
        assert job.state == ("interrupted" if step in ("charged", "released") else "done"), step
        assert (job.result is not None) == (job.state == "done")
    assert charges(world) == 6  # one for each job, whatever happened to it
    assert world.spent() == world.spent("ada") == rho("0.06")
    rows = world.rows(sa.select(Spent).order_by(Spent.id))
    assert len(rows) == 6
    assert Loss.from_json(rows[-1].total) == Loss.from_json(rows[-1].own_total) == rho("0.06")


def test_two_workers_racing_for_fifty_jobs_do_each_once(world, start):
    for number in range(50):
        world.submit(("ada", "ben")[number % 2], question(number), "rho 0.001")
    start()
    start()
    until(lambda: ended(world))
    jobs = world.rows(sa.select(Job))
    assert [one.state for one in jobs] == ["done"] * 50
    assert [one.attempts for one in jobs] == [1] * 50
    assert charges(world) == 50
    assert world.spent() == rho("0.05")
    assert world.spent("ada") == world.spent("ben") == rho("0.025")


def test_a_supervisor_replaces_a_child_that_was_killed_and_takes_its_child_along(world, start):
    for number in range(40):
        world.submit("ada", question(number), "rho 0.001")
    supervisor = start()
    until(lambda: sum(one.state == "done" for one in world.rows(sa.select(Job))) > 3)
    os.kill(children_of(supervisor.pid)[0], signal.SIGKILL)
    until(lambda: ended(world))
    states = [one.state for one in world.rows(sa.select(Job))]
    assert states.count("done") + states.count("interrupted") == 40
    assert states.count("interrupted") <= 1
    assert charges(world) == 40
    assert world.spent() == rho("0.04")
    (child,) = children_of(supervisor.pid)
    supervisor.kill()
    supervisor.wait()
    until(lambda: not alive(child))


def test_a_job_that_takes_too_long_is_stopped_and_not_tried_again(world, start):
    slow = world.submit("ada")
    with world.hub.ledger._store.writing():  # nobody can charge, so the worker waits for its turn
        start(job_seconds=8)
        until(lambda: world.job(slow.id).state == "failed")
    found = world.job(slow.id)
    assert found.problem == "The job was stopped: it took longer than 8 seconds. Nothing was spent."
    assert not world.rows(sa.select(Spent))
    world.submit("ada", question(1))
    until(lambda: ended(world))
    assert sorted(one.state for one in world.rows(sa.select(Job))) == ["done", "failed"]
    assert charges(world) == 1


@pytest.fixture
def attacked(world):
    """A network that was trained on visits; what its owner's newest attack on it is like by now."""
    may = "may: [see schema, query, profile]\n  juniors"
    world.publish(change=[(may, may.replace("profile", "profile, train"))])
    form = {"estimator": "NeuralNetworkClassifier", "target": "readmitted", "spend": "rho 0.01"}
    job = gateway.submit(
        world.hub, world.ada, gateway.JobOrder("visits", "train", form, "health-research", world.here)
    ).id
    assert world.work() == ["done"]
    number = store.start(world.hub, world.owner, "visits", job)

    def now():
        with world.hub.database.reading() as session:
            return store.find(world.hub, session, datasets.find(session, "visits"), number)

    return now


def test_an_attack_whose_worker_is_killed_is_run_again(world, start, attacked):
    supervisor = start()
    until(lambda: attacked().stage.startswith("training twin"))
    os.kill(children_of(supervisor.pid)[0], signal.SIGKILL)
    until(lambda: attacked().state == "done", 120)
    assert world.rows(sa.select(Attack.attempts)) == [2]
    assert attacked().facts["attacks"] > 2


def test_an_attack_that_takes_too_long_is_stopped_and_jobs_go_on(world, start, attacked):
    start(job_seconds=4)
    until(lambda: attacked().state == "running")
    with world.hub.database.writing():  # nobody can write, so it waits with its next step
        time.sleep(8)
    until(lambda: attacked().state == "failed")
    problem = attacked().facts["problem"]
    assert problem.startswith("The attack was stopped: it took longer than 4 seconds. ")
    assert problem.endswith("then start it again.")
    world.submit("ada", question(1))
    until(lambda: ended(world))
    assert {one.state for one in world.rows(sa.select(Job))} == {"done"}


def test_an_attack_that_the_hub_stops_for_loses_no_try(world, start, attacked):
    supervisor = start()
    until(lambda: attacked().stage.startswith("training twin"))
    with world.hub.database.writing():  # it does not end by itself meanwhile
        supervisor.terminate()
        time.sleep(12)
    supervisor.wait(30)
    assert attacked().state == "queued"
    assert world.rows(sa.select(Attack.attempts)) == [0]


def test_a_version_that_takes_too_long_fails_and_jobs_go_on(world, tmp_path):
    server, held = socket.create_server(("127.0.0.1", 0)), []

    def serve():  # lets everybody in, and then says nothing more
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                held.append(client)
                client.recv(1000)
                client.sendall(b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I")

    threading.Thread(target=serve, daemon=True).start()
    port = server.getsockname()[1]
    settings = replace(world.hub.settings, connect_hosts=f"Hospital=127.0.0.1:{port}", prepare_seconds=3)
    world.hub.settings = settings
    with world.hub.database.reading() as session:
        dataset = datasets.find(session, "visits")
    link = datasets.reach(world.hub, world.owner, dataset, f"postgresql://u@127.0.0.1:{port}/x?sslmode=disable")
    with world.hub.database.writing() as session:
        made = datasets.new_version(world.hub, session, world.owner, datasets.find(session, "visits"), link=link)
    job = world.submit("ada")
    stop = threading.Event()
    supervisor = threading.Thread(target=worker.run, args=(world.hub, stop))
    supervisor.start()
    try:
        (found,) = until(lambda: world.rows(sa.select(Version).where(Version.id == made.id, Version.state == "failed")))
        assert "it took longer than 3 seconds" in found.problem
        until(lambda: world.job(job.id).state == "done")
    finally:
        stop.set()
        supervisor.join()
        server.close()
        for one in held:
            one.close()


def test_a_child_that_takes_too_much_memory_is_killed():
    hog = "import time\nkept = bytearray(b'x') * (700 * 2**20)\ntime.sleep(60)"
    child = Started(subprocess.Popen([sys.executable, "-c", hog]))
    watch = multiprocessing.get_context("spawn").Array("d", [worker._JOB, 7, time.monotonic()], lock=False)
    settings = Settings(job_memory="64MB")
    most = memory_of(settings.job_memory) + bounded.OWN_MEMORY
    why = worker._watched(child, watch, settings, most, threading.Event())
    assert why == "it took more memory than the 64MB that a job may have"
    assert not child.is_alive()


class Started:
    """A process with the few words that the supervisor uses."""

    def __init__(self, process):
        self._process, self.pid = process, process.pid

    def is_alive(self):
        return self._process.poll() is None

    def kill(self):
        self._process.kill()

    def join(self, seconds=None):
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)


def children_of(process):
    """Its child that works; Python's resource tracker is another."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                words = (place / "cmdline").read_text()
            except OSError:
                continue
            if parent == process and "spawn_main" in words:
                found.append(int(place.name))
    return found


def alive(process):
    try:
        return "Z" not in (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
