"""Values drawn at random from a fitted distribution; label encoding.

Replacing some columns by independent draws keeps roughly the distribution of each column and destroys its relation to
all others. The columns that stay are exact and still link a row to a person. Label encoding is a renaming that anyone
undoes; it is here so that a recorded chain of steps can contain it, and its note says so.

Falls to: `attack.tables.linkage` on the columns that stay.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import stats

from cloister.anonymize.operations.operated import (
    Floats,
    Operated,
    codes,
    columns_of,
    from_numbers,
    generator,
    read,
    to_numbers,
    with_column,
)
from cloister.privacy.errors import BadBounds, BadCandidates, BadNumber, BadSchema

__all__ = ["Fit", "LAWS", "best_fit", "encode_labels", "replace_randomly"]

LAWS = (
    "norm",
    "uniform",
    "expon",
    "laplace",
    "logistic",
    "gumbel_l",
    "gumbel_r",
    "rayleigh",
    "gamma",
    "lognorm",
    "weibull_min",
)
_MOST = 5000  # values that a fit looks at; the histogram has all of them
_NOTE = (
    "Replaced columns keep about their own distribution and lose every relation to other columns. The rest is exact: a "
    "row can still be linked by them. Parameters and frequencies come from the rows, without differential privacy; "
    "rare categories may still be drawn and shown."
)
_LABELS = "A label code is another name for the same value. It hides nothing and is no anonymisation."


@dataclass(frozen=True)
class Fit:
    """A distribution of scipy fitted to a column.

    Attributes:
        law: its name in scipy.stats.
        parameters: shape parameters, location and scale.
        error: sum of squared differences between the density histogram and the density.
        errors: the error of every distribution that could be fitted.
    """

    law: str
    parameters: tuple[float, ...]
    error: float
    errors: Mapping[str, float]

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw values."""
        drawn = getattr(stats, self.law).rvs(*self.parameters, size=count, random_state=rng)
        return np.asarray(drawn, dtype=np.float64)

    def __str__(self) -> str:
        return f"{self.law}({', '.join(f'{parameter:.4g}' for parameter in self.parameters)})"


def best_fit(rows: object, column: str, *, laws: Sequence[str] = LAWS, bins: int = 100) -> Fit:
    """Return the distribution whose density is nearest to the histogram of a column.

    Args:
        rows: the table.
        column: a column of numbers; NULL is left out.
        laws: names of continuous distributions in scipy.stats.
        bins: number of cells of the histogram; the cells of a column of integers are at least 1 wide.

    Raises:
        BadNumber: the column has fewer than two different values.
    """
    table, (name,) = read(rows, column)
    values = to_numbers(table, name)
    known = values[~np.isnan(values)]
    if len(known) < 2 or known.min() == known.max():
        raise BadNumber(
            f"column {name} has fewer than two different values, so there is nothing to fit. Name it categorical."
        )
    whole = pa.types.is_integer(table.column(name).type)
    return _best_fit(known, laws, min(bins, max(2, int(np.ptp(known)) + 1)) if whole else bins)


