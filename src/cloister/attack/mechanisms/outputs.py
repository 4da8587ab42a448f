"""Convert outputs of a mechanism to a matrix of numbers: one row per run, int64 or float64."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draws", "Outputs", "as_outputs"]

Outputs = NDArray[Any]
Draws = Sequence[Any] | NDArray[Any]


def as_outputs(left: Draws, right: Draws) -> tuple[Outputs, Outputs]:
    """Return both sides in the same form. Outputs that are not numbers of one shape become labels."""
    matrices = _matrix(left), _matrix(right)
    if matrices[0] is None or matrices[1] is None or matrices[0].shape[1] != matrices[1].shape[1]:
        return _labels(left), _labels(right)
    kind = np.result_type(*matrices)
    return matrices[0].astype(kind, copy=False), matrices[1].astype(kind, copy=False)


def _matrix(values: Draws) -> Outputs | None:
    try:
        array = np.asarray(values)
    except ValueError:  # numpy raises this for rows of different lengths
        return None
    if array.dtype == object or array.dtype.kind == "u":
        array = _whole_numbers(array)
    if array.dtype.kind not in "bif":
        return None
    wide = array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)
    return wide.reshape(len(wide), -1)


def _whole_numbers(array: Outputs) -> Outputs:
    """Return big integers as int64 if they fit, else as floats; anything else unchanged."""
    if array.dtype == object and not all(isinstance(value, int | np.integer) for value in array.flat):
        return array
    fits = not array.size or max(abs(int(array.max())), abs(int(array.min()))) < 2**63
    return array.astype(np.int64 if fits else np.float64)


def _labels(values: Draws) -> Outputs:
    """Return a hash of each output, so that the number depends only on the output."""
    hashes: dict[str, int] = {}
    for text in map(repr, values):
        if text not in hashes:
            hashes[text] = int.from_bytes(blake2b(text.encode(), digest_size=6).digest())
    return np.array([hashes[repr(value)] for value in values], dtype=np.int64).reshape(-1, 1)
