"""Uniqueness of rows by few columns: how much an attacker must know to single a row out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

import numpy as np

from cloister.attack.tables.columns import Integers, encode, group, require, to_arrow
from cloister.attack.tables.result import TableAttack
from cloister.privacy.errors import BadInput

__all__ = ["ColumnSet", "Uniqueness", "uniqueness"]

_MOST = 20_000  # sets of columns in one run


class ColumnSet(NamedTuple):
    """A set of columns, and the number of rows that are unique in them."""

    columns: tuple[str, ...]
    unique: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Uniqueness(TableAttack):
    """Result of a search for columns that single rows out.

    Attributes:
        sets: all sets of columns that were counted, the most identifying ones of each size first.
        fewest: for each row, the smallest number of columns that make it unique; 0 if none of the sets does.
    """

    sets: tuple[ColumnSet, ...] = field(repr=False)
    fewest: Integers = field(repr=False)

    def by_size(self) -> dict[int, ColumnSet]:
        """Return the most identifying set of each size."""
        best: dict[int, ColumnSet] = {}
        for entry in self.sets:
            best.setdefault(len(entry.columns), entry)
        return best

    def counts(self) -> dict[str, Any]:
        """Return for each number of columns the best set and its unique rows."""
        return {
            f"{n}_column{'' if n == 1 else 's'}": f"{s.unique} unique by {', '.join(s.columns)}"
            for n, s in self.by_size().items()
        }


def uniqueness(rows: object, *, columns: Sequence[str], up_to: int = 3) -> Uniqueness:
    """Count the rows that are unique in each set of few columns.

    The risk of a row is 1 / (rows with the same values in all the columns).

    Args:
        rows: the table.
        columns: columns that an attacker may know.
        up_to: the largest number of columns per set; the set of all columns is counted, too.

    >>> found = uniqueness({"sex": ["m", "f", "f"], "age": [30, 30, 40]}, columns=["sex", "age"])
    >>> found.fewest.tolist(), found.by_size()[2]
    ([1, 2, 1], ColumnSet(columns=('sex', 'age'), unique=3))
    """
    table = to_arrow(rows)
    names = require(table, columns, "a column to be known")
    number = sum(comb(len(names), size) for size in range(1, up_to + 1))
    if up_to < 1 or number > _MOST:
        raise BadInput(f"{len(names)} columns have {number:,} sets of up to {up_to}. Lower `up_to`; it is at least 1.")
    encoded = [encode(table.column(name)) for name in names]
    sizes = [*range(1, min(up_to, len(names)) + 1), *([len(names)] if up_to < len(names) else [])]
    fewest, sets = np.zeros(table.num_rows, dtype=np.int64), []
    counts = np.ones(table.num_rows, dtype=np.int64)
    for size in sizes:
        entries = []
        for chosen in combinations(range(len(names)), size):
            of, _ = group([encoded[i][0] for i in chosen], [len(encoded[i][1]) for i in chosen], table.num_rows)
            counts = np.bincount(of)[of] if table.num_rows else counts
            fewest[(counts == 1) & (fewest == 0)] = size
            entries.append(ColumnSet(tuple(names[i] for i in chosen), int(np.sum(counts == 1))))
        sets += sorted(entries, key=lambda entry: -entry.unique)
    worst = max((entry for entry in sets if len(entry.columns) <= up_to), key=lambda entry: entry.unique)
    few = int(np.sum((fewest > 0) & (fewest <= up_to)))
    few_of = f"up to {up_to} of {len(names)} columns" if up_to < len(names) else f"all {len(names)} columns"
    known = few_of if len(names) > 1 else f"the column {names[0]}"
    makes = min(up_to, len(names))
    criterion = f"at most {makes} columns make" if makes > 1 else "one column makes"
    return Uniqueness(
        name="uniqueness",
        attacker=f"knows {known} of a person in the table",
        criterion=f"{criterion} the row unique",
        risk=1 / counts if table.num_rows else np.zeros(0),
        at_risk=few,
        baseline=1 / table.num_rows if table.num_rows else 0.0,
        worst={"columns": ", ".join(worst.columns), "unique rows": str(worst.unique)},
        remedies=("Generalise or drop the columns of the sets listed first.",),
        sets=tuple(sets),
        fewest=fewest,
    )
