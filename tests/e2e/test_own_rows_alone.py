"""What is kept of a person depends on their own rows alone: not on the order of rows, nor on anybody else's."""

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.distinct import DistinctPairs
from cloister.data.engines.duckdb import DuckDB
from cloister.data.schema import UNIT

pytestmark = pytest.mark.e2e
ENGINES = ["duckdb", "postgres", "spark"]
SCHEMA = """
unit: {name: person, max_rows: 1}
tables:
  t:
    unit: p
    columns:
      x: {type: real, bounds: [-10, 10]}
      y: {type: real, bounds: [-10, 10]}
      d: {type: date, bounds: [2020-01-01, 2029-12-31]}
      s: {type: timestamp, bounds: [2020-01-01, 2029-12-31]}
      i: {type: integer, bounds: [0, 100]}
"""
DAY, MOMENT = dt.date(2024, 3, 10), dt.datetime(2024, 3, 10, 2, 30)  # an hour that New York skipped


def rows_of(people, zeros):
    """Each has two zeros and a number of their own; `zeros` is their order."""
    rows = [(f"u{i}", x, 1.0) for i in range(people) for x in (*zeros, 1.0 + i / 97 % 8)]
    return [(*row, DAY, MOMENT, 7) for row in rows]


@pytest.fixture
def opened(request, tmp_path):
    numbers = iter(range(1000))

    def open_with(engine, rows):
        columns = dict(zip(("p", "x", "y", "d", "s", "i"), map(list, zip(*rows, strict=True)), strict=True))
        source = pa.table(columns)
        if engine == "postgres":
            import psycopg

            address = request.getfixturevalue("postgres_address")
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute("DROP TABLE IF EXISTS t")
                connection.execute("CREATE TABLE t (p text, x float8, y float8, d date, s timestamp, i bigint)")
                with connection.cursor().copy("COPY t FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)
            source = address
        elif engine == "spark":
            kinds = "p string, x double, y double, d date, s timestamp_ntz, i bigint"
            source = request.getfixturevalue("spark").createDataFrame(rows, kinds)
        folder = tmp_path / str(next(numbers))
        return cl.open(source, schema=SCHEMA, budget=cl.rho(10**6, delta="0.1"), ledger=folder, name="t")

    return open_with


def exact(dataset, sql, secret):
    dataset.catalog.secret = secret
    (one,) = dataset.plan(sql, spend=cl.rho(1)).measurements
    return [int(n) for n in one.sums.run(dataset.tables.engine)[0]]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(DISTINCT x) AS n FROM t",
        "SELECT COUNT(DISTINCT x * y) AS n FROM t",
        "SELECT COUNT(DISTINCT -x) AS n FROM t",
    ],
)
def test_the_two_zeros_are_one_value(opened, engine, sql):
    secrets, found = [f"{k:032d}" for k in range(6 if engine != "spark" else 3)], []
    for zeros in ((0.0, -0.0), (-0.0, 0.0)):
        with opened(engine, rows_of(9, zeros)) as dataset:
            found.append([exact(dataset, sql, secret) for secret in secrets])
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_one_more_person_changes_a_number_of_values_by_one(opened, engine):
    rows, found = rows_of(2000, (0.0, -0.0)), []
    for more in ([], [("new", -0.0, 1.0, DAY, MOMENT, 7)]):
        with opened(engine, [*more, *rows]) as dataset:
            found += exact(dataset, "SELECT COUNT(DISTINCT x) AS n FROM t", "s" * 32)
    assert abs(found[0] - found[1]) <= 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("column", "value"), [("d", DAY), ("s", MOMENT), ("i", 7), ("x", 0.0)])
def test_values_that_are_found_can_be_grouped_by(opened, engine, column, value):
    rows = [(f"u{i}", -0.0 if i % 2 else 0.0, 1.0, DAY, MOMENT, 7) for i in range(300)]
    rows += [("w", 5.0, 1.0, DAY + dt.timedelta(1), MOMENT + dt.timedelta(hours=1), 50)]
    with opened(engine, rows) as dataset:
        assert dataset.find_keys(column, spend=cl.rho(1, delta="1e-6")).value == [value]
        answer = dataset.sql(f"SELECT {column}, COUNT(*) AS n FROM t GROUP BY {column}", spend=cl.rho(1000))
        assert [(row[column], round(row["n"])) for row in answer.rows()] == [(value, 300), (None, 1)]
        alone = dataset.sql(f"SELECT COUNT(*) AS n FROM t WHERE {column} IS NULL", spend=cl.rho(1000))
        assert round(alone.item()) == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("many", [513, 2000, 5000])
def test_a_person_of_many_rows_counts_as_much_as_allowed(opened, engine, many):
    with opened(engine, [(f"u{i % 5}", 1.0, 2.0, DAY, MOMENT, 7) for i in range(5 * many)]) as dataset:
        answer = dataset.sql("SELECT COUNT(*) AS n, SUM(y) AS y FROM t", spend=cl.rho(10**5)).rows()[0]
    assert answer["n"] == pytest.approx(5, rel=0.01)
    assert answer["y"] == pytest.approx(10, rel=0.03)  # its standard error is 0.03, and weights are rounded down


def test_a_collation_of_a_duckdb_file_does_not_make_two_texts_one(tmp_path):
    with duckdb.connect(str(tmp_path / "t.duckdb")) as file:
        file.execute("CREATE TABLE t (p VARCHAR COLLATE NOCASE, g VARCHAR COLLATE NOCASE)")
        file.execute("INSERT INTO t VALUES ('a', 'x'), ('A', 'X'), ('b', 'x'), ('B', 'y')")
    schema = "unit: {name: person, max_rows: 1}\ntables: {t: {unit: p, columns: {g: {type: text}}}}\n"
    with cl.open(tmp_path / "t.duckdb", schema=schema, budget=cl.rho(10**6), ledger=tmp_path) as dataset:
        view = dataset.tables.view("t").sql("duckdb")
        found = dataset.tables.engine.run(f"SELECT COUNT(DISTINCT {UNIT}) AS p, COUNT(DISTINCT g) AS g FROM ({view})")
        assert found.to_pylist() == [{"p": 4, "g": 3}]


def test_values_of_one_hash_are_told_apart_by_themselves():
    from sqlglot import exp

    engine = DuckDB()
    engine.add_arrow("t", pa.table({UNIT: ["u"] * 3, "x": [3.0, 1.0, 2.0]}))
    rows = exp.select(exp.column(UNIT, quoted=True)).from_("t")
    sql = DistinctPairs(rows, (), exp.column("x", quoted=True), 1, "s").units_sql("duckdb")
    assert "ORDER BY MD5" in sql
    found = engine.run(sql.replace("MD5(", "LENGTH(")).to_pylist()  # a hash that holds all of them for one
    assert [next(iter(row.values())) for row in found] == [1.0]
    engine.close()
