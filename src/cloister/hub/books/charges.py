"""What the ledger's signed entries say about each account, read on from where we stopped the last time.

The chain is checked while it is read (hashes, order, the newest signature), so a figure on a page comes from entries
that hang together and that the hub signed. Memory grows with the charges, by some hundred bytes each.
"""

import threading
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cloister.privacy.errors import LedgerBroken
from cloister.privacy.ledger.entry import BEFORE_ALL, Entry
from cloister.privacy.ledger.store import open_store
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.hub.hub import Hub

__all__ = ["Charged", "charges_of"]


@dataclass(frozen=True, slots=True)
class Charged:
    """One loss in one account.

    Attributes:
        entry: its number in the ledger.
        time: in seconds since 1970.
        kind: reserve, charge or write-off.
        loss: in the account's measure.
        request: SHA-256 of the request's text.
        analyst: whose account was debited in the same entry, or whose account this is; empty if nobody's.
        state: `charged`; `released` if it was committed; `void` if it was given back.
    """

    entry: int
    time: float
    kind: str
    loss: Loss
    request: str
    analyst: str
    state: str = "charged"


class Charges:
    """Follows one ledger."""

    def __init__(self, hub: "Hub") -> None:
        self._place = hub.settings.ledger
        self._key = hub.key.public
        self._lock = threading.Lock()
        self._number, self._hash = 0, BEFORE_ALL
        self._accounts: dict[str, dict[int, Charged]] = {}
        self._open: dict[int, tuple[str, ...]] = {}  # reserves that are neither committed nor voided

    def of(self, account: str) -> list[Charged]:
        """Every charge of an account, oldest first; those that were given back say so."""
        with self._lock:
            self._follow()
            return list(self._accounts.get(account, {}).values())

    def accounts(self) -> list[str]:
        """Every account that was ever charged."""
        with self._lock:
            self._follow()
            return sorted(self._accounts)

    def _follow(self) -> None:
        store, last = open_store(self._place, "read"), None
        try:
            with store.reading() as tables:
                for rows in tables.pages(self._number):
                    for row in rows:
                        last = Entry.parse(*row)
                        self._next(last)
        finally:
            store.close()
        if last is not None:
            last.check_signature(self._key)

    def _next(self, entry: Entry) -> None:
        entry.check_hash()
        if (entry.number, entry.previous) != (self._number + 1, self._hash):
            raise LedgerBroken(f"entry {self._number + 1} is missing or does not follow the one before.")
        if entry.kind in ("reserve", "charge", "write-off"):
            time = datetime.fromisoformat(entry.time).timestamp()
            whose = next((line.account.partition("@")[2] for line in entry.lines if "@" in line.account), "")
            if entry.kind == "reserve":
                self._open[entry.number] = tuple({line.account for line in entry.lines})
            for line in entry.lines:
                one = Charged(entry.number, time, entry.kind, line.loss, entry.request, whose)
                self._accounts.setdefault(line.account, {})[entry.number] = one
        elif entry.kind in ("commit", "void"):
            state = "released" if entry.kind == "commit" else "void"
            reserve = entry.settles or 0
            for account in self._open.pop(reserve, ()):
                self._accounts[account][reserve] = replace(self._accounts[account][reserve], state=state)
        self._number, self._hash = entry.number, entry.hash


_books: "WeakKeyDictionary[Hub, Charges]" = WeakKeyDictionary()
_guard = threading.Lock()


def charges_of(hub: "Hub") -> Charges:
    """The charges of a hub's ledger; the same object every time, so that nothing is read twice."""
    with _guard:
        if hub not in _books:
            _books[hub] = Charges(hub)
        return _books[hub]
