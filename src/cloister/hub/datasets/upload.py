"""Uploads into a dataset: begun, received in order, resumed after any interruption.

A piece counts once it is sealed, on the disk, and recorded in the database, in this order. After a crash the upload
continues at the byte that the database names.
"""

import secrets
import shutil
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Person, Upload, Version
from cloister.hub.datasets.chunks import Chunks
from cloister.privacy.errors import BadForm, NotHere, NotNow, TooMany, UploadRefused

__all__ = [
    "ENDINGS",
    "LARGEST_PIECE",
    "afterwards",
    "begin",
    "cancel",
    "chunks",
    "find",
    "may_provide",
    "receive",
    "tidy",
]

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq")
SMALLEST_PIECE = 64 * 1024  # except for the last: each piece is a file
LARGEST_PIECE = 16 * 1024 * 1024
_OPEN_AT_ONCE = 20
_FORGOTTEN_AFTER = 7 * 86400
_SILENT_S = 3600  # an announced file without data for this long keeps no reserved space


def may_provide(person: Person, dataset: Dataset) -> bool:
    """Return True if a user may upload: the owner, or a data provider of the organisation that owns the dataset."""
    same = person.organisation_id is not None and person.organisation_id == dataset.organisation_id
    return person.id == dataset.owner_id or ("data provider" in person.roles and same)


def begin(hub: Hub, session: Session, person: Person, dataset: Dataset, *, table: str, file: str, size: int) -> Upload:
    """Announce a file.

    Args:
        table: the table of the dataset that it holds.
        file: its name, whose ending gives its format.
        size: the size in bytes.

    Raises:
        UploadRefused: too large, of an unknown form, or no space for it.
    """
    if not may_provide(person, dataset) or dataset.deleted is not None:
        raise NotHere("there is no such dataset.")
    _check_announced(hub, table, file, size)
    _check_room(hub, session, person, size)
    waiting = session.scalar(
        sa.select(sa.func.count())
        .select_from(Upload)
        .where(Upload.person_id == person.id, Upload.state.in_(("open", "complete")))
    )
    if (waiting or 0) >= _OPEN_AT_ONCE:
        raise TooMany(f"{_OPEN_AT_ONCE} uploads of yours are waiting. Finish or cancel one first.")
    upload = Upload(
        id=secrets.token_hex(16),
        dataset_id=dataset.id,
        person_id=person.id,
        table=table,
        file=file,
        size=size,
        received=0,
        state="open",
        created=now(),
    )
    session.add(upload)
    session.flush()
    hub.audit.write(session, person.id, "upload.begun", f"dataset/{dataset.name}", upload=upload.id)
    return upload


def _check_announced(hub: Hub, table: str, file: str, size: int) -> None:
    if not (0 < len(table) <= 200 and table.isprintable()):
        raise BadForm("table: name the table that the file holds, in at most 200 printable characters.")
    if not file.lower().endswith(ENDINGS) or len(file) > 200 or not file.isprintable():
        raise UploadRefused(f"the file's name must end with one of {', '.join(ENDINGS)}.")
    limit = hub.settings.upload_gb * 10**9
    if not 0 < size <= limit:
        raise UploadRefused(
            f"the file is empty or longer than {hub.settings.upload_gb} GB, the most that is taken here."
        )


def _check_room(hub: Hub, session: Session, person: Person, size: int) -> None:
    """Refuse a file without space for it and all announced before it: pieces, then sealed tables beside them.

    One user's files may take half of the space. A file without data within an hour takes none.
    """
    announced = sa.select(sa.func.sum(3 * Upload.size - Upload.received)).where(
        Upload.state.in_(("open", "complete")), sa.or_(Upload.received > 0, Upload.created > now() - _SILENT_S)
    )
    free = shutil.disk_usage(hub.folder).free - 10**8
    if free < int(session.scalar(announced) or 0) + 3 * size:
        raise UploadRefused("there is not enough room on this hub for a file of that size. Tell its operator.")
    if free // 2 < int(session.scalar(announced.where(Upload.person_id == person.id)) or 0) + 3 * size:
        raise UploadRefused("your files would take more than half of this hub's room. Finish or cancel some first.")


