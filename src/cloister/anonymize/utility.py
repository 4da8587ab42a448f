"""How much a release keeps: measures of information loss, each between the original and the released rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cloister.anonymize.coded import Array

__all__ = ["ReleasedColumn", "Utility", "measure_utility"]


@dataclass(frozen=True)
class ReleasedColumn:
    """A quasi-identifier before and after.

    Attributes:
        name: of the column.
        codes: the original value of each row.
        labels: the label of each row.
        words: the text of each label.
        penalty: the share of the domain that each row's label stands for; 0 if it is one value.
    """

    name: str
    codes: Array
    labels: Array
    words: Sequence[Any]
    penalty: Array


@dataclass(frozen=True)
class Utility:
    """Information loss of a release; every number but the class sizes is between 0 (all kept) and 1 (nothing).

    Attributes:
        certainty_penalty: mean share of the domain that a cell stands for; a suppressed row counts as 1 (NCP).
        columns: the same for each quasi-identifier.
        discernibility: sum of squared class sizes, plus all rows for each suppressed one, over its largest value.
        average_class: mean number of rows of a class.
        normalised_average_class: the same over the smallest class that is allowed; 1 is the best.
        entropy_loss: bits lost about the original values, over the bits that they had.
        suppressed: share of the rows that were removed.
        classification: share of rows whose class has another majority value, for the first sensitive column.
    """

    certainty_penalty: float
    columns: Mapping[str, float]
    discernibility: float
    average_class: float
    normalised_average_class: float
    entropy_loss: float
    suppressed: float
    classification: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the measures as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            ("certainty penalty", self.certainty_penalty, "share of the domain that a cell stands for"),
            ("entropy loss", self.entropy_loss, "share of the information of quasi-identifiers that is gone"),
            ("discernibility", self.discernibility, "share of pairs of rows that look alike"),
            ("suppressed rows", self.suppressed, "share of the rows"),
        ]
        text = [f"{name:20} {value:8.4f}   {what}" for name, value, what in lines]
        text.append(f"{'rows of a class':20} {self.average_class:8.1f}   on average")
        if self.classification is not None:
            text.append(
                f"{'classification':20} {self.classification:8.4f}   share of rows outside their class's majority"
            )
        return "\n".join(text)


def measure_utility(
    columns: Sequence[ReleasedColumn],
    of_row: Array,
    kept: Array,
    smallest: int,
    *,
    sensitive: Array | None = None,
    weights: Mapping[str, float] | None = None,
) -> Utility:
    """Return the information loss of a release.

    Args:
        columns: the quasi-identifiers.
        of_row: the class of each row.
        kept: False for suppressed rows.
        smallest: number of rows that a class must have.
        sensitive: codes of a sensitive column.
        weights: of the columns in the certainty penalty and the entropy loss.
    """
    rows = len(kept)
    share = np.array([(weights or {}).get(column.name, 1.0) for column in columns])
    share = share / share.sum()
    penalties = {column.name: float(np.where(kept, column.penalty, 1.0).mean()) for column in columns}
    entropies = [_entropy_loss(column, kept) for column in columns]
    sizes = np.bincount(of_row[kept]) if kept.any() else np.zeros(1, np.int64)
    sizes = sizes[sizes > 0].astype(np.float64)
    removed = rows - int(kept.sum())
    mean = float(sizes.mean()) if sizes.size else 0.0
    return Utility(
        certainty_penalty=float(share @ np.array(list(penalties.values()))),
        columns=penalties,
        discernibility=float((sizes**2).sum() + removed * rows) / rows**2,
        average_class=mean,
        normalised_average_class=mean / max(1, smallest),
        entropy_loss=float(share @ np.array(entropies)),
        suppressed=removed / rows,
        classification=None if sensitive is None else _minority(of_row, sensitive, kept),
    )


def _entropy_loss(column: ReleasedColumn, kept: Array) -> float:
    """Return the share of a column's entropy that its labels lose; a suppressed cell loses all of it."""
    values = np.bincount(column.codes)
    before = -np.log2(values[column.codes] / len(column.codes))  # bits of each cell
    if not before.sum():
        return 0.0
    label = column.labels[kept].astype(np.int64)
    pairs = np.sort(label * (int(column.codes.max()) + 1) + column.codes[kept])
    counts = np.diff(np.append(np.flatnonzero(np.diff(pairs, prepend=-1)), len(pairs)))
    # A row of a label with n rows, c of them with its value, loses log2(n / c) bits.
    lost = before[~kept].sum() + _bits(np.bincount(label)) - _bits(counts)
    return float(np.clip(lost / before.sum(), 0.0, 1.0))


def _bits(counts: Array) -> float:
    present = counts[counts > 0].astype(np.float64)
    return float(present @ np.log2(present))


def _minority(of_row: Array, sensitive: Array, kept: Array) -> float:
    width = int(sensitive.max()) + 1
    keys, counts = np.unique(of_row[kept].astype(np.int64) * width + sensitive[kept], return_counts=True)
    most = np.zeros(int(of_row.max()) + 1, np.int64)
    np.maximum.at(most, keys // width, counts)
    return float(1.0 - most.sum() / len(kept))
