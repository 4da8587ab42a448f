"""How many charges a second does the ledger take, each signed and on the disk, and how long does an audit take?"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from report import write

from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import rho
from cloister.privacy.signing import SigningKey

ONE_BY_ONE, BATCH, BATCHES, ROUNDS = 200, 1_000, 10, 5
SPEND = rho("0.001")
BARS = {"one by one": 300, "batched": 2_000}


def per_second(count: int, work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The best of several rounds: what the disk can do while nobody else waits for it."""
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - start))
    return max(rates)


def syncs(folder: Path) -> Callable[[], None]:
    """What one by one is made of: small writes, each brought to the disk."""

    def run() -> None:
        with (folder / "syncs").open("wb", buffering=0) as file:
            for _ in range(ONE_BY_ONE):
                file.write(bytes(1_000))
                os.fsync(file.fileno())

    return run


def run() -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        folder, key = Path(name), SigningKey.create()
        with Ledger.create(folder / "ledger", key=key, head=folder / "head") as ledger:
            account = ledger.open_account("visits", rho(1_000_000))

            def one_by_one() -> None:
                for _ in range(ONE_BY_ONE):
                    charge = account.reserve(SPEND, "request")
                    charge.look()
                    charge.commit()

            def batched() -> None:
                for _ in range(BATCHES):
                    account.charge_all([SPEND] * BATCH, "request")

            rates = {
                "one by one": per_second(ONE_BY_ONE, one_by_one),
                "batched": per_second(BATCH * BATCHES, batched),
            }
            sync = per_second(ONE_BY_ONE, syncs(folder))
            entries = ledger.head.number
            audit = per_second(entries, lambda: verify(folder / "ledger", key.public, ledger.head).require_ok(), 2)
    rows = [[name, f"{rate:,.0f}", f"{BARS[name]:,}"] for name, rate in rates.items()]
    return {
        "title": "The ledger",
        "question": "How many committed charges a second, each signed and on the disk?",
        "tables": [
            {
                "caption": "Committed charges a second, SQLite (write-ahead log, full synchronisation).",
                "columns": ["charges", "a second", "asked"],
                "rows": [*rows, [f"audit of {entries:,} entries", f"{audit:,.0f}", ""]],
            }
        ],
        "bars": [
            {"bar": f"{name}: at least {BARS[name]:,} a second", "measured": f"{rate:,.0f}", "met": rate >= BARS[name]}
            for name, rate in rates.items()
        ],
        "notes": [
            f"Best of {ROUNDS} rounds. One by one is a reserve and a commit, each signed, brought to the disk and "
            f"followed by its head in a file of its own: four synchronisations. Plain ones: "
            f"{sync:,.0f} a second on this disk.",
            f"Batched is one transaction of {BATCH:,} charges. An audit recomputes hashes, signatures and totals.",
        ],
    }


if __name__ == "__main__":
    write("ledger", run())
