"""Datasets in one process share nothing: no statement, no view and no earlier answer of one reaches another."""

import itertools

import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.dialect import verbatim
from cloister.privacy.ledger import Ledger

LETTERS = pa.table({"p": [f"u{i}" for i in range(115)], "g": ["a"] * 15 + ["A"] * 100, "x": [1.0] * 15 + [9.0] * 100})


def opened(source, columns, folder, unit="p", max_rows=1, name="t"):
    listed = "".join(f"      {column}: {{{facts}}}\n" for column, facts in columns.items())
    schema = f"unit: {{name: person, max_rows: {max_rows}}}\ntables:\n  t:\n    unit: {unit}\n    columns:\n{listed}"
    return cl.open(source, schema=schema, budget=cl.rho(10**6, delta="0.1"), ledger=folder, name=name)


def rounded(dataset, sql):
    return round(dataset.sql(sql, spend=cl.rho(1000)).item())


def test_text_in_a_statement_is_compared_letter_by_letter():
    assert verbatim("SELECT 'a'") == verbatim("SELECT 'a'")
    assert verbatim("SELECT 'a'") != verbatim("SELECT 'A'")


@pytest.mark.parametrize("order", list(itertools.permutations(["[a, b]", "[A, B]", "[A, a]"])))
def test_categories_that_differ_by_case_are_told_apart(tmp_path, order):
    truth = {"[a, b]": 15, "[A, B]": 100, "[A, a]": 115}
    for i, categories in enumerate(order):
        with opened(LETTERS, {"g": f"type: text, categories: {categories}"}, tmp_path / str(i)) as dataset:
            assert rounded(dataset, "SELECT COUNT(g) AS n FROM t") == truth[categories]


def test_columns_of_postgresql_that_differ_by_case_are_told_apart(tmp_path, postgres_address):
    import psycopg

    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute('CREATE TABLE t ("id" text, "ID" text, x double precision)')
        connection.execute("INSERT INTO t SELECT 'r' || i, 'u' || i / 100, 1 FROM generate_series(0, 999) AS s(i)")
    for unit, truth in (("id", 1000), ("ID", 10), ("id", 1000)):
        with opened(postgres_address, {"x": "type: real, bounds: [0, 1]"}, tmp_path / str(truth), unit) as dataset:
            assert rounded(dataset, "SELECT COUNT(*) AS n FROM t") == truth


CHANGES = {
    "bounds": ({"x": "type: real, bounds: [0, 10]"}, {"x": "type: real, bounds: [0, 2]"}, "SELECT SUM(x) AS n FROM t"),
    "categories": (
        {"g": "type: text, categories: [a]"},
        {"g": "type: text, categories: [A]"},
        "SELECT COUNT(g) AS n FROM t",
    ),
    "nullable": (
        {"g": "type: text, categories: [a]"},
        {"g": "type: text, categories: [a], nullable: false"},
        "SELECT COUNT(*) AS n FROM t WHERE g = 'a' OR g IS NULL",
    ),
    "type": ({"g": "type: text"}, {"g": "type: integer, bounds: [0, 1]"}, "SELECT COUNT(g) AS n FROM t"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_is_not_served_again_after_the_schema_has_changed(tmp_path, change):
    before, after, sql = CHANGES[change]
    answers = []
    for columns in (before, after, before):
        with opened(LETTERS, columns, tmp_path) as dataset:
            answers.append((rounded(dataset, sql), dataset.plan(sql, spend=cl.rho(1000)).loss))
    assert answers[0] == answers[2]
    assert answers[0][0] != answers[1][0]
    with opened(LETTERS, after, tmp_path) as dataset:
        assert dataset.account.spent.amount == 2000  # the third answer came from the record


def test_an_answer_is_not_served_again_for_another_unit(tmp_path):
    visits = pa.table({"p": [f"u{i}" for i in range(300)], "d": [f"d{i // 30}" for i in range(300)], "x": [1.0] * 300})
    columns = {"x": "type: real, bounds: [0, 1]"}
    counted = []
    for unit, max_rows in (("p", 1), ("d", 1), ("d", 7), ("p", 7)):
        with opened(visits, columns, tmp_path, unit, max_rows) as dataset:
            counted.append(rounded(dataset, "SELECT COUNT(*) AS n FROM t"))
            spent = dataset.account.spent.amount
    assert counted == [300, 10, 70, 300]
    assert spent == 4000


def test_one_ledger_with_two_accounts_keeps_their_answers_apart(tmp_path):
    with Ledger.in_folder(tmp_path) as ledger:
        counted = []
        for name, rows in (("first", 100), ("second", 40)):
            table = pa.table({"p": [f"u{i}" for i in range(rows)], "x": [1.0] * rows})
            with opened(table, {"x": "type: real, bounds: [0, 1]"}, ledger, name=name) as dataset:
                counted.append(rounded(dataset, "SELECT COUNT(*) AS n FROM t"))
    assert counted == [100, 40]
