"""Downgraded classifiers and membership attacks."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from cloister.anonymize.mining.downgrading import (
    AttackResult,
    Downgraded,
    downgrading_report,
    shadow_attack,
    threshold_attack,
)
from cloister.privacy.errors import BadInput


def overfit(rows, labels):
    return RandomForestClassifier(n_estimators=12, bootstrap=False, max_features=2, random_state=0).fit(rows, labels)


def draw(seed, size):
    """Rows whose label is noisy, so that a model that fits them all has learnt them by heart."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(size, 6))
    labels = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0.5)
    wrong = generator.random(size) < 0.3
    labels[wrong] = generator.integers(0, 3, int(wrong.sum()))
    return rows, np.array(["low", "middle", "high"])[labels]


MEMBERS, OTHERS, SHADOW = draw(1, 600), draw(2, 600), draw(3, 1200)


@pytest.fixture(scope="module")
def model():
    return overfit(*MEMBERS)


CONTROLS = [
    {"control": "label"},
    {"control": "top", "classes": 1},
    {"control": "top", "classes": 3},
    {"control": "round", "digits": 1},
    {"control": "round", "digits": 0},
    {"control": "temperature", "temperature": 3.0},
    {"control": "noise", "scale": 0.3},
]


@pytest.mark.parametrize("options", CONTROLS)
def test_downgraded_scores_are_shares_and_agree_with_the_label(model, options):
    released = Downgraded(model, **options)
    scores = released.predict_proba(OTHERS[0])
    assert scores.shape == (600, 3)
    assert (scores >= 0).all()
    assert np.allclose(scores.sum(axis=1), 1)
    assert (released.predict(OTHERS[0]) == released.classes_[scores.argmax(axis=1)]).all()
    if options["control"] in ("label", "top", "temperature"):
        assert (released.predict(OTHERS[0]) == model.predict(OTHERS[0])).all()


def test_each_control_removes_what_it_says(model):
    raw = model.predict_proba(OTHERS[0])
    assert set(np.unique(Downgraded(model, "label").predict_proba(OTHERS[0]))) == {0.0, 1.0}
    rounded = Downgraded(model, "round", digits=0).predict_proba(OTHERS[0])
    assert len(np.unique(rounded)) < len(np.unique(raw))
    top = np.sort(Downgraded(model, "top", classes=1).predict_proba(OTHERS[0]), axis=1)
    assert np.allclose(top[:, 0], top[:, 1])
    assert np.allclose(Downgraded(model, "top", classes=3).predict_proba(OTHERS[0]), raw)
    flat = Downgraded(model, "temperature", temperature=3.0).predict_proba(OTHERS[0])
    assert (flat.max(axis=1) <= raw.max(axis=1) + 1e-12).all()


def test_noise_is_the_same_for_the_same_question_and_depends_on_the_key(model):
    released = Downgraded(model, "noise", scale=0.2)
    scores = released.predict_proba(OTHERS[0])
    assert (scores == released.predict_proba(OTHERS[0])).all()
    assert (scores[::-1] == released.predict_proba(OTHERS[0][::-1])).all()
    assert (scores != Downgraded(model, "noise", scale=0.2).predict_proba(OTHERS[0])).any()
    assert "key" not in repr(released)


def test_the_keyed_noise_has_the_scale_that_is_stated():
    from cloister.anonymize.mining.downgrading import _keyed_uniform

    uniform = _keyed_uniform(np.random.default_rng(0).random((20_000, 3)), 12345)
    assert 0 < uniform.min() < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(uniform.T)[0, 1]) < 0.04


def test_attacks_find_the_members_of_an_overfitted_model(model):
    assert threshold_attack(model, MEMBERS, OTHERS).interval[0] > 0.3
    assert shadow_attack(model, overfit, MEMBERS, OTHERS, SHADOW, shadows=3, random_state=0).interval[0] > 0.3


def test_attacks_find_nothing_where_no_row_was_learnt():
    """Both sides are rows that the model has not seen: an interval that excludes 0 would be a broken attack."""
    stranger = overfit(*draw(9, 600))
    for result in (
        threshold_attack(stranger, MEMBERS, OTHERS, confidence=1 - 1e-6),
        shadow_attack(stranger, overfit, MEMBERS, OTHERS, SHADOW, shadows=2, random_state=0, confidence=1 - 1e-6),
    ):
        assert result.interval[0] < 0 < result.interval[1]


def test_a_model_that_does_not_overfit_gives_little_away():
    simple = LogisticRegression().fit(*MEMBERS)
    assert threshold_attack(simple, MEMBERS, OTHERS).advantage < 0.15


def test_the_report_shows_lower_advantage_for_coarser_scores_and_the_gap_that_labels_keep(model):
    controls = [Downgraded(model, "label"), Downgraded(model, "round", digits=0)]
    report = downgrading_report(
        model, controls, MEMBERS, OTHERS, train=overfit, shadow=SHADOW, shadows=2, random_state=1
    )
    frame = report.to_pandas()
    assert frame.control.tolist() == ["none", "label", "round to 0 digits"]
    assert frame.accuracy[0] == pytest.approx(model.score(*OTHERS))
    assert frame.accuracy[1] == frame.accuracy[0]
    assert frame.threshold_advantage[1] < frame.threshold_advantage[0]
    assert frame.shadow_advantage[1] < frame.shadow_advantage[0]
    gap = model.score(*MEMBERS) - model.score(*OTHERS)
    assert frame.shadow_low[1] <= gap <= frame.shadow_high[1]


def test_the_interval_contains_the_true_advantage_as_often_as_stated():
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        result = AttackResult.of(generator.random(150) < 0.7, generator.random(120) < 0.4, 0.9)
        covered += result.interval[0] <= 0.3 <= result.interval[1]
    assert covered >= 270


@pytest.mark.parametrize(
    "options",
    [
        {"control": "blur"},
        {"control": "top", "classes": 0},
        {"control": "round", "digits": -1},
        {"control": "temperature", "temperature": 0.5},
        {"control": "noise", "scale": 0},
    ],
)
def test_wrong_controls_are_refused(model, options):
    with pytest.raises(BadInput):
        Downgraded(model, **options)


def test_a_model_without_scores_and_too_few_records_are_refused(model):
    with pytest.raises(BadInput):
        Downgraded(object())
    with pytest.raises(BadInput):
        threshold_attack(model, (MEMBERS[0][:5], MEMBERS[1][:5]), OTHERS)
