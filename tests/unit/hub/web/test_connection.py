"""Clients that do not read, do not send, or are too many: against a web process that is served."""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import uvicorn

from cloister.hub.core.models import Job
from cloister.hub.core.settings import Settings
from cloister.hub.users import tokens
from cloister.hub.web import connection, security
from cloister.hub.web.app import create_app
from cloister.hub.web.connection import Connections

MB = 10**6
UNREAD = 40


def secrets_of(world, *names):
    with world.hub.database.writing() as session:
        return [tokens.make(session, world.people[name], "t", ["read", "work"], 3) for name in names]


def large_job(world, size):
    """A finished job of Ada's whose result has this many bytes."""
    result = {"file": "QUJD" * (size // 4), "label": "{}"}
    facts = {"purpose": "", "parameters": {}, "policy_number": 1, "state": "done", "result": result, "size": size}
    with world.hub.database.writing() as session:
        job = Job(kind="synthesise", dataset_id=1, person_id=world.ada.id, **facts)
        session.add(job)
        session.flush()
        return job.id


def request_of(path, token=""):
    header = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{header}\r\n".encode()


def get(port, path, token=""):
    """The status, the body, and how long it took."""
    client, begun = http.client.HTTPConnection("127.0.0.1", port, timeout=60), time.monotonic()
    with contextlib.closing(client):
        client.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = client.getresponse()
        return answer.status, answer.read(), time.monotonic() - begun


@contextlib.contextmanager
def connections(port, count):
    """Connections whose client reads nothing by itself."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(30)
            client.connect(("127.0.0.1", port))
            clients.append(client)
        yield clients


def ended(client):
    """What the client can still read, once the hub has ended the connection."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65_536):
            pieces.append(piece)
    return b"".join(pieces)


def until(happened, seconds=60):
    stop = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < stop
        time.sleep(0.02)


@pytest.fixture
def process(hospital_hub):
    """A web process, as `serve` starts it: its port and its number."""
    read, write = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("CLOISTER_")}
        plain |= {"CLOISTER_FOLDER": str(hospital_hub.hub.folder), "CLOISTER_LOG_LEVEL": "error"}
        command = [sys.executable, "-m", "cloister.hub.ops.process", "web", str(read), str(listening.fileno())]
        child = subprocess.Popen(command, env=plain, pass_fds=[read, listening.fileno()])
        port = listening.getsockname()[1]
    try:
        get(port, "/health")
        yield port, child.pid
    finally:
        child.kill()
        child.wait()
        os.close(read)
        os.close(write)


def memory(process_id):
    """The MB that a process has."""
    status = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


def answered(clients):
    """How many of them have the beginning of an answer, which stays unread."""
    number = 0
    for client in clients:
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            number += client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    return number


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("path", ["/api/jobs/{}", "/api/jobs/{}/table"])
def test_answers_that_one_person_does_not_read_neither_fill_the_memory_nor_stop_another(hospital_hub, process, path):
    """Forty answers of 20 MB: ten of them are made, as are under way at once; Ben is answered meanwhile."""
    port, process_id = process
    ada, ben = secrets_of(hospital_hub, "ada", "ben")
    path = path.format(large_job(hospital_hub, 20 * MB))
    assert get(port, path, ada)[0] == get(port, "/api/me", ben)[0] == 200
    before, waits = memory(process_id), []
    with connections(port, UNREAD) as clients:
        for client in clients:
            client.sendall(request_of(path, ada))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            status, _, seconds = get(port, "/api/me", ben)
            assert status == 200
            waits.append(seconds)
            time.sleep(0.1)
            if answered(clients) >= security.AT_ONCE:
                end = min(end, time.monotonic() + 3)  # no further one is answered
        begun = answered(clients)
        grown = memory(process_id) - before
    assert begun == security.AT_ONCE
    assert grown < 2 * 20 * security.AT_ONCE
    assert statistics.median(waits) < 2  # one may meet a busy machine


# One connection


@pytest.fixture
def server(hospital_hub):
    """Serve an application, the hub's unless another is given, in a thread of this process: its port."""
    with contextlib.ExitStack() as stack:

        def serve(app=None, most=connection.MOST, **settings):
            others = Connections(Settings(**settings), most)
            app = app or create_app(hospital_hub.hub)
            config = uvicorn.Config(app, http=others, ws="none", log_config=None, lifespan="off")
            running, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
            thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
            thread.start()

            def stop():
                running.should_exit = running.force_exit = True
                thread.join(30)

            stack.callback(stop)
            until(lambda: running.started)
            return listening.getsockname()[1], others

        yield serve


def test_a_client_that_does_not_read_is_given_up_and_its_turn_is_free(hospital_hub, server, monkeypatch):
    monkeypatch.setattr(connection, "READ_S", 1.0)
    monkeypatch.setattr(security, "AT_ONCE", 1)
    (ada,) = secrets_of(hospital_hub, "ada")
    port, others = server()
    path = f"/api/jobs/{large_job(hospital_hub, 20 * MB)}"
    with connections(port, 1) as (client,):
        client.sendall(request_of(path, ada))
        until(lambda: others.by_address)
        until(lambda: not others.by_address)
        status, body, _ = get(port, path, ada)  # the only turn is free
    assert (status, len(json.loads(body)["result"]["file"])) == (200, 20 * MB)


def test_a_slow_reader_gets_the_whole_answer(hospital_hub, server, monkeypatch):
    """It takes longer than a client may be silent, and is never silent for so long."""
    monkeypatch.setattr(connection, "READ_S", 3.0)
    (ada,) = secrets_of(hospital_hub, "ada")
    port, _ = server()
    path, received, begun = f"/api/jobs/{large_job(hospital_hub, MB)}", b"", time.monotonic()
    with connections(port, 1) as (client,):
        client.sendall(request_of(path, ada))
        while not received.endswith(b'"}}'):
            received += client.recv(32_768)
            time.sleep(0.01)
    assert time.monotonic() - begun > 3
    assert received.count(b"QUJD") == MB // 4


def test_a_turn_is_kept_until_the_last_piece_has_left():
    """However an application sends its body: the server gets it in pieces, and takes each when it can."""
    bodies, sent = [b"a" * 200_000, b"", b"b"], []

    async def app(scope, receive, send):
        await security.take_turn(security.Request(scope), "person/1")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for body in bodies:
            await send({"type": "http.response.body", "body": body, "more_body": body != b"b"})

    async def serve():
        turns = security.Turns(app)

        async def send(message):
            await asyncio.sleep(0)
            assert len(turns.lines) == 1
            sent.append(message)

        await turns({"type": "http"}, None, send)
        assert not turns.lines

    asyncio.run(serve())
    assert b"".join(message.get("body", b"") for message in sent) == b"".join(bodies)
    assert max(len(message.get("body", b"")) for message in sent) <= security.PIECE
    assert [message["more_body"] for message in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert not sent[-1]["body"]  # it is accepted when the piece before it has left


def test_waiting_for_a_job_takes_no_turn_and_its_result_takes_one(hospital_hub, server, monkeypatch):
    monkeypatch.setattr(security, "AT_ONCE", 1)
    (ada,) = secrets_of(hospital_hub, "ada")
    job, large = hospital_hub.submit("ada"), large_job(hospital_hub, 20 * MB)
    port, _ = server()
    with connections(port, 3) as (first, second, unread):
        for client in (first, second):
            client.sendall(request_of(f"/api/jobs/{job.id}?wait=30", ada))
        time.sleep(0.5)
        assert get(port, "/api/me", ada)[0] == 200  # nobody has the only turn
        unread.sendall(request_of(f"/api/jobs/{large}", ada))
        unread.recv(1)
        assert hospital_hub.work() == ["done"]
        first.settimeout(1)
        with pytest.raises(TimeoutError):  # the job is done, and it is not the turn of its result
            first.recv(1)
        first.settimeout(30)
        unread.close()
        assert {client.recv(15) for client in (first, second)} == {b"HTTP/1.1 200 OK"}


def test_a_connection_without_a_whole_header_is_ended(server, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_S", 1.0)
    port, _ = server()
    with connections(port, 4) as (silent, half, slow, second):
        half.sendall(b"GET /health HTTP/1.1\r\nHost: ")
        second.sendall(request_of("/health"))  # one whole, and then half a header
        assert second.recv(12) == b"HTTP/1.1 200"
        second.sendall(b"GET /health HT")
        with contextlib.suppress(ConnectionError):
            for sign in b"GET /health HTTP/1.1\r\nX-Long: " + b"x" * 200:
                slow.sendall(bytes([sign]))
                time.sleep(0.02)
            pytest.fail("a header that arrives sign by sign was waited for")
        assert ended(silent) == ended(half) == b""
        ended(second)


def test_a_connection_too_many_is_answered_with_503_and_many_more_are_dropped(server):
    port, others = server(most=16)
    with connections(port, 4) as clients:  # a quarter from one address
        until(lambda: others.by_address.total() == 4)
        status, body, _ = get(port, "/health")
        assert (status, b"as many connections as it can serve" in body) == (503, True)
        with connections(port, 1):
            until(lambda: others.by_address.total() == 5)
            with connections(port, 1) as (dropped,):
                assert ended(dropped) == b""
        clients[0].sendall(request_of("/health"))  # those that are open are served
        assert clients[0].recv(12) == b"HTTP/1.1 200"
    until(lambda: not others.by_address)
    assert get(port, "/health")[0] == 200


def test_a_trusted_proxy_may_have_all_connections(server):
    port, others = server(most=16, trusted_proxies="127.0.0.0/8")
    with connections(port, 15):
        until(lambda: others.by_address.total() == 15)
        assert get(port, "/health")[0] == 200
        with connections(port, 1):
            until(lambda: others.by_address.total() == 16)
            assert get(port, "/health")[0] == 503
