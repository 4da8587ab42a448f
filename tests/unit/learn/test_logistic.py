"""Private logistic regression: its contract, its arithmetic, its edges."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import cloister as cl
from cloister.data.hospital import SCHEMA, hospital
from cloister.learn.base.frame import read_frame, shorten
from cloister.learn.linear_model.clipped_gradients import ClippedRows
from cloister.learn.linear_model.discriminant import discriminant, taylor
from cloister.learn.linear_model.logistic import LogisticRegression
from cloister.learn.linear_model.loss_gradients import Hinge, Logistic, Softmax
from cloister.learn.linear_model.moments import ClassMoments, ScaleProbe, _totals
from cloister.learn.linear_model.newton import hessian, second_moments, stretched
from cloister.privacy.errors import BadBounds, BadInput, BadLoss, BadSchema, LookFailed, OverBudget, TextbookOnly
from cloister.privacy.filter import BudgetShare
from cloister.privacy.ledger import Ledger

SPEND = cl.epsilon(1, delta="1e-6")
METHODS = ["gradient", "newton", "quadratic", "functional"]


def made(n=20_000, d=6, seed=0, classes=2):
    """Rows within [0, 1] whose classes follow a logistic model."""
    random = np.random.default_rng(seed)
    rows = random.random((n, d))
    slopes = random.normal(0, 4, (d, classes))
    scores = (rows - 0.5) @ slopes + random.gumbel(size=(n, classes))
    return rows, scores.argmax(axis=1)


def model(folder, spend=SPEND, **more):
    more = {"bounds": (0, 1), "classes": [0, 1], "ledger": folder, "random_state": 0, **more}
    return LogisticRegression(spend, **more)


# The contract


def test_a_fit_says_what_it_cost_and_proves_it(tmp_path):
    rows, labels = made(2_000)
    fitted = model(tmp_path, random_state=None).fit(rows, labels)
    assert fitted.loss_ == cl.rho(fitted.loss_.amount)
    assert fitted.loss_.as_epsilon(delta="1e-6").amount <= 1
    assert fitted.release_.private
    body = fitted.release_.receipt.body
    assert body["mechanism"] == "discrete-gaussian"
    # a survey before the steps, a count of right predictions after them
    assert sum(int(one["times"]) for one in body["parameters"]) == fitted.n_iter_ + 2
    assert fitted.coef_.shape == (1, 6)
    assert fitted.n_features_in_ == 6


@pytest.mark.parametrize(
    ("method", "spend"),
    [(method, spend) for method in METHODS for spend in (SPEND, cl.epsilon(2), cl.epsilon(500))],
    ids=str,
)
def test_every_method_spends_all_that_was_reserved_and_no_more(tmp_path, method, spend):
    rows, labels = made(500)
    fitted = model(tmp_path, spend, method=method).fit(rows, labels)
    paid = fitted.release_.receipt.body["accounts"][0]["after"]["amount"]
    assert paid == str(fitted.loss_.amount)
    pure = spend.is_pure or method == "functional"
    assert fitted.release_.mechanism.split(", ")[0] == ("discrete-laplace" if pure else "discrete-gaussian")


def test_an_account_pays_and_refuses_before_a_row_is_read(tmp_path):
    with Ledger.in_folder(tmp_path) as ledger:
        account = ledger.open_account("visits", cl.rho("0.03"))
        rows, labels = made(300)
        model(None, cl.rho("0.02"), account=account).fit(rows, labels)
        with pytest.raises(OverBudget):
            model(None, cl.rho("0.02"), account=account).fit(rows, labels)
        assert account.spent == cl.rho("0.02")


def test_what_is_released_holds_no_row(tmp_path):
    rows, labels = made(300)
    fitted = model(tmp_path).fit(rows, labels)
    held = [fitted.release_.value, *vars(fitted).values()]
    for one in held:
        fields = [getattr(one, name) for name in getattr(type(one), "__slots__", ())] or [one]
        assert all(np.size(field) < 300 for field in fields if isinstance(field, np.ndarray))
        assert not any(isinstance(field, ClippedRows) for field in fields)


def test_a_seed_repeats_a_fit_and_marks_it(tmp_path):
    rows, labels = made(1_000)
    fits = [model(tmp_path, random_state=seed).fit(rows, labels) for seed in (1, 1, 2)]
    assert (fits[0].coef_ == fits[1].coef_).all()
    assert (fits[0].coef_ != fits[2].coef_).any()
    assert not fits[0].release_.private


def test_it_is_cloned_and_stands_in_a_pipeline(tmp_path):
    rows, labels = made(1_000)
    line = make_pipeline(FunctionTransformer(), model(tmp_path))
    assert clone(line).fit(rows, labels).predict(rows).shape == (1_000,)
    assert clone(model(tmp_path)).get_params()["bounds"] == (0, 1)


def test_names_of_classes_come_back(tmp_path):
    rows, labels = made(3_000)
    words = np.array(["no", "yes"])[labels]
    fitted = model(tmp_path, classes=["no", "yes"]).fit(rows, words)
    assert set(fitted.predict(rows)) <= {"no", "yes"}
    assert list(fitted.classes_) == ["no", "yes"]


# How good it is


def wide(n, seed=3):
    """Rows of correlated features, three of them with bounds far wider than nearly all their values."""
    random = np.random.default_rng(seed)
    normal = random.normal(size=(n, 8))
    normal[:, 1] += 0.8 * normal[:, 0]
    labels = (normal @ random.normal(size=8) / 2 + random.logistic(size=n) > 0.3).astype(int)
    rows = normal.copy()
    rows[:, [0, 2, 4]] = np.exp(1.2 * normal[:, [0, 2, 4]])
    return rows, labels, (rows.min(axis=0) - 1, rows.max(axis=0) + 1)


def area(found, rows, labels):
    return roc_auc_score(labels, found.decision_function(rows))


def test_a_pure_fit_with_next_to_no_noise_is_the_plain_model(tmp_path):
    rows, labels, bounds = wide(12_000)
    plain = make_pipeline(StandardScaler(), Plain(C=1e4, max_iter=2000)).fit(rows, labels)
    for spend in (cl.epsilon(10_000), cl.epsilon(100)):
        fitted = LogisticRegression(spend, bounds=bounds, classes=[0, 1], ledger=tmp_path, random_state=1)
        lack = area(plain, rows, labels) - area(fitted.fit(rows, labels), rows, labels)
        assert abs(lack) <= 0.001, spend


def test_bounds_far_wider_than_the_values_cost_a_pure_fit_little(tmp_path):
    rows, labels, bounds = wide(12_000)
    plain = make_pipeline(StandardScaler(), Plain(C=1e4, max_iter=2000)).fit(rows, labels)
    fits = [
        LogisticRegression(cl.epsilon(1), bounds=bounds, classes=[0, 1], ledger=tmp_path, random_state=seed)
        for seed in range(4)
    ]
    lacks = [area(plain, rows, labels) - area(one.fit(rows, labels), rows, labels) for one in fits]
    assert np.mean(lacks) <= 0.006


@pytest.mark.parametrize("step", [stretched, second_moments, hessian], ids=lambda step: step.__name__)
def test_a_row_moves_variances_and_second_moments_by_no_more_than_they_claim(step):
    """Rows of any length and direction, added to others under the same public sizes, in L1."""
    random = np.random.default_rng(8)
    frame = read_frame((0, 1), None, 5)
    found = ScaleProbe(50.0, np.full(5, 0.1), 0.4, np.ones(5))
    seen = []

    class Watching:
        def release(self, look, mechanism):
            seen.append((np.asarray(look(), dtype=object), mechanism))
            return np.zeros(np.shape(seen[-1][0]), dtype=np.int64)

    def fit(rows):
        data = ClippedRows(lambda: (rows, np.zeros(len(rows), dtype=np.int64)))
        stretch = np.array([1.0, 3.0, 0.5, 1.0, 8.0])
        data.centre(found.middle, stretch, 0.2, frame.farthest(found.middle, stretch))
        if step is stretched:
            stretched(Watching(), BudgetShare(cl.epsilon(1)), frame, data, found)
        elif step is second_moments:
            second_moments(Watching(), BudgetShare(cl.epsilon(1)), data, 0.5, 4.0)
        else:
            hessian(Watching(), cl.epsilon(1), data, np.full((6, 1), 0.3), 0.8)

    reached = 0.0
    for case in range(60):
        others = random.uniform(-0.5, 0.5, (20, 5))
        row = random.choice([-0.5, 0.5], 5) if case % 2 else random.uniform(-0.5, 0.5, 5) ** 3 * 4
        seen.clear()
        fit(others)
        fit(np.vstack([others, row]))
        moved = float(np.abs(seen[1][0] - seen[0][0]).sum())
        reached = max(reached, moved / float(seen[0][1].sensitivity))
    assert 0.3 < reached <= 1


@pytest.mark.parametrize(("method", "lack"), [("gradient", 0.01), ("newton", 0.01), ("quadratic", 0.015)])
def test_it_comes_near_the_model_without_noise(tmp_path, method, lack):
    rows, labels = made()
    best = Plain(C=100, max_iter=1000).fit(rows, labels).score(rows, labels)
    scores = [model(tmp_path, method=method, random_state=seed).fit(rows, labels).score(rows, labels) for seed in "abc"]
    assert np.mean(scores) > best - lack


def test_with_a_large_spend_it_becomes_the_model_without_noise(tmp_path):
    rows, labels = made()
    best = Plain(C=1e6, max_iter=1000).fit(rows, labels)
    fitted = model(tmp_path, cl.rho(1000)).fit(rows, labels)
    assert fitted.coef_ == pytest.approx(best.coef_, abs=0.15)
    assert fitted.intercept_ == pytest.approx(best.intercept_, abs=0.15)


def test_a_pure_epsilon_works_too_and_more_of_it_works_better(tmp_path):
    rows, labels = made()
    best = Plain(C=100, max_iter=1000).fit(rows, labels).score(rows, labels)
    little, much = (
        np.mean(
            [model(tmp_path, cl.epsilon(e), random_state=seed).fit(rows, labels).score(rows, labels) for seed in "abcd"]
        )
        for e in ("0.02", "1")
    )
    assert best - 0.02 < much
    assert little < much


@pytest.mark.parametrize("method", ["gradient", "quadratic"])
def test_more_than_two_classes(tmp_path, method):
    rows, labels = made(classes=4)
    best = Plain(C=100, max_iter=1000).fit(rows, labels).score(rows, labels)
    fitted = model(tmp_path, classes=range(4), method=method).fit(rows, labels)
    assert fitted.score(rows, labels) > best - 0.03
    assert fitted.coef_.shape == (4, 6)
    assert fitted.predict_proba(rows).sum(axis=1) == pytest.approx(1)


def test_iris_and_cancer_with_a_spend_fit_for_small_tables(tmp_path):
    iris = load_iris()
    flowers = model(tmp_path, cl.rho(5), bounds=([4, 2, 1, 0], [8, 5, 7, 3]), classes=[0, 1, 2])
    assert flowers.fit(iris.data, iris.target).score(iris.data, iris.target) > 0.85
    cancer = load_breast_cancer()
    high = 10.0 ** np.ceil(np.log10(cancer.data.max(axis=0)))  # in a test; elsewhere bounds are known beforehand
    cells = model(tmp_path, cl.rho(1), bounds=(0, high)).fit(cancer.data, cancer.target)
    assert cells.score(cancer.data, cancer.target) > 0.85


def test_probabilities_are_calibrated_though_gradients_are_clipped(tmp_path):
    rows, labels = made(40_000)
    fitted = model(tmp_path, cl.epsilon("0.3", delta="1e-6")).fit(rows, labels)
    assert np.median(fitted._limits(rows)) < 0.8  # an ordinary sigmoid would be wrong here
    shares = fitted.predict_proba(rows)[:, 1]
    for low in np.arange(0, 1, 0.1):
        inside = (shares >= low) & (shares < low + 0.1)
        assert labels[inside].mean() == pytest.approx(shares[inside].mean(), abs=0.05)
    assert np.exp(fitted.predict_log_proba(rows)).sum(axis=1) == pytest.approx(1)


def test_a_declared_number_of_rows_is_used(tmp_path):
    rows, labels = made(5_000)
    assert model(tmp_path, rows=5_000).fit(rows, labels).score(rows, labels) > 0.75
    for wrong in (0, 1.5, True):
        with pytest.raises(BadInput, match="rows is a public whole number"):
            model(tmp_path, rows=wrong).fit(rows, labels)


def test_a_norm_serves_instead_of_bounds(tmp_path):
    rows, labels = made()
    fitted = model(tmp_path, bounds=None, data_norm=1.5).fit(rows - 0.5, labels)
    assert fitted.score(rows - 0.5, labels) > 0.75


def test_bounds_of_other_units_change_nothing_but_units(tmp_path):
    rows, labels = made(5_000)
    here = model(tmp_path).fit(rows, labels)
    there = model(tmp_path, bounds=(-10, 30)).fit(rows * 40 - 10, labels)
    assert there.coef_ * 40 == pytest.approx(here.coef_, abs=0.02)
    assert (there.predict(rows * 40 - 10) == here.predict(rows)).mean() > 0.999


# Standard errors


def test_standard_errors_cover_the_truth_as_often_as_they_say(tmp_path):
    slopes, hits = np.array([-3.0, 0.0, 3.0]), []
    for seed in range(60):
        random = np.random.default_rng(seed)
        rows = random.random((4_000, 3))
        labels = (random.random(4_000) < 1 / (1 + np.exp(-(rows - 0.5) @ slopes))).astype(int)
        fitted = model(tmp_path, cl.rho(1), method="newton", random_state=seed).fit(rows, labels)
        truth = np.append(slopes, -0.5 * slopes.sum())
        hits.append(np.abs(np.append(fitted.coef_, fitted.intercept_) - truth) < 1.96 * fitted.standard_errors_)
    assert 0.90 < np.mean(hits) <= 0.995


@pytest.mark.parametrize("law", ["uniform", "normal"])
@pytest.mark.parametrize(
    ("count", "spend", "size"),
    [
        (5000, cl.rho(1), 1),
        (5000, cl.rho(10), 2),
        (5000, cl.rho(10), 8),
        (5000, cl.epsilon(5), 2),
        (5000, cl.epsilon(20), 4),
        (5000, cl.epsilon(5, delta="1e-6"), 2),
        (1000, cl.rho(100), 6),
    ],
    ids=str,
)
def test_standard_errors_hold_the_true_coefficients_in_every_direction(tmp_path, law, count, spend, size):
    """Seeded; strong effects, pure spends and rows far from the middle, where steps are few and the ridge is strong."""
    truth, hits = np.array([-size, 0.5 * size, size, 0.3]), []
    for seed in range(25):
        random = np.random.default_rng(seed)
        drawn = random.uniform(-1, 1, (count, 3)) if law == "uniform" else random.normal(0, 0.25, (count, 3))
        rows = np.clip(drawn, -1, 1)
        labels = (random.random(count) < 1 / (1 + np.exp(-(rows @ truth[:3] + truth[3])))).astype(int)
        fitted = model(tmp_path, spend, bounds=(-1, 1), method="newton", random_state=seed).fit(rows, labels)
        own = np.append(fitted.coef_, fitted.intercept_)
        hits.append(np.abs(own - truth) <= 1.96 * fitted.standard_errors_)
    assert np.mean(hits) >= 0.92
    assert np.mean(hits, axis=0).min() >= 0.8


@pytest.mark.parametrize("spend", [cl.rho("0.1"), cl.epsilon(1)], ids=str)
def test_where_typical_rows_are_clipped_there_are_no_standard_errors(tmp_path, spend):
    rows, labels = made(1_000)
    assert model(tmp_path, spend, method="newton").fit(rows, labels).standard_errors_ is None


def test_without_second_moments_there_are_no_standard_errors(tmp_path):
    rows, labels = made(1_000)
    assert model(tmp_path, method="gradient").fit(rows, labels).standard_errors_ is None


def test_auto_buys_second_moments_only_where_they_are_clear(tmp_path):
    rows, labels = made()
    poor, rich = (model(tmp_path, spend).fit(rows, labels) for spend in (cl.rho("0.0001"), cl.rho(1)))
    assert poor.standard_errors_ is None
    assert rich.standard_errors_ is not None


# Integers


def neighbours(residual, seed):
    random = np.random.default_rng(seed)
    rows, classes = random.random((50, 4)) - 0.5, max(2, residual.outputs)
    labels = random.integers(0, classes, 50)
    without = np.delete(np.arange(50), seed % 50)
    weights = random.normal(0, 10.0 ** random.integers(-2, 3), (5, residual.outputs))
    return rows, labels, without, weights


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("residual", [Logistic(), Softmax(3), Hinge(1), Hinge(4)], ids=repr)
def test_a_row_moves_the_gradient_by_no_more_than_the_bound_to_the_last_integer(residual, pure):
    norms = []
    for seed in range(150):
        rows, labels, without, weights = neighbours(residual, seed)
        sides = []
        for kept in (slice(None), without):
            data = ClippedRows(lambda kept=kept: (rows[kept], labels[kept]))  # noqa: B023
            data.centre(np.full(4, 0.1), np.ones(4), 0.4, 1.2)
            bound = data.bound(0.3)
            sides.append(data.gradient(weights, residual, bound, pure=pure))
        moved = (sides[0] - sides[1]).ravel().tolist()
        if pure:
            assert sum(map(abs, moved)) <= bound
            norms.append(sum(map(abs, moved)) / bound)
        else:
            assert sum(one * one for one in moved) <= bound**2
            norms.append(sum(one * one for one in moved) ** 0.5 / bound)
    assert max(norms) > 0.99


def test_what_a_row_adds_does_not_depend_on_where_it_stands():
    random = np.random.default_rng(0)
    rows, labels, weights = random.random((9_001, 7)) - 0.5, random.integers(0, 3, 9_001), random.normal(size=(8, 3))
    order = random.permutation(9_001)
    sides = []
    for place in (np.arange(9_001), order):
        data = ClippedRows(lambda place=place: (rows[place], labels[place]))
        data.centre(np.full(7, 0.01), np.ones(7), 0.5, 2.0)
        sides.append(data.gradient(weights, Softmax(3), data.bound(0.7), pure=False))
    assert (sides[0] == sides[1]).all()


def test_margins_do_not_depend_on_the_order_in_which_they_are_summed():
    random = np.random.default_rng(1)
    rows, weights, order = random.random((400, 60)) - 0.5, random.normal(0, 50, (61, 2)), random.permutation(60)
    sides = []
    for place in (np.arange(60), order):
        data = ClippedRows(lambda place=place: (rows[:, place], np.zeros(400, dtype=np.int64)))
        data.centre(np.zeros(60), np.ones(60), 0.5, 4.0)
        sides.append(data.margins(weights[[*place, 60]]))
    assert (sides[0] == sides[1]).all()
    assert sides[0] == pytest.approx(np.column_stack([rows, np.full(400, 0.5)]) @ weights, abs=0.2)


def test_the_first_look_moves_by_no_more_than_it_says():
    random = np.random.default_rng(2)
    frame = read_frame((0, 1), None, 9)
    corners = frame.rows(random.integers(0, 2, (200, 9)).astype(float))
    round_frame = read_frame(None, 2.0, 9)
    far = round_frame.rows(random.normal(0, 10.0 ** random.integers(-3, 6, (200, 1)), (200, 9)))
    for place, rows in ((frame, corners), (round_frame, far)):
        for row in rows:
            moved = _totals(place.cells(row[None, :])).tolist()
            assert sum(one * one for one in moved) <= 3 * 2**30
            assert sum(map(abs, moved)) <= (3 + 2) * 2**15


def test_shortened_rows_are_within_the_length_in_integers():
    cells = np.trunc(np.random.default_rng(3).normal(0, 1e5, (500, 4)))
    short = shorten(cells, 1000)
    assert all(sum(int(one) ** 2 for one in row) <= 1000**2 for row in short)
    assert (shorten(short, 1000) == short).all()


# Edges: nothing depends on values


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (np.zeros((0, 3)), np.zeros(0, dtype=int)),
        (np.random.default_rng(0).random((50, 3)), np.ones(50, dtype=int)),
        (np.full((50, 3), 0.5), np.arange(50) % 2),
        (np.random.default_rng(0).random((5, 40)), np.arange(5) % 2),
        (np.full((20, 3), 1e300), np.arange(20) % 2),
        (np.random.default_rng(0).random((20, 3)), np.full(20, 7)),
    ],
    ids=["no rows", "one class", "constant columns", "more features than rows", "beyond bounds", "no listed class"],
)
def test_no_data_makes_a_fit_fail(tmp_path, method, rows, labels):
    fitted = model(tmp_path, method=method).fit(rows, labels)
    assert np.isfinite(fitted.coef_).all()
    assert np.isfinite(fitted.intercept_).all()
    assert np.isfinite(fitted.predict_proba(np.zeros((2, rows.shape[1])))).all()


@pytest.mark.parametrize("spend", [cl.rho("1e-9"), cl.epsilon("1e-4"), cl.rho(10**5), cl.epsilon(1000)], ids=str)
def test_no_spend_makes_a_fit_fail(tmp_path, spend):
    rows, labels = made(200)
    fitted = model(tmp_path, spend).fit(rows, labels)
    assert np.isfinite(fitted.coef_).all()
    assert np.abs(fitted.coef_).max() < 1e4


def test_rows_beyond_the_bounds_count_as_clipped(tmp_path):
    rows, labels = made(1_000)
    far = np.where(rows > 0.9, 1e9, rows)
    near = np.where(rows > 0.9, 1.0, rows)
    assert (model(tmp_path).fit(far, labels).coef_ == model(tmp_path).fit(near, labels).coef_).all()
    fitted = model(tmp_path).fit(near, labels)
    assert (fitted.decision_function(far) == fitted.decision_function(near)).all()


def test_labels_that_are_not_listed_are_left_out(tmp_path):
    rows, labels = made(1_000)
    more = np.vstack([rows, rows[:100]]), np.append(labels, np.full(100, 9))
    assert (model(tmp_path).fit(*more).coef_ == model(tmp_path).fit(rows, labels).coef_).all()


def test_rows_with_missing_values_are_left_out_or_filled(tmp_path):
    rows, labels = made(500)
    rows[3, 2] = np.nan
    without = model(tmp_path).fit(np.delete(rows, 3, axis=0), np.delete(labels, 3))
    assert (model(tmp_path).fit(rows, labels).coef_ == without.coef_).all()
    fitted = model(tmp_path, fill=0.5).fit(rows, labels)
    filled = np.where(np.isnan(rows), 0.5, rows)
    assert (fitted.coef_ == model(tmp_path).fit(filled, labels).coef_).all()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"bounds": None}, BadBounds),
        ({"bounds": (1, 0)}, BadBounds),
        ({"data_norm": -1.0}, BadBounds),
        ({"data_norm": True}, BadBounds),
        ({"classes": None}, BadSchema),
        ({"classes": [1]}, BadSchema),
        ({"spend": None}, BadLoss),
        ({"spend": cl.epsilon(1, relation="replace-one")}, BadLoss),
        ({"method": "magic"}, BadInput),
        ({"method": "functional", "classes": [0, 1, 2]}, BadInput),
    ],
    ids=str,
)
def test_what_must_be_public_must_be_said(tmp_path, change, error):
    rows, labels = made(50)
    with pytest.raises(error):
        model(tmp_path).set_params(**change).fit(rows, labels)
    assert not any(tmp_path.iterdir())  # nothing was charged


def test_shapes_that_do_not_fit_are_refused(tmp_path):
    rows, labels = made(50)
    with pytest.raises(BadInput):
        model(tmp_path).fit(rows, labels[:-1])
    with pytest.raises(BadInput):
        model(tmp_path).fit(rows)
    with pytest.raises(BadInput, match="expecting 6 features"):
        model(tmp_path).fit(rows, labels).predict(rows[:, :3])


# One shot


def exact_moments(rows, labels):
    sums = np.array([rows[labels == k].sum(axis=0) for k in (0, 1)])
    return ClassMoments(np.bincount(labels).astype(float), sums, rows.T @ rows, 0.0, 0.0)


def test_without_noise_the_quadratic_method_is_fishers_discriminant():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rows, labels = made(5_000, 4)
    slopes, shift = discriminant(exact_moments(2 * rows - 1, labels))
    known = LinearDiscriminantAnalysis().fit(2 * rows - 1, labels)
    assert slopes == pytest.approx(known.coef_, rel=0.01)
    assert shift == pytest.approx(known.intercept_, abs=0.02)


def test_without_noise_the_functional_method_minimises_taylors_polynomial():
    rows, labels = made(5_000, 4)
    rows, side = 2 * rows - 1, 2.0 * labels - 1
    slopes, shift = taylor(exact_moments(rows, labels))
    wide = np.column_stack([rows, np.ones(len(rows))])
    weights = np.append(slopes, shift)
    slope = wide.T @ (wide @ weights / 4 - side / 2)
    assert np.abs(slope).max() < 5  # one unit of ridge, and weights of a few


# Inside an engine


@pytest.fixture
def visits(tmp_path):
    with cl.open(pa.table(hospital(4_000)), schema=SCHEMA, budget=cl.rho(10_000), ledger=tmp_path) as dataset:
        yield dataset


def encoded(names, columns=None):
    """The hospital's columns as the model's features, whose names are `age` or `ward=surgery`."""
    data = hospital(4_000) if columns is None else columns
    parts = [name.split("=") for name in names]
    return np.column_stack([data[one[0]] if len(one) == 1 else data[one[0]] == one[1] for one in parts]).astype(float)


def test_a_dataset_is_fitted_where_it_lives(visits):
    fitted = LogisticRegression(cl.rho(100), random_state=0).fit(visits, target="readmitted")
    assert fitted.n_iter_ == 1
    assert list(fitted.classes_) == [0, 1]
    assert fitted.feature_names_in_[:2].tolist() == ["ward=cardiology", "ward=emergency"]
    assert {"age", "stay_days", "cost"} <= set(fitted.feature_names_in_)
    assert "admitted" not in fitted.feature_names_in_
    assert visits.account.spent == cl.rho(100)
    assert fitted.release_.unit == visits.unit


def test_in_an_engine_the_same_is_found_as_in_arrays(tmp_path):
    data = {name: column for name, column in hospital(4_000).items() if name != "patient"}
    schema = {"unit": "row", "tables": {"visits": {"columns": SCHEMA["tables"]["visits"]["columns"]}}}
    names = ["age", "stay_days", "cost"]
    with cl.open(pa.table(data), schema=schema, budget=cl.rho(10**5), ledger=tmp_path) as dataset:
        there = LogisticRegression(cl.rho(10**5), random_state=0).fit(dataset, target="readmitted", features=names)
    rows, labels = encoded(names, data), data["readmitted"]
    here = model(tmp_path, cl.rho(10**5), bounds=([0, 0, 0], [100, 60, 50_000]), method="quadratic").fit(rows, labels)
    assert there.coef_ == pytest.approx(here.coef_, rel=0.05)  # an array has 15 bits a row
    assert there.predict_proba(rows) == pytest.approx(here.predict_proba(rows), abs=0.01)


def test_a_models_words_are_the_targets_categories(visits):
    fitted = LogisticRegression(cl.rho(100), random_state=0).fit(visits, target="ward", features=["age", "stay_days"])
    assert "surgery" in fitted.classes_
    assert fitted.coef_.shape == (6, 2)
    two = LogisticRegression(cl.rho(100), classes=["maternity", "geriatrics"], random_state=0)
    rows = np.array([[25.0, 2.0], [90.0, 9.0]])
    assert two.fit(visits, target="ward", features=["age", "stay_days"]).predict(rows).tolist() == [
        "maternity",
        "geriatrics",
    ]


def test_a_pure_spend_works_in_an_engine(tmp_path):
    with cl.open(pa.table(hospital(500)), schema=SCHEMA, budget=cl.epsilon(100), ledger=tmp_path) as dataset:
        fitted = LogisticRegression(cl.epsilon(10), random_state=0).fit(dataset, target="readmitted")
        assert np.isfinite(fitted.coef_).all()
        assert fitted.release_.mechanism == "discrete-laplace"


@pytest.mark.parametrize("spend", [cl.rho(1), cl.epsilon(1)], ids=str)
def test_a_patient_moves_the_statistics_of_a_dataset_by_no_more_than_stated(tmp_path, monkeypatch, spend):
    from cloister.learn.linear_model import engine_moments as design

    seen = []

    def caught(meter, budget, look, reach, *more):
        seen.append((look(), reach))
        return original(meter, budget, look, reach, *more)

    original = design.release_class_moments
    monkeypatch.setattr(design, "release_class_moments", caught)
    data = hospital(60)
    extra = {name: np.append(column, np.repeat(column[:1], 30)) for name, column in data.items()}
    extra["patient"][len(data["patient"]) :] = "P99999"  # one patient more, with more rows than count
    for index, table in enumerate((data, extra)):
        with cl.open(pa.table(table), schema=SCHEMA, budget=spend, ledger=tmp_path / str(index)) as dataset:
            LogisticRegression(spend, random_state=0).fit(
                dataset, target="readmitted", features=["ward", "age", "cost"]
            )
    (left, reach), (right, _) = seen
    lines, products = ([int(b) - int(a) for a, b in zip(x, y, strict=True)] for x, y in zip(left, right, strict=True))
    assert 0 < sum(one**2 for one in lines) <= reach.lines**2
    assert 0 < sum(one**2 for one in products) <= reach.products**2
    assert sum(map(abs, lines)) <= reach.lines_l1
    assert sum(map(abs, products)) <= reach.products_l1


def test_what_a_schema_does_not_allow_is_refused(visits):
    before = visits.account.spent
    with pytest.raises(TextbookOnly, match="lessons"):
        LogisticRegression(SPEND, method="objective").fit(visits, target="readmitted")
    with pytest.raises(BadSchema, match="no column"):
        LogisticRegression(SPEND).fit(visits, target="nothing")
    with pytest.raises(BadInput, match="features"):
        LogisticRegression(SPEND).fit(visits, target="readmitted", features=["readmitted"])
    with pytest.raises(BadSchema, match="public values"):
        LogisticRegression(SPEND).fit(visits, target="cost")
    with pytest.raises(BadSchema, match="is a date: models take numbers"):
        LogisticRegression(SPEND).fit(visits, target="readmitted", features=["admitted"])
    with pytest.raises(BadSchema, match="which private table"):
        LogisticRegression(SPEND).fit(visits, target="readmitted", table="wards")
    assert visits.account.spent == before


def test_a_step_that_fails_says_nothing_about_rows(tmp_path, monkeypatch):
    rows, labels = made(50)

    def fails(*_):
        raise ValueError("row 17 is Ada Lovelace")

    monkeypatch.setattr("cloister.learn.linear_model.moments._totals", fails)
    with pytest.raises(LookFailed) as caught:
        model(tmp_path).fit(rows, labels)
    assert "Ada" not in str(caught.value)
