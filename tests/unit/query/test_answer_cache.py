"""What is on record answers for exactly the same statistic, and nothing that was written there can spoil the rest."""

import pyarrow as pa
import pytest

import cloister as cl
from cloister.privacy.errors import BadSchema, QueryRefused
from cloister.query.answer_cache import AnswerCache
from cloister.query.discovery import key_finder

SCHEMA = {
    "unit": {"name": "person", "max_rows": 2},
    "tables": {
        "t": {
            "unit": "p",
            "columns": {
                "hiv": {"type": "integer", "bounds": [0, 1]},
                "smoker": {"type": "integer", "bounds": [0, 1]},
                "score": {"type": "integer", "bounds": [0, 10], "nullable": False},
                "pay": {"type": "integer", "bounds": [0, 10]},
                "name": {"type": "text"},
            },
        }
    },
}


@pytest.fixture
def people(tmp_path):
    n = 4000
    table = pa.table(
        {
            "p": list(range(n)),
            "hiv": [int(i % 10 == 0) for i in range(n)],
            "smoker": [int(i % 2 == 0) for i in range(n)],
            "score": [5 if i % 4 else None for i in range(n)],
            "pay": [10 if i % 4 == 0 else 2 for i in range(n)],
            "name": [f"n{i}" for i in range(n)],
        }
    )
    with cl.open(table, schema=SCHEMA, budget=cl.rho(1000), ledger=tmp_path) as people:
        yield people


def test_people_by_one_column_do_not_answer_for_people_by_another(people):
    spend = cl.rho(5)
    smokers = people.sql("SELECT smoker, COUNT(DISTINCT p) AS n FROM t GROUP BY smoker", spend=spend)
    ill = people.sql("SELECT hiv, COUNT(DISTINCT p) AS n FROM t GROUP BY hiv", spend=spend)
    assert smokers.column("n")[1] == pytest.approx(2000, abs=50)
    assert ill.column("n")[1] == pytest.approx(400, abs=50)
    assert ill.loss.amount == spend.amount


def test_a_sum_of_zeros_and_ones_does_not_answer_for_the_number_of_known_values(people):
    total = people.sql("SELECT SUM(hiv) AS n FROM t", spend=cl.rho(5)).item()
    known = people.sql("SELECT COUNT(hiv) AS n FROM t", spend=cl.rho(5)).item()
    assert total == pytest.approx(400, abs=50)
    assert known == pytest.approx(4000, abs=50)


def test_a_column_that_may_not_be_null_makes_another_statistic(people):
    kept = people.sql("SELECT COUNT(*) AS n FROM t WHERE score >= 0", spend=cl.rho(5)).item()
    with_score = people.sql("SELECT SUM(pay) AS n, MAX(score) AS m FROM t", spend=cl.rho(5)).column("n")[0]
    without = people.sql("SELECT SUM(pay) AS n FROM t", spend=cl.rho(5)).item()
    assert kept == pytest.approx(3000, abs=50)
    assert with_score == pytest.approx(6000, abs=200)
    assert without == pytest.approx(16000, abs=200)


def test_noise_beyond_64_bits_does_not_spoil_the_record(people, tmp_path):
    people.sql("SELECT SUM(pay) AS n FROM t", spend=cl.rho("1e-40"))
    path = next(tmp_path.glob("*.record"))
    again = AnswerCache("", path)
    assert len(again) == 1
    path.write_text(path.read_text() + '["x", [["discrete-gaussian", "1", {}]], [[1]]]\n["half a li')
    assert len(AnswerCache("", path)) == 1
    assert people.sql("SELECT COUNT(*) AS n FROM t", spend=cl.rho(5)).item() == pytest.approx(4000, abs=50)


def test_only_numbers_have_bounds_to_find(people):
    with pytest.raises(BadSchema, match="only numbers"):
        people.find_bounds("name", spend=cl.rho("0.1"))
    assert people.account.spent.amount == 0


