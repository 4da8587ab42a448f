"""What the client does when the network, or the other side, misbehaves. The other side is a real server on a socket."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cloister.client import Client
from cloister.client.client import RemoteJob
from cloister.client.transport import Transport, error_of, send_file
from cloister.privacy.errors import (
    BadForm,
    BadName,
    CloisterError,
    NotNow,
    OverBudget,
    SignInFailed,
    TooMany,
    Unavailable,
    UploadRefused,
    catalogue,
)


class Handler(BaseHTTPRequestHandler):
    """Does whatever the test wrote into `server.act`, and keeps a list of what it was asked."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, body, self.client_address[1], dict(self.headers)))
        status, content, *rest = self.server.act(self, body)
        if status is None:
            self.close_connection = True  # hangs up without a word
            return
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        for name, value in rest[0].items() if rest else ():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_PUT = answer  # noqa: N815

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.daemon_threads = True
    made.asked, made.act = [], lambda *_: (200, {})
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def transport(server):
    made = Transport(f"http://127.0.0.1:{server.server_port}", "clo_token", timeout_s=5)
    yield made
    made.close()


@pytest.mark.parametrize(
    "address", ["hub.example.org", "ftp://x", "http://", "http://hub.example.org", "http://10.0.0.1", "https://x?y=1"]
)
def test_a_token_is_sent_only_over_tls_or_to_this_machine(address):
    with pytest.raises(BadName):
        Client(address, "clo_x")


@pytest.mark.parametrize(
    "address", ["https://hub.example.org/", "http://localhost:1", "http://127.0.0.1", "http://[::1]"]
)
def test_these_addresses_will_do(address):
    Client(address, "clo_x").close()


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ü"])
def test_what_is_no_token_is_refused_before_anything_is_sent(token):
    with pytest.raises(SignInFailed):
        Client("https://hub.example.org", token)


def test_the_token_is_not_shown():
    assert "clo_secret" not in repr(Client("https://hub.example.org", "clo_secret"))


def test_the_token_travels_in_its_header_alone(server, transport):
    transport.json("GET", "/api/me")
    (_, path, body, _, headers) = server.asked[0]
    assert headers["Authorization"] == "Bearer clo_token"
    assert "clo_token" not in path
    assert b"clo_token" not in body


def test_questions_that_change_nothing_share_a_connection(server, transport):
    for _ in range(3):
        transport.json("GET", "/api/me")
    assert len({one[3] for one in server.asked}) == 1


def test_a_connection_that_went_stale_is_replaced(server, transport):
    transport.json("GET", "/api/me")
    server.act = lambda handler, _: (None, None) if len(server.asked) == 2 else (200, {"again": True})
    assert transport.json("GET", "/api/me") == {"again": True}
    assert len(server.asked) == 3


def test_what_may_cost_something_is_never_sent_twice(server, transport):
    transport.json("GET", "/api/me")
    server.act = lambda *_: (None, None)
    with pytest.raises(Unavailable):
        transport.json("POST", "/api/datasets/visits/jobs", {})
    assert [one[0] for one in server.asked] == ["GET", "POST"]


def test_nobody_there_is_said_in_a_sentence():
    with pytest.raises(Unavailable, match="cannot be reached"):
        Transport("http://127.0.0.1:9", "clo_x", timeout_s=2).json("GET", "/api/me")


@pytest.mark.parametrize("kind", list(catalogue()), ids=lambda kind: kind.code)
def test_every_error_of_the_catalogue_comes_back_as_its_class(kind):
    error = error_of(kind.code, "a sentence.", "")
    assert type(error) is kind
    assert str(error) == f"{kind.code}: a sentence."


def test_an_error_of_a_newer_hub_is_still_an_error():
    error = error_of("CLO-999", "something new.", "Do this.")
    assert type(error) is CloisterError
    assert str(error) == "CLO-999: something new. Do this."


def test_a_refusal_is_raised_by_its_code(server, transport):
    server.act = lambda *_: (409, {"code": "CLO-204", "message": "too much.", "way_out": "Less."})
    with pytest.raises(OverBudget, match="too much"):
        transport.json("GET", "/x")


def test_how_long_to_wait_is_kept_on_the_error(server, transport):
    server.act = lambda *_: (429, {"code": "CLO-504", "message": "m", "way_out": ""}, {"Retry-After": "7"})
    with pytest.raises(TooMany) as caught:
        transport.json("GET", "/x")
    assert caught.value.wait_s == 7


