"""Audit log: append-only record of every decision and every read.

    hash = SHA-256 of the canonical JSON of an entry, which holds the hash of the entry before it

Every 256th entry is a signed head: number and hash of the entry before it, under the hub's key. A head is also signed
on every export, and kept in a file outside the database, so that a truncated log is detected. The database itself
refuses UPDATE and DELETE on the table (audit_triggers.py).

Nothing private is written here: an entry holds the request and the decision, never an answer or a row.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import Database, now
from cloister.hub.core.models import AuditEntry
from cloister.hub.core.trail import BEFORE_ALL, FORM, SIGNED, Entry, Replay, plain, statement
from cloister.privacy.ledger.chain import Head
from cloister.privacy.ledger.store import HeadFile
from cloister.privacy.signing import SigningKey, canonical

__all__ = ["Audit"]

_SIGN_EVERY = 256
_PAGE = 1_000
_table: sa.Table = AuditEntry.__table__  # type: ignore[assignment]
_INSERT = sa.insert(_table)
_LAST = sa.select(_table.c.number, _table.c.hash).order_by(_table.c.number.desc()).limit(1)


@dataclass(slots=True)
class _Waiting:
    """Entry that waits for a thread to write it."""

    what: tuple[int | None, str, str, Mapping[str, Any]]
    done: bool = False
    number: int = 0
    failure: BaseException | None = field(default=None)


class Audit:
    """Writes, searches, checks and exports the audit log.

    Args:
        database: the hub's database.
        key: the hub's key, which signs heads.
        kept: the path of the newest signed head, outside the database; None to keep none.
    """

    def __init__(self, database: Database, key: SigningKey, kept: str | os.PathLike[str] | None = None) -> None:
        self.database = database
        self.key = key
        self._kept = HeadFile(kept) if kept is not None else None
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._waiting: list[_Waiting] = []

    def write(self, session: Session, person_id: int | None, action: str, object: str, /, **detail: Any) -> int:  # noqa: A002
        """Add an entry in the caller's transaction, which must be `database.writing()`; return its number.

        Args:
            session: the transaction; its changes and this entry are committed together or not at all. No other one
                writes until then, so the end of the chain stays where it is.
            person_id: the acting user; None for the hub itself.
            action: the action, such as `request.granted`.
            object: the object of the action, such as `dataset/visits`.
            detail: the request and the decision. Never an answer, never a value from a table.
        """
        connection = session.connection()  # without the session's own work: every read writes an entry, too
        last = connection.execute(_LAST).first()
        number, previous = (last[0] + 1, last[1]) if last else (1, BEFORE_ALL)
        if number % _SIGN_EVERY == 0:
            head = self._sign(number - 1, previous)
            previous = self._append(
                connection, Entry.make(number, now(), None, SIGNED, "audit", {"head": str(head)}, previous)
            )
            number += 1
        self._append(connection, Entry.make(number, now(), person_id, action, object, plain(detail), previous))
        return number

    def record(self, person_id: int | None, action: str, object: str, /, **detail: Any) -> int:  # noqa: A002
        """Add an entry in a transaction of its own, for reads, which have none; return its number.

        When many threads call this at once, one of them writes the entries of all: one disk write for many entries. It
        returns when the entry is durable.
        """
        mine = _Waiting((person_id, action, object, detail))
        with self._lock:
            self._waiting.append(mine)
        with self._turn:
            if not mine.done:
                with self._lock:
                    batch, self._waiting = self._waiting, []
                self._write_all(batch)
        if mine.failure is not None:
            raise mine.failure
        return mine.number

    def _write_all(self, batch: list[_Waiting]) -> None:
        failure: BaseException | None = None
        try:
            with self.database.writing() as session:
                for waiting in batch:
                    person_id, action, name, detail = waiting.what
                    waiting.number = self.write(session, person_id, action, name, **detail)
        except Exception as error:
            failure = error
        for waiting in batch:
            waiting.done, waiting.failure = True, failure

    def _append(self, connection: sa.Connection, entry: Entry) -> str:
        connection.execute(_INSERT, entry.row())
        return entry.hash

    # Reading.

    def search(
        self,
        session: Session,
        *,
        person_id: int | None = None,
        action: str = "",
        object: str = "",  # noqa: A002
        since: float | None = None,
        until: float | None = None,
        text: str = "",
        before: int | None = None,
        most: int = 100,
    ) -> list[AuditEntry]:
        """Return entries, newest first.

        Args:
            session: a session for reading.
            person_id: the acting user.
            action: prefix of the action, such as `request.`.
            object: prefix of the object, such as `dataset/visits`.
            since: not older than this.
            until: not newer than this.
            text: text in the action, the object or the detail.
            before: only entries with a smaller number: the next page.
            most: the largest number of entries.
        """
        wanted = sa.select(AuditEntry).order_by(AuditEntry.number.desc()).limit(max(1, min(most, 1000)))
        if person_id is not None:
            wanted = wanted.where(AuditEntry.person_id == person_id)
        if action:
            wanted = wanted.where(AuditEntry.action.startswith(action, autoescape=True))
        if object:
            wanted = wanted.where(AuditEntry.object.startswith(object, autoescape=True))
        if since is not None:
            wanted = wanted.where(AuditEntry.time >= since)
        if until is not None:
            wanted = wanted.where(AuditEntry.time <= until)
        if before is not None:
            wanted = wanted.where(AuditEntry.number < before)
        if text:
            found_in = (AuditEntry.action, AuditEntry.object, sa.cast(AuditEntry.detail, sa.Text))
            wanted = wanted.where(sa.or_(*(column.icontains(text, autoescape=True) for column in found_in)))
        return list(session.scalars(wanted))

    def head(self, session: Session) -> Head | None:
        """Return the newest entry, signed now; None while the log is empty."""
        last = session.execute(_LAST).first()
        return None if last is None else self._sign(last[0], last[1])

    def keep(self) -> Head | None:
        """Sign the newest entry and store that head outside the database. A worker calls this periodically."""
        with self.database.reading() as session:
            head = self.head(session)
        if head is not None and self._kept is not None:
            self._kept.advance(head)
        return head

    def _sign(self, number: int, digest: str) -> Head:
        return Head(number, digest, self.key.sign(statement(number, digest)))

    def verify(self, session: Session, head: Head | None = None) -> int:
        """Recompute the whole chain; return the number of valid entries.

        Args:
            session: a session for reading.
            head: a head from an export or a printout: the log must contain it. The kept head is checked too.

        Raises:
            LedgerBroken: an entry was changed, removed or added out of order; the message names the first invalid one.
            HeadRejected: the head was not signed by the hub's key.
        """
        heads = [item for item in (head, self._kept.read() if self._kept else None) if item is not None]
        replay = Replay(self.key.public, heads)
        for entry in _entries(session):
            replay.add(entry)
        return replay.end()

    def export(self, session: Session) -> Iterator[bytes]:
        """Export the whole log as JSON lines: the form, every entry, and the signed head last. See `verify_export`."""
        head = self.head(session)
        yield canonical({"form": FORM, "key": str(self.key.public)}) + b"\n"
        if head is None:
            return
        for entry in _entries(session):
            if entry.number <= head.number:
                yield canonical({**entry.record(), "hash": entry.hash}) + b"\n"
        yield canonical({"head": str(head)}) + b"\n"


def _entries(session: Session) -> Iterator[Entry]:
    """Yield every entry in order, in batches: memory does not grow with the log."""
    after = -(2**31)  # below any number: a row with an invalid number is read too
    page = sa.select(_table).order_by(_table.c.number).limit(_PAGE)
    while rows := session.execute(page.where(_table.c.number > after)).all():
        for row in rows:
            yield Entry.of(row)
        after = rows[-1].number
