"""Principal components: those of scikit-learn where the noise is small, and never more than was paid for."""

from pathlib import Path

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.base import clone
from sklearn.datasets import load_digits

import cloister as cl
from cloister import lessons
from cloister.learn.decomposition.pca import PCA, main_directions
from cloister.lessons.learn.pca import _bingham, sample_subspace
from cloister.privacy.errors import BadBounds, BadInput, TextbookOnly
from cloister.privacy.noise import SeededSource

GENEROUS = cl.rho(10**6)


def sample(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(
        0.5 + rng.normal(size=(n, 5)) * [0.1, 0.05, 0.02, 0.01, 0.01] @ np.linalg.qr(rng.random((5, 5)))[0], 0, 1
    )


def pca(tmp_path: Path, spend: object = GENEROUS, count: int | None = 2, **more: object) -> PCA:
    return PCA(spend, count, **{"bounds": (0, 1), "ledger": tmp_path, "random_state": 1, **more})


def captured(rows: np.ndarray, fitted: PCA) -> float:
    """The variance along the components, against the best that as many directions can have."""
    scatter = np.cov(rows.T)
    own = np.trace(fitted.components_ @ scatter @ fitted.components_.T)
    return float(own / np.linalg.eigvalsh(scatter)[-len(fitted.components_) :].sum())


@pytest.mark.parametrize("method", ["covariance", "power"])
def test_with_hardly_any_noise_it_is_scikit_learn_s(tmp_path: Path, method: str) -> None:
    rows = sample(5000)
    fitted, plain = pca(tmp_path, method=method).fit(rows), decomposition.PCA(2).fit(rows)
    assert captured(rows, fitted) > 0.995
    assert abs(np.diag(fitted.components_ @ plain.components_.T)) == pytest.approx([1, 1], abs=0.02)
    assert fitted.mean_ == pytest.approx(plain.mean_, abs=0.005)
    # Rows far out are shortened, so that a part of the variance is missing.
    assert fitted.explained_variance_ == pytest.approx(plain.explained_variance_, rel=0.45)
    assert fitted.components_ @ fitted.components_.T == pytest.approx(np.eye(2), abs=1e-9)


def test_variance_is_told_without_what_the_noise_adds() -> None:
    """A direction of scatter 400 in noise of deviation 10 on 100 features shows as 425: s²d/λ = 25 is taken away."""
    rng, d, found, raw = np.random.default_rng(5), 100, [], []
    for _ in range(20):
        upper = np.triu(rng.normal(size=(d, d)) * 10)
        scatter = upper + np.triu(upper, 1).T
        scatter[0, 0] += 400
        raw.append(np.linalg.eigvalsh(scatter)[-1])
        found.append(main_directions(scatter, 10.0, 101.0, np.zeros(d), 1.0, 3).variance)
    assert np.mean(raw) > 420
    assert np.mean(found, axis=0)[0] == pytest.approx(4.0, rel=0.02)
    assert np.mean(found, axis=0)[2] < 1.5


def test_shares_of_the_variance_add_up_to_at_most_one(tmp_path: Path) -> None:
    fitted = pca(tmp_path, cl.rho("0.05"), 5).fit(sample(5000))
    assert (fitted.explained_variance_ >= 0).all()
    assert fitted.explained_variance_ratio_.sum() <= 1 + 1e-9


def test_digits_keep_most_of_their_variance_at_a_real_spend(tmp_path: Path) -> None:
    rows = np.tile(load_digits().data, (10, 1))
    fitted = pca(tmp_path, cl.epsilon(1, delta="1e-6"), 10, bounds=(0, 16)).fit(rows)
    assert captured(rows, fitted) > 0.9


def test_there_and_back(tmp_path: Path) -> None:
    rows = sample(500)
    fitted = pca(tmp_path, count=None).fit(rows)
    assert fitted.components_.shape == (5, 5)
    assert fitted.inverse_transform(fitted.transform(rows)) == pytest.approx(rows)
    assert fitted.fit_transform(rows).shape == (500, 5)
    with pytest.raises(BadInput, match="expecting 5 features"):
        fitted.transform(rows[:, :2])


def test_features_are_not_rescaled_one_by_one(tmp_path: Path) -> None:
    rows = sample(5000) * [1, 20, 1, 1, 1]
    fitted = pca(tmp_path, count=1, bounds=(np.zeros(5), np.array([1, 20, 1, 1, 1]))).fit(rows)
    assert abs(fitted.components_[0, 1]) > 0.99
    assert captured(rows, fitted) > 0.999


def test_a_length_or_found_bounds_do_as_well(tmp_path: Path) -> None:
    rows = sample(5000)
    assert captured(rows, pca(tmp_path, bounds=None, data_norm=1.6).fit(rows)) > 0.98
    assert captured(rows * 30, pca(tmp_path, cl.rho(1), bounds="find").fit(rows * 30)) > 0.9


@pytest.mark.parametrize("spend", [cl.epsilon(1), cl.rho("0.01")])
@pytest.mark.parametrize("method", ["covariance", "power"])
@pytest.mark.parametrize(
    "rows",
    [np.zeros((0, 3)), np.full((40, 3), 0.5), np.random.default_rng(0).random((4, 30)), np.full((9, 2), -1e9)],
    ids=["no rows", "constant columns", "more features than rows", "beyond the bounds"],
)
def test_no_table_breaks_a_fit(tmp_path: Path, rows: np.ndarray, method: str, spend: object) -> None:
    fitted = pca(tmp_path, spend, method=method, random_state=None).fit(rows)
    assert fitted.components_ @ fitted.components_.T == pytest.approx(np.eye(2), abs=1e-9)
    assert np.isfinite(fitted.explained_variance_).all()
    assert fitted.release_.private


def test_all_of_the_spend_is_used_and_no_more(tmp_path: Path) -> None:
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho(1))
    fitted = pca(tmp_path, cl.rho("0.1"), account=account, method="power").fit(sample(100))
    assert account.spent.amount == cl.rho("0.1").amount
    assert [one["times"] for one in fitted.release_.receipt.body["parameters"]] == ["1", "4"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"n_components": 0}, BadInput),
        ({"n_components": 6}, BadInput),
        ({"method": "magic"}, BadInput),
        ({"bounds": None}, BadBounds),
    ],
)
def test_wrong_parameters_are_refused_before_anything_is_charged(tmp_path: Path, change: dict, error: type) -> None:
    account = cl.Ledger.in_folder(tmp_path).open_account("rows", cl.rho(10**6))
    with pytest.raises(error):
        pca(tmp_path, account=account).set_params(**change).fit(sample(10))
    assert account.spent.amount == 0


