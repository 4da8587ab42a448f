"""The same hostile table in every engine and from every source reads the same, and nothing makes it fail."""

import csv
import datetime as dt
import itertools
import math
import os
import stat
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import cloister as cl
from cloister.data import Schema, open_tables
from cloister.data.draft import draft, draft_as_owner
from cloister.data.engines.duckdb import DuckDB, remove_orphaned_spill
from cloister.data.schema import TYPES, UNIT
from cloister.privacy.errors import BadSchema, BadSource, EngineFailed, QueryRefused

pytestmark = pytest.mark.e2e

CATEGORIES = ["a", "é's", 'q"\\x', "$ {HOME}", "${env:HOME}", "%s", "日本"]
SCHEMA = Schema.load(
    {
        "unit": {"name": "person", "max_rows": 3},
        "tables": {
            "vis'its \"é": {
                "unit": "pérson id",
                "columns": {
                    "i": {"type": "integer", "bounds": [-5, 100]},
                    "wide": {"type": "integer"},
                    "r": {"type": "real", "bounds": [-1.5, 1000]},
                    "any": {"type": "real"},
                    "w": {"type": "text", "categories": CATEGORIES},
                    "free": {"type": "text"},
                    "code": {"type": "integer", "categories": [1, 2, 3]},
                    "b": {"type": "boolean"},
                    'd "q': {"type": "date", "bounds": ["2000-01-01", "2030-12-31"]},
                    "m": {"type": "timestamp", "bounds": ["2000-01-01T00:00:00", "2030-12-31T23:59:59"]},
                },
            }
        },
    }
)
NAME = next(iter(SCHEMA.tables))
COLUMNS = ["pérson id", *SCHEMA.tables[NAME].columns]
BIG, MAX = 2**63 - 1, math.nextafter(math.inf, 0)
F = math.nextafter(0.1, 1)

# As text: what the cells say, and what they must read as. A None in the first column drops the row.
TEXT = [
    # id, i, wide, r, any, w, free, code, b, d, m
    ("1", "5", "5", "0.1", "0.1", "a", "x", "1", "true", "2020-02-29", "2020-01-01"),
    ("1", " 7 ", str(BIG), "1e2", "1e-310", "é's", "é", "4", "FALSE", "2020-02-30", "2020-01-01T12:34"),
    ("2", "101", str(BIG + 1), "1e999", "1e999", 'q"\\x', "", "x", "1", "1999-12-31", "2020-01-01 12:34:56.123456Z"),
    ("2", "-9", "-" + "9" * 40, "-inf", "-1e999", "b", "%", "2.0", "maybe", "2031-01-01", "1999-01-01"),
    ("03", "5.7", "5.00", "nan", "NaN", "A", "'", "1_0", "no", "20200101", "2020-01-01 24:00:00"),
    ("é", "1e1", "0x10", "1d", "1 2", "", "日本", "", "", "0000-01-01", "tomorrow"),
    ("4", "inf", "-Infinity", "+.5", "5.", "${env:HOME}", "${env:HOME}", "3", "yes", "2020-1-1", "2020-01-01 12:34:60"),
    ("4", "5\n", "+5", "--1", repr(F), "a\n", "a\nb", "+1", "t\n", "2020-01-01\n", "2020-01-01T00:00:00+02:00"),
    ("5", "1" * 61, "\xa05", "1e", "1e1000", "%s", "\\", "٣", "T", "+2020-01-01", "2020-06-01 00:00"),
    (None, "5", "5", "5", "5", "a", "x", "1", "true", "2020-01-01", "2020-01-01"),
    ("", "5", "5", "5", "5", "a", "x", "1", "true", "2020-01-01", "2020-01-01"),
]  # fmt: skip
D, M = dt.date, dt.datetime
READ = [
    ("1", 5, 5, 0.1, 0.1, "a", "x", 1, True, D(2020, 2, 29), M(2020, 1, 1)),
    ("1", 7, BIG, 100.0, 0.0, "é's", "é", None, False, None, M(2020, 1, 1, 12, 34)),
    ("2", 100, BIG, 1000.0, MAX, 'q"\\x', None, None, True, D(2000, 1, 1), M(2020, 1, 1, 12, 34, 56, 123456)),
    ("2", -5, -BIG, -1.5, -MAX, None, "%", 2, None, D(2030, 12, 31), M(2000, 1, 1)),
    ("03", None, 5, None, None, None, "'", None, False, None, None),
    ("é", None, None, None, None, None, "日本", None, None, None, None),
    ("4", 100, -BIG, 0.5, 5.0, "${env:HOME}", "${env:HOME}", 3, True, None, None),
    ("4", None, 5, None, F, None, "a\nb", 1, None, None, None),
    ("5", None, None, None, None, "%s", "\\", None, True, None, M(2020, 6, 1)),
]  # fmt: skip

INF, NAN, DAY, MICROS = math.inf, math.nan, M(2020, 1, 1), pa.timestamp("us")


def decimals(*texts):
    return pa.array([None if text is None else Decimal(text) for text in texts], pa.decimal128(38, 3))


TYPED = pa.table(
    {
        "pérson id": pa.array([1.0, 1.0, 2.0, NAN, None, 3.5, 4.0]),
        "i": pa.array([5, 101, -9, 1, 1, 1, None], pa.int32()),
        "wide": pa.array([1e30, -1e30, 5.5, 1.0, 1.0, 1.0, 2.0**62]),
        "r": pa.array([NAN, INF, -INF, 1.0, 1.0, 1.0, 0.1]),
        "any": decimals("12345678901234567.123", "0.1", None, "1", "1", "1", "-0.001"),
        "w": pa.array(["a", "", None, "a", "a", "a", "日本"]),
        "free": pa.array([7, None, -7, 1, 1, 1, 0], pa.int64()),
        "code": decimals("1.00", "2.50", "99999999999999999.00", "1", "1", "1", "3"),
        "b": pa.array([0, 1, 2, 1, 1, 1, None], pa.int64()),
        'd "q': pa.array([M(2020, 2, 29, 23, 59, 59, 999999), M(1900, 1, 1), M.max, DAY, DAY, DAY, None], MICROS),
        "m": pa.array([DAY, D(1, 1, 1), D(9999, 12, 31), DAY, DAY, DAY, None], pa.date32()),
    }
)  # fmt: skip
TYPED_READ = [
    (1, 5, BIG, None, 12345678901234567.123, "a", "7", 1, False, D(2020, 2, 29), M(2020, 1, 1)),
    (1, 100, -BIG, 1000.0, 0.1, None, None, None, True, D(2000, 1, 1), M(2000, 1, 1)),
    (2, -5, None, -1.5, None, None, "-7", None, None, D(2030, 12, 31), M(2030, 12, 31, 23, 59, 59)),
    (4, None, 2**62, 0.1, -0.001, "日本", "0", 3, None, None, None),
]


