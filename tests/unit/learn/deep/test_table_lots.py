"""Tables of a dataset in Poisson lots: all rows, each once, in portions, for units of rows and of persons."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

import cloister as cl
from cloister import learn
from cloister.data.schema import Schema
from cloister.learn.deep.table_lots import read_table_lots
from cloister.privacy.errors import BadInput, CloisterError
from cloister.privacy.noise import SeededSource

N = 600
SOURCE = SeededSource("deep tables")
AGE = (SOURCE.floats(N) * 90).astype(np.int64)
FRAME = pd.DataFrame(
    {
        "age": AGE,
        "ward": np.array(["a", "b", "c"])[(SOURCE.floats(N) * 3).astype(int)],
        "back": AGE > 45,
        "person": (SOURCE.floats(N) * 200).astype(np.int64),
    }
)
COLUMNS = {
    "age": {"type": "integer", "bounds": [0, 90], "nullable": False},
    "ward": {"type": "text", "categories": ["a", "b", "c"]},
    "back": {"type": "boolean", "nullable": False},
}
BY_ROW = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS}}})
BY_PERSON = Schema.load(
    {"unit": {"name": "person", "max_rows": 4}, "tables": {"visits": {"unit": "person", "columns": COLUMNS}}}
)


def opened(schema, folder):
    columns = ["age", "ward", "back", *(["person"] if schema is BY_PERSON else [])]
    return cl.open(FRAME[columns], schema=schema, budget=cl.rho(10, delta="1e-4"), ledger=folder, name="visits")


def loss(params, x, y):
    logits = (x / jnp.array([90.0, 1.0, 1.0, 1.0])) @ params["w"] + params["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


START = {"w": np.zeros((4, 2), np.float32), "b": np.zeros(2, np.float32)}


def test_a_lot_at_rate_one_holds_every_row_of_the_table_once(tmp_path):
    with opened(BY_ROW, tmp_path) as ds:
        lots = read_table_lots(ds, target="back", features=["age", "ward"])
        (x, y), second = lots.lots(Fraction(1), 2, SeededSource(1))
    assert sorted(x[:, 0].astype(int)) == sorted(AGE)
    assert np.array_equal(y == 1, x[:, 0] > 45)
    assert len(second[0]) == N
    assert lots.row == (((4,), np.dtype(np.float32)), ((), np.dtype(np.int32)))


def test_a_person_enters_a_lot_with_all_rows_that_count(tmp_path):
    with opened(BY_PERSON, tmp_path) as ds:
        lots = read_table_lots(ds, target="back", features=["age", "ward"])
        assert lots.grouped
        assert lots.count() == FRAME.person.nunique()
        ((mask, x, y),) = lots.lots(Fraction(1), 1, SeededSource(1))
    each = FRAME.groupby("person").size().clip(upper=4)
    assert sorted(mask.sum(axis=1).astype(int)) == sorted(each)
    assert x.shape == (len(each), 4, 4)
    assert y.shape == (len(each), 4)


def test_units_enter_lots_at_the_stated_rate(tmp_path):
    with opened(BY_ROW, tmp_path) as ds:
        lots = read_table_lots(ds, target="back", features=["age"])
        sizes = [len(x) for x, _ in lots.lots(Fraction(1, 5), 120, SeededSource(2))]
    assert len(sizes) == 120
    assert abs(np.mean(sizes) - N / 5) < 4 * np.sqrt(N * 0.16 / 120)
    assert 0.6 < np.var(sizes) / (N * 0.16) < 1.6


@pytest.mark.parametrize("schema", [BY_ROW, BY_PERSON], ids=["rows", "persons"])
def test_a_model_is_trained_on_a_table_and_the_dataset_pays_once(schema, tmp_path):
    with opened(schema, tmp_path) as ds:
        result = learn.deep.train(
            loss, START, ds, target="back", features=["age", "ward"], spend=cl.epsilon(2, delta="1e-5"), rate="1/5",
            steps=60, optimizer=optax.sgd(2.0), random_state=3,
        )  # fmt: skip
        assert ds.account.spent == cl.rho(2, delta="1e-5")
    assert result.release.unit == schema.unit
    assert result.receipt.body["accounts"][0]["account"] == "visits"
    codes = FRAME.ward.map({"a": 0, "b": 1, "c": 2}).to_numpy()
    x = np.column_stack([AGE / 90, np.eye(3)[codes]])
    right = ((x @ result.params["w"] + result.params["b"]).argmax(axis=1) == FRAME.back).mean()
    assert right > 0.75


def test_units_are_not_named_for_a_dataset_that_has_them(tmp_path):
    with opened(BY_PERSON, tmp_path) as ds:
        with pytest.raises(BadInput, match="schema names its unit"):
            learn.deep.train(loss, START, ds, target="back", units=FRAME.person, spend=cl.rho(1), rate=1)
        with pytest.raises(CloisterError):
            learn.deep.train(loss, START, ds, target="nowhere", spend=cl.rho(1), rate=1)
        assert not ds.account.spent.amount
