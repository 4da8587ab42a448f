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
