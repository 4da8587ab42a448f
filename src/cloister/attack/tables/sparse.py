"""Linkage of sparse records: ratings, purchases, visits (Narayanan & Shmatikov 2008, "Robust de-anonymization").

    found = sparse_linkage(ratings, known, person="user", item="film", values={"stars": 1, "day": 14})

Nobody needs a quasi-identifier: a few of somebody's entries, some of them wrong, single out one record among all,
because most pairs of people have few rare items in common.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.attack.tables.columns import Floats, Integers, encode, require, to_arrow
from cloister.attack.tables.result import TableAttack
from cloister.privacy.errors import BadInput

__all__ = ["SparseLinkage", "sparse_linkage"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SparseLinkage(TableAttack):
    """Result of a linkage of sparse records.

    Attributes:
        matched: for each person the id of the record whose score stands out; None otherwise. As sensitive as the rows.
        eccentricity: for each person the distance of the two highest scores, in standard deviations of all scores.
        right: number of matches that are true; None without the truth.
    """

    matched: tuple[Any, ...] = field(repr=False)
    eccentricity: Floats = field(repr=False)
    right: int | None = None

    def counts(self) -> dict[str, Any]:
        """Return the number of true matches, where the truth was given."""
        return {} if self.right is None else {"right": self.right}


def sparse_linkage(
    released: object,
    auxiliary: object,
    *,
    person: str,
    item: str,
    values: Mapping[str, float] | None = None,
    truth: Mapping[Any, Any] | None = None,
    eccentricity: float = 1.5,
) -> SparseLinkage:
    """Match people with the released records that share their rarest entries.

    A record's score is the sum over a person's entries of w(item) times the agreement of the values, where w is
    1 / log(number of records that have the item) and the agreement of a number falls as e^(-difference / tolerance).

    Args:
        released: the published table, one row for each entry of a record.
        auxiliary: entries that the attacker knows, under ids of the attacker's own.
        person: the column of ids in both tables; ids of the two need have nothing in common.
        item: the column of items in both tables.
        values: columns of numbers in both tables, each with the difference at which agreement has fallen to 1 / e.
        truth: for each id of `auxiliary` the id of the person's record in `released`, by which matches are judged.
        eccentricity: the smallest distance of best and second-best score, in standard deviations, for a match.

    >>> ratings = {"user": [1, 1, 1, 2, 2, 3, 3], "film": ["a", "b", "z", "a", "b", "a", "b"]}
    >>> seen = {"user": ["Ann", "Ann"], "film": ["a", "z"]}
    >>> sparse_linkage(ratings, seen, person="user", item="film", eccentricity=1).matched
    (1,)
    """
    release, known = to_arrow(released), to_arrow(auxiliary)
    near = dict(values or {})
    for table in (release, known):
        require(table, [person, item, *near], "a column of entries")
    if not release.num_rows or not known.num_rows:
        raise BadInput("both tables need entries. Attack a table with at least one.")
    if not all(isinstance(width, int | float) and 0 < width < float("inf") for width in near.values()):
        raise BadInput("a tolerance is a positive number for each column of `values`.")
    if isinstance(eccentricity, bool) or not isinstance(eccentricity, int | float) or not eccentricity >= 0:
        raise BadInput(f"eccentricity is a number of standard deviations, 0 or more, got {eccentricity!r:.40}.")
    records, ids = encode(release.column(person))
    people, names = encode(known.column(person))
    best, gap, ties = _scores(release, known, records, people, item, near)
    stands_out = (gap >= eccentricity) & (ties == 1)
    listed, owners = ids.to_pylist(), names.to_pylist()
    matched = tuple(listed[place] if sure else None for place, sure in zip(best.tolist(), stands_out, strict=True))
    right = None
    if truth is not None:
        right = sum(
            bool(sure) and owner in truth and truth[owner] == match
            for owner, match, sure in zip(owners, matched, stands_out, strict=True)
        )
    return SparseLinkage(
        name="linkage of sparse records",
        attacker=f"knows {known.num_rows / len(owners):.3g} entries of {len(owners):,} people each, some of them wrong",
        criterion=f"one record's score is {eccentricity:g} standard deviations above all others",
        subject="people",
        risk=np.where(stands_out, 1.0, 1 / ties),
        at_risk=int(stands_out.sum()),
        baseline=1 / len(listed),
        remedies=(
            "Release statistics or synthetic rows instead of records: rare items single people out.",
            "Leave out items that few records have, and coarsen dates: they carry most of the score.",
        ),
        matched=matched,
        eccentricity=gap,
        right=right,
    )


def _scores(
    release: pa.Table, known: pa.Table, records: Integers, people: Integers, item: str, near: Mapping[str, float]
) -> tuple[Integers, Floats, Integers]:
    """Return for each person the best record, its eccentricity, and how many records reach it."""
    both = pa.chunked_array([*_plain(release.column(item)).chunks, *_plain(known.column(item)).chunks])
    codes, _ = encode(both)
    sold, asked = codes[: release.num_rows], codes[release.num_rows :]
    numbers = [(_numbers(release, name), _numbers(known, name), width) for name, width in near.items()]
    order = np.argsort(sold, kind="stable")
    starts = np.searchsorted(sold[order], np.arange(codes.max() + 2))
    pairs = np.unique(np.column_stack((sold, records)), axis=0)[:, 0]
    weight = 1 / np.log(np.maximum(np.bincount(pairs, minlength=int(codes.max()) + 1), 2))
    count = int(records.max()) + 1
    best, gap = np.zeros(int(people.max()) + 1, dtype=np.int64), np.zeros(int(people.max()) + 1)
    ties = np.ones(len(best), dtype=np.int64)
    entries = np.argsort(people, kind="stable")
    limits = np.searchsorted(people[entries], np.arange(len(best) + 1))
    for who in range(len(best)):
        scores = np.zeros(count)
        for entry in entries[limits[who] : limits[who + 1]].tolist():
            rows = order[starts[asked[entry]] : starts[asked[entry] + 1]]
            if not len(rows):
                continue
            agreement = np.ones(len(rows))
            for theirs, ours, width in numbers:
                agreement *= np.exp(-np.abs(theirs[rows] - ours[entry]) / width)
            agreement = np.nan_to_num(agreement)  # a value that is missing on either side agrees with nothing
            own = np.zeros(count)
            np.maximum.at(own, records[rows], weight[asked[entry]] * agreement)
            scores += own
        place = int(scores.argmax())
        top, rest = scores[place], np.delete(scores, place)
        spread = float(scores.std())
        best[who] = place
        ties[who] = int((scores >= top - 1e-12).sum())
        gap[who] = 0.0 if not spread else (top - (rest.max() if len(rest) else 0.0)) / spread
    return best, gap, ties


def _plain(column: Any) -> pa.ChunkedArray:
    """Return items as text, so that both tables have one type."""
    array = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    return array.cast(pa.large_string())


def _numbers(table: pa.Table, name: str) -> Floats:
    kind = table.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise BadInput(f"the column {name!r:.60} of `values` must hold numbers. Convert dates to days first.")
    return np.array([np.nan if cell is None else float(cell) for cell in table.column(name).to_pylist()])
