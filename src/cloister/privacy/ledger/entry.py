"""Entries: signed records, each chained to the previous one by its hash.

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
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cloister.privacy.canonical import canonical
from cloister.privacy.errors import CloisterError, LedgerBroken
from cloister.privacy.ledger.head import Head, statement
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, SigningKey

__all__ = ["BEFORE_ALL", "Entry", "Line"]

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
            if not all(isinstance(word, str) for word in (*words, digest, signature)):
                raise TypeError
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
