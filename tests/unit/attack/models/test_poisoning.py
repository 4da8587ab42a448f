"""Poisoning: flipped labels, back doors, false updates and made-up reports do the damage that is stated."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from cloister import local
from cloister.attack.models.poisoning import (
    add_back_door,
    back_door,
    boosted_update,
    clipped_mean,
    colluding_updates,
    flip_labels,
    poison_round,
    poison_survey,
    poison_training,
)
from cloister.privacy.errors import BadInput, BadNumber, BadProbability
from cloister.privacy.noise import SeededSource

DIGITS = load_digits()
IMAGES, LABELS = DIGITS.data / 16, DIGITS.target
PAIR = np.isin(LABELS, (3, 8))
X, Y = IMAGES[PAIR], LABELS[PAIR]
TRAIN, TEST = slice(0, 240), slice(240, None)
DRAW = np.random.default_rng(3)


def nearest(rows, labels):
    return GaussianNB(var_smoothing=1e-2).fit(rows, labels)


def logistic(rows, labels):
    return LogisticRegression(max_iter=300).fit(rows, labels)


def corner(rows):
    rows[:, [0, 1, 8]] = 1.0
    return rows


def test_labels_are_flipped_as_asked():
    flipped = flip_labels(Y[TRAIN], share=0.25, seed=1)
    assert (flipped != Y[TRAIN]).sum() == 60
    assert set(flipped) == {3, 8}
    one_way = flip_labels(Y[TRAIN], share=0.1, old=3, new=8)
    changed = one_way != Y[TRAIN]
    assert changed.sum() == 24
    assert (Y[TRAIN][changed] == 3).all()
    many = flip_labels(LABELS, share=0.5)
    assert (many != LABELS).sum() == round(0.5 * len(LABELS))


def test_flipped_labels_cost_accuracy_and_few_cost_little():
    heard = []
    found = poison_training(
        logistic, X[TRAIN], Y[TRAIN], X[TEST], Y[TEST], share=0.35, old=3, new=8, repeats=4,
        progress=lambda *said: heard.append(said),
    )  # fmt: skip
    assert found.learned
    assert found.figures["accuracy lost, at least (95 %)"] > 0.1
    assert found.success == pytest.approx(found.baseline + found.figures["accuracy lost"])
    assert heard[-1] == (1.0, "4 of 4 poisoned models")
    none = poison_training(logistic, X[TRAIN], Y[TRAIN], X[TEST], Y[TEST], share=0.0, repeats=2)
    assert none.figures["accuracy lost"] == 0
    assert not none.learned


def test_a_back_door_is_obeyed_and_hidden():
    found = back_door(logistic, X[TRAIN], Y[TRAIN], X[TEST], Y[TEST], corner, goal=8, share=0.05, repeats=3)
    assert found.learned
    assert found.success > 0.9
    assert found.baseline < 0.3
    clean, after = (
        found.figures[f"accuracy on clean rows {kind}"] for kind in ("without poison", "with the back door")
    )
    assert after > clean - 0.05
    rows, labels = add_back_door(X[TRAIN], Y[TRAIN], corner, goal=8, share=0.05)
    changed = labels != Y[TRAIN]
    assert changed.sum() == 12
    assert (rows[changed][:, [0, 1, 8]] == 1).all()
    assert np.array_equal(rows[~changed], X[TRAIN][~changed])


def honest_rounds(count=20, clients=20):
    return [DRAW.normal(0.3, 1, (clients, 50)) for _ in range(count)]


def test_a_boosted_update_replaces_the_mean_and_clipping_stops_it():
    rounds = honest_rounds()
    goal, expected = -np.ones(50), np.full(50, 0.3)
    false = boosted_update(goal, expected, clients=21)
    others = np.repeat(expected[None], 20, axis=0)
    assert np.allclose(np.vstack((others, false)).mean(axis=0), goal)
    taken = poison_round(rounds, false)
    assert taken.success == 1.0
    assert taken.learned
    clipped = poison_round(rounds, false, combine=lambda updates: clipped_mean(updates, 7.0), rule="clipped mean")
    assert clipped.success == 0.0
    assert clipped.figures["mean cosine with the honest direction"] > 0.5
    assert clipped.figures["cosine, at least (95 %)"] <= clipped.figures["mean cosine with the honest direction"]


def test_colluding_updates_hide_in_the_spread_and_pass_a_median():
    known = DRAW.normal(0.3, 1, (20, 50))
    false = colluding_updates(known, liars=8, deviations=1.5)
    assert (np.abs(false - known.mean(axis=0)) <= 1.5 * known.std(axis=0, ddof=1) + 1e-9).all()
    assert np.linalg.norm(false[0]) < 1.5 * np.linalg.norm(known, axis=1).max()
    median = poison_round(honest_rounds(), false, combine=lambda updates: np.median(updates, axis=0), rule="median")
    alone = poison_round(honest_rounds(), known[:8], combine=lambda updates: np.median(updates, axis=0), rule="median")
    kept = "mean cosine with the honest direction"
    assert median.figures[kept] < alone.figures[kept] - 0.3


@pytest.mark.parametrize(
    "kind", [local.DirectEncoding.for_loss, local.UnaryEncoding.optimised, local.LocalHashing.for_loss]
)
def test_made_up_reports_push_a_share_far_and_stay_within_the_bound(kind):
    mechanism = kind(16, local.epsilon(1))
    answers = DRAW.integers(1, 16, 1900)
    bound = local.poisoning(mechanism, 100, 2000)
    found = poison_survey(mechanism, answers, goal=0, fakes=100, bound=bound, source=SeededSource(9), repeats=10)
    rise = found.figures["rise of the share"]
    assert rise > 1.5 * found.figures["rise by false answers on honest devices"]
    assert rise <= bound.up + 0.03
    assert rise >= 0.5 * bound.up
    assert found.learned
    assert found.baseline == 0.05


def test_damage_has_an_interval_over_models_and_rows():
    found = poison_training(nearest, X[TRAIN], Y[TRAIN], X[TEST], Y[TEST], share=0.3, repeats=3)
    assert 0 <= found.interval[0] <= found.success <= found.interval[1] <= 1
    assert found.interval[1] - found.interval[0] > 0.02


def test_bad_poison_is_refused_in_words():
    with pytest.raises(BadProbability, match="share"):
        flip_labels(Y, share=1.5)
    with pytest.raises(BadInput, match="two different"):
        flip_labels([1, 1], share=0.5)
    with pytest.raises(BadInput, match="no row has"):
        flip_labels(Y, share=0.5, old=4)
    with pytest.raises(BadInput, match="goal="):
        add_back_door(X, Y, corner, goal=4, share=0.1)
    with pytest.raises(BadNumber, match="repeats"):
        poison_training(nearest, X, Y, X, Y, repeats=0)
    with pytest.raises(BadInput, match="same shape"):
        boosted_update([1.0], [1.0, 2.0], clients=3)
    with pytest.raises(BadInput, match="two updates"):
        colluding_updates([[1.0]], liars=2)
    with pytest.raises(BadNumber, match="clip"):
        clipped_mean([[1.0]], 0)
    with pytest.raises(BadInput, match="one update a row"):
        poison_round([], [1.0])
    with pytest.raises(BadInput, match="goal is a value"):
        poison_survey(local.DirectEncoding.for_loss(4, local.epsilon(1)), [1, 2], goal=4, fakes=1)


def test_an_estimator_is_trained_like_a_function_of_rows():
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(200, 2)), draw.integers(0, 2, 200)
    found = poison_training(KNeighborsClassifier(1), rows, labels, rows, labels, share=0.5, repeats=2)
    assert found.success > 0.2
    assert found.baseline == 0
    with pytest.raises(BadInput, match=r"KNeighborsClassifier could not fit 200 rows"):
        poison_training(KNeighborsClassifier(1), [["a"]] * 200, labels, rows, labels, repeats=2)
