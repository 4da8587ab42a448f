"""Files that are opened once, checked, and read through their descriptors: later changes of a name have no effect.

    folder/people.parquet ── opened without following a link ── a descriptor ── private/folder/people.parquet
                                                                                a link to /proc/self/fd/N

Every component of a path is opened from the one before it, and a link is refused at each. Engines are given the paths
in the private folder, which always lead to the files that were checked.
"""

import os
import resource
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloister.data.engines.duckdb import private_folder, remove_private_folder
from cloister.privacy.errors import BadSource

__all__ = ["PinnedFiles", "PinnedTable"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not make us wait
_MOST_FILES = 4_000
_MOST_ENTRIES = 20_000  # in all folders walked
_DEEPEST = 32
_SPARE = 256  # descriptors reserved for other uses
_Identity = tuple[int, int]


class PinnedFiles:
    """All Parquet files under a folder, held open.

    Args:
        folder: an absolute path without links.

    Raises:
        BadSource: there is no such folder; it or one of its parents is a link; or it holds links, files with several
            names, or too many entries.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._private, lock = private_folder()
        descriptors: list[int] = []
        self._close = weakref.finalize(self, _let_go, self._private, lock, os.getpid(), descriptors)
        try:
            self._seen = dict(_walk(folder, descriptors))
            for (relative, _), descriptor in zip(self._seen.items(), descriptors, strict=True):
                link = self._place(relative)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(f"/proc/self/fd/{descriptor}")
        except BaseException:
            self.close()
            raise

    def _place(self, relative: str) -> Path:
        # With the whole path, since parts such as year=2026 are read as a column.
        return Path(self._private) / self.folder.relative_to("/") / relative

    def table(self, names: Sequence[str], whole: bool = False) -> "PinnedTable | None":
        """Return the first file, or folder with files in it, with one of these names.

        Args:
            whole: if True, take all files where none has such a name and some are in the folder itself.
        """
        for name in names:
            if name in self._seen:
                return PinnedTable(self, self._place(name), (self._place(name),))
            if below := [path for path in self._seen if path.startswith(f"{name}/")]:
                return PinnedTable(self, self._place(name), tuple(map(self._place, below)))
        if whole and any("/" not in path and path.endswith(".parquet") for path in self._seen):
            return PinnedTable(self, self._place("."), tuple(map(self._place, self._seen)))
        return None

    def unchanged(self) -> bool:
        """Return True if the folder still holds these files under these names, and no others."""
        try:
            return dict(_walk(self.folder)) == self._seen
        except BadSource:
            return False

    def close(self) -> None:
        """Close the files."""
        self._close()


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """The files of one table.

    Attributes:
        source: the `PinnedFiles` that holds them open.
        path: the file, or the folder that they are in, in the private folder.
        files: every file.
    """

    source: PinnedFiles
    path: Path
    files: tuple[Path, ...]


def _let_go(folder: str, lock: int, process: int, descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
    remove_private_folder(folder, lock, process)


def _walk(folder: Path, descriptors: list[int] | None = None) -> Iterator[tuple[str, _Identity]]:
    """Yield every Parquet file under a folder: its relative path and identity. With `descriptors`, they stay open."""
    entries = 0

    def inside(parent: int, path: str, depth: int) -> Iterator[tuple[str, _Identity]]:
        nonlocal entries
        names = sorted(os.listdir(parent))
        entries += len(names)
        if entries > _MOST_ENTRIES or depth > _DEEPEST:
            raise BadSource("the folder holds too many files and folders. Put the tables into one of their own.")
        for name in names:
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):
                    raise BadSource("the folder holds a link. Put the files themselves there.")
                if stat.S_ISDIR(status.st_mode):
                    with _opened(name, parent) as below:
                        yield from inside(below, f"{path}{name}/", depth + 1)
                elif name.lower().endswith((".parquet", ".pq")):
                    yield f"{path}{name}", _identity(name, parent, descriptors)
            except OSError:  # it has become something else since it was listed, or cannot be read
                raise BadSource("a file of the folder cannot be read, or was changed just now. Try again.") from None

    with ExitStack() as stack:
        try:
            current = stack.enter_context(_opened("/", None))
            for part in folder.parts[1:]:
                current = stack.enter_context(_opened(part, current))
        except OSError:
            raise BadSource("there is no such folder, or a link leads to it.") from None
        yield from inside(current, "", 0)


@contextmanager
def _opened(name: str, parent: int | None) -> Iterator[int]:
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _identity(name: str, parent: int, descriptors: list[int] | None) -> _Identity:
    if descriptors is not None and len(descriptors) >= _MOST_FILES:
        raise BadSource(f"the folder holds more than {_MOST_FILES:,} Parquet files. Write fewer and larger ones.")
    if descriptors is not None:
        _make_room(len(descriptors))
    descriptor = os.open(name, _FILE, dir_fd=parent)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadSource("the folder holds something that is no file. Put files alone there.")
        if status.st_nlink > 1:  # its other name may be in another user's folder
            raise BadSource("a file of the folder has a second name (a hard link). Copy it instead.")
    except BaseException:
        os.close(descriptor)
        raise
    if descriptors is None:
        os.close(descriptor)
    else:
        descriptors.append(descriptor)
    return status.st_dev, status.st_ino


def _make_room(count: int) -> None:
    """Raise this process's limit on open files as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count + _SPARE:
        most = 2 * (count + _SPARE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most if hard == resource.RLIM_INFINITY else min(hard, most), hard))