def test_a_public_key_of_another_type_does_not_copy_rows(tmp_path):
    schema = {
        "unit": "row",
        "tables": {
            "t": {"columns": {"k": {"type": "real", "bounds": [0, 1e19]}}},
            "pub": {"public": True, "columns": {"k": {"type": "integer", "bounds": [0, 2**62]}}},
        },
    }
    source = {"t": pa.table({"k": [float(2**61)]}), "pub": pa.table({"k": [2**61 + i for i in range(100)]})}
    with cl.open(source, schema=schema, budget=cl.rho(1), ledger=tmp_path) as data, pytest.raises(QueryRefused):
        data.plan("SELECT COUNT(*) FROM t JOIN pub USING (k)", spend=cl.rho("0.1"))


def test_a_row_that_occurs_often_needs_more_noise_and_a_higher_threshold():
    spend = cl.epsilon(1, delta="1e-6")
    once, often = (key_finder(spend, cl.Unit("row", 1), True, copies) for copies in (1, 64))
    assert often.noise.sigma >= 63 * once.noise.sigma
    assert often.threshold > 64 + often.noise.sigma


def test_columns_whose_names_make_one_line_make_two_statistics(tmp_path):
    """`a b` may not be NULL in the first question, a and b in the second: other rows are left out."""
    rows = pa.table({"a": [1, 1, 1], "b": [2, 2, 2], "a b": pa.array([None, None, 1]), '"a" "b"': [1, None, None]})
    columns = {name: {"type": "integer", "bounds": [0, 9], "nullable": False} for name in rows.column_names}
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    spend = cl.epsilon(1000)
    with cl.open(rows, schema=schema, budget=cl.epsilon(10**5), ledger=tmp_path) as data:
        assert data.sql('SELECT COUNT("a b") FROM t', spend=spend).item() == 1
        assert data.sql('SELECT COUNT("""a"" ""b""") FROM t', spend=spend).item() == 1
        assert [*data.sql("SELECT COUNT(a) AS n, COUNT(b) AS m FROM t", spend=spend).rows()[0].values()][:1] == [3]


def test_a_mode_with_more_budget_is_asked_anew_and_with_less_is_free(tmp_path):
    rows = pa.table({"w": ["a"] * 100 + ["b"] * 10})
    schema = {"unit": "row", "tables": {"t": {"columns": {"w": {"type": "text", "categories": ["a", "b", "c"]}}}}}
    with cl.open(rows, schema=schema, budget=cl.epsilon(100), ledger=tmp_path) as data:
        ask = "SELECT MODE(w) AS m FROM t"
        data.sql(ask, spend=cl.epsilon("0.0001"))
        better = data.sql(ask, spend=cl.epsilon(10))
        assert better.loss.amount == 10
        assert better.item() == "a"
        for amount in (10, 1):
            again = data.plan(ask, spend=cl.epsilon(amount))
            assert again.loss is None
            assert data.run(again).item() == "a"


@pytest.mark.parametrize("what", ["keys", "bounds"])
def test_what_was_found_of_one_column_leaves_the_record_of_others_as_it_is(tmp_path, what):
    """Where the unit is the row, the number of rows reads no column at all."""
    columns = {"w": {"type": "text"}, "x": {"type": "integer"}, "y": {"type": "integer", "bounds": [0, 1]}}
    rows = pa.table({"w": ["a"] * 1000, "x": [3] * 1000, "y": [1] * 1000})
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    with cl.open(rows, schema=schema, budget=cl.epsilon(100, delta="1e-5"), ledger=tmp_path) as data:
        total = data.sql("SELECT SUM(y) AS n FROM t", spend=cl.rho(1)).item()
        if what == "keys":
            data.find_keys("w", spend=cl.epsilon(1, delta="1e-8"))
        else:
            data.find_bounds("x", spend=cl.rho(1))
        assert data.sql("SELECT COUNT(*) AS n FROM t", spend=cl.rho(1)).item() == pytest.approx(1000, abs=30)
        again = data.plan("SELECT SUM(y) AS n FROM t", spend=cl.rho(1))
        assert again.loss is None
        assert data.run(again).item() == total
