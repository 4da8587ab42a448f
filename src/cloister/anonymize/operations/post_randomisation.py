"""Post-randomisation (PRAM): categories changed at random by a transition matrix, and frequencies estimated back.

Entry (i, j) of a transition matrix is the probability that category i is published as category j. With it, everyone
estimates the true frequencies: the observed ones are t·P, so t is estimated by the inverse (Gouweleeuw et al. 1998).
An invariant matrix has t·R = t: the observed frequencies estimate the true ones without any correction.

Falls to: `attack.tables.scored_linkage`: most values of a row are unchanged, and a row is recognised by them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.operations.operated import (
    Floats,
    Integers,
    Operated,
    changed_cells,
    codes,
    generator,
    read,
    with_column,
)
from cloister.privacy.errors import BadCandidates, BadProbability

__all__ = [
    "Frequencies",
    "PostRandomised",
    "Transition",
    "estimate_frequencies",
    "invariant_transition",
    "post_randomise",
    "uniform_transition",
]

_MOST = 2000  # categories of a column
_NOTE = (
    "A published category is the true one with a known probability, and a person's other columns, or a second release "
    "of the same rows, may show which. For local differential privacy, use cloister.local: it states its loss."
)


@dataclass(frozen=True)
class Transition:
    """A transition matrix for the categories of a column.

    Attributes:
        values: the categories, in the order of the matrix; NULL is one of them if the column has NULLs.
        matrix: probabilities; a row for each true category, a column for each published one.
    """

    values: pa.Array
    matrix: Floats

    def __post_init__(self) -> None:
        if self.matrix.shape != (len(self.values), len(self.values)) or not len(self.values):
            raise BadCandidates("a transition matrix has a row and a column for each category.")
        if len(pc.unique(self.values)) < len(self.values):
            raise BadCandidates("a category is listed twice.")
        if not (self.matrix >= 0).all() or not np.allclose(self.matrix.sum(axis=1), 1, atol=1e-9):
            raise BadProbability("every row of a transition matrix holds probabilities that add up to 1.")


@dataclass(frozen=True)
class PostRandomised(Operated):
    """Rows after post-randomisation.

    Attributes:
        transition: the matrix that was applied; publish it, so that frequencies can be estimated.
    """

    transition: Transition


@dataclass(frozen=True)
class Frequencies:
    """Estimated frequencies of the true categories.

    Attributes:
        values: the categories.
        shares: unbiased estimates; they add up to 1, and single ones may be below 0.
        errors: their standard errors, from the randomisation and the sampling of rows.
    """

    values: pa.Array
    shares: Floats
    errors: Floats

    @property
    def clipped(self) -> Floats:
        """The shares set to at least 0 and divided by their sum: proper, and no longer unbiased."""
        positive = np.maximum(self.shares, 0)
        return np.asarray(positive / positive.sum())


def uniform_transition(rows: object, column: str, keep: float) -> Transition:
    """Return the matrix that keeps a category with a probability, and else draws one of the others uniformly.

    >>> uniform_transition({"sex": ["F", "M"]}, "sex", keep=0.75).matrix.tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    table, (name,) = read(rows, column)
    if not 0 < keep <= 1:
        raise BadProbability("keep is a probability above 0 and at most 1.")
    values = codes(table, name)[1]
    if len(values) > _MOST:
        raise BadCandidates(f"column {name} has more than {_MOST:,} categories. Generalise it first.")
    return _uniform(values, keep)


def _uniform(values: pa.Array, keep: float) -> Transition:
    count = len(values)
    if count < 2:
        return Transition(values, np.eye(count))
    matrix = np.full((count, count), (1 - keep) / (count - 1))
    np.fill_diagonal(matrix, keep)
    return Transition(values, matrix / matrix.sum(axis=1, keepdims=True))


