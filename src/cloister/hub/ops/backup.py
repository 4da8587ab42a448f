"""Backup of a hub into one file, and restore from it.

In the file: the database, the sealed tables and the parts of their keys, the records of releases, the ledger, and the
signing key. Not in it: the
master key, and the ledger's head, without which an old copy cannot pass for the newest state.

The whole file is sealed piece by piece, under a key of its own that the master key wraps: without the master key it
reveals only its length, and a piece that was changed, moved, left out or cut off is detected. Copies that version 0.1.0
made, of which only tables and keys are sealed, are read too.

A hub that was restored refuses to spend, because what was spent after the copy is not in it: spending it again would
break the promise. It spends again when the newest head, which every receipt holds, is shown and the ledger contains it;
or when the owners have written off what is left.

The database is copied first and the ledger last: so the ledger of a copy is never behind its answers.
"""

import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self
from urllib.parse import quote

import sqlalchemy as sa

from cloister.hub.core import restored
from cloister.hub.core.copies import copy_folder
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import OVERHEAD, MasterKey, seal, unseal
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import CloisterError, LedgerBroken, NotNow, StoreFailed
from cloister.version import __version__

__all__ = ["Copied", "backup", "opened", "restore"]

FORM = "cloister-backup/1"
_FOLDERS = ("sealed", "records", "keys")
_MANIFEST = "manifest.sealed"
_KEY_LABEL, _MANIFEST_LABEL = "signing key in a backup", "manifest of a backup"
_MAGIC = b"cloister-backup/2\n"
_FILE_KEY_LABEL = "key of a backup"
_PIECE = 2**20


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a backup, with notes on what is left to do by hand."""

    place: Path
    files: int
    notes: tuple[str, ...] = ()


def backup(hub: Hub, file: Path) -> Copied:
    """Copy a hub, running or not, into a new file that only its owner can read.

    What is in PostgreSQL is not copied; the notes say how to.
    """
    if file.exists():
        raise NotNow(f"there is a file {file} already. Choose another name.")
    try:
        # Written under another name first: a file of the final name is a complete copy.
        descriptor, unfinished = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        try:
            with os.fdopen(descriptor, "wb") as raw:
                count = _write(hub, raw)
                raw.flush()
                os.fsync(raw.fileno())
            Path(unfinished).rename(file)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreFailed(f"no copy was written to {file} ({error.strerror}). Free space or choose another.") from None
    return Copied(file, count, tuple(_by_hand(hub.settings)))


def _write(hub: Hub, raw: IO[bytes]) -> int:
    listed: dict[str, str] = {}
    with (
        _Sealing(raw, hub.keys) as sealed,
        tarfile.open(fileobj=sealed, mode="w", format=tarfile.PAX_FORMAT) as archive,  # type: ignore[call-overload]
    ):
        if _in_file(hub.settings.database_url):
            _add_database(archive, listed, "hub.db", _database_file(hub.settings))
        for folder in _FOLDERS:
            for path in sorted((hub.folder / folder).rglob("*")):
                # Names with a dot are locks, which are meaningless elsewhere.
                if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                    _add_file(archive, listed, path.relative_to(hub.folder).as_posix(), path)
        _add(archive, listed, "signing.key.sealed", hub.keys.seal(hub.signing_key_file.read_bytes(), _KEY_LABEL))
        if _in_file(hub.settings.ledger_url):
            _add_database(archive, listed, "ledger.db", Path(hub.settings.ledger))
        manifest = {
            "form": FORM,
            "software": f"cloister {__version__}",
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "files": listed,
        }
        # Sealed, so that a copy cannot be changed: an attacker could add an operator to the database.
        _add(archive, {}, _MANIFEST, hub.keys.seal(json.dumps(manifest).encode(), _MANIFEST_LABEL))
    return len(listed)


class _Sealing:
    """File that seals its content, one megabyte at a time."""

    def __init__(self, raw: IO[bytes], keys: MasterKey) -> None:
        self._raw, self._key, self._rest, self._at, self._number = raw, os.urandom(32), bytearray(), 0, 0
        raw.write(_MAGIC + keys.seal(self._key, _FILE_KEY_LABEL))

    def write(self, data: bytes) -> int:
        """Write the next bytes."""
        self._rest += data
        self._at += len(data)
        while len(self._rest) > _PIECE:  # one piece is kept back: the last one is marked as last
            self._put(bytes(self._rest[:_PIECE]), last=False)
            del self._rest[:_PIECE]
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._at

    def _put(self, piece: bytes, last: bool) -> None:
        self._raw.write(seal(self._key, piece, _piece_label(self._number, last)))
        self._number += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._put(bytes(self._rest), last=True)


class _Unsealing(io.RawIOBase):
    """Sealed file, decrypted as it is read."""

    def __init__(self, raw: IO[bytes], keys: MasterKey) -> None:
        super().__init__()
        self._raw, self._at, self._kept = raw, 0, (-1, b"")
        self._begin = len(_MAGIC) + 32 + OVERHEAD
        raw.seek(len(_MAGIC))
        self._key = keys.open(raw.read(32 + OVERHEAD), _FILE_KEY_LABEL)
        length = raw.seek(0, os.SEEK_END) - self._begin
        self._pieces = max(1, -(-length // (_PIECE + OVERHEAD)))
        self._size = max(0, length - self._pieces * OVERHEAD)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position."""
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer."""
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < len(view) and self._at < self._size:
            number, within = divmod(self._at, _PIECE)
            part = self._piece(number)[within:][: len(view) - filled]
            view[filled : filled + len(part)] = part
            filled += len(part)
            self._at += len(part)
        return filled

    def _piece(self, number: int) -> bytes:
        if self._kept[0] != number:
            self._raw.seek(self._begin + number * (_PIECE + OVERHEAD))
            sealed = self._raw.read(_PIECE + OVERHEAD)
            self._kept = number, unseal(self._key, sealed, _piece_label(number, number == self._pieces - 1))
        return self._kept[1]


def _piece_label(number: int, last: bool) -> str:
    return f"piece {number} of a backup{', the last' if last else ''}"


@contextmanager
def opened(file: Path, keys: MasterKey) -> Iterator[tarfile.TarFile]:
    """Open the archive in a copy.

    Raises:
        SealBroken: it was changed or cut off, or was sealed with another master key.
    """
    with file.open("rb") as raw:
        sealed = raw.read(len(_MAGIC)) == _MAGIC
        raw.seek(0)
        plain: Any = io.BufferedReader(_Unsealing(raw, keys), _PIECE) if sealed else raw
        with tarfile.open(fileobj=plain, mode="r:") as archive:
            yield archive


def _in_file(url: str) -> bool:
    return not url or url.startswith("sqlite")


def _by_hand(settings: Settings) -> list[str]:
    notes = []
    for word, url, order in (
        ("database", settings.database_url, "before this copy"),
        ("ledger", settings.ledger_url, "after it"),
    ):
        if not _in_file(url):
            notes.append(f"The {word} is in PostgreSQL and not in the file: copy it with pg_dump, {order}.")
    return [
        *notes,
        "The master key is not in the file. Keep a copy of it elsewhere: without it nothing can be restored.",
        "The ledger's head is not in the file either. Keep it on another disk (CLOISTER_HEAD_FILE) or print it.",
    ]


def _database_file(settings: Settings) -> Path:
    return Path(sa.make_url(settings.database).database or "")


def _add_database(archive: tarfile.TarFile, listed: dict[str, str], name: str, path: Path) -> None:
    """Add a consistent snapshot of a database that others may be writing to."""
    with copy_folder(path.parent) as folder:
        copy = folder / name
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
        _add_file(archive, listed, name, copy)


def _add(archive: tarfile.TarFile, listed: dict[str, str], name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    archive.addfile(entry, io.BytesIO(content))
    listed[name] = hashlib.sha256(content).hexdigest()


def _add_file(archive: tarfile.TarFile, listed: dict[str, str], name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            entry = tarfile.TarInfo(name)
            # A file may grow while it is copied: its length now counts.
            entry.size, entry.mode = os.fstat(file.fileno()).st_size, 0o600
            counted = _Hashing(file)
            archive.addfile(entry, counted)
    except FileNotFoundError:
        return  # shredded at this moment
    listed[name] = counted.digest.hexdigest()


class _Hashing:
    """File that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes."""
        content = self.file.read(size)
        self.digest.update(content)
        return content


# Back


def restore(file: Path, settings: Settings, master_key: Path | None = None) -> Copied:
    """Restore a hub from a copy into the settings' folder, which must be empty or missing. It will refuse to spend.

    The master key must be where the settings say, or in the file named here, which is copied. All users are signed out
    and every token ends, since a user whose access ended after the copy would have it again; owners are asked to check
    their policies, which may be older versions.
    """
    folder = settings.folder
    if folder.exists() and any(path.name != "master.key" for path in folder.iterdir()):
        raise NotNow(f"{folder} is not empty. Restore into a new folder.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    own_key = Path(settings.master_key_file or folder / "master.key")
    if master_key is not None:
        if own_key.exists():
            raise NotNow(f"there is a master key in {own_key} already. Remove it, or leave --master-key out.")
        _write_secret(own_key, master_key.read_bytes())
    try:
        try:
            keys = MasterKey.load(settings)
            with opened(file, keys) as archive:
                manifest = _manifest(archive, keys)
        except CloisterError:
            if master_key is not None:  # it does not fit: leave the folder as it was
                own_key.unlink()
            raise
        # Before the database is there: a restore that is killed is treated as one all the same.
        restored.mark(folder, str(manifest["time"]))
        with opened(file, keys) as archive:
            for name, digest in manifest["files"].items():
                _extract(archive, name, digest, _place(name, settings))
    except (tarfile.TarError, OSError) as error:
        raise StoreFailed(f"{file} cannot be restored ({type(error).__name__}). Is it a whole copy?") from None
    sealed = folder / "signing.key.sealed"
    _write_secret(folder / "signing.key", keys.open(sealed.read_bytes(), _KEY_LABEL))
    sealed.unlink()
    for name in (*_FOLDERS, "uploads"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    Hub.open(settings).close()  # it ends what the copy brought back; and again if a database is loaded later
    return Copied(folder, len(manifest["files"]), tuple(_what_next(settings)))


def _manifest(archive: tarfile.TarFile, keys: MasterKey) -> dict[str, Any]:
    try:
        member = archive.extractfile(_MANIFEST)
        if member is None:
            raise KeyError
        manifest: dict[str, Any] = json.loads(keys.open(member.read(), _MANIFEST_LABEL))
        if manifest["form"] != FORM:
            raise ValueError
    except (KeyError, ValueError, RecursionError):
        raise StoreFailed("this is not a whole copy made by `cloister hub backup`. Restore another one.") from None
    return manifest


def _place(name: str, settings: Settings) -> Path:
    """Return the path of a file of the copy."""
    if name == "hub.db":
        return _database_file(settings)
    if name == "ledger.db":
        return Path(settings.ledger)
    parts = PurePosixPath(name).parts
    assert ".." not in parts
    assert name == "signing.key.sealed" or parts[0] in _FOLDERS
    return settings.folder.joinpath(*parts)


def _extract(archive: tarfile.TarFile, name: str, digest: str, target: Path) -> None:
    try:
        member = archive.extractfile(name)
    except KeyError:
        member = None
    if member is None:
        raise LedgerBroken(f"{name} is missing from the copy. Restore another one.")
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    counted = _Hashing(member)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while piece := counted.read(1024 * 1024):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if counted.digest.hexdigest() != digest:
        raise LedgerBroken(f"{name} in the copy is not what was copied. Restore another one.")


def _write_secret(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _what_next(settings: Settings) -> list[str]:
    return [
        "The hub refuses to spend until the newest head of its ledger is shown: cloister hub show-head HEAD. Every "
        "receipt holds one; show the newest receipt there is.",
        "Accounts that were closed since the copy are open again: go through the list of people and close them.",
        "If the copy does not contain it, what was spent since is unknown: cloister hub write-off DATASET, for each.",
        *(
            f"The {word} is in PostgreSQL: restore it with pg_restore."
            for word, url in (("database", settings.database_url), ("ledger", settings.ledger_url))
            if not _in_file(url)
        ),
    ]
