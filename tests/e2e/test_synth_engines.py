"""Synthesis counts where the rows are: DuckDB, PostgreSQL and Spark see the same integers, to the last digit."""

from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.privacy.noise import SeededSource
from cloister.synth import run
from cloister.synth.generators import two_tables

pytestmark = pytest.mark.e2e

N = 300
_random = np.random.default_rng(11)
PERSON = _random.integers(0, 90, N)
PERSON[:30] = 7  # one with many rows
AGE = _random.integers(0, 90, N)
VISITS = pa.table(
    {
        "person": PERSON,
        "ward": pa.array(_random.choice(["a", "b", "c"], N)),
        "age": AGE,
        "cost": pa.array(np.round(0.5 * AGE + _random.normal(20, 9, N), 3), mask=_random.random(N) < 0.1),
        "day": pa.array([date(2025, 1, 1) + timedelta(int(one)) for one in _random.integers(0, 365, N)]),
        "at": pa.array([datetime(2025, 1, 1) + timedelta(minutes=int(m)) for m in _random.integers(0, 500_000, N)]),
        "back": _random.random(N) < 0.4,
    }
)
PEOPLE = pa.table({"person": np.arange(100), "sex": _random.choice(["f", "m"], 100)})
FACTS: dict[str, Any] = {
    "unit": {"name": "person", "max_rows": 5},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "ward": {"type": "text", "categories": ["a", "b", "c"]},
                "age": {"type": "integer", "bounds": [0, 90], "nullable": False},
                "cost": {"type": "real", "bounds": [0, 90]},
                "day": {"type": "date", "bounds": [date(2025, 1, 1), date(2025, 12, 31)], "nullable": False},
                "at": {"type": "timestamp", "bounds": [datetime(2025, 1, 1), datetime(2025, 12, 31)]},
                "back": {"type": "boolean", "nullable": False},
            },
        },
        "people": {
            "unit": "person",
            "max_rows": 1,
            "columns": {"sex": {"type": "text", "categories": ["f", "m"], "nullable": False}},
        },
    },
}
SCHEMA = Schema.load(FACTS)
CHOSEN: dict[str, Any] = {"table": "visits", "columns": ["ward", "age", "cost", "at"], "rows": 9}
FEW = {"people": ["sex"], "visits": ["ward", "day"]}
MAKE: dict[str, Callable[[Any], Any]] = {
    "cuts": lambda ds: synth.histogram(ds, table="visits", column="day", spend=cl.rho(9), bins=synth.PrivateCuts(5)),
    "mggm": lambda ds: synth.mggm(ds, **CHOSEN, spend=cl.rho(90), bins=9, group_size=20, label="ward", reviewed=False),
    "ron_gauss": lambda ds: synth.ron_gauss(ds, **CHOSEN, spend=cl.rho(9), bins=9, reviewed=False),
    "two_tables": lambda ds: synth.two_tables(
        ds, parent="people", child="visits", columns=FEW, spend=cl.rho(9), rows=9, bins=5
    ),
}


class Steps:
    """A meter that keeps what every step saw, and tells what the first engine told."""

    def __init__(self, told: list[Any] | None = None) -> None:
        self.seen: list[Any] = []
        self.told = told
        self.source = SeededSource("engines")
        self.values: list[Any] = []

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        """Keep what is seen."""
        self.seen.append(np.asarray(look()).tolist())
        value = self.told[len(self.values)] if self.told else mechanism.release(np.asarray(look()), self.source)
        self.values.append(value)
        return value


def carried(name: str, ds: Any, meter: Steps) -> Steps:
    def without_a_ledger(steps: Any, **_: Any) -> Any:
        return steps(meter), SimpleNamespace(body={"mechanism": "any"}, text=lambda: "null")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "release_steps", without_a_ledger)
        patch.setattr(two_tables, "release_steps", without_a_ledger)
        MAKE[name](ds)
    return meter


@pytest.fixture(scope="module")
def first(tmp_path_factory) -> dict[str, Steps]:
    """What each generator sees in DuckDB."""
    tables = {"visits": VISITS, "people": PEOPLE}
    with cl.open(tables, schema=SCHEMA, budget=cl.rho(9), ledger=tmp_path_factory.mktemp("first")) as ds:
        return {name: carried(name, ds, Steps()) for name in MAKE}


@pytest.mark.parametrize("engine", ["postgres", "spark"])
def test_every_engine_sees_the_same(engine: str, first: dict[str, Steps], request, tmp_path: Path):
    source = in_postgres(request.getfixturevalue("postgres_address")) if engine == "postgres" else None
    if source is None:
        spark = request.getfixturevalue("spark")
        source = {
            "visits": spark.createDataFrame(VISITS.to_pylist()),
            "people": spark.createDataFrame(PEOPLE.to_pylist()),
        }
    with cl.open(source, schema=SCHEMA, budget=cl.rho(9), ledger=tmp_path) as ds:
        for name in MAKE:
            there = carried(name, ds, Steps(first[name].values))
            assert there.seen == first[name].seen, name


def in_postgres(address: str) -> str:
    """The same rows in tables of PostgreSQL."""
    import psycopg

    kinds = {
        "visits": "person bigint, ward text, age bigint, cost double precision, day date, at timestamp, back boolean",
        "people": "person bigint, sex text",
    }
    with psycopg.connect(address, autocommit=True) as connection:
        for name, table in (("visits", VISITS), ("people", PEOPLE)):
            connection.execute(f"CREATE TABLE {name} ({kinds[name]})")
            marks = ", ".join(["%s"] * table.num_columns)
            with connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO {name} VALUES ({marks})",
                    [tuple(row.values()) for row in table.to_pylist()],
                )
    return address
