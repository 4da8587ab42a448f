"""A hub from its command line: made, served, killed, copied and restored, as an operator does it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import RolledBack
from cloister.privacy.loss import rho

pytestmark = pytest.mark.e2e
CLOISTER = [sys.executable, "-c", "from cloister.cli import main; main()", "hub"]
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("CLOISTER_")}


def run(*words, ok=True, **environment):
    done = subprocess.run(
        [*CLOISTER, *map(str, words)], capture_output=True, text=True, env={**PLAIN, **environment}, timeout=120
    )
    assert (done.returncode == 0) is ok, done.stderr
    return done.stdout if ok else done.stderr


@pytest.fixture
def folder(tmp_path):
    run("init", "--folder", tmp_path / "hub", "--operator", "op@example.org")
    return tmp_path / "hub"


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Served:
    """`cloister hub serve`, and what is known of its processes."""

    def __init__(self, folder, port, **environment):
        self.port = port
        self.log = folder.parent / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*CLOISTER, "serve", "--folder", str(folder), "--port", str(port)],
                stderr=log,
                env={**PLAIN, "CLOISTER_WEB_PROCESSES": "2", "CLOISTER_WORKER_PROCESSES": "1", **environment},
            )

    def get(self, path="/health", **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()

    def healthy(self, within_s=60):
        until = time.monotonic() + within_s
        while True:
            try:
                return json.loads(self.get())
            except (OSError, urllib.error.URLError):
                assert time.monotonic() < until, self.log.read_text()
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.2)

    def children(self):
        """The processes that serve starts: their numbers, by role."""
        found = {"web": [], "worker": []}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().decode().split("\0")
                parent = int(path.with_name("stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == self.process.pid and "cloister.hub.ops.process" in words:
                found[words[words.index("cloister.hub.ops.process") + 1]].append(int(path.parent.name))
        return found

    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


@pytest.fixture
def served(folder, port):
    made = Served(folder, port, CLOISTER_METRICS_TOKEN="numbers")
    yield made
    if made.process.poll() is None:
        made.process.send_signal(signal.SIGTERM)
        made.process.wait(60)


def gone(numbers, within_s=60):
    until = time.monotonic() + within_s
    while any(Path(f"/proc/{number}").exists() for number in numbers):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def test_a_new_hub_has_its_keys_for_itself_and_invites_its_operator(tmp_path):
    said = run("init", "--folder", tmp_path / "hub", "--operator", "op@example.org", CLOISTER_PORT="9123")
    assert "http://127.0.0.1:9123/invitation/" in said
    assert "ed25519:" in said
    for name in ("master.key", "signing.key"):
        assert (tmp_path / "hub" / name).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "hub").stat().st_mode & 0o777 == 0o700
    assert "already" in run("init", "--folder", tmp_path / "hub", "--operator", "op@example.org", ok=False)


def test_people_are_invited_from_the_command_line(folder):
    said = run("invite", "a@x.org", "--folder", folder, "--role", "auditor", "--organisation", "X", "--country", "AT")
    assert "/invitation/" in said
    assert "role" in run("invite", "b@x.org", "--folder", folder, "--role", "king", ok=False)


def test_without_a_hub_there_is_nothing_to_serve(tmp_path):
    assert "cloister hub init" in run("serve", "--folder", tmp_path / "none", ok=False)


def test_a_hub_is_served_and_ends_cleanly(served):
    assert served.healthy()["state"] == "ok"
    before = served.children()
    assert (len(before["web"]), len(before["worker"])) == (2, 1)
    numbers = served.get("/metrics", Authorization="Bearer numbers").decode()
    assert 'cloister_requests_total{method="GET",route="/health",status="200"}' in numbers
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.get("/metrics", Accept="application/json", Authorization="Bearer other")
    refused.value.close()
    assert refused.value.code == 401
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(60) == 0
    assert gone([*before["web"], *before["worker"]])
    events = [line["event"] for line in served.lines()]
    assert events[0] == "hub started"
    assert events[-1] == "hub stopped"


def test_a_process_that_is_killed_is_started_again(served):
    served.healthy()
    before = served.children()
    for number in (before["web"][0], before["worker"][0]):
        os.kill(number, signal.SIGKILL)
    until = time.monotonic() + 60
    while True:
        now = served.children()
        counts = len(now["web"]), len(now["worker"])
        if counts == (2, 1) and before["web"][0] not in now["web"] and before["worker"][0] not in now["worker"]:
            break
        assert time.monotonic() < until
        time.sleep(0.1)
    assert served.healthy()["state"] == "ok"
    ended = [line for line in served.lines() if line["event"] == "process ended"]
    assert {(line["role"], line["exit"]) for line in ended} == {("web", -9), ("worker", -9)}


def test_when_the_command_is_killed_its_processes_end_too(served):
    served.healthy()
    before = served.children()
    served.process.kill()
    served.process.wait()
    assert gone([*before["web"], *before["worker"]])


def test_logs_hold_no_path_and_no_query_string(served):
    served.healthy()
    for path in ("/invitation/SECRET-1?x=SECRET-2", "/reset/SECRET-3", "/nowhere/SECRET-4", "/datasets?q=SECRET-5"):
        try:
            served.get(path)
        except urllib.error.HTTPError as error:
            error.close()
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(60)
    assert "/invitation/{secret}" in served.log.read_text()
    assert "SECRET" not in served.log.read_text()


def test_a_port_that_is_taken_is_said(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = run("serve", "--folder", folder, "--port", taken.getsockname()[1], ok=False)
    assert "CLOISTER_PORT" in said


def test_a_worker_runs_without_pages(folder):
    command = [*CLOISTER, "worker", "--folder", str(folder)]
    with subprocess.Popen(command, env=PLAIN, stderr=subprocess.PIPE, text=True) as process:
        assert json.loads(process.stderr.readline())["event"] == "hub started"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_copy_is_restored_and_spends_only_after_the_newest_head_was_shown(folder, tmp_path):
    with Hub.open(Settings(folder=folder)) as hub:
        hub.ledger.open_account("visits", rho(1)).reserve(rho("0.1"), "q").look()
    said = run("backup", tmp_path / "copy", "--folder", folder)
    head = said.strip().splitlines()[-1].strip()
    again = tmp_path / "again"
    said = run("restore", tmp_path / "copy", again, "--master-key", folder / "master.key")
    assert "show-head" in said

    def spend():
        with Hub.open(Settings(folder=again)) as hub:
            hub.ledger.account("visits").reserve(rho("0.1"), "q")

    with pytest.raises(RolledBack):
        spend()
    assert "contains it" in run("show-head", head, "--folder", again)
    spend()


def test_an_old_copy_goes_on_only_after_its_owners_wrote_the_rest_off(folder, tmp_path):
    with Hub.open(Settings(folder=folder)) as hub:
        account = hub.ledger.open_account("visits", rho(1))
        run("backup", tmp_path / "copy", "--folder", folder)
        account.reserve(rho("0.9"), "after the copy").look()
        newest = str(hub.ledger.head)
    again = tmp_path / "again"
    run("restore", tmp_path / "copy", again, "--master-key", folder / "master.key")
    assert "CLO-206" in run("show-head", newest, "--folder", again, ok=False)
    assert "visits: rho 1 written off" in run("write-off", "visits", "--folder", again)
    with Hub.open(Settings(folder=again)) as hub:
        assert hub.ledger.account("visits").left.amount == 0
        hub.ledger.open_account("new", rho(1)).reserve(rho("0.1"), "q")


def test_a_policy_is_tested_from_the_command_line(tmp_path):
    (tmp_path / "policy.yaml").write_text(
        "dataset: visits\npurposes: [health-research]\nbudget:\n  lifetime: {rho: 1}\n"
        "roles:\n  analysts:\n    who: {roles: [data user]}\n    may: [query]\n"
    )
    case = (
        "cases:\n  - {given: {person: a@x.org, roles: [data user], purpose: %s}, operation: query, expect: allowed}\n"
    )
    (tmp_path / "good.yaml").write_text(case % "health-research")
    (tmp_path / "bad.yaml").write_text(case % "marketing")
    assert "all as expected" in run("policy-test", tmp_path / "policy.yaml", tmp_path / "good.yaml")
    run("policy-test", tmp_path / "policy.yaml", tmp_path / "bad.yaml", ok=False)


def test_the_demo_is_made_once_in_a_folder_of_its_own(folder, tmp_path):
    begun = time.monotonic()
    first = run("demo", "--folder", tmp_path / "demo", "--no-serve")
    taken = time.monotonic() - begun
    assert run("demo", "--folder", tmp_path / "demo", "--no-serve") == first
    assert "ada@uni.example" in first
    assert taken < 60  # twenty seconds on a machine that does nothing else
    assert "no demo" in run("demo", "--folder", folder, "--no-serve", ok=False)
