"""Plans are made in child processes with limits, through a hub that is really served."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from cloister.hub.core.settings import Settings
from cloister.hub.ops.serve import environment_of

from . import hub_world

SECONDS = 3  # a plan of a COUNT takes a tenth of that on a busy machine


SLOW = {"method": "mixture", "table": "visits", "bins": "256", "spend": "rho 0.01"}  # takes seconds


@pytest.fixture(scope="module", params=[SECONDS])
def served(tmp_path_factory, request):
    """A hub that is served, with so many seconds for a plan."""
    folder = tmp_path_factory.mktemp("planner") / "hub"
    town = hub_world.copied(folder)
    tokens = {who: town.token(who) for who in ("ada", "cleo")}
    town.hub.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(
        folder=folder,
        port=port,
        address=f"http://127.0.0.1:{port}",
        country="DE",
        web_processes=1,
        worker_processes=0,
        plan_seconds=request.param,
        requests_per_minute=10**6,
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "from cloister.cli import main; main()", "hub", "serve"],
        env={**os.environ, **environment_of(settings)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while True:
        try:
            if call(port, "GET", "/health")[0] == 200:
                break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.2)
    yield port, tokens, process
    process.terminate()
    process.wait(40)


def call(port, method, path, token="", body=None, timeout_s=60.0):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    if body is not None:
        headers["Content-Type"] = "application/json"
    with closing(connection):
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def plan(served, who, sql="", timeout_s=60.0):
    port, tokens, _ = served
    form = {"sql": sql, "spend": "rho 0.001"} if sql else SLOW
    body = {"kind": "query" if sql else "synthesise", "form": form, "purpose": "health-research"}
    return call(port, "POST", "/api/datasets/visits/plan", tokens[who], body, timeout_s)


def children(served):
    """The planners of the web process: the processes that the server's children have started."""
    found, parents = [], {served[2].pid}
    for _ in range(3):
        below = set()
        for one in Path("/proc").iterdir():
            if one.name.isdigit():
                try:
                    if int((one / "stat").read_text().rpartition(")")[2].split()[1]) in parents:
                        below.add(int(one.name))
                except OSError:
                    continue
        found += [one for one in below if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
        parents = below
    return set(found)


def processor_time(process):
    """Clock ticks that a process has used."""
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))


def test_plans_and_refusals_come_back_as_they_are_made(served):
    status, content = plan(served, "ada", hub_world.COUNT)
    assert status == 200
    assert json.loads(content)["own"]["measure"] == "rho"  # the answer is on record and costs nothing
    status, content = plan(served, "ada", "SELECT nonsense FROM visits")
    assert (status, json.loads(content)["code"]) == (422, "CLO-209")
    assert "nonsense" in json.loads(content)["message"]
    assert plan(served, "cleo", "SELECT SUM(cost) FROM visits")[0] == 422  # a hidden column


def test_a_plan_that_takes_too_long_is_stopped_and_others_go_on(served):
    plan(served, "cleo", "SELECT COUNT(*) AS n FROM visits")
    with ThreadPoolExecutor(4) as many:
        begun = time.monotonic()
        slow = [many.submit(plan, served, "ada") for _ in range(2)]
        # Stopped, the child at work is too slow on every machine. The second plan waits: nobody has all children.
        before = {planner: processor_time(planner) for planner in children(served)}
        time.sleep(0.5)
        os.kill(max(before, key=lambda planner: processor_time(planner) - before[planner]), signal.SIGSTOP)
        status, _ = plan(served, "cleo", "SELECT COUNT(*) AS n FROM visits WHERE age > 3")
        waited = time.monotonic() - begun
        assert status == 200
        assert call(served[0], "GET", "/health")[0] == 200
        done, _ = wait(slow, return_when=FIRST_COMPLETED)
        status, content = next(iter(done)).result()
        assert status == 422
        assert f"longer than {SECONDS} seconds to plan" in json.loads(content)["message"]
    assert waited < SECONDS + 30
    assert plan(served, "ada", hub_world.COUNT)[0] == 200  # there is a new child


@pytest.mark.parametrize("served", [600], indirect=True)
def test_a_plan_that_nobody_waits_for_is_stopped(served):
    plan(served, "ada", hub_world.COUNT)
    before = children(served)
    assert before
    with pytest.raises(TimeoutError):
        plan(served, "ada", timeout_s=0.3)
    until = time.monotonic() + 20
    while children(served) >= before and time.monotonic() < until:
        time.sleep(0.1)
    assert not children(served) >= before  # killed: a plan that ends by itself leaves its child