def same(tables, expected):
    try:
        found = tables.engine.run(tables.view(NAME).sql(tables.engine.dialect))
        rows = [tuple(row[column] for column in COLUMNS) for row in found.to_pylist()]
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
        assert found.column("_cl_unit") == found.column("pérson id")
        assert [str(found.schema.field(name).type) for name in ("i", "r", "w", "b", 'd "q', "m")] == [
            "int64", "double", "string", "bool", "date32[day]", "timestamp[us]",
        ]  # fmt: skip
    finally:
        tables.close()


def as_text():
    return pa.table(
        {name: pa.array(column, pa.string()) for name, column in zip(COLUMNS, zip(*TEXT, strict=True), strict=True)}
    )


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


# DuckDB, from every source


def csv_file(tmp_path):
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *TEXT])
    return tmp_path / "t.csv"


def parquet_file(tmp_path):
    pq.write_table(as_text(), tmp_path / "t.parquet")
    return str(tmp_path / "t.parquet")


def parquet_folder(tmp_path):
    (tmp_path / "folder" / "more").mkdir(parents=True)
    pq.write_table(as_text().slice(0, 3), tmp_path / "folder" / "a.parquet")
    pq.write_table(as_text().slice(3), tmp_path / "folder" / "more" / "b.parquet")
    return tmp_path / "folder"


def duckdb_file(tmp_path):
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.register("given", as_text())
        connection.execute(f"CREATE TABLE {quoted(NAME)} AS FROM given")
    return tmp_path / "t.duckdb"


def pandas_frame(_):
    return pd.DataFrame(as_text().to_pydict())


def pandas_objects(_):
    return pd.DataFrame(as_text().to_pydict(), dtype=object)


def polars_frame(_):
    return pl.DataFrame(as_text().to_pydict())


SOURCES = [csv_file, parquet_file, parquet_folder, duckdb_file, pandas_frame, pandas_objects, polars_frame]


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__name__)
def test_hostile_text_reads_the_same_from_every_source(make, tmp_path):
    same(open_tables(make(tmp_path), SCHEMA), READ)


def test_hostile_text_in_an_arrow_table_of_a_dict_reads_the_same():
    same(open_tables({NAME: as_text()}, SCHEMA), READ)


