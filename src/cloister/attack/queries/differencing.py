"""Differencing attacks: two exact averages reveal the person between them."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from cloister.privacy.errors import BadNumber
from cloister.privacy.number import Number, rational

__all__ = ["Mean", "between", "the_missing_one"]


@dataclass(frozen=True, slots=True)
class Mean:
    """A published average and the number of people behind it."""

    value: Number
    people: int

    def total(self) -> Fraction:
        """Return the sum over the people."""
        if self.people < 1:
            raise BadNumber(f"an average needs at least one person, got {self.people!r}.")
        return rational(self.value, "average") * self.people


def between(before: Mean, after: Mean) -> Fraction:
    """Return the sum over people who joined between two averages: for one newcomer, the exact value.

    >>> between(Mean(55_000, 100), Mean(56_000, 101))
    Fraction(156000, 1)
    """
    return after.total() - before.total()


def the_missing_one(published: Mean, known: Iterable[Number]) -> Fraction:
    """Return the value of the one person, given the values of all others.

    >>> the_missing_one(Mean(6, 5), [4, 7, 6, "5.5"])
    Fraction(15, 2)
    """
    values = [rational(value, "known value") for value in known]
    if len(values) != published.people - 1:
        raise BadNumber(f"all but one of {published.people} values must be known, got {len(values)}.")
    return published.total() - sum(values)