def find(session: Session, person: Person, upload_id: str) -> tuple[Upload, Dataset]:
    """Return an upload of this user, or into a dataset of theirs."""
    upload = session.get(Upload, upload_id)
    dataset = None if upload is None else session.get(Dataset, upload.dataset_id)
    if upload is None or dataset is None or dataset.deleted is not None:
        raise NotHere("there is no such upload.")
    if person.id not in (upload.person_id, dataset.owner_id) or not may_provide(person, dataset):
        raise NotHere("there is no such upload.")
    return upload, dataset


def chunks(hub: Hub, upload: Upload, key: bytes) -> Chunks:
    """Return the pieces of an upload."""
    return Chunks(hub.folder / "uploads", upload.id, key)


def receive(hub: Hub, person: Person, upload_id: str, offset: int, data: bytes) -> Upload:
    """Store the next piece.

    Args:
        offset: the number of bytes sent before.
        data: the bytes, between 64 KiB (unless it is the last piece) and 16 MiB.

    Raises:
        NotNow: the upload is not open, or continues at another byte, which the message names.
    """
    with hub.database.reading() as session:
        upload, dataset = find(session, person, upload_id)
    _check_piece(upload, offset, data)
    pieces = chunks(hub, upload, hub.keys.data_key(dataset))
    waiting = pieces.write(offset, data)
    try:
        with hub.database.writing() as session:
            current = session.get_one(Upload, upload_id, with_for_update={"key_share": True}, populate_existing=True)
            _check_piece(current, offset, data)  # another piece for the same offset may have been faster
            pieces.keep(waiting, offset)
            current.received = offset + len(data)
            current.state = "complete" if current.received == current.size else "open"
        return current
    finally:
        waiting.unlink(missing_ok=True)


def _check_piece(upload: Upload, offset: int, data: bytes) -> None:
    if upload.state != "open":
        raise NotNow(f"the upload is {upload.state}; nothing more is taken.")
    if offset != upload.received:
        raise NotNow(f"the upload goes on at byte {upload.received}, not at {offset}.")
    end = offset + len(data)
    if end > upload.size:
        raise UploadRefused(f"the file was announced with {upload.size} bytes, this piece would end at {end}.")
    if len(data) > LARGEST_PIECE or (len(data) < SMALLEST_PIECE and end < upload.size) or not data:
        raise UploadRefused(f"a piece has between {SMALLEST_PIECE} (unless it is the last) and {LARGEST_PIECE} bytes.")


def cancel(hub: Hub, session: Session, person: Person, upload_id: str) -> Upload:
    """Cancel an upload and delete its pieces."""
    upload, dataset = find(session, person, upload_id)
    if upload.state not in ("open", "complete"):
        raise NotNow(f"the upload is {upload.state}.")
    upload.state = "cancelled"
    afterwards(session, lambda: shutil.rmtree(hub.folder / "uploads" / upload_id, ignore_errors=True))
    hub.audit.write(session, person.id, "upload.cancelled", f"dataset/{dataset.name}", upload=upload.id)
    return upload


def afterwards(session: Session, work: Callable[[], object]) -> None:
    """Call a function after commit: files are removed after their rows in the database."""
    sa.event.listen(session, "after_commit", lambda _: work(), once=True)


def tidy(hub: Hub) -> int:
    """Cancel uploads idle for a week, and delete pieces that no upload needs; return the number of folders."""
    with hub.database.writing() as session:
        old = sa.update(Upload).where(Upload.state == "open", Upload.created < now() - _FORGOTTEN_AFTER)
        session.execute(old.values(state="cancelled"))
        needed = set(session.scalars(sa.select(Upload.id).where(Upload.state.in_(("open", "complete")))))
        for source in session.scalars(sa.select(Version.source).where(Version.state == "preparing")):
            needed |= {origin["upload"] for origin in source.get("from", {}).values() if "upload" in origin}
        # Within the transaction: an upload that begins meanwhile is not yet known, and has no folder either.
        gone = [folder for folder in (hub.folder / "uploads").iterdir() if folder.name not in needed]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
    return len(gone)
