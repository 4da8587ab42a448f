"""Micro-aggregated Gaussians: columns in sets, rows in groups, a Gaussian for each group, and every step private.

    1  buy the means and products of all columns; sets of columns that go together follow (attribute_sets.py)
    2  within each set cut the rows into groups of about k (partition.py)
    3  buy the mean and covariance of every group (moments.py)
    4  draw rows from the Gaussians of the groups (gaussian.py), each set by itself

The textbook's case study (attribute-level micro-aggregation and a multivariate Gaussian generative model) names these
stages and adds noise in the third alone. Columns grouped by raw correlations and rows by MDAV depend on everybody, so
the sensitivity of one group's mean does not bound that of the table; here each stage is paid for. Smaller groups do not
lower the noise either: a mean over k rows moves by 2/k, and of a group with fewer rows noise is the larger part.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.synth.attribute_sets import Linkage, attribute_sets, correlations, pooled
from cloister.synth.domain import Places
from cloister.synth.features import Features, check_features
from cloister.synth.gaussian import GaussianModel, Part, nearest_covariance
from cloister.synth.levels import nonnegative
from cloister.synth.marginals import NoisyMarginal, Survey
from cloister.synth.moments import Moments, measure_moments
from cloister.synth.partition import Leaf, depth_of, leaf_key, partition
from cloister.synth.review import review
from cloister.synth.run import Made, Progress, synthesise
from cloister.synth.shrinking import shrunk
from cloister.synth.table import SyntheticTable

__all__ = ["mggm"]

_TOGETHER, _GROUPS, _REVIEW = Fraction(4, 10), Fraction(2, 10), Fraction(1, 50)


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
    cut: float = 0.75,
    largest: int = 8,
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
        largest: how many columns a set has at most: noise grows with their square.
        reviewed: whether a fiftieth buys expected errors for the side file, which takes most of the time.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). Four tenths buy the moments of all c columns: one
        row adds a one, c numbers within ±1 and their products, so that squares sum to α² + c·β² + c(c+1)/2 with small
        public weights (moments.py). Two tenths buy the cuts of groups: a row is in one cell of each histogram. A
        fiftieth buys the review; the rest buys moments of groups, with the same sensitivity for a set of columns
        whatever the number of groups, since a row is in one group of each set. Sets share their tenths equally.
        Rows stay within the schema's bounds. Bounds, bins and options are public; nothing is scaled by the data.
    """
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 2:
        raise BadInput("group_size is a whole number of at least 2: about how many rows a group has.")
    if linkage not in ("average", "single", "complete"):
        raise BadInput("linkage is 'average', 'single' or 'complete'.")
    if not 0 <= cut <= 1 or largest < 1:
        raise BadInput("cut lies between 0 and 1, and a set has at least one column.")
    features = check_features(ds, table, columns, bins, label)
    if len(features.domain.modelled) < 2 and label is not None:
        raise BadInput("Gaussians need columns beside the label.")

    def steps(survey: Survey, tell: Progress) -> Made:
        features, budget = Features(survey.domain), survey.purse
        told = None if label is None else survey.domain.places[label]
        classes = () if told is None else (survey.domain.modelled[told].key(),)
        others = tuple(place for place in range(len(survey.domain.shape)) if place != told)
        all_rows = features.rows(survey.relation, others)
        together = measure_moments(survey, features, others, budget.part(_TOGETHER), all_rows, classes)
        found = attribute_sets(correlations(features, others, together), linkage, cut, largest)
        sets = [tuple(others[i] for i in one) for one in found]
        parts, words = [], []
        for done, places in enumerate(sets):
            tell(0.3 + 0.5 * done / len(sets), "groups of rows")
            own_rows = features.rows(survey.relation, places)
            share = budget.part((1 - _TOGETHER - _GROUPS - _REVIEW) / len(sets))
            numbers = [number for number in features.of(places) if features.listed[number].cell is None]
            cutting = budget.part(_GROUPS / len(sets))
            depth = depth_of(survey, together.total / len(together.count), group_size, cutting, numbers)
            if depth:
                leaves = partition(
                    survey, features, numbers, depth, group_size * len(together.count), cutting, own_rows
                )
            else:
                leaves, share = [Leaf()], share + cutting
            keys = (*classes, leaf_key(features, leaves))
            moments = measure_moments(survey, features, places, share, own_rows, keys)
            parts.append(_part(features, others, places, leaves, moments, together))
            words.append(f"{', '.join(survey.domain.words(places))} in {len(leaves)} groups")
        shares = nonnegative(together.count, together.total) / together.total
        model = GaussianModel(survey.domain, parts, together.total, told, shares)
        tell(0.85, "reviewing")
        found_out = review(survey, model, budget.part(_REVIEW)) if reviewed else None
        return Made(model, [_size(together)], words, found_out)

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


def _part(
    features: Features, others: Places, places: Places, leaves: Sequence[Leaf], found: Moments, together: Moments
) -> Part:
    """The Gaussians of a set's groups, each as near to its own moments as their noise allows."""
    ours, own = features.of(others), features.of(places)
    here = [ours.index(number) for number in own]
    means, covariance = pooled(together)
    classes = len(together.count)
    gaps = [place for place in features.gaps if place in places]
    centres, spreads = [], []
    chances = np.zeros((len(gaps), len(found.count)))
    weights = np.zeros((classes, len(found.count)))
    for group, count in enumerate(found.count):
        kind, leaf = divmod(group, len(leaves))
        rows = max(1.0, float(count))
        mean, second, chances[:, group] = found.means(group)
        usual = means[kind][here], covariance[np.ix_(here, here)]
        noise = found.noise[1] / rows, found.noise[2] / rows
        centre, spread = shrunk(mean, second, noise, usual, [leaves[leaf].bounds(number) for number in own])
        centres.append(centre)
        spreads.append(nearest_covariance(spread, 1e-5))
        weights[kind, group] = count
    for kind in range(classes):
        block = slice(kind * len(leaves), (kind + 1) * len(leaves))
        total = max(1.0, float(weights[kind].sum()))
        weights[kind, block] = nonnegative(weights[kind, block], total) / total
    return Part(places, weights, np.array(centres), np.array(spreads), dict(zip(gaps, chances, strict=True)))


def _size(together: Moments) -> NoisyMarginal:
    """The number of rows, as a marginal of nothing: what the side file shows of the first release."""
    why = "the number of rows, with means and products"
    return NoisyMarginal((), np.array(together.total), together.together.noise[0], (), why)
