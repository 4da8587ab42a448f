"""Sealed pieces of an upload: files named by their first byte, read together as one file.

Each piece is sealed under the upload's id and its own offset, so pieces can be neither exchanged, moved, repeated nor
mixed with those of another upload. A missing piece is detected, since the next one does not follow on.
"""

import io
import os
import secrets
import shutil
from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path
from typing import Any

from cloister.hub.core.keys import OVERHEAD, seal, subkey, unseal
from cloister.privacy.errors import SealBroken

__all__ = ["Chunks", "ChunkReader"]

_KEPT = 6  # decrypted pieces kept in memory: a Parquet file is read in several places at once


class Chunks:
    """Folder of one upload.

    Args:
        folder: the folder of all uploads.
        upload: the upload's id.
        key: the dataset's data key.
    """

    def __init__(self, folder: Path, upload: str, key: bytes) -> None:
        self.folder = folder / upload
        self._upload, self._key = upload, subkey(key, f"upload {upload}")

    def write(self, offset: int, data: bytes) -> Path:
        """Seal a piece and write it durably under a temporary name; see `keep`."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        waiting = self.folder / f"waiting-{secrets.token_hex(8)}"
        descriptor = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(seal(self._key, data, self._label(offset)))
            file.flush()
            os.fsync(file.fileno())
        return waiting

    def keep(self, waiting: Path, offset: int) -> None:
        """Rename a written piece to its final name. A file left there by a crash was never counted, and is replaced."""
        waiting.replace(self.folder / f"{offset:016x}")
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, offset: int) -> bytes:
        """Return one piece, decrypted."""
        try:
            sealed = (self.folder / f"{offset:016x}").read_bytes()
        except OSError:
            raise SealBroken(f"a piece of upload {self._upload} is missing.") from None
        return unseal(self._key, sealed, self._label(offset))

    def open(self, size: int) -> "ChunkReader":
        """Open all pieces as one file of `size` bytes."""
        return ChunkReader(self, size)

    def offsets(self, size: int) -> list[int]:
        """Return the offsets of the pieces; together they cover `size` bytes without a gap."""
        begins, at = [], 0
        while at < size:
            try:
                length = (self.folder / f"{at:016x}").stat().st_size - OVERHEAD
            except OSError:
                length = 0
            if length <= 0:
                raise SealBroken(f"a piece of upload {self._upload} is missing.")
            begins.append(at)
            at += length
        if at != size:
            raise SealBroken(f"the pieces of upload {self._upload} are longer than what was received.")
        return begins

    def remove(self) -> None:
        """Delete every piece."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _label(self, offset: int) -> str:
        return f"upload {self._upload} at {offset}"


class ChunkReader(io.RawIOBase):
    """Seekable file that decrypts in memory as it is read."""

    def __init__(self, chunks: Chunks, size: int) -> None:
        super().__init__()
        self._chunks, self._size, self._at = chunks, size, 0
        self._begins = chunks.offsets(size)
        self._kept: OrderedDict[int, bytes] = OrderedDict()

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
        """Fill the buffer across pieces: a Parquet reader takes a short read for the end of the file."""
        view, filled = memoryview(buffer).cast("B"), 0
        while filled < len(view) and self._at < self._size:
            begin = self._begins[bisect_right(self._begins, self._at) - 1]
            part = memoryview(self._piece(begin))[self._at - begin :][: len(view) - filled]
            view[filled : filled + len(part)] = part
            filled += len(part)
            self._at += len(part)
        return filled

    def _piece(self, begin: int) -> bytes:
        if begin not in self._kept:
            self._kept[begin] = self._chunks.read(begin)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(begin)
        return self._kept[begin]
