"""Noisy votes: the labels that leave, and what they cost whatever the votes are.

    all queries at once    Gaussian noise on every count for a rho: L2 distance sqrt(2 q) for q queries
                           one noisy maximum for each query for a pure epsilon: a count moves by at most one
    confident              first a noisy test for each query, whether enough teachers agree; labels for those that pass

Every loss here is data-independent: calibrated to the largest change of any votes. A loss computed from the votes
(Papernot et al. 2018, Theorem 6) is itself private: data_dependent.py publishes a noisy bound of it, which is no claim.

Papernot et al. 2018, algorithm 1 (Confident-GNMax). The tests are one release and the labels another: of a fixed number
of tests at a fixed price each, the first `queries` that pass are labelled with all that the labels may cost.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.integer_rows import Integers
from cloister.learn.pate.data_dependent import SHARE, DataDependent, order_for, published
from cloister.learn.pate.teachers import counted
from cloister.privacy.filter import BudgetShare, PrivacyFilter, noise_for
from cloister.privacy.mechanisms import DiscreteGaussian, NoisyMax, root_above

__all__ = [
    "CHECKED",
    "Labels",
    "after_tests",
    "agreement",
    "confident_labels",
    "counter",
    "data_dependent",
    "for_labels",
    "labels_of",
    "usual_queries",
    "vote_noise",
]

CHECKED = 2  # tests for each label that may be bought
_TESTS = Fraction(1, 4)  # of the spend, for the tests
_TEACHERS = Fraction(1, 20)  # of the spend, for the check of the teachers
_BINS = 10


@dataclass(frozen=True, slots=True)
class Labels:
    """Released labels of public rows.

    Attributes:
        positions: of the labelled rows in the public pool.
        codes: their classes.
        agreement: noisy number of teachers by the share of these labels that they voted for, in ten equal bins; None
            unless it was bought.
        data_dependent: their sanitised data-dependent loss; None unless it was bought.
    """

    positions: Integers
    codes: Integers
    agreement: NDArray[np.int64] | None = None
    data_dependent: DataDependent | None = None


def labels_of(meter: PrivacyFilter, budget: BudgetShare, counts: Callable[[], Integers], queries: int) -> Integers:
    """Return the noisy plurality of each query.

    Args:
        meter, budget: the filter to charge, and all that the labels may cost.
        counts: returns the votes: queries × classes. Called inside a step.
        queries: number of rows, public.

    Privacy: the budget. One teacher changes one vote for each query: L2 distance sqrt(2 queries) of all counts; each
        count moves by at most one, which is what report-noisy-max needs.
    """
    if not queries:
        return np.zeros(0, dtype=np.int64)
    if not budget.pure:
        noisy: Integers = np.asarray(meter.release(counts, vote_noise(budget, queries)))
        return np.asarray(noisy.argmax(axis=1), dtype=np.int64)
    each = NoisyMax.for_loss(1, budget.part(Fraction(1, queries)), noise="geometric")
    return np.array([meter.release(partial(_row, counts, i), each) for i in range(queries)], dtype=np.int64)


def vote_noise(budget: BudgetShare, queries: int) -> DiscreteGaussian:
    """Return the noise on every count of votes, for a rho."""
    return DiscreteGaussian.for_loss(root_above(2 * queries), budget.loss)


def _row(counts: Callable[[], Integers], row: int) -> Integers:
    return np.asarray(counts()[row])


def confident_labels(
    meter: PrivacyFilter,
    budget: BudgetShare,
    counts: Callable[[], Integers],
    *,
    tests: int,
    most: int,
    threshold: int,
) -> tuple[Integers, Integers]:
    """Return the queries on which enough teachers agree, and their noisy plurality.

    Args:
        meter, budget: the filter to charge, and all of its cost.
        counts: returns the votes of the tested rows. Called inside a step.
        tests: number of rows that are tested.
        most: largest number of labels.
        threshold: votes that the largest class needs, before noise.

    Privacy: the budget: a quarter for the tests (the largest count of a row moves by at most one: L2 distance
        sqrt(tests), L1 distance tests), the rest for the labels. Which rows pass is released.
    """
    noise = noise_for(root_above(tests), tests, budget.part(_TESTS))
    largest = np.asarray(meter.release(lambda: counts().max(axis=1), noise))
    passed = np.flatnonzero(largest >= threshold)[:most].astype(np.int64)
    return passed, labels_of(meter, after_tests(budget), lambda: counts()[passed], len(passed))


def agreement(
    meter: PrivacyFilter, budget: BudgetShare, votes: Callable[[], Integers], codes: Integers
) -> NDArray[np.int64]:
    """Return the noisy number of teachers by their agreement with released labels.

    Teachers on parts of one law agree alike. Some that stand apart show parts of another law, or failed fits.

    Args:
        meter, budget: the filter to charge, and the whole spend, of which a twentieth is used.
        votes: returns the votes on the labelled rows: teachers × rows.
        codes: the released labels.

    Privacy: a twentieth of the spend: a unit changes one teacher, which moves from one bin to another: L1 distance 2,
        L2 distance sqrt(2).
    """

    def bins() -> Integers:
        shares = (votes() == codes).mean(axis=1) if len(codes) else np.zeros(len(votes()))
        return np.bincount(np.minimum((shares * _BINS).astype(np.int64), _BINS - 1), minlength=_BINS).astype(np.int64)

    return np.asarray(meter.release(bins, noise_for(root_above(2), 2, budget.part(_TEACHERS))), dtype=np.int64)


def for_labels(budget: BudgetShare, *, check: bool, report: bool) -> BudgetShare:
    """Return what the check of the teachers and the data-dependent report leave of the spend."""
    return BudgetShare(budget.part(1 - check * _TEACHERS - report * SHARE))


def after_tests(budget: BudgetShare) -> BudgetShare:
    """Return what the tests of confident labels leave for the labels."""
    return BudgetShare(budget.part(1 - _TESTS))


def data_dependent(
    meter: PrivacyFilter,
    budget: BudgetShare,
    labels: BudgetShare,
    counts: Callable[[], Integers],
    *,
    queries: int,
    teachers: int,
    delta: float,
) -> DataDependent:
    """Return the sanitised data-dependent loss of a fit.

    Args:
        meter, budget: the filter to charge, and the whole spend, of which a twentieth is used.
        labels: what the labels have cost.
        counts: returns the votes of the labelled rows: queries × classes. Called inside a step.
        queries, teachers: their numbers, public.
        delta: the delta at which the epsilon is stated.

    Privacy: a twentieth of the spend (data_dependent.py).
    """
    order, share = order_for(labels, delta), BudgetShare(budget.part(SHARE))
    sigma = float(vote_noise(labels, max(queries, 1)).sigma)
    told = published(meter, share, counts, teachers=teachers, sigma=sigma, order=order)
    rest = order * float(budget.loss.amount - labels.loss.amount)
    return DataDependent(order, min(told, order * float(labels.loss.amount)), rest, delta)


def usual_queries(budget: BudgetShare, teachers: int, classes: int, rows: int) -> int:
    """Return a number of queries for which teachers that mostly agree outvote the noise. Uses public facts alone.

    A gap of 0.7 of the teachers should be two standard deviations of the difference of two counts, sqrt(2 q / rho); for
    a pure epsilon three times the scale 2 q / epsilon. A student averages the few labels that noise turns.
    """
    gap, amount = 0.7 * teachers, float(budget.loss.amount)
    queries = gap * amount / 6 if budget.pure else amount * (gap / 2) ** 2 / 2
    return max(1, min(rows, max(2 * classes, math.floor(queries))))


def counter(votes: Callable[[], Integers], classes: int) -> Callable[[], Integers]:
    """Return a function that counts votes once, when it is first called inside a step."""
    kept: list[Integers] = []

    def counts() -> Integers:
        if not kept:
            kept.append(counted(votes(), classes))
        return kept[0]

    return counts
