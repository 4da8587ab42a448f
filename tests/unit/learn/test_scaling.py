"""Scalers and encoders from public facts, ranks that are paid for, and bounds that are found."""

import inspect
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.preprocessing import OneHotEncoder as PlainEncoder

import cloister as cl
from cloister import learn
from cloister.data.bounds_search import BINS, count_by_power
from cloister.learn.base.frame import find_box
from cloister.learn.preprocessing.quantiles import QuantileTransformer
from cloister.learn.preprocessing.scalers import MinMaxScaler, OneHotEncoder, StandardScaler
from cloister.privacy.errors import BadBounds, BadInput, BadSchema
from cloister.privacy.filter import release_steps
from cloister.privacy.noise import SeededSource

GENEROUS = cl.rho(10**6)


def test_bounds_become_zero_and_one_and_nothing_goes_beyond() -> None:
    scaler = MinMaxScaler(bounds=([0, 10], [4, 30])).fit(np.zeros((3, 2)))
    assert scaler.transform([[1, 10], [-9, 99]]).tolist() == [[0.25, 0], [0, 1]]
    assert scaler.inverse_transform([[0.25, 0.5]]).tolist() == [[1, 20]]
    assert MinMaxScaler((0, 2), feature_range=(-1, 1)).fit_transform([[0.0], [2.0]]).tolist() == [[-1], [1]]
    with pytest.raises(BadBounds):
        MinMaxScaler().fit([[1.0]])
    with pytest.raises(BadBounds):
        MinMaxScaler((0, 1), feature_range=(1, 0)).fit([[1.0]])
    with pytest.raises(BadInput, match="expecting 2 features"):
        scaler.transform([[1.0]])


def test_what_is_scaled_publicly_does_not_depend_on_the_rows() -> None:
    rng = np.random.default_rng(0)
    for scaler in (MinMaxScaler((0, 1)), StandardScaler(bounds=(0, 1))):
        left, right = (clone(scaler).fit(rng.random((n, 2))).transform([[0.3, 0.9]]) for n in (5, 500))
        assert (left == right).all()


def test_without_a_spend_the_scaler_takes_the_uniform_law(tmp_path: Path) -> None:
    scaler = StandardScaler(bounds=(0, 12)).fit(np.zeros((3, 1)))
    assert (scaler.mean_[0], scaler.scale_[0]) == (6, np.sqrt(12))
    assert not hasattr(scaler, "release_")
    with pytest.raises(BadBounds):
        StandardScaler(bounds="find").fit(np.zeros((3, 1)))


