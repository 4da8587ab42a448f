"""Models in signed files."""

import ast
import inspect
import io
import json
import textwrap
from decimal import Decimal
from fractions import Fraction
from importlib import import_module

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import make_pipeline

import cloister as cl
from cloister import learn, lessons
from cloister.data.hospital import SCHEMA, hospital
from cloister.learn import persistence
from cloister.privacy.errors import BadInput, BadName, BadSource, CloisterError, SealBroken, StoreFailed

SPEND = cl.epsilon(1, delta="1e-6")
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.random((300, 3))
LABELS = np.array(["no", "yes"])[(ROWS[:, 0] > 0.5).astype(int)]
WORDS = (ROWS > 0.5).astype(int)
PUBLIC = {"bounds": (0, 1), "classes": ["no", "yes"]}
TARGET = {"bounds": (0, 1), "target_bounds": (0, 1)}
FITS = {
    "LogisticRegression": (PUBLIC, ROWS, LABELS),
    "LinearSVC": (PUBLIC, ROWS, LABELS),
    "GaussianNB": (PUBLIC, ROWS, LABELS),
    "CategoricalNB": ({"categories": [[0, 1]] * 3, "classes": ["no", "yes"]}, WORDS, LABELS),
    "MixedNB": (PUBLIC, ROWS, LABELS),
    "DecisionTreeClassifier": (PUBLIC | {"categories": {1: [0, 1]}}, WORDS, LABELS),
    "RandomForestClassifier": (PUBLIC | {"n_estimators": 3}, ROWS, LABELS),
    "GradientBoostingClassifier": (PUBLIC | {"bins": {0: [0.2, 0.7]}}, ROWS, LABELS),
    "LinearRegression": (TARGET, ROWS, ROWS[:, 0]),
    "Ridge": (TARGET, ROWS, ROWS[:, 0]),
    "GradientBoostingRegressor": (TARGET, ROWS, ROWS[:, 0]),
    "NeuralNetworkClassifier": (PUBLIC | {"hidden_layer_sizes": (4,)}, ROWS, LABELS),
    "NeuralNetworkRegressor": (TARGET | {"hidden_layer_sizes": ()}, ROWS, ROWS[:, 0]),
    "KMeans": ({"bounds": (np.zeros(3), np.ones(3)), "n_clusters": 2}, ROWS, None),
    "PCA": ({"bounds": (0, 1), "n_components": 2}, ROWS, None),
    "MinMaxScaler": ({"bounds": (0, 1)}, ROWS, None),
    "StandardScaler": ({"bounds": (0, 1)}, ROWS, None),
    "OneHotEncoder": ({"categories": [[0, 1]] * 3}, WORDS, None),
    "QuantileTransformer": ({"bounds": (0, 1)}, ROWS, None),
}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


def fitted(name, book):
    facts, rows, labels = FITS[name]
    kind = getattr(learn, name)
    paid = {"spend": SPEND, "ledger": book} if "spend" in kind().get_params() else {}
    model = kind(**facts, **paid)
    return model.fit(rows) if labels is None else model.fit(rows, labels)


@pytest.fixture
def model(book):
    return fitted("LogisticRegression", book)


def test_every_estimator_of_the_door_is_tried_here():
    assert set(FITS) == {name for name in learn.__all__ if name[0].isupper()}


@pytest.mark.parametrize("name", FITS)
def test_what_is_loaded_answers_as_what_was_saved(name, book, tmp_path):
    before, rows = fitted(name, book), FITS[name][1]
    path = learn.save(before, tmp_path / "model", key=book.key)
    after = learn.load(path, str(book.key.public))
    assert type(after) is type(before)
    assert vars(after).keys() == vars(before).keys()
    for verb in ("predict", "predict_proba", "decision_function", "transform"):
        if hasattr(before, verb):
            np.testing.assert_array_equal(getattr(before, verb)(rows), getattr(after, verb)(rows))
    if hasattr(before, "release_"):
        after.release_.receipt.verify(book.key.public)
        assert after.release_.loss == after.loss_ == before.loss_
        assert after.release_.private
        assert after.ledger is None


LISTS = {
    "pandas": lambda values: pd.Series(values),
    "pandas index": lambda values: pd.Index(values),
    "pandas categories": lambda values: pd.Categorical(values),
    "polars": lambda values: pl.Series(values),
    "pyarrow": lambda values: pa.array(values),
    "numpy text": lambda values: np.array(values, dtype=np.dtypes.StringDType()),
    "bytes": lambda values: [value.encode() for value in values],
}