def test_hostile_text_reads_the_same_in_postgres(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {quoted(NAME)}")
        connection.execute(f"CREATE TABLE {quoted(NAME)} ({', '.join(quoted(name) + ' text' for name in COLUMNS)})")
        marks = ", ".join(["%s"] * len(COLUMNS))
        connection.cursor().executemany(f"INSERT INTO {quoted(NAME)} VALUES ({marks})", TEXT)
    same(open_tables(postgres_address, SCHEMA), READ)


def typed_frame(spark):
    """Without this setting Spark would take a timestamp without a zone to be in its own."""
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        return spark.createDataFrame(TYPED)
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_hostile_text_reads_the_same_in_spark(spark):
    same(open_tables(spark.createDataFrame(as_text()), SCHEMA), READ)


def test_the_same_in_spark_without_ansi_mode(spark):
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        same(open_tables({NAME: spark.createDataFrame(as_text())}, SCHEMA), READ)
        same(open_tables({NAME: typed_frame(spark)}, SCHEMA), TYPED_READ)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


# Columns that have types of their own


def test_hostile_numbers_read_the_same_in_duckdb(tmp_path):
    pq.write_table(TYPED, tmp_path / "t.parquet")
    same(open_tables(TYPED, SCHEMA), TYPED_READ)
    same(open_tables(tmp_path / "t.parquet", SCHEMA), TYPED_READ)
    same(open_tables(pl.DataFrame(TYPED), SCHEMA), TYPED_READ)


def test_hostile_numbers_read_the_same_in_postgres(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    types = [
        "float8",
        "int",
        "float4",
        "float8",
        "numeric",
        "char(5)",
        "bigint",
        "numeric(38,2)",
        "smallint",
        "timestamp",
        "date",
    ]
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {quoted(NAME)}")
        columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(COLUMNS, types, strict=True))
        connection.execute(f"CREATE TABLE {quoted(NAME)} ({columns})")
        marks = ", ".join(["%s"] * len(COLUMNS))
        connection.cursor().executemany(
            f"INSERT INTO {quoted(NAME)} VALUES ({marks})", [tuple(row.values()) for row in TYPED.to_pylist()]
        )
    same(open_tables(postgres_address, SCHEMA), TYPED_READ)


def test_hostile_numbers_read_the_same_in_spark(spark):
    same(open_tables(typed_frame(spark), SCHEMA), TYPED_READ)


ODD = """
unit: row
tables:
  odd:
    columns:
      n: {type: real}
      k: {type: integer}
      d: {type: date}
      z: {type: timestamp}
      e: {type: text}
"""


def test_what_only_postgres_can_hold_reads_too(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS odd")
        connection.execute("CREATE DOMAIN few AS varchar(9)")
        connection.execute("CREATE TABLE odd (n numeric, k numeric, d date, z timestamptz, e few)")
        connection.execute(
            "INSERT INTO odd VALUES ('NaN', 'NaN', 'infinity', 'infinity', 'x'), "
            "('1e-5000', '-Infinity', '-infinity', '2020-01-01 00:00+02', ''), "
            "('-1e5000', '1e5000', '4000-01-01 BC', '4000-01-01 BC', NULL), "
            "('Infinity', 7.0, '20000-01-01', NULL, NULL)"
        )
    tables = open_tables(postgres_address, Schema.load(ODD))
    day = dt.date
    assert tables.engine.run(tables.view("odd").sql("postgres")).to_pydict() == {
        "n": [None, 0.0, -MAX, MAX],
        "k": [None, -BIG, BIG, 7],
        "d": [day.max, day.min, day.min, day.max],
        "z": [M.max, M(2019, 12, 31, 22), M.min, None],
        "e": ["x", None, None, None],
    }
    tables.close()


@pytest.fixture
def asked_in_postgres(postgres_address, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (id text, name text, n int)")
        connection.execute("INSERT INTO t VALUES ('1', 'a', 2), ('2', 'b', 3)")
    schema = Schema.load(THREE.replace("n: {type: integer}", "n: {type: integer, bounds: [0, 9]}"))
    with cl.open(postgres_address, schema=schema, budget=cl.rho(1000), ledger=tmp_path) as opened:
        yield opened


NOTHING = [
    "SUM(-NULL)", "SUM(NULL)", "SUM(NULL + NULL)", "SUM(NULL * 2 - NULL)", "SUM(ABS(NULL))", "AVG(NULL % 3)",
    "COUNT(-NULL)",
    "SUM(LEAST(NULL, NULL))", "SUM(NULLIF(NULL, NULL))", "SUM(NULLIF(NULL, 1))", "SUM(n + NULL)", "COUNT(NULL)",
    "SUM(CASE WHEN n > 2 THEN NULL ELSE n END)", "COUNT(CASE WHEN n > 2 THEN NULL ELSE name END)",
    "SUM(FLOOR(NULL / 2))",
    "SUM(COALESCE(NULL, n))", "COUNT(COALESCE(NULL, name))", "COUNT(DISTINCT NULL)", "SUM(ROUND(NULL))", "SUM(-(NULL))",
    "COUNT(CASE WHEN name = 'a' THEN (NULL) WHEN n = 1 THEN name END)", "SUM(CAST(NULL AS DOUBLE))", "MEDIAN(NULL + n)",
    "SUM(CASE WHEN NULL = NULL THEN 1 END)", "SUM(CASE WHEN NULL IN (1, NULL) THEN 1 END)",
    "SUM(SQRT(NULL) + LN(NULL))",
]  # fmt: skip


@pytest.mark.parametrize("aggregate", NOTHING)
def test_a_null_of_no_type_fails_in_no_statement(aggregate, asked_in_postgres):
    assert len(asked_in_postgres.sql(f"SELECT {aggregate} FROM t", spend=cl.rho("0.1"))) == 1


def test_a_null_of_a_subquery_is_a_number_outside(asked_in_postgres):
    inner = "(SELECT NULL AS x, n FROM t UNION ALL SELECT n AS x, NULL AS n FROM t)"
    answer = asked_in_postgres.sql(f"SELECT SUM(LEAST(x + 1, 9)), SUM(n) FROM {inner} AS both_sides", spend=cl.rho(50))
    assert len(answer) == 1


LONG = "x" * 63


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT SUM({LONG}a) FROM (SELECT n AS {LONG}a, 1 AS {LONG}b FROM t) AS s",
        f"WITH {LONG}a AS (SELECT n FROM t), {LONG}b AS (SELECT 1 AS n FROM t) SELECT SUM({LONG}b.n) FROM {LONG}b",
        f'SELECT COUNT(*) FROM t AS "{"ü" * 32}"',
    ],
)
def test_a_name_that_postgres_would_cut_is_refused_before_the_charge(sql, asked_in_postgres):
    before = asked_in_postgres.left
    with pytest.raises(QueryRefused, match="63 bytes"):
        asked_in_postgres.sql(sql, spend=cl.rho("0.1"))
    assert asked_in_postgres.left == before


def test_columns_of_an_answer_may_have_long_names(asked_in_postgres):
    asked = f"SELECT COUNT(*) AS {LONG}a FROM t"
    assert len(asked_in_postgres.sql(asked, spend=cl.rho("0.1"))) == 1


def test_a_schema_with_a_name_that_postgres_would_cut_is_refused(postgres_address):
    schema = Schema.load(THREE.replace("name: {type", f"{LONG}a: {{type"))
    with pytest.raises(BadSchema, match="postgres reads 63 bytes of a name"):
        open_tables(postgres_address, schema)


def test_what_postgres_does_not_take_is_not_paid_for(asked_in_postgres, postgres_address):
    import psycopg

    before = asked_in_postgres.left
    plan = asked_in_postgres.plan("SELECT COUNT(*) FROM t WHERE n > 1", spend=cl.rho("0.1"))
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("ALTER TABLE t RENAME COLUMN n TO m")
        with pytest.raises(EngineFailed):
            asked_in_postgres.run(plan)
        assert asked_in_postgres.left == before
        connection.execute("ALTER TABLE t RENAME COLUMN m TO n")
    assert asked_in_postgres.run(plan).receipt is not None


def test_a_nul_is_in_no_question(asked_in_postgres):
    before = asked_in_postgres.left
    with pytest.raises(QueryRefused, match="none of them NUL"):
        asked_in_postgres.sql("SELECT COUNT(*) FROM t WHERE name = 'a\0b'", spend=cl.rho("0.1"))
    assert asked_in_postgres.left == before


def test_what_only_duckdb_can_hold_reads_too(tmp_path):
    with duckdb.connect(str(tmp_path / "odd.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE odd AS SELECT * FROM (VALUES "
            "(170141183460469231731687303715884105727::HUGEINT, "
            "99999999.999999999999999999999999999999::DECIMAL(38,30), "
            "'infinity'::DATE, '2020-01-01 00:00+02'::TIMESTAMPTZ, 'a'::ENUM('a', 'b')), "
            "(-5, 5, '-infinity', 'infinity', NULL), "
            "(NULL, -99999999.5, NULL, '290309-12-22 (BC) 00:00:00', 'b')) t(n, k, d, z, e)"
        )
    tables = open_tables(tmp_path / "odd.duckdb", Schema.load(ODD))
    assert tables.engine.run(tables.view("odd").sql("duckdb")).to_pydict() == {
        "n": [float(2**127), -5.0, None],
        "k": [None, 5, None],
        "d": [dt.date.max, dt.date.min, None],
        "z": [M(2019, 12, 31, 22), M.max, M.min],
        "e": ["a", None, "b"],
    }
    tables.close()


@pytest.mark.parametrize("scale", [38, 37, 19, 2])
def test_a_decimal_of_38_digits_is_an_integer_only_if_it_is_whole(spark, scale):
    """Spark compares it with its floor in 38 digits, and lost the last ones."""
    step = Decimal((0, (1,), -scale))
    top = Decimal((0, (9,) * 38, -scale))
    cells = [None, Decimal(0), step, step.copy_negate(), top, top.copy_negate()]
    rows = ", ".join("(NULL)" if cell is None else f"(CAST('{cell:f}' AS DECIMAL(38, {scale})))" for cell in cells)
    frame = spark.sql(f"SELECT x, x AS y FROM VALUES {rows} AS t(x)")
    columns = {"x": {"type": "integer"}, "y": {"type": "real"}}
    tables = open_tables(frame, Schema.load({"unit": "row", "tables": {"t": {"columns": columns}}}))
    read = tables.engine.run(tables.view("t").sql("spark")).to_pydict()
    tables.close()
    assert read["x"] == [None, 0, None, None, None, None]
    assert read["y"] == [None if cell is None else float(cell) for cell in cells]


MOMENTS = """
unit: row
tables:
  t:
    columns:
      day: {type: date, bounds: [1990-01-01, 2030-12-31]}
      moment: {type: timestamp, bounds: [1990-01-01, 2030-12-31]}
"""
# Steps since 1970 in any unit: the ends of 64 bits, beyond what microseconds can hold, and an ordinary one.
STEPS = [2**63 - 1, -(2**63 - 1), -(2**63), 10**17, -(10**17), 9223372036854776, None]
UNITS = {"s": 10**0, "ms": 10**3, "us": 10**6, "ns": 10**9}


def moments(unit, zone=None):
    column = pa.array([*STEPS, 1577836800 * UNITS[unit]], pa.int64()).cast(pa.timestamp(unit, zone))
    return pa.table({"day": column, "moment": column})


def read_moments(source):
    tables = open_tables(source, Schema.load(MOMENTS))
    found = tables.engine.run(tables.view("t").sql("duckdb")).to_pydict()
    tables.close()
    day, moment = found["day"], found["moment"]
    assert (day[-1], moment[-1]) == (dt.date(2020, 1, 1), M(2020, 1, 1))
    assert day[:-1] == [None if one is None else one.date() for one in moment[:-1]]
    assert set(moment[:-1]) <= {None, M(1990, 1, 1), M(2030, 12, 31)}
    return moment


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", UNITS)
def test_moments_beyond_microseconds_stop_no_file_and_no_frame(unit, zone, tmp_path):
    table = moments(unit, zone)
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    read = [read_moments(table), read_moments(ds.dataset(table)), read_moments(ds.dataset(tmp_path, format="ipc"))]
    if unit != "s":  # Parquet has no seconds
        pq.write_table(table, tmp_path / "t.parquet")
        read += [read_moments(tmp_path / "t.parquet"), read_moments(ds.dataset(tmp_path / "t.parquet"))]
    assert all(one == read[0] for one in read)


@pytest.mark.parametrize("unit", UNITS)
def test_moments_beyond_microseconds_stop_no_duckdb_table(unit, tmp_path):
    kind = "TIMESTAMP" if unit == "us" else f"TIMESTAMP_{unit.upper()}"
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.register("given", moments(unit))
        connection.execute(f"CREATE TABLE t (day {kind}, moment {kind})")
        connection.execute("INSERT INTO t VALUES ('infinity', 'infinity'), ('-infinity', '-infinity')")
        connection.execute("INSERT INTO t FROM given")
    assert read_moments(tmp_path / "t.duckdb")[:2] == [M(2030, 12, 31), M(1990, 1, 1)]


def test_days_beyond_microseconds_and_infinite_ones_stop_no_source(tmp_path):
    days = pa.array([2**31 - 1, -(2**31 - 1), -(2**31), None, 18262], pa.int32()).cast(pa.date32())
    table = pa.table({"day": days, "moment": days})
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (table, tmp_path / "t.parquet", ds.dataset(tmp_path / "t.parquet")):
        assert read_moments(source)[:4] == [M(2030, 12, 31), M(1990, 1, 1), M(1990, 1, 1), None]


def test_files_of_one_folder_may_declare_moments_differently(tmp_path):
    """DuckDB would read all of them in the type of one, and stop at a moment that this type cannot hold."""
    folder = tmp_path / "t" / "year=2026"
    folder.mkdir(parents=True)
    for unit, zone in (("us", None), ("ns", None), ("ms", "UTC"), ("us", "UTC")):
        pq.write_table(moments(unit, zone), folder / f"{unit}{zone}.parquet")
    days = pa.array([2**31 - 1, 18262], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"day": days, "moment": days}), folder / "days.parquet")
    pq.write_table(pa.table({"day": ["2020-01-01"], "moment": ["2020-01-01"]}), folder / "text.parquet")
    pq.write_table(pa.table({"day": pa.nulls(1), "moment": pa.nulls(1)}), folder / "without.parquet")
    schema = Schema.load(MOMENTS.replace("  t:\n    columns:", "  t:\n    columns:\n      year: {type: integer}"))
    for source in (tmp_path / "t", ds.dataset(tmp_path / "t", partitioning="hive")):
        tables = open_tables(source, schema)
        found = [one.engine.run(tables.view("t").sql("duckdb")).to_pydict() for one in (tables, tables.again())]
        tables.close()
        assert found[0] == found[1]
        assert found[0]["year"] == [2026] * 36
        assert found[0]["moment"].count(M(2020, 1, 1)) == found[0]["day"].count(dt.date(2020, 1, 1)) == 6
        assert set(found[0]["moment"]) == {None, M(1990, 1, 1), M(2020, 1, 1), M(2030, 12, 31)}


