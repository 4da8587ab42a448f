"""Micro-aggregated Gaussians: sets of columns, groups of rows, a Gaussian for each group, with every step private.

    1  measure the counts of every column, in each class of the label (one_way.py)
    2  measure the means and products of all columns; sets of correlated columns follow (attribute_sets.py)
    3  within each set partition the rows into groups of about k (partition.py)
    4  measure the mean and covariance of every group (moments.py), shrunk towards those of all rows (shrinkage.py)
    5  sample rows from the Gaussians of the groups (gaussian.py), each set by itself, and match them to the counts

The textbook's case study (attribute-level micro-aggregation and a multivariate Gaussian generative model) has steps 2
to 5 without the counts, and adds noise in the fourth only. Columns grouped by raw correlations and rows by MDAV depend
on all rows, so the sensitivity of one group's mean does not bound that of the table; here each step is charged.
Smaller groups do not lower the noise either: a mean over k rows moves by 2/k, and in a small group the noise dominates.
Steps dominated by noise are therefore skipped and their share goes to the others: with few rows for the spend there is
one group, and with fewer still columns depend on each other through the label only.

Measured on Adult (15 columns in 32 bins, 32,561 rows, delta 1e-9; score 0 is columns shuffled by themselves and 1 a
bootstrap; means of three tables): -0.18, 0.33 and 0.52 at epsilon 0.1, 1 and 10, where one table of `synth.independent`
has -0.32, -0.04 and -0.01. With almost no noise (epsilon 1000) it is also about 0.5: Gaussians represent only linear
dependence, and `synth.aim` is the better choice for categories. Without the counts, and without shrinkage, the
score was -1.4 at epsilon 1: covariances of rare categories were noise, expectations from them were not probabilities,
and single columns alone were off by 0.14 of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, sqrt
from typing import Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.data.statistics import GroupKey
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.domain.coarsening import nonnegative
from cloister.synth.domain.domain import Positions
from cloister.synth.domain.features import ONE, Features, check_features
from cloister.synth.measure.attribute_sets import Linkage, attribute_sets, cleared, correlations, pooled
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Floats, Measurer, deviation
from cloister.synth.measure.moments import GroupMoments, law_of_moments, measure_moments
from cloister.synth.measure.one_way import OneWayMarginals, measure_one_way
from cloister.synth.measure.partition import Leaf, depth_of, leaf_key, partition
from cloister.synth.measure.shrinkage import shrunk
from cloister.synth.model.gaussian import GaussianModel, GaussianPart, nearest_covariance
from cloister.synth.options import check_flag, check_number, check_whole
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["mggm"]


# Which moments are worth their noise, and how small groups may be.
#
# A product with noise as large as itself carries no information, and its cost is missing elsewhere. The noise is known
# before any measurement; the number of rows to compare it with was released.
#
# Privacy: from public sizes and released counts; nothing here sees a row.


_WORTH = 0.1  # products whose mean has more noise than this are not measured
_RARE = 4  # a category needs this many times more rows than the noise on a product
_CLEAR = 150  # so does a group: on Adult fewer rows made worse tables than one group of all


@dataclass(frozen=True, slots=True)
class Worth:
    """Split of the rest of a spend.

    Attributes:
        crossed: whether products of columns are worth measuring, given their noise.
        together: the share for moments of all rows.
        cuts, groups: the shares for groups and their moments; 0 if they would be noise.
        least: the share of rows that a category needs to have a covariance.
    """

    crossed: bool
    together: Fraction
    cuts: Fraction
    groups: Fraction
    least: float


def what_is_worth(
    survey: Measurer, singles: OneWayMarginals, rest: Fraction, columns: int, largest: int, size: int
) -> Worth:
    """Split what is left after the one-way marginals.

    Args:
        survey: the survey that pays.
        singles: one-way marginals, which estimate the number of rows.
        rest: the share of the spend that is left.
        columns: number of columns beside the label.
        largest: maximum number of columns in a set.
        size: target number of rows in a group.
    """
    grown = sqrt(len(singles.classes))
    crossed = _noise(survey, columns, survey.budget.part(rest)) * grown < _WORTH * singles.total
    together, cuts, groups = rest * 5 / 10, rest * 1 / 10, rest * 4 / 10
    smallest = max(size, clear_rows(survey, min(largest, columns), survey.budget.part(groups)))
    if not crossed or singles.total / len(singles.classes) < 2 * smallest:
        together, cuts, groups = rest, Fraction(0), Fraction(0)
    least = _RARE * _noise(survey, columns, survey.budget.part(together)) * grown / singles.total
    return Worth(crossed, together, cuts, groups, least)


def clear_rows(survey: Measurer, columns: int, loss: Loss) -> float:
    """Return the number of rows that a group of some columns needs for moments above their noise."""
    return _CLEAR * _noise(survey, columns, loss, weighed=True)


def _noise(survey: Measurer, columns: int, loss: Loss, weighed: bool = False) -> float:
    """Return the standard deviation of the noise on a sum of products, in rows."""
    law, _ = law_of_moments(survey, columns, loss, weighed=weighed)
    return deviation(law, ONE**2 * survey.whole)


def _one_way(survey: Measurer, label: int | None) -> tuple[OneWayMarginals, Fraction]:
    """Measure single columns, and again where they stand out of the noise; return also the share of the second time."""
    singles = measure_one_way(survey, label, survey.budget.part(_SINGLES))
    if singles.error * sqrt(_SINGLES / (_SINGLES + _MORE)) >= _FINE:
        return singles, Fraction(0)
    return singles.again(survey, survey.budget.part(_MORE)), _MORE


@dataclass(frozen=True, slots=True)
class _Whole:
    """Moments of all columns together, from which those of groups are shrunk.

    Attributes:
        features: features of the domain.
        others: the columns beside the label.
        classes: group keys of the label; none without one.
        moments: as measured, by class.
        means, covariance: of all features; the covariance is that within classes.
    """

    features: Features
    others: Positions
    classes: tuple[GroupKey, ...]
    moments: GroupMoments
    means: Floats
    covariance: Floats

    @classmethod
    def of(
        cls, features: Features, others: Positions, classes: tuple[GroupKey, ...], moments: GroupMoments, crossed: bool
    ) -> "_Whole":
        """Pool the classes, and clear the covariance of noise; without measured products it is diagonal."""
        means, covariance = pooled(moments)
        noise = moments.together.noise[2] / moments.total
        covariance = cleared(features, others, covariance, noise) if crossed else np.diag(np.diag(covariance))
        return cls(features, others, classes, moments, means, covariance)

    def usual(self, positions: Positions) -> tuple[GroupMoments, Floats, Floats]:
        """Return the moments, with means and covariance of some columns."""
        indices = [self.features.of(self.others).index(number) for number in self.features.of(positions)]
        return self.moments, self.means[:, indices], self.covariance[np.ix_(indices, indices)]


def _measured_groups(
    survey: Measurer, overall: _Whole, positions: Positions, group_size: int, cutting: Loss, share: Loss
) -> tuple[GaussianPart, int]:
    """Cut the rows of some columns into groups, and measure their moments; return also the number of groups.

    Privacy: both losses: one for the cuts, one for the moments, which get both if there is nothing to cut.
    """
    features, classes = overall.features, len(overall.means)
    rows = features.rows(survey.relation, positions)
    numbers = [number for number in features.of(positions) if features.listed[number].cell is None]
    size = max(group_size, clear_rows(survey, len(positions), share))
    depth = depth_of(survey, overall.moments.total / classes, size, cutting, numbers)
    leaves = [Leaf()]
    if depth:
        leaves = partition(survey, features, numbers, depth, ceil(size * classes), cutting, rows)
    else:
        share = share + cutting
    keys = (*overall.classes, leaf_key(features, leaves))
    moments = measure_moments(survey, features, positions, share, rows, keys)
    return _groups(features, positions, leaves, moments, overall.usual(positions)), len(leaves)


_SINGLES, _MORE, _REVIEW = Fraction(1, 10), Fraction(3, 10), Fraction(1, 50)
_FINE = 1.5  # single columns whose L1 distance is more noise than this are not measured again
_MOST_SIZE = 10**9
_LOOKED = 50_000  # rows that describe the Gaussians


def mggm(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    group_size: int = 100,
    label: str | None = None,
    linkage: Linkage = "average",
    cut: float = 0.95,
    largest: int = 16,
    reviewed: bool = True,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from Gaussians of groups of rows, for sets of columns.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        group_size: target number of rows in a group (k of the case study). Groups are fewer and larger where noise
            would determine them.
        label: a categorical column that everything depends on: each of its values gets its own groups, and sets of
            columns are independent within a class only. None if there is no such column.
        linkage: distance between sets of columns: "average", "single" or "complete".
        cut: sets of columns farther apart than this (1 - |correlation|) are not joined.
        largest: maximum number of columns in a set: the noise of a group grows with it.
        reviewed: whether a fiftieth pays for expected errors in the metadata file, which takes most of the time.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). A tenth measures counts of the c columns (by
        class): √c·m in L2, c·m in L1; three tenths measure them again where they stand out of the noise. A fiftieth
        pays for the review. Of the rest, half measures the moments of all columns: one row adds a one, c numbers within
        ±1 and their products, so that squares sum to α² + c·β² + c(c+1)/2 with small public weights (moments.py); a
        tenth measures the cuts of groups, where a row is in one cell of each histogram; four tenths measure moments of
        groups, with the same sensitivity for a set of columns whatever the number of groups, since a row is in one
        group of each set. Sets share these equally; without groups the moments of all columns get everything. The split
        depends on released counts and public noise. Rows stay within the schema's bounds; no scaling uses raw data.
    """
    _check_options(group_size, linkage, cut, largest, reviewed)
    _check_label(check_features(ds, table, columns, bins, label), label)

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        budget = survey.budget
        label_column = None if label is None else survey.domain.positions[label]
        singles, more = _one_way(survey, label_column)
        fine = bool(more) and singles.error < _FINE  # or the first measurement was all noise
        others = tuple(column for column in range(len(survey.domain.shape)) if column != label_column)
        rest = 1 - _SINGLES - more - _REVIEW
        plan = what_is_worth(survey, singles, rest, len(others), largest, group_size)
        features = Features(survey.domain, singles.shares if fine else singles.even, plan.least)
        classes = () if label_column is None else (survey.domain.modelled[label_column].key(),)
        tell(0.1, "means and products")
        all_rows = features.rows(survey.relation, others)
        bought = measure_moments(
            survey, features, others, budget.part(plan.together), all_rows, classes, plan.crossed, not plan.crossed
        )
        together = singles.sharpen(bought, features, others)
        overall = _Whole.of(features, others, classes, together, plan.crossed)
        clusters = attribute_sets(correlations(features, others, overall.covariance), linkage, cut, largest)
        sets = [tuple(others[i] for i in cluster) for cluster in clusters]
        cut_up = [positions for positions in sets if len(positions) > 1] if plan.groups else []
        if plan.groups and not cut_up:  # uncorrelated columns: then all is spent on each by itself
            singles = singles.again(survey, budget.part(plan.groups + plan.cuts))
        parts, words = [], []
        for done, positions in enumerate(sets):
            tell(0.3 + 0.5 * done / len(sets), "groups of rows")
            if positions in cut_up:
                cutting, share = (budget.part(part / len(cut_up)) for part in (plan.cuts, plan.groups))
                part, groups = _measured_groups(survey, overall, positions, group_size, cutting, share)
            else:
                part, groups = _one_group(features, others, positions, overall.usual(positions)), 1
            parts.append(part)
            words.append(f"{', '.join(survey.domain.words(positions))} in {groups} groups")
        model = _model(survey, overall, parts, label_column, singles if fine else None)
        tell(0.85, "reviewing")
        found_out = estimate_error(survey, model, budget.part(_REVIEW)) if reviewed else None
        return GeneratorResult(model, list(singles.measured), words, found_out)

    return synthesise(
        ds,
        steps,
        method="mggm",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
        told={"group size": group_size, "label": label, "linkage": linkage, "cut": cut, "largest": largest},
    )


