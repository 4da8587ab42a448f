"""The bytes of a report: whole numbers little-endian, bits from the lowest of the first byte, integers in 32 bits."""

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Reports

__all__ = ["encode"]


def encode(reports: Reports) -> NDArray[np.uint8]:
    """One row of `width` bytes a person."""
    width, data = reports.mechanism.width, reports.data
    if reports.mechanism.kind == "number":
        return data.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    if reports.mechanism.kind == "vector":
        return data.astype("<i4").view(np.uint8).reshape(-1, width)
    return np.asarray(data, dtype=np.uint8)
