"""Faults of queries: bounds, caps, groups, averages and histograms."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cloister.attack.zoo.mechanisms import count, counts
from cloister.attack.zoo.twins import Draw, Twins, of_kind
from cloister.privacy.loss import epsilon
from cloister.privacy.noise import Source, discrete_laplace

__all__ = ["QUERIES"]

_BOUND = 10  # public bound of all values
_ABSENT = -(10**6)  # stands for a group that an answer does not list


def _sum_with_bounds_of_the_rows(data: Sequence[int], n: int, source: Source) -> Any:
    return sum(data) + discrete_laplace(max(data), n, source)


def _clipped_sum(data: Sequence[int], n: int, source: Source) -> Any:
    return sum(np.clip(data, 0, _BOUND)) + discrete_laplace(_BOUND, n, source)


def _unclipped_sum(data: Sequence[int], n: int, source: Source) -> Any:
    return sum(data) + discrete_laplace(_BOUND, n, source)


def _average(share: int) -> Draw:
    """Return a noisy sum and a noisy number of rows, each at epsilon / share."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        total = sum(data) + discrete_laplace(share * _BOUND, n, source)
        return np.column_stack((total, len(data) + discrete_laplace(share, n, source)))

    return draw


def _groups_that_have_rows(data: Mapping[str, int], n: int, source: Source) -> Any:
    noisy = counts(1)(list(data.values()), n, source)
    return np.where(np.array(list(data.values())) > 0, noisy, _ABSENT)


def _groups_that_are_listed(data: Mapping[str, int], n: int, source: Source) -> Any:
    return counts(1)(list(data.values()), n, source)


def _groups_above(threshold: int) -> Draw:
    """Return noisy counts of groups, and nothing of those at most at the threshold."""

    def draw(data: Mapping[str, int], n: int, source: Source) -> Any:
        noisy = _groups_that_have_rows(data, n, source)
        return np.where(noisy > threshold, noisy, _ABSENT)

    return draw


def _all_rows(data: Sequence[int], n: int, source: Source) -> Any:
    """Count all rows of all people: data has the number of rows of each."""
    return sum(data) + discrete_laplace(1, n, source)


def _capped_rows(data: Sequence[int], n: int, source: Source) -> Any:
    return sum(min(rows, 2) for rows in data) + discrete_laplace(2, n, source)


def _joined_then_counted(data: Sequence[int], n: int, source: Source) -> Any:
    """Count a join with a public table in which each key is there three times."""
    return 3 * len(data) + discrete_laplace(1, n, source)


def _joined_and_capped(data: Sequence[int], n: int, source: Source) -> Any:
    return 3 * len(data) + discrete_laplace(3, n, source)


def _histogram(*, public: bool) -> Draw:
    """Return five noisy bins, between public limits or between the smallest and the largest row."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        limits = (0, 100) if public else (min(data), max(data))
        return np.histogram(data, bins=5, range=limits)[0] + discrete_laplace(1, (n, 5), source)

    return draw


def _small_counts_hidden(data: int, n: int, source: Source) -> Any:
    return np.zeros(n, dtype=int) if data < 5 else count(1)(data, n, source)


def _small_answers_hidden(data: int, n: int, source: Source) -> Any:
    noisy = count(1)(data, n, source)
    return np.where(noisy < 5, 0, noisy)


def _new_noise_for_each_repeat(data: int, n: int, source: Source) -> Any:
    return data + discrete_laplace(1, (n, 10), source)


def _one_answer_repeated(data: int, n: int, source: Source) -> Any:
    return np.repeat((data + discrete_laplace(1, n, source))[:, None], 10, axis=1)


def _centred(*, public: bool) -> Draw:
    """Return the noisy number of rows above a centre: the exact mean of the rows, or a public value."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        centre = 5 if public else np.mean(data)
        return int((np.asarray(data) > centre).sum()) + discrete_laplace(1, n, source)

    return draw


_twins = of_kind("query")


QUERIES: tuple[Twins, ...] = (
    _twins(
        "bounds read from the rows",
        "The noise of a sum is scaled to the largest value in the data instead of a public bound.",
        _sum_with_bounds_of_the_rows, _clipped_sum, [1] * 9, [1] * 9 + [10], epsilon(1),
    ),
    _twins(
        "values that are not clipped",
        "The noise is for values up to 10, and a row of 200 is added as it is.",
        _unclipped_sum, _clipped_sum, [1] * 9, [1] * 9 + [200], epsilon(1),
    ),
    _twins(
        "an average that is charged once",
        "Sum and number of rows are two releases; each may cost half.",
        _average(1), _average(2), [10] * 5, [10] * 6, epsilon(1),
    ),
    _twins(
        "groups read from the rows",
        "The list of groups shows that somebody is the first of a group.",
        _groups_that_have_rows, _groups_that_are_listed, {"a": 3, "b": 0}, {"a": 3, "b": 1}, epsilon(1),
        reference="Desfontaines, Voss, Gipson & Mandayam 2022, Differentially private partition selection",
    ),
    _twins(
        "groups found with a threshold that is too low",
        "A group of one row passes a threshold of 2 far more often than delta; 1 + ln(1 / (2 delta)) is needed.",
        _groups_above(2), _groups_above(15), {"a": 3, "b": 0}, {"a": 3, "b": 1}, epsilon(1, delta="1e-6"),
        reference="Desfontaines, Voss, Gipson & Mandayam 2022, Differentially private partition selection",
    ),
    _twins(
        "a person's rows without a cap",
        "The noise is for one row, and a person has twenty.",
        _all_rows, _capped_rows, [1, 1, 1], [1, 1, 1, 20], epsilon(1),
    ),
    _twins(
        "a cap for each group instead of each person",
        "One row a group is kept, and a person has a row in each of five groups.",
        counts(1), counts(5), [4] * 5, [5] * 5, epsilon(1),
    ),
    _twins(
        "a join that copies rows after the cap",
        "Each row is there three times after the join, and the noise is for one.",
        _joined_then_counted, _joined_and_capped, [1] * 5, [1] * 6, epsilon(1),
    ),
    _twins(
        "bins between the smallest and the largest row",
        "One extreme row moves every other row into another bin.",
        _histogram(public=False), _histogram(public=True), list(range(10)), [*range(10), 100], epsilon(1),
    ),
    _twins(
        "small counts hidden before the noise",
        "That a count is hidden depends on the exact count.",
        _small_counts_hidden, _small_answers_hidden, 4, 5, epsilon(1),
    ),
    _twins(
        "new noise for each repeat of a question",
        "Ten answers to one question are charged as one; the average has less noise than was paid for.",
        _new_noise_for_each_repeat, _one_answer_repeated, 0, 1, epsilon(1),
    ),
    _twins(
        "rows centred by their exact mean",
        "The preparation reads the rows and is not charged.",
        _centred(public=False), _centred(public=True), [4] * 20, [4] * 20 + [0], epsilon(1),
    ),
)  # fmt: skip
