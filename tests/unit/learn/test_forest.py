"""Private trees and forests: better than the majority at small losses, whatever the shape of the data."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from cloister.learn.base.bins import BinnedFeature, read_axes
from cloister.learn.trees.forest import RandomForestClassifier, _size
from cloister.learn.trees.splits import SENSITIVITY, Apart, balanced, chooser, gini, weights_of
from cloister.learn.trees.tree import DecisionTreeClassifier
from cloister.learn.trees.tree_growth import TreeLevel, shares
from cloister.privacy.errors import BadBounds, BadInput, BadSchema
from cloister.privacy.filter import BudgetShare
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.noise import SeededSource

SPEND = epsilon(1, delta="1e-6")
KINDS = [DecisionTreeClassifier, RandomForestClassifier]
each_kind = pytest.mark.parametrize("kind", KINDS)


def table(rows: int = 10_000, seed: int = 0):
    """Class 1 where x0 > 0.5 and x1 < 0.7, with a tenth of the labels wrong; x2, x3 say nothing."""
    chance = np.random.default_rng(seed)
    x = chance.uniform(size=(rows, 4))
    y = ((x[:, 0] > 0.5) & (x[:, 1] < 0.7)) ^ (chance.uniform(size=rows) < 0.1)
    return x, y.astype(int)


def model(kind, folder: Path, spend: Loss = SPEND, **more):
    return kind(spend, **{"bounds": (0, 1), "classes": [0, 1], "ledger": folder, "random_state": 5, **more})


@each_kind
@pytest.mark.parametrize(
    ("spend", "least"), [(epsilon("0.2", delta="1e-6"), 0.8), (SPEND, 0.87), (epsilon(2), 0.86)], ids=str
)
def test_it_finds_what_is_there(tmp_path: Path, kind, spend: Loss, least: float) -> None:
    assert model(kind, tmp_path, spend, max_depth=4).fit(*table()).score(*table(seed=1)) >= least


def bundled():
    """Breast cancer, with bounds as somebody would tell them who knows the features."""
    rows, labels = load_breast_cancer(return_X_y=True)
    return rows, labels, (np.zeros(30), 1.05 * rows.max(axis=0))


@pytest.mark.parametrize(("spend", "least"), [(epsilon("0.3"), 0.78), (epsilon(1), 0.84), (epsilon(3), 0.88)], ids=str)
def test_few_rows_and_a_small_pure_spend_are_enough_for_more_than_the_majority(tmp_path, spend, least):
    rows, labels, bounds = bundled()
    fits = [
        model(RandomForestClassifier, tmp_path, spend, bounds=bounds, random_state=seed).fit(rows, labels)
        for seed in range(6)
    ]
    assert np.mean([one.score(rows, labels) for one in fits]) >= least


def test_a_forest_that_ranks_well_does_not_name_the_majority_everywhere(tmp_path):
    """Many features of which each says little, three fifths in one class: the mean of shrunken trees never decides."""
    chance = np.random.default_rng(4)
    labels = (chance.random(1500) < 0.37).astype(int)
    rows = np.clip(chance.normal(size=(1500, 30)) + 0.5 * labels[:, None], -4, 4)
    told = {"bounds": (-4, 4), "method": "greedy"}
    for seed in range(3):
        fitted = model(RandomForestClassifier, tmp_path, epsilon(4), random_state=seed, **told).fit(rows, labels)
        ranked = roc_auc_score(labels, fitted.predict_proba(rows)[:, 1])
        assert ranked > 0.75
        assert fitted.score(rows, labels) > max(0.63, ranked - 0.13)


@pytest.mark.parametrize("rows", [0, 3, 100, 1_000, 30_000])
def test_size_grows_with_what_rows_and_spend_can_teach(rows):
    sizes = [_size(BudgetShare(one), rows) or (0, 0) for one in (epsilon("0.1"), epsilon(1), epsilon(10), epsilon(100))]
    assert sizes == sorted(sizes)
    assert _size(BudgetShare(epsilon(1)), 50) is None
    assert _size(BudgetShare(epsilon(1)), 10**7) > (10, 6)


def test_log_odds_of_three_classes_add_up_to_probabilities(tmp_path):
    chance = np.random.default_rng(6)
    labels = chance.integers(0, 3, 4000)
    rows = np.clip(chance.normal(size=(4000, 4)) + 2 * np.eye(4)[labels], -4, 6)
    fitted = model(RandomForestClassifier, tmp_path, bounds=(-4, 6), classes=[0, 1, 2]).fit(rows, labels)
    assert np.allclose(fitted.predict_proba(rows).sum(axis=1), 1)
    assert fitted.score(rows, labels) > 0.7


def test_probabilities_are_about_right(tmp_path: Path) -> None:
    x, y = table(20_000)
    found = model(DecisionTreeClassifier, tmp_path, max_depth=3).fit(x, y).predict_proba(x)
    assert found.shape == (20_000, 2)
    assert np.allclose(found.sum(axis=1), 1)
    yes = found[:, 1] > 0.5
    assert y[yes].mean() == pytest.approx(found[yes, 1].mean(), abs=0.05)


def test_bundled_data_with_two_and_with_ten_classes(tmp_path: Path) -> None:
    cancer, digits = load_breast_cancer(return_X_y=True), load_digits(return_X_y=True)
    wide = {"bounds": (np.zeros(30), 2 * np.abs(cancer[0]).mean(axis=0))}
    forest = model(RandomForestClassifier, tmp_path, epsilon(4, delta="1e-6"), bins=8, **wide).fit(*cancer)
    assert forest.score(*cancer) > 0.88
    ten = {"bounds": (0, 16), "bins": 4, "classes": list(range(10))}
    assert model(RandomForestClassifier, tmp_path, epsilon(4, delta="1e-6"), **ten).fit(*digits).score(*digits) > 0.7


@each_kind
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_with_words_and_numbers(tmp_path: Path, kind, frame) -> None:
    x, y = table(4000)
    words = np.array(["low", "high"])[(x[:, 0] > 0.5).astype(int)]
    given = frame({"level": words, "dose": 10 * x[:, 1], "noise": x[:, 2]})
    labels = np.array(["no", "yes"])[y]
    found = model(
        kind,
        tmp_path,
        categories={"level": ["low", "high"]},
        bounds={"noise": (0, 1)},
        bins={"dose": [2, 4, 6, 7, 8]},
        classes=["no", "yes"],
        max_depth=3,
    ).fit(given, labels)
    assert found.score(given, labels) > 0.85
    assert list(found.feature_names_in_) == ["level", "dose", "noise"]
    assert found.n_features_in_ == 3
    with pytest.raises(BadInput, match="feature names"):
        found.predict(given[["dose", "level", "noise"]])


def test_a_tree_can_be_read(tmp_path: Path) -> None:
    x, y = table()
    tree = model(DecisionTreeClassifier, tmp_path, max_depth=2, bins=10).fit(x, y).tree_
    rules = tree.rules()
    assert len(rules) == 4
    assert any("x0 ≥ 0.5 and x1 < 0.7" in rule for rule in rules)


@each_kind
def test_a_seeded_fit_repeats_and_is_marked(tmp_path: Path, kind) -> None:
    x, y = table(500)
    one, two = (model(kind, tmp_path).fit(x, y) for _ in range(2))
    assert (one.predict_proba(x) == two.predict_proba(x)).all()
    assert not one.release_.private
    assert model(kind, tmp_path, random_state=None).fit(x, y).release_.private


@each_kind
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_rows_are_no_reason_to_fail(tmp_path: Path, kind, rows: int) -> None:
    x, y = table(100)
    assert np.isfinite(model(kind, tmp_path).fit(x[:rows], y[:rows]).predict_proba(x)).all()


@each_kind
def test_one_class_constant_columns_and_more_features_than_rows(tmp_path: Path, kind) -> None:
    found = model(kind, tmp_path, epsilon(5, delta="1e-6")).fit(np.zeros((300, 3)), np.ones(300, dtype=int))
    assert (found.predict(np.zeros((2, 3))) == 1).all()
    assert list(found.classes_) == [0, 1]
    assert model(kind, tmp_path).fit(np.ones((5, 60)), [0, 1, 0, 1, 0]).n_features_in_ == 60


@each_kind
def test_rows_beyond_the_bounds_and_labels_beyond_the_classes_are_taken_as_said(tmp_path: Path, kind) -> None:
    x, y = table(2000)
    far = x.copy()
    far[x[:, 0] > 0.97, 0] = 1e300
    labels = np.where(np.arange(2000) % 100 == 0, 7, y)
    found = model(kind, tmp_path).fit(far, labels)
    assert set(found.predict(x)) <= {0, 1}
    assert (found.predict_proba([[1e300, 0, 0, 0]]) == found.predict_proba([[1.0, 0, 0, 0]])).all()


@each_kind
def test_rows_with_missing_values_are_left_out_or_filled(tmp_path: Path, kind) -> None:
    x, y = table(100)
    x[0, 0] = np.nan
    without = model(kind, tmp_path).fit(x[1:], y[1:]).predict_proba(x[1:])
    assert (model(kind, tmp_path).fit(x, y).predict_proba(x[1:]) == without).all()
    assert model(kind, tmp_path, fill=0.5).fit(x, y).predict(x).shape == (100,)


@each_kind
@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"bounds": None}, BadBounds),
        ({"classes": None}, BadSchema),
        ({"max_depth": 0}, BadInput),
        ({"max_depth": 99}, BadInput),
        ({"bins": 1}, BadBounds),
        ({"bins": {0: [3, 2, 1]}}, BadBounds),
        ({"bins": {"nobody": 3}}, BadSchema),
        ({"categories": {9: ["a"]}}, BadSchema),
        ({"categories": {0: []}}, BadSchema),
        ({"bounds": {0: (0, 1)}}, BadBounds),
        ({"spend": None}, BadInput),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_charged(tmp_path: Path, kind, wrong: dict, error: type) -> None:
    with pytest.raises(error):
        model(kind, tmp_path, **wrong).fit(*table(50))
    assert not list(tmp_path.iterdir()) or not Ledger.in_folder(tmp_path).accounts()


@pytest.mark.parametrize("wrong", [{"n_estimators": 0}, {"max_features": 0}, {"max_features": 3}])
def test_a_forest_needs_trees_and_features(tmp_path: Path, wrong: dict) -> None:
    with pytest.raises(BadInput):
        model(RandomForestClassifier, tmp_path, **wrong).fit(*table(50))


@each_kind
def test_wrong_rows_are_refused_in_words(tmp_path: Path, kind) -> None:
    x, y = table(200)
    with pytest.raises(BadInput, match="as long as X"):
        model(kind, tmp_path).fit(x, y[:-1])
    with pytest.raises(BadInput, match="expecting 4"):
        model(kind, tmp_path).fit(x, y).predict(x[:, :3])
    with pytest.raises(ValueError, match="not fitted"):
        model(kind, tmp_path).predict(x)


@each_kind
@pytest.mark.parametrize("spend", [rho("0.01"), epsilon("0.5")], ids=str)
def test_it_charges_the_whole_spend_once(tmp_path: Path, kind, spend: Loss) -> None:
    account = Ledger.in_folder(tmp_path).open_account("rows", spend * 3)
    found = model(kind, tmp_path, spend, account=account).fit(*table(200))
    assert account.spent == spend == found.loss_
    assert found.release_.receipt is not None


@each_kind
def test_it_clones_and_stands_in_a_pipeline(tmp_path: Path, kind) -> None:
    x, y = table(1000)
    line = make_pipeline(FunctionTransformer(lambda rows: rows * 1.0), clone(model(kind, tmp_path)))
    assert line.fit(x, y).predict(x).shape == (1000,)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_scores_move_by_at_most_the_sensitivity_and_one_way(classes: int) -> None:
    chance = np.random.default_rng(classes)
    sizes = 10 ** chance.uniform(0, 5, size=(20_000, 2, 1))
    counts = np.floor(chance.dirichlet(np.full(classes, 0.3), size=(20_000, 2)) * sizes).astype(np.int64)
    left, right = counts[:, 0], counts[:, 1]
    weights = weights_of(chance.dirichlet(np.full(classes, 0.3), size=20_000))
    for extra in np.eye(classes, dtype=np.int64):
        down = gini(left + extra, right) - gini(left, right)
        up = balanced(left + extra, right, weights) - balanced(left, right, weights)
        assert -SENSITIVITY <= down.min() <= down.max() <= 0
        assert 0 <= up.min() <= up.max() <= SENSITIVITY


def test_small_counts_enumerated_keep_the_sensitivity() -> None:
    """Where the impurity rises fastest: the first rows of another class."""
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(60), np.arange(60)))
    left, right = np.stack([a, b], axis=1), np.zeros((3600, 2), dtype=np.int64)
    for extra in np.eye(2, dtype=np.int64):
        moved = gini(left + extra, right) - gini(left, right)
        assert -SENSITIVITY <= moved.min() < -0.9 * SENSITIVITY
        assert moved.max() <= 0


def test_gini_is_the_impurity() -> None:
    left, right = np.array([[30, 10]]), np.array([[5, 55]])
    exact = 40 - Fraction(30**2 + 10**2, 40) + 60 - Fraction(5**2 + 55**2, 60)
    assert -gini(left, right)[0] / 2**9 == pytest.approx(float(exact), abs=0.01)


def test_choices_apart_cost_what_one_costs() -> None:
    for loss in (rho("0.02"), epsilon("0.3")):
        level = chooser(loss)
        assert isinstance(level, Apart)
        assert level.loss == loss == (level.zcdp if loss.measure == "rho" else level.pure)
        picks = level.release([np.array([0, 10**9]), np.array([10**9, 0])], SeededSource("apart"))
        assert picks.tolist() == [1, 0]


def test_shares_follow_counts_and_lean_on_the_parent_where_counts_are_few() -> None:
    levels = [TreeLevel(np.array([[600.0, 400.0]]), 1.0), TreeLevel(np.array([[500.0, 100.0], [100.0, 300.0]]), 1.0)]
    found, rows = shares(levels)
    assert found[:, 1] == pytest.approx([1 / 6, 3 / 4], abs=0.03)
    assert rows == pytest.approx([600, 400], abs=3)
    noise = [TreeLevel(np.array([[600.0, 400.0]]), 1.0), TreeLevel(np.array([[650.0, 390.0], [-50.0, 10.0]]), 1e5)]
    assert shares(noise)[0][1, 1] == pytest.approx(0.4, abs=0.1)


def test_cells_are_told_in_words() -> None:
    age, ward = read_axes(["age", "ward"], {"age": (0, 90)}, 3, {"ward": ["a", "b", "a"]}, 3)
    assert age.labels() == ["< 30", "30 to 60", "≥ 60"]
    assert age.place(np.array([-5.0, 30.0, 59.9, 60.0, 1e9])).tolist() == [0, 1, 1, 2, 2]
    assert ward.labels() == ["a", "b", "other"]
    assert ward.place(np.array(["b", "c", None, "a"], dtype=object)).tolist() == [1, 2, 2, 0]
    assert BinnedFeature("n", np.zeros(0), (1, 2)).place(np.array([2.0, 1.0, np.nan])).tolist() == [1, 0, 2]
