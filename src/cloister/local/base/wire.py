"""The bytes of a report: integers little-endian, bits from the lowest of the first byte, rows in 32-bit integers."""

from collections.abc import Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.counts import valid
from cloister.local.base.oracle import Oracle, Reports

__all__ = ["encode", "decode"]


# From received bytes to rows that can be counted; the rest is refused and counted.


def decode(mechanism: Oracle, wire: Any) -> tuple[Reports, int]:
    """Return the well-formed reports, and the number refused.

    Args:
        mechanism: the public facts.
        wire: a uint8 array with one row a report, one byte string (reports back to back), or a list of byte strings.
            Anything else is refused: as many reports as it has members, or one.
    """
    rows, refused = _rows(wire, mechanism.width)
    data = _data(mechanism, rows)
    good = valid(mechanism, data) & _tight(mechanism, rows)
    return Reports(mechanism, data[good]), refused + int(len(good) - np.count_nonzero(good))


def _rows(wire: Any, width: int) -> tuple[NDArray[np.uint8], int]:
    """Return rows of exactly `width` bytes, and the number that had another size or were no bytes."""
    if isinstance(wire, bytes | bytearray | memoryview):
        text = bytes(wire)
        count, rest = divmod(len(text), width)
        return np.frombuffer(text[: count * width], dtype=np.uint8).reshape(-1, width), int(rest > 0)
    if isinstance(wire, np.ndarray):
        if wire.dtype == np.uint8 and wire.ndim == 2 and wire.shape[1] == width:
            return wire, 0
        return np.empty((0, width), dtype=np.uint8), len(wire) if wire.ndim else 1
    if isinstance(wire, list | tuple):
        good = [report for report in wire if isinstance(report, bytes | bytearray) and len(report) == width]
        return np.frombuffer(b"".join(good), dtype=np.uint8).reshape(-1, width), len(wire) - len(good)
    return np.empty((0, width), dtype=np.uint8), len(wire) if isinstance(wire, Sized) else 1


def _data(mechanism: Oracle, rows: NDArray[np.uint8]) -> NDArray[Any]:
    if mechanism.kind == "number":
        padded = np.zeros((len(rows), 8), dtype=np.uint8)
        padded[:, : mechanism.width] = rows
        return padded.view("<u8").ravel()
    if mechanism.kind == "vector":
        return np.ascontiguousarray(rows).view("<i4").reshape(len(rows), mechanism.domain)
    return rows


def _tight(mechanism: Oracle, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return True if the bits beyond the last one that counts are 0: a report has one encoding."""
    spare = 8 * mechanism.width - mechanism.bits
    return np.asarray(rows[:, -1] >> np.uint8(8 - spare) == 0) if spare else np.ones(len(rows), dtype=np.bool_)


def encode(reports: Reports) -> NDArray[np.uint8]:
    """Return one row of `width` bytes a person."""
    width, data = reports.mechanism.width, reports.data
    if reports.mechanism.kind == "number":
        return data.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    if reports.mechanism.kind == "vector":
        return data.astype("<i4").view(np.uint8).reshape(-1, width)
    return np.asarray(data, dtype=np.uint8)
