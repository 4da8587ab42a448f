"""Public limits of an expression hold for every row, in the engine's own arithmetic, and nothing it does can fail."""

import tempfile

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

import cloister as cl
from cloister.privacy.errors import QueryRefused
from cloister.query.expression import Expression, compile_term

ROWS = {
    "age": [0, 1, 40, 41, 99, 100, None],
    "big": [-(2**53) - 1, -(2**53), 0, 1, 2**53, 2**53 + 1, None],
    "rate": [0.0, 1e-300, 1e-13, 0.1, 0.3, 1.0, None],
}
TERMS = {
    "age": Expression(exp.column("age", quoted=True), "integer", 0, 100, clipped=True),
    "big": Expression(exp.column("big", quoted=True), "integer", -(2**53) - 1, 2**53 + 1),
    "rate": Expression(exp.column("rate", quoted=True), "real", 0.0, 1.0, clipped=True),
}
ENGINE = duckdb.connect()
ENGINE.register("rows", pa.table(ROWS))

numbers = st.sampled_from(
    ["age", "big", "rate", "0", "1", "41", "0.1", "0.3", "1e-13", "1e-120", str(2**53), str(2**61), str(2**70), "1e30"]
)


def combined(inner):
    both = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(both, st.sampled_from("+-*/")).map(lambda one: f"({one[0][0]} {one[1]} {one[0][1]})"),
        both.map(lambda one: f"GREATEST({one[0]}, {one[1]})"),
        both.map(lambda one: f"LEAST({one[0]}, {one[1]})"),
        inner.map(lambda one: f"FLOOR({one})"),
        inner.map(lambda one: f"CAST({one} AS BIGINT)"),
        inner.map(lambda one: f"ABS({one})"),
        inner.map(lambda one: f"SQRT({one})"),
        inner.map(lambda one: f"LN({one})"),
        inner.map(lambda one: f"(- {one})"),
        inner.map(lambda one: f"WIDTH_BUCKET({one}, 0, 50, 10)"),
        both.map(lambda one: f"CASE WHEN age > 40 THEN {one[0]} ELSE {one[1]} END"),
    )


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.recursive(numbers, combined, max_leaves=8))
def test_limits_hold_and_nothing_fails(text):
    try:
        term = compile_term(parse_one(text, read="duckdb"), lambda node: TERMS[node.name])
    except QueryRefused:
        return
    values = ENGINE.execute(f"SELECT {term.sql.sql('duckdb')} FROM rows").fetchnumpy()  # must not raise
    found = next(iter(values.values()))
    known = [value for value in found.tolist() if value is not None]
    if term.low is not None:
        assert all(value >= term.low for value in known), (text, term.low, known)
    if term.high is not None:
        assert all(value <= term.high for value in known), (text, term.high, known)


@pytest.mark.parametrize(
    "condition",
    [
        f"FLOOR(1/(({2**61} + age) - {2**61} - 41)) > 5",
        f"FLOOR(1/(({2**70} + CASE WHEN age = 41 THEN 1 ELSE 1073741824 END) - {2**70})) > 5",
        "CAST(1/(age * 1e-120 * 1e-120) AS BIGINT) > 5",
    ],
)
def test_a_rare_value_cannot_make_a_question_fail(condition):
    schema = {
        "unit": {"name": "person", "max_rows": 2},
        "tables": {"t": {"unit": "p", "columns": {"age": {"type": "integer", "bounds": [0, 100]}}}},
    }
    with tempfile.TemporaryDirectory() as folder:
        for age in (40, 41):
            table = pa.table({"p": [1], "age": [age]})
            with cl.open(table, schema=schema, budget=cl.rho(1), ledger=f"{folder}/{age}") as data:
                assert len(data.sql(f"SELECT COUNT(*) AS n FROM t WHERE {condition}", spend=cl.rho("0.1"))) == 1


NEIGHBOURS = [
    "SELECT SUM(v + v) AS s FROM (SELECT CASE WHEN age > 60 THEN 2000000000 ELSE 0 END AS v FROM t) AS q",
    "SELECT SUM(v * v) AS s FROM (SELECT IF(age > 60, 2000000000, 0) AS v FROM t) AS q",
    "SELECT SUM((WIDTH_BUCKET(x, -1e17, 20001, 1) - 1) * y * y) AS s FROM t",
    "SELECT COUNT(*) AS s FROM t WHERE WIDTH_BUCKET(x, 0, 1e-304, 10) > 3",
    "SELECT SUM((age % 1) * 4611686018427387903 * 4611686018427387903) AS s FROM t",
]


