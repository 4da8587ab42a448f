"""Sources of random bits: the operating system, expanded by a stream cipher.

Each thread has its own AES-256-CTR stream, keyed from `os.urandom`, rekeyed after 1 GiB and after every fork, so no
two threads or processes ever share bits. The state cannot be read: there is no seed to print and no way to rewind.
"""

import hashlib
import math
import os
import threading
from typing import Protocol, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from cloister.privacy.errors import BadNumber

__all__ = ["SYSTEM", "SeededSource", "Source", "SystemSource", "fork_count"]

Size = int | tuple[int, ...]
_Unsigned = TypeVar("_Unsigned", np.uint8, np.uint16, np.uint32, np.uint64)

_BUFFER = 1 << 13
_REKEY_AFTER = 1 << 30


class _Stream:
    """A keyed stream of bytes; small requests are served from a buffer."""

    __slots__ = ("_at", "_buffer", "_cipher", "left")

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self._buffer = b""
        self._at = 0
        self.left = _REKEY_AFTER

    def take(self, count: int) -> bytes:
        self.left -= count
        if count > _BUFFER // 4:
            return self._cipher.update(bytes(count))
        if self._at + count > len(self._buffer):
            self._buffer = self._cipher.update(bytes(_BUFFER))
            self._at = 0
        start, self._at = self._at, self._at + count
        return self._buffer[start : start + count]


class Source(Protocol):
    """A source of bits. `private` is True if its noise gives protection."""

    private: bool

    def bytes(self, count: int) -> bytes:
        """Return this many fresh random bytes."""

    def floats(self, size: Size) -> NDArray[np.float64]:
        """Return uniform floats in (0, 1), only for textbook mechanisms and simulations: floats leak secrets."""
        shape = (size,) if isinstance(size, int) else size
        integers = words(math.prod(shape), np.uint64, self) >> np.uint64(12)
        return np.asarray(integers * 2.0**-52 + 2.0**-53, dtype=np.float64).reshape(shape)


class SystemSource(Source):
    """Secret randomness from the operating system, the only source whose noise gives protection."""

    private = True

    def __init__(self) -> None:
        self._local = threading.local()

    def bytes(self, count: int) -> bytes:
        """Return this many fresh random bytes."""
        while True:
            generation = _generation
            stream: _Stream | None = getattr(self._local, "stream", None)
            # A signal handler or a finaliser may draw during this call: it finds no stream and creates its own.
            self._local.stream = None
            if stream is None or stream.left < count or self._local.generation != generation:
                stream = _Stream(os.urandom(32))
            drawn = stream.take(count)
            self._local.generation = generation
            self._local.stream = stream
            if generation == _generation:  # otherwise this process was forked during the call, and both hold it
                return drawn


class SeededSource(Source):
    """Repeatable bits for lessons and tests. Releases that use it are marked `not private`.

    >>> SeededSource(7).bytes(4) == SeededSource(7).bytes(4)
    True
    """

    private = False

    def __init__(self, seed: int | str | bytes) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | str | bytes):
            raise BadNumber(f"a seed is an int, str or bytes, got a {type(seed).__name__}.")
        text = seed if isinstance(seed, bytes) else str(seed).encode()
        self._stream = _Stream(hashlib.sha256(b"cloister seeded source:" + text).digest())
        self._lock = threading.Lock()

    def bytes(self, count: int) -> bytes:
        """Return the next bytes of the seed's stream."""
        with self._lock:
            return self._stream.take(count)


_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_forked)


def fork_count() -> int:
    """Return how many forks lead to this process: noise drawn ahead belongs to the process that drew it."""
    return _generation


SYSTEM = SystemSource()


def integer(bits: int, source: Source) -> int:
    """Draw a uniform Python integer of this many bits."""
    count = (bits + 7) // 8
    return int.from_bytes(source.bytes(count), "little") >> (8 * count - bits)


def words(count: int, kind: type[_Unsigned], source: Source) -> NDArray[_Unsigned]:
    """Return a read-only array of uniform unsigned integers."""
    return np.frombuffer(source.bytes(count * np.dtype(kind).itemsize), dtype=kind)