_Usual = tuple[GroupMoments, Floats, Floats]


def _one_group(features: Features, others: Positions, positions: Positions, usual: _Usual) -> GaussianPart:
    """Return the Gaussian of each class: its own means, and the common spread."""
    together, means, covariance = usual
    missing = np.array([together.means(kind)[2] for kind in range(len(means))])
    every = [column for column in features.gaps if column in others]
    gaps = {column: missing[:, every.index(column)] for column in every if column in positions}
    spread = nearest_covariance(covariance, 1e-5)
    noise = np.full(len(means), together.together.noise[2] / together.total)
    return GaussianPart(positions, np.eye(len(means)), means, np.repeat(spread[None], len(means), axis=0), gaps, noise)


def _groups(
    features: Features, positions: Positions, leaves: Sequence[Leaf], moments: GroupMoments, usual: _Usual
) -> GaussianPart:
    """Return the Gaussians of a set's groups, each as close to its own moments as their noise allows."""
    together, means, covariance = usual
    numbers, classes = features.of(positions), len(means)
    columns = [[numbers.index(number) for number in features.of([column])] for column in positions]
    gaps = [column for column in features.gaps if column in positions]
    centres, spreads = [], []
    chances = np.zeros((len(gaps), len(moments.count)))
    weights = np.zeros((classes, len(moments.count)))
    for group, count in enumerate(moments.count):
        kind, leaf = divmod(group, len(leaves))
        rows = max(1.0, float(count))
        mean, second, chances[:, group] = moments.means(group)
        error = moments.noise[1] / rows, moments.noise[2] / rows
        bounds = [leaves[leaf].bounds(number) for number in numbers]
        centre, spread = shrunk(mean, second, error, (means[kind], covariance), bounds, columns)
        centres.append(centre)
        spreads.append(nearest_covariance(spread, 1e-5))
        weights[kind, group] = count
    for kind in range(classes):
        block = slice(kind * len(leaves), (kind + 1) * len(leaves))
        total = max(1.0, float(weights[kind].sum()))
        weights[kind, block] = nonnegative(weights[kind, block], total) / total
    # About a third of a group's own noise remains: shrinkage removes the rest.
    noise = np.hypot(together.together.noise[2] / together.total, moments.noise[2] / 3 / np.maximum(moments.count, 1.0))
    return GaussianPart(
        positions, weights, np.array(centres), np.array(spreads), dict(zip(gaps, chances, strict=True)), noise
    )


