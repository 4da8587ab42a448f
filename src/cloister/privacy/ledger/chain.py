"""The chain of entries: signed records, each linked to the previous one by its hash; read it, and append to its end.

    hash      = SHA-256 of the canonical JSON of everything below, which holds the previous entry's hash
    signature = Ed25519 of (number, hash)

| kind       | meaning                                                       | changes totals  |
|------------|---------------------------------------------------------------|-----------------|
| create     | the ledger begins; its public key                             | no              |
| open       | an account and its rules                                      | sets them to 0  |
| reserve    | a loss is reserved, rows may be read                          | adds            |
| charge     | a loss is spent at once, one of a batch                       | adds            |
| commit     | a reserve led to a release                                    | no              |
| void       | a reserve ended before a row was read                         | subtracts       |
| write-off  | the owner gives up what is left of an account                 | adds            |
| head-shown | the owner showed a head, and the ledger contained it          | no              |
| note       | a number that only grows, about something kept elsewhere      | no              |
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloister.privacy.errors import AccountMismatch, CloisterError, HeadRejected, LedgerBroken, RolledBack
from cloister.privacy.ledger.account import Balance, Rules
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, SigningKey, canonical

if TYPE_CHECKING:
    from cloister.privacy.ledger.store import Tables

__all__ = ["BEFORE_ALL", "ChainReader", "ChainWriter", "Entry", "Head", "Line", "statement"]


def statement(number: int, digest: str) -> bytes:
    """Return the bytes that the owner signs for an entry. A prefix separates them from other signed texts."""
    return f"cloister ledger entry {number} {digest}".encode("ascii", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Head:
    """The signed number and hash of the newest entry of a ledger at one time.

    It prints as one line, `NUMBER:HASH:SIGNATURE`. A stored head reveals an older copy of the ledger.
    """

    number: int
    hash: str
    signature: str

    @classmethod
    def parse(cls, text: str) -> "Head":
        """Return the head from its printed line, from a file or a receipt."""
        parts = text.strip().split(":")
        if (
            len(parts) != 3
            or not (parts[0].isascii() and parts[0].isdigit() and len(parts[0]) < 19)
            or len(parts[1]) != 64
        ):
            raise HeadRejected(
                f"a head is one line like NUMBER:HASH:SIGNATURE, got {text!r:.40}. Show it as it was printed."
            )
        return cls(int(parts[0]), parts[1], parts[2])

    def signed_by(self, key: PublicKey) -> bool:
        """Return True if the owner of the key signed this head."""
        return key.verify(statement(self.number, self.hash), self.signature)

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}:{self.signature}"


BEFORE_ALL = "0" * 64  # stands for the hash before the first entry


@dataclass(frozen=True, slots=True)
class Line:
    """The effect of an entry on one account."""

    account: str
    loss: Loss
    spent: Loss  # the account's total after this line

    def to_json(self) -> dict[str, object]:
        """Return the record that is hashed."""
        return {"account": self.account, "loss": self.loss.to_json(), "spent": self.spent.to_json()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One signed entry of a ledger.

    Attributes:
        number: 1, 2, 3, ... without gaps.
        kind: one of the kinds in the table above.
        lines: the accounts it changes, with their new totals.
        request: SHA-256 of the request's text.
        settles: the reserve that a commit or void ends.
        detail: facts of this kind only, such as an account's rules.
        body: the canonical JSON that the hash covers.
    """

    number: int
    kind: str
    time: str
    lines: tuple[Line, ...]
    request: str
    settles: int | None
    detail: dict[str, Any]
    previous: str
    hash: str
    signature: str
    body: str = field(repr=False)

    @classmethod
    def seal(
        cls,
        key: SigningKey,
        after: Head | None,
        kind: str,
        *,
        lines: Sequence[Line] = (),
        request: str = "",
        settles: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> "Entry":
        """Return the next entry, hashed and signed."""
        number, previous = (after.number + 1, after.hash) if after else (1, BEFORE_ALL)
        time = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        record = {
            "number": number,
            "previous": previous,
            "time": time,
            "kind": kind,
            "lines": [line.to_json() for line in lines],
            "request": request,
            "settles": settles,
            "detail": detail or {},
        }
        body = canonical(record)
        digest = hashlib.sha256(body).hexdigest()
        signature = key.sign(statement(number, digest))
        return cls(
            number, kind, time, tuple(lines), request, settles, detail or {}, previous, digest, signature, body.decode()
        )

    @classmethod
    def parse(cls, number: int, settles: int | None, body: str, digest: str, signature: str) -> "Entry":
        """Return the entry in a row of the store. The row must agree with the hashed body."""
        try:
            record = json.loads(body)
            lines = tuple(
                Line(line["account"], Loss.from_json(line["loss"]), Loss.from_json(line["spent"]))
                for line in record["lines"]
            )
            if (record["number"], record["settles"]) != (number, settles):
                raise ValueError
            words = [record[name] for name in ("kind", "time", "request", "previous")]
            if not all(isinstance(word, str) for word in (*words, body, digest, signature)):
                raise TypeError
            body.encode()  # a ValueError if the stored text is no UTF-8: it has no hash
            kind, time, request, previous = words
            return cls(
                number, kind, time, lines, request, settles, dict(record["detail"]), previous, digest, signature, body
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, CloisterError):
            raise LedgerBroken(f"entry {number} cannot be read: its fields are not as they were written.") from None

    @property
    def head(self) -> Head:
        """Return this entry as a head, to keep outside the ledger and to print in receipts."""
        return Head(self.number, self.hash, self.signature)

    def check_hash(self) -> None:
        """Recompute the hash; LedgerBroken if the content was changed."""
        if hashlib.sha256(self.body.encode()).hexdigest() != self.hash:
            raise LedgerBroken(f"entry {self.number} was changed: its hash does not match its content.")

    def check_signature(self, key: PublicKey) -> None:
        """Check the signature on number and hash; LedgerBroken if it is not the owner's."""
        if not self.head.signed_by(key):
            raise LedgerBroken(f"entry {self.number} is not signed by {key}.")


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
        self._notes: dict[str, int] = {}

    def follow(self, tables: "Tables") -> Head | None:
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
        if entry.kind == "note":
            about, number = entry.detail["about"], entry.detail["number"]
            self._notes[about] = max(number, self._notes.get(about, number))
        return entry

    def balance(self, key: str) -> Balance:
        """Return an account's rules and total, as of the last `follow`."""
        if key not in self._balances:
            raise AccountMismatch(f"there is no account {key} in this ledger. Open it with open_account(name, budget).")
        return self._balances[key]

    def noted(self, about: str) -> int:
        """Return the highest number that was noted about a subject, as of the last `follow`; 0 if there is none."""
        return self._notes.get(about, 0)

    def accounts(self) -> list[str]:
        """Return the keys of all accounts."""
        return sorted(self._balances)


class ChainWriter:
    """A writer at the end of a ledger, inside one transaction; if it fails, nothing is changed."""

    def __init__(self, tables: "Tables", key: SigningKey, reader: ChainReader) -> None:
        self.tables = tables
        self._key = key
        self._reader = reader
        self._balances: dict[str, Balance] = {}
        self.head: Head | None = reader.follow(tables)

    def contains(self, head: Head) -> bool:
        """Return True if this ledger has the entry of this head."""
        return self.tables.hash_of(head.number) == head.hash

    def noted(self, about: str) -> int:
        """Return the highest number that was noted about a subject before this transaction."""
        return self._reader.noted(about)

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
