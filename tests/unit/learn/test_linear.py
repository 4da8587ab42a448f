"""Linear and ridge regression: as good as the noise allows, with intervals that hold, and nothing said about rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression as Plain
from sklearn.linear_model import Ridge as PlainRidge
from sklearn.pipeline import make_pipeline

import cloister as cl
from cloister.data.schema import Schema
from cloister.learn.linear_model.least_squares import solve
from cloister.learn.linear_model.moments import Moments, Reach, exact_product, symmetric
from cloister.learn.linear_model.regression import LinearRegression, Ridge
from cloister.learn.preprocessing.scalers import MinMaxScaler
from cloister.privacy.errors import BadBounds, BadInput, BadLoss, BadProbability

GENEROUS = cl.rho(10**6)


def sample(n: int, d: int, seed: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.random((n, d))
    beta = np.linspace(0.3, -0.3, d)
    return rows, np.clip(0.5 + (rows - 0.5) @ beta + noise * rng.normal(size=n), -1, 2), beta


def model(tmp_path: Path, spend: object = GENEROUS, kind: type = LinearRegression, **more: object) -> LinearRegression:
    given = {"bounds": (0, 1), "target_bounds": (-1, 2), "random_state": 1, "ledger": tmp_path, **more}
    return kind(spend, **given)


@pytest.mark.parametrize("spend", [cl.epsilon("0.1"), cl.rho("0.0002")], ids=str)
@pytest.mark.parametrize("kind", [LinearRegression, Ridge])
def test_no_prediction_leaves_the_bounds_of_the_target_however_few_rows_there_are(tmp_path, kind, spend):
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 5))
    target = rows @ np.ones(5) + random.normal(size=60)
    for seed in range(8):
        fitted = kind(spend, bounds=(-5, 5), target_bounds=(-12, 12), ledger=tmp_path, random_state=seed)
        found = fitted.fit(rows, target).predict(100 * rows)
        assert (np.abs(found) <= 12).all()


def test_a_constant_that_the_noise_hides_is_drawn_to_the_middle_of_the_bounds():
    loud = Moments(np.diag([0.0, 40.0]), np.array([0.0, 400.0]), 10.0, (50.0, 400.0, 50.0))
    clear = Moments(np.diag([9e3, 4e4]), np.array([0.0, 1.2e4]), 8e3, (1.0, 1.0, 1.0))
    assert abs(solve(loud, np.zeros(2)).coefficients[-1]) < 0.2
    assert solve(clear, np.zeros(2)).coefficients[-1] == pytest.approx(0.3, abs=0.001)


@pytest.mark.parametrize("method", ["moments", "adassp", "functional"])
def test_with_hardly_any_noise_it_is_least_squares(tmp_path: Path, method: str) -> None:
    rows, y, _ = sample(4000, 5, 0)
    fitted, plain = model(tmp_path, GENEROUS, method=method).fit(rows, y), Plain().fit(rows, y)
    assert fitted.coef_ == pytest.approx(plain.coef_, abs=0.01)
    assert fitted.intercept_ == pytest.approx(plain.intercept_, abs=0.01)
    assert fitted.predict(rows) == pytest.approx(plain.predict(rows), abs=0.01)
    assert fitted.expected_score_ == pytest.approx(plain.score(rows, y), abs=0.02)


def test_with_hardly_any_noise_standard_errors_are_the_usual_ones(tmp_path: Path) -> None:
    rows, y, _ = sample(4000, 3, 1)
    fitted = model(tmp_path).fit(rows, y)
    design = np.column_stack([rows, np.ones(len(rows))])
    residual = y - fitted.predict(rows)
    usual = np.sqrt(residual.var() * np.diag(np.linalg.inv(design.T @ design)))
    # Rows far out count a little less; a fifth of the error probability is for what is known with noise only.
    assert (usual < fitted.standard_errors_).all()
    assert fitted.standard_errors_ == pytest.approx(1.1 * usual, rel=0.1)
    assert fitted.confidence_intervals(0.5).shape == (4, 2)


def test_ridge_is_scikit_learn_s_ridge(tmp_path: Path) -> None:
    rows, y, _ = sample(500, 4, 2)
    fitted = model(tmp_path, kind=Ridge, alpha=30.0, bounds=([0, 0, 0, -1], [1, 1, 1, 3])).fit(rows, y)
    plain = PlainRidge(alpha=30.0).fit(rows, y)
    assert fitted.coef_ == pytest.approx(plain.coef_, abs=0.01)
    with pytest.raises(BadInput, match="alpha"):
        model(tmp_path, kind=Ridge, alpha=-1.0).fit(rows, y)


def test_few_rows_give_little_and_never_nonsense(tmp_path: Path) -> None:
    """EX-09 on 353 rows. The textbook's 0.48 at epsilon 1 read its bounds off the rows (ER-41)."""
    rows, y = load_diabetes(return_X_y=True)
    means = {}
    for amount in ("0.1", "1", "10"):
        spend = cl.epsilon(amount, delta="1e-6")
        fits = [model(tmp_path, spend, bounds=(-0.2, 0.2), target_bounds=(25, 350), random_state=i) for i in range(8)]
        means[amount] = np.mean([one.fit(rows[:353], y[:353]).score(rows[353:], y[353:]) for one in fits])
    assert means["0.1"] > -0.5
    assert means["1"] > -0.1
    assert means["10"] > 0.4


