"""Hash chain of the audit log, without a database: entries, hashes, and the replay that checks a whole log.

An export is JSON lines and is checked offline with the hub's public key alone:

    from cloister.hub.core.trail import verify_export
    verify_export("audit.jsonl", "ed25519:…")
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from cloister.privacy.errors import BadNumber, CloisterError, HeadRejected, LedgerBroken
from cloister.privacy.ledger.chain import Head
from cloister.privacy.loss import Loss
from cloister.privacy.signing import PublicKey, canonical

__all__ = ["BEFORE_ALL", "FORM", "SIGNED", "Entry", "Replay", "plain", "statement", "verify_export"]

BEFORE_ALL = "0" * 64  # replaces the hash before the first entry
FORM = "cloister-audit/1"
SIGNED = "audit.signed"  # the action of an entry that holds a signed head
_LONGEST = 4_000  # characters of one text: one long question must not fill the log
_FIELDS = {"number", "time", "person", "action", "object", "detail", "previous", "hash"}


def statement(number: int, digest: str) -> bytes:
    """Return the bytes that the hub signs. The prefix keeps the signature from being valid for anything else."""
    return f"cloister audit entry {number} {digest}".encode("ascii", "backslashreplace")


def plain(value: object, depth: int = 0) -> Any:
    """Return a detail that can be hashed: other numbers become text, long texts are cut.

    >>> plain({"share": 0.5, "of": (1, None)})
    {'share': '0.5', 'of': [1, None]}
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str | float | Fraction | Loss | os.PathLike):
        return cleaned(os.fspath(value) if isinstance(value, os.PathLike) else str(value), _LONGEST)
    if depth < 20:
        if isinstance(value, Mapping):
            return {cleaned(str(key), 200): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
            return [plain(item, depth + 1) for item in items]
    raise BadNumber(f"an audit entry holds text, numbers, lists and dicts, got a {type(value).__name__}.")


def cleaned(text: str | bytes, longest: int) -> str:
    """Return a text that every database can store: no NUL, no lone surrogates, limited length."""
    clean = text if isinstance(text, str) else text.decode("utf-8", "replace")
    clean = clean.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log."""

    number: int
    time: float
    person_id: int | None
    action: str
    object: str
    detail: dict[str, Any]
    previous: str
    hash: str

    @classmethod
    def make(
        cls,
        number: int,
        time: float,
        person_id: int | None,
        action: str,
        object: str,  # noqa: A002
        detail: dict[str, Any],
        previous: str,
    ) -> "Entry":
        """Return the next entry, hashed."""
        facts = number, float(f"{time:.6f}"), person_id, cleaned(action, 60), cleaned(object, 200), detail, previous
        return cls(*facts, hash=cls(*facts, hash="").digest())

    @classmethod
    def of(cls, row: Any) -> "Entry":
        """Return the entry in a row of the table."""
        return cls(row.number, row.time, row.person_id, row.action, row.object, row.detail, row.previous, row.hash)

    @classmethod
    def parse(cls, line: str | bytes) -> "Entry":
        """Return the entry in a line of an export."""
        record = json.loads(line)
        if set(record) != _FIELDS:
            raise ValueError
        return cls(
            record["number"], float(record["time"]), record["person"], record["action"], record["object"],
            record["detail"], record["previous"], record["hash"],
        )  # fmt: skip

    def row(self) -> dict[str, Any]:
        """Return the row to store."""
        return {
            "number": self.number,
            "time": self.time,
            "person_id": self.person_id,
            "action": self.action,
            "object": self.object,
            "detail": self.detail,
            "previous": self.previous,
            "hash": self.hash,
        }

    def record(self) -> dict[str, Any]:
        """Return the record to hash. The time is text, because a float has no unique text form."""
        return {
            "number": self.number,
            "time": f"{self.time:.6f}",
            "person": self.person_id,
            "action": self.action,
            "object": self.object,
            "detail": self.detail,
            "previous": self.previous,
        }

    def digest(self) -> str:
        """Return the expected hash."""
        return hashlib.sha256(canonical(self.record())).hexdigest()


class Replay:
    """Replay of a log from its first entry. Memory does not grow with the log.

    Args:
        key: the hub's public key, as you pinned it.
        heads: signed heads that the log must contain.
    """

    def __init__(self, key: PublicKey, heads: Sequence[Head] = ()) -> None:
        self._key = key
        self._heads = {head.number: self._signed(head).hash for head in heads}
        self._number, self._hash = 0, BEFORE_ALL
        for number, digest in ((head.number, head.hash) for head in heads):
            if self._heads[number] != digest:
                raise LedgerBroken(
                    f"two signed heads show different entries {number} of the audit log: it was rewritten."
                )

    def _signed(self, head: Head) -> Head:
        if not self._key.verify(statement(head.number, head.hash), head.signature):
            raise HeadRejected(f"head {head.number} of the audit log is not signed by {self._key}.")
        return head

    def add(self, entry: Entry) -> None:
        """Check the next entry; raise LedgerBroken if it is not valid."""
        at = self._number + 1
        if entry.number != at:
            raise LedgerBroken(f"audit entry {at} is missing: the next one is {entry.number}.")
        if entry.previous != self._hash:
            raise LedgerBroken(f"audit entry {at} does not follow the entry before it.")
        try:
            same = entry.digest() == entry.hash
        except CloisterError:
            same = False
        if not same:
            raise LedgerBroken(f"audit entry {at} was changed: its hash does not match its content.")
        if self._heads.pop(at, entry.hash) != entry.hash:
            raise LedgerBroken(f"audit entry {at} is not the one that a signed head shows: the log was rewritten.")
        if entry.action == SIGNED:
            self._check_signed(entry)
        self._number, self._hash = at, entry.hash

    def _check_signed(self, entry: Entry) -> None:
        try:
            head = self._signed(Head.parse(str(entry.detail.get("head"))))
        except HeadRejected:
            raise LedgerBroken(f"audit entry {entry.number} does not hold a head signed by {self._key}.") from None
        if (head.number, head.hash) != (self._number, self._hash):
            raise LedgerBroken(f"audit entry {entry.number} signs another entry {head.number} than the log has.")

    def end(self) -> int:
        """Return the number of entries after the last one. Raise LedgerBroken if a signed head shows more."""
        if self._heads:
            raise LedgerBroken(
                f"audit entry {self._number + 1} is missing: the log ends before it, but a signed head shows entry "
                f"{max(self._heads)}. Its end was cut off, or this is an older copy."
            )
        return self._number


def verify_export(path: str | os.PathLike[str], key: PublicKey | str, head: Head | str | None = None) -> int:
    """Check an exported log offline; return its number of entries.

    Args:
        path: the file of JSON lines.
        key: the hub's public key, as you pinned it, not from the file.
        head: a head from elsewhere that the log must contain.

    Raises:
        LedgerBroken: something was changed, left out or cut off.
        HeadRejected: a head is not signed by this key.
    """
    pinned = PublicKey.parse(key) if isinstance(key, str) else key
    heads = [Head.parse(head) if isinstance(head, str) else head] if head is not None else []
    replay, last = Replay(pinned, heads), None
    count, newest = 0, BEFORE_ALL
    with Path(path).open("rb") as file:
        try:
            if json.loads(file.readline()).get("form") != FORM:
                raise ValueError
            for line in file:
                if last is not None:
                    raise ValueError
                if line.startswith(b'{"head":'):
                    last = Head.parse(json.loads(line)["head"])
                    continue
                entry = Entry.parse(line)
                replay.add(entry)
                count, newest = entry.number, entry.hash
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if isinstance(error, CloisterError):
                raise
            raise LedgerBroken(f"the line after audit entry {count} is not as it was exported.") from None
    replay.end()
    if count and last is None:
        raise LedgerBroken(f"the export ends after audit entry {count} without its signed head: it was cut off.")
    if last is not None:
        if not pinned.verify(statement(last.number, last.hash), last.signature):
            raise HeadRejected(f"head {last.number} of the export is not signed by {pinned}.")
        if (last.number, last.hash) != (count, newest):
            raise LedgerBroken(f"the signed head shows entry {last.number}, the export ends with another one.")
    return count
