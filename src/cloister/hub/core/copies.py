"""Folders for plaintext copies of the database, which hold wrapped keys and must not outlive their process."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["copy_folder", "remove_orphaned_copies"]

_PREFIX = "copying-"
_SETTLED_S = 60  # a folder younger than this may be about to be locked


@contextmanager
def copy_folder(place: Path) -> Iterator[Path]:
    """Make a folder that only this user can enter; it is removed at the end, or by the next process after a kill."""
    remove_orphaned_copies(place)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_orphaned_copies(place: Path) -> int:
    """Remove folders whose process has ended without removing them; return their number."""
    removed, long_ago = 0, time.time() - _SETTLED_S
    for folder in place.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # removed meanwhile
            continue
        try:
            if os.fstat(lock).st_ctime < long_ago:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
        except BlockingIOError:  # in use
            pass
        finally:
            os.close(lock)
    return removed