DEEP = b"[" * 10**5 + b"]" * 10**5


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"{}", b"", b'{"code": 1}', DEEP])
def test_an_answer_that_is_no_refusal_of_ours_is_unavailable(server, transport, content):
    server.act = lambda *_: (502, content)
    with pytest.raises(Unavailable, match="502"):
        transport.json("GET", "/x")


def test_a_redirect_is_not_followed_since_it_would_carry_the_token_elsewhere(server, transport):
    server.act = lambda *_: (307, b"", {"Location": "http://127.0.0.1:1/elsewhere"})
    with pytest.raises(Unavailable):
        transport.json("GET", "/x")
    assert len(server.asked) == 1


@pytest.mark.parametrize("content", [b"<html>", DEEP])
def test_an_answer_that_is_no_json_is_said(server, transport, content):
    server.act = lambda *_: (200, content)
    with pytest.raises(BadForm):
        transport.json("GET", "/x")


# Uploads


class Store:
    """The server's side of an upload, as the hub keeps it."""

    def __init__(self, fail=()):
        self.content, self.fail, self.puts = b"", set(fail), 0

    def __call__(self, handler, body):
        if handler.command == "POST":
            return 201, {"id": "u1", "received": 0}
        if handler.command == "GET":
            return 200, {"id": "u1", "received": len(self.content)}
        self.puts += 1
        offset = int(handler.path.partition("offset=")[2])
        if offset != len(self.content):
            return 409, {"code": "CLO-507", "message": "it goes on elsewhere.", "way_out": ""}
        if (self.puts, "before") in self.fail:
            return None, None
        self.content += body
        if (self.puts, "after") in self.fail:  # taken, but the answer is lost
            return None, None
        return 200, {"received": len(self.content)}


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr("cloister.client.transport._CHUNK", 1000)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "visits.csv"
    path.write_bytes(bytes(range(256)) * 20)
    return path


@pytest.mark.parametrize("fail", [(), {(2, "before")}, {(2, "after")}, {(1, "after"), (4, "before"), (5, "before")}])
def test_an_upload_goes_on_where_it_was_when_the_connection_breaks(server, transport, small_pieces, file, fail):
    server.act, seen = Store(fail), []
    assert send_file(transport, "/api/datasets/v/uploads", "visits", file, lambda *step: seen.append(step)) == "u1"
    assert server.act.content == file.read_bytes()
    assert seen[-1] == ("visits", 5120, 5120)
    assert [step[1] for step in seen] == sorted(step[1] for step in seen)


def test_an_upload_that_the_hub_refuses_ends(server, transport, small_pieces, file):
    store = Store()

    def act(handler, body):
        refusal = 413, {"code": "CLO-506", "message": "it is too large.", "way_out": ""}
        return refusal if handler.command == "PUT" else store(handler, body)

    server.act = act
    with pytest.raises(UploadRefused):
        send_file(transport, "/u", "visits", file, None)
    assert sum(one[0] == "PUT" for one in server.asked) == 1


def test_an_upload_that_was_cancelled_on_the_other_side_ends(server, transport, small_pieces, file):
    closed = 409, {"code": "CLO-507", "message": "it is cancelled.", "way_out": ""}
    store = Store()
    server.act = lambda handler, body: closed if handler.command == "PUT" else store(handler, body)
    with pytest.raises(NotNow):
        send_file(transport, "/u", "visits", file, None)


# Jobs


def test_a_job_is_asked_for_until_it_ends(server):
    states = iter(["queued", "running", "charged", "failed"])
    server.act = lambda *_: (200, {"id": 1, "state": next(states), "problem": "CLO-204: too much."})
    with Client(f"http://127.0.0.1:{server.server_port}", "clo_x") as client, pytest.raises(OverBudget) as caught:
        RemoteJob(client, 1, {"state": "queued"}).answer(wait_s=5)
    assert str(caught.value) == "CLO-204: too much."
    assert all("wait=" in one[1] for one in server.asked)


def test_a_failure_without_a_code_is_told_in_its_own_words(server):
    with Client(f"http://127.0.0.1:{server.server_port}", "clo_x") as client, pytest.raises(CloisterError) as caught:
        RemoteJob(client, 1, {"state": "interrupted", "problem": "The worker stopped."}).finished()
    assert str(caught.value) == "The worker stopped."
