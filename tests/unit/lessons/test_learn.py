"""The textbook's methods, corrected: right without noise, worse than the default with it, and never for people."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import HuberRegressor
from sklearn.linear_model import LogisticRegression as Plain

import cloister as cl
from cloister import learn, lessons
from cloister.learn.base.frame import read_frame
from cloister.learn.cluster.enclosing_ball import read_ground
from cloister.lessons.learn import perturbation as risks
from cloister.lessons.learn.method import TextbookFit, noisy_cells, noisy_codes, undone
from cloister.privacy.errors import BadInput, NotPrivate, TextbookOnly
from cloister.privacy.noise import SeededSource

BOX: dict[str, Any] = {"bounds": (0, 1)}
TWO: dict[str, Any] = {**BOX, "classes": [0, 1]}
GOAL: dict[str, Any] = {**BOX, "target_bounds": (0, 1)}
LESSONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "LogisticRegression": (TWO, ("output", "objective", "input")),
    "LinearSVC": (TWO, ("output", "objective", "input")),
    "LinearRegression": (GOAL, ("output", "objective", "input")),
    "Ridge": (GOAL, ("output", "objective", "input")),
    "GaussianNB": (TWO, ("output", "input")),
    "MixedNB": ({**TWO, "bins": 8}, ("output", "input")),
    "CategoricalNB": ({"categories": 2, "classes": [0, 1]}, ("output", "input")),
    "KMeans": ({**BOX, "n_clusters": 3}, ("lloyd",)),
    "PCA": ({**BOX, "n_components": 2}, ("sulq", "input", "subspace")),
}
CASES = [(name, method) for name, (_, methods) in LESSONS.items() for method in methods]


def table(name: str, n: int = 4000, seed: int = 0) -> tuple[Any, Any]:
    """Rows within [0, 1] that the model can learn something from."""
    random = np.random.default_rng(seed)
    if name == "PCA":
        turned = np.linalg.qr(random.normal(size=(4, 4)))[0]
        return np.clip(0.4 + random.normal(size=(n, 4)) * [0.25, 0.175, 0.04, 0.04] @ turned, 0, 1), None
    if name == "KMeans":
        middles = np.array([[0.2, 0.2, 0.3, 0.5], [0.8, 0.3, 0.4, 0.5], [0.5, 0.8, 0.5, 0.5]])
        return np.clip(middles[random.integers(3, size=n)] + random.normal(0, 0.05, (n, 4)), 0, 1), None
    rows = random.random((n, 4))
    if name == "CategoricalNB":
        rows = np.rint(rows)
    line = (rows - 0.5) @ [0.6, -0.4, 0.3, 0.0]
    if name in ("LinearRegression", "Ridge"):
        return rows, np.clip(0.5 + line + random.normal(0, 0.05, n), 0, 1)
    return rows, (line + random.normal(0, 0.03, n) > 0).astype(int)


def made(name: str, method: str | None, spend: Any, **more: Any) -> Any:
    """The lesson of that method; without one, the model that people deploy."""
    chosen = {} if method is None else {"method": method}
    room = learn if method is None else lessons
    return getattr(room, name)(spend, **{**LESSONS[name][0], "random_state": 0, **chosen, **more})


def error(name: str, model: Any, rows: Any, y: Any) -> float:
    if name == "KMeans":
        return -model.score(rows) / len(rows)
    if name == "PCA":
        scatter = np.cov(rows.T)
        best = np.linalg.eigvalsh(scatter)[-2:].sum()
        return float(1 - np.trace(model.components_ @ scatter @ model.components_.T) / best)
    if name.endswith("NB"):
        return float(np.mean((model.predict_proba(rows)[:, 1] - y) ** 2))
    return float(1 - model.score(rows, y))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # without a ledger a fit opens one in the folder it is in


@pytest.mark.parametrize(("name", "method"), CASES)
def test_no_ledger_takes_a_lesson(name: str, method: str, tmp_path: Any) -> None:
    rows, y = table(name, 200)
    book = cl.Ledger.in_folder(tmp_path / "book")
    account = book.open_account("rows", cl.epsilon(1))
    for more in ({"ledger": book}, {"account": account}, {"random_state": None}):
        with pytest.raises(TextbookOnly, match=method):
            made(name, method, cl.epsilon(1), **more).fit(rows, y)
    assert account.spent.amount == 0
    assert not (tmp_path / ".cloister").exists()


@pytest.mark.parametrize(("name", "method"), CASES)
def test_a_lesson_is_marked_and_repeats(name: str, method: str, tmp_path: Any) -> None:
    rows, y = table(name, 300)
    fitted = made(name, method, cl.epsilon(1)).fit(rows, y)
    assert not fitted.release_.private
    assert fitted.release_.receipt is None
    assert fitted.loss_.relation == ("replace-one" if method == "input" else "add/remove")
    assert fitted.loss_.amount == 1
    again = made(name, method, cl.epsilon(1)).fit(rows, y)
    shown = next(one for one in ("coef_", "components_", "cluster_centers_", "class_count_") if hasattr(fitted, one))
    assert np.array_equal(getattr(fitted, shown), getattr(again, shown))
    assert not (tmp_path / ".cloister").exists()


@pytest.mark.parametrize(("name", "method"), CASES)
def test_with_hardly_any_noise_a_lesson_learns(name: str, method: str) -> None:
    rows, y = table(name)
    found = error(name, made(name, method, cl.epsilon(10**5)).fit(rows, y), rows, y)
    assert found < (0.2 if name == "CategoricalNB" else 0.1)


@pytest.mark.parametrize("name", LESSONS)
def test_the_default_errs_less_than_every_lesson_at_the_same_spend(name: str) -> None:
    spend = cl.epsilon("0.5") if name == "PCA" else cl.epsilon(1, delta="1e-6")  # drawing directions is pure
    seeds = range(6)
    rows, y = table(name)
    methods = (None, *LESSONS[name][1])

    def mean(method: str | None) -> float:
        return float(
            np.mean([error(name, made(name, method, spend, random_state=i).fit(rows, y), rows, y) for i in seeds])
        )

    ours, *theirs = (mean(method) for method in methods)
    assert ours < min(theirs), dict(zip(methods, [ours, *theirs], strict=True))


@pytest.mark.parametrize(("name", "method"), CASES)
def test_a_lesson_survives_no_rows_and_one_class(name: str, method: str) -> None:
    rows, y = table(name, 50)
    for some in (slice(0, 0), slice(0, 1)):
        labels = None if y is None else y[some]
        if name == "PCA" or y is None:
            made(name, method, cl.epsilon(1)).fit(rows[some], labels)
        else:
            made(name, method, cl.epsilon(1)).fit(rows[some], labels).predict(rows)


def test_a_lesson_is_no_candidate_of_a_selection_that_is_paid_for(tmp_path: Any) -> None:
    rows, y = table("LogisticRegression", 200)
    models = [made("LogisticRegression", method, None) for method in (None, "output")]
    with pytest.raises(TextbookOnly, match="selection"):
        learn.select(models, rows, y, spend=cl.rho("0.1"), ledger=tmp_path / "book")
    assert not (tmp_path / "book").exists()


def test_a_lesson_is_not_kept_in_a_file(tmp_path: Any) -> None:
    rows, y = table("LogisticRegression", 200)
    lesson = made("LogisticRegression", "output", cl.epsilon(1)).fit(rows, y)
    with pytest.raises(BadInput, match="receipt"):
        learn.save(lesson, tmp_path / "lesson.model", key=cl.Ledger.in_folder(tmp_path / "book").key)
    assert not (tmp_path / "lesson.model").exists()


def test_lessons_do_not_find_bounds_and_have_no_third_class() -> None:
    rows, y = table("GaussianNB", 50)
    with pytest.raises(BadInput, match="find"):
        made("GaussianNB", "output", cl.epsilon(1), bounds="find").fit(rows, y)
    for name in ("LogisticRegression", "LinearSVC"):
        with pytest.raises(BadInput, match="two classes"):
            made(name, "output", cl.epsilon(1), classes=[0, 1, 2]).fit(rows, y)
    with pytest.raises(BadInput, match="pure"):
        made("PCA", "subspace", cl.rho(1)).fit(rows)
    for name in LESSONS:
        with pytest.raises(BadInput, match="method is one of"):
            made(name, "guess", cl.epsilon(1)).fit(rows, y)


@pytest.mark.parametrize(("name", "method"), CASES)
def test_the_model_for_people_says_where_a_lesson_is(name: str, method: str, tmp_path: Any) -> None:
    rows, y = table(name, 50)
    model = getattr(learn, name)(cl.epsilon(1), **LESSONS[name][0], method=method, random_state=0)
    with pytest.raises(TextbookOnly, match=rf"cloister\.lessons\.{name}\(method='{method}'\)"):
        model.fit(rows, y)
    assert not (tmp_path / ".cloister").exists()


def test_lessons_are_of_rows_in_arrays_and_offer_no_other_method(tmp_path: Any) -> None:
    rows, y = table("LogisticRegression", 50)
    with pytest.raises(BadInput, match=r"cloister\.learn\.LogisticRegression"):
        made("LogisticRegression", "gradient", cl.epsilon(1)).fit(rows, y)
    schema = "unit: row\ntables: {t: {columns: {a: {type: boolean}, b: {type: boolean}}}}"
    frame = pd.DataFrame({"a": [True, False], "b": [True, False]})
    with cl.open(frame, schema=schema, budget=cl.rho(1), ledger=tmp_path / "book") as ds:
        with pytest.raises(BadInput, match="arrays"):
            made("LogisticRegression", "output", cl.epsilon(1)).fit(ds, target="a")
        assert not ds.account.spent.amount


def test_wishart_noise_is_refused_by_name() -> None:
    """ER-23, CK-12: noise that is positive semidefinite is not private."""
    rows, y = table("LinearRegression", 50)
    for room in (learn, lessons):
        for name in ("LinearRegression", "Ridge", "PCA"):
            with pytest.raises(NotPrivate, match="Wishart"):
                getattr(room, name)(cl.epsilon(1), **LESSONS[name][0], method="wishart").fit(rows, y)


# Sensitivities


@pytest.mark.parametrize("kind", [risks.Logistic, risks.Hinge, risks.Squares])
def test_a_row_moves_the_minimiser_by_at_most_slope_over_ridge(kind: Any) -> None:
    random = np.random.default_rng(4)
    nearest = 0.0
    for ridge in (0.1, 1.0, 10.0):
        for _ in range(10):
            rows = random.normal(size=(30, 3))
            rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
            rows[0] /= np.linalg.norm(rows[0])
            told = np.where(random.random(30) < 0.5, 1.0, -1.0) * (0.5 if kind is risks.Squares else 1.0)
            zero = np.zeros(3)
            moved = risks.least(rows, kind(told), ridge, zero) - risks.least(rows[1:], kind(told[1:]), ridge, zero)
            share = np.linalg.norm(moved) / (kind.slope / ridge)
            assert share <= 1
            nearest = max(nearest, float(share))
    assert nearest > 0.1


@pytest.mark.parametrize("kind", [risks.Logistic, risks.Hinge, risks.Squares])
def test_slopes_and_bends_are_those_of_the_values(kind: Any) -> None:
    scores = np.linspace(-4, 4, 4001)
    risk = kind(np.full(4001, 0.5 if kind is risks.Squares else 1.0))
    step = scores[1] - scores[0]
    assert np.gradient(risk.value(scores), step) == pytest.approx(risk.first(scores), abs=2e-3)
    assert (np.abs(risk.first(scores)) <= kind.slope).all()
    assert (risk.second(scores) <= kind.bend).all()
    steep = np.abs(np.gradient(risk.first(scores), step) - risk.second(scores))
    assert (steep > 1e-2).sum() <= 4  # beside the corners of its second derivative


def test_minimisers_are_scikit_learn_s() -> None:
    random = np.random.default_rng(1)
    rows, labels = random.random((500, 3)) - 0.5, np.where(random.random(500) < 0.5, 1.0, -1.0)
    plain = Plain(C=1 / 2.0, fit_intercept=False, tol=1e-10).fit(rows, labels)
    assert risks.least(rows, risks.Logistic(labels), 2.0, np.zeros(3)) == pytest.approx(plain.coef_[0], abs=1e-4)
    goal = np.clip(rows @ [0.5, -0.2, 0.1] + random.normal(0, 0.05, 500), -0.5, 0.5)
    huber = HuberRegressor(epsilon=10.0, alpha=0.0, fit_intercept=False).fit(rows, goal)
    assert risks.least(rows, risks.Squares(goal), 1e-9, np.zeros(3)) == pytest.approx(huber.coef_, abs=1e-3)


def test_objective_perturbation_pays_for_its_jacobian() -> None:
    ridge, left = risks.objective_terms(1.0, 1.0, 0.25)
    assert (ridge, left) == (1.0, pytest.approx(1 - np.log(1.25)))
    ridge, left = risks.objective_terms(0.1, 1.0, 0.25)
    assert left == 0.05
    assert np.log1p(0.25 / ridge) + left == pytest.approx(0.1)


def test_two_rows_of_a_frame_lie_as_far_apart_as_their_noise_is_made_for() -> None:
    far = np.array([[1e9] * 3, [-1e9] * 3])
    for frame in (read_frame((0, 1), None, 3), read_frame(None, 2.0, 3)):
        rows = frame.rows(far)
        assert np.abs(rows[0] - rows[1]).sum() == pytest.approx(3, rel=1e-3)


def test_randomised_answers_have_the_promised_odds_and_can_be_undone_on_average() -> None:
    lesson = TextbookFit(cl.epsilon(1), SeededSource("answers"))
    true = np.repeat([0, 1, -1], [60_000, 30_000, 10_000])
    told, honest = noisy_codes(true, 2, 1.0, lesson)
    assert honest / ((1 - honest) / 2) == pytest.approx(np.e)
    assert (told[:60_000] == 0).mean() == pytest.approx(honest, abs=0.01)
    assert (told[90_000:] == 2).mean() == pytest.approx(honest, abs=0.02)
    counts = undone(np.bincount(told, minlength=3).astype(float), honest)
    assert counts == pytest.approx([60_000, 30_000, 10_000], abs=1_500)
    noisy, scale = noisy_cells(np.zeros((50_000, 2)), 1.0, lesson)
    assert scale == 2
    assert noisy.std() == pytest.approx(scale * np.sqrt(2), rel=0.02)


def test_centres_begin_without_the_rows() -> None:
    """DPLloyd with no epsilon to speak of ends wherever noise takes it: inside the bounds, rows or none."""
    from cloister.lessons.learn.kmeans import lloyd

    lesson = TextbookFit(cl.epsilon("1e-9"), SeededSource("lloyd"))
    centres, sizes, rounds = lloyd(np.zeros((0, 2)), read_ground((0, 4), None, 2), 3, None, lesson)
    assert rounds == 5
    assert ((centres >= 0) & (centres <= 4)).all()
    assert (sizes >= 1).all()


# The forest of random trees, which is exact


def forest_rows(n: int = 4000) -> tuple[Any, Any]:
    rows, y = table("LogisticRegression", n)
    return rows, y


def test_a_forest_of_random_trees_is_paid_for_like_any_other_and_the_default_errs_less() -> None:
    rows, y = forest_rows(20_000)
    spend, errors = cl.epsilon("0.5"), {}
    for method in ("greedy", "random"):
        fits = [
            learn.RandomForestClassifier(spend, **TWO, method=method, random_state=i, max_depth=4).fit(rows, y)
            for i in range(4)
        ]
        assert fits[0].release_.receipt is not None
        assert fits[0].loss_ == spend
        errors[method] = np.mean([1 - one.score(rows, y) for one in fits])
    assert errors["greedy"] < errors["random"] < 0.4, errors


@pytest.mark.parametrize("spend", [cl.epsilon(20), cl.rho(50)], ids=str)
def test_leaves_of_random_trees_say_the_commonest_class_of_their_rows(spend: Any) -> None:
    rows = np.repeat([[0.1], [0.9]], 500, axis=0)
    y = np.repeat(["a", "b"], 500)
    forest = learn.RandomForestClassifier(
        spend, bounds=(0, 1), bins=2, classes=["a", "b"], method="random", n_estimators=3, max_depth=1, random_state=1
    ).fit(rows, y)
    assert forest.predict([[0.2], [0.8]]).tolist() == ["a", "b"]
    assert np.isfinite(forest.predict_log_proba([[0.2]])).all()
