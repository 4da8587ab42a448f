"""Text that is not UTF-8 or too long is missing in every engine, and stops no question after its charge."""

import re

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import cloister as cl
from cloister.data import Schema, open_tables
from cloister.data.dialect import LONGEST_TEXT
from cloister.data.engines.postgres import _UNREADABLE
from cloister.privacy.errors import BadSource

pytestmark = pytest.mark.e2e

SCHEMA = Schema.load(
    """
unit: {name: person, max_rows: 2}
tables:
  t:
    unit: who
    columns:
      free: {type: text}
      listed: {type: text, categories: [a, "b?"]}
      n: {type: integer}
      r: {type: real}
      b: {type: boolean}
      d: {type: date}
      m: {type: timestamp}
"""
)
COLUMNS = ["who", *SCHEMA.tables["t"].columns]
PLAIN = ["x", "a", "1", "2.5", "true", "2020-01-01", "2020-01-01 10:00"]


def text(cells):
    """Arrow text of any bytes."""
    plain = pa.array(cells, pa.binary())
    return pa.StringArray.from_buffers(len(plain), plain.buffers()[1], plain.buffers()[2])


def read(source):
    tables = open_tables(source, SCHEMA)
    try:
        found = tables.engine.run(tables.view("t").sql(tables.engine.dialect)).to_pydict()
    finally:
        tables.close()
    return {name: found[name] for name in COLUMNS}


# Bytes that are not UTF-8


def strange_rows():
    """Two persons whose ids differ in a byte that is not UTF-8, one whose cells are not, and one of question marks."""
    ids = [b"m\xf6ller", b"m\xe4ller", b"evil", b"m??ller"]
    cells = [[b"x"] * 4, [b"a"] * 4, *([value.encode()] * 4 for value in PLAIN[2:])]
    for column, bad in zip(cells, (b"x\xff", b"b\xff", b"1\xff", b"2\xff", b"t\xff", b"\xff", b"\xff"), strict=True):
        column[2] = bad
    return pa.table({name: text(column) for name, column in zip(COLUMNS, [ids, *cells], strict=True)})


def check_strange(found):
    assert found["who"] == ["evil", "m??ller"]
    assert [found[name][0] for name in COLUMNS[1:]] == [None] * 7
    assert [found[name][1] for name in ("free", "listed", "n", "b")] == ["x", "a", 1, True]


def test_bytes_that_are_not_utf8_are_missing_in_every_source_of_duckdb(tmp_path):
    """DuckDB reads them as question marks in Parquet: several persons were one, and other text a category."""
    pq.write_table(strange_rows(), tmp_path / "t.parquet")
    (tmp_path / "folder" / "k=1").mkdir(parents=True)
    pq.write_table(strange_rows().slice(0, 2), tmp_path / "folder" / "k=1" / "a.parquet")
    pq.write_table(strange_rows().slice(2), tmp_path / "folder" / "k=1" / "b.parquet")
    lines = [b",".join(row) for row in zip(*(column.cast(pa.binary()).to_pylist() for column in strange_rows().columns),
                                           strict=True)]  # fmt: skip
    (tmp_path / "t.csv").write_bytes(b"\n".join([",".join(COLUMNS).encode(), *lines, b""]))
    for source in (strange_rows(), ds.dataset(tmp_path / "t.parquet"), tmp_path / "t.parquet", tmp_path / "folder"):
        check_strange(read(source))
    assert read(tmp_path / "t.csv")["who"] == ["m??ller"]  # a line that is not text is left out


def test_bytes_that_are_not_utf8_are_missing_in_spark(spark, tmp_path):
    pq.write_table(strange_rows(), tmp_path / "t.parquet")
    check_strange(read(spark.read.parquet(str(tmp_path / "t.parquet"))))


SHORT = {
    "unit": {"name": "person", "max_rows": 1},
    "tables": {"t": {"unit": "who", "columns": {"w": {"type": "text"}}}},
}


def of_encoding(postgres_address, encoding):
    """Make a database of another encoding beside that of the test; the server's folder is removed with it."""
    import psycopg

    name = f"encoded_{encoding.lower()}"
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    return re.sub("/of_one_test_[0-9a-f]+", f"/{name}", postgres_address)