@pytest.mark.statistical
@pytest.mark.parametrize(("n", "d", "spend"), [(5000, 4, "0.0244"), (20000, 8, "0.0244"), (2000, 6, "0.5")])
def test_intervals_hold_the_truth_as_often_as_they_say(tmp_path: Path, n: int, d: int, spend: str) -> None:
    book, hits = cl.Ledger.in_folder(tmp_path), []
    for seed in range(120):
        rows, y, beta = sample(n, d, seed)
        fitted = model(tmp_path, cl.rho(spend), ledger=book, random_state=seed).fit(rows, y)
        truth = np.append(beta, 0.5 - beta.sum() / 2)
        low, high = fitted.confidence_intervals(0.95).T
        hits.append((low <= truth) & (truth <= high))
    # A binomial share of 120 (d + 1) dependent hits: its deviation is at most 2 %.
    assert np.mean(hits) >= 0.93
    assert np.mean(hits) < 0.985 or n < 20_000  # with fewer rows some directions count as unknown


SETTINGS = {  # rows, slopes, intercept, deviation of the errors, bounds of the target, spend
    "y'y hidden, pure": (500, [0.2], 0.1, 0.1, 1, cl.epsilon(10)),
    "y'y hidden, wide target": (500, [0.2], 0.1, 0.1, 2, cl.rho(5)),
    "five features": (500, [0.1, -0.1, 0.05, 0.15, -0.15], 0.1, 0.1, 1, cl.epsilon(10)),
    "few rows, small errors": (100, [0.1, -0.2], 0.1, 0.02, 1, cl.epsilon(372)),
    "many rows": (5000, [0.2, -0.1], 0.1, 0.04, 1, cl.epsilon(2)),
    "hardly any rows": (12, [0.3, 0.1], 0.1, 0.1, 1, cl.rho(10**5)),
    "intercept at the edge": (500, [0.1], 0.85, 0.03, 1, cl.epsilon(3)),
    "mostly noise": (300, [0.3], -0.2, 0.05, 1, cl.rho("0.05")),
}


@pytest.mark.parametrize(
    ("setting", "kind"),
    [*((setting, LinearRegression) for setting in SETTINGS), ("y'y hidden, pure", Ridge), ("many rows", Ridge)],
)
def test_intervals_allow_for_the_noise_on_the_residual_variance(tmp_path: Path, setting: str, kind: type) -> None:
    n, slopes, constant, deviation, end, spend = SETTINGS[setting]
    book, hits, random = cl.Ledger.in_folder(tmp_path), [], np.random.default_rng(0)
    for seed in range(120):
        rows = random.uniform(-0.5, 0.5, (n, len(slopes)))
        exact = rows @ slopes + constant
        more = {"bounds": (-0.5, 0.5), "target_bounds": (-end, end), "ledger": book, "random_state": seed}
        fitted = model(tmp_path, spend, kind, **more).fit(rows, exact + deviation * random.normal(size=n))
        truth = np.append(slopes, constant)
        if kind is Ridge:  # what the penalty makes of the same rows without errors
            clear = model(tmp_path, GENEROUS, kind, **more).fit(rows, exact)
            truth = np.append(clear.coef_, clear.intercept_)
        low, high = fitted.confidence_intervals(0.95).T
        hits.append((low <= truth) & (truth <= high))
    # Measured with thousands: 97 % or more for each. 108 of 120 at 97 %: less than one in a million.
    assert np.mean(hits, axis=0).min() >= 0.9


