"""Counts, histograms, marginals, sums and products: as numpy says, the same on every engine, capped on each."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cloister.data.schema import Schema
from cloister.data.statistics import WEIGHT
from cloister.data.summaries import counts, cross_products, histogram, marginal, sums
from cloister.data.tables import open_tables
from cloister.privacy.errors import BadSchema
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.e2e

N = 300
_source = SeededSource("summaries")
AGE = (_source.floats(N) * 90).astype(np.int64)
COST = np.round(_source.floats(N) * 100, 3)
WARD = np.array(["a", "b", "c"])[(_source.floats(N) * 3).astype(int)]
PERSON = (_source.floats(N) * 60).astype(np.int64)  # about five rows each, some more
PERSON[:40] = 7  # one with many
TABLE = pa.table({"person": PERSON, "ward": WARD, "age": AGE, "cost": COST})
COLUMNS = {
    "ward": {"type": "text", "categories": ["a", "b", "c"], "nullable": False},
    "age": {"type": "integer", "bounds": [0, 90], "nullable": False},
    "cost": {"type": "real", "bounds": [0, 100], "nullable": False},
}
BY_ROW = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS}}})
BY_PERSON = Schema.load(
    {"unit": {"name": "person", "max_rows": 6}, "tables": {"visits": {"unit": "person", "columns": COLUMNS}}}
)
SUMMARIES: dict[str, Any] = {
    "counts": lambda tables: counts(tables, "visits"),
    "histogram": lambda tables: histogram(tables, "visits", "cost", bins=20),
    "values": lambda tables: histogram(tables, "visits", "ward"),
    "marginal": lambda tables: marginal(tables, "visits", ["ward", "age"], bins=9),
    "sums": lambda tables: sums(tables, "visits", ["age", "cost"]),
    "products": lambda tables: cross_products(tables, "visits", ["age", "cost"]),
}


def weights() -> np.ndarray:
    rows = np.bincount(PERSON)[PERSON]
    return np.where(rows > 6, WEIGHT * 6 // rows, WEIGHT)


def on_grid(values: np.ndarray) -> np.ndarray:
    return np.floor(values * 2.0**30 + 0.5).astype(np.int64)


def scaled(name: str) -> np.ndarray:
    half = {"age": 45.0, "cost": 50.0}[name]
    return ({"age": AGE, "cost": COST}[name].astype(np.float64) - half) * (1 / half)


@pytest.fixture(params=["duckdb", "postgres", "spark"])
def opened(request: pytest.FixtureRequest) -> Any:
    """The same rows in each engine."""

    def open_it(schema: Schema) -> Any:
        if request.param == "duckdb":
            return open_tables(TABLE, schema)
        if request.param == "spark":
            session = request.getfixturevalue("spark")
            return open_tables({"visits": session.createDataFrame(TABLE.to_pylist())}, schema)
        import psycopg

        address = request.getfixturevalue("postgres_address")
        with psycopg.connect(address, autocommit=True) as server:
            server.execute("CREATE TABLE visits (person bigint, ward text, age bigint, cost double precision)")
            with server.cursor().copy("COPY visits FROM STDIN") as copy:
                for row in TABLE.to_pylist():
                    copy.write_row([row["person"], row["ward"], row["age"], row["cost"]])
        return open_tables(address, schema)

    return open_it


def expected(name: str, weight: np.ndarray) -> list[list[int]]:
    ward, age = np.searchsorted(["a", "b", "c"], WARD), np.minimum(AGE // 10, 8)
    tables = {
        "counts": lambda: [[weight.sum()]],
        "histogram": lambda: [np.bincount(np.minimum((COST * (1 / 5.0)).astype(int), 19), weight, 20)],
        "values": lambda: [np.bincount(ward, weight, 3)],
        "marginal": lambda: [np.bincount(ward * 9 + age, weight, 27)],
        "sums": lambda: [[weight.sum()], *([(weight * on_grid(scaled(c))).sum()] for c in ("age", "cost"))],
        "products": lambda: [
            [weight.sum()],
            *(
                [(weight * on_grid(scaled(a) * scaled(b))).sum()]
                for a, b in (("age", "age"), ("age", "cost"), ("cost", "cost"))
            ),
        ],
    }
    return [[int(number) for number in column] for column in tables[name]()]


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.parametrize("schema", [BY_ROW, BY_PERSON], ids=["by row", "by person"])
def test_every_engine_computes_what_numpy_does(opened: Any, name: str, schema: Schema) -> None:
    tables = opened(schema)
    summary = SUMMARIES[name](tables)
    weight = np.ones(N, dtype=np.int64) if schema is BY_ROW else weights()
    assert [column.tolist() for column in summary.sums.run(tables.engine)] == expected(name, weight)
    tables.close()


def test_one_person_moves_a_marginal_by_at_most_the_stated_sensitivity() -> None:
    with_person = open_tables(TABLE, BY_PERSON)
    without = open_tables(TABLE.filter(pa.array(PERSON != 7)), BY_PERSON)
    for name, make in SUMMARIES.items():
        summary = make(with_person)
        both = [summary.sums.run(one.engine) for one in (with_person, without)]
        for i, (left, right) in enumerate(zip(*both, strict=True)):
            most = summary.sums.sensitivity(None if i == 0 else i - 1)
            assert np.abs(left - right).sum() <= most, name
            if i == 0:
                assert np.abs(left - right).sum() > 0.95 * most  # forty rows of one person: the cap is reached


def test_axes_say_what_each_cell_stands_for() -> None:
    summary = marginal(open_tables(TABLE, BY_ROW), "visits", ["ward", "cost"], bins=4)
    assert summary.shape == (3, 4)
    assert summary.axes[0].labels == ("a", "b", "c")
    assert summary.axes[1].labels[0] == (0.0, 25.0)


@pytest.mark.parametrize(
    "ask",
    [
        lambda tables: marginal(tables, "visits", ["nothing"]),
        lambda tables: sums(tables, "visits", ["ward"]),
        lambda tables: histogram(tables, "visits", "cost", bins=0),
    ],
)
def test_what_has_no_public_values_is_refused(ask: Any) -> None:
    with pytest.raises(BadSchema):
        ask(open_tables(TABLE, BY_ROW))
