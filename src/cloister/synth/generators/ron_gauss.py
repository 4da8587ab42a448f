"""A Gaussian in a few random directions: RON-Gauss.

    1  choose p random orthonormal directions, before any row is read
    2  measure the mean of every column, and the total squared distance of rows from it
    3  measure the covariance in the p directions only: p(p+1)/2 numbers instead of d(d+1)/2
    4  sample rows from the Gaussian that has this covariance in the p directions and the remaining spread evenly in
       all others; with a label, one Gaussian for each class

After Chanyaswad, Liu & Mittal 2019: most low-dimensional projections of high-dimensional data look Gaussian (Diaconis &
Freedman 1984; Meckes 2012), and a covariance of few directions has less noise. The paper scales every row to length one
and leaves rows in the p directions; here public bounds limit the length, and rows come back in the schema's columns.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement
from math import ceil, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from cloister.data.dialect import literal
from cloister.data.private_data import PrivateData
from cloister.data.private_table import PrivateTable
from cloister.data.schema import internal
from cloister.data.statistics import GroupKey, Value
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.synth.domain.coarsening import nonnegative
from cloister.synth.domain.domain import Positions
from cloister.synth.domain.features import ONE, Features, check_features
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Floats, Measurer, NoisyMarginal, deviation
from cloister.synth.measure.moments import scaled
from cloister.synth.model.gaussian import GaussianModel, GaussianPart, nearest_covariance
from cloister.synth.options import check_flag, check_whole
from cloister.synth.output.table import SyntheticTable
from cloister.synth.run import GeneratorResult, Progress, synthesise

__all__ = ["directions", "ron_gauss"]

_MEANS, _REVIEW = Fraction(4, 10), Fraction(1, 50)
_FINE = 128  # directions are multiples of 1/128, so that projections are exact in every engine


def ron_gauss(
    ds: PrivateData,
    *,
    spend: Loss,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    dimensions: int | None = None,
    label: str | None = None,
    directions_seed: int = 0,
    reviewed: bool = True,
    progress: Progress | None = None,
    random_state: Any = None,
) -> SyntheticTable:
    """Generate a synthetic table from a Gaussian in random directions.

    Args:
        ds, spend, rows, columns, table, bins, progress, random_state: as in `synth.independent`.
        dimensions: number of directions; by default half of the features, rounded up.
        label: a categorical column; each of its values gets its own Gaussian. None for one Gaussian.
        directions_seed: seed of the directions: public, and chosen without the data.
        reviewed: whether a fiftieth pays for expected errors in the metadata file, which takes most of the time.

    Privacy: the spend, for the dataset's unit of m rows (add/remove). A row is a vector of norm at most √c, since each
        of its c columns has one nonzero number, within ±1: a public norm. Four tenths measure counts and sums by class:
        squares of a row sum to α² + c. The rest measures products of the projected row (of norm at most σ√c, where σ is
        the largest singular value of the rounded directions: one, but for rounding) and its squared length: together
        c·√(σ⁴ + 1) in L2; in L1 it is σ²·c·(p+1)/2 + c. A row is in one class, so classes cost nothing more. A
        fiftieth pays for the review. The directions depend on a public seed and on public sizes only.
    """
    check_whole("directions_seed", directions_seed, least=0)
    check_flag("reviewed", reviewed)
    features = check_features(ds, table, columns, bins, label)
    used = len(_used(features, label)[1])
    if used < 1:
        raise BadInput("RON-Gauss needs columns beside the label.")
    rank = (used + 1) // 2 if dimensions is None else dimensions
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= used:
        raise BadInput(f"dimensions is a whole number from 1 to {used}, the numbers and categories of these columns.")

    def steps(survey: Measurer, tell: Progress) -> GeneratorResult:
        survey_features = Features(survey.domain)
        names, chosen = _used(survey_features, label)
        turned = directions(len(chosen), min(rank, len(chosen)), directions_seed)
        table_rows = survey_features.rows(survey.relation)
        groups = None if label is None else _classes(survey, survey_features, label)
        size = 1 if groups is None else len(groups.values)
        first = _first(survey, survey_features, names, chosen, survey.budget.part(_MEANS), table_rows, groups)
        tell(0.4, "directions")
        loss = survey.budget.part(1 - _MEANS - _REVIEW)
        second = _second(survey, survey_features, names, chosen, turned, loss, table_rows, groups)
        part = _part(survey_features, tuple(names), turned, first, second)
        total = max(1.0, float(first[0].sum()))
        told_by = None if label is None else survey.domain.positions[label]
        shares = nonnegative(first[0], total) / total
        model = GaussianModel(survey.domain, [part], total, told_by, shares)
        tell(0.8, "reviewing")
        row_count = NoisyMarginal((), np.array(total), first[3] * sqrt(size), (), "the number of rows, with means")
        words = [f"{rank} directions of {len(chosen)}"]
        return GeneratorResult(
            model, [row_count], words, estimate_error(survey, model, survey.budget.part(_REVIEW)) if reviewed else None
        )

    return synthesise(
        ds,
        steps,
        method="ron_gauss",
        spend=spend,
        rows=rows,
        columns=columns,
        table=table,
        bins=bins,
        progress=progress,
        random_state=random_state,
        told={"dimensions": rank, "label": label, "directions": directions_seed},
    )


def directions(numbers: int, kept: int, seed: int) -> NDArray[np.int64]:
    """Sample random orthonormal columns, in multiples of 1/128. Public: independent of the data."""
    square = np.random.default_rng(seed).standard_normal((numbers, numbers))
    turned, triangle = np.linalg.qr(square)
    turned = turned * np.sign(np.diag(triangle))  # uniformly distributed over all rotations (Mezzadri 2007)
    return np.asarray(np.rint(turned[:, :kept] * _FINE).astype(np.int64))


def _used(features: Features, label: str | None) -> tuple[list[int], list[int]]:
    """Return the columns beside the label, and their features."""
    positions = [column for column, axis in enumerate(features.domain.modelled) if axis.name != label]
    return positions, features.of(positions)


def _classes(survey: Measurer, features: Features, label: str) -> GroupKey:
    return features.domain.modelled[survey.domain.positions[label]].key()


def _first(
    survey: Measurer,
    features: Features,
    positions: Sequence[int],
    chosen: Sequence[int],
    loss: Loss,
    rows: PrivateTable,
    groups: GroupKey | None,
) -> tuple[Floats, Floats, Floats, float]:
    """Measure counts, sums and gaps of each class; return them with the noise on a count."""
    c, gaps = len(positions), [column for column in features.gaps if column in positions]
    alpha = max(1, round(sqrt(c)))
    noise = noise_for(root_above(alpha**2 + c) * ONE * survey.most, (alpha + c) * ONE * survey.most, loss)
    keys = () if groups is None else (groups,)
    size = 1 if groups is None else len(groups.values)
    values = [*(features.value(i) for i in chosen), *(features.gap(column) for column in gaps)]

    def look() -> NDArray[Any]:
        sums = rows.sums(keys, values).run(rows.engine)
        return scaled(sums, [alpha * ONE, *([1] * len(values))])

    noisy = np.asarray(survey.meter.release(look, noise), dtype=np.float64).reshape(-1, size).T / ONE / survey.whole
    count = noisy[:, 0] / alpha
    last = 1 + len(chosen)
    return count, noisy[:, 1:last], noisy[:, last:], deviation(noise, ONE * survey.whole * alpha)


def _second(
    survey: Measurer,
    features: Features,
    positions: Sequence[int],
    chosen: Sequence[int],
    turned: NDArray[np.int64],
    loss: Loss,
    rows: PrivateTable,
    groups: GroupKey | None,
) -> tuple[Floats, Floats, float]:
    """Measure sums of products and of squared lengths of projected rows per class; return the noise on a product."""
    c, p = len(positions), turned.shape[1]
    # A singular value is a float; a millionth more is certainly above it.
    longest = ceil(float(np.linalg.norm(turned, 2)) ** 2 * (1 + 1e-6)) * c * ONE**2
    square = c * (ONE * _FINE) ** 2
    noise = noise_for(
        root_above(longest**2 + square**2) * survey.most, (longest * (p + 1) // 2 + square + 1) * survey.most, loss
    )
    sides = [
        _added(
            [
                exp.Mul(this=features.column(i), expression=literal(int(w)))
                for i, w in zip(chosen, direction, strict=True)
            ]
        )
        for direction in turned.T
    ]
    projected = rows.with_columns({internal(f"turned{j}"): side for j, side in enumerate(sides)})
    turned_columns = [exp.column(internal(f"turned{j}"), quoted=True) for j in range(p)]
    pairs = list(combinations_with_replacement(range(p), 2))
    values = [
        Value(exp.Mul(this=turned_columns[i].copy(), expression=turned_columns[j].copy()), -longest, longest)
        for i, j in pairs
    ]
    squares = [exp.Mul(this=features.column(i), expression=features.column(i)) for i in chosen]
    values.append(Value(_added(squares), 0, c * ONE**2))
    keys = () if groups is None else (groups,)
    size = 1 if groups is None else len(groups.values)

    def look() -> NDArray[Any]:
        sums = projected.sums(keys, values).run(projected.engine)[1:]
        return scaled(sums, [*([1] * len(pairs)), _FINE**2])

    worth = (ONE * _FINE) ** 2 * survey.whole
    noisy = np.asarray(survey.meter.release(look, noise), dtype=np.float64).reshape(-1, size).T / worth
    products = np.zeros((size, p, p))
    for number, (i, j) in enumerate(pairs):
        products[:, i, j] = products[:, j, i] = noisy[:, number]
    return products, noisy[:, -1], deviation(noise, worth)


def _added(terms: Sequence[exp.Expression]) -> exp.Expression:
    total = terms[0]
    for term in terms[1:]:
        total = exp.Add(this=total, expression=term)
    return total


def _part(
    features: Features,
    positions: Positions,
    turned: NDArray[np.int64],
    first: tuple[Floats, Floats, Floats, float],
    second: tuple[Floats, Floats, float],
) -> GaussianPart:
    """Return the Gaussian of each class: its own covariance in the directions, the rest of the spread in all others."""
    count, sums, gaps, _ = first
    basis, _ = np.linalg.qr(turned / _FINE)
    numbers, rank = turned.shape
    means, covariances, chances = [], [], np.zeros((gaps.shape[1], len(count)))
    for group, rows in enumerate(np.maximum(count, 1.0)):
        mean = np.clip(sums[group] / rows, -1.0, 1.0)
        chances[:, group] = np.clip(gaps[group] / rows, 0.0, 0.95)
        # Convert the rounded directions to orthonormal ones with the same span.
        change = np.linalg.lstsq(turned / _FINE, basis, rcond=None)[0]
        inside = change.T @ (second[0][group] / rows) @ change - np.outer(basis.T @ mean, basis.T @ mean)
        inside = nearest_covariance(inside, 1e-5)
        variance = min(max(float(second[1][group] / rows - mean @ mean), 0.0), float(numbers))
        most = max(variance, 1e-4 * numbers)
        inside *= min(1.0, most / float(np.trace(inside)))
        rest = max(variance - float(np.trace(inside)), 0.0) / max(numbers - rank, 1)
        other = np.eye(numbers) - basis @ basis.T
        means.append(mean)
        covariances.append(nearest_covariance(basis @ inside @ basis.T + rest * other, 1e-5))
    listed = [column for column in features.gaps if column in positions]
    gaps_of = dict(zip(listed, chances, strict=True))
    return GaussianPart(positions, np.eye(len(count)), np.array(means), np.array(covariances), gaps_of)