@pytest.mark.parametrize("pure", [False, True], ids=["normal", "laplace"])
def test_intervals_of_every_confidence_hold_the_truth_whatever_part_of_the_error_dominates(pure: bool) -> None:
    random, confidences = np.random.default_rng(1), (0.5, 0.9, 0.95, 0.99)
    for noise in [(0.5, 0.5, 30.0), (0.5, 10.0, 0.5), (30.0, 0.5, 0.5), (10.0, 5.0, 2.0), (0.01, 0.01, 0.01)]:
        for n, beta in [(400, [0.3, -0.2, 0.1]), (3000, [0.05, 0.45])]:
            hits = []
            for _ in range(250):
                rows = np.column_stack([random.uniform(-0.5, 0.5, (n, len(beta) - 1)), np.ones(n)])
                y = rows @ beta + 0.05 * random.normal(size=n)
                draw = random.laplace if pure else random.normal
                xx, xy, yy = (
                    part + draw(scale=scale / (np.sqrt(2) if pure else 1), size=part.shape)
                    for part, scale in zip((rows.T @ rows, rows.T @ y, np.array(y @ y)), noise, strict=True)
                )
                moments = Moments(np.triu(xx) + np.triu(xx, 1).T, xy, float(yy), noise, pure)
                fit = solve(moments, np.zeros(len(beta)))
                errors = fit.errors.of(np.eye(len(beta)))
                away = np.abs(fit.coefficients - beta)
                hits.append([away <= errors.margins(confidence) for confidence in confidences])
            assert (np.mean(hits, axis=0).min(axis=1) >= np.array(confidences) - 0.03).all(), (noise, n)


def test_intervals_from_a_dataset_hold_the_truth(tmp_path: Path) -> None:
    columns = {"x": {"type": "real", "bounds": [-0.5, 0.5], "nullable": False},
               "y": {"type": "real", "bounds": [-2, 2], "nullable": False}}  # fmt: skip
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": columns}}})
    hits, random = [], np.random.default_rng(3)
    for seed in range(40):
        x = random.uniform(-0.5, 0.5, 500)
        rows = pa.table({"x": x, "y": 0.2 * x + 0.1 + 0.1 * random.normal(size=500)})
        with cl.open(rows, schema=schema, budget=cl.rho(10), ledger=tmp_path / str(seed)) as ds:
            fitted = LinearRegression(cl.rho(5), random_state=seed).fit(ds, target="y", features=["x"])
        low, high = fitted.confidence_intervals(0.95).T
        hits.append((low <= [0.2, 0.1]) & (high >= [0.2, 0.1]))
    assert np.mean(hits, axis=0).min() >= 0.85


def test_intervals_hold_a_line_without_errors_that_only_rounding_moves(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).uniform(-0.5, 0.5, (50_000, 1))
    fitted = model(tmp_path, bounds=(-0.5, 0.5), target_bounds=(-1, 1)).fit(rows, 0.237 * rows[:, 0] + 0.1113)
    low, high = fitted.confidence_intervals(0.95).T
    assert (low <= [0.237, 0.1113]).all()
    assert (high >= [0.237, 0.1113]).all()
    assert (high - low).max() < 0.002


