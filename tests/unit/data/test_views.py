"""Which declared types can be read as what, and what a view asks for."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

from cloister.data.dialect import dialect_of, family
from cloister.data.schema import TYPES, Column, Schema, Table
from cloister.data.tables import open_tables
from cloister.data.views import readable, view

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
