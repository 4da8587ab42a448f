"""kill -9 at every moment of a charge: what was acknowledged stays, what was reserved stays counted."""

import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cloister.privacy.ledger import Entry, Ledger, verify
from cloister.privacy.ledger.store import open_store
from cloister.privacy.loss import epsilon
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.e2e
KEY = SigningKey.create()
TENTH = epsilon("0.1")


def spend(ledger: Ledger, say: int, first: int = 0, rounds: int = 1_000_000) -> None:
    """Reserve, then commit or, every other time, void; tell the parent each step that the ledger acknowledged."""
    account = ledger.account("visits")
    for number in range(first, first + rounds):
        charge = account.reserve(TENTH, "request")
        os.write(say, f"reserve {charge.entry.number}\n".encode())
        if number % 2:
            os.write(say, f"void {charge.void().settles}\n".encode())
        else:
            charge.look()
            os.write(say, f"commit {charge.commit().settles}\n".encode())


def kill_at_step(step: int) -> None:
    """From now on count calls of functions, Python's and C's, and die without warning at the given one."""
    left = [step]

    def count(_frame: object, event: str, _argument: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def acknowledged_by_child(child: Any, words: int | None = None, wait_s: float = 0) -> list[tuple[str, int]]:
    """Fork, wait until the child has said some words and a moment more, kill it; return all it said.

    Without a number of words the child is left to kill itself.
    """
    listen, say = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            child(say)
        finally:
            os._exit(7)
    os.close(say)
    with os.fdopen(listen) as told:
        lines = [told.readline() for _ in range(words or 0)]
        if words is not None:
            time.sleep(wait_s)
            os.kill(process, signal.SIGKILL)
        lines += told.read().splitlines()
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) in (-signal.SIGKILL, 7)
    return [(verb, int(number)) for verb, number in map(str.split, lines)]


def entries(path: Path) -> list[Entry]:
    store = open_store(path, "read")
    with store.reading() as tables:
        found = [Entry.parse(*row) for page in tables.pages() for row in page]
    store.close()
    return found


def audit(path: Path, ledger: Ledger, acknowledged: list[tuple[str, int]]) -> Counter[str]:
    """Nothing acknowledged is lost, nothing reserved is free; how often each kind of entry is there."""
    written = entries(path)
    reserved = {entry.number for entry in written if entry.kind == "reserve"}
    settled = {(entry.kind, entry.settles) for entry in written if entry.settles}
    for verb, number in acknowledged:
        assert number in reserved if verb == "reserve" else (verb, number) in settled
    kinds = Counter(entry.kind for entry in written)
    assert ledger.account("visits").spent == TENTH * (kinds["reserve"] - kinds["void"])
    assert verify(path, KEY.public).ok
    return kinds


@pytest.mark.parametrize("kills", [60, 250])
def test_random_kills_lose_no_committed_charge_and_free_no_reserved_one(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    moments = random.Random(20)
    with Ledger.create(path, key=KEY, head=tmp_path / "head") as ledger:
        ledger.open_account("visits", epsilon(1_000_000))
        acknowledged: list[tuple[str, int]] = []
        for _ in range(kills):
            words, wait_s, first = moments.randrange(5), moments.uniform(0, 0.004), moments.randrange(2)
            acknowledged += acknowledged_by_child(lambda say, first=first: spend(ledger, say, first), words, wait_s)
        kinds = audit(path, ledger, acknowledged)
        told = Counter(verb for verb, _ in acknowledged)
        # The kills did hit charges on their way, and there were charges to hit.
        assert kinds["reserve"] > kinds["commit"] + kinds["void"]
        assert told["commit"] > kills / 5
        assert told["void"] > kills / 5
        spend(ledger, os.open(os.devnull, os.O_WRONLY), rounds=3)
        assert verify(path, KEY.public, ledger.head).ok


def test_a_kill_at_each_step_of_a_charge_leaves_a_ledger_that_holds_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.create(path, key=KEY, head=tmp_path / "head") as ledger:
        ledger.open_account("visits", epsilon(1_000_000))
        steps: list[int] = []
        # Opening it anew takes at least as many steps as a child does, which must open a connection of its own.
        sys.setprofile(lambda *_: steps.append(1))
        with Ledger.open(path, key=KEY, head=tmp_path / "head") as fresh:
            spend(fresh, os.open(os.devnull, os.O_WRONLY), rounds=1)
        sys.setprofile(None)
        acknowledged: list[tuple[str, int]] = []

        def child(step: int, say: int) -> None:
            kill_at_step(step)
            spend(ledger, say, rounds=1)

        for step in range(1, len(steps) + 100, max(1, len(steps) // 120)):
            _ = ledger.head  # the child inherits what was read so far, and has as many steps as the one counted
            acknowledged += acknowledged_by_child(lambda say, step=step: child(step, say))
        kinds = audit(path, ledger, acknowledged)
        assert kinds["commit"] > 1  # the last steps come after the commit
        assert kinds["reserve"] - kinds["commit"] > 20  # and many came before it
        spend(ledger, os.open(os.devnull, os.O_WRONLY), rounds=3)
        assert verify(path, KEY.public, ledger.head).ok
