"""Micro-aggregated Gaussians: columns in sets, rows in groups, a Gaussian for each group, and every step private.

    1  buy the counts of every column, in each class of the label (one_way.py)
    2  buy the means and products of all columns; sets of columns that go together follow (attribute_sets.py)
    3  within each set cut the rows into groups of about k (partition.py)
    4  buy the mean and covariance of every group (moments.py), drawn towards those of all rows (shrinkage.py)
    5  draw rows from the Gaussians of the groups (gaussian.py), each set by itself, and match them to the counts

The textbook's case study (attribute-level micro-aggregation and a multivariate Gaussian generative model) names steps 2
to 5 without the counts, and adds noise in the fourth alone. Columns grouped by raw correlations and rows by MDAV depend
on everybody, so the sensitivity of one group's mean does not bound that of the table; here each step is paid for.
Smaller groups do not lower the noise either: a mean over k rows moves by 2/k, and of a group with fewer rows noise is
the larger part. So steps that noise would decide are left out and what they cost goes to the others: few rows for the
spend are one group, and fewer still are columns that depend on each other through the label alone.

Measured on Adult (15 columns in 32 bins, 32,561 rows, delta 1e-9; score 0 is columns shuffled by themselves and 1 a
bootstrap; means of three tables): -0.18, 0.33 and 0.52 at epsilon 0.1, 1 and 10, where one table of `synth.independent`
has -0.32, -0.04 and -0.01. With next to no noise (epsilon 1000) it is about 0.5 too: dependence that is linear is all
that Gaussians know, and `synth.aim` is the better choice for categories. Without the counts, and without shrinking, the
score was -1.4 at epsilon 1: covariances of rare categories were noise, expectations from them were no probabilities,
and single columns alone were off by 0.14 of all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, sqrt
from typing import Any

import numpy as np

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.domain.coarsening import nonnegative
from cloister.synth.domain.domain import Places
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


# What is worth its noise: which moments are bought, and how small groups may be.
#
# A product whose noise is as large as itself tells nothing, and what it cost is missing elsewhere. The noise is known
# before anything is bought; how many rows it is to be compared with was released.
#
# Privacy: from public sizes and released counts; nothing here sees a row.


_WORTH = 0.1  # products whose mean has more noise than this are not bought
_RARE = 4  # a category has so many times more rows than the noise on a product
_CLEAR = 150  # so has a group: on Adult fewer rows made worse tables than one group of all


@dataclass(frozen=True, slots=True)
class Worth:
    """How the rest of a spend is used.

    Attributes:
        crossed: whether products of columns are worth their noise.
        together: the share that buys moments of all rows.
        cuts, groups: the shares that buy groups and their moments; 0 if they would be noise.
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
    """Divide what single columns have left.

    Args:
        survey: pays.
        singles: tell how many rows there are, about.
        rest: the share of the spend that is left.
        columns: beside the label.
        largest: how many columns a set has at most.
        size: about how many rows a group should have.
    """
    grown = sqrt(len(singles.classes))
    crossed = _noise(survey, columns, survey.purse.part(rest)) * grown < _WORTH * singles.total
    together, cuts, groups = rest * 5 / 10, rest * 1 / 10, rest * 4 / 10
    smallest = max(size, clear_rows(survey, min(largest, columns), survey.purse.part(groups)))
    if not crossed or singles.total / len(singles.classes) < 2 * smallest:
        together, cuts, groups = rest, Fraction(0), Fraction(0)
    least = _RARE * _noise(survey, columns, survey.purse.part(together)) * grown / singles.total
    return Worth(crossed, together, cuts, groups, least)


def clear_rows(survey: Measurer, columns: int, loss: Loss) -> float:
    """How many rows a group of some columns needs for moments that stand out of their noise."""
    return _CLEAR * _noise(survey, columns, loss, weighed=True)


