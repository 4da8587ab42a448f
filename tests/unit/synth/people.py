"""A small generated hospital for tests of synthetic tables: every kind of column, and rules that no row may break."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import cloister as cl
from cloister.data.schema import Schema

WARDS = ["cardiology", "maternity", "surgery"]
BUILDING = {"cardiology": "north", "maternity": "south", "surgery": "north"}
COLUMNS: dict[str, Any] = {
    "ward": {"type": "text", "categories": WARDS, "nullable": False},
    "building": {"type": "text", "categories": ["north", "south"], "nullable": False},
    "age": {"type": "integer", "bounds": [0, 89], "nullable": False},
    "cost": {"type": "real", "bounds": [0, 100]},
    "admitted": {"type": "date", "bounds": [date(2025, 1, 1), date(2025, 12, 31)], "nullable": False},
    "back": {"type": "boolean", "nullable": False},
    "note": {"type": "text"},
}
RULES: dict[str, Any] = {
    "never": [{"ward": "maternity", "age": {"from": 60}}],
    "determines": ["ward -> building"],
}
BY_ROW = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS, **RULES}}})
BY_PERSON = Schema.load(
    {"unit": {"name": "person", "max_rows": 2}, "tables": {"visits": {"unit": "person", "columns": COLUMNS, **RULES}}}
)


def people(rows: int = 2000, seed: int = 8) -> pa.Table:
    """Visits: old people cost more and come back more often, maternity is for the young."""
    generator = np.random.default_rng(seed)
    age = np.clip(generator.normal(48, 20, rows).round(), 0, 89).astype(np.int64)
    ward = np.where(age < 45, generator.choice(WARDS, rows), generator.choice(["cardiology", "surgery"], rows))
    cost = np.clip(age * 0.7 + generator.normal(15, 8, rows), 0, 100)
    missing = generator.random(rows) < 0.1
    return pa.table(
        {
            "person": generator.integers(0, max(1, rows * 3 // 4), rows),
            "ward": ward,
            "building": np.array([BUILDING[one] for one in ward]),
            "age": age,
            "cost": pa.array(cost, mask=missing),
            "admitted": pa.array([date(2025, 1, 1) + timedelta(int(day)) for day in generator.integers(0, 365, rows)]),
            "back": generator.random(rows) < 0.1 + 0.7 * (age > 50),
            "note": np.array([f"patient {i}" for i in range(rows)]),
        }
    )


def opened(folder: Path, rows: pa.Table | None = None, schema: Schema = BY_ROW, budget: Any = None) -> Any:
    """A dataset with a budget that is hard to spend."""
    return cl.open(people() if rows is None else rows, schema=schema, budget=budget or cl.rho(10**6), ledger=folder)
