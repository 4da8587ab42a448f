"""Whatever the cells of a table hold, its view never fails and stays within the schema."""

import csv
import io
import math
import struct
from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloister.data import Schema, open_tables

CATEGORIES = ("a", "ß", "no", "1")
COLUMNS = {
    "integer": {"type": "integer", "bounds": [-7, 1000]},
    "wide": {"type": "integer"},
    "real": {"type": "real", "bounds": [-1.5, 1e6]},
    "finite": {"type": "real"},
    "text": {"type": "text", "categories": list(CATEGORIES)},
    "free": {"type": "text"},
    "boolean": {"type": "boolean"},
    "date": {"type": "date", "bounds": ["1990-01-01", "2030-12-31"]},
    "timestamp": {"type": "timestamp", "bounds": ["1990-01-01", "2030-12-31"]},
}
SCHEMA = Schema.load({"unit": {"name": "person", "max_rows": 2}, "tables": {"t": {"unit": "id", "columns": COLUMNS}}})
ROW_SCHEMA = Schema.load({"unit": "row", "tables": {"t": {"columns": COLUMNS}}})

FITS = {
    "integer": lambda x: type(x) is int and -7 <= x <= 1000,
    "wide": lambda x: type(x) is int and abs(x) < 2**63,
    "real": lambda x: type(x) is float and -1.5 <= x <= 1e6,
    "finite": lambda x: type(x) is float and math.isfinite(x),
    "text": lambda x: x in CATEGORIES,
    "free": lambda x: type(x) is str and x != "",
    "boolean": lambda x: type(x) is bool,
    "date": lambda x: type(x) is date and date(1990, 1, 1) <= x <= date(2030, 12, 31),
    "timestamp": lambda x: type(x) is datetime and datetime(1990, 1, 1) <= x <= datetime(2030, 12, 31),
}

NUMBERS_AS_TEXT = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.decimals().map(str),
    st.from_regex(r"\A[ +-]{0,2}[0-9_]{0,70}[.,]?[0-9]{0,70}([eE][+-]?[0-9]{0,4})?[ \n]?\Z"),
)
MOMENTS_AS_TEXT = st.one_of(
    st.datetimes().map(str),
    st.dates().map(str),
    st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,7})?)?)?Z?\Z"),
)
CELLS = st.none() | st.one_of(
    st.text(max_size=30),
    st.sampled_from([*CATEGORIES, "", "NaN", "-inf", "TRUE", "f"]),
    NUMBERS_AS_TEXT,
    MOMENTS_AS_TEXT,
)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check(source, schema=SCHEMA):
    tables = open_tables(source, schema)
    found = tables.engine.run(tables.view("t").sql("duckdb"))
    tables.close()
    for name, fits in FITS.items():
        assert all(value is None or fits(value) for value in found.column(name).to_pylist()), name
    return found


@FEW
@given(st.lists(CELLS, min_size=1, max_size=30), st.lists(CELLS, min_size=1, max_size=5))
def test_text_of_any_kind_in_every_column(cells, ids):
    names = [ids[i % len(ids)] for i in range(len(cells))]
    found = check(
        pa.table({"id": pa.array(names, pa.string())} | {name: pa.array(cells, pa.string()) for name in COLUMNS})
    )
    assert found.num_rows == sum(name not in (None, "") for name in names)
    assert found.column("_cl_unit").to_pylist() == [name for name in names if name not in (None, "")]


@FEW
@given(st.lists(CELLS, min_size=1, max_size=20))
def test_a_csv_file_with_the_same_cells_reads_the_same(tmp_path_factory, cells):
    # The writer of Python's csv cannot put these into a file so that another reader finds them again.
    cells = [None if cell is None or set(cell) & set("\r\n\0") or cell == "" else cell for cell in cells]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(
        [["id", *COLUMNS], *([str(i), *[cell] * 9] for i, cell in enumerate(cells))]
    )
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(text.getvalue().encode())
    memory = {"id": [str(i) for i in range(len(cells))]} | {name: pa.array(cells, pa.string()) for name in COLUMNS}
    assert check(path).to_pylist() == check(pa.table(memory)).to_pylist()


@FEW
@given(st.binary(max_size=300))
def test_a_csv_file_of_any_bytes(tmp_path_factory, body):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(",".join(["id", *COLUMNS]).encode() + b"\n" + body)
    check(path)


DOUBLES = st.floats(width=64) | st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack("d", raw)[0])


@FEW
@given(st.lists(st.none() | DOUBLES, min_size=1, max_size=30), st.sampled_from([pa.float64(), pa.float32()]))
def test_floats_of_any_kind(values, kind):
    column = pa.array(values, pa.float64()).cast(kind, safe=False)
    schema = Schema.load(
        {
            "unit": "row",
            "tables": {"t": {"columns": {name: COLUMNS[name] for name in ("integer", "wide", "real", "finite")}}},
        }
    )
    tables = open_tables(pa.table(dict.fromkeys(("integer", "wide", "real", "finite"), column)), schema)
    found = tables.engine.run(tables.view("t").sql("duckdb")).to_pydict()
    tables.close()
    for name, got in found.items():
        assert all(value is None or FITS[name](value) for value in got)
    for given_value, wide, real in zip(column.to_pylist(), found["wide"], found["real"], strict=True):
        if given_value is None or math.isnan(given_value):
            assert wide is real is None
        else:
            assert real == min(max(given_value, -1.5), 1e6)
            assert (wide is None) == (math.isfinite(given_value) and abs(given_value) < 2**63 and given_value % 1 != 0)


@FEW
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30))
def test_integers_of_any_size(values):
    names = ("integer", "wide", "real", "finite", "free", "boolean")
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": {name: COLUMNS[name] for name in names}}}})
    tables = open_tables(pa.table(dict.fromkeys(names, pa.array(values, pa.int64()))), schema)
    found = tables.engine.run(tables.view("t").sql("duckdb")).to_pydict()
    tables.close()
    assert found["integer"] == [None if x is None else min(max(x, -7), 1000) for x in values]
    assert found["wide"] == [None if x is None else max(x, -(2**63 - 1)) for x in values]
    assert found["finite"] == [None if x is None else float(x) for x in values]
    assert found["boolean"] == [{0: False, 1: True}.get(x) for x in values]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_empty_table_has_the_same_columns(count):
    table = pa.table({"id": [None, "x"][:count]} | {name: pa.array([None] * count, pa.string()) for name in COLUMNS})
    assert check(table).schema == check(table.slice(0, 0)).schema
