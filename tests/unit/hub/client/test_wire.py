"""What comes back from the wire equals what was sent."""

import json
import subprocess
import sys
from datetime import date
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cloister as cl
from cloister.client.wire import (
    PlanSummary,
    answer_from_json,
    answer_to_json,
    loss_to_text,
    parse_loss,
    plan_from_json,
    plan_to_json,
    table_from_text,
    table_to_text,
)
from cloister.data.hospital import SCHEMA, hospital
from cloister.privacy.errors import BadForm, BadLoss, BadNumber, ReceiptRejected
from cloister.privacy.loss import Loss, Relation, Unit
from cloister.query.answer import Answer

amounts = st.fractions(min_value=Fraction(1, 10**12), max_value=1000)
deltas = st.none() | st.fractions(min_value=Fraction(1, 10**30), max_value=Fraction(1, 2))
losses = st.builds(
    lambda make, amount, delta, relation: make(amount, delta=delta, relation=relation),
    st.sampled_from([cl.epsilon, cl.rho]),
    amounts,
    deltas,
    st.sampled_from(Relation),
)
words = st.text(st.characters(codec="utf-8"), max_size=20)
tables = st.builds(
    lambda rows: pa.table(
        {
            "ward": pa.array([row[0] for row in rows], pa.string()),
            "n": pa.array([row[1] for row in rows], pa.float64()),
            "n_low": pa.array([row[2] for row in rows], pa.float64()),
            "day": pa.array([row[3] for row in rows], pa.date32()),
            "k": pa.array([row[4] for row in rows], pa.int64()),
        }
    ),
    st.lists(
        st.tuples(
            st.none() | words,
            st.none() | st.floats(allow_nan=False),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.dates(date(1, 1, 1), date(9999, 12, 31)),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=6,
    ),
)
answers = st.builds(
    Answer,
    value=tables,
    loss=losses,
    unit=st.builds(Unit, st.sampled_from(["row", "patient", "Ärztin"]), st.integers(1, 50)),
    mechanism=st.sampled_from(["discrete Gaussian", "none"]),
    parameters=st.dictionaries(words, words, max_size=2),
    private=st.booleans(),
    columns=st.lists(words, max_size=3).map(tuple),
    confidence=st.floats(0.01, 0.99),
    notes=st.lists(words, max_size=3).map(tuple),
    whole=st.lists(words, max_size=3).map(tuple),
)


@given(answers)
def test_an_answer_that_travelled_equals_the_one_that_was_sent(answer):
    assert answer_from_json(json.loads(json.dumps(answer_to_json(answer)))) == answer


@given(losses)
def test_a_loss_in_words_is_read_back_exactly(loss):
    assert parse_loss(loss_to_text(loss)) == loss


@given(tables)
def test_a_table_keeps_its_types_and_every_bit(table):
    back = table_from_text(table_to_text(table))
    assert back.schema == table.schema
    assert back.equals(table)


@given(
    st.builds(
        PlanSummary,
        st.none() | losses,
        *[st.lists(words, max_size=3).map(tuple)],
        st.lists(st.tuples(words, words), max_size=3).map(tuple),
        *[st.lists(words, max_size=3).map(tuple)] * 2,
    )
)
def test_a_plan_that_travelled_equals_the_one_that_was_sent(plan):
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    with cl.open(pa.table(hospital(500)), schema=SCHEMA, budget=cl.epsilon(2, delta="1e-6"), ledger=folder) as dataset:
        yield dataset


def test_a_real_answer_arrives_with_a_receipt_that_verifies(visits):
    answer = visits.sql("SELECT ward, COUNT(*) AS n, AVG(age) AS age FROM visits GROUP BY ward", spend=cl.rho("0.01"))
    back = answer_from_json(json.loads(json.dumps(answer_to_json(answer))))
    assert back == answer
    assert str(back) == str(answer)
    assert back.tidy() == answer.tidy()
    assert back.receipt is not None
    back.receipt.verify(visits.account.book.key.public)


def test_not_a_number_and_infinity_arrive_as_they_are():
    table = pa.table({"x": [float("nan"), float("inf"), -0.0, 5e-324]})
    assert [repr(x) for x in table_from_text(table_to_text(table)).column("x").to_pylist()] == [
        "nan",
        "inf",
        "-0.0",
        "5e-324",
    ]


def test_a_receipt_that_was_changed_on_the_way_is_not_accepted(visits):
    record = answer_to_json(visits.sql("SELECT COUNT(*) FROM visits WHERE age > 3", spend=cl.rho("0.01")))
    record["receipt"] = record["receipt"].replace('"private":true', '"private": true')
    with pytest.raises(ReceiptRejected):
        answer_from_json(record)


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("rho 0.01", cl.rho("0.01")),
        ("epsilon 0.5", cl.epsilon("0.5")),
        ("epsilon 0.5 delta 1e-8", cl.epsilon("0.5", delta="1e-8")),
        ("Epsilon=1, delta=1e-6", None),
        ("epsilon 1, delta 1e-6", cl.epsilon(1, delta="1e-6")),
        ("rho 1/3 replace-one", cl.rho("1/3", relation="replace-one")),
    ],
)
def test_the_ways_to_write_a_loss(text, loss):
    assert parse_loss(text) == (loss or cl.epsilon(1, delta="1e-6"))


@pytest.mark.parametrize("amount", ["100", "10", "0.1", "0.05", "1/3", "25", "120.5", "1e-8", "1e-300", "3000000"])
def test_numbers_are_written_short_and_exact(amount):
    loss = cl.rho(amount)
    assert parse_loss(loss_to_text(loss)) == loss
    assert loss_to_text(loss) == f"rho {amount}"


@pytest.mark.parametrize("text", ["", "0.5", "rho", "rho 0", "gamma 1", "rho 1 delta", "epsilon 1 1e-6", "rho x", None])
def test_what_is_no_loss_is_refused(text):
    with pytest.raises((BadLoss, BadNumber)):
        parse_loss(text)


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: record.pop("table"),
        lambda record: record.update(table="AAAA"),
        lambda record: record.update(table=7),
        lambda record: record.update(form="other"),
        lambda record: record.update(columns="ward"),
        lambda record: record.update(unit=None),
        lambda record: record.update(parameters=[]),
    ],
)
def test_what_is_no_answer_is_refused(damage):
    record = answer_to_json(
        Answer(pa.table({"n": [1.0]}), Loss.nothing("rho"), Unit("row"), "none", {}, columns=("n",))
    )
    damage(record)
    with pytest.raises(BadForm):
        answer_from_json(record)


@pytest.mark.parametrize("record", [{"errors": 7}, {"lines": [1]}, {"errors": [["one"]]}, {"loss": None, "notes": "x"}])
def test_what_is_no_plan_is_refused(record):
    with pytest.raises(BadForm):
        plan_from_json(record)


def test_the_wire_and_the_client_need_none_of_the_servers_packages():
    server = ["fastapi", "starlette", "sqlalchemy", "alembic", "uvicorn", "jinja2", "argon2", "pyotp", "altair"]
    program = (
        "import sys\n"
        f"for name in {server}: sys.modules[name] = None\n"
        "import cloister.client.wire\n"
        "from cloister.client import Client\n"
        "print(Client.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "Client\n", done.stderr
