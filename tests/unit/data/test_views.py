"""Which declared types can be read as what, and what a view asks for."""

import itertools
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import sqlglot

from cloister.data import views
from cloister.data.dialect import dialect_of, family
from cloister.data.engines import duckdb
from cloister.data.schema import TYPES, Column, Schema, Table
from cloister.data.tables import open_tables
from cloister.data.views import readable, view
from cloister.privacy.errors import BadSchema, BadSource

DECLARED = {
    "duckdb": {
        "BIGINT": "integer", "UTINYINT": "integer", "HUGEINT": "wide", "UBIGINT": "wide", "DECIMAL(18,3)": "wide",
        "FLOAT": "float", "VARCHAR": "text", "ENUM('a(b)', 'c]')": "text", "UUID": "uuid",
        "TIMESTAMP WITH TIME ZONE": "zoned", "TIMESTAMP_NS": "timestamp", "DATE": "date", "BOOLEAN": "boolean",
        "TIMESTAMPTZ_NS": "zoned",
        "BIGINT[]": None, "VARCHAR[3]": None, "STRUCT(a BIGINT)": None, "BLOB": None, "MAP(VARCHAR, BIGINT)": None,
        "TIME": None, "INTERVAL": None, "STRUCT(a BIGINT)[]": None, "BIT": None,
    },
    "postgres": {
        "integer": "integer", "numeric(10,2)": "wide", "double precision": "float", "character varying(5)": "text",
        "timestamp(3) with time zone": "zoned", "timestamp without time zone": "timestamp", "enum": "text",
        "uuid": "uuid",
        "integer[]": None, "money": None, "json": None, "bytea": None, "character varying(5)[]": None,
    },
    "spark": {
        "bigint": "integer", "int": "integer", "decimal(38,0)": "wide", "string": "text", "varchar(5)": "text",
        "string collate UNICODE_CI": "text", "timestamp": "zoned", "timestamp_ntz": "timestamp",
        "array<int>": None, "struct<a:int>": None, "binary": None, "void": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("dialect", DECLARED)
def test_declared_types_belong_to_families(dialect):
    assert {name: family(name, dialect_of(dialect)) for name in DECLARED[dialect]} == DECLARED[dialect]


def test_no_type_is_read_from_one_that_would_lose_its_meaning():
    assert "float" not in readable("text")
    assert "date" not in readable("integer")
    assert "boolean" not in readable("integer")
    assert [kind for kind in TYPES if "uuid" in readable(kind)] == ["text"]
    assert "text" in set.intersection(*(set(readable(kind)) for kind in ("integer", "real", "text", "date", "boolean")))


@pytest.mark.parametrize("dialect", DECLARED)
def test_a_view_names_its_columns_then_the_unit(dialect):
    table = Table('odd "name`', {"a'b": Column("a'b", "integer"), "é": Column("é", "text")}, unit='u"`')
    select = view(table, {"a'b": "text", "é": "text", 'u"`': "text"}, dialect_of(dialect).name(table.name), dialect)
    inner = select.find(sqlglot.exp.Subquery).this
    assert [column.alias_or_name for column in inner.expressions] == ["a'b", "é", 'u"`', "_cl_unit"]
    again = sqlglot.parse_one(select.sql(dialect), dialect=dialect)
    assert again.sql(dialect) == select.sql(dialect)


def test_a_bounded_number_costs_two_comparisons_and_no_parsing():
    table = Table("t", {"n": Column("n", "integer", (0, 60))})
    sql = view(table, {"n": "integer"}, '"t"', "duckdb").sql("duckdb")
    assert sql == (
        'SELECT CASE WHEN "n" < CAST(0 AS BIGINT) THEN CAST(0 AS BIGINT) WHEN "n" > CAST(60 AS BIGINT) '
        'THEN CAST(60 AS BIGINT) ELSE "n" END AS "n" FROM (SELECT CAST("n" AS BIGINT) AS "n" FROM "t") AS "t"'
    )


def test_a_parquet_files_own_statistics_are_not_believed(tmp_path):
    """They leave NaN out, so an optimizer that trusts them would not look for it."""
    pq.write_table(pa.table({"p": ["1", "2"], "x": [0.5, math.nan]}), tmp_path / "t.parquet")
    columns = {"x": {"type": "real", "bounds": [0.0, 9.0]}}
    schema = Schema.load({"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "p", "columns": columns}}})
    tables = open_tables(tmp_path / "t.parquet", schema)
    try:
        assert tables.engine.run(tables.view("t").sql("duckdb")).column("x").to_pylist() == [0.5, None]
    finally:
        tables.close()


# What the engine fails on


DECIMALS = [
    (38, 38),
    (38, 37),
    (38, 19),
    (38, 0),
    (20, 20),
    (19, 19),
    (18, 18),
    (9, 9),
    (4, 4),
    (1, 1),
    (1, 0),
    (10, 2),
]
ARROW = [
    pa.bool_(), pa.int8(), pa.uint8(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(), pa.string_view(), pa.date32(), pa.date64(), pa.null(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Kathmandu")),
    *itertools.starmap(pa.decimal128, DECIMALS), pa.decimal256(76, 76), pa.decimal256(76, 0),
]  # fmt: skip


def extreme_cells(kind):
    """The ends of a type, and NULL, as Arrow holds them."""
    if pa.types.is_decimal128(kind):
        top = Decimal((0, (9,) * kind.precision, -kind.scale))
        return pa.array([None, top, top.copy_negate(), Decimal((1, (1,), -kind.scale)), Decimal(0)], kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        bits = 31 if kind == pa.date32() else 63
        whole = [None, 2**bits - 1, -(2**bits), -(2**bits) + 1, 0]
        return pa.array(whole, pa.int32() if bits == 31 else pa.int64()).view(kind)
    if pa.types.is_floating(kind):
        return pa.array([None, math.inf, -math.inf, math.nan, -0.0], pa.float64()).cast(kind)
    if pa.types.is_integer(kind):
        bits = kind.bit_width - pa.types.is_signed_integer(kind)
        return pa.array([None, 2**bits - 1, -(2**bits) * pa.types.is_signed_integer(kind), 0, 1], kind)
    if pa.types.is_boolean(kind):
        return pa.array([None, True, False, None, None])
    return pa.nulls(5, kind)


def opened(source, kind):
    """A table with a column `x` of a type, or with ids in it."""
    facts = {"unit": "x" if kind == "unit" else "id", "columns": {"x": {"type": kind}}}
    if kind == "unit":
        facts["columns"] = {"id": {"type": "text"}}
    return open_tables(source, Schema.load({"unit": {"name": "p", "max_rows": 1}, "tables": {"t": facts}}))


def forms(cells, folder):
    """A table in memory, a file, and two files of which the other declares text."""
    table = pa.table({"id": [f"{i}" for i in range(len(cells))], "x": cells})
    yield table
    files = [folder / "t.parquet", folder / "words.parquet"]
    try:
        pq.write_table(table, files[0])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return
    pq.write_table(pa.table({"id": ["9"], "x": ["1"]}), files[1])
    yield files[0]
    yield ds.dataset(files)


def problem_of(source, kind):
    """What is said when a table is opened; nothing if it opens, and then its view runs."""
    try:
        tables = opened(source, kind)
    except (BadSchema, BadSource) as error:
        return str(error)
    tables.engine.run(tables.view("t").sql("duckdb"))
    tables.close()
    return ""


@pytest.mark.parametrize("declared", ARROW, ids=str)
def test_every_type_that_opens_reads_null_and_its_ends(declared, tmp_path):
    problems = [
        problem_of(source, kind) for kind in [*TYPES, "unit"] for source in forms(extreme_cells(declared), tmp_path)
    ]
    assert "" in problems
    assert all("cannot be read" in problem for problem in problems if problem)
    assert not any("the engine fails" in problem for problem in problems)


@pytest.mark.parametrize("declared", [pa.decimal128(*digits) for digits in DECIMALS], ids=str)
def test_a_truth_is_read_from_every_decimal(declared):
    """DECIMAL(38, 38) cannot hold 1, and a reader that compared it with 1 failed on the first row."""
    whole = Decimal(10) ** (declared.precision - declared.scale) - 1 >= 1
    cells = [None, Decimal(0), *([Decimal(1)] if whole else []), Decimal((0, (5,), -declared.scale))]
    tables = opened(pa.table({"id": [*"abcd"][: len(cells)], "x": pa.array(cells, declared)}), "boolean")
    truths = tables.engine.run(tables.view("t").sql("duckdb")).column("x").to_pylist()
    tables.close()
    assert truths == [None, False, *([True] if whole else []), None]


def test_a_reader_that_fails_on_a_row_is_refused_when_the_table_is_opened(monkeypatch):
    monkeypatch.setattr(duckdb, "_tried", set())
    monkeypatch.setattr(views, "_FROM_FRAME", views._FROM_FRAME | {("boolean", "wide"): views._truth_from_whole})
    good = {"id": ["a"], "y": [1.5]}
    columns = {"x": {"type": "boolean"}, "y": {"type": "real"}}
    schema = Schema.load({"unit": {"name": "p", "max_rows": 1}, "tables": {"t": {"unit": "id", "columns": columns}}})
    for cells in ([], [None]):  # with and without a row
        table = pa.table({name: values[: len(cells)] for name, values in good.items()})
        source = table.append_column("x", pa.array(cells, pa.decimal128(38, 38)))
        with pytest.raises(BadSchema, match=r"1\. t\.x cannot be read as boolean: the engine fails") as caught:
            open_tables(source, schema)
        assert "2." not in str(caught.value)


@pytest.mark.parametrize(
    ("reader", "kind", "declared"),
    [("_whole_from_float", "integer", pa.float64()), ("_day_from_moment", "date", pa.timestamp("us"))],
)
def test_values_beyond_the_readers_type_are_among_the_made_up_ones(monkeypatch, tmp_path, reader, kind, declared):
    """A plain cast fails on infinity, and on the earliest timestamps."""
    target = {"integer": "BIGINT", "date": "TINYINT"}[kind]
    (family_name,) = [name for name, convert in views._READ[kind].items() if convert is getattr(views, reader)]
    broken = {**views._READ[kind], family_name: lambda x, say: f"CAST({x} AS {target})"}
    monkeypatch.setattr(views, "_READ", {**views._READ, kind: broken})
    pq.write_table(pa.table({"id": ["a"], "x": pa.nulls(1, declared)}), tmp_path / "t.parquet")
    with pytest.raises(BadSchema, match="the engine fails"):
        opened(tmp_path / "t.parquet", kind)


def two_files(folder, first, second):
    for name, cells in (("a", first), ("b", second)):
        pq.write_table(pa.table({"id": [name], "x": cells}), folder / f"{name}.parquet")
    return folder


HALF = {digits: pa.array([Decimal("0.5")], pa.decimal128(*digits)) for digits in ((38, 38), (2, 1))}
PAIRS = {
    "a whole number that the other file's decimal cannot hold": ("real", HALF[38, 38], pa.array([5]), [0.5, 5.0]),
    "a fraction that the other file's decimal cannot hold": (
        "real", HALF[2, 1], pa.array([Decimal(10**37)], pa.decimal128(38, 0)), [0.5, 1e37],
    ),
    "an id that the other file's decimal cannot hold": ("unit", HALF[38, 38], pa.array([5]), [5]),
    "ids of which one is text": ("unit", pa.array([Decimal(7)], pa.decimal128(38, 2)), pa.array(["b7"]), ["7", "b7"]),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_no_file_of_a_folder_is_cast_to_the_type_of_another(pair, tmp_path):
    """DuckDB's own reader fails on the first value that does not fit, or rounds it."""
    kind, first, second, values = PAIRS[pair]
    folder = two_files(tmp_path, first, second)
    for source in (folder, ds.dataset(sorted(folder.iterdir()))):
        tables = opened(source, kind)
        assert sorted(tables.engine.run(tables.view("t").sql("duckdb")).column("x").to_pylist()) == values
        tables.close()


@pytest.mark.parametrize(
    ("kind", "first"),
    [("date", pa.array([True])), ("text", pa.array([0], pa.timestamp("us"))), ("unit", pa.array([True]))],
)
def test_a_file_whose_type_cannot_be_read_is_refused_although_others_can(kind, first, tmp_path):
    """Its values would be cast to the type of the others, and fail for some rows or for all."""
    source = ds.dataset(sorted(two_files(tmp_path, first, pa.array(["2020-01-01"])).iterdir()))
    with pytest.raises(BadSchema, match=rf"t\.x is declared .* in some files, which cannot be read as {kind}"):
        opened(source, kind)


@pytest.mark.parametrize("declared", [pa.decimal128(10, -3), pa.decimal256(50, -3)], ids=str)
def test_a_decimal_of_negative_scale_is_refused_in_words(declared):
    table = pa.table({"id": ["a"], "x": pa.nulls(1, declared)})
    for kind, source in itertools.product([*TYPES, "unit"], (table, ds.dataset(table))):
        with pytest.raises(BadSource, match=r"the column x is decimal.*-3\), a decimal of negative scale"):
            opened(source, kind)
