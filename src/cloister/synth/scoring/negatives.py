"""Synthetic-looking tables without protection: copies, bootstrap, SMOTE. For comparison, never for release.

Each is labelled not private, states no loss, and cannot enter a ledger. `gate` refuses all three.

Falls to: `attack.tables.synthetic.attack_sample.attack`: copies, closest rows, membership, singling out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.attack.tables.synthetic.closeness import encoded
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput
from cloister.synth.scoring.rows import EncodedRows, ScoreRows, only_table, read_rows, sides_of, source_of

__all__ = ["NotPrivateTable", "bootstrap", "copying", "decoded", "smote"]

_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class NotPrivateTable:
    """Rows generated without privacy.

    Attributes:
        table: the rows.
        method: the method that generated them.
        why: why they protect no one.
    """

    table: pa.Table
    method: str
    why: str

    @property
    def private(self) -> bool:
        """Return False."""
        return False

    @property
    def loss(self) -> None:
        """Return None: no epsilon, however large, describes it."""
        return

    def to_arrow(self) -> pa.Table:
        """Return the rows."""
        return self.table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __str__(self) -> str:
        return f"NOT PRIVATE: {len(self):,} rows by {self.method}. {self.why}"


def copying(real: Any, rows: int | None = None, seed: int = 0) -> NotPrivateTable:
    """Return rows of the real table in another order, or some of them."""
    table, random = _arrow(real), np.random.default_rng(seed)
    count = _count(rows, table.num_rows)
    if count > table.num_rows:
        raise BadInput(f"there are {table.num_rows:,} rows to copy. Ask for no more, or use bootstrap.")
    taken = table.take(pa.array(random.permutation(table.num_rows)[:count]))
    return NotPrivateTable(taken, "copying", "Every row is somebody's.")


def bootstrap(real: Any, rows: int | None = None, seed: int = 0) -> NotPrivateTable:
    """Sample rows of the real table with replacement: statistically optimal, but each row is a real one."""
    table, random = _arrow(real), np.random.default_rng(seed)
    taken = table.take(pa.array(random.integers(table.num_rows, size=_count(rows, table.num_rows))))
    return NotPrivateTable(taken, "bootstrap", "Every row is somebody's; about 63 % of all people are in it.")


def smote(
    real: Any,
    schema: Schema | Any,
    rows: int | None = None,
    *,
    neighbours: int = 5,
    table: str | None = None,
    seed: int = 0,
) -> NotPrivateTable:
    """Generate rows between a real row and one of its neighbours (Chawla, Bowyer, Hall & Kegelmeyer 2002, SMOTE-NC).

    Numbers are on the line between the two, categories are the most frequent among the neighbours. No row is a copy,
    but each is close to a real row: `gate` finds that by distance.

    Args:
        real: the rows.
        schema: the public facts; columns without public values or bounds are left out.
        rows: number of rows; as many as there are unless given.
        neighbours: the number of nearest rows from which the other row is chosen.
    """
    facts = only_table(schema if isinstance(schema, Schema) else Schema.load(schema), table)
    real_rows = read_rows(real, facts, sides_of(facts, None, 32))
    if neighbours < 1 or len(real_rows) <= neighbours:
        raise BadInput("SMOTE needs at least one neighbour, and more rows than neighbours.")
    random = np.random.default_rng(seed)
    start = random.integers(len(real_rows), size=_count(rows, len(real_rows)))
    near = _nearest(real_rows, start, neighbours)
    end = near[np.arange(len(start)), random.integers(neighbours, size=len(start))]
    fraction = random.random(len(start))
    points = np.empty((len(start), len(real_rows.sides)))
    for j, side in enumerate(real_rows.sides):
        first = real_rows.points[start, j]
        if side.ordered:
            second = real_rows.points[end, j]
            points[:, j] = np.where(np.isnan(second), first, first + fraction * (second - first))
        else:
            votes = real_rows.codes[near, j][:, :, None] == np.arange(side.size)
            voted = votes.sum(axis=1).argmax(axis=1)
            points[:, j] = np.where(voted == len(side.labels), np.nan, voted)
    synthetic = decoded(real_rows.sides, points)
    return NotPrivateTable(synthetic, "SMOTE", "Every row is between two people who are alike.")


def decoded(sides: Sequence[EncodedRows], points: NDArray[Any]) -> pa.Table:
    """Convert points to values: the inverse of reading rows."""
    columns = {}
    for j, side in enumerate(sides):
        value = _value_of(side)
        columns[side.name] = pa.array([None if np.isnan(point) else value(float(point)) for point in points[:, j]])
    return pa.table(columns)


def _value_of(side: EncodedRows) -> Callable[[float], Any]:
    if not side.ordered:
        return lambda code: side.labels[int(code)]
    low, high = side.column.bounds or (0, 1)
    if isinstance(low, datetime) and isinstance(high, datetime):
        moment, span = low, high - low
        return lambda position: moment + span * position
    if isinstance(low, date) and isinstance(high, date):
        day, days = low, (high - low).days
        return lambda position: day + timedelta(days=round(days * position))
    if isinstance(low, int) and isinstance(high, int) and side.column.type == "integer":
        start, steps = low, high - low
        return lambda position: start + round(steps * position)
    least, width = float(low), float(high) - float(low)  # type: ignore[arg-type]
    return lambda position: least + width * position


def _nearest(rows: ScoreRows, chosen: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return the nearest other rows of some rows."""
    nearest = np.empty((len(chosen), count), dtype=np.int64)
    right = np.ascontiguousarray(encoded(rows, slice(None), mirrored=True).T)
    for at in range(0, len(chosen), _BLOCK):
        some = chosen[at : at + _BLOCK]
        products = encoded(rows.take(some), slice(None)) @ right
        products[np.arange(len(some)), some] = -np.inf
        nearest[at : at + _BLOCK] = np.argpartition(-products, count - 1, axis=1)[:, :count]
    return nearest


def _arrow(real: Any) -> pa.Table:
    source = source_of(real)
    if isinstance(source, pa.Table):
        table = source
    elif type(source).__module__.partition(".")[0] == "pandas":
        table = pa.Table.from_pandas(source, preserve_index=False)
    else:
        raise BadInput("give rows as an Arrow table, a pandas or polars frame, or a dict of columns.")
    if not table.num_rows:
        raise BadInput("there are no rows to start from.")
    return table


def _count(rows: int | None, otherwise: int) -> int:
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise BadInput("rows is a whole number of at least 1.")
    return otherwise if rows is None else rows
