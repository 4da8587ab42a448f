"""What an output policy takes from an attacker: membership inference and the extraction of a linear model.

The attacked models have no privacy. The figures show what a policy does for them, and that it is no guarantee.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import cloister as cl
from cloister import learn
from cloister.learn import serving
from cloister.privacy.errors import OutputRefused

FEATURES = 12


def teacher() -> Any:
    """A linear model of twelve features, without privacy."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(2000, FEATURES))
    labels = (rows @ random.normal(size=FEATURES) + random.normal(size=2000) > 0.3).astype(int)
    return LogisticRegression().fit(rows, labels)


# Extraction.


def extract(service: Any) -> tuple[np.ndarray, float]:
    """Solve for coefficients and intercept from the log-odds of d + 1 rows."""
    asked = np.vstack([np.zeros(FEATURES), np.eye(FEATURES)])
    shown = np.clip(service.predict_proba(asked)[:, 1], 1e-9, 1 - 1e-9)
    odds = np.log(shown / (1 - shown))
    return odds[1:] - odds[0], float(odds[0])


def test_full_probabilities_give_a_linear_model_away_in_d_plus_1_rows() -> None:
    model = teacher()
    service = learn.serve(model, serving.full(), queries=FEATURES + 1)
    weights, intercept = extract(service)
    np.testing.assert_allclose(weights, model.coef_[0], atol=1e-8)
    assert intercept == pytest.approx(model.intercept_[0], abs=1e-8)
    assert service.left == 0


def test_rounding_leaves_an_error_and_labels_refuse_the_attack() -> None:
    model = teacher()

    def error(digits: int) -> float:
        weights, _ = extract(learn.serve(model, serving.rounded(digits)))
        return float(np.abs(weights - model.coef_[0]).max())

    assert 1e-5 < error(4) < error(2) < error(1)
    assert error(1) > 0.1
    service = learn.serve(model, serving.label_only(), queries=FEATURES + 1)
    with pytest.raises(OutputRefused, match="predict_proba is not shown"):
        extract(service)
    assert service.left == FEATURES + 1


def agreement(model: Any, queries: int) -> float:
    """Share of rows on which a copy, trained on labels that were asked for, answers as the model does."""
    random = np.random.default_rng(1)
    service = learn.serve(model, serving.label_only(), queries=queries)
    asked, tried = random.normal(size=(queries, FEATURES)), random.normal(size=(5000, FEATURES))
    copy = LogisticRegression(C=100).fit(asked, service.predict(asked))
    return float((copy.predict(tried) == model.predict(tried)).mean())


def test_labels_still_give_a_model_away_to_many_queries_so_that_a_limit_is_needed() -> None:
    model = teacher()
    assert agreement(model, FEATURES + 1) < 0.85
    assert agreement(model, 3000) > 0.97


# Membership inference.


def membership(policy: Any, runs: int = 12) -> float:
    """Advantage of the best threshold on what the policy shows of a row's own label: hits less false alarms.

    The model is fitted to 40 rows of 60 features with labels at random, so it has learned them by heart.
    """
    inside, outside = [], []
    for seed in range(runs):
        random = np.random.default_rng(seed)
        rows, labels = random.normal(size=(80, 60)), random.integers(2, size=80)
        model = LogisticRegression().fit(rows[:40], labels[:40])
        scores = seen(learn.serve(model, policy), rows, labels)
        inside.append(scores[:40])
        outside.append(scores[40:])
    scores = np.concatenate([*inside, *outside])
    ins, outs = np.concatenate(inside), np.concatenate(outside)
    return max(float((ins >= cut).mean() - (outs >= cut).mean()) for cut in np.unique(scores))


def seen(service: Any, rows: Any, labels: Any) -> Any:
    """Return an attacker's score of each row with its label: the probability that is shown, or whether it is right."""
    if not service.policy.shows("predict_proba"):
        return (service.predict(rows) == labels).astype(float)
    return service.predict_proba(rows)[np.arange(len(rows)), labels]


def test_the_advantage_of_membership_inference_falls_with_the_policy() -> None:
    shown = {policy: membership(policy) for policy in ("full", "rounded 2", "rounded 1", "label")}
    assert shown["full"] >= shown["rounded 2"] >= shown["rounded 1"] >= shown["label"]
    assert shown["full"] > shown["label"] + 0.1
    # No guarantee: a model that has learned its rows by heart gives them away by labels too.
    assert shown["label"] > 0.4


def test_a_private_model_keeps_the_advantage_small_under_every_policy(tmp_path: Path) -> None:
    random, advantages = np.random.default_rng(7), []
    with cl.Ledger.in_folder(tmp_path) as book, warnings.catch_warnings():
        for _ in range(6):
            rows, labels = random.normal(size=(80, 60)).clip(-3, 3), random.integers(2, size=80)
            model = learn.LogisticRegression(
                cl.epsilon("0.5", delta="1e-6"), bounds=(-3, 3), classes=[0, 1], ledger=book, method="gradient"
            ).fit(rows[:40], labels[:40])
            right = seen(learn.serve(model, "full"), rows, labels)
            advantages.append((right[:40] > 0.5).mean() - (right[40:] > 0.5).mean())
    assert abs(np.mean(advantages)) < 0.25
