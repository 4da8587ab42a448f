"""Private boosting: shapes that are right, that can be drawn, and that a row moves no further than it may."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from cloister.learn.trees import boosting_regressor
from cloister.learn.trees.boosting import GradientBoostingClassifier
from cloister.learn.trees.boosting_regressor import GradientBoostingRegressor
from cloister.privacy.errors import BadBounds, BadInput, BadSchema
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, epsilon, rho

SPEND = epsilon(1, delta="1e-6")
KINDS = [GradientBoostingClassifier, GradientBoostingRegressor]
each_kind = pytest.mark.parametrize("kind", KINDS)


def margin(x):
    return 6 * x[:, 0] - 3 + 4 * np.square(x[:, 1] - 0.5) - 1 + (x[:, 2] > 0.5)


def table(rows: int = 20_000, seed: int = 0):
    chance = np.random.default_rng(seed)
    x = chance.uniform(size=(rows, 4))
    return x, (chance.uniform(size=rows) < 1 / (1 + np.exp(-margin(x)))).astype(int)


def numbers(rows: int = 20_000, seed: int = 0):
    chance = np.random.default_rng(seed)
    x = chance.uniform(size=(rows, 4))
    return x, margin(x) + chance.normal(size=rows) * 0.5


def model(kind, folder: Path, spend: Loss = SPEND, **more):
    own = {"classes": [0, 1]} if kind is GradientBoostingClassifier else {"target_bounds": (-6, 6)}
    return kind(spend, **{"bounds": (0, 1), "bins": 16, "ledger": folder, "random_state": 5, **own, **more})


@pytest.mark.parametrize("spend", [epsilon("0.5"), epsilon(1), epsilon(1, delta="1e-6")], ids=str)
def test_few_rows_get_few_rounds_and_no_wild_predictions(tmp_path, spend):
    x, y = numbers(700)
    fits = [model(GradientBoostingRegressor, tmp_path, spend, random_state=seed).fit(x, y) for seed in range(5)]
    assert all(one.n_iter_ < 40 for one in fits)
    assert np.mean([one.score(*numbers(5_000, 1)) for one in fits]) > 0


def test_many_rows_get_all_rounds_and_rounds_that_are_asked_for_are_taken(tmp_path):
    for kind, rows in ((GradientBoostingClassifier, 20_000), (GradientBoostingRegressor, 20_000)):
        assert model(kind, tmp_path).fit(*data(kind, rows)).n_iter_ == 40
        assert model(kind, tmp_path, epsilon("0.1"), rounds=5).fit(*data(kind, 100)).n_iter_ == 5
    assert model(GradientBoostingClassifier, tmp_path, epsilon("0.1")).fit(*table(300)).n_iter_ == 1


def data(kind, *given):
    return table(*given) if kind is GradientBoostingClassifier else numbers(*given)


@pytest.mark.parametrize(
    ("spend", "lost"), [(epsilon("0.1", delta="1e-6"), 0.02), (SPEND, 0.005), (epsilon(1), 0.01)], ids=str
)
def test_a_classifier_ranks_nearly_as_well_as_the_truth(tmp_path: Path, spend: Loss, lost: float) -> None:
    x, y = table(seed=1)
    found = model(GradientBoostingClassifier, tmp_path, spend).fit(*table())
    assert roc_auc_score(y, found.predict_proba(x)[:, 1]) >= roc_auc_score(y, margin(x)) - lost


def test_probabilities_are_calibrated(tmp_path: Path) -> None:
    x, y = table(40_000)
    found = model(GradientBoostingClassifier, tmp_path, epsilon(3, delta="1e-6")).fit(x, y).predict_proba(x)[:, 1]
    for low, high in ((0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1)):
        some = (found >= low) & (found < high)
        assert y[some].mean() == pytest.approx(found[some].mean(), abs=0.05)


@pytest.mark.parametrize(
    ("spend", "least"), [(epsilon("0.1", delta="1e-6"), 0.75), (SPEND, 0.9), (epsilon(1), 0.85)], ids=str
)
def test_a_regressor_explains_what_there_is(tmp_path: Path, spend: Loss, least: float) -> None:
    assert model(GradientBoostingRegressor, tmp_path, spend).fit(*numbers()).score(*numbers(seed=1)) >= least


def test_target_bounds_far_too_wide_cost_little(tmp_path: Path) -> None:
    wide = model(GradientBoostingRegressor, tmp_path, target_bounds=(-100, 100)).fit(*numbers())
    assert wide.score(*numbers(seed=1)) >= 0.85


def test_bundled_data(tmp_path: Path) -> None:
    x, y = load_digits(return_X_y=True)
    ten = {"bounds": (0, 16), "bins": 4, "classes": list(range(10))}
    assert model(GradientBoostingClassifier, tmp_path, epsilon(4, delta="1e-6"), **ten).fit(x, y).score(x, y) > 0.8
    x, y = load_diabetes(return_X_y=True)
    public = {"bounds": (-0.2, 0.2), "bins": 8, "target_bounds": (0, 400)}
    assert model(GradientBoostingRegressor, tmp_path, epsilon(4, delta="1e-6"), **public).fit(x, y).score(x, y) > 0.3


def test_features_that_say_the_same_twenty_times_do_not_make_it_overshoot(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    x = chance.uniform(-1, 1, 20_000)
    y = (chance.uniform(size=20_000) < 1 / (1 + np.exp(-4 * x))).astype(int)
    same = np.repeat(x[:, None], 20, axis=1)
    p = model(GradientBoostingClassifier, tmp_path, bounds=(-1, 1)).fit(same, y).predict_proba(same)[:, 1]
    assert -np.log(np.where(y, p, 1 - p)).mean() < 0.4  # the truth has 0.374


def test_shapes_are_the_shapes_of_the_truth(tmp_path: Path) -> None:
    shapes = model(GradientBoostingRegressor, tmp_path, epsilon(3, delta="1e-6")).fit(*numbers()).shapes_
    middles = (np.arange(16) + 0.5) / 16
    assert shapes["x0"].values == pytest.approx(6 * middles - 3, abs=0.25)
    assert shapes["x2"].values == pytest.approx(np.where(middles > 0.5, 0.5, -0.5), abs=0.25)
    assert np.abs(shapes["x3"].values).max() < 0.2


def test_standard_errors_of_shapes_are_honest(tmp_path: Path) -> None:
    """Over fits, the shape of a feature that says nothing spreads about as its standard errors say."""
    fits = [
        model(GradientBoostingRegressor, tmp_path, random_state=i).fit(*numbers(5000, i)).shapes_["x3"]
        for i in range(12)
    ]
    spread = np.sqrt(np.mean([shape.values**2 for shape in fits]))
    said = np.mean([shape.errors for shape in fits])
    assert 0.5 * said < spread < 2 * said


def test_importances_follow_the_shapes(tmp_path: Path) -> None:
    found = model(GradientBoostingClassifier, tmp_path).fit(*table())
    assert found.feature_importances_.argmax() == 0
    assert found.feature_importances_.argmin() == 3


@each_kind
def test_margins_are_the_sum_of_shapes(tmp_path: Path, kind) -> None:
    x, y = data(kind, 2000)
    found = model(kind, tmp_path).fit(x, y)
    cells = np.minimum((x * 16).astype(int), 15)
    total = found.intercept_[0] + sum(shape.values[cells[:, i]] for i, shape in enumerate(found.shapes_.values()))
    said = found.decision_function(x) if kind is GradientBoostingClassifier else found.predict(x)
    expected = total if kind is GradientBoostingClassifier else np.clip(total, -6, 6)
    assert said == pytest.approx(expected)


@each_kind
def test_frames_with_words_and_charts(tmp_path: Path, kind) -> None:
    pytest.importorskip("altair", reason="charts need Altair: pip install 'cloister[hub]'")
    x, y = data(kind, 3000)
    frame = pd.DataFrame({"half": np.where(x[:, 2] > 0.5, "upper", "lower"), "dose": x[:, 0], "rest": x[:, 3]})
    found = model(kind, tmp_path, categories={"half": ["upper", "lower"]}, bins={"dose": [0.25, 0.5, 0.75]})
    found.fit(frame, y)
    assert list(found.feature_names_in_) == list(found.shapes_) == ["half", "dose", "rest"]
    assert found.shapes_["dose"].values.shape == (4,)
    drawn = found.shape_chart("half").to_dict()
    assert drawn["layer"][0]["mark"]["type"] == "bar"
    assert found.shape_chart(1).to_dict()["layer"][0]["mark"]["type"] == "line"
    with pytest.raises(BadInput, match="no feature"):
        found.shape_chart("nobody")


def test_a_chart_of_three_classes_has_three_lines(tmp_path: Path) -> None:
    pytest.importorskip("altair", reason="charts need Altair: pip install 'cloister[hub]'")
    x, _ = table(3000)
    found = model(GradientBoostingClassifier, tmp_path, classes=["a", "b", "c"])
    found.fit(x, np.array(["a", "b", "c"])[(x[:, 0] * 3).astype(int)])
    assert found.shapes_["x0"].values.shape == (16, 3)
    (records,) = found.shape_chart("x0").to_dict()["datasets"].values()
    assert {one["output"] for one in records} == {"a", "b", "c"}
    assert np.allclose(found.predict_proba(x).sum(axis=1), 1)
    assert found.score(x, np.array(["a", "b", "c"])[(x[:, 0] * 3).astype(int)]) > 0.8


@each_kind
def test_a_seeded_fit_repeats_and_is_marked(tmp_path: Path, kind) -> None:
    x, y = data(kind, 500)
    one, two = (model(kind, tmp_path).fit(x, y) for _ in range(2))
    assert (one.predict(x) == two.predict(x)).all()
    assert not one.release_.private
    assert model(kind, tmp_path, random_state=None).fit(x, y).release_.private


@each_kind
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_rows_are_no_reason_to_fail(tmp_path: Path, kind, rows: int) -> None:
    x, y = data(kind, 100)
    for spend in (SPEND, epsilon(1)):
        found = model(kind, tmp_path, spend).fit(x[:rows], y[:rows])
        assert np.isfinite(np.asarray(found.predict(x), dtype=float)).all()


@each_kind
@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("spend", [rho(10**5), epsilon(10**5)], ids=str)
def test_a_spend_without_noise_fits_no_rows_like_any_others(tmp_path: Path, kind, spend: Loss, rows: int) -> None:
    x, y = data(kind, 100)
    found = model(kind, tmp_path, spend, rounds=3).fit(x[:rows], y[:rows])
    said = found.predict(x) if kind is GradientBoostingRegressor else found.predict_proba(x)
    assert np.isfinite(said).all()
    assert np.isfinite(found.feature_importances_).all()


def test_a_residual_is_bounded_whatever_was_computed_for_its_row(tmp_path: Path, monkeypatch) -> None:
    """A residual that is no number adds nothing; an infinite one adds no more than the clipping norm."""
    for odd in (np.nan, np.inf, -np.inf):
        seen: list[tuple[float, float]] = []

        def release(self, look, mechanism, seen=seen):
            found = np.asarray(look(), dtype=float)
            seen.append((np.abs(found).max(), float(mechanism.sensitivity)))
            self._answers.append("")
            return np.zeros(found.shape, dtype=object)

        monkeypatch.setattr(PrivacyFilter, "release", release)
        monkeypatch.setattr(boosting_regressor._Target, "scaled", lambda self, given, odd=odd: np.full(len(given), odd))
        x, y = numbers(1)
        model(GradientBoostingRegressor, tmp_path, rho(1), rounds=2).fit(x, y)
        assert len(seen) == 4
        assert all(moved <= most for moved, most in seen)


def test_one_class_constant_columns_and_more_features_than_rows(tmp_path: Path) -> None:
    found = model(GradientBoostingClassifier, tmp_path).fit(np.zeros((3000, 3)), np.ones(3000, dtype=int))
    assert (found.predict(np.zeros((2, 3))) == 1).all()
    assert model(GradientBoostingClassifier, tmp_path).fit(np.ones((4, 60)), [0, 1, 0, 1]).n_features_in_ == 60


@each_kind
def test_values_and_targets_beyond_the_bounds_are_clipped(tmp_path: Path, kind) -> None:
    x, y = data(kind, 1000)
    x[:20] = 1e300
    found = model(kind, tmp_path).fit(x, np.where(np.arange(1000) % 50, y, 1e300))
    assert (found.predict([[1e300] * 4]) == found.predict([[1.0] * 4])).all()
    assert np.abs(np.asarray(found.predict(x), dtype=float)).max() <= 6


@each_kind
def test_rows_with_missing_values_are_left_out_or_filled(tmp_path: Path, kind) -> None:
    x, y = data(kind, 100)
    x[0, 0] = np.nan
    known = data(kind, 100)[0][1:]
    assert (
        model(kind, tmp_path).fit(x, y).predict(known) == model(kind, tmp_path).fit(x[1:], y[1:]).predict(known)
    ).all()
    assert model(kind, tmp_path, fill=0.5).fit(x, y).predict(x).shape == (100,)


def test_a_row_without_a_target_is_left_out(tmp_path: Path) -> None:
    x, y = numbers(100)
    without = model(GradientBoostingRegressor, tmp_path).fit(np.delete(x, 3, axis=0), np.delete(y, 3)).predict(x)
    for missing in (np.nan, None, "many"):
        goal = y.astype(object)
        goal[3] = missing
        assert (model(GradientBoostingRegressor, tmp_path).fit(x, goal).predict(x) == without).all()


@pytest.mark.parametrize(
    ("kind", "wrong", "error"),
    [
        (GradientBoostingClassifier, {"bounds": None}, BadBounds),
        (GradientBoostingClassifier, {"classes": None}, BadSchema),
        (GradientBoostingClassifier, {"rounds": 0}, BadInput),
        (GradientBoostingClassifier, {"spend": None}, BadInput),
        (GradientBoostingRegressor, {"target_bounds": None}, BadBounds),
        (GradientBoostingRegressor, {"target_bounds": (3, 3)}, BadBounds),
        (GradientBoostingRegressor, {"rounds": True}, BadInput),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_charged(tmp_path: Path, kind, wrong: dict, error: type) -> None:
    with pytest.raises(error):
        model(kind, tmp_path, **wrong).fit(*data(kind, 50))
    assert not list(tmp_path.iterdir()) or not Ledger.in_folder(tmp_path).accounts()


@each_kind
@pytest.mark.parametrize("spend", [rho("0.01"), epsilon("0.5")], ids=str)
def test_it_charges_the_whole_spend_once(tmp_path: Path, kind, spend: Loss) -> None:
    account = Ledger.in_folder(tmp_path).open_account("rows", spend * 3)
    found = model(kind, tmp_path, spend, account=account).fit(*data(kind, 200))
    assert account.spent == spend == found.loss_
    assert found.release_.receipt is not None


@each_kind
def test_it_clones_and_stands_in_a_pipeline(tmp_path: Path, kind) -> None:
    x, y = data(kind, 1000)
    line = make_pipeline(FunctionTransformer(lambda rows: rows * 1.0), clone(model(kind, tmp_path, rounds=3)))
    assert line.fit(x, y).predict(x).shape == (1000,)
    assert line[-1].n_iter_ == 3


@each_kind
def test_nothing_is_answered_before_a_fit(tmp_path: Path, kind) -> None:
    with pytest.raises(ValueError, match="not fitted"):
        model(kind, tmp_path).predict(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="not fitted"):
        model(kind, tmp_path).shape_chart(0)
