"""The head stored outside the ledger: a small file at a path chosen by the owner, best on another disk.

It is written after the database has committed, so it is never ahead of the true ledger. An older head is harmless:
the ledger still contains it. A restored older ledger does not contain the stored head.

The file is one line of fixed length, overwritten in place: it fits into one sector of a disk, which is written whole or
not at all, needs no new space on a full disk, and can be locked (a lock would be lost with a rename).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloister.privacy.errors import HeadRejected, StoreFailed
from cloister.privacy.ledger.head import Head

__all__ = ["HeadFile"]

_LENGTH = 200


class HeadFile:
    """A file with one head in it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()

    def read(self) -> Head | None:
        """Return the head in the file; None if there is no file or no valid head."""
        if not self.path.exists():
            return None
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as file:
            return _parse(file)

    def advance(self, head: Head) -> None:
        """Store this head, unless another process has stored a newer one."""
        self._write(head, only_forward=True)

    def replace(self, head: Head) -> None:
        """Store this head unconditionally: over an invalid head, or one whose ledger the owner wrote off."""
        self._write(head, only_forward=False)

    def _write(self, head: Head, only_forward: bool) -> None:
        with self._locked(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as file:
            kept = _parse(file)
            if kept is None or not only_forward or kept.number < head.number:
                os.pwrite(file, f"{head}".ljust(_LENGTH - 1).encode("ascii") + b"\n", 0)
                os.fdatasync(file)

    @contextmanager
    def _locked(self, mode: int, lock: int) -> Iterator[int]:
        file = None
        try:
            file = os.open(self.path, mode, 0o644)
            fcntl.flock(file, lock)
            yield file
        except OSError as error:
            raise StoreFailed(
                f"the head cannot be kept at {self.path} ({error.strerror}). What was charged stays charged; "
                "nothing was released. Free disk space or repair the path, then ask again."
            ) from None
        finally:
            if file is not None:
                os.close(file)


def _parse(file: int) -> Head | None:
    try:
        return Head.parse(os.pread(file, _LENGTH, 0).decode("ascii"))
    except (HeadRejected, UnicodeDecodeError):
        return None
