"""Lines of a CSV file that are too long are left out one by one, whatever bytes are around them."""

import gzip
import io

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.data import Schema, open_tables
from cloister.data.engines import csv_lines
from cloister.data.engines.csv_lines import LONGEST_LINE

SCHEMA = Schema.load({"unit": "row", "tables": {"t": {"columns": {"a": {"type": "text"}, "b": {"type": "integer"}}}}})
OPTIONS = (
    "delim = ',', columns = {'a': 'VARCHAR', 'b': 'VARCHAR'}, auto_detect = false, header = false, quote = '\"', "
    "escape = '\"', parallel = false, null_padding = true, strict_mode = false"
)


def ends(text, block):
    file = io.BytesIO(text)
    return [int(end) for found, _ in csv_lines.line_ends(lambda: file.read(block), ord(",")) for end in found]


# Cells as a well-formed writer writes them: with a quotation mark or a line break only between quotation marks.
PLAIN = st.text("ab ", max_size=4)
CELL = PLAIN | st.text('ab",\n\r ', max_size=6).map(lambda text: '"' + text.replace('"', '""') + '"')
LINES = st.lists(st.tuples(CELL.filter(bool), CELL, st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=6)


@settings(deadline=None, max_examples=200)
@given(LINES, st.integers(1, 9))
def test_lines_end_where_the_writer_ended_them(lines, block):
    text, expected = b"", []
    for a, b, mark in lines:
        text += f"{a},{b}{mark}".encode()
        expected += [len(text) - 2, len(text) - 1] if mark == "\r\n" else [len(text) - 1]
    assert ends(text, block) == expected


@settings(deadline=None, max_examples=100)
@given(LINES)
def test_lines_end_where_duckdb_ends_them(tmp_path_factory, lines):
    text = "".join(f"x{a.strip()[:0]},{b}\n" if not a.startswith('"') else f"{a},{b}\n" for a, b, _ in lines).encode()
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_bytes(text)
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT COUNT(*) FROM read_csv('{path}', {OPTIONS})").fetchone()[0]
    assert len(ends(text, 4096)) == rows


@settings(deadline=None, max_examples=200)
@given(st.text('ab",\n\r ', max_size=60), st.integers(1, 9))
def test_blocks_of_any_length_give_the_same_lines(text, block):
    assert ends(text.encode(), block) == ends(text.encode(), 1000)


def read(path, *, spill=True):
    tables = open_tables(path, SCHEMA, spill=spill)
    try:
        found = tables.engine.run(tables.view("t").sql("duckdb")).to_pydict()
        other = tables.again()
        assert other.engine.run(tables.view("t").sql("duckdb")).num_rows == len(found["b"])
        other.close()
    finally:
        tables.close()
    return found


LONG = {
    "a text with line ends": b'"' + b"z\n" * 17_000_000 + b'",1\n',
    "a text of quotation marks": b'"' + b'""' * 17_000_000 + b'",1\r\n',
    "a text of blanks": b" " * 34_000_000 + b",1\n",
    "a line without text": b"," * 34_000_000 + b"\n",
    "a line just too long": b'"' + b"z\n" * (LONGEST_LINE // 2) + b'",1\n',
}


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "zipped"])
@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
def test_a_line_that_is_too_long_hides_no_other(line, zipped, tmp_path):
    before, behind = b"".join(b"p%d,1\n" % i for i in range(5)), b"".join(b"q%d,2\n" % i for i in range(50))
    path = tmp_path / ("t.csv.gz" if zipped else "t.csv")
    text = b"a,b\n" + before + line + behind + line.rstrip()
    path.write_bytes(gzip.compress(text, 1) if zipped else text)
    found = read(path)
    assert found["b"] == [1] * 5 + [2] * 50
    assert found["a"][:6] == ["p0", "p1", "p2", "p3", "p4", "q0"]


def test_a_line_of_the_longest_length_is_read(tmp_path):
    line = b'"' + b"z" * 900_000 + b'",5,"' + b"\n" * (LONGEST_LINE - 900_000 - 7) + b'"'
    assert len(line) == LONGEST_LINE
    (tmp_path / "t.csv").write_bytes(b"a,b,c\n" + line + b"\nx,6\n")
    assert read(tmp_path / "t.csv")["b"] == [5, 6]


def test_without_spilling_a_copy_is_held_in_memory(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\nx,1\n" + LONG["a line just too long"] + b"y,2\n")
    assert read(tmp_path / "t.csv", spill=False) == {"a": ["x", "y"], "b": [1, 2]}


def test_a_file_is_read_through_a_link_unless_a_line_is_too_long(tmp_path):
    path, place = tmp_path / "t.csv", tmp_path / "0.csv"
    path.write_bytes(b"a,b\nx,1\n")
    file = csv_lines.CsvFile(path, ",", place, in_memory=False)
    file.ready()
    assert place.is_symlink()
    path.write_bytes(b"a,b\nx,1\n" + LONG["a line just too long"])
    file = csv_lines.CsvFile(path, ",", tmp_path / "1.csv", in_memory=False)
    file.ready()
    assert (tmp_path / "1.csv").read_bytes() == b"a,b\nx,1\n"
