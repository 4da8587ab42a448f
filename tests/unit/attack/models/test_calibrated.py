"""Scores of LiRA, RMIA and quantile regression from numbers that were computed before."""

import numpy as np
import pytest

from cloister.attack.finding import Roc
from cloister.attack.models.calibrated import lira_scores, quantile_scores, rmia_offline_a, rmia_scores
from cloister.privacy.errors import BadInput, BadNumber


def memorised(n=3000, models=16, shift=1.5, seed=3):
    """Return logits of models that give their own rows `shift` more, with a level of each record."""
    draw = np.random.default_rng(seed)
    inside = draw.random((models + 1, n)).argsort(axis=0) < (models + 1) / 2
    logits = draw.normal(0, 3, n) + shift * inside + draw.normal(0, 1, (models + 1, n))
    return logits[0], inside[0], logits[1:], inside[1:]


def auc(scores, truth):
    return Roc.of(scores[truth], scores[~truth]).auc


def test_lira_finds_members_that_a_threshold_on_the_logit_does_not():
    target, truth, logits, inside = memorised()
    assert auc(target, truth) < 0.66  # the levels of records hide the shift
    ideal = 0.856  # of two unit normals 1.5 apart
    assert ideal - 0.05 < auc(lira_scores(target, logits, inside), truth) < ideal + 0.04
    assert ideal - 0.06 < auc(lira_scores(target, logits, inside, offline=True), truth)


def test_lira_is_the_log_likelihood_ratio_where_models_are_many():
    target, _, logits, inside = memorised(n=50, models=4000)
    levels = np.where(inside, logits - 1.5, logits).mean(axis=0)
    exact = ((target - levels) ** 2 - (target - levels - 1.5) ** 2) / 2
    assert np.allclose(lira_scores(target, logits, inside), exact, atol=0.35)


def test_a_record_in_few_models_borrows_the_variance_of_the_others():
    target, truth, logits, inside = memorised(models=6, n=1500)
    counts = inside.sum(axis=0)
    kept = (counts >= 2) & (counts <= 4)
    scores = lira_scores(target[kept], logits[:, kept], inside[:, kept])
    assert np.abs(scores).max() < 12  # with its own variance of two models a record's ratio goes beyond 1,000
    assert auc(scores, truth[kept]) > 0.78


def test_rmia_orders_records_by_their_ratio_whatever_the_population():
    target, truth, logits, inside = memorised()
    own, models = 1 / (1 + np.exp(-target)), 1 / (1 + np.exp(-logits))
    alone = rmia_scores(own, models, inside, offline=False)
    beside = rmia_scores(own, models, inside, offline=False, population=(own[:50], models[:, :50]))
    assert auc(alone, truth) > auc(own, truth) + 0.1
    assert abs(auc(alone, truth) - auc(beside, truth)) < 1e-9


def test_rmia_is_the_share_of_dominated_records():
    models = np.array([[0.5, 0.4, 0.8], [0.5, 0.4, 0.8]])
    scores = rmia_scores([0.9, 0.4, 0.6], models, np.zeros((2, 3), bool), offline_a=1.0)
    assert np.floor(scores * 4).tolist() == [2, 1, 0]  # ratios 1.8, 1 and 0.75
    halved = rmia_scores([0.9, 0.4, 0.6], models, np.zeros((2, 3), bool), offline_a=1.0, gamma=1.5)
    assert np.floor(halved * 4).tolist() == [2, 0, 0]


def test_the_offline_factor_is_tuned_on_shadow_models_alone():
    _, _, logits, inside = memorised(models=8)
    found = rmia_offline_a(1 / (1 + np.exp(-logits)), inside)
    assert 0 <= found <= 1
    assert rmia_offline_a(1 / (1 + np.exp(-logits)), np.zeros_like(inside)) == 0.3  # nothing to tune on


def test_quantile_regression_removes_what_the_features_explain():
    draw = np.random.default_rng(4)
    features = draw.normal(size=(1200, 3))
    truth = np.arange(1200) < 600
    logits = 4 * np.sign(features[:, 0]) + 1.0 * truth + draw.normal(0, 0.5, 1200)
    scores = quantile_scores(logits, features, ~truth, draw=draw)
    assert auc(logits, truth) < 0.72 < 0.85 < auc(scores, truth)


def test_members_and_others_are_scored_alike_where_the_model_tells_nothing():
    draw = np.random.default_rng(5)
    features, truth = draw.normal(size=(4000, 3)), np.arange(4000) < 2000
    scores = quantile_scores(draw.normal(size=4000), features, ~truth, draw=draw)
    assert abs(auc(scores, truth) - 0.5) < 0.03
    assert abs(np.std(scores[truth]) / np.std(scores[~truth]) - 1) < 0.05


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lira_scores([1, 2], np.ones((4, 3)), np.ones((4, 3), bool)), "one row for each model and one column"),
        (lambda: lira_scores([1, np.nan], np.ones((4, 2)), np.eye(4, 2, dtype=bool)), "finite numbers"),
        (lambda: lira_scores([1.0], np.ones((4, 1)), [[1], [0], [0], [0]]), "at least 2 shadow models inside"),
        (lambda: lira_scores([1.0], np.ones((4, 1)), np.ones((4, 1))), "at least 2 shadow models outside"),
        (lambda: lira_scores([1.0], np.ones((4, 1)), [[2], [0], [0], [0]]), "inside is True or False"),
        (lambda: lira_scores(["a"], np.ones((4, 1)), np.ones((4, 1))), "are numbers"),
        (lambda: rmia_scores([0.5], np.ones((2, 1)), np.ones((2, 1))), "trained without it"),
        (lambda: rmia_scores([0.5], np.ones((2, 1)), np.zeros((2, 1)), offline=False), "trained with it"),
        (
            lambda: quantile_scores([0.5], np.ones((1, 1)), np.ones(1, bool), draw=np.random.default_rng(0)),
            "at least 40",
        ),
    ],
)
def test_numbers_that_do_not_fit_are_refused_with_a_sentence(call, sentence):
    with pytest.raises(BadInput, match=sentence):
        call()


@pytest.mark.parametrize("wrong", [-0.1, 1.1, True, "0.3", float("nan")])
def test_an_offline_factor_lies_between_0_and_1(wrong):
    with pytest.raises(BadNumber, match="from 0 to 1"):
        rmia_scores([0.5], np.ones((2, 1)), np.zeros((2, 1)), offline_a=wrong)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "1"])
def test_a_ratio_of_ratios_is_above_0(wrong):
    with pytest.raises(BadNumber, match="gamma"):
        rmia_scores([0.5], np.ones((2, 1)), np.zeros((2, 1)), gamma=wrong)