def test_moments_do_not_depend_on_the_time_zone_of_a_spark_session(spark):
    frame = spark.sql(
        "SELECT TIMESTAMP '2020-03-08 07:30:00.5 UTC' AS z, 1 AS n, 2 AS k, DATE '2020-01-01' AS d, 'x' AS e"
    )
    tables = open_tables(frame, Schema.load(ODD))
    found = tables.engine.run(tables.view("odd").sql("spark"))
    assert found.column("z").to_pylist() == [M(2020, 3, 8, 7, 30, 0, 500000)]  # an hour that New York skips
    tables.close()


# Broken files

BROKEN = {
    "a short line": b"1,a\n2,b,3\n",
    "a long line": b"1,a,2,9,9\n2,b,3\n",
    "bytes that are no text": b"1,\xff\xfe,2\n2,b,3\n",
    "a zero byte": b"1,a\0b,2\n2,b,3\n",
    "a quote never closed": b'1,"a,2\n2,b,3\n',
    "a quote in the middle": b'1,a"b,2\n2,"a"b,3\n',
    "a line break in quotes": b'1,"a\nb",2\n2,b\n',
    "an endless line": b"1," + b"x" * 3_000_000 + b",2\n2,b,3\n",
    "carriage returns": b"1,a,2\r\n2,b,3\n\n\r\n",
    "nothing": b"",
}
THREE = """
unit: {name: person, max_rows: 1}
tables:
  t:
    unit: id
    columns: {name: {type: text}, n: {type: integer}}
"""


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
def test_no_broken_line_of_a_csv_file_makes_it_fail(body, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"id,name,n\n" + body)
    tables = open_tables(tmp_path / "t.csv", Schema.load(THREE))
    found = tables.engine.run(tables.view("t").sql("duckdb"))
    assert found.column_names == ["name", "n", "id", "_cl_unit"]
    assert set(found.column("n").to_pylist()) <= {2, 3, None}
    tables.close()


