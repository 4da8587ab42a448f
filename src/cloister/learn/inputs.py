"""What comes in: arrays, frames, tables. Everything that decides a shape, a scale or a class is public and given.

Values beyond the bounds are clipped; a missing value is an error unless a public fill is given; and no error says more
about the data than that, and only for shapes and types, which the caller chose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadBounds, BadInput, BadSchema

__all__ = ["Box", "codes", "is_dataset", "read_box", "read_classes", "read_rows"]


@dataclass(frozen=True, slots=True)
class Box:
    """Public bounds of every feature."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def clip(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows within the bounds."""
        return np.clip(rows, self.low, self.high)

    def to_unit(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rows clipped and scaled so that the bounds become 0 and 1."""
        return (self.clip(rows) - self.low) / (self.high - self.low)


def read_box(bounds: Any, features: int) -> Box:
    """Bounds for all features alike, (low, high), or for each, (lows, highs) or a (features, 2) array."""
    if bounds is None:
        raise BadBounds(
            "bounds are public and must be given: bounds=(0, 1) for all features, or bounds=(lows, highs). "
            "Deriving them from the data would leak; bounds='find' pays for finding them."
        )
    try:
        low, high = bounds
        lows, highs = (np.broadcast_to(np.asarray(end, dtype=np.float64), (features,)).copy() for end in (low, high))
    except (TypeError, ValueError):
        raise BadBounds(f"bounds are (low, high), or (lows, highs) with {features} numbers each.") from None
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and (lows < highs).all()):
        raise BadBounds("every lower bound must be below its upper bound, and both finite.")
    return Box(lows, highs)


def read_rows(rows: Any, fill: float | None = None) -> NDArray[np.float64]:
    """A table of numbers. NaN becomes the public fill, or is refused; infinities are clipped later."""
    from sklearn.utils.validation import check_array

    finite: Any = "allow-nan" if fill is not None else True
    table = np.asarray(
        check_array(rows, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=0, ensure_min_features=1)
    )
    return table if fill is None else np.where(np.isnan(table), fill, table)


def codes(labels: Any, classes: Sequence[Any]) -> NDArray[np.int64]:
    """The place of each label in the public list of classes; a label that is not in it counts for no class: -1."""
    listed = np.asarray(classes)
    given = np.asarray(labels)
    if given.ndim != 1:
        raise BadInput("y is one column of labels.")
    order = np.argsort(listed, kind="stable")
    try:
        place = np.searchsorted(listed[order], given).clip(0, len(listed) - 1)
        found = order[place]
        return np.where(listed[found] == given, found, -1).astype(np.int64)
    except TypeError:
        raise BadInput("the labels have another type than the classes. Write them alike.") from None


def read_classes(classes: Any) -> NDArray[Any]:
    """The public list of classes."""
    if classes is None:
        raise BadSchema(
            "the classes are public and must be given: classes=[0, 1]. Reading them off y would tell which occur."
        )
    listed = np.unique(np.asarray(classes))
    if listed.ndim != 1 or len(listed) < 2:
        raise BadSchema("classes is a list of at least two different labels.")
    return listed


def is_dataset(thing: object) -> bool:
    """Whether it is a Cloister dataset: tables, and an account that pays."""
    return hasattr(thing, "tables") and hasattr(thing, "account")
