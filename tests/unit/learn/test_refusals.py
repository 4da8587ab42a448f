"""What follows from the request alone is refused before anything is charged, in words that fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn
from cloister.privacy.errors import BadBounds, BadInput, BadLoss, BadSchema

CLASSES: dict[str, Any] = {"bounds": (0, 1), "classes": [0, 1]}
CELLS = np.random.default_rng(0).random((200, 2))
LABELS = np.arange(200) % 2
NUMBER: dict[str, Any] = {"type": "real", "bounds": [0, 1], "nullable": False}
BACK: dict[str, Any] = {"type": "integer", "categories": [0, 1], "nullable": False}
SCHEMA: dict[str, Any] = {"unit": "row", "tables": {"t": {"columns": {"a": NUMBER, "b": NUMBER, "back": BACK}}}}


def opened(folder: Path) -> Any:
    rows = pa.table({"a": CELLS[:, 0], "b": CELLS[:, 1], "back": LABELS})
    return cl.open(rows, schema=SCHEMA, budget=cl.rho(10), ledger=folder)


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (learn.PCA, None),
        (learn.LinearRegression, "b"),
        (learn.GaussianNB, "back"),
        (learn.MixedNB, "back"),
    ],
)
def test_a_feature_that_is_named_twice_is_refused(tmp_path: Path, make: Any, target: str | None) -> None:
    told = {} if target is None else {"target": target}
    with opened(tmp_path) as data:
        before = data.account.spent
        with pytest.raises(BadInput, match="name every column once"):
            make(cl.rho(1)).fit(data, features=["a", "a"], **told)
        assert data.account.spent == before


@pytest.mark.parametrize("payer", ["account", "ledger"])
def test_a_dataset_pays_alone(tmp_path: Path, payer: str) -> None:
    with opened(tmp_path / "own") as data, cl.Ledger.in_folder(tmp_path / "other") as book:
        given = {"ledger": book, "account": book.open_account("other", cl.rho(5))}[payer]
        before = data.account.spent
        with pytest.raises(BadInput, match="own account pays"):
            learn.GaussianNB(cl.rho(1), **{payer: given}).fit(data, target="back", features=["a", "b"])
        assert data.account.spent == before


@pytest.mark.parametrize("spend", [cl.rho("1e-300"), cl.epsilon("1e-300")], ids=str)
@pytest.mark.parametrize("kind", [learn.GaussianNB, learn.LogisticRegression, learn.RandomForestClassifier])
def test_a_spend_too_small_for_any_noise_is_refused_before_the_charge(
    tmp_path: Path, kind: Any, spend: cl.Loss
) -> None:
    with cl.Ledger.in_folder(tmp_path) as book:
        account = book.open_account("a", cl.epsilon(5, delta="1e-6"))
        before = account.spent
        with pytest.raises(BadLoss, match="at least 1e-"):
            kind(spend, account=account, **CLASSES).fit(CELLS, LABELS)
        assert account.spent == before


@pytest.mark.parametrize("spend", [cl.rho("1e-30"), cl.epsilon("1e-30")], ids=str)
def test_the_smallest_spend_is_carried_out(tmp_path: Path, spend: cl.Loss) -> None:
    for kind in (learn.GaussianNB, learn.LogisticRegression, learn.RandomForestClassifier):
        kind(spend, ledger=tmp_path, **CLASSES).fit(CELLS, LABELS)


@pytest.mark.parametrize("names", [("tables", "account"), ("itercolumns", "b"), ("tocsr", "columns")])
def test_a_frame_may_have_columns_of_any_name(tmp_path: Path, names: tuple[str, str]) -> None:
    frame = pd.DataFrame(CELLS, columns=list(names))
    fitted = learn.GaussianNB(cl.rho(1), ledger=tmp_path, **CLASSES).fit(frame, LABELS)
    assert list(fitted.feature_names_in_) == list(names)
    assert fitted.predict(frame).shape == (200,)


@pytest.mark.parametrize("bounds", [([0], [1]), ([0, 0, 0], [1, 1, 1]), ([0, 0], [1]), ([[0, 0]], [[1, 1]])])
@pytest.mark.parametrize("make", [learn.KMeans, learn.PCA, learn.LogisticRegression])
def test_bounds_of_another_length_are_refused_before_the_charge(tmp_path: Path, make: Any, bounds: Any) -> None:
    told = {"classes": [0, 1]} if make is learn.LogisticRegression else {}
    with pytest.raises(BadBounds, match=r"CLO-103.*\(lows, highs\) with 2 numbers each"):
        make(cl.rho(1), bounds=bounds, ledger=tmp_path, **told).fit(CELLS, LABELS)
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.parametrize("features", [2, 3])
def test_bounds_as_pairs_are_told_their_form(tmp_path: Path, features: int) -> None:
    pairs = [(18, 90), (0, 100_000), (1, 5)][:features]
    with pytest.raises(BadBounds, match="not a pair for each feature"):
        learn.KMeans(cl.rho(1), bounds=pairs, ledger=tmp_path).fit(np.zeros((50, features)))


@pytest.mark.parametrize("make", [learn.LogisticRegression, learn.GaussianNB, learn.DecisionTreeClassifier])
def test_classes_that_the_schema_does_not_have_are_refused_before_the_charge(tmp_path: Path, make: Any) -> None:
    words = {"type": "text", "categories": ["no", "yes"], "nullable": False}
    schema = {"unit": "row", "tables": {"t": {"columns": {"a": NUMBER, "b": NUMBER, "back": words}}}}
    rows = pa.table({"a": CELLS[:, 0], "b": CELLS[:, 1], "back": np.where(LABELS, "yes", "no")})
    with cl.open(rows, schema=schema, budget=cl.rho(10), ledger=tmp_path) as data:
        for classes in ([0, 1], ["no", "Yes"]):
            with pytest.raises(BadSchema, match="'no', 'yes'"):
                make(cl.rho(1), classes=classes).fit(data, target="back", features=["a", "b"])
        assert not data.account.spent.amount


def test_a_model_from_a_dataset_that_is_asked_about_a_frame_names_prepare(tmp_path: Path) -> None:
    with opened(tmp_path) as data:
        model = learn.LogisticRegression(cl.rho(1)).fit(data, target="back")
    with pytest.raises(BadInput, match=r"learn\.prepare\(model, rows\)"):
        model.predict(pd.DataFrame({"a": [0.5], "ward": ["surgery"]}))
