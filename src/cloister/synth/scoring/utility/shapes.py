"""Each column by itself: the shares of its values or bins, real and synthetic."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cloister.synth.scoring.rows import EncodedRows, ScoreRows

__all__ = ["ColumnShape", "label", "shapes"]

_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """The shares of a column.

    Attributes:
        name: name of the column.
        ordered: whether its labels have an order.
        labels: descriptions; the last stands for missing, if any value is.
        real, synthetic: the share of each.
    """

    name: str
    ordered: bool
    labels: tuple[str, ...]
    real: tuple[float, ...]
    synthetic: tuple[float, ...]

    @property
    def error(self) -> float:
        """Return half the L1 distance."""
        return sum(abs(a - b) for a, b in zip(self.real, self.synthetic, strict=True)) / 2

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        return {
            "column": self.name,
            "labels": list(self.labels),
            "real": list(self.real),
            "synthetic": list(self.synthetic),
        }


def shapes(real: ScoreRows, synthetic: ScoreRows) -> tuple[ColumnShape, ...]:
    """Return the shares of all columns."""
    return tuple(_shape(real, synthetic, j) for j in range(len(real.sides)))


def _shape(real: ScoreRows, synthetic: ScoreRows, j: int) -> ColumnShape:
    side = real.sides[j]
    frequencies = [np.bincount(rows.codes[:, j], minlength=side.size) / max(len(rows), 1) for rows in (real, synthetic)]
    missing = frequencies[0][-1] + frequencies[1][-1] > 0
    labels = [label(side, code) for code in range(len(side.labels))] + (["missing"] if missing else [])
    shares = [tuple(float(x) for x in frequency[: len(labels)]) for frequency in frequencies]
    return ColumnShape(side.name, side.ordered, tuple(labels), shares[0], shares[1])


def label(side: EncodedRows, code: int) -> str:
    """Return the label of a code; for a bin, its start: the first whole number or day in it."""
    value = side.labels[code]
    if not isinstance(value, tuple):
        return str(value)
    if side.column.type == "date":
        return str(np.datetime64(int(np.ceil(value[0])), "D"))
    if side.column.type == "timestamp":
        return _moment(side.axis.origin + int(value[0]), side.axis.ends or value)
    if side.column.type == "integer":
        return f"{side.axis.value(value[0]):,}"
    return f"{value[0]:,.6g}"


def _moment(start: int, ends: Sequence[float]) -> str:
    """Format the start of a bin, only as precisely as needed to distinguish it, so that labels fit side by side."""
    moment, span = np.datetime64(start, "us"), ends[-1] - ends[0]
    if min(high - low for low, high in pairwise(ends)) >= _DAY:
        return str(moment.astype("datetime64[D]"))
    words = str(moment.astype("datetime64[m]")).replace("T", " ")
    if span < _DAY:
        return str(moment.astype("datetime64[s]"))[11:]
    return words[5:] if span < 300 * _DAY else words