def _model(
    survey: Measurer, overall: _Whole, parts: list[GaussianPart], label: int | None, singles: OneWayMarginals | None
) -> GaussianModel:
    """Build the model, with the single columns that its rows are corrected to, if they were measured well enough."""
    total = overall.moments.total
    counts = nonnegative(overall.moments.count, total)
    plain = GaussianModel(survey.domain, parts, total, label, counts / total, overall.features)
    if singles is None:
        return plain
    return replace(plain, wanted=singles.wanted(counts, *plain.drawn(_LOOKED, np.random.default_rng(20190))))


def _check_label(features: Features, label: str | None) -> None:
    if label is not None and len(features.domain.modelled) < 2:
        raise BadInput("Gaussians need columns beside the label.")


def _check_options(group_size: Any, linkage: Any, cut: Any, largest: Any, reviewed: Any) -> None:
    check_whole("group_size", group_size, least=2, most=_MOST_SIZE)
    check_whole("largest", largest, most=_MOST_SIZE)
    check_number("cut", cut, least=0, most=1, what="how far apart sets of columns may be to be joined")
    check_flag("reviewed", reviewed)
    if not isinstance(linkage, str) or linkage not in ("average", "single", "complete"):
        raise BadInput("linkage is 'average', 'single' or 'complete'.")
