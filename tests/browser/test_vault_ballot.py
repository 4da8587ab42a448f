"""A ballot in a Chromium: hidden, signed unseen, unveiled, and good for a hub that never saw it before."""

import base64
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cloister.vault import BlindKey, admit, key_fingerprint

CLIENT = Path(__file__).parents[2] / "src" / "cloister" / "local" / "client"
BEGIN = """async ([key, info]) => {
  const { begin } = await import("/ballot.mjs");
  const { blinded, state } = await begin(key, info);
  localStorage.setItem("ballot", JSON.stringify(state));
  return blinded;
}"""
FINISH = """async (signature) => {
  const { finish } = await import("/ballot.mjs");
  return finish(JSON.parse(localStorage.getItem("ballot")), signature);
}"""
INSECURE = """async ([key, info]) => {
  Object.defineProperty(crypto, "subtle", { value: undefined });
  const { begin } = await import("/ballot.mjs");
  return begin(key, info).then(() => "", (error) => error.message);
}"""


class Handler(SimpleHTTPRequestHandler):
    """The client's files, and an empty page."""

    def do_GET(self):
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return self.wfile.write(b"<!doctype html><title>ballot</title>")

    def log_message(self, *_):
        pass


@pytest.fixture
def page(browser):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=CLIENT)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        context = browser.new_context()
        opened = context.new_page()
        opened.goto(f"http://127.0.0.1:{server.server_port}/")
        yield opened
        context.close()
        server.shutdown()
        thread.join()


def plain(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_chromium_makes_a_ballot_that_outlives_the_page_and_is_admitted(page):
    key = BlindKey.create()
    info = {"survey": "sleep", "wave": "1", "fingerprint": key_fingerprint(key.public())}
    blinded = page.evaluate(BEGIN, [key.public(), info])
    page.reload()
    signed = base64.urlsafe_b64encode(key.sign(plain(blinded))).decode().rstrip("=")
    ballot = page.evaluate(FINISH, signed)
    assert admit(key.public(), plain(ballot["message"]), plain(ballot["signature"]), "sleep", "1")


def test_chromium_without_https_says_so(page):
    key = BlindKey.create().public()
    info = {"survey": "sleep", "wave": "1", "fingerprint": key_fingerprint(key)}
    assert "https" in page.evaluate(INSECURE, [key, info])