def _best_fit(values: Floats, laws: Sequence[str], bins: int) -> Fit:
    if not laws or any(not isinstance(getattr(stats, law, None), stats.rv_continuous) for law in laws):
        raise BadCandidates("laws are names of continuous distributions in scipy.stats, such as norm and gamma.")
    density, edges = np.histogram(values, bins=bins, density=True)
    middles = (edges[1:] + edges[:-1]) / 2
    # Every n-th sorted value: the fit sees the whole distribution, and no random draw is needed.
    looked = np.sort(values)[:: max(1, len(values) // _MOST)]
    fits: dict[str, tuple[float, tuple[float, ...]]] = {}
    for law in laws:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                parameters = tuple(float(number) for number in getattr(stats, law).fit(looked))
                error = float(((density - getattr(stats, law).pdf(middles, *parameters)) ** 2).sum())
            except (ValueError, RuntimeError, stats.FitError):
                continue
        if np.isfinite(error) and np.isfinite(parameters).all():
            fits[law] = error, parameters
    if not fits:
        raise BadCandidates(
            "none of the distributions could be fitted. Name others, or treat the column as categories."
        )
    law = min(fits, key=lambda name: fits[name][0])
    return Fit(law, fits[law][1], fits[law][0], {name: error for name, (error, _) in fits.items()})


def replace_randomly(
    rows: object,
    columns: str | Iterable[str],
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    categorical: str | Iterable[str] = (),
    laws: Sequence[str] = LAWS,
    random_state: int | None = None,
) -> Operated:
    """Replace columns by independent draws: numbers from the best fit, categories by their frequencies.

    NULLs are drawn as often as they occur. Draws outside the bounds are repeated, and clipped in the end.

    Args:
        rows: the table.
        columns: the columns to replace. Text and truth values are categories.
        bounds: valid range of columns of numbers, by name. Without it a draw may be impossible, such as an age of −3.
        categorical: columns of numbers or dates whose values are categories.
        laws: names of distributions to choose from.
        random_state: a seed for tests and lessons.
    """
    table, names = read(rows, columns)
    listed = (categorical,) if isinstance(categorical, str) else tuple(categorical)
    limits = bounds or {}
    for name in [*listed, *limits]:
        if name not in names:
            raise BadSchema(f"column {name} has bounds or is categorical, but is not among the columns to replace.")
    for name, (low, high) in limits.items():
        if not (np.isfinite([low, high]).all() and low < high):
            raise BadBounds(f"the bounds of {name} are two finite numbers, the lower one first.")
    rng = generator(random_state)
    log = []
    for name in names:
        kind = table.column(name).type
        if name in listed or pa.types.is_string(kind) or pa.types.is_boolean(kind):
            column, sentence = _draw_categories(table, name, rng)
        else:
            column, sentence = _draw_numbers(table, name, limits.get(name), laws, rng)
        table = with_column(table, name, column)
        log.append(sentence)
    return Operated(table, tuple(log), _NOTE)


def _draw_categories(table: pa.Table, name: str, rng: np.random.Generator) -> tuple[pa.Array, str]:
    positions, values = codes(table, name)
    if len(positions):
        positions = rng.choice(len(values), size=len(positions), p=np.bincount(positions) / len(positions))
    sentence = f"Column {name}: {len(positions):,} cells drawn by the frequencies of {len(values):,} categories."
    return values.take(pa.array(positions)), sentence


def _draw_numbers(
    table: pa.Table, name: str, bounds: tuple[float, float] | None, laws: Sequence[str], rng: np.random.Generator
) -> tuple[pa.Array, str]:
    kind, count = table.column(name).type, table.num_rows
    fit = best_fit(table, name, laws=laws)
    draws = fit.draw(count, rng)
    clipped = 0
    if bounds is not None:
        for _ in range(20):
            outside = (draws < bounds[0]) | (draws > bounds[1])
            draws[outside] = fit.draw(int(outside.sum()), rng)
        inside = np.clip(draws, *bounds)
        clipped = int((inside != draws).sum())
        draws = inside
    draws[rng.random(count) < table.column(name).null_count / max(1, count)] = np.nan
    limits = "without bounds" if bounds is None else f"within {bounds[0]:.12g}..{bounds[1]:.12g}, {clipped:,} clipped"
    return from_numbers(draws, kind), f"Column {name}: {count:,} cells drawn from {fit}, {limits}."


def encode_labels(rows: object, columns: str | Iterable[str]) -> Operated:
    """Replace categories by the position of their value in sorted order. NULL stays NULL. This hides nothing.

    >>> encode_labels({"sex": ["Male", "Female", "Male"]}, "sex").rows.to_pydict()
    {'sex': [1, 0, 1]}
    """
    table, names = read(rows, columns)
    log = []
    for name in columns_of(table, names):
        column = table.column(name)
        values: Any = pc.unique(column).drop_null()
        values = values.take(pc.array_sort_indices(values))
        table = with_column(table, name, pc.index_in(column, values).cast(pa.int64()))
        log.append(f"Column {name}: {len(values):,} categories renamed to codes; this is reversible and hides nothing.")
    return Operated(table, tuple(log), _LABELS)