def test_intervals_hold_where_columns_are_dependent_and_all_coefficients_are_large(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    rows = np.eye(8)[random.integers(0, 8, 4000)]
    y = rows @ np.full(8, 0.9) + 0.05 * random.normal(size=4000)  # in truth the intercept is 0
    for seed in range(10):
        fitted = model(tmp_path, cl.rho(1), target_bounds=(-1, 1), random_state=seed).fit(rows, y)
        low, high = fitted.confidence_intervals(0.95).T
        assert (low <= [*[0.9] * 8, 0]).all()
        assert (high >= [*[0.9] * 8, 0]).all()


def test_a_model_from_an_older_file_gives_no_intervals_that_are_too_narrow(tmp_path: Path) -> None:
    fitted = model(tmp_path).fit(*sample(100, 2, 0)[:2])
    del fitted._errors
    with pytest.raises(BadInput, match="earlier version"):
        fitted.confidence_intervals()


def test_where_the_design_says_nothing_intervals_are_wide_and_predictions_good(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    kind = rng.integers(0, 4, 20_000)
    rows = np.column_stack([np.eye(4)[kind], rng.random(20_000)])
    y = np.array([0.2, 0.4, 0.6, 0.8])[kind] + 0.3 * rows[:, 4] + 0.05 * rng.normal(size=20_000)
    fitted = model(tmp_path, cl.rho("0.02")).fit(rows, y)
    errors = fitted.standard_errors_
    assert errors[4] < 0.06 < 0.5 < errors[:4].min()
    assert fitted.score(rows, y) > 0.9


@pytest.mark.parametrize("spend", [cl.epsilon(1), cl.rho("0.02"), cl.epsilon(1, delta="1e-6")])
@pytest.mark.parametrize(
    ("rows", "y"),
    [
        (np.zeros((0, 3)), np.zeros(0)),
        (np.full((50, 3), 0.5), np.full(50, 0.5)),
        (np.random.default_rng(0).random((5, 40)), np.zeros(5)),
        (np.full((20, 2), 1e9), np.full(20, -1e9)),
    ],
    ids=["no rows", "constant columns", "more features than rows", "beyond the bounds"],
)
def test_no_table_breaks_a_fit(tmp_path: Path, spend: object, rows: np.ndarray, y: np.ndarray) -> None:
    fitted = model(tmp_path, spend).fit(rows, y)
    assert np.isfinite(fitted.coef_).all()
    assert np.isfinite(fitted.standard_errors_).all()
    assert np.isfinite(fitted.confidence_intervals()).all()


def test_rows_beyond_the_bounds_are_clipped(tmp_path: Path) -> None:
    rows, y, _ = sample(2000, 3, 4)
    far = rows.copy()
    far[rows > 0.999] = 1e6
    near = np.where(rows > 0.999, 1.0, rows)
    assert model(tmp_path).fit(far, y).coef_ == pytest.approx(model(tmp_path).fit(near, y).coef_)


def test_a_length_is_enough_instead_of_bounds(tmp_path: Path) -> None:
    rows, y, _ = sample(4000, 4, 5)
    fitted = model(tmp_path, bounds=None, data_norm=2.0).fit(rows, y)
    assert fitted.coef_ == pytest.approx(Plain().fit(rows, y).coef_, abs=0.02)


def test_bounds_are_found_for_a_part_of_the_spend(tmp_path: Path) -> None:
    rows, y, beta = sample(20_000, 3, 6)
    fitted = model(tmp_path, cl.rho("0.5"), bounds="find", target_bounds="find").fit(rows * [1, 10, 100], y)
    assert fitted.coef_ * [1, 10, 100] == pytest.approx(beta, abs=0.1)
    assert [one["mechanism"] for one in fitted.release_.receipt.body["parameters"]].count("discrete-gaussian") == 5


def test_the_whole_spend_is_charged_and_all_of_it_used(tmp_path: Path) -> None:
    book = cl.Ledger.in_folder(tmp_path)
    account = book.open_account("rows", cl.rho(1))
    rows, y, _ = sample(100, 2, 7)
    fitted = model(tmp_path, cl.rho("0.1"), account=account).fit(rows, y)
    assert account.spent.amount == cl.rho("0.1").amount == fitted.loss_.amount
    assert fitted.release_.receipt.body["unit"]
    assert not fitted.release_.private


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bounds": None}, BadBounds),
        ({"target_bounds": None}, BadBounds),
        ({"bounds": (1, 0)}, BadBounds),
        ({"method": "magic"}, BadInput),
        ({"spend": None}, BadLoss),
        ({"data_norm": -1.0}, BadBounds),
    ],
)
def test_what_is_not_public_is_refused_before_anything_is_charged(tmp_path: Path, change: dict, error: type) -> None:
    book = cl.Ledger.in_folder(tmp_path)
    account = book.open_account("rows", cl.rho(1))
    with pytest.raises(error):
        model(tmp_path, account=account).set_params(**change).fit(np.zeros((4, 2)), np.zeros(4))
    assert account.spent.amount == 0