def test_the_first_line_alone_decides_separator_and_names(tmp_path):
    (tmp_path / "t.csv").write_bytes("\ufeffid;name;n\r\n1;a,b,c,d;2\r\n".encode())
    tables = open_tables(tmp_path / "t.csv", Schema.load(THREE))
    assert tables.engine.run(tables.view("t").sql("duckdb")).to_pylist() == [
        {"name": "a,b,c,d", "n": 2, "id": "1", "_cl_unit": "1"}
    ]
    tables.close()


def invalid_text():
    offsets, data = pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"\xff\xfez")
    name = pa.StringArray.from_buffers(2, offsets, data)
    return pa.table({"id": ["1", "2"], "name": name, "n": [1, 2]})


def test_bytes_that_are_no_text_fail_in_no_source(tmp_path):
    given = invalid_text()
    pq.write_table(given, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as file, pa.ipc.new_file(file, given.schema) as writer:
        writer.write_table(given)
    datasets = [
        ds.dataset(tmp_path / "t.parquet"),
        ds.dataset(tmp_path / "t.parquet", format=ds.ParquetFileFormat(dictionary_columns=["name"])),
        ds.dataset(tmp_path / "t.arrow", format="ipc"),
        ds.dataset(given),
        ds.dataset([ds.dataset(tmp_path / "t.parquet"), ds.dataset(given)]),
    ]
    for source in (given, tmp_path / "t.parquet", *datasets):
        tables = open_tables(source, Schema.load(THREE))
        found = tables.engine.run(f"SELECT UPPER(name) AS u FROM ({tables.view('t').sql('duckdb')}) AS t")
        assert "Z" in found.column("u").to_pylist()
        tables.close()


def test_bytes_are_no_text_whatever_a_dataset_calls_them(tmp_path):
    """Arrow would cast them while it reads, and stop at a row; a type of the file itself is known before the charge."""
    given = invalid_text()
    pq.write_table(
        given.set_column(1, "name", given["name"].cast(pa.binary())), tmp_path / "t.parquet", store_schema=False
    )
    named = pa.schema([("id", pa.string()), ("name", pa.string()), ("n", pa.int8())])
    for source in (ds.dataset(tmp_path / "t.parquet", schema=named), tmp_path / "t.parquet"):
        with pytest.raises(BadSchema, match="name is declared BLOB, which cannot be read as text"):
            open_tables(source, Schema.load(THREE))


def test_a_dataset_of_files_is_read_in_the_types_of_its_files(tmp_path):
    """A dataset's own schema may be narrower, and Arrow would stop at a number that does not fit."""
    pq.write_table(pa.table({"id": ["1", "2"], "name": ["a", "b"], "n": [1, 1000]}), tmp_path / "t.parquet")
    named = pa.schema([("id", pa.string()), ("name", pa.string()), ("n", pa.int8())])
    tables = open_tables(ds.dataset(tmp_path / "t.parquet", schema=named), Schema.load(THREE))
    assert tables.engine.run(tables.view("t").sql("duckdb")).column("n").to_pylist() == [1, 1000]
    tables.close()


def test_a_dataset_whose_lines_arrow_would_have_to_read_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("id,name,n\n1,a,2\n")
    with pytest.raises(BadSource, match="Save it as Parquet"):
        open_tables(ds.dataset(tmp_path / "t.csv", format="csv"), Schema.load(THREE))


# What an engine lets out, and whom it lets in


def test_an_engine_that_fails_says_nothing_about_rows():
    tables = open_tables(pa.table({"id": ["1"], "name": ["secret-4711"], "n": [1]}), Schema.load(THREE))
    with pytest.raises(EngineFailed) as caught:
        tables.engine.run("SELECT CAST(name AS BIGINT) FROM t")
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "4711" in caught.value.owner_detail
    tables.close()


def test_spark_prints_nothing_about_rows_when_it_fails(spark, capfd):
    frame = spark.createDataFrame(pa.table({"id": ["1"], "name": ["secret-4711"], "n": [1]}))
    tables = open_tables(frame, Schema.load(THREE))
    with pytest.raises(EngineFailed) as caught:
        tables.engine.run(f"SELECT raise_error(name) FROM {tables.engine.place('t')}")
    said = capfd.readouterr()
    assert "4711" not in str(caught.value) + said.out + said.err
    assert "4711" in caught.value.owner_detail
    tables.close()


def test_postgres_says_nothing_about_rows_and_writes_nothing(postgres_address):
    schema = Schema.load("unit: row\ntables:\n  pg_class:\n    columns: {relname: {type: text}}\n")
    with pytest.raises(BadSchema, match="cannot be read as text"):
        open_tables(postgres_address, schema)  # the type is called name
    from cloister.data.engines.postgres import Postgres

    engine = Postgres(postgres_address, timeout_s=0.2)
    for sql in (
        "SELECT CAST('secret-4711' AS INT)",
        "CREATE TABLE x (y int)",
        "SELECT 1; SELECT 2",
        "SELECT pg_sleep(5)",
    ):
        with pytest.raises(EngineFailed) as caught:
            engine.run(sql)
        assert "4711" not in str(caught.value)
    assert engine.run("SELECT 1 AS one, '100%' AS t").to_pylist() == [{"one": 1, "t": "100%"}]
    engine.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{other}')",
        "SELECT * FROM read_text('{other}')",
        "SELECT * FROM '{other}'",
        "COPY (SELECT 1) TO '{other}'",
        "ATTACH '{other}.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT 1; SELECT 2",
        "SELECT * FROM secret_variable",
    ],
)
def test_duckdb_reads_its_tables_and_nothing_else(sql, tmp_path):
    secret_variable = pa.table({"x": [1]})
    (tmp_path / "other.csv").write_text("a\n1\n")
    (tmp_path / "t.csv").write_text("id,name,n\n1,a,2\n")
    tables = open_tables(tmp_path / "t.csv", Schema.load(THREE))
    assert secret_variable.num_rows == tables.engine.run("SELECT * FROM t").num_rows == 1
    with pytest.raises(EngineFailed):
        tables.engine.run(sql.format(other=tmp_path / "other.csv"))
    assert (tmp_path / "other.csv").read_text() == "a\n1\n"
    tables.close()


