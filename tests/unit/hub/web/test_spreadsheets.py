"""What a spreadsheet opens must not run."""

import csv
import io

import pyarrow as pa

from cloister.hub.web.spreadsheets import csv_of, csv_of_table


def read(text: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.decode())))


def test_text_that_begins_like_a_formula_is_text():
    formulas = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    rows = read(csv_of(["=name", "plain"], [(one, "a=b") for one in formulas]))
    assert rows[0] == ["'=name", "plain"]
    assert [row[0] for row in rows[1:]] == [f"'{one}" for one in formulas]
    assert {row[1] for row in rows[1:]} == {"a=b"}


def test_numbers_keep_their_sign_and_what_is_missing_is_empty():
    table = pa.table({"n": [-1.5, None], "word": [None, 'with "quotes", and a comma']})
    assert read(csv_of_table(table)) == [["n", "word"], ["-1.5", ""], ["", 'with "quotes", and a comma']]


def test_a_table_without_rows_has_its_header():
    assert read(csv_of_table(pa.table({"n": pa.array([], pa.int64())}))) == [["n"]]