def test_a_row_with_a_missing_number_or_target_is_left_out_unless_it_is_filled(tmp_path: Path) -> None:
    rows, y, _ = sample(500, 2, 8)
    rows[::7, 0] = np.nan
    known = ~np.isnan(rows[:, 0])
    assert (model(tmp_path).fit(rows, y).coef_ == model(tmp_path).fit(rows[known], y[known]).coef_).all()
    assert (
        model(tmp_path, fill=0.5).fit(rows, np.where(known, y, np.nan)).coef_
        == model(tmp_path).fit(rows[known], y[known]).coef_
    ).all()
    assert np.isfinite(model(tmp_path, fill=0.5).fit(rows, y).coef_).all()


def test_it_is_a_scikit_learn_estimator(tmp_path: Path) -> None:
    rows, y, _ = sample(500, 2, 9)
    pipe = make_pipeline(MinMaxScaler(bounds=(0, 1)), model(tmp_path))
    assert clone(pipe).fit(rows, y).score(rows, y) == pytest.approx(pipe.fit(rows, y).score(rows, y))
    fitted = model(tmp_path).fit(rows, y)
    with pytest.raises(BadInput, match="expecting 2 features"):
        fitted.predict(rows[:, :1])
    with pytest.raises(BadProbability):
        fitted.confidence_intervals(1.0)
    with pytest.raises(BadInput, match="no standard errors"):
        model(tmp_path, method="adassp").fit(rows, y).confidence_intervals()


def test_a_row_moves_the_triangle_by_no_more_than_its_reach() -> None:
    rng = np.random.default_rng(10)
    for _ in range(200):
        d = int(rng.integers(1, 8))
        row = rng.integers(-50, 51, d)
        if rng.random() < 0.3:
            row = np.where(rng.random(d) < 0.3, row, 0)
        reach = Reach(int(abs(row).sum()), int((row**2).sum()), int((row**4).sum()))
        upper = np.outer(row, row)[np.triu_indices(d)]
        l2, l1 = reach.matrix
        assert (upper**2).sum() <= float(l2) ** 2 * (1 + 1e-9)
        assert (upper**2).sum() == pytest.approx(float(l2) ** 2, rel=1e-6)
        assert abs(upper).sum() <= l1


def test_products_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(11)
    cells = rng.integers(-(2**15), 2**15 + 1, (20_000, 3)).astype(np.float64)
    expected = cells.astype(np.int64).T @ cells.astype(np.int64)
    assert (exact_product(len(cells), lambda some: cells[some]) == expected).all()
    assert (exact_product(0, lambda some: cells[:0]) == 0).all()
    assert (symmetric(np.arange(6.0)) == [[0, 1, 2], [1, 3, 4], [2, 4, 5]]).all()


def test_a_penalty_only_shrinks() -> None:
    moments = Moments(np.diag([100.0, 1000.0]), np.array([50.0, 0.0]), 30.0, (1e-6, 1e-6, 1e-6))
    sizes = [abs(solve(moments, np.array([alpha, 0.0])).coefficients[0]) for alpha in (0.0, 10.0, 100.0)]
    assert sizes == pytest.approx([0.5, 50 / 110, 0.25], abs=1e-3)


def test_predictions_near_the_end_of_the_floats_stay_within_the_bounds_of_the_target(tmp_path):
    rows = np.random.default_rng(0).random((500, 2))
    fitted = model(tmp_path, bounds=(0, 0.1)).fit(rows / 10, rows[:, 0] - rows[:, 1])
    assert fitted.coef_[0] > 1
    assert fitted.coef_[1] < -1
    predictions = fitted.predict([[1.7e308, 1.7e308], [1.7e308, 0], [-1.7e308, -1.7e308], [np.inf, 1.7e308]])
    assert ((predictions >= -1) & (predictions <= 2)).all()


def test_errors_beyond_the_range_of_floats_are_infinite(tmp_path):
    rows = np.random.default_rng(0).random((50, 2))
    given = {"bounds": (0, 1e-100), "target_bounds": (-1e100, 1e100)}
    fitted = model(tmp_path, cl.epsilon(1), **given).fit(rows * 1e-100, (rows[:, 0] - 0.5) * 1e100)
    assert (fitted.standard_errors_[:2] == np.inf).all()
    assert (fitted.confidence_intervals()[:2] == [-np.inf, np.inf]).all()