def same_again(tables):
    """Another connection reads the same and is closed; the first goes on."""
    other = tables.again()
    (name,) = tables.schema.tables
    rows = [one.engine.run(f"SELECT * FROM {one.engine.place(name)}") for one in (tables, other)]
    other.close()
    assert rows[0].equals(rows[1])
    assert tables.engine.run(f"SELECT * FROM {tables.engine.place(name)}").equals(rows[0])
    tables.close()


def test_every_job_can_have_a_connection_of_its_own(tmp_path, postgres_address, spark):
    psycopg = pytest.importorskip("psycopg")
    rows = pa.table({"id": [1, 2], "name": ["a", "b"], "n": [2, 3]})
    pq.write_table(rows, tmp_path / "t.parquet")
    with psycopg.connect(postgres_address, autocommit=True) as server:
        server.execute("CREATE TABLE t (id BIGINT, name TEXT, n BIGINT)")
        server.execute("INSERT INTO t VALUES (1, 'a', 2), (2, 'b', 3)")
    try:
        for source in (
            tmp_path / "t.parquet",
            rows,
            ds.dataset(rows),
            postgres_address,
            {"t": spark.createDataFrame(rows)},
        ):
            same_again(open_tables(source, Schema.load(THREE)))
    finally:
        with psycopg.connect(postgres_address, autocommit=True) as server:
            server.execute("DROP TABLE t")


def test_a_connection_of_its_own_has_the_same_limits_and_cannot_write():
    tables = open_tables(pa.table({"id": [1], "name": ["a"], "n": [2]}), Schema.load(THREE))
    other = tables.again()
    for engine in (tables.engine, other.engine):
        shown = engine.run(
            "SELECT current_setting('enable_external_access') AS files, current_setting('TimeZone') AS zone, "
            "current_setting('lock_configuration') AS locked"
        ).to_pylist()
        assert shown == [{"files": False, "zone": "UTC", "locked": True}]
        with pytest.raises(duckdb.Error, match="read-only"):  # behind the test for a single SELECT
            engine._read("CREATE TABLE kept (i INTEGER)")
    other.close()
    tables.close()


def test_duckdb_keeps_to_its_memory_and_spills_to_a_folder_that_goes_away():
    keys = pa.table(
        {"id": pa.array(range(1_500_000)), "n": pa.array(range(1_500_000)), "name": pa.nulls(1_500_000, pa.string())}
    )
    tables = open_tables(keys, Schema.load(THREE), memory_limit="60MB", threads=1)
    view = tables.view("t").sql("duckdb")
    heavy = f"SELECT SUM(c) AS s FROM (SELECT {UNIT}, n, COUNT(*) AS c FROM ({view}) AS t GROUP BY {UNIT}, n)"
    assert tables.engine.run(heavy).to_pylist() == [{"s": 1_500_000}]
    settings = "SELECT current_setting('temp_directory') AS folder, current_setting('memory_limit') AS memory"
    said = tables.engine.run(settings).to_pylist()[0]
    assert said["memory"].startswith("57.2")  # in MiB
    assert stat.S_IMODE(Path(said["folder"]).stat().st_mode) == 0o700
    tables.close()
    assert not Path(said["folder"]).exists()


def test_without_spilling_no_row_reaches_the_disk_and_what_does_not_fit_fails_quietly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keys = pa.table({"id": pa.array(range(1_500_000)), "n": pa.array(range(1_500_000)), "name": pa.nulls(1_500_000)})
    tables = open_tables(keys, Schema.load(THREE), memory_limit="60MB", threads=1, spill=False)
    view = tables.view("t").sql("duckdb")
    heavy = f"SELECT SUM(c) AS s FROM (SELECT {UNIT}, n, COUNT(*) AS c FROM ({view}) AS t GROUP BY {UNIT}, n)"
    with pytest.raises(EngineFailed) as caught:
        tables.engine.run(heavy)
    assert "Out of Memory" in caught.value.owner_detail
    assert tables.engine.run("SELECT current_setting('temp_directory') AS folder").to_pylist() == [{"folder": ""}]
    assert tables.engine.run(f"SELECT COUNT(*) AS c FROM ({view}) AS t").to_pylist() == [{"c": 1_500_000}]
    assert list(tmp_path.iterdir()) == []
    tables.close()