def test_the_exponential_mechanism_is_for_lessons_only(tmp_path: Path) -> None:
    rows = sample(3000)
    lesson = lessons.PCA(cl.epsilon(200), 2, bounds=(0, 1), method="subspace", random_state=3).fit(rows - 0.0)
    assert not lesson.release_.private
    assert lesson.release_.receipt is None
    assert lesson.components_ @ lesson.components_.T == pytest.approx(np.eye(2), abs=1e-9)
    assert captured(rows, lesson) > 0.5
    for change in ({"random_state": None}, {"ledger": tmp_path}):
        with pytest.raises(TextbookOnly):
            clone(lesson).set_params(**change).fit(rows)
    with pytest.raises(BadInput, match="pure"):
        clone(lesson).set_params(spend=cl.rho(1)).fit(rows)


@pytest.mark.statistical
def test_directions_are_drawn_from_the_law_they_name() -> None:
    """In the plane the law is e^(c cos²): compare with its integral."""
    source, c = SeededSource("bingham"), 3.0
    drawn = np.array([_bingham(np.diag([c, 0.0]), source)[0] ** 2 for _ in range(8000)])
    angle = np.linspace(0, np.pi, 20_001)
    weight = np.exp(c * np.cos(angle) ** 2)
    expected = float((weight * np.cos(angle) ** 2).sum() / weight.sum())
    assert drawn.mean() == pytest.approx(expected, abs=0.015)
    found = sample_subspace(np.diag([9.0, 1.0, 0.0]), 1.0, 300.0, 3, source)
    assert found @ found.T == pytest.approx(np.eye(3), abs=1e-9)