@pytest.mark.parametrize(
    ("encoding", "raw", "kept"),
    [
        ("SQL_ASCII", b"w\xff", []),
        ("SQL_ASCII", "ä".encode(), []),
        ("WIN1252", b"w\x81", []),
        ("LATIN1", b"\xe4", ["ä"]),
    ],
)
def test_a_text_without_utf8_in_postgres_decides_no_error(encoding, raw, kept, postgres_address, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    address = of_encoding(postgres_address, encoding)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (who text, w varchar(9))")
        connection.execute("INSERT INTO t SELECT 'p' || i, 'w' FROM generate_series(1, 100) i")
        connection.execute(f"SET client_encoding = '{encoding}'")
        connection.execute(b"INSERT INTO t SELECT 'e' || i, '" + raw + b"' FROM generate_series(1, 100) i")
    with cl.open(address, schema=SHORT, budget=cl.epsilon(100, delta="1e-3"), ledger=tmp_path) as opened:
        spend = cl.epsilon(5, delta="1e-6")
        assert sorted(opened.find_keys("w", spend=spend).value) == ["w", *kept]
        first = opened.sql("SELECT SUBSTRING(w, 1, 1) AS s, COUNT(*) AS n FROM t GROUP BY s", spend=spend)
        assert {row["s"] for row in first.rows()} >= {"w", *kept}
        opened.sql("SELECT COUNT(DISTINCT w) AS n FROM t", spend=spend)


def test_a_server_whose_characters_have_several_bytes_is_refused(postgres_address):
    pytest.importorskip("psycopg")
    with pytest.raises(BadSource, match="Restore it into a database of encoding UTF8"):
        open_tables(of_encoding(postgres_address, "EUC_JP"), Schema.load(SHORT))


def test_the_bytes_that_an_encoding_cannot_turn_into_utf8_are_those_of_the_server(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        for encoding, listed in _UNREADABLE.items():
            if encoding in ("UTF8", "SQL_ASCII"):
                continue
            failing = set()
            for byte in range(1, 256):
                try:
                    connection.execute(f"SELECT convert('\\x{byte:02x}'::bytea, '{encoding}', 'UTF8')")
                except psycopg.Error:
                    failing.add(byte)
            ranges = [span.partition("-") for span in listed.split()]
            assert failing == {
                byte for low, _, high in ranges for byte in range(int(low, 16), int(high or low, 16) + 1)
            }, encoding


# Text that is too long


def long_rows():
    """A person with cells of exactly the limit, one with longer ones, and one whose id is longer."""
    longest, longer = "é" * (LONGEST_TEXT // 2), "é" * (LONGEST_TEXT // 2) + "z"
    blank = " " * LONGEST_TEXT
    rows = [["p", longest, "a", *PLAIN[2:]], ["q", longer, longer, *(blank + cell for cell in PLAIN[2:])]]
    return [*rows, [longer, *PLAIN]]


def as_table():
    return pa.table(dict(zip(COLUMNS, map(list, zip(*long_rows(), strict=True)), strict=True)))


def check_long(found):
    assert found["who"] == ["p", "q"]
    assert [name for name in COLUMNS[1:] if found[name][1] is not None] == []
    assert len(found["free"][0]) == LONGEST_TEXT // 2
    assert found["n"][0] == 1


def test_text_that_is_too_long_is_missing_in_every_source_of_duckdb(tmp_path):
    pq.write_table(as_table(), tmp_path / "t.parquet")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
        connection.register("given", as_table())
        connection.execute("CREATE TABLE t AS FROM given")
    frame = pd.DataFrame(as_table().to_pydict())
    for source in (as_table(), ds.dataset(as_table()), tmp_path / "t.parquet", tmp_path / "t.duckdb", frame):
        check_long(read(source))


def test_text_that_is_too_long_is_missing_in_postgres(postgres_address):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE t ({', '.join(name + ' text' for name in COLUMNS)})")
        connection.cursor().executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * len(COLUMNS))})", long_rows())
    check_long(read(postgres_address))


def test_text_that_is_too_long_is_missing_in_spark(spark, tmp_path):
    pq.write_table(as_table(), tmp_path / "t.parquet")
    check_long(read(spark.read.parquet(str(tmp_path / "t.parquet"))))
