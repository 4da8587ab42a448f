"""Linkage with errors: score every row, weigh rare values more, and accept a match that stands out.

The scoring of Narayanan and Shmatikov (2008), for tables: a person who agrees with a row in most values is recognised
though some values are wrong, missing or perturbed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from cloister.attack.tables.columns import Classes, Floats, Integers, classes, require, to_arrow
from cloister.attack.tables.generalised import Containment, Hierarchies, containment, unread
from cloister.attack.tables.result import TableAttack
from cloister.privacy.errors import BadInput

__all__ = ["ScoredLinkage", "scored_linkage"]

_CELLS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ScoredLinkage(TableAttack):
    """Result of a linkage by scores.

    Attributes:
        matched: for each person the row with the highest score, if it stands out; -1 otherwise. As sensitive as the
            rows.
        score: for each person the highest score.
        eccentricity: for each person the distance of the two highest scores, in standard deviations of all scores.
        right: number of matches that are true; None without the truth.
    """

    matched: Integers = field(repr=False)
    score: Floats = field(repr=False)
    eccentricity: Floats = field(repr=False)
    right: int | None = None

    def counts(self) -> dict[str, Any]:
        """Return the number of true matches, where the truth was given."""
        return {} if self.right is None else {"right": self.right}


def scored_linkage(
    released: object,
    auxiliary: object,
    *,
    on: Sequence[str],
    tolerance: Mapping[str, float] | None = None,
    truth: str | None = None,
    eccentricity: float = 1.5,
    hierarchies: Hierarchies | None = None,
) -> ScoredLinkage:
    """Match people with the rows that agree best, although some values differ.

    A row's score is the sum of log(n / rows that agree) over the columns in which it agrees with the person.

    Args:
        released: the published table; its values may be generalised.
        auxiliary: the identified table.
        on: the columns to be compared.
        tolerance: for columns of numbers, the largest difference that counts as agreement.
        truth: a column of both tables with the same id for the same person.
        eccentricity: the smallest distance of best and second-best score, in standard deviations, for a match.
        hierarchies: for a column, the ancestors of each value.

    >>> release = {"age": [30, 41, 52, 60], "zip": ["a", "b", "c", "d"], "sex": ["m", "m", "f", "f"]}
    >>> person = {"age": [42], "zip": ["b"], "sex": ["f"]}
    >>> scored_linkage(release, person, on=["age", "zip", "sex"], tolerance={"age": 2}).matched.tolist()
    [1]
    """
    release, known = to_arrow(released), to_arrow(auxiliary)
    columns = require(release, on, "a column to be compared")
    require(known, columns, "a column to be compared")
    if not release.num_rows:
        raise BadInput("the release has no rows. Attack a table with at least one.")
    for name, given in (("tolerance", tolerance), ("hierarchies", hierarchies)):
        if strangers := set(given or ()) - set(columns):
            raise BadInput(
                f"{name} names {min(strangers)!r}, which is not compared. Choose among: {', '.join(columns)}."
            )
    rows, people = classes(release, columns), classes(known, columns)
    sets = [
        containment(rows.values[i], people.values[i], (hierarchies or {}).get(name)) for i, name in enumerate(columns)
    ]
    agree = [
        _agreement(rows.values[i], people.values[i], (tolerance or {}).get(name), sets[i])
        for i, name in enumerate(columns)
    ]
    top, gap, ties, position = _scores(rows, people, agree)
    first = np.full(len(rows.sizes), -1, dtype=np.int64)
    first[rows.of] = np.arange(release.num_rows)
    accepted = (gap >= eccentricity) & (ties == 1)
    matched = np.where(accepted, first[position], -1)[people.of]
    right = None
    if truth is not None:
        require(release, [truth], "the truth")
        require(known, [truth], "the truth")
        hits = np.flatnonzero(matched >= 0)
        ids = known.column(truth).take(hits).to_pylist(), release.column(truth).take(matched[hits]).to_pylist()
        right = sum(a == b for a, b in zip(*ids, strict=True))
    risk = np.where(accepted, 1.0, 1 / ties)[people.of]
    best = matched[matched >= 0]
    return ScoredLinkage(
        name="linkage with errors",
        attacker=f"has a list of {len(matched):,} people with {len(columns)} columns, some of them wrong or missing",
        criterion=f"one row's score is {eccentricity:g} standard deviations above all others",
        subject="people",
        risk=risk,
        at_risk=int(np.sum(matched >= 0)),
        baseline=1 / release.num_rows,
        worst=rows.describe(int(rows.of[best[0]])) if len(best) else {},
        remedies=(
            "Generalise rare values first: they carry most of the score.",
            "Release fewer columns of each row, or a sample of the rows.",
        ),
        notes=tuple(unread(columns, sets)),
        matched=matched,
        score=top[people.of],
        eccentricity=gap[people.of],
        right=right,
    )


def _agreement(released: pa.Array, known: pa.Array, tolerance: float | None, pairs: Containment) -> NDArray[np.bool_]:
    """Return which values of people agree with which released values."""
    table = pairs.matrix(np.arange(len(known)), len(released))
    if tolerance is not None:
        for kind in (released.type, known.type):
            if not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
                raise BadInput(
                    "a tolerance needs a column of numbers in both tables. Leave it out for generalised values."
                )
        numbers = [
            np.array([np.nan if cell is None else float(cell) for cell in side.to_pylist()])
            for side in (known, released)
        ]
        table |= np.abs(numbers[0][:, None] - numbers[1][None, :]) <= tolerance
    return table


def _scores(
    rows: Classes, people: Classes, agree: Sequence[NDArray[np.bool_]]
) -> tuple[Floats, Floats, Integers, Integers]:
    """Return for each class of people the best score, its eccentricity, the rows that reach it and their class."""
    total, weights = rows.sizes.sum(), []
    for i, table in enumerate(agree):
        support = table @ np.bincount(rows.codes[:, i], weights=rows.sizes, minlength=table.shape[1])
        weights.append(np.log(total / np.maximum(support, 1)))
    step, count = max(1, _CELLS // len(rows.sizes)), len(people.sizes)
    top, gap = np.zeros(count), np.zeros(count)
    ties, position = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        scores = np.zeros((part.stop - start, len(rows.sizes)))
        for i, table in enumerate(agree):
            code = people.codes[part, i]
            scores += weights[i][code][:, None] * table[code][:, rows.codes[:, i]]
        position[part] = scores.argmax(axis=1)
        top[part] = scores.max(axis=1)
        best = scores >= top[part][:, None] - 1e-9
        ties[part] = best @ rows.sizes
        mean = scores @ rows.sizes / total
        spread = np.sqrt(np.maximum((scores**2) @ rows.sizes / total - mean**2, 0))
        second = np.where(best, -np.inf, scores).max(axis=1)
        distance = np.where(np.isfinite(second), top[part] - second, 0.0)
        gap[part] = np.where((ties[part] == 1) & (spread > 1e-12), distance / np.maximum(spread, 1e-12), 0.0)
    return top, gap, ties, position
