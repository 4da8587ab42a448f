"""Evasion: changes stay within their size, beat random ones, and a linear model falls at its exact distance."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from cloister.attack.models.evasion import boundary, differentiable, evasion, fgsm, pgd, robust_accuracy
from cloister.attack.models.target import Target
from cloister.attack.report.page import to_html
from cloister.privacy.errors import BadBounds, BadInput, BadNumber

DIGITS = load_digits()
X, Y = DIGITS.data / 16, DIGITS.target
PAIR = np.isin(Y, (3, 8))
LINEAR = LogisticRegression(max_iter=500).fit(X[PAIR][:240], Y[PAIR][:240])
ROWS, LABELS = X[PAIR][240:300], Y[PAIR][240:300]


@pytest.fixture(scope="module")
def perceptron():
    return MLPClassifier((32,), max_iter=400, random_state=0).fit(X[:1000], Y[:1000])


def distances():
    """The exact distance of each row from the linear model's boundary."""
    return np.abs(LINEAR.decision_function(ROWS)) / np.linalg.norm(LINEAR.coef_)


def test_the_jax_twin_of_a_model_has_its_probabilities(perceptron):
    assert np.allclose(differentiable(LINEAR)(ROWS), LINEAR.predict_proba(ROWS), atol=1e-5)
    assert np.allclose(differentiable(perceptron)(X[1000:1050]), perceptron.predict_proba(X[1000:1050]), atol=1e-4)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_changes_stay_within_their_size_and_bounds(norm, perceptron):
    function, codes = differentiable(perceptron), Y[1000:1030]
    for attack in (fgsm, pgd):
        moved = attack(function, X[1000:1030], codes, size=0.2, norm=norm)
        change = moved - X[1000:1030]
        sizes = np.abs(change).max(axis=1) if norm == "linf" else np.linalg.norm(change, axis=1)
        assert sizes.max() <= 0.2 + 1e-6
        assert sizes.max() > 0.19
        assert moved.min() >= 0
        assert moved.max() <= 1


def test_a_linear_model_falls_at_its_exact_distance():
    right = LINEAR.predict(ROWS) == LABELS
    for size in (0.1, 0.3, 0.6):
        shares, _ = robust_accuracy(LINEAR, ROWS, LABELS, [size], norm="l2", bounds=(-10.0, 10.0))
        assert shares[0] == pytest.approx((right & (distances() > size)).mean(), abs=0.02)


def test_the_boundary_attack_comes_near_the_exact_distance_by_labels_alone():
    target = Target.of(LINEAR, labels_only=True)
    moved = boundary(target, ROWS, LABELS, steps=400, bounds=(-1.0, 2.0))
    right = LINEAR.predict(ROWS) == LABELS
    assert (LINEAR.predict(moved[right]) != LABELS[right]).all()
    assert np.array_equal(moved[~right], ROWS[~right])
    found = np.linalg.norm(moved - ROWS, axis=1)[right]
    assert (found >= distances()[right] - 1e-6).all()
    assert np.median(found / distances()[right]) < 1.6
    assert target.queries > 400 * 2 * right.sum()


def test_pgd_is_at_least_as_strong_as_fgsm_and_both_beat_random_changes(perceptron):
    rows, labels, sizes = X[1000:1200], Y[1000:1200], [0.0, 0.05, 0.1, 0.2]
    one, random = robust_accuracy(perceptron, rows, labels, sizes, method="fgsm")
    many, _ = robust_accuracy(perceptron, rows, labels, sizes, method="pgd")
    assert one[0] == many[0] == random[0] == (perceptron.predict(rows) == labels).mean()
    assert (many <= one + 1e-9).all()
    assert (np.diff(many) <= 0).all()
    assert many[2] < random[2] - 0.3


def test_a_finding_states_what_a_small_change_turns(perceptron):
    found = evasion(perceptron, X[1000:1100], Y[1000:1100], size=0.1, sizes=(0.05, 0.2))
    assert found.learned
    assert found.access == "white box"
    assert found.baseline < 0.2
    assert found.figures["accuracy at size 0.2"] <= found.figures["accuracy at size 0.05"]
    assert found.success == pytest.approx(
        1 - found.figures["accuracy at size 0.1"] / found.figures["accuracy without an attack"]
    )
    page = to_html(found, made_up=True)
    assert "polyline" in page
    assert "Accuracy by the size" in page


def test_a_forest_has_no_gradient_and_falls_to_labels_alone():
    forest = RandomForestClassifier(30, random_state=0).fit(X[PAIR][:240], Y[PAIR][:240])
    with pytest.raises(BadInput, match="method='boundary'"):
        evasion(forest, ROWS, LABELS, size=0.1)
    heard = []
    found = evasion(
        forest, ROWS[:30], LABELS[:30], size=1.5, method="boundary", norm="l2", steps=60,
        progress=lambda *said: heard.append(said),
    )  # fmt: skip
    assert found.access == "labels only"
    assert found.success > found.baseline + 0.2
    assert found.figures["rows asked"] > 1000
    assert heard[-1][0] == 1.0


def test_bad_settings_are_refused_in_words():
    for match, more in {"norm is": {"norm": "l1"}, "method is": {"method": "cw"}}.items():
        with pytest.raises(BadInput, match=match):
            robust_accuracy(LINEAR, ROWS, LABELS, [0.1], **more)
    with pytest.raises(BadNumber, match="size of a change"):
        evasion(LINEAR, ROWS, LABELS, size=-1)
    with pytest.raises(BadInput, match="Flatten"):
        boundary(LINEAR, ROWS.reshape(-1, 8, 8), LABELS)
    with pytest.raises(BadBounds, match="bounds"):
        boundary(LINEAR, ROWS, LABELS, bounds=(1.0, 1.0))
    with pytest.raises(BadInput, match="none of these rows"):
        evasion(LINEAR, ROWS, np.where(LINEAR.predict(ROWS) == 3, 8, 3), size=0.1)
    with pytest.raises(BadInput, match="codes"):
        fgsm(differentiable(LINEAR), ROWS, [0.5], size=0.1)
