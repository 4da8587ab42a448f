"""Two answers of one person, each perturbed separately: their scores combined.

    (level, report, level, report) of each person ──► groups of equal levels ──► scores ──► products ──► means, errors

Why the product of two scores is unbiased. Let x and y be a person's answers, s and t the scores of the two reports. A
device draws the noise of every report anew, so given (x, y) the reports are independent, and

    E[s_a t_b | x, y] = E[s_a | x] · E[t_b | y] = 1[x = a] · 1[y = b].

The mean of s_a t_b over people is therefore unbiased for the share who answered a and b, however x and y are related,
and for sets and numbers alike. A weighted mean over groups is unbiased too if levels were chosen independently of the
answers and the weights do not depend on the reports: here they are public variances, as in `combine`.

The cost: the variance of a product is about the product of the variances. A jointly perturbed question (its domain the
product of both) has less error at the same total epsilon, but must be asked as such.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from cloister.local.analysis.scores import scores
from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Floats, Oracle
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput

__all__ = [
    "ReportGroup",
    "Match",
    "PairMoments",
    "Weights",
    "choice_of_level",
    "joint_groups",
    "matches",
    "matched_groups",
    "moments",
    "power",
]

# Levels and reports of one person's two answers.
Match = tuple[str, bytes, str, bytes]
Weights = Literal["variance", "people"]
# An empirical variance of fewer people is not trusted below the public one: products of scores are skewed.
_FEW = 30


@dataclass(frozen=True, slots=True, eq=False)
class ReportGroup:
    """People who chose the same levels.

    Attributes:
        levels: of both questions, or of the joint one.
        mechanisms: likewise.
        first: scores of the first answer, one row a person; numbers count from the middle of their bounds.
        second: likewise.
        joint: scores of both together, if they were perturbed jointly: people by values by values.
        spread: the public mean square of a product of scores, for answers spread evenly.
        weight: the weight of the group; all weights add up to 1.
    """

    levels: tuple[str, ...]
    mechanisms: tuple[Oracle, ...]
    first: Floats
    second: Floats
    joint: Floats | None
    spread: float
    weight: float = 0.0

    @property
    def n(self) -> int:
        """The number of people."""
        return len(self.first)


@dataclass(frozen=True, slots=True, eq=False)
class PairMoments:
    """Weighted means over all groups, and the variances and covariances of these means.

    Attributes:
        joint, rows, columns: means of products, and of the scores of either answer alone.
        joint_variance, row_variance, column_variance: of these means, sampling error included.
        with_row, with_column: covariance of each product's mean with the mean of its row, and of its column.
    """

    joint: Floats
    rows: Floats
    columns: Floats
    joint_variance: Floats
    row_variance: Floats
    column_variance: Floats
    with_row: Floats
    with_column: Floats


def matches(submissions: Iterable[Mapping[str, Any]], first: str, second: str) -> list[Match]:
    """Return the people who answered both questions, from submissions with (level, report) by question id."""
    return [
        (*submission[first], *submission[second])
        for submission in submissions
        if first in submission and second in submission
    ]


def matched_groups(
    first: Question, second: Question, matched: Iterable[Match], weights: Weights = "variance"
) -> list[ReportGroup]:
    """Return groups of equal levels, weighted by n / spread, or by n alone."""
    if first.id == second.id:
        raise BadInput("a cross-table is of two different questions.")
    rows = list(matched)
    if not rows:
        raise BadInput(f"nobody answered both {first.id} and {second.id}, so there is nothing to compare.")
    levels, reports, others, reports_too = zip(*rows, strict=True)
    s, t = _scored(first, levels, reports), _scored(second, others, reports_too)
    people: dict[tuple[str, str], list[int]] = {}
    for index, pair in enumerate(zip(levels, others, strict=True)):
        people.setdefault(pair, []).append(index)
    groups = []
    for pair in sorted(people):
        left, right = first.at(pair[0]), second.at(pair[1])
        groups.append(
            ReportGroup(pair, (left, right), s[people[pair]], t[people[pair]], None, power(left) * power(right))
        )
    return _weighted(groups, weights)


def joint_groups(
    question: Question, sizes: tuple[int, int], told: Iterable[tuple[str, bytes]], weights: Weights = "variance"
) -> list[ReportGroup]:
    """Return groups of equal levels of a question whose values are pairs: code = first · sizes[1] + second."""
    if question.kind != "choice" or question.levels[0].domain != sizes[0] * sizes[1]:
        raise BadInput("a joint question has a value for each pair: as many as the product of both sizes.")
    sorted_out: dict[str, list[bytes]] = {}
    for level, report in told:
        sorted_out.setdefault(level, []).append(report)
    if not sorted_out:
        raise BadInput(f"nobody answered {question.id}, so there is nothing to compare.")
    groups = []
    for level in sorted(sorted_out):
        mechanism = question.at(level)
        both = scores(mechanism, sorted_out[level]).reshape(-1, *sizes)
        groups.append(ReportGroup((level,), (mechanism,), both.sum(axis=2), both.sum(axis=1), both, power(mechanism)))
    return _weighted(groups, weights)


@lru_cache(maxsize=512)  # exact rationals, requested repeatedly
def power(mechanism: Oracle) -> float:
    """Return the mean square of a score from public facts: the noise, and the answer if answers are spread evenly."""
    if isinstance(mechanism, NumberMechanism):
        return mechanism.worst_variance + sum(float(high - low) ** 2 for low, high in mechanism.ends) / 12
    return mechanism.mse(1) + getattr(mechanism, "most", 1) / mechanism.domain


def _scored(question: Question, levels: Sequence[str], reports: Sequence[bytes]) -> Floats:
    """Return the scores of all people, in their order; of numbers, from the middle of their bounds."""
    members: dict[str, list[int]] = {}
    for index, level in enumerate(levels):
        members.setdefault(level, []).append(index)
    each = np.empty((len(levels), len(question.names)))
    for level, indices in members.items():
        mechanism = question.at(level)
        each[indices] = scores(mechanism, [reports[index] for index in indices])
        if isinstance(mechanism, NumberMechanism):
            each[indices] -= float(mechanism.low + mechanism.high) / 2
    return each


def _weighted(groups: Sequence[ReportGroup], weights: Weights) -> list[ReportGroup]:
    """Return public weights that add up to 1."""
    if weights not in ("variance", "people"):
        raise BadInput(f"weights are 'variance' or 'people', got {weights!r:.40}.")
    sizes = np.array([group.n / (group.spread if weights == "variance" else 1.0) for group in groups])
    return [
        ReportGroup(group.levels, group.mechanisms, group.first, group.second, group.joint, group.spread, float(share))
        for group, share in zip(groups, sizes / sizes.sum(), strict=True)
    ]


def moments(groups: Sequence[ReportGroup]) -> PairMoments:
    """Return means over groups and their empirical variances within each group. No model of the answers is needed.

    They hold for a population of which the respondents are a random sample, and are slightly too large for the
    respondents alone.
    """
    each = [(_products(group) if group.joint is None else _pairs(group, group.joint), group) for group in groups]
    sums = [sum(group.weight * terms[index] for terms, group in each) for index in range(3)]
    spreads = [sum(group.weight**2 / group.n * terms[index] for terms, group in each) for index in range(3, 8)]
    return PairMoments(*(np.asarray(part) for part in (*sums, *spreads)))


def choice_of_level(groups: Sequence[ReportGroup]) -> float | None:
    """Return the p value of the difference between groups if levels were chosen independently of the answers.

    A chi-squared test for each product, and the least p value times their number; over groups that are large enough for
    it. None if there are fewer than two.
    """
    from scipy.special import chdtrc  # here, because scipy takes longer to import than this package

    large = [group for group in groups if group.n >= _FEW]
    if len(large) < 2:
        return None
    each = [_products(group) if group.joint is None else _pairs(group, group.joint) for group in large]
    joint = np.stack([terms[0] for terms in each])
    spread = np.stack([np.maximum(terms[3], 1e-12) / group.n for terms, group in zip(each, large, strict=True)])
    centre = (joint / spread).sum(axis=0) / (1 / spread).sum(axis=0)
    distance = ((joint - centre) ** 2 / spread).sum(axis=0)
    return float(min(1.0, joint[0].size * chdtrc(len(joint) - 1, distance).min()))


def _products(group: ReportGroup) -> tuple[Floats, ...]:
    s, t, n = group.first, group.second, group.n
    joint, rows, columns = s.T @ t / n, s.mean(axis=0), t.mean(axis=0)
    squares = (
        np.square(s).T @ np.square(t) / n - joint**2,
        np.square(s).mean(axis=0) - rows**2,
        np.square(t).mean(axis=0) - columns**2,
        np.square(s).T @ t / n - joint * rows[:, None],
        s.T @ np.square(t) / n - joint * columns,
    )
    return joint, rows, columns, *_trusted(group, squares, *(power(mechanism) for mechanism in group.mechanisms))


def _pairs(group: ReportGroup, both: Floats) -> tuple[Floats, ...]:
    s, t, n = group.first, group.second, group.n
    joint, rows, columns = both.mean(axis=0), s.mean(axis=0), t.mean(axis=0)
    squares = (
        both.var(axis=0),
        s.var(axis=0),
        t.var(axis=0),
        np.einsum("nab,na->ab", both, s) / n - joint * rows[:, None],
        np.einsum("nab,nb->ab", both, t) / n - joint * columns,
    )
    return joint, rows, columns, *_trusted(group, squares, *(group.spread * size for size in reversed(joint.shape)))


def _trusted(group: ReportGroup, squares: tuple[Floats, ...], first: float, second: float) -> list[Floats]:
    """Return unbiased variances; for few people, at least the public ones."""
    unbiased = [square * (group.n / max(group.n - 1, 1)) for square in squares]
    if group.n < _FEW:
        least = group.spread, first, second
        unbiased[:3] = [np.maximum(variance, public) for variance, public in zip(unbiased, least, strict=False)]
    return unbiased