def test_with_a_spend_the_scaler_finds_mean_and_deviation(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal([3, 50], [1, 5], (20_000, 2))
    for bounds in (([0, 0], [8, 100]), "find"):
        scaler = StandardScaler(cl.rho("0.1"), bounds=bounds, ledger=tmp_path, random_state=1).fit(rows)
        assert scaler.mean_ == pytest.approx([3, 50], abs=0.5)
        assert scaler.scale_ == pytest.approx([1, 5], rel=0.15)
        assert scaler.inverse_transform(scaler.transform(rows)) == pytest.approx(rows)
    empty = StandardScaler(cl.epsilon(1), bounds=(0, 1), ledger=tmp_path).fit(np.zeros((0, 2)))
    assert (empty.scale_ > 0).all()


def test_categories_become_columns() -> None:
    frame = pd.DataFrame({"ward": ["a", "b", "?"], "sex": ["m", "f", "m"]})
    encoder = OneHotEncoder({"ward": ["a", "b", "c"], "sex": ["f", "m"]}).fit(frame)
    assert encoder.transform(frame).tolist() == [[1, 0, 0, 0, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
    assert encoder.get_feature_names_out().tolist() == ["ward_a", "ward_b", "ward_c", "sex_f", "sex_m"]
    assert encoder.inverse_transform(encoder.transform(frame)).tolist() == [["a", "m"], ["b", "f"], [None, "m"]]
    listed = [["a", "b"], ["f", "m"]]
    plain = PlainEncoder(categories=listed, sparse_output=False).fit(frame[:2])
    assert OneHotEncoder(listed).fit_transform(frame[:2]).tolist() == plain.transform(frame[:2]).tolist()
    with pytest.raises(BadSchema, match="Reading them off"):
        OneHotEncoder().fit(frame)
    with pytest.raises(BadInput, match="now missing:\n- sex"):
        encoder.transform(frame[["ward"]])


def quantiles(tmp_path: Path, spend: object = GENEROUS, **more: object) -> QuantileTransformer:
    return QuantileTransformer(spend, **{"bounds": (0, 10), "ledger": tmp_path, "random_state": 1, **more})


def test_ranks_are_near_the_true_ones(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).gamma(2, 1, (20_000, 2)).clip(0, 10)
    truth = (np.argsort(np.argsort(rows, axis=0), axis=0) + 0.5) / len(rows)
    for spend, error in ((GENEROUS, 0.005), (cl.epsilon(1, delta="1e-6"), 0.02), (cl.epsilon(1), 0.05)):
        fitted = quantiles(tmp_path, spend).fit(rows)
        assert abs(fitted.transform(rows) - truth).max() < error
        assert (np.diff(fitted.ranks_) > 0).all()


def test_ranks_lead_back_to_values(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).random((5000, 1)) * 10
    for law in ("uniform", "normal"):
        fitted = quantiles(tmp_path, output_distribution=law).fit(rows)
        assert fitted.inverse_transform(fitted.transform(rows)) == pytest.approx(rows, abs=0.02)
    normal = quantiles(tmp_path, output_distribution="normal").fit(rows).transform(rows)
    assert (normal.mean(), normal.std()) == pytest.approx((0, 1), abs=0.05)


@pytest.mark.parametrize("spend", [cl.epsilon("0.1"), cl.rho("0.001")])
@pytest.mark.parametrize("rows", [np.zeros((0, 2)), np.full((50, 2), 5.0), np.full((50, 2), 1e12)])
def test_no_table_breaks_ranks(tmp_path: Path, spend: object, rows: np.ndarray) -> None:
    fitted = quantiles(tmp_path, spend).fit(rows)
    assert (np.diff(fitted.ranks_) > 0).all()
    assert fitted.transform([[-1.0, 99.0]]).tolist() == [[0.0, 1.0]]


def test_ranks_cost_something(tmp_path: Path) -> None:
    from cloister.privacy.errors import BadLoss

    with pytest.raises(BadLoss):
        quantiles(tmp_path, None).fit(np.zeros((3, 1)))
    with pytest.raises(BadInput):
        quantiles(tmp_path, output_distribution="cauchy").fit(np.zeros((3, 1)))
    found = quantiles(tmp_path, cl.rho(1), bounds="find").fit(np.random.default_rng(0).random((5000, 1)) * 100)
    assert 100 <= found.grid_[0, -1] <= 128


def found(tmp_path: Path, rows: np.ndarray, spend: object) -> tuple[list[float], list[float]]:
    account = cl.Ledger.in_folder(tmp_path / "book").open_account("rows", spend)
    box, _ = release_steps(
        lambda meter: find_box(meter, lambda: rows, rows.shape[1], spend),
        accounts=[account],
        spend=spend,
        request="find",
        source=SeededSource("find"),
    )
    return box.low.tolist(), box.high.tolist()


@pytest.mark.parametrize("spend", [cl.rho("0.1"), cl.epsilon(1)])
def test_bounds_are_powers_of_two_around_what_is_there(tmp_path: Path, spend: object) -> None:
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.random(5000) * 100, -rng.random(5000), 3 + rng.random(5000), np.zeros(5000)])
    low, high = found(tmp_path, rows, spend)
    assert (low[2], high[2]) == (2.0, 4.0)
    assert high[0] == 128
    assert low[1] == -1
    assert (low[3], high[3]) == (-(2.0**-20), 2.0**-20)


def test_where_nothing_stands_out_bounds_are_public(tmp_path: Path) -> None:
    assert found(tmp_path, np.full((3, 2), 1e6), cl.rho("0.01")) == ([-1, -1], [1, 1])


@pytest.mark.parametrize("seed", range(4))
def test_a_dataset_finds_the_bounds_that_a_model_finds(tmp_path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    size = 2.0 ** random.uniform(-24, 66, 6)
    rows = random.normal(random.choice([-3, 0, 3], 6), 1, (900, 6)) * size
    rows[:, 0], rows[:, 1] = 0.0, 10.0 ** random.uniform(-9, 22, 900)
    low, high = found(tmp_path, rows, cl.rho(50))
    columns = {f"x{i}": {"type": "real"} for i in range(6)}
    frame = pd.DataFrame(rows, columns=list(columns))
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    with cl.open(frame, schema=schema, budget=cl.rho(100), ledger=tmp_path / "ledger") as ds:
        searched = [ds.find_bounds(name, spend=cl.rho(10), source=SeededSource(name)).value for name in columns]
    assert searched == list(zip(low, high, strict=True))


def test_each_value_is_in_one_bin() -> None:
    rows = np.array([[0.0], [1e-9], [1.0], [-1.0], [1e300], [-1e300], [2.0]])
    counted = count_by_power(rows)[0]
    assert len(counted) == BINS
    assert counted.sum() == len(rows)
    assert counted[0] == counted[-1] == 1
    assert (count_by_power(np.zeros((0, 2))) == 0).all()


# What is asked of an estimator warns of no row.


HUGE = [1.7e308, -1.7e308, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 0.0]
ASKED = ("transform", "inverse_transform", "predict", "predict_proba", "predict_log_proba", "decision_function")
EVERY = {
    "LogisticRegression": {"classes": [0, 1]},
    "LinearSVC": {"classes": [0, 1]},
    "GaussianNB": {"classes": [0, 1]},
    "MixedNB": {"classes": [0, 1]},
    "CategoricalNB": {"classes": [0, 1], "categories": [[0, 1]] * 2},
    "DecisionTreeClassifier": {"classes": [0, 1]},
    "RandomForestClassifier": {"classes": [0, 1], "n_estimators": 2},
    "GradientBoostingClassifier": {"classes": [0, 1], "rounds": 2},
    "LinearRegression": {"target_bounds": (0, 1)},
    "Ridge": {"target_bounds": (0, 1)},
    "GradientBoostingRegressor": {"target_bounds": (0, 1), "rounds": 2},
    "NeuralNetworkClassifier": {"classes": [0, 1], "max_iter": 2},
    "NeuralNetworkRegressor": {"target_bounds": (0, 1), "max_iter": 2},
    "KMeans": {"n_clusters": 2},
    "PCA": {"n_components": 2},
    "MinMaxScaler": {},
    "StandardScaler": {},
    "QuantileTransformer": {},
    "OneHotEncoder": {"categories": [[0, 1]] * 2},
}


def test_every_estimator_is_asked_about_huge_numbers():
    assert set(EVERY) == {name for name in learn.__all__ if name[0].isupper()}


@pytest.mark.parametrize("name", EVERY)
def test_no_number_makes_an_estimator_warn_or_stop(name, tmp_path):
    kind = getattr(learn, name)
    public = {"bounds": (0, 1), "spend": cl.rho(1), "ledger": tmp_path, "random_state": 0} | EVERY[name]
    model = kind(**{key: value for key, value in public.items() if key in inspect.signature(kind).parameters})
    rows = np.array([[one, other] for one in HUGE for other in HUGE])
    usual = np.random.default_rng(0).random((60, 2))
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        model.fit(np.vstack([usual, rows]), np.arange(60 + len(rows)) % 2)
        for method in ASKED:
            if hasattr(model, method):
                given = np.tile(rows, 2) if (name, method) == ("OneHotEncoder", "inverse_transform") else rows
                assert len(getattr(model, method)(given)) == len(rows)


def test_a_scaler_that_is_fitted_again_without_a_spend_names_no_release(tmp_path):
    rows = np.random.default_rng(0).random((60, 2))
    scaler = learn.StandardScaler(cl.rho(1), bounds=(0, 1), ledger=tmp_path).fit(rows)
    assert scaler.loss_ == cl.rho(1)
    scaler.set_params(spend=None).fit(rows)
    assert not hasattr(scaler, "release_")
    assert not hasattr(scaler, "loss_")