@pytest.mark.parametrize("sql", NEIGHBOURS)
def test_one_more_person_cannot_make_a_question_fail(sql, tmp_path):
    """Whether it failed told that somebody had such a value, whatever the spend was."""
    columns = {
        "age": {"type": "integer", "bounds": [0, 100], "nullable": False},
        "x": {"type": "real", "bounds": [0, 20000], "nullable": False},
        "y": {"type": "integer", "bounds": [0, 4 * 10**9], "nullable": False},
    }
    schema = {"unit": {"name": "person", "max_rows": 2}, "tables": {"t": {"unit": "p", "columns": columns}}}
    rows = {"p": [*range(20), 99], "age": [3] * 20 + [90], "x": [0.0] * 20 + [20000.0], "y": [4 * 10**9] * 21}
    for count in (20, 21):
        table = pa.table({name: values[:count] for name, values in rows.items()})
        with cl.open({"t": table}, schema=schema, budget=cl.rho(10), ledger=tmp_path / str(count)) as data:
            assert len(data.sql(sql, spend=cl.rho("0.01"))) == 1


def test_rows_stay_in_the_bucket_that_rounding_would_move_them_out_of(tmp_path):
    columns = {"x": {"type": "real", "bounds": [0, 20000], "nullable": False}}
    schema = {"unit": {"name": "person", "max_rows": 1}, "tables": {"t": {"unit": "p", "columns": columns}}}
    table = pa.table({"p": range(1000), "x": [20000.0] * 1000})
    sql = "SELECT WIDTH_BUCKET(x, -1e17, 20001, 1) AS b, COUNT(*) AS n FROM t GROUP BY 1"
    with cl.open({"t": table}, schema=schema, budget=cl.rho(10**6), ledger=tmp_path) as data:
        assert [(row["b"], round(row["n"])) for row in data.sql(sql, spend=cl.rho(10**4)).rows()] == [(1, 1000)]


def test_the_mean_of_a_person_cannot_make_a_question_fail():
    schema = {
        "unit": {"name": "person", "max_rows": 2},
        "tables": {"t": {"unit": "p", "columns": {"ill": {"type": "boolean"}}}},
    }
    inner = "SELECT p, AVG(GREATEST(CASE WHEN ill THEN 0 ELSE 1 END, 1e-13)) AS a FROM t GROUP BY p"
    with tempfile.TemporaryDirectory() as folder:
        for ill in (True, False):
            table = pa.table({"p": [1], "ill": [ill]})
            with cl.open(table, schema=schema, budget=cl.rho(1), ledger=f"{folder}/{ill}") as data:
                for condition in ("FLOOR(1/a) > 5", "WIDTH_BUCKET(1/a, 1, 2, 3) > 1", "CAST(1/a AS BIGINT) > 2"):
                    sql = f"SELECT COUNT(*) AS n FROM ({inner}) AS v WHERE {condition}"
                    assert len(data.sql(sql, spend=cl.rho("0.01"))) == 1


@pytest.mark.parametrize("start", ["1", "2147483647", "2147483648", "4294967295", "4294967296", "9223372036854775807"])
@pytest.mark.parametrize("length", ["1", "2147483647", "4294967296", "99999999999999999999999999"])
def test_a_piece_of_text_beyond_what_engines_take_is_refused_and_fails_for_nobody(tmp_path, start, length):
    schema = {
        "unit": {"name": "person", "max_rows": 1},
        "tables": {"t": {"unit": "p", "columns": {"name": {"type": "text"}}}},
    }
    table = pa.table({"p": ["1", "2"], "name": ["alice", None]})
    with cl.open({"t": table}, schema=schema, budget=cl.rho(10**6), ledger=tmp_path) as dataset:
        piece = f"SUBSTRING(name, {start}, {length}) = 'a'"
        sql = f"SELECT COUNT(*) AS n FROM t WHERE CASE WHEN name = 'alice' THEN {piece} END"
        if int(start) + int(length) > 10**9:
            with pytest.raises(QueryRefused, match="SUBSTRING goes up to"):
                dataset.sql(sql, spend=cl.rho(1))
        else:
            dataset.sql(sql, spend=cl.rho(1))
