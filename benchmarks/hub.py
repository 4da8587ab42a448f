"""How does a hub hold out when 200 people ask at once, and what does all its care cost beside a bare endpoint?

A hub in one folder (SQLite, two web processes, two workers), a table of visits, 200 researchers with a token each. Each
hands a question in, waits for its answer, and asks the next: policy, plan, audit log, queue, ledger, sealed rows,
noise, receipt. Beside it, in the same run and by the same 200 clients, a bare FastAPI endpoint that runs the same SQL
on the same rows in DuckDB: no accounts, no policy, no ledger, no noise.

    python benchmarks/hub.py            # 60 seconds each
    python benchmarks/hub.py 10         # 10 seconds each
"""

import asyncio
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from report import write

from cloister.data.hospital import SCHEMA, hospital
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation, Person
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import datasets, ingest, upload
from cloister.hub.policy.text.yaml_page import to_yaml
from cloister.hub.users import tokens
from cloister.privacy.ledger import verify

PEOPLE, ROWS = 200, 20_000
POLICY = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {rho: 1000}}
joins: any
roles:
  researchers:
    who: {roles: [data user]}
    may: [see schema, query]
"""
WARDS = ("cardiology", "surgery", "neurology", "emergency", "geriatrics", "maternity")
BARE = """
import os, threading
import duckdb, pyarrow.parquet as pq
from fastapi import FastAPI, Body
app, local = FastAPI(), threading.local()
table = pq.read_table(os.environ["BENCH_TABLE"])

@app.post("/query")
def query(sql: str = Body(embed=True)) -> list:
    if not hasattr(local, "db"):
        local.db = duckdb.connect()
        local.db.register("visits", table)
    return local.db.execute(sql).fetchall()
