"""A private linear support vector classifier."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.svm import LinearSVC as Plain

import cloister as cl
from cloister.learn.linear_model.loss_gradients import Hinge
from cloister.learn.linear_model.svm import LinearSVC

SPEND = cl.epsilon(1, delta="1e-6")


def made(n=20_000, d=6, seed=0, classes=2):
    random = np.random.default_rng(seed)
    rows = random.random((n, d))
    scores = (rows - 0.5) @ random.normal(0, 4, (d, classes)) + random.gumbel(size=(n, classes))
    return rows, scores.argmax(axis=1)


def model(folder, spend=SPEND, **more):
    more = {"bounds": (0, 1), "classes": [0, 1], "ledger": folder, "random_state": 0, **more}
    return LinearSVC(spend, **more)


@pytest.mark.parametrize(("spend", "lack"), [(SPEND, 0.01), (cl.epsilon(1), 0.02)], ids=["delta", "pure"])
def test_it_comes_near_the_machine_without_noise(tmp_path, spend, lack):
    rows, labels = made()
    best = Plain().fit(rows, labels).score(rows, labels)
    scores = [model(tmp_path, spend, random_state=seed).fit(rows, labels).score(rows, labels) for seed in "abc"]
    assert np.mean(scores) > best - lack


def test_more_than_two_classes_are_one_against_the_rest(tmp_path):
    rows, labels = made(classes=3)
    best = Plain().fit(rows, labels).score(rows, labels)
    fitted = model(tmp_path, classes=[0, 1, 2]).fit(rows, labels)
    assert fitted.score(rows, labels) > best - 0.04
    assert fitted.decision_function(rows).shape == (len(rows), 3)


def test_the_residual_is_the_derivative_of_a_hinge_with_a_round_corner():
    hinge, margins, labels = Hinge(1), np.linspace(-3, 4, 71)[:, None], np.ones(71, dtype=np.int64)
    slopes = hinge(margins, labels)[:, 0]
    assert (slopes[margins[:, 0] <= 0] == -1).all()
    assert (slopes[margins[:, 0] >= 2] == 0).all()
    assert (np.diff(slopes) >= 0).all()
    assert np.diff(slopes).max() / 0.1 <= hinge.steepest + 1e-9
    assert (hinge(-margins, 1 - labels)[:, 0] == -slopes).all()


def test_it_is_a_scikit_learn_estimator_with_a_receipt(tmp_path):
    rows, labels = made(1_000)
    fitted = clone(model(tmp_path, random_state=None)).fit(rows, np.array(["no", "yes"])[labels])
    assert fitted.release_.private
    assert fitted.release_.receipt.body["mechanism"] == "discrete-gaussian"
    named = model(tmp_path, classes=["no", "yes"]).fit(rows, np.array(["no", "yes"])[labels])
    assert set(named.predict(rows)) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (np.zeros((0, 3)), np.zeros(0, dtype=int)),
        (np.random.default_rng(0).random((50, 3)), np.ones(50, dtype=int)),
        (np.full((50, 3), 0.5), np.arange(50) % 2),
        (np.random.default_rng(0).random((5, 40)), np.arange(5) % 2),
        (np.full((20, 3), -1e300), np.arange(20) % 2),
    ],
    ids=["no rows", "one class", "constant columns", "more features than rows", "beyond bounds"],
)
def test_no_data_makes_a_fit_fail(tmp_path, rows, labels):
    fitted = model(tmp_path).fit(rows, labels)
    assert np.isfinite(fitted.decision_function(np.zeros((2, rows.shape[1])))).all()
