"""`cloister schema check --against`: how many rows a schema leaves out, clips or reads as missing, for the owner."""

import csv

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner
from pyarrow import parquet

from cloister.cli import main
from cloister.data.schema import Schema
from cloister.data.schema_fit import fit_of

FACTS = {
    "unit": {"name": "patient", "max_rows": 8},
    "tables": {
        "visits": {
            "unit": "patient",
            "columns": {
                "ward": {"type": "text", "categories": ["surgery", "maternity"], "nullable": False},
                "age": {"type": "integer", "bounds": [0, 100]},
                "cost": {"type": "real", "bounds": [0, 50.5], "nullable": False},
                "day": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"]},
                "floor": {"type": "integer", "categories": [1, 2]},
            },
        }
    },
}
ROWS = {
    "patient": ["p1", "p2", "p3", None, "p5", "p6"],
    "ward": ["surgery", "surgry", "surgry", "maternity", "Surgery", "surgery"],
    "age": ["7", "-1", "101", "200", "many", ""],
    "cost": ["1", "2.5", "51", "3", "4", "x"],
    "day": ["2025-01-01", "2024-12-31", "2026-01-01", "", "soon", "2025-05-05"],
    "floor": ["1", "2", "3", "", "1", "2"],
}


@pytest.fixture(params=["parquet", "csv"])
def files(tmp_path, request):
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(FACTS), encoding="utf-8")
    source = tmp_path / f"visits.{request.param}"
    if request.param == "parquet":
        parquet.write_table(pa.table(ROWS), source)
    else:
        with source.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(ROWS)
            writer.writerows(zip(*ROWS.values(), strict=True))
    return str(tmp_path / "schema.yaml"), str(source)


def test_rows_that_are_lost_and_values_that_are_changed_are_counted_by_column(files):
    (table,) = fit_of(files[1], Schema.load(files[0]))
    assert (table.rows, table.read, table.nobody) == (6, 1, 1)
    by_name = {one.column.name: one for one in table.columns}
    told = {
        name: (one.missing, one.unreadable, one.unknown, one.below, one.above, one.lost)
        for name, one in by_name.items()
    }
    assert told == {
        "ward": (0, 0, 3, 0, 0, 3),
        "age": (1, 1, 0, 1, 2, 0),
        "cost": (0, 1, 0, 0, 1, 1),
        "day": (1, 1, 0, 1, 1, 0),
        "floor": (1, 0, 1, 0, 0, 0),
    }
    assert by_name["ward"].named == (("surgry", 2), ("Surgery", 1))
    assert by_name["floor"].named == ((3, 1),)


def test_the_command_tells_the_owner_in_words(files):
    done = CliRunner().invoke(main, ["schema", "check", files[0], "--against", files[1]])
    assert done.exit_code == 0, done.output
    for words in (
        "No problem found.\nOWNER'S VIEW",
        "visits: 6 rows, of which 5 (83 %) are left out",
        "1 rows name no unit",
        "ward: 3 rows left out, since it is not nullable; 3 outside the categories: 'surgry' (2), 'Surgery' (1)",
        "age: 1 do not read as integer; 3 clipped, 1 below 0 and 2 above 100",
        "0 of 5 columns are read as they stand",
    ):
        assert words in done.output
    assert "OWNER'S VIEW" not in CliRunner().invoke(main, ["schema", "check", files[0]]).output


def test_a_column_without_any_value_that_may_not_be_missing_empties_the_table():
    schema = Schema.load(
        {
            "unit": "row",
            "tables": {"t": {"columns": {"a": {"type": "boolean", "nullable": False}, "b": {"type": "text"}}}},
        }
    )
    (table,) = fit_of(pa.table({"a": pa.array([None, None], pa.bool_()), "b": ["x", ""]}), schema)
    assert (table.rows, table.read) == (2, 0)
    assert [(one.lost, one.fits) for one in table.columns] == [(2, False), (0, True)]


def test_rows_that_fit_are_all_read():
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": {"x": {"type": "real", "bounds": [0, 1]}}}}})
    (table,) = fit_of(pa.table({"x": [0.0, 0.5, 1.0, None]}), schema)
    assert (table.rows, table.read) == (4, 4)
    assert all(one.fits for one in table.columns)