"""


@dataclass
class Tally:
    """What 200 clients saw."""

    seconds: list[float] = field(default_factory=list)
    problems: Counter[str] = field(default_factory=Counter)
    span: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.span

    def quantile(self, share: float) -> float:
        return statistics.quantiles(self.seconds, n=100)[round(share * 100) - 1] * 1000


class Browser:
    """A keep-alive connection, as lean as it gets: the clients share two cores with what is measured."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port = port
        self.head = f"Host: 127.0.0.1:{port}\r\nAccept: application/json\r\n"
        self.head += f"Authorization: Bearer {token}\r\n" if token else ""
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        content = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if content else ""
        writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}{kind}Content-Length: {len(content)}\r\n\r\n".encode())
        writer.write(content)
        status = int((await reader.readline()).split()[1])
        length = 0
        while line := (await reader.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await reader.readexactly(length)

    async def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()


def question(who: int, turn: int) -> str:
    """Another one nearly every time; now and then one that was asked before."""
    age = (who * 7 + turn * 13) % 90
    ward = WARDS[(who + turn) % len(WARDS)]
    cost = (who * 131 + turn * 17) % 5000
    return (
        "SELECT COUNT(*) AS visits, AVG(stay_days) AS stay FROM visits "
        f"WHERE ward = '{ward}' AND age >= {age} AND cost >= {cost}"
    )


async def ask_hub(browser: Browser, who: int, turn: int) -> str:
    form = {"sql": question(who, turn), "spend": "rho 0.001"}
    asked = {"kind": "query", "form": form, "purpose": "health-research"}
    status, body = await browser.send("POST", "/api/datasets/visits/jobs", asked)
    if status != 202:
        return f"{status} on asking: {body[:200].decode()}"
    number = json.loads(body)["id"]
    for _ in range(10):
        status, body = await browser.send("GET", f"/api/jobs/{number}?wait=30")
        facts = json.loads(body)
        if status != 200:
            return f"{status} on waiting"
        if facts["state"] == "done":
            return ""
        if facts["state"] not in ("queued", "running", "charged"):
            return f"{facts['state']}: {facts['problem']}"
    return "no answer"


async def ask_bare(browser: Browser, who: int, turn: int) -> str:
    status, _ = await browser.send("POST", "/query", {"sql": question(who, turn)})
    return "" if status == 200 else str(status)


async def together(port: int, secrets: list[str], ask: object, seconds: float) -> Tally:
    """Everybody asks, again and again, until the time is over; the last answers are waited for."""
    tally, start = Tally(), time.monotonic()

    async def somebody(who: int, secret: str) -> None:
        browser, turn = Browser(port, secret), 0
        await asyncio.sleep(who / PEOPLE)
        while time.monotonic() - start < seconds:
            began = time.monotonic()
            problem = await ask(browser, who, turn)  # type: ignore[operator]
            if problem:
                tally.problems[problem] += 1
            else:
                tally.seconds.append(time.monotonic() - began)
            turn += 1
        await browser.close()

    await asyncio.gather(*(somebody(who, secret) for who, secret in enumerate(secrets)))
    tally.span = time.monotonic() - start
    return tally


def make_hub(folder: Path, port: int) -> tuple[Settings, list[str], Path]:
    """A hub with a table and 200 people; their tokens; the table as a plain file for the bare endpoint."""
    settings = Settings(folder=folder, port=port, address=f"http://127.0.0.1:{port}", log_level="warning")
    rows = pa.table(hospital())
    rows = pa.concat_tables([rows] * (ROWS // rows.num_rows + 1)).slice(0, ROWS)
    plain = folder.parent / "visits.parquet"
    pq.write_table(rows, plain)
    with Hub.create(settings) as hub:
        with hub.database.writing() as session:
            home = Organisation(name="University")
            session.add(home)
            owner = Person(email="owner@example.org", name="Owner", roles=["data owner"], organisation=home)
            people = [
                Person(email=f"p{i}@example.org", name=f"P {i}", roles=["data user"], organisation=home)
                for i in range(PEOPLE)
            ]
            session.add_all([owner, *people])
            session.flush()
            secrets = [tokens.make(session, one, "bench", ["read", "work"], 1) for one in people]
            dataset = datasets.create(
                hub, session, owner, name="visits", title="Visits", about="", policy_text=POLICY,
                schema_text=to_yaml(SCHEMA),
            )  # fmt: skip
        content = io.BytesIO()
        pq.write_table(rows, content)
        body = content.getvalue()
        with hub.database.writing() as session:
            begun = upload.begin(hub, session, owner, dataset, table="visits", file="visits.parquet", size=len(body))
        upload.receive(hub, owner, begun.id, 0, body)
        with hub.database.writing() as session:
            version = datasets.new_version(hub, session, owner, dataset, uploads={"visits": begun.id})
        state = ingest.prepare(hub, version.id)
        assert state == "ready", state
    return settings, secrets, plain


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_up(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(3)  # workers too
                return
        time.sleep(0.1)
    raise TimeoutError("the server did not start")


def run(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="cloister-bench-") as name:
        folder = Path(name)
        port, bare_port = free_port(), free_port()
        settings, secrets, plain = make_hub(folder / "hub", port)
        environment = {**os.environ, "CLOISTER_FOLDER": str(settings.folder), "CLOISTER_PORT": str(port)}
        environment |= {"CLOISTER_ADDRESS": settings.address, "CLOISTER_LOG_LEVEL": "warning"}
        command = [sys.executable, "-c", "from cloister.cli import main; main(['hub', 'serve'])"]
        served = subprocess.Popen(command, env=environment)
        try:
            until_up(port)
            hub_tally = asyncio.run(together(port, secrets, ask_hub, seconds))
        finally:
            served.terminate()
            served.wait(60)
        (folder / "bare.py").write_text(BARE)
        command = [sys.executable, "-m", "uvicorn", "bare:app", "--port", str(bare_port), "--workers", "2"]
        command += ["--log-level", "warning", "--no-access-log"]
        served = subprocess.Popen(command, env={**os.environ, "BENCH_TABLE": str(plain)}, cwd=folder)
        try:
            until_up(bare_port)
            bare_tally = asyncio.run(together(bare_port, [""] * PEOPLE, ask_bare, min(seconds, 20)))
        finally:
            served.terminate()
            served.wait(60)
        report(hub_tally, bare_tally, settings)


def report(hub_tally: Tally, bare_tally: Tally, settings: Settings) -> None:
    with Hub.open(settings) as hub:
        balance = hub.ledger.balance("visits")
        verify(settings.folder / "ledger.db", hub.key.public, head=hub.ledger.head)
        own = sum(
            (one.spent.amount for one in hub.ledger.accounts() if one.rules.analyst), start=balance.spent.amount * 0
        )
    rows = [
        [name, len(one.seconds), f"{one.rate:.0f}", f"{one.quantile(0.5):,.0f}", f"{one.quantile(0.95):,.0f}"]
        for name, one in (("Cloister hub", hub_tally), ("bare FastAPI and DuckDB", bare_tally))
    ]
    errors = sum(hub_tally.problems.values())
    within = balance.spent.amount <= balance.rules.cap.amount
    for problem, times in hub_tally.problems.most_common(5):
        print(f"{times} times: {problem}")
    write(
        "hub",
        {
            "title": "The hub under load",
            "question": (
                f"{PEOPLE} people ask at once for {hub_tally.span:.0f} seconds, each the next question as soon as the "
                f"last is answered; {ROWS:,} rows; two web processes and two workers on two cores, which the clients "
                "share."
            ),
            "tables": [
                {
                    "caption": "From asking to the whole answer",
                    "columns": ["", "answers", "answers a second", "median ms", "95 % within ms"],
                    "rows": rows,
                }
            ],
            "bars": [
                {
                    "bar": f"{PEOPLE} people at once for 60 s: no error",
                    "measured": f"{errors} errors in {len(hub_tally.seconds) + errors:,} questions",
                    "met": errors == 0 and hub_tally.span >= 60,
                },
                {
                    "bar": "no overspend, and the ledger holds",
                    "measured": f"{float(balance.spent.amount):.3f} of {float(balance.rules.cap.amount):g} spent; "
                    "every hash, signature and total recomputed",
                    "met": within,
                },
            ],
            "notes": [
                "Every answer went through policy, plan, audit log, queue, two ledger entries brought to the disk, "
                "sealed rows, exact noise and a signed receipt; the bare endpoint has none of these.",
                f"The people's own accounts paid rho {float(own):.3f} together: answers that others had paid for "
                "before debit the person who receives them for the first time.",
            ],
        },
    )


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
