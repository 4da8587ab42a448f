"""Cross-tables of two questions: from matched reports, each perturbed separately, or from one joint question."""

from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from cloister.local.analysis.linked.cross_table_result import CrossTable
from cloister.local.analysis.linked.group_means import GroupMeans, by_group
from cloister.local.analysis.linked.independence import independence
from cloister.local.analysis.linked.influence import poisoned
from cloister.local.analysis.linked.pairs import (
    Match,
    PairMoments,
    ReportGroup,
    Weights,
    choice_of_level,
    joint_groups,
    matched_groups,
    moments,
)
from cloister.local.analysis.ratio import Ratio, ratio
from cloister.local.base.projection import norm_sub
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput
from cloister.privacy.mechanisms.checks import confidence_left
from cloister.privacy.number import Number

__all__ = ["CrossTable", "cross", "cross_joint"]


def cross(
    first: Question,
    second: Question,
    matched: Iterable[Match],
    confidence: Number = "0.95",
    fakes: int | None = None,
    private: bool = True,
    weights: Weights = "variance",
) -> CrossTable | GroupMeans:
    """Estimate the joint distribution of two answers, perturbed separately and matched by submission.

    A pair's share is the weighted mean of the product of both reports' scores: unbiased, since the noise of two reports
    is independent given the answers (proof in `cloister.local.analysis.linked.pairs`). If one question asks for a
    number, the result is its mean within each group of the other answer.

    Args:
        first: its values are rows.
        second: its values are columns.
        matched: level and report on the first question, level and report on the second, for each person who answered
            both: see `cloister.local.analysis.linked.pairs.matches`.
        confidence: of each interval individually.
        fakes: the number of made-up submissions to bound; default one in a hundred.
        private: False if the randomness of any report was seeded.
        weights: `"variance"`: by public variances: the least error, unbiased if levels were chosen independently of the
            answers. `"people"`: by the people at each pair of levels: unbiased however they chose, at a larger
            error. `selection` tests whether the two differ.

    Privacy: post-processing. The collector knows that two reports belong to one person: a respondent's loss is the sum
        over all questions answered.
    """
    kinds = [question.kind for question in (first, second)]
    if kinds == ["number", "number"]:
        raise BadInput("two numbers have no cross-table. Ask one of them in ranges, as a choice.")
    groups = matched_groups(first, second, matched, weights)
    if "number" in kinds:
        return by_group(first, second, groups, confidence, fakes, private)
    ids, names = (first.id, second.id), (first.names, second.names)
    return _table(
        ids,
        names,
        "matched",
        groups,
        [question.kind == "choice" for question in (first, second)],
        confidence,
        fakes,
        private,
    )


def cross_joint(
    question: Question,
    names: tuple[Sequence[str], Sequence[str]],
    reports: Iterable[tuple[str, bytes]],
    confidence: Number = "0.95",
    fakes: int | None = None,
    private: bool = True,
    ids: tuple[str, str] = ("first", "second"),
    weights: Weights = "variance",
) -> CrossTable:
    """Estimate the table from one question that asked for both answers and perturbed them jointly.

    Args:
        question: its values are pairs: code = index in the first list · length of the second + index in the second.
        names: of the values of both answers.
        reports: level and report of each person.
        confidence: of each interval individually.
        fakes: the number of made-up reports to bound; default one in a hundred.
        private: False if the randomness of any report was seeded.
        ids: the names of the two answers.
        weights: as in `cross`.

    Privacy: post-processing.
    """
    groups = joint_groups(question, (len(names[0]), len(names[1])), reports, weights)
    return _table(ids, names, "joint", groups, [True, True], confidence, fakes, private)


def _table(
    ids: tuple[str, str],
    names: tuple[Sequence[str], Sequence[str]],
    how: Literal["matched", "joint"],
    groups: list[ReportGroup],
    adds_up: list[bool],
    confidence: Number,
    fakes: int | None,
    private: bool,
) -> CrossTable:
    left = float(confidence_left(confidence))
    z = NormalDist().inv_cdf(1 - left / 2)
    pairs = moments(groups)
    error = np.sqrt(np.maximum(pairs.joint_variance, 0))
    # Where noise is small and hardly any respondent gave both answers, an empirical variance is too small: for an empty
    # cell it is 0. Adding (z/n)² extends intervals as far up as Wilson's; where noise is large, it is negligible.
    unseen = (z * sum(group.weight**2 / group.n for group in groups)) ** 2
    half = z * np.sqrt(error**2 + unseen)
    size = pairs.joint.shape
    possible = norm_sub(pairs.joint.ravel()).reshape(size) if all(adds_up) else np.clip(pairs.joint, 0.0, 1.0)
    return CrossTable(
        ids=ids,
        names=names,
        how=how,
        raw=pairs.joint,
        standard_error=error,
        interval=(pairs.joint - half, pairs.joint + half),
        projected=possible,
        of_row=_of_rows(pairs, unseen, z),
        of_column=_of_columns(pairs, unseen, z),
        rows_raw=pairs.rows,
        columns_raw=pairs.columns,
        independence=independence(groups, *adds_up),
        selection=choice_of_level(groups),
        poisoning=poisoned(groups, fakes),
        people={group.levels: group.n for group in groups},
        weights={group.levels: group.weight for group in groups},
        effective=min(group.spread for group in groups) * sum(group.n / group.spread for group in groups),
        confidence=1 - left,
        private=private,
    )


def _of_rows(pairs: PairMoments, unseen: float, z: float) -> Ratio:
    total, spread = pairs.rows[:, None], pairs.row_variance[:, None]
    return ratio(pairs.joint, total, pairs.joint_variance + unseen, pairs.with_row, spread, z)


def _of_columns(pairs: PairMoments, unseen: float, z: float) -> Ratio:
    spread = pairs.joint_variance + unseen
    return ratio(pairs.joint, pairs.columns, spread, pairs.with_column, pairs.column_variance, z)
