"""How much longer does a private answer take than the fastest SQL that computes the same clipped statistic?

Visits in a DuckDB file, from 1e5 to 1e8 rows. Each question goes through the door (parse, plan, charge the ledger on
the disk, run, add exact noise, estimate, receipt) and, in turn with it, as SQL written by hand for raw DuckDB. Other
libraries answer the same questions in environments of their own (benchmarks/peers).

    python benchmarks/query.py              # all of it; the largest file takes 3 GB in build/query, and goes away again
    python benchmarks/query.py 1e5 1e6      # these sizes only
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
from charts import growth
from peers.place import python_of
from report import write
from visits.questions import GROUP_BY_PERSON, MILLION, PRIVATE_JOIN, QUESTIONS, SCHEMAS, database, parquet
from visits.results import PEERS, Found, Times, bars, lines, tables

import cloister.dataset
from cloister.privacy.loss import rho

HERE = Path(__file__).parent
FILES = HERE.parent / "build" / "query"
PICTURE = HERE.parent / "docs" / "pictures" / "query-growth.svg"
ROUNDS = {10**5: 21, 10**6: 11, 10**7: 7, 10**8: 3}
LIMIT_GB = 2
PEER_SIZES = {"opendp": (10**5, 10**6, 10**7), "smartnoise": (10**5, 10**6), "tumult": (10**6,)}


class Asker:
    """A dataset that is asked the same question again and again, and never answers from its record."""

    def __init__(self, path: Path, unit: str, **engine: Any) -> None:
        self.folder = tempfile.mkdtemp(prefix="cloister-bench-")
        self.data = cloister.dataset.open(path, schema=SCHEMAS[unit], budget=rho(10**6), ledger=self.folder, **engine)
        # A released number is used again unless more precision is asked for: each question pays a little more.
        self._spends = (rho(Fraction(number, 10_000)) for number in count(100))

    def __call__(self, sql: str) -> None:
        spend = next(self._spends)
        answer = self.data.sql(sql, spend=spend)
        assert answer.loss.amount == spend.amount, "answered from the record"

    def close(self) -> None:
        self.data.close()
        shutil.rmtree(self.folder)


def in_turn(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Median milliseconds of each call after a warm-up. Called in turn, so that a busy machine is unfair to none."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, each in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            each.append((time.perf_counter() - start) * 1000)
    return [statistics.median(each[1:]) for each in times]


def measure(rows: int) -> dict[str, Times]:
    """Every question at one size."""
    path, rounds = database(FILES, rows), ROUNDS.get(rows, 5)
    raw = duckdb.connect(":memory:")
    raw.execute(f"ATTACH '{path}' AS source (READ_ONLY)")
    raw.execute("USE source")
    found = {}

    def both(name: str, sql: str, other: str, factor: float, plus: float = 25) -> None:
        ours, others = in_turn([lambda: ask(sql), lambda: raw.sql(other).to_arrow_table()], rounds)
        found[name] = Times(ours, others, factor * others + plus)
        print(f"  {name:20} {ours:9.1f} ms, beside {others:9.1f} ms", flush=True)

    for unit in SCHEMAS:
        ask = Asker(path, unit)
        for name, (sql, by_hand) in QUESTIONS.items():
            both(f"{unit} {name}", sql, *((by_hand, 1.3) if unit == "row" else (GROUP_BY_PERSON, 2.5)))
        if unit == "person" and rows <= 10**6:
            both("person private join", PRIVATE_JOIN, GROUP_BY_PERSON, 2.5)
        if 10**6 <= rows <= 10**7:
            both(f"{unit} million", MILLION, MILLION, 0, 3000)
        ask.close()
    raw.close()
    return found


# Memory: in a process of its own, whose peak the system knows.


def memory(rows: int) -> dict[str, Any]:
    asked = [sys.executable, __file__, "--memory", database(FILES, rows)]
    return json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)


def memory_here(path: str) -> None:
    ask = Asker(Path(path), "person", memory_limit=f"{LIMIT_GB}GB")
    start = time.perf_counter()
    ask(QUESTIONS["groups"][0])
    seconds = time.perf_counter() - start
    ask.close()
    print(json.dumps({"limit_gb": LIMIT_GB, "peak_gb": peak_gb(), "seconds": seconds}))


def peak_gb() -> float:
    """The most memory this process has had. Linux knows better than `ru_maxrss`, which begins with the parent's."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    seen = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return (seen[0] if seen else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * 1024 / 1e9


# Peers


def peer(name: str, sizes: list[int]) -> dict[int, dict[str, Any]] | str:
    """Milliseconds a question at each size, or a sentence on what failed."""
    try:
        python = python_of(name)
        return {rows: _peer_answers(name, python, rows) for rows in PEER_SIZES[name] if rows in sizes}
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        return f"{PEERS[name]} could not be run here: {type(error).__name__}."


def _peer_answers(name: str, python: Path, rows: int) -> dict[str, Any]:
    print(f"  {PEERS[name]}, {rows:,} rows", flush=True)
    asked = [python, HERE / "peers" / f"ask_{name}.py", parquet(FILES, rows), "3"]
    out = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=900, env=os.environ)
    return json.loads(out.stdout.splitlines()[-1])


def report(found: Found) -> dict[str, Any]:
    return {
        "title": "Private queries",
        "question": "How much longer does a private answer take than the fastest SQL for the same statistic?",
        "tables": tables(found),
        "bars": bars(found),
        "notes": [
            "![Milliseconds an answer takes, by number of rows](pictures/query-growth.svg)",
            "Medians after a warm-up, ours and the other in turn, on a DuckDB file. Ours is the whole way: parse, "
            "plan, charge the ledger on the disk, run, exact noise, intervals, receipt.",
            "A tenth of a percent of costs lie beyond their bounds. Groups are four wards by eight regions and, since "
            "both may be NULL, 13 empty ones. A median comes from a tree of 4,096 leaves; the SQL by hand counts them.",
            f"DuckDB {duckdb.__version__} with its own settings. Peers: frames in memory, contexts and readers made "
            "beforehand, the median of three answers after a warm-up; versions in `benchmarks/peers`.",
        ],
    }


def main(sizes: list[int]) -> None:
    found = Found()
    for rows in sizes:
        print(f"{rows:,} rows", flush=True)
        found.times[rows] = measure(rows)
        write("query", report(found))  # what is known so far, should a longer one fail
    if 10**8 in sizes:
        found.memory = memory(10**8)
        database(FILES, 10**8).unlink()
    found.peers = {name: peer(name, sizes) for name in PEER_SIZES}
    growth(PICTURE, "Count and sum by two columns: time by number of rows", lines(found))
    write("query", report(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        memory_here(sys.argv[2])
    else:
        main([int(float(size)) for size in sys.argv[1:]] or list(ROUNDS))
