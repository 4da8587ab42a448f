"""Read the chain of entries, and append to its end inside one transaction."""

import threading
from collections.abc import Sequence
from typing import Any

from cloister.privacy.errors import AccountMismatch, LedgerBroken, RolledBack
from cloister.privacy.ledger.account import Balance
from cloister.privacy.ledger.entry import BEFORE_ALL, Entry, Line
from cloister.privacy.ledger.head import Head
from cloister.privacy.ledger.rules import Rules
from cloister.privacy.ledger.store import Tables
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, SigningKey

__all__ = ["ChainWriter", "ChainReader"]


class ChainReader:
    """A reader of the chain: every account's rules and total, from linked entries that end in a signed head.

    Only the chain is trusted. The first call reads all entries, later ones only new entries; so entries that were
    changed, removed or rolled back under a running process are detected at the next charge.
    """

    def __init__(self, key: PublicKey) -> None:
        self._key = key
        self._lock = threading.Lock()
        self._head: Head | None = None
        self._balances: dict[str, Balance] = {}

    def follow(self, tables: Tables) -> Head | None:
        """Read up to the newest entry; return its head, or None for an empty ledger."""
        with self._lock:
            if self._head is not None and tables.hash_of(self._head.number) != self._head.hash:
                raise RolledBack(
                    f"entry {self._head.number} was in this ledger and is not any more: it was exchanged for an older "
                    "copy. Restore the newest ledger."
                )
            last: Entry | None = None
            for rows in tables.pages(self._head.number if self._head else None):
                for row in rows:
                    last = self._next(Entry.parse(*row), last.head if last else self._head)
            if last is not None:
                # One signature is enough: it covers the hash of this entry, which covers those of all earlier ones.
                last.check_signature(self._key)
                self._head = last.head
            return self._head

    def _next(self, entry: Entry, after: Head | None) -> Entry:
        entry.check_hash()
        number, previous = (after.number + 1, after.hash) if after else (1, BEFORE_ALL)
        if (entry.number, entry.previous) != (number, previous):
            raise LedgerBroken(
                f"entry {number} is missing or does not follow the one before. Run cloister ledger verify."
            )
        for line in entry.lines:
            opened = entry.kind == "open"
            rules = Rules.from_json(entry.detail) if opened else self._balances[line.account].rules
            self._balances[line.account] = Balance(rules, line.spent)
        return entry

    def balance(self, key: str) -> Balance:
        """Return an account's rules and total, as of the last `follow`."""
        if key not in self._balances:
            raise AccountMismatch(f"there is no account {key} in this ledger. Open it with open_account(name, budget).")
        return self._balances[key]

    def accounts(self) -> list[str]:
        """Return the keys of all accounts."""
        return sorted(self._balances)


class ChainWriter:
    """A writer at the end of a ledger, inside one transaction; if it fails, nothing is changed."""

    def __init__(self, tables: Tables, key: SigningKey, reader: ChainReader) -> None:
        self.tables = tables
        self._key = key
        self._reader = reader
        self._balances: dict[str, Balance] = {}
        self.head: Head | None = reader.follow(tables)

    def contains(self, head: Head) -> bool:
        """Return True if this ledger has the entry of this head."""
        return self.tables.hash_of(head.number) == head.hash

    def settlement(self, number: int) -> Entry | None:
        """Return the commit or void that ended this reserve, checked."""
        settled = self.tables.settlement(number)
        if settled is not None:
            settled.check_hash()
        return settled

    def balance(self, key: str) -> Balance:
        """Return an account's balance within this transaction."""
        if key not in self._balances:
            self._balances[key] = self._reader.balance(key)
        return self._balances[key]

    def open(self, rules: Rules) -> Line:
        """Return the line of a new account."""
        balance = self._balances[rules.key] = Balance.at_opening(rules)
        return Line(rules.key, balance.spent, balance.spent)

    def debit(self, key: str, loss: Loss) -> Line:
        """Return the line that charges a loss, if it fits."""
        balance = self._balances[key] = self.balance(key).add(loss)
        return Line(key, loss, balance.spent)

    def credit(self, key: str, loss: Loss) -> Line:
        """Return the line that refunds a loss."""
        balance = self._balances[key] = self.balance(key).take_back(loss)
        return Line(key, loss, balance.spent)

    def append(
        self,
        kind: str,
        lines: Sequence[Line] = (),
        *,
        request: str = "",
        settles: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> Entry:
        """Append the next entry."""
        entry = Entry.seal(self._key, self.head, kind, lines=lines, request=request, settles=settles, detail=detail)
        self.tables.append(entry)
        self.head = entry.head
        return entry
