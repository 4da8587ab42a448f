"""The auditor: recompute a whole ledger offline from its entries and the owner's public key.

It checks every hash, every signature, every running total against its cap, and, if a head is given, that the ledger
contains it. Memory does not grow with the ledger, only with accounts and with charges that were never finished.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cloister.privacy.errors import CloisterError, HeadRejected, LedgerBroken, OverBudget
from cloister.privacy.ledger.account import Balance, Rules
from cloister.privacy.ledger.chain import BEFORE_ALL, Entry, Head, Line
from cloister.privacy.ledger.store import open_store
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey

__all__ = ["Report", "verify"]

_PART = 100  # rows that one thread checks at a time


@dataclass(frozen=True, slots=True)
class Report:
    """The result of verifying a ledger.

    Attributes:
        entries: number of valid entries, from the first.
        head: the last valid entry.
        balances: every account after the valid entries.
        bad_entry: the number of the first bad entry, or None.
        reason: the error of that entry.
    """

    entries: int
    head: Head | None
    balances: tuple[Balance, ...]
    bad_entry: int | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Return True if everything is valid."""
        return self.bad_entry is None

    def require_ok(self) -> None:
        """Raise LedgerBroken, naming the first bad entry, unless everything is valid."""
        if not self.ok:
            raise LedgerBroken(self.reason)

    def __str__(self) -> str:
        if not self.ok:
            return f"First bad entry: {self.bad_entry}. {self.reason}"
        return f"All {self.entries} entries hold: hashes, signatures, totals. Head {self.head}"


def verify(place: str | os.PathLike[str], key: PublicKey, head: Head | None = None) -> Report:
    """Check a ledger that may have been edited or replaced by an older copy.

    Args:
        place: the file, or a `postgresql://` address; it is only read.
        key: the owner's public key, pinned by the caller, not from the ledger.
        head: a stored head, or one from a receipt; the ledger must contain it.

    Raises:
        HeadRejected: the head itself is not signed by this key.
        StoreFailed: there is no readable ledger.
    """
    if head is not None and not head.signed_by(key):
        raise HeadRejected(f"head {head.number} is not signed by {key}. Show the head that was printed.")
    replay = _Replay(key, head)
    store = open_store(place, "read")
    try:
        with store.reading() as tables, ThreadPoolExecutor(os.cpu_count()) as pool:
            for rows in tables.pages():
                replay.page(rows, pool)
            replay.end()
    except LedgerBroken as error:
        return replay.report(bad_entry=replay.at, reason=str(error))
    finally:
        store.close()
    return replay.report()


class _Replay:
    """Recomputation of the ledger's totals, entry by entry."""

    def __init__(self, key: PublicKey, shown: Head | None) -> None:
        self.at = 1  # the entry being checked
        self._key = key
        self._shown = shown
        self._head: Head | None = None
        self._balances: dict[str, Balance] = {}
        self._unfinished: dict[int, list[tuple[str, Loss]]] = {}

    def page(self, rows: list[tuple[Any, ...]], pool: ThreadPoolExecutor) -> None:
        """Check the next rows. Signatures take most of the time, so they are checked in parallel."""
        parts = [rows[start : start + _PART] for start in range(0, len(rows), _PART)]
        for outcome in chain.from_iterable(pool.map(self._authentic, parts)):
            if isinstance(outcome, LedgerBroken):
                raise outcome
            self._follow(outcome)

    def _authentic(self, rows: list[tuple[Any, ...]]) -> list[Entry | LedgerBroken]:
        outcomes: list[Entry | LedgerBroken] = []
        for row in rows:
            try:
                entry = Entry.parse(*row)
                entry.check_hash()
                entry.check_signature(self._key)
                outcomes.append(entry)
            except LedgerBroken as error:
                outcomes.append(error)
        return outcomes

    def _follow(self, entry: Entry) -> None:
        if entry.number != self.at:
            raise LedgerBroken(f"entry {self.at} is missing: the next one is {entry.number}.")
        if entry.previous != (self._head.hash if self._head else BEFORE_ALL):
            raise LedgerBroken(f"entry {self.at} does not follow the entry before it.")
        if self._shown is not None and self._shown.number == self.at and self._shown.hash != entry.hash:
            raise LedgerBroken(f"entry {self.at} is not the one that the head shows: the ledger was rewritten.")
        try:
            self._lines(entry)
        except (CloisterError, KeyError, ValueError, TypeError) as error:
            reason = str(error) if isinstance(error, LedgerBroken | OverBudget) else "it breaks the rules of its kind."
            raise LedgerBroken(f"entry {self.at} ({entry.kind}): {reason}") from None
        self._head = entry.head
        self.at += 1

    def _lines(self, entry: Entry) -> None:
        """Check the totals after this entry. An unknown kind is a KeyError: it is refused."""
        {
            "create": self._nothing,
            "open": self._open,
            "reserve": self._reserve,
            "charge": self._add,
            "write-off": self._add,
            "commit": self._commit,
            "void": self._void,
            "head-shown": self._nothing,
            "note": self._nothing,
        }[entry.kind](entry)

    def _nothing(self, entry: Entry) -> None:
        if entry.lines or (entry.kind == "create") != (self.at == 1):
            raise ValueError

    def _open(self, entry: Entry) -> None:
        rules, (line,) = Rules.from_json(entry.detail), entry.lines
        if rules.key in self._balances or not rules.sound:
            raise ValueError
        self._leaves(line, Balance.at_opening(rules), rules.key)

    def _add(self, entry: Entry) -> None:
        for line in entry.lines:
            self._leaves(line, self._balances[line.account].add(line.loss), line.account)

    def _reserve(self, entry: Entry) -> None:
        self._add(entry)
        self._unfinished[entry.number] = [(line.account, line.loss) for line in entry.lines]

    def _commit(self, entry: Entry) -> None:
        del self._unfinished[entry.settles or 0]
        self._nothing(entry)

    def _void(self, entry: Entry) -> None:
        if self._unfinished.pop(entry.settles or 0) != [(line.account, line.loss) for line in entry.lines]:
            raise ValueError
        for line in entry.lines:
            self._leaves(line, self._balances[line.account].take_back(line.loss), line.account)

    def _leaves(self, line: Line, balance: Balance, key: str) -> None:
        if (line.account, line.spent) != (key, balance.spent):
            raise LedgerBroken(f"account {key} must stand at {balance.spent}, the entry says {line.spent}.")
        self._balances[key] = balance

    def end(self) -> None:
        """Check the given head after the last entry."""
        if self._head is None:
            raise LedgerBroken("the ledger is empty.")
        if self._shown is not None and self._shown.number > self._head.number:
            self.at = self._head.number + 1
            raise LedgerBroken(
                f"entry {self.at} is missing: the ledger ends before it, but the head shows entry "
                f"{self._shown.number}. This is an older copy."
            )

    def report(self, bad_entry: int | None = None, reason: str = "") -> Report:
        """Return the result so far."""
        entries = self._head.number if self._head else 0
        return Report(entries, self._head, tuple(self._balances.values()), bad_entry, reason)