def invariant_transition(rows: object, column: str, transition: Transition) -> Transition:
    """Return R = P·Q with t·R = t for the frequencies t of the column: the two-stage method.

    Q undoes P in expectation: its entry (j, i) is the probability that j came from i. R depends on the rows.

    Args:
        rows: the rows to randomise.
        column: the column.
        transition: any matrix P whose published categories are all possible.
    """
    table, (name,) = read(rows, column)
    positions = _positions(table, name, transition)
    counts = np.bincount(positions, minlength=len(transition.values))
    if not counts.sum():
        return transition
    joint = (counts / counts.sum())[:, None] * transition.matrix
    totals = joint.sum(axis=0)
    reverse = np.where(totals > 0, joint / np.where(totals > 0, totals, 1), np.eye(len(counts))).T
    matrix = transition.matrix @ reverse
    return Transition(transition.values, matrix / matrix.sum(axis=1, keepdims=True))


def post_randomise(
    rows: object,
    column: str,
    transition: Transition | None = None,
    *,
    keep: float | None = None,
    invariant: bool = False,
    random_state: int | None = None,
) -> PostRandomised:
    """Change categories at random by a transition matrix, independently for each row. NULL is a category.

    Args:
        rows: the table.
        column: a column of any type; each distinct value is a category.
        transition: the matrix; or give `keep`.
        keep: probability that a category stays, for `uniform_transition`.
        invariant: apply the invariant matrix made from it.
        random_state: a seed for tests and lessons.

    >>> table = {"sex": ["F", "M", "F", "M"]}
    >>> post_randomise(table, "sex", keep=1.0).rows.to_pydict()
    {'sex': ['F', 'M', 'F', 'M']}
    """
    table, (name,) = read(rows, column)
    if (transition is None) == (keep is None):
        raise BadProbability("give either a transition, or the probability `keep`.")
    if transition is None:
        assert keep is not None
        transition = uniform_transition(table, name, keep)
    if invariant:
        transition = invariant_transition(table, name, transition)
    positions = _positions(table, name, transition)
    cumulative = transition.matrix.cumsum(axis=1)
    draws = generator(random_state).random(len(positions))
    published = np.empty(len(positions), dtype=np.int64)
    for value in np.unique(positions):
        members = positions == value
        published[members] = np.searchsorted(cumulative[value], draws[members], side="right")
    published = np.minimum(published, len(transition.values) - 1)
    changed = transition.values.take(pa.array(published)).cast(table.column(name).type)
    kind = "an invariant" if invariant else "a"
    log = (
        f"Column {name}: post-randomisation with {kind} transition matrix of {len(transition.values)} categories, "
        f"diagonal {transition.matrix.diagonal().min():.3g} to {transition.matrix.diagonal().max():.3g}; "
        f"{changed_cells(table.column(name), changed):,} of {len(positions):,} cells have another value."
    )
    return PostRandomised(with_column(table, name, changed), (log,), _NOTE, transition)


def estimate_frequencies(rows: object, column: str, transition: Transition) -> Frequencies:
    """Estimate the true frequencies of categories from published ones, by the inverse of the matrix.

    Args:
        rows: the rows after post-randomisation.
        column: the column.
        transition: the matrix that was applied.

    Raises:
        BadProbability: the matrix has no inverse, so that different frequencies look the same.
    """
    table, (name,) = read(rows, column)
    positions = _positions(table, name, transition)
    if not len(positions):
        raise BadCandidates("there are no rows to estimate frequencies from.")
    if np.linalg.cond(transition.matrix) > 1e12:
        raise BadProbability("the transition matrix has no inverse: frequencies cannot be told from what is published.")
    observed = np.bincount(positions, minlength=len(transition.values)) / len(positions)
    inverse = np.linalg.inv(transition.matrix)
    covariance = (np.diag(observed) - np.outer(observed, observed)) / len(positions)
    errors = np.sqrt(np.maximum(np.diag(inverse.T @ covariance @ inverse), 0))
    return Frequencies(transition.values, observed @ inverse, errors)


def _positions(table: pa.Table, name: str, transition: Transition) -> Integers:
    """Return the position of each cell among the categories of a matrix."""
    positions, values = codes(table, name)
    try:
        known = pc.index_in(values, transition.values.cast(values.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise BadCandidates(f"the categories of the transition have another type than column {name}.") from None
    if known.null_count:
        raise BadCandidates(f"column {name} has categories that the transition does not list. Add them to it.")
    return np.asarray(known.to_numpy(zero_copy_only=False).astype(np.int64)[positions], dtype=np.int64)
