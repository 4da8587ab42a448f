"""Questions of every shape on two neighbouring tables, and what one patient may change in them.

A plan is made once. The statement runs once on each table and gives exact integers; noise is added to those integers
and to nothing else, so an audit may draw it as often as it likes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.dataset import Dataset
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.mechanisms import DiscreteLaplace, Numeric
from cloister.privacy.noise import SeededSource
from cloister.query.plan import Plan
from cloister.query.run import _look

__all__ = [
    "BY_ROW",
    "LOSSES",
    "MAX_ROWS",
    "MODES",
    "SCHEMA",
    "SHAPES",
    "Pair",
    "breaches",
    "draw",
    "overcharge",
    "pair",
]

Rows = Sequence[Mapping[str, Any]]
MAX_ROWS = 3
WARDS = ("a", "b", "ç")
LOSSES = {"laplace": epsilon(1), "gaussian": rho("0.5")}

_COLUMNS = {
    "ward": {"type": "text", "categories": list(WARDS)},
    "age": {"type": "integer", "bounds": [0, 12], "nullable": False},
    "cost": {"type": "real", "bounds": [-4.0, 8.0]},
    "note": {"type": "text"},
}
_WARDS = {"public": True, "columns": {"ward": _COLUMNS["ward"], "beds": {"type": "integer", "bounds": [0, 9]}}}
SCHEMA = Schema.load({
    "unit": {"name": "patient", "max_rows": MAX_ROWS},
    "tables": {
        "visits": {"unit": "patient", "columns": _COLUMNS},
        "labs": {"unit": "patient", "columns": {"kind": {"type": "integer", "bounds": [0, 2], "nullable": False}}},
        "wards": _WARDS,
    },
})  # fmt: skip
BY_ROW = Schema.load({
    "unit": "row", "tables": {"visits": {"columns": _COLUMNS}, "wards": {**_WARDS, "max_rows": 2}},
})  # fmt: skip

SHAPES = {
    "count": "SELECT COUNT(*) FROM visits",
    "count of a column": "SELECT COUNT(cost) FROM visits",
    "people": "SELECT COUNT(DISTINCT patient) FROM visits",
    "people by group": "SELECT ward, COUNT(DISTINCT patient) FROM visits GROUP BY ward",
    "different values": "SELECT COUNT(DISTINCT note) FROM visits",
    "different values by group": "SELECT ward, COUNT(DISTINCT age) FROM visits GROUP BY ward",
    "sum of integers": "SELECT SUM(age) FROM visits",
    "sum of reals": "SELECT SUM(cost) FROM visits",
    "average": "SELECT AVG(cost) FROM visits",
    "variance": "SELECT VARIANCE(age) FROM visits",
    "deviation": "SELECT STDDEV(cost) FROM visits",
    "median": "SELECT MEDIAN(age) FROM visits",
    "median of reals": "SELECT MEDIAN(cost) FROM visits",
    "quantiles": "SELECT QUANTILE(age, 0.1), QUANTILE(age, 0.9) FROM visits",
    "percentile": "SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) FROM visits",
    "smallest": "SELECT MIN(age) FROM visits",
    "largest": "SELECT MAX(age) FROM visits",
    "count by group": "SELECT ward, COUNT(*) FROM visits GROUP BY ward",
    "average by group": "SELECT ward, AVG(age) FROM visits GROUP BY ward",
    "median by group": "SELECT ward, MEDIAN(age) FROM visits GROUP BY ward",
    "two keys": "SELECT ward, age, SUM(cost) FROM visits GROUP BY ward, age",
    "groups named in the question": "SELECT note, COUNT(*) FROM visits WHERE note IN ('x', 'y') GROUP BY note",
    "where": "SELECT COUNT(*) FROM visits WHERE age >= 5 AND (cost < 3 OR ward = 'a')",
    "case": "SELECT SUM(CASE WHEN age > 6 THEN cost ELSE -1 END) FROM visits",
    "arithmetic": "SELECT SUM(age * age - 2 * cost) FROM visits",
    "join with a public table": "SELECT SUM(beds) FROM visits JOIN wards ON visits.ward = wards.ward",
    "a public table that multiplies": "SELECT COUNT(*) FROM visits CROSS JOIN wards",
    "left join with a public table": "SELECT COUNT(beds) FROM visits LEFT JOIN wards USING (ward)",
    "join of a table with itself": "SELECT COUNT(*) FROM visits AS a JOIN visits AS b ON a.age >= b.age",
    "join of private tables": "SELECT kind, COUNT(*) FROM visits JOIN labs ON age > kind GROUP BY kind",
    "left join of private tables": "SELECT COUNT(kind) FROM visits LEFT JOIN labs USING (patient)",
    "union all": "SELECT COUNT(*) FROM (SELECT age FROM visits UNION ALL SELECT kind FROM labs) AS both",
    "with": "WITH old AS (SELECT ward, age FROM visits WHERE age > 4) SELECT ward, SUM(age) FROM old GROUP BY ward",
    "subquery": "SELECT AVG(x) FROM (SELECT age * 2 AS x FROM visits WHERE ward = 'a') AS t",
    "one row per person": "SELECT SUM(LEAST(n, 5)) FROM (SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient) t",
    "rollup": "SELECT ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)",
    "grouping sets": "SELECT ward, age, COUNT(*) FROM visits GROUP BY GROUPING SETS ((ward), (age))",
    "histogram": "SELECT WIDTH_BUCKET(cost, -4, 8, 6) AS bin, COUNT(*) FROM visits GROUP BY bin",
    "having": "SELECT ward, COUNT(*) FROM visits GROUP BY ward HAVING COUNT(*) > 2 ORDER BY 2 DESC LIMIT 2",
    "arithmetic over answers": "SELECT SUM(age) / COUNT(*) AS mean FROM visits",
    "many aggregates": "SELECT ward, COUNT(*), SUM(age), AVG(cost), STDDEV(age) FROM visits GROUP BY ward",
}  # fmt: skip
MODES = {
    "mode": "SELECT MODE(ward) FROM visits",
    "mode by group": "SELECT ward, MODE(age > 4) FROM visits GROUP BY ward",
}


def table(rows: Rows) -> pa.Table:
    """Visits as an Arrow table with declared types."""
    kinds = {"patient": pa.int64(), "ward": pa.string(), "age": pa.float64(), "cost": pa.float64(), "note": pa.string()}
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()})


def lab_table(rows: Rows) -> pa.Table:
    """Labs: every visit has had one."""
    return pa.table({
        "patient": pa.array([row.get("patient") for row in rows], pa.int64()),
        "kind": pa.array([int(row.get("patient") or 0) % 3 for row in rows], pa.int64()),
    })  # fmt: skip


# Three patients within the cap, two of them in several groups.
OTHERS = [
    {"patient": 1, "ward": "a", "age": 3, "cost": 2.5, "note": "x"},
    {"patient": 1, "ward": "b", "age": 9, "cost": -1.0, "note": "z"},
    {"patient": 2, "ward": "ç", "age": 7, "cost": None, "note": "y"},
    {"patient": 2, "ward": "ç", "age": 5, "cost": 8.0, "note": "y"},
    {"patient": 3, "ward": None, "age": 0, "cost": 0.0, "note": None},
]
# One with far more rows than count, in all groups, with values beyond all bounds.
HEAVY = [
    {"patient": 9, "ward": ward, "age": age, "cost": cost, "note": note}
    for ward, age, cost, note in [
        ("a", 12, 8.0, "x"), ("a", 12, 1e9, "y"), ("b", 12, 8.0, "u"), ("ç", 12, -1e9, "v"), ("b", 99, 8.0, "w"),
        ("a", 11, 8.0, "x"), ("ç", -99, float("inf"), "t"), (None, 12, 8.0, "s"), ("a", 10, 7.5, "r"),
        ("b", 9, 8.0, "q"),
    ]
]  # fmt: skip


@dataclass
class Pair:
    """Two neighbouring datasets with one owner, and which of them is being read."""

    with_patient: Dataset
    without: Dataset
    reading: Dataset

    def plan(self, sql: str, spend: Loss) -> Plan:
        """The plan, the same for both."""
        return self.with_patient.plan(sql, spend=spend)

    def look(self, plan: Plan) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """The exact integers on both sides."""
        return _look(plan, self.with_patient.tables.engine), _look(plan, self.without.tables.engine)

    def close(self) -> None:
        """Let go of both."""
        self.with_patient.close()
        self.without.close()


def pair(folder: Path, patient: Rows = HEAVY, others: Rows = OTHERS, schema: Schema = SCHEMA) -> Pair:
    """Datasets with and without one patient. Each has an account that pays for rho and for epsilon."""
    ledger = Ledger.in_folder(folder)
    sides = []
    for name, rows in (("with", [*others, *patient]), ("without", others)):
        wards = pa.table({"ward": ["a", "b", "ç"], "beds": [9, 2, 5]})
        tables = {"visits": table(rows), "labs": lab_table(rows), "wards": wards}
        source = {known: tables[known] for known in schema.tables}
        account = ledger.open_account(name, epsilon(10**6, delta="1e-6"))
        sides.append(Dataset(open_tables(source, schema, threads=1), account))
    return Pair(*sides, sides[0])


def breaches(plan: Plan, left: Sequence[NDArray[Any]], right: Sequence[NDArray[Any]]) -> list[str]:
    """Where one unit moves a statistic further than the mechanism's sensitivity, in the mechanism's norm."""
    found = []
    for mechanism, a, b in zip(plan.mechanisms, left, right, strict=True):
        moved = [abs(int(one)) for one in (a.astype(object) - b.astype(object)).flat]
        limit: Fraction = mechanism.sensitivity  # type: ignore[attr-defined]
        if isinstance(mechanism, DiscreteLaplace):
            within = sum(moved) <= limit
        elif isinstance(mechanism, Numeric):
            within = sum(one * one for one in moved) <= limit**2
        else:  # a choice in each group: in a group the largest change counts, over groups they add up
            within = int(np.abs((a - b).astype(object)).max(axis=1).sum()) <= limit
            within &= bool((a >= b).all() or (a <= b).all())  # the rate is that of monotone scores
        if not within:
            found.append(f"{mechanism.name}: moved by {moved}, sensitivity {limit}")
    return found


def overcharge(plan: Plan) -> Fraction:
    """By how much the mechanisms together cost more than the plan says; at most zero."""
    assert plan.loss is not None
    pure = plan.loss.is_pure
    prices = [one.pure if pure else one.zcdp for one in plan.mechanisms]
    return sum((price.amount for price in prices if price), start=Fraction(0)) - plan.loss.amount


def draw(plan: Plan, seed: int, telling: Sequence[NDArray[np.bool_]] | None = None) -> Any:
    """A sampler `(exact integers, n) -> n noisy vectors`.

    Cells that are the same on both sides have the same independent noise there and tell nothing, so an audit may leave
    them out: `telling` says which stay.
    """
    source = SeededSource(seed)

    def sample(exact: Sequence[NDArray[Any]], n: int) -> NDArray[Any]:
        columns = []
        for i, (mechanism, statistic) in enumerate(zip(plan.mechanisms, exact, strict=True)):
            flat = statistic.ravel() if telling is None else statistic.ravel()[telling[i]]
            columns.append(mechanism.release(np.tile(flat, (n, 1)), source))
        return np.concatenate(columns, axis=1)

    return sample