@pytest.mark.parametrize("held", LISTS)
def test_a_model_is_kept_whatever_its_public_lists_were_held_in(held, book, tmp_path):
    classes, words = LISTS[held](["no", "yes"]), LISTS[held](["0", "1"])
    for model, rows in (
        (learn.LogisticRegression(SPEND, bounds=(0, 1), classes=classes, ledger=book), ROWS),
        (learn.CategoricalNB(SPEND, categories=[words] * 3, classes=classes, ledger=book), WORDS),
        (
            learn.DecisionTreeClassifier(
                SPEND, bounds={0: (0, 1), 1: (0, 1)}, categories={2: words}, classes=classes, ledger=book
            ),
            WORDS,
        ),
    ):
        model.fit(rows, LABELS)
        again = learn.load(learn.save(model, tmp_path / "model", key=book.key), book.key.public)
        assert again.predict(rows).tolist() == model.predict(rows).tolist()
        again.set_params(ledger=book).fit(rows, LABELS)  # its public lists are what they were
        assert list(again.classes_) == list(model.classes_)


def test_a_model_is_kept_whatever_its_public_numbers_were_written_as(book, tmp_path):
    ends = (pd.Series([Decimal(0), Decimal("0.5"), 0]), [1, Fraction(3, 2), np.float32(1)])
    model = learn.LinearRegression(SPEND, bounds=ends, target_bounds=(Decimal(0), Fraction(1)), ledger=book)
    model.fit(ROWS, ROWS[:, 0])
    again = learn.load(learn.save(model, tmp_path / "model", key=book.key), book.key.public)
    assert again.predict(ROWS).tolist() == model.predict(ROWS).tolist()
    assert again.target_bounds == (Decimal(0), Fraction(1))
    assert [list(end) for end in again.bounds] == [list(end) for end in ends]


def test_a_pipeline_is_kept_with_its_steps(book, tmp_path):
    line = make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), learn.LogisticRegression(SPEND, **PUBLIC, ledger=book))
    line.fit(ROWS, LABELS)
    again = learn.load(learn.save(line, tmp_path / "line"), book.key.public)
    assert list(again.named_steps) == list(line.named_steps)
    np.testing.assert_array_equal(again.predict_proba(ROWS), line.predict_proba(ROWS))


def test_a_model_of_a_selection_is_kept(book, tmp_path):
    found = learn.select(learn.LinearSVC(**PUBLIC), ROWS, LABELS, spend=SPEND, grid={"rows": [None, 300]}, ledger=book)
    again = learn.load(learn.save(found.best, tmp_path / "best", key=book.key), book.key.public)
    assert again.release_.loss == found.loss


def test_the_key_is_that_of_the_ledger_or_account_that_paid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = learn.LinearSVC(SPEND, **PUBLIC).fit(ROWS, LABELS)
    owner = cl.SigningKey.load(".cloister/owner.key").public
    assert learn.load(learn.save(first, "first"), owner).predict(ROWS).shape == (300,)
    account = cl.Ledger.in_folder("other").open_account("rows", cl.rho(1))
    second = learn.LinearSVC(SPEND, **PUBLIC, account=account).fit(ROWS, LABELS)
    learn.load(learn.save(second, "second"), account.book.key.public)
    with pytest.raises(BadName, match="another key signed"):
        learn.save(second, "third", key=cl.SigningKey.load(".cloister/owner.key"))


def test_a_model_from_an_engine_is_kept_with_the_datasets_key(tmp_path):
    with cl.open(hospital_table(), schema=SCHEMA, budget=cl.rho(1), ledger=tmp_path) as visits:
        model = learn.MixedNB(cl.rho("0.1")).fit(visits, target="ward", features=["age", "stay_days"])
        with pytest.raises(BadName):
            learn.save(model, tmp_path / "model", key=cl.SigningKey.create())
        key = visits.account.book.key
        again = learn.load(learn.save(model, tmp_path / "model", key=key), key.public)
    assert again.release_.unit == model.release_.unit
    np.testing.assert_array_equal(again.class_prior_, model.class_prior_)


def hospital_table():
    return pa.table(hospital(patients=200))


# Nothing is believed before the signature holds.


