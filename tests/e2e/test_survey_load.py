"""20,000 people answer a survey through HTTP, the server is killed among them, and none is lost."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest
import sqlalchemy as sa

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation, Person, Submission
from cloister.hub.core.settings import Settings
from cloister.hub.surveys import results
from cloister.hub.surveys import survey as surveys
from cloister.hub.surveys.device import submissions
from cloister.hub.surveys.intake import read

pytestmark = pytest.mark.e2e

PEOPLE, BAD, LINES, MOST_S = 20_000, 200, 48, 120
ASKED = [
    {"id": "smoker", "type": "yes_no", "text": "Do you smoke?"},
    {"id": "where", "type": "choice", "text": "Where do you live?", "options": ["town", "suburb", "village", "farm"]},
    {"id": "hours", "type": "number", "text": "How long do you sleep?", "low": 0, "high": 24, "unit": "hours"},
]
SHARES = {"town": 0.4, "suburb": 0.3, "village": 0.2, "farm": 0.1}
FACTS = {"title": "Sleep", "purpose": "To learn.", "consent": "Freely.", "target": PEOPLE, "asked": ASKED}


def crowd(seed=7):
    """True answers and levels that do not depend on them."""
    draw = random.Random(seed)  # answers, not noise
    people = []
    for _ in range(PEOPLE):
        level = lambda: draw.choice(["strong", "medium", "light"])  # noqa: E731
        answers = {
            "smoker": ("yes" if draw.random() < 0.3 else "no", level()),
            "where": (draw.choices(list(SHARES), SHARES.values())[0], level()),
            "hours": (f"{min(24, max(0, draw.gauss(7, 1.5))):.2f}", level()),
        }
        people.append({name: said for name, said in answers.items() if draw.random() < 0.95})
    return [one if one else {"smoker": ("no", "light")} for one in people]


@pytest.fixture
def served(tmp_path):
    """A hub with an open survey, and how to start it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(folder=tmp_path / "hub", port=port, address=f"http://127.0.0.1:{port}")
    hub = Hub.create(settings)
    with hub.database.writing() as session:
        place = Organisation(name="University", country="AT")
        owner = Person(email="ada@uni.example", name="Ada", roles=["data user"], organisation=place)
        session.add_all([place, owner])
        session.flush()
        made = surveys.create(hub, session, owner, "sleep", FACTS)
        surveys.publish(hub, session, made)
    said = {"FOLDER": settings.folder, "PORT": port, "WEB_PROCESSES": 2, "WORKER_PROCESSES": 0}
    said |= {"ADDRESS": settings.address, "ANSWERS_PER_MINUTE": 10**7}
    environment = {**os.environ, **{f"CLOISTER_{name}": str(value) for name, value in said.items()}}
    running = []

    def start():
        line = [sys.executable, "-c", "from cloister.cli import main; main()", "hub", "serve"]
        with (tmp_path / "log").open("ab") as log:
            running.append(subprocess.Popen(line, env=environment, stdout=log, stderr=log))
        return running[-1]

    yield hub, port, start
    for process in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(40)
    hub.close()


class Devices:
    """So many phones at once, each sending until it is answered."""

    def __init__(self, port, sent):
        self.port, self.left = port, list(reversed(sent))
        self.answers, self.broken, self.acknowledged = Counter(), 0, 0

    async def run(self):
        await asyncio.gather(*(self.line() for _ in range(LINES)))

    async def line(self):
        reader = writer = None
        while self.left:
            raw = self.left.pop()
            head = f"POST /s/sleep/answers HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n\r\n"
            while True:
                try:
                    if writer is None:
                        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.write(head.encode() + raw)
                    code = await answer_code(reader)
                except (OSError, asyncio.IncompleteReadError, ValueError):
                    self.broken += 1
                    if writer is not None:
                        writer.close()
                    writer = None
                    await asyncio.sleep(0.1)
                    continue
                if code not in (500, 503):
                    break
                await asyncio.sleep(0.1)
            self.answers[code] += 1
            self.acknowledged += code == 200
        if writer is not None:
            writer.close()


async def answer_code(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    await reader.readexactly(int(length.split(b":")[1]))
    return int(head.split(b" ", 2)[1])


def children(pid):
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(one) for one in listed.split()]


def kill_all(process):
    """The whole hub, at once and without a word."""
    for pid in (*children(process.pid), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


@pytest.mark.soak
def test_twenty_thousand_people_answer_while_the_server_is_killed_and_none_is_lost(served):
    hub, port, start = served
    people = crowd()
    with hub.database.reading() as session:
        survey = surveys.find(session, "sleep")
    sent = submissions(surveys.public(survey), people)
    bad = [raw.replace(b"sleep.", b"sheep.") for raw in sent[:BAD]]
    mixed = [*sent, *bad]
    random.Random(3).shuffle(mixed)
    devices = Devices(port, mixed)

    async def load():
        process = start()
        running = asyncio.ensure_future(devices.run())
        while devices.acknowledged < PEOPLE // 3:
            assert not running.done(), devices.answers
            await asyncio.sleep(0.05)
        kill_all(process)
        before = devices.acknowledged
        await asyncio.sleep(0.5)
        start()
        await running
        return before

    begun = time.monotonic()
    before = asyncio.run(load())
    took = time.monotonic() - begun
    print(f"{PEOPLE:,} answers in {took:.1f} s; {devices.broken} lines broken by the kill after {before:,}")
    assert devices.answers == {200: PEOPLE, 422: BAD}
    assert took <= MOST_S
    assert devices.broken > 0

    with hub.database.reading() as session:
        kept = session.scalar(sa.select(sa.func.count()).select_from(Submission))
        counted, refused = surveys.sizes(session, survey)
        found = results.read(hub, session, survey)
    assert kept == counted == PEOPLE
    # Those whose acknowledgement was lost with the server sent again, and are counted once; a refusal may be, twice.
    assert BAD <= refused["wrong question"] <= BAD + LINES

    for one in ASKED:
        finding = found.about(one["id"]).finding
        said = [answers[one["id"]][0] for answers in people if one["id"] in answers]
        assert finding.raw.n == len(said)
        if one["type"] == "number":
            truths = [sum(float(value) for value in said) / len(said)]
        else:
            truths = [said.count(name) / len(said) for name in finding.question.names]
        for row, truth in zip(finding.rows(), truths, strict=True):
            # 4.9 standard errors: once in a million runs, for a test that draws real noise.
            assert abs(row["raw"] - truth) < 4.9 * row["standard error"]


def test_what_was_acknowledged_is_on_disk(served):
    hub, port, start = served
    with hub.database.reading() as session:
        survey = surveys.find(session, "sleep")
    sent = submissions(surveys.public(survey), crowd()[:400])
    acknowledged = []

    async def load():
        process = start()
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        for number, raw in enumerate(sent):
            if number == 150:
                kill_all(process)
            try:
                head = f"POST /s/sleep/answers HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n\r\n"
                writer.write(head.encode() + raw)
                if await answer_code(reader) == 200:
                    acknowledged.append(raw)
            except (OSError, asyncio.IncompleteReadError):
                break
        writer.close()

    asyncio.run(load())
    assert len(acknowledged) == 150
    with hub.database.reading() as session:
        kept = {row.reports for row in session.scalars(sa.select(Submission))}
    assert {read(survey, raw).reports for raw in acknowledged} <= kept
    assert json.loads(min(kept))
