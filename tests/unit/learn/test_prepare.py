"""Columns as a schema names them become the features that a model knows."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn
from cloister.learn.base.cells import Categories
from cloister.learn.model_selection.evaluation import Trial, evaluate
from cloister.privacy.errors import BadInput, BadSchema


class Model:
    """All that matters of a model here."""

    def __init__(self, *names):
        self.feature_names_in_ = np.array(names, dtype=object)


ROWS = {"age": [40, 80], "ward": ["surgery", None], "ward=x": ["a", "b"], "insured": [True, False], "other": [1, 2]}


def test_a_column_stays_and_a_value_of_one_becomes_an_indicator():
    model = Model("ward=surgery", "age", "ward=maternity", "insured=True")
    for rows in (ROWS, pd.DataFrame(ROWS)):
        np.testing.assert_array_equal(learn.prepare(model, rows), [[1, 40, 0, 1], [0, 80, 0, 0]])


def test_the_longest_name_of_a_column_counts():
    np.testing.assert_array_equal(learn.prepare(Model("ward=x=b"), ROWS), [[0], [1]])


def test_words_stay_words_where_the_model_takes_them():
    made = learn.prepare(Model("ward", "age"), ROWS)
    assert made.dtype == object
    assert made.tolist() == [["surgery", 40], [None, 80]]


def test_a_feature_without_a_column_is_refused():
    with pytest.raises(BadInput, match="no column for the feature height"):
        learn.prepare(Model("height"), ROWS)
    with pytest.raises(BadInput, match="does not know the names"):
        learn.prepare(object(), ROWS)


# A model from a dataset keeps where its features come from.

N = 3000
FIRST = np.random.default_rng(0).integers(0, 2, N)
OTHER = np.random.default_rng(1).integers(0, 2, N)
Y = FIRST == 1
ON_NUMBERS = [
    learn.LogisticRegression(cl.rho(10)),
    learn.LogisticRegression(cl.rho(10), method="newton"),
    learn.LinearSVC(cl.rho(10)),
]
ON_COLUMNS = [
    learn.MixedNB(cl.rho(10)),
    learn.CategoricalNB(cl.rho(10)),
    learn.DecisionTreeClassifier(cl.rho(10)),
    learn.GradientBoostingClassifier(cl.rho(10), rounds=5),
]


def opened(folder, columns, rows):
    """A table of text with these categories, and a truth to predict."""
    told = {name: {"type": "text", "categories": listed, "nullable": False} for name, listed in columns.items()}
    schema = {"unit": "row", "tables": {"v": {"columns": {**told, "y": {"type": "boolean", "nullable": False}}}}}
    table = pa.table({**rows, "y": Y})
    return cl.open(table, schema=schema, budget=cl.rho(10**4), ledger=folder, name="rows")


def words(listed, places=FIRST):
    return np.array(listed, dtype=object)[places].tolist()


ALIKE = [["1", "1.0"], ["True", "1"], ["0", "-0.0"], [str(2**60), str(2**60 + 1)]]


@pytest.mark.parametrize("listed", ALIKE, ids=repr)
@pytest.mark.parametrize(
    "model", [*ON_NUMBERS, *ON_COLUMNS], ids=lambda one: f"{type(one).__name__} {one.get_params().get('method')}"
)
def test_texts_that_an_array_would_read_alike_stay_two_as_in_the_schema(model, listed, tmp_path):
    rows = {"w": words(listed)}
    with opened(tmp_path, {"w": listed}, rows) as ds:
        fitted = model.fit(ds, target="y", features=["w"])
        key = ds.account.book.key
        again = learn.load(learn.save(fitted, tmp_path / "kept", key=key), key.public)
    for one in (fitted, again):
        for given in (rows, pa.table(rows), pd.DataFrame(rows)):
            made = learn.prepare(one, given)
            assert made.shape[1] == 1 or (made.sum(axis=1) == 1).all()
            assert (one.predict(made) == Y).mean() > 0.95


def test_two_features_of_one_name_are_refused_before_the_charge(tmp_path):
    columns = {"a": ["x", "b=c"], "a=b": ["c", "d"]}
    rows = {"a": words(columns["a"]), "a=b": words(columns["a=b"], OTHER)}
    with opened(tmp_path, columns, rows) as ds:
        for model in [*ON_NUMBERS, learn.LogisticRegression(cl.rho(1), method="functional"), learn.KMeans(cl.rho(1))]:
            told = {} if isinstance(model, learn.KMeans) else {"target": "y"}
            with pytest.raises(BadSchema, match="two features would have the name a=b=c"):
                model.fit(ds, features=["a", "a=b"], **told)
        assert ds.account.spent.amount == 0
        for model in ON_COLUMNS:  # their features are the columns, which have different names
            made = learn.prepare(model.fit(ds, target="y", features=["a", "a=b"]), rows)
            assert (model.predict(made) == Y).mean() > 0.95


def test_a_column_is_taken_by_its_name_and_not_by_a_longer_one_beside_it(tmp_path):
    """`w=x` is one value of column w here, whatever other columns the rows have."""
    rows = {"w": words(["y", "x"])}
    with opened(tmp_path, {"w": ["x", "y"]}, rows) as ds:
        model = learn.LogisticRegression(cl.rho(10)).fit(ds, target="y", features=["w"])
    made = learn.prepare(model, {**rows, "w=x": [9] * N, "w=": ["x"] * N})
    np.testing.assert_array_equal(made, np.column_stack([Y, ~Y]))
    with pytest.raises(BadInput, match="no column for the feature w=x"):
        learn.prepare(model, {"w=x": [9] * N})


def test_a_model_that_was_kept_without_its_columns_is_still_read(tmp_path):
    rows = {"w": words(["y", "x"])}
    with opened(tmp_path, {"w": ["x", "y"]}, rows) as ds:
        model = learn.LogisticRegression(cl.rho(10)).fit(ds, target="y", features=["w"])
        expected, key = learn.prepare(model, rows), ds.account.book.key
        del model._features  # as in a file of an earlier version
        again = learn.load(learn.save(model, tmp_path / "old", key=key), key.public)
    np.testing.assert_array_equal(learn.prepare(again, rows), expected)
    assert (again.predict(expected) == Y).mean() > 0.95


def test_a_number_is_no_text_if_two_texts_are_that_number():
    both = Categories(["1", "1.0", "2", "x"], exact=True)
    cells = np.array(["1", "1.0", "2", "2.0", "x", 1, 1.0, True, 2, 2.0, None, b"1.0", pa.scalar("2")], dtype=object)
    expected = [0, 1, 2, -1, 3, -1, -1, -1, 2, 2, -1, 1, 2]
    assert both.codes(cells).tolist() == [both.code(cell) for cell in cells] == expected
    assert both.codes(np.array([1, 2])).tolist() == both.codes(np.array([1.0, 2.0])).tolist() == [-1, 2]


def test_an_evaluation_tells_classes_groups_and_features_apart_as_the_schema_does(tmp_path):
    listed = ["1", "1.0"]
    rows = {"w": words(listed), "goal": words(listed), "g": words(listed, OTHER)}
    with opened(tmp_path, dict.fromkeys(rows, listed), rows) as ds:
        model = learn.LogisticRegression(cl.rho(10)).fit(ds, target="goal", features=["w"])
        relation = ds.relation(None, ["w", "goal", "g"])
        trial = Trial(relation, ("w",), "goal", "g", (*listed, None))
        found = evaluate(Exactly(), cl.rho(10), model, trial)
    assert found.overall.value == pytest.approx(1.0, abs=0.05)
    assert set(found.groups) == {"1", "1.0", "missing"}


class Exactly:
    """A filter that adds no noise."""

    def release(self, look, _mechanism):
        return look()