def test_any_changed_byte_is_noticed_before_anything_is_parsed(model, book, tmp_path, monkeypatch):
    path = learn.save(model, tmp_path / "model")
    whole = path.read_bytes()

    def parsed(*_):
        raise AssertionError("parsed before it was verified")

    monkeypatch.setattr(persistence.json, "loads", parsed)
    monkeypatch.setattr(persistence.np, "load", parsed)
    places = [*range(0, len(whole), max(len(whole) // 60, 1)), len(whole) - 1]
    for place in places:
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        path.write_bytes(changed)
        with pytest.raises((SealBroken, BadSource)):
            learn.load(path, book.key.public)
    for cut in (whole[:-1], whole + b"\n", whole[:40], b""):
        path.write_bytes(cut)
        with pytest.raises((SealBroken, BadSource)):
            learn.load(path, book.key.public)


def test_another_key_is_noticed(model, tmp_path):
    path = learn.save(model, tmp_path / "model")
    with pytest.raises(SealBroken, match="another key"):
        learn.load(path, cl.SigningKey.create().public)


def test_a_receipt_of_another_owner_is_not_smuggled_in(model, book, tmp_path):
    path = learn.save(model, tmp_path / "model")
    thief = cl.SigningKey.create()
    rest = path.read_bytes().split(b"\n", 2)[2]
    path.write_bytes(persistence._FORM + thief.sign(persistence._PURPOSE + rest).encode() + b"\n" + rest)
    with pytest.raises(CloisterError, match="CLO-302"):
        learn.load(path, thief.public)


def test_the_file_holds_json_and_arrays_and_no_pickle(model, tmp_path):
    whole = learn.save(model, tmp_path / "model").read_bytes()
    form, _, length, rest = whole.split(b"\n", 3)
    record = json.loads(rest[: int(length)])
    assert form == b"cloister-model/1"
    assert record["class"] == "LogisticRegression"
    assert "ledger" not in record["params"]
    assert rest[int(length) :].startswith(b"PK")
    with np.load(io.BytesIO(rest[int(length) :]), allow_pickle=False) as arrays:
        assert {array.dtype.kind for array in arrays.values()} <= set("biufU")


@pytest.mark.parametrize(
    "make",
    [
        lambda book: Plain().fit(ROWS, LABELS),
        lambda book: learn.LogisticRegression(SPEND, **PUBLIC, ledger=book),
        lambda book: lessons.LogisticRegression(cl.epsilon(1), **PUBLIC, method="output", random_state=1).fit(
            ROWS, LABELS
        ),
    ],
    ids=["another library's", "not fitted", "a lesson"],
)
def test_what_is_no_released_model_is_not_kept(make, book, tmp_path):
    with pytest.raises(BadInput):
        learn.save(make(book), tmp_path / "model", key=book.key)
    assert not (tmp_path / "model").exists()


def test_a_model_that_holds_something_unknown_is_not_kept(model, book, tmp_path):
    model.coef_ = open  # anything that is not on the list of released things
    with pytest.raises(BadInput, match="nobody knows whether that is public"):
        learn.save(model, tmp_path / "model")


def test_what_was_put_beside_a_model_is_not_kept(model, book, tmp_path):
    model.rows_seen_ = np.ones((4, 2))
    with pytest.raises(BadInput, match="rows_seen_, which no fit sets"):
        learn.save(model, tmp_path / "m", key=book.key)
    assert not (tmp_path / "m").exists()


def test_every_attribute_that_a_fit_sets_is_known():
    found = {
        "_features",
        "_metadata_request",
        "_of_dataset",
        "_sklearn_output_config",
        "feature_names_in_",
        "n_features_in_",
    }
    dropped = set()  # within the same fit
    for name, home in persistence._ESTIMATORS.items():
        kind = getattr(import_module(home), name)
        for base in kind.__mro__ if hasattr(kind, "fit") else ():
            if not base.__module__.startswith("cloister.learn."):
                continue
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            methods = [one for one in tree.body[0].body if isinstance(one, ast.FunctionDef) and one.name != "__init__"]
            for node in (node for method in methods for node in ast.walk(method)):
                if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
                    found |= {node.attr} if isinstance(node.ctx, ast.Store) else set()
                    dropped |= {node.attr} if isinstance(node.ctx, ast.Del) else set()
    assert found - dropped - {"release_"} == persistence._STATE


def test_places_that_cannot_be_written_or_read_are_told(model, book, tmp_path):
    with pytest.raises(StoreFailed):
        learn.save(model, tmp_path / "no" / "where")
    with pytest.raises(StoreFailed):
        learn.load(tmp_path / "nothing", book.key.public)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadSource):
        learn.load(tmp_path / "text", book.key.public)
