"""What every privacy model says of a class: whether it holds, and how many rows go at least where it does not."""

import math
from typing import ClassVar

import numpy as np

from cloister.anonymize.classes import EquivalenceClasses
from cloister.anonymize.coded import Array, CodedColumn
from cloister.privacy.errors import BadInput

__all__ = ["SLACK", "Model", "excess", "refuse_below", "refuse_fraction", "shares_of"]

SLACK = 1e-9  # shares that are equal on paper may differ by rounding


class Model:
    """A privacy model: a condition on every class.

    For all of them, a class that is made of classes that satisfy it satisfies it too, as long as what they are compared
    with stays the same. So if a class fails, no finer classes of the same rows all satisfy it.

    Attributes:
        column: the sensitive column, or None.
        shrinks: True if a class that satisfies it still does after any other class is merged with it.
        relative: True if it compares a class with the whole release, so that suppressing others changes its verdict.
    """

    column: str | None
    shrinks: ClassVar[bool] = False
    relative: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the sensitive columns that it is about."""
        return () if self.column is None else (self.column,)

    @property
    def label(self) -> str:
        """Return the condition in a few words, such as k=5."""
        return self._words()

    def holds(self, classes: EquivalenceClasses, kept: Array) -> Array:
        """Return for each class whether it satisfies the model, if only the classes `kept` are released."""
        if self.column is None:
            return self._sized(classes)
        whole = classes.totals(self.column, kept)
        holds = np.empty(classes.number, bool)
        for part, counts in classes.chunks(self.column):
            holds[part] = self._judge(counts, whole, classes.sensitive[self.column])
        return holds

    def least_removed(self, classes: EquivalenceClasses, room: int) -> Array:
        """Return for each class how many of its rows are suppressed at least, however it is cut into finer classes.

        A lower bound over all releases that suppress at most `room` rows of the table: no search can do with less.
        """
        fails = ~self.holds(classes, np.ones(classes.number, bool)) & (classes.sizes > 0)
        if self.shrinks:
            return np.where(fails, classes.sizes, 0)  # each part of a class that fails does, too
        if self.column is None or not fails.any():
            return fails.astype(np.int64)
        whole = classes.totals(self.column, np.ones(classes.number, bool))
        least = np.empty(classes.number)
        for part, counts in classes.chunks(self.column):
            least[part] = self._least(counts, whole, classes.sensitive[self.column], room)
        # What is compared with the table as it is cannot be mended without suppressing anything.
        certain = 0 if self.relative and room else 1
        return np.where(fails, np.clip(np.ceil(least - 1e-6), certain, classes.sizes), 0).astype(np.int64)

    def strain(self, classes: EquivalenceClasses, kept: Array) -> Array:
        """Return by how much each class misses a relative model, above 0 where it fails: the worst is suppressed first.

        The least that is suppressed among models that judge each class by itself is exactly the classes that fail.
        """
        return np.where(self.holds(classes, kept), 0.0, 1.0)

    def _words(self) -> str:
        raise NotImplementedError

    def _sized(self, classes: EquivalenceClasses) -> Array:
        """Judge classes by their sizes: for models without a sensitive column."""
        raise NotImplementedError

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        """Judge classes by how often each sensitive value occurs in them, and in the whole release."""
        raise NotImplementedError

    def _least(self, counts: Array, whole: Array, column: CodedColumn, room: int) -> Array:
        """Return a lower bound of the rows that each class must lose; 0 says nothing."""
        return np.zeros(len(counts))


def excess(most: Array, sizes: Array, share: Array | float) -> Array:
    """Return how many rows go at least until `most` rows of one value are at most a share of the class."""
    share = np.minimum(np.asarray(share, float) * (1 + SLACK), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(share < 1, np.maximum(most - share * sizes, 0.0) / (1.0 - share), 0.0)


def shares_of(counts: Array) -> Array:
    """Return counts as shares of their class."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))


def refuse_fraction(name: str, number: object) -> None:
    """Refuse a parameter that is no whole number of at least 1."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise BadInput(f"{name} must be a whole number of at least 1.")


def refuse_below(name: str, number: object, least: float) -> None:
    """Refuse a parameter that is no number of at least `least`."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < least:
        raise BadInput(f"{name} must be a number of at least {least}.")