def _noise(survey: Measurer, columns: int, loss: Loss, weighed: bool = False) -> float:
    """The standard deviation of the noise on a sum of products, in rows."""
    law, _ = law_of_moments(survey, columns, loss, weighed=weighed)
    return deviation(law, ONE**2 * survey.whole)


_SINGLES, _MORE, _REVIEW = Fraction(1, 10), Fraction(3, 10), Fraction(1, 50)
_FINE = 1.5  # single columns whose L1 distance is more noise than this are not bought again
_MOST_SIZE = 10**9
_LOOKED = 50_000  # rows that tell how the Gaussians lie


def mggm(
    ds: Any,
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
    """A synthetic table from Gaussians of groups of rows, for sets of columns.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        group_size: about how many rows a group has (k of the case study). There are fewer, larger groups where noise
            would decide which rows go together.
        label: a column with categories that everything depends on: each of its values gets groups of its own, and sets
            of columns are independent of each other within a class only. None where there is no such column.
        linkage: how far apart sets of columns are: "average", "single" or "complete".
        cut: sets of columns that are farther apart (1 - |correlation|) are not joined.
        largest: how many columns a set has at most: the noise of a group grows with them.
        reviewed: whether a fiftieth buys expected errors for the side file, which takes most of the time.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). A tenth buys counts of the c columns (by class):
        √c·m in L2, c·m in L1; three tenths buy them again where noise leaves something to see. A fiftieth buys the
        review. Of the rest, half buys the moments of all columns: one row adds a one, c numbers within ±1 and their
        products, so that squares sum to α² + c·β² + c(c+1)/2 with small public weights (moments.py); a tenth buys the
        cuts of groups, in which a row is in one cell of each histogram; four tenths buy moments of groups, with the
        same sensitivity for a set of columns whatever the number of groups, since a row is in one group of each set.
        Sets share these equally; without groups the moments of all columns get everything. What is bought depends on
        released counts and on public noise. Rows stay within the schema's bounds; nothing is scaled by raw data.
    """
    check_whole("group_size", group_size, least=2, most=_MOST_SIZE)
    check_whole("largest", largest, most=_MOST_SIZE)
    check_number("cut", cut, least=0, most=1, what="how far apart sets of columns may be to be joined")
    check_flag("reviewed", reviewed)
    if not isinstance(linkage, str) or linkage not in ("average", "single", "complete"):
        raise BadInput("linkage is 'average', 'single' or 'complete'.")
    features = check_features(ds, table, columns, bins, label)
    if len(features.domain.modelled) < 2 and label is not None:
        raise BadInput("Gaussians need columns beside the label.")

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        budget = survey.purse
        told = None if label is None else survey.domain.places[label]
        singles = measure_one_way(survey, told, budget.part(_SINGLES))
        more = _MORE if singles.error * sqrt(_SINGLES / (_SINGLES + _MORE)) < _FINE else Fraction(0)
        if more:
            singles = singles.again(survey, budget.part(more))
        fine = bool(more) and singles.error < _FINE  # or the first look was all noise
        others = tuple(place for place in range(len(survey.domain.shape)) if place != told)
        rest = 1 - _SINGLES - more - _REVIEW
        plan = what_is_worth(survey, singles, rest, len(others), largest, group_size)
        features = Features(survey.domain, singles.shares if fine else singles.even, plan.least)
        classes = () if told is None else (survey.domain.modelled[told].key(),)
        tell(0.1, "means and products")
        all_rows = features.rows(survey.relation, others)
        bought = measure_moments(
            survey, features, others, budget.part(plan.together), all_rows, classes, plan.crossed, not plan.crossed
        )
        together = singles.sharpen(bought, features, others)
        means, covariance = pooled(together)
        noise = together.together.noise[2] / together.total
        covariance = cleared(features, others, covariance, noise) if plan.crossed else np.diag(np.diag(covariance))
        found = attribute_sets(correlations(features, others, covariance), linkage, cut, largest)
        sets = [tuple(others[i] for i in one) for one in found]
        cut_up = [places for places in sets if len(places) > 1] if plan.groups else []
        if plan.groups and not cut_up:  # columns that have nothing to do with each other: then all is for themselves
            singles = singles.again(survey, budget.part(plan.groups + plan.cuts))
        parts, words = [], []
        for done, places in enumerate(sets):
            tell(0.3 + 0.5 * done / len(sets), "groups of rows")
            here = [features.of(others).index(number) for number in features.of(places)]
            usual = together, means[:, here], covariance[np.ix_(here, here)]
            leaves = [Leaf()]
            if places in cut_up:
                own_rows = features.rows(survey.relation, places)
                numbers = [number for number in features.of(places) if features.listed[number].cell is None]
                cutting, share = (budget.part(part / len(cut_up)) for part in (plan.cuts, plan.groups))
                size = max(group_size, clear_rows(survey, len(places), share))
                depth = depth_of(survey, together.total / len(means), size, cutting, numbers)
                if depth:
                    leaves = partition(survey, features, numbers, depth, ceil(size * len(means)), cutting, own_rows)
                else:
                    share = share + cutting
                keys = (*classes, leaf_key(features, leaves))
                moments = measure_moments(survey, features, places, share, own_rows, keys)
                parts.append(_groups(features, places, leaves, moments, usual))
            else:
                parts.append(_one_group(features, others, places, usual))
            words.append(f"{', '.join(survey.domain.words(places))} in {len(leaves)} groups")
        counts = nonnegative(together.count, together.total)
        plain = GaussianModel(survey.domain, parts, together.total, told, counts / together.total, features)
        wanted = singles.wanted(counts, *plain.drawn(_LOOKED, np.random.default_rng(20190))) if fine else {}
        model = replace(plain, wanted=wanted)
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


def _one_group(features: Features, others: Places, places: Places, usual: _Usual) -> GaussianPart:
    """The Gaussian of each class: its own means, and the spread that all of them have."""
    together, means, covariance = usual
    missing = np.array([together.means(kind)[2] for kind in range(len(means))])
    every = [place for place in features.gaps if place in others]
    gaps = {place: missing[:, every.index(place)] for place in every if place in places}
    spread = nearest_covariance(covariance, 1e-5)
    noise = np.full(len(means), together.together.noise[2] / together.total)
    return GaussianPart(places, np.eye(len(means)), means, np.repeat(spread[None], len(means), axis=0), gaps, noise)


def _groups(
    features: Features, places: Places, leaves: Sequence[Leaf], found: GroupMoments, usual: _Usual
) -> GaussianPart:
    """The Gaussians of a set's groups, each as near to its own moments as their noise allows."""
    together, means, covariance = usual
    own, classes = features.of(places), len(means)
    columns = [[own.index(number) for number in features.of([place])] for place in places]
    gaps = [place for place in features.gaps if place in places]
    centres, spreads = [], []
    chances = np.zeros((len(gaps), len(found.count)))
    weights = np.zeros((classes, len(found.count)))
    for group, count in enumerate(found.count):
        kind, leaf = divmod(group, len(leaves))
        rows = max(1.0, float(count))
        mean, second, chances[:, group] = found.means(group)
        error = found.noise[1] / rows, found.noise[2] / rows
        bounds = [leaves[leaf].bounds(number) for number in own]
        centre, spread = shrunk(mean, second, error, (means[kind], covariance), bounds, columns)
        centres.append(centre)
        spreads.append(nearest_covariance(spread, 1e-5))
        weights[kind, group] = count
    for kind in range(classes):
        block = slice(kind * len(leaves), (kind + 1) * len(leaves))
        total = max(1.0, float(weights[kind].sum()))
        weights[kind, block] = nonnegative(weights[kind, block], total) / total
    # What is left of a group's own noise is about a third: the rest is explained away.
    noise = np.hypot(together.together.noise[2] / together.total, found.noise[2] / 3 / np.maximum(found.count, 1.0))
    return GaussianPart(
        places, weights, np.array(centres), np.array(spreads), dict(zip(gaps, chances, strict=True)), noise
    )