SPILLS = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from cloister.data.engines.duckdb import DuckDB
engine = DuckDB()
print("open", flush=True)
time.sleep(60)
"""


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def opened():
        command = [sys.executable, "-c", SPILLS, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        return process

    first, second = opened(), opened()
    try:
        folders = list(tmp_path.glob("cloister-spill-*"))
        assert len(folders) == 2
        for folder in folders:
            (folder / "duckdb_temp_block-1.block").write_bytes(b"rows")
            os.utime(folder, (1, 1))
        first.kill()
        first.wait()
        assert remove_orphaned_spill() == 1
        assert len(list(tmp_path.glob("cloister-spill-*/*.block"))) == 1
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
            process.stdout.close()
    DuckDB().close()
    assert list(tmp_path.glob("cloister-spill-*")) == []


def sums(tables):
    view, dialect = tables.view("t"), tables.engine.dialect
    total = {"duckdb": "SUM(n)", "postgres": "SUM(n)", "spark": "SUM(CAST(n AS DECIMAL(38, 0)))"}[dialect]
    found = tables.engine.run(f"SELECT COUNT(*) AS c, {total} AS s FROM ({view.sql(dialect)}) AS t")
    tables.close()
    assert str(found.schema.field("c").type) == "int64"
    assert str(found.schema.field("s").type) == "decimal128(38, 0)"
    return found.to_pylist()


def test_sums_beyond_64_bits_are_exact_in_every_engine(postgres_address, spark):
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"], "n": [BIG, BIG, BIG - 1]})
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (id int, name text, n bigint)")
        connection.cursor().executemany(
            "INSERT INTO t VALUES (%s, %s, %s)", [tuple(row.values()) for row in rows.to_pylist()]
        )
    schema, expected = Schema.load(THREE), [{"c": 3, "s": Decimal(3 * BIG - 1)}]
    spark.createDataFrame(rows).createOrReplaceTempView("t")
    for source in (rows, postgres_address, spark):
        assert sums(open_tables(source, schema)) == expected


def test_sums_of_decimal_columns_are_compared_exactly_in_every_engine(postgres_address, spark, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    rows = "(0.10, 0.20, 0), (0.20, 0.11, 1), (0.70, 0.10, 2), (1.10, 2.20, 3), (-0.30, 0.60, 4), (NULL, 0.30, 5)"
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS t")
        connection.execute("CREATE TABLE t (a numeric(10,2), b numeric(10,2), i int)")
        connection.execute(f"INSERT INTO t VALUES {rows}")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.execute("CREATE TABLE t (a DECIMAL(10,2), b DECIMAL(10,2), i INTEGER)")
        connection.execute(f"INSERT INTO t VALUES {rows}")
    frame = spark.sql(
        f"SELECT CAST(a AS DECIMAL(10,2)) AS a, CAST(b AS DECIMAL(10,2)) AS b, i FROM VALUES {rows} AS t(a, b, i)"
    )
    money = {"type": "real", "bounds": [-10, 10]}
    schema = {
        "unit": "row",
        "tables": {"t": {"columns": {"a": money, "b": money, "i": {"type": "integer", "bounds": [0, 5]}}}},
    }
    asked = {
        "a + b = 0.3": [0, 4],
        "a + b > 0.3": [1, 2, 3],
        "a * b = 0.02": [0],
        "b - a IN (0.1, 0.9, 1.1)": [0, 3, 4],
    }
    for number, source in enumerate((postgres_address, tmp_path / "t.duckdb", frame)):
        with cl.open(source, schema=schema, budget=cl.rho(10**5), ledger=tmp_path / str(number)) as ds_:
            for condition, wanted in asked.items():
                found = ds_.sql(f"SELECT i, COUNT(*) AS n FROM t WHERE {condition} GROUP BY i", spend=cl.rho(1000))
                assert [row["i"] for row in found.rows() if row["n"] > 0.5] == wanted


def test_ids_are_compared_as_text_if_some_table_has_them_as_text():
    two = {"unit": "id", "columns": {"n": {"type": "integer"}}}
    schema = Schema.load({"unit": {"name": "person", "max_rows": 2}, "tables": {"a": two, "b": two}})
    numbers = pa.table({"id": pa.array([7, 8], pa.int16()), "n": [1, 2]})
    for ids, expected in (([7.0, 8.5], {7}), (["7", "08"], {"7"}), ([Decimal("7.00"), Decimal("8.10")], {7})):
        tables = open_tables({"a": numbers, "b": pa.table({"id": ids, "n": [1, 2]})}, schema)
        a, b = (tables.view(name).sql("duckdb") for name in "ab")
        found = tables.engine.run(f"SELECT a._cl_unit FROM ({a}) AS a JOIN ({b}) AS b ON a._cl_unit = b._cl_unit")
        assert set(found.column("_cl_unit").to_pylist()) == expected
        assert tables.unit_as_text == isinstance(next(iter(expected)), str)
        tables.close()


def test_rows_with_null_where_none_may_be_are_left_out():
    schema = Schema.load(
        {"unit": "row", "tables": {"t": {"columns": {"w": {"type": "text", "categories": ["a"], "nullable": False}}}}}
    )
    tables = open_tables(pa.table({"w": ["a", "b", None, "a"]}), schema)
    assert tables.engine.run(tables.view("t").sql("duckdb")).to_pylist() == [{"w": "a"}, {"w": "a"}]
    tables.close()


# Opening


STORED_AS = {
    "postgres": {
        "boolean": "true", "smallint": "1", "integer": "1", "bigint": "1", "numeric": "1", "numeric(4,1)": "1",
        "numeric(38,38)": "0",
        "real": "1", "double precision": "1", "text": "1", "character varying(5)": "1", "character(5)": "1",
        "uuid": "3f2b8c1e-0000-4000-8000-000000000001", "word": "1", "date": "2025-02-01",
        "timestamp without time zone": "2025-02-01", "timestamp with time zone": "2025-02-01",
    },
    "duckdb": {
        "BOOLEAN": "true", "TINYINT": "1", "UBIGINT": "1", "HUGEINT": "1", "UHUGEINT": "1", "DECIMAL(4,1)": "1",
        "DECIMAL(38,38)": "0",
        "FLOAT": "1", "DOUBLE": "1", "VARCHAR": "1", "UUID": "3f2b8c1e-0000-4000-8000-000000000001", "word": "1",
        "DATE": "2025-02-01", "TIMESTAMP_NS": "2025-02-01", "TIMESTAMP": "2025-02-01", "TIMESTAMPTZ": "2025-02-01",
    },
}  # fmt: skip


def one_row_of(stored):
    """Statements that make a table of one row, with a column of each type."""
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(stored))
    values = ", ".join(f"'{value}'" for value in stored.values())
    return [
        "CREATE TYPE word AS ENUM ('1', 'a')",
        f"CREATE TABLE t ({columns}, n INTEGER)",
        f"INSERT INTO t VALUES ({values}, 1)",
    ]


def check_what_opens_can_be_asked(source, declared):
    """A type that a column cannot be read from is refused when the table is opened, in words."""
    refused = {}
    for number, kind in itertools.product(range(len(declared)), [*TYPES, "unit"]):
        facts = {"columns": {f"c{number}": {"type": kind}}}
        if kind == "unit":
            facts = {"unit": f"c{number}", "columns": {"n": {"type": "integer"}}}
        unit = {"name": "p", "max_rows": 1} if kind == "unit" else "row"
        schema = Schema.load({"unit": unit, "tables": {"t": facts}})
        try:
            tables = open_tables(source, schema)
        except BadSchema as error:
            refused[declared[number].lower(), kind] = str(error)
            continue
        sql = tables.view("t").sql(tables.engine.dialect)
        tables.engine.prepare(sql)
        assert tables.engine.run(sql).num_rows == 1
        tables.close()
    assert all("cannot be read as" in words for words in refused.values())
    assert {kind for declared, kind in refused if declared == "uuid"} == {*TYPES} - {"text"}
    assert not [kind for declared, kind in refused if declared in ("word", "text", "varchar")]


def test_what_opens_in_postgres_can_be_asked(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    stored = STORED_AS["postgres"]
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        for statement in one_row_of(stored):
            connection.execute(statement)
    check_what_opens_can_be_asked(postgres_address, list(stored))


def test_what_opens_in_duckdb_can_be_asked(tmp_path):
    stored, path = STORED_AS["duckdb"], tmp_path / "t.duckdb"
    with duckdb.connect(path) as connection:
        for statement in one_row_of(stored):
            connection.execute(statement)
    check_what_opens_can_be_asked(path, list(stored))


def test_everything_that_does_not_fit_is_named_at_once_from_declared_types():
    listed = pa.table({"id": pa.array([[1]]), "name": pa.array([b"x"]), "m": [1]})
    with pytest.raises(BadSchema) as caught:
        open_tables(listed, Schema.load(THREE))
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(". ")[0].strip() for line in lines] == ["1", "2", "3"]
    assert "t.id is declared BIGINT[], which cannot be read as unit" in lines[0]
    assert "t.name is declared BLOB" in lines[1]
    assert "no column t.n" in lines[2]
    with pytest.raises(BadSchema, match="there is no table t in the source"):
        open_tables({"other": listed}, Schema.load(THREE))


RARE = [pa.float16(), pa.decimal256(76, 0), pa.decimal256(40, 2), pa.dictionary(pa.int8(), pa.float16())]
UNREADABLE = [
    pa.list_(pa.float16()),
    pa.struct([("a", pa.decimal256(40, 2))]),
    pa.dense_union([pa.field("a", pa.int8())]),
]


@pytest.mark.parametrize("kind", [*RARE, *UNREADABLE], ids=str)
def test_a_type_that_duckdb_lacks_is_read_or_refused_in_words(kind):
    """In memory and as a dataset alike."""
    cells = pa.nulls(2, kind) if kind in UNREADABLE else pa.array([1, None], pa.int8()).cast(_plain(kind))
    table = pa.table({"id": ["a", "b"], "x": cells.dictionary_encode() if pa.types.is_dictionary(kind) else cells})
    schema = Schema.load({
        "unit": {"name": "p", "max_rows": 1},
        "tables": {"t": {"unit": "id", "columns": {"x": {"type": "real"}}}},
    })  # fmt: skip
    for source in (table, ds.dataset(table)):
        if kind in UNREADABLE:
            with pytest.raises(BadSource, match=r"the column x is .*, which cannot be read"):
                open_tables(source, schema)
            continue
        tables = open_tables(source, schema)
        found = tables.engine.run(f"SELECT x FROM ({tables.view('t').sql('duckdb')}) AS t").column("x").to_pylist()
        assert sorted(found, key=str) == [1.0, None]
        tables.close()


def _plain(kind):
    return kind.value_type if pa.types.is_dictionary(kind) else kind


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("missing.csv", "there is no file"),
        (7, "cannot be opened"),
        ({}, "names one or more tables"),
        (__file__, "cannot be seen from the name"),
    ],
)
def test_a_source_that_cannot_be_opened_is_refused_in_words(source, words):
    with pytest.raises(BadSource, match=words):
        open_tables(source, Schema.load(THREE))


def test_several_tables_need_a_dict_or_a_database(tmp_path):
    two = Schema.load({"unit": "row", "tables": {name: {"columns": {"n": {"type": "integer"}}} for name in "ab"}})
    with pytest.raises(BadSource, match="Open a dict"):
        open_tables(pa.table({"n": [1]}), two)
    tables = open_tables({"a": pa.table({"n": [1]}), "b": pd.DataFrame({"n": [2]})}, two)
    assert [tables.engine.run(tables.view(name).sql("duckdb")).to_pylist() for name in "ab"] == [[{"n": 1}], [{"n": 2}]]
    tables.close()


def test_a_wildcard_in_a_file_name_is_not_followed(tmp_path):
    (tmp_path / "a.csv").write_text("id,name,n\n1,a,2\n")
    (tmp_path / "*.csv").write_text("id,name,n\n")
    with pytest.raises(BadSource, match="wildcard"):
        open_tables(tmp_path / "*.csv", Schema.load(THREE))


# Drafts


def test_a_draft_of_a_postgres_database_names_its_tables_and_types(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS labs")
        connection.execute("CREATE TABLE labs (patient int, result float8, at timestamptz, raw json)")
        connection.execute(
            "INSERT INTO labs VALUES (4711, 36.6, '2024-05-06 07:08:09+00', '{}'), (4712, 41, NULL, NULL)"
        )
    drafted = draft(postgres_address)
    assert "result: {type: real, bounds: fill in}" in drafted
    assert "# Left out: labs.raw, since json is no type that can be read." in drafted
    assert "4711" not in drafted
    owner = draft_as_owner(postgres_address)
    assert "bounds: [30.0, 50.0]" in owner
    assert "bounds: ['2024-01-01 00:00:00', '2024-12-31 23:59:59']" in owner
