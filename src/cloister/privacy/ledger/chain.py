"""The page a writer has open: the end of the chain inside one transaction, and how the next entry is written on it."""

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
    """Follows the chain: every account's rules and total, from entries that hang together and end in a signed head.

    Nothing but the chain is believed. The first look reads all entries, later ones only what was added since; so a
    file whose entries were changed, left out or taken back under a running process is noticed at the next charge.
    """

    def __init__(self, key: PublicKey) -> None:
        self._key = key
        self._lock = threading.Lock()
        self._head: Head | None = None
        self._balances: dict[str, Balance] = {}

    def follow(self, tables: Tables) -> Head | None:
        """Read on to the newest entry; its head, or None for an empty ledger."""
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
                # One signature is enough: it covers the hash of this entry, and that the hashes of all before it.
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
        """An account's rules and total, as of the last `follow`."""
        if key not in self._balances:
            raise AccountMismatch(f"there is no account {key} in this ledger. Open it with open_account(name, budget).")
        return self._balances[key]

    def accounts(self) -> list[str]:
        """Every account."""
        return sorted(self._balances)


class ChainWriter:
    """Writes at the end of a ledger, inside one transaction; if that fails, nothing here has happened."""

    def __init__(self, tables: Tables, key: SigningKey, reader: ChainReader) -> None:
        self.tables = tables
        self._key = key
        self._reader = reader
        self._balances: dict[str, Balance] = {}
        self.head: Head | None = reader.follow(tables)

    def contains(self, head: Head) -> bool:
        """Whether this ledger has the entry the head speaks of."""
        return self.tables.hash_of(head.number) == head.hash

    def settlement(self, number: int) -> Entry | None:
        """The commit or void that ended this reserve, checked."""
        settled = self.tables.settlement(number)
        if settled is not None:
            settled.check_hash()
        return settled

    def balance(self, key: str) -> Balance:
        """An account as this transaction leaves it so far."""
        if key not in self._balances:
            self._balances[key] = self._reader.balance(key)
        return self._balances[key]

    def open(self, rules: Rules) -> Line:
        """The line of a new account."""
        balance = self._balances[rules.key] = Balance.at_opening(rules)
        return Line(rules.key, balance.spent, balance.spent)

    def debit(self, key: str, loss: Loss) -> Line:
        """The line that charges a loss, if it fits."""
        balance = self._balances[key] = self.balance(key).add(loss)
        return Line(key, loss, balance.spent)

    def credit(self, key: str, loss: Loss) -> Line:
        """The line that gives a loss back."""
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
        """Write the next entry."""
        entry = Entry.seal(self._key, self.head, kind, lines=lines, request=request, settles=settles, detail=detail)
        self.tables.append(entry)
        self.head = entry.head
        return entry
