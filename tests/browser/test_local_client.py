"""The local client in a Chromium: the vectors' reports from the vectors' bytes, and only reports leave the page."""

import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cloister import local

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "src" / "cloister" / "local" / "client"
VECTORS = json.loads((ROOT / "tests" / "vectors" / "local.json").read_text(encoding="utf-8"))
PAGE = b"<!doctype html><title>client</title>"

REPORTS = """async (groups) => {
  const { open, ScriptedSource } = await import("/index.mjs");
  const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => Number.parseInt(two, 16));
  const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
  return groups.map((group) => {
    const mechanism = open(group.mechanism);
    return group.cases.map((one) => hex(mechanism.perturb(one.value, new ScriptedSource(unhex(one.random)))));
  });
}"""
ENVELOPES = """async (cases) => {
  const { answer, ScriptedSource } = await import("/index.mjs");
  const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (two) => Number.parseInt(two, 16));
  return cases.map((one) => answer(one.question, one.level, one.value, new ScriptedSource(unhex(one.random))));
}"""
REFUSALS = """async (cases) => {
  const { open, Refusal } = await import("/index.mjs");
  return cases.map((one) => {
    try {
      open(one.mechanism).perturb(one.value);
      return "";
    } catch (error) {
      return error instanceof Refusal ? error.message : `not a refusal: ${error}`;
    }
  });
}"""
SEND = """async ({ question, level, values }) => {
  Math.random = () => { throw new Error("Math.random was called"); };
  const { answer } = await import("/index.mjs");
  for (const value of values) {
    await fetch("/reports", { method: "POST", body: answer(question, level, value) });
  }
}"""
ANSWERS = """async ({ question, level, values }) => {
  const { answer } = await import("/index.mjs");
  return values.map((value) => answer(question, level, value));
}"""
WITHOUT = """async (question) => {
  Object.defineProperty(globalThis, "crypto", { value: undefined });
  const { answer } = await import("/index.mjs");
  try {
    return answer(question, "1", 1);
  } catch (error) {
    return error.message;
  }
}"""


class Handler(SimpleHTTPRequestHandler):
    """The client's files, an empty page, and a place to send reports to."""

    received: list[bytes] = []  # noqa: RUF012  # one server a test file

    def do_GET(self):
        if self.path == "/":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)
        else:
            super().do_GET()

    def do_POST(self):
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=CLIENT)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser, address):
    context = browser.new_context()
    opened = context.new_page()
    opened.goto(f"{address}/")
    yield opened
    context.close()


def test_chromium_makes_the_reports_of_the_vectors_from_the_same_bytes(page):
    assert page.evaluate(REPORTS, VECTORS["reports"]) == [
        [case["report"] for case in group["cases"]] for group in VECTORS["reports"]
    ]


def test_chromium_seals_the_envelopes_of_the_vectors(page):
    assert page.evaluate(ENVELOPES, VECTORS["envelopes"]) == [case["envelope"] for case in VECTORS["envelopes"]]


def test_chromium_refuses_what_the_vectors_refuse(page):
    for case, sentence in zip(VECTORS["refused"], page.evaluate(REFUSALS, VECTORS["refused"]), strict=True):
        assert sentence.endswith("."), case["why"]
        assert "not a refusal" not in sentence


def test_answers_leave_the_page_as_reports_that_a_collection_counts_and_as_nothing_else(page, address):
    question = local.Question("smoker", [local.RandomisedResponse.for_loss(local.epsilon(1))], ["no", "yes"])
    Handler.received.clear()
    asked = []
    page.on("request", lambda request: asked.append((request.method, request.url.removeprefix(address))))
    page.evaluate(SEND, {"question": question.describe(), "level": "1", "values": [1] * 200})
    sent = [one for one in asked if one[0] != "GET"]
    assert sent == [("POST", "/reports")] * 200
    assert {path for method, path in asked if method == "GET"} <= {f"/{file.name}" for file in CLIENT.glob("*.mjs")}
    collection = local.Collection([question]).collect(Handler.received)
    assert (collection.n, collection.refused.total()) == (200, 0)
    told = {json.loads(one)["report"] for one in Handler.received}
    assert told == {"AA", "AQ"}  # everybody said yes, and the wire holds both


def test_every_mechanism_answers_in_chromium_with_its_own_randomness(page):
    for group in VECTORS["reports"]:
        question = local.Question("any", [local.from_description(group["mechanism"])])
        told = {"question": question.describe(), "level": question.offered[0], "values": []}
        told["values"] = [case["value"] for case in group["cases"]][::6]
        sent = page.evaluate(ANSWERS, told)
        collection = local.Collection([question]).collect(sent)
        assert (collection.n, collection.refused.total()) == (len(sent), 0), group["label"]
        assert all(json.loads(one)["private"] for one in sent)


def test_without_secret_randomness_nothing_is_made(page):
    question = local.Question("smoker", [local.RandomisedResponse.for_loss(local.epsilon(1))], ["no", "yes"])
    assert "no secret randomness" in page.evaluate(WITHOUT, question.describe())
