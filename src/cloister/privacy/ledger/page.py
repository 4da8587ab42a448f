"""The page a writer has open: the end of the chain inside one transaction, and how the next entry is written on it."""

from collections.abc import Sequence
from typing import Any

from cloister.privacy.errors import AccountMismatch, LedgerBroken
from cloister.privacy.ledger.account import Balance
from cloister.privacy.ledger.entry import Entry, Line
from cloister.privacy.ledger.head import Head
from cloister.privacy.ledger.rules import Rules
from cloister.privacy.ledger.store import Tables
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, SigningKey

__all__ = ["Page", "Reader"]


class Reader:
    """Reads entries and believes only signed ones. Each signature is checked once in a process."""

    def __init__(self, key: PublicKey) -> None:
        self._key = key
        self._signed: set[str] = set()
        self._rules: dict[str, Rules] = {}

    def last(self, tables: Tables) -> Entry | None:
        """The newest entry, checked."""
        last = tables.last()
        return None if last is None else self.checked(last)

    def balance(self, tables: Tables, key: str) -> Balance:
        """An account's rules and total, from the signed entries its row points to."""
        row = tables.account(key)
        if row is None:
            raise AccountMismatch(f"there is no account {key} in this ledger. Open it with open_account(name, budget).")
        opened, latest = tables.entry(row[0]), tables.entry(row[1])
        spent = [line.spent for line in latest.lines if line.account == key] if latest else []
        if opened is None or latest is None or opened.kind != "open" or opened.lines[0].account != key or not spent:
            raise LedgerBroken(
                f"account {key} points to wrong entries, {row[0]} and {row[1]}. Run cloister ledger verify."
            )
        self.checked(opened)
        self.checked(latest)
        if opened.hash not in self._rules:
            self._rules[opened.hash] = Rules.from_json(opened.detail)
        return Balance(self._rules[opened.hash], spent[-1])

    def trust(self, entry: Entry) -> None:
        """Note an entry that this process signed itself."""
        if len(self._signed) > 10_000:
            self._signed.clear()
        self._signed.add(entry.hash)

    def checked(self, entry: Entry) -> Entry:
        """The entry, if its hash and signature hold."""
        entry.check_hash()
        if entry.hash not in self._signed:
            entry.check_signature(self._key)
            self.trust(entry)
        return entry


class Page:
    """Writes at the end of a ledger, inside one transaction; if that fails, nothing here has happened."""

    def __init__(self, tables: Tables, key: SigningKey, reader: Reader) -> None:
        self.tables = tables
        self._key = key
        self._reader = reader
        self._balances: dict[str, Balance] = {}
        last = reader.last(tables)
        self.head: Head | None = last.head if last else None

    def contains(self, head: Head) -> bool:
        """Whether this ledger has the entry the head speaks of."""
        return self.tables.hash_of(head.number) == head.hash

    def settlement(self, number: int) -> Entry | None:
        """The commit or void that ended this reserve, checked."""
        settled = self.tables.settlement(number)
        return None if settled is None else self._reader.checked(settled)

    def balance(self, key: str) -> Balance:
        """An account as this transaction leaves it so far."""
        if key not in self._balances:
            self._balances[key] = self._reader.balance(self.tables, key)
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
        for account in {line.account for line in lines}:
            self.tables.changed(account, entry.number)
        self._reader.trust(entry)
        self.head = entry.head
        return entry
