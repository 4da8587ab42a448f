"""Naive Bayes from a survey's matched reports: better than the most frequent class, or it says that it cannot tell."""

from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.analysis.linked.naive_bayes import MatchedNaiveBayes, bayes_from_matched
from cloister.privacy.errors import BadCandidates, BadInput, NotPrivate
from cloister.privacy.noise import SeededSource

SIZES = {"risk": 2, "diet": 3, "sport": 2, "region": 4}


def questions(amount: Any) -> dict[str, local.Question]:
    return {
        name: local.Question(name, [local.DirectEncoding.for_loss(size, local.epsilon(amount))], list("abcd")[:size])
        for name, size in SIZES.items()
    }


def crowd(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    risk = (rng.random(n) < 0.4).astype(np.int64)
    diet = np.where(risk == 1, rng.choice(3, n, p=[0.7, 0.2, 0.1]), rng.choice(3, n, p=[0.15, 0.35, 0.5]))
    sport = np.where(risk == 1, rng.random(n) < 0.25, rng.random(n) < 0.7).astype(np.int64)
    return {"risk": risk, "diet": diet, "sport": sport, "region": rng.integers(0, 4, n)}


def submitted(asked: dict[str, local.Question], truth: dict[str, Any], seed: int) -> list[Any]:
    columns = []
    for place, (name, question) in enumerate(asked.items()):
        mechanism = question.levels[0]
        wire = mechanism.encode(mechanism.perturb(truth[name], SeededSource(10 * seed + place)))
        columns.append([(str(mechanism.epsilon), row.tobytes()) for row in wire])
    return [dict(zip(asked, row, strict=True)) for row in zip(*columns, strict=True)]


def rows(truth: dict[str, Any]) -> Any:
    return np.array([list("abcd")])[0][np.stack([truth[name] for name in ("diet", "sport", "region")], axis=1)]


def fitted(amount: Any, n: int = 20_000) -> MatchedNaiveBayes:
    asked = questions(amount)
    features = [asked[name] for name in ("diet", "sport", "region")]
    return bayes_from_matched(asked["risk"], features, submitted(asked, crowd(n, 1), 1), private=False)


def test_it_beats_the_most_frequent_class_clearly_at_epsilon_four() -> None:
    model = fitted(4)
    truth = crowd(5_000, 2)
    right = model.score(rows(truth), np.array(["a", "b"])[truth["risk"]])
    majority = 1 - truth["risk"].mean()
    assert right > majority + 0.15
    assert model.telling_ == ["diet", "sport"]
    assert model.majority_ == pytest.approx(0.6, abs=0.03)
    assert model.expected_accuracy_ == pytest.approx(right, abs=0.05)
    assert "diet, sport" in model.verdict_
    assert model.predict_proba(rows(truth)[:7]).sum(axis=1) == pytest.approx(np.ones(7))
    assert model.class_prior_ == pytest.approx([0.6, 0.4], abs=0.03)
    assert model.feature_prob_["sport"][:, 1] == pytest.approx([0.7, 0.25], abs=0.05)


def test_at_epsilon_a_tenth_it_says_that_it_cannot_tell() -> None:
    model = fitted("0.1")
    assert model.telling_ == []
    assert model.verdict_.startswith("Cannot tell risk")
    assert set(model.predict(rows(crowd(200, 3)))) == {model.classes_[model.class_prior_.argmax()]}
    assert model.expected_accuracy_ == model.majority_
    with pytest.raises(NotPrivate):
        model.require_private()


def test_who_skipped_a_question_counts_for_the_others() -> None:
    asked = questions(4)
    sent = submitted(asked, crowd(6_000, 4), 4)
    for place, one in enumerate(sent):
        del one[("diet", "sport", "region", "risk")[place % 4]]
    model = bayes_from_matched(asked["risk"], [asked["diet"], asked["sport"]], sent)
    assert model.people_ == {"diet": 3_000, "sport": 3_000}
    assert model.require_private() is model


def test_strange_questions_and_rows_are_refused() -> None:
    asked = questions(4)
    age = local.Question("age", [local.Duchi.for_loss((0, 1), local.epsilon(1))])
    for label, features in ((asked["risk"], [age]), (age, [asked["risk"]]), (asked["risk"], []), (asked["risk"],) * 2):
        with pytest.raises(BadInput):
            bayes_from_matched(label, features if isinstance(features, list) else [features], [])
    with pytest.raises(BadInput, match="nothing to estimate"):
        bayes_from_matched(asked["risk"], [asked["diet"]], [])
    model = fitted(4, 2_000)
    with pytest.raises(BadInput, match="features"):
        model.predict([["a", "b"]])
    with pytest.raises(BadCandidates):
        model.predict([["a", "b", "z"]])
