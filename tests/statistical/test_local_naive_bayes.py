"""Models from local reports learn what is there, hide what was said, and err little when epsilon is large."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from cloister import local
from cloister.lessons.local_accuracy import without_privacy
from cloister.local.analysis.naive_bayes import LocalNaiveBayes
from cloister.local.base.columns import Choices, Cut
from cloister.local.mechanisms.labelled import STEPS, LabelledNumber
from cloister.local.survey.form import form_of
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

CATEGORIES = [list("abc"), list("uvwx"), list("mn"), list("pqrs"), list("yz")]


def survey(people: int, seed: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Five questions, of which four have to do with the class; 60 % are of class 0."""
    random = np.random.default_rng(seed)
    y = (random.random(people) < 0.4).astype(np.int64)
    rows = []
    for place, values in enumerate(CATEGORIES):
        lean = 0.35 if place < 4 else 0.0
        steered = random.random(people) < lean
        own = np.where(y, len(values) - 1, 0)
        rows.append(np.array(values)[np.where(steered, own, random.integers(0, len(values), people))])
    return np.column_stack(rows), y


def accuracy(model: LocalNaiveBayes, people: int, seed: int) -> tuple[float, float, float]:
    """Of the model, of the same without privacy, and of always saying the most common class."""
    rows, y = survey(people, seed)
    asked, told = survey(20_000, 1000 + seed)
    model.fit(rows, y)
    plain = without_privacy(model.form_, rows, y).scores(model.form_.read(asked)).argmax(axis=1)
    return model.score(asked, told), float((plain == told).mean()), float((told == 0).mean())


@pytest.mark.parametrize("oracle", ["DE", "THE", "SUE", "OUE", "advised"])
def test_it_beats_the_most_common_class_at_epsilon_two(oracle: str) -> None:
    got = [
        accuracy(
            LocalNaiveBayes(2, classes=[0, 1], categories=CATEGORIES, oracle=oracle, random_state=seed), 20_000, seed
        )
        for seed in range(3)
    ]
    private, _, majority = np.mean(got, axis=0)
    assert private > majority + 0.03


def test_at_a_large_epsilon_it_is_as_good_as_without_privacy() -> None:
    for amount, most in ((5, 0.02), (12, 0.01)):
        model = LocalNaiveBayes(amount, classes=[0, 1], categories=CATEGORIES, random_state=3)
        private, plain, majority = accuracy(model, 40_000, 3)
        assert plain > majority + 0.06
        assert private > plain - most


def test_at_a_tiny_epsilon_it_says_no_more_than_the_classes_shares() -> None:
    model = LocalNaiveBayes("0.01", classes=[0, 1], categories=CATEGORIES, random_state=5)
    private, plain, _ = accuracy(model, 5_000, 5)
    assert private < plain - 0.03


def test_accuracy_grows_with_epsilon_and_with_people() -> None:
    def mean(amount: str, people: int) -> float:
        models = (
            LocalNaiveBayes(amount, classes=[0, 1], categories=CATEGORIES, random_state=seed) for seed in range(4)
        )
        return float(np.mean([accuracy(model, people, seed)[0] for seed, model in enumerate(models)]))

    low, high, more = mean("0.5", 4_000), mean("4", 4_000), mean("0.5", 100_000)
    assert high > low + 0.02
    assert more > low + 0.02


@pytest.mark.parametrize("variance", ["shared", "own"])
def test_gaussian_features_beat_the_most_common_class(variance: str) -> None:
    random = np.random.default_rng(4)
    y = (random.random(60_000) < 0.4).astype(np.int64)
    rows = random.normal(0, 1, (y.size, 3)) + np.array([1.0, -0.8, 0.0]) * y[:, None]
    model = LocalNaiveBayes(
        3, classes=[0, 1], bounds=[(-4, 4)] * 3, bins="gaussian", variance=variance, random_state=2
    ).fit(rows[:50_000], y[:50_000])
    plain = without_privacy(model.form_, rows[:50_000], y[:50_000]).scores(model.form_.read(rows[50_000:]))
    best = float((plain.argmax(axis=1) == y[50_000:]).mean())
    assert model.score(rows[50_000:], y[50_000:]) > max(0.66, best - 0.05)


def test_bins_beat_normal_laws_at_a_small_epsilon() -> None:
    """Figure 5.5's finding: discretised features need less of epsilon than moments do."""
    random = np.random.default_rng(6)
    y = random.integers(0, 2, 24_000)
    rows = random.normal(0, 1, (y.size, 4)) + 0.9 * y[:, None]
    scores = {}
    for bins in (2, "gaussian"):
        facts: dict[str, Any] = {"classes": [0, 1], "bounds": [(-4.0, 5.0)] * 4, "bins": bins}
        models = [LocalNaiveBayes("0.7", **facts, random_state=seed).fit(rows[4000:], y[4000:]) for seed in range(5)]
        scores[bins] = float(np.mean([model.score(rows[:4000], y[:4000]) for model in models]))
    assert scores[2] > scores["gaussian"]


# What a report tells about its sender.


def test_a_report_follows_the_listed_law_of_its_form_whoever_sent_it() -> None:
    """`verify` lists this law and bounds its ratios; here devices are seen to draw from it, and from no other."""
    people = 120_000
    form = form_of(Choices((0, 1)), [Choices(("a", "b")), Cut((0.0,))], local.epsilon(1), "OUE")
    assert local.verify(form).holds
    starts = np.cumsum([0, *(question.oracle.outputs for question in form.questions)])
    for value, (row, label) in enumerate([(("a", -1.0), 0), (("a", -1.0), 1), (("b", -1.0), 0)]):
        model = LocalNaiveBayes(1, classes=[0, 1], categories=[["a", "b"], None], edges=[None, (0.0,)], oracle="OUE")
        answers = model.report([list(row)] * people, [label] * people, SeededSource(f"law {value}"))
        seen = np.concatenate(
            [
                starts[one.question] + form.questions[one.question].oracle.encode(one.reports)[:, 0].astype(np.int64)
                for one in answers
            ]
        )
        counts = np.bincount(seen, minlength=form.outputs)
        assert surprise(counts, form.law(value)) > 1e-7
        assert surprise(counts, form.law(value ^ 1)) < 1e-7  # the other class is told apart by a million, not by one


def surprise(counts: NDArray[Any], law: Any) -> float:
    expected = counts.sum() * np.array([float(chance) for chance in law])
    return float(chi2.sf(np.square(counts - expected).__truediv__(expected).sum(), len(expected) - 1))


def test_a_label_is_hidden_whatever_the_number() -> None:
    """No event about a labelled report is more than e^epsilon likelier for one class than for the other."""
    people, amount = 60_000, 1.0
    hidden = LabelledNumber(2, 1, local.epsilon("1"))
    assert local.verify(hidden).holds
    first, second = (
        hidden.perturb((np.full(people, label), np.ones(people)), SeededSource(f"label {label}")).data / STEPS
        for label in (0, 1)
    )
    # The likeliest tell is the sign of the difference; quadrants and tails are looked at as well.
    events = [lambda v: v[:, 0] > v[:, 1], lambda v: (v[:, 0] > 1) & (v[:, 1] < 0), lambda v: v[:, 0] - v[:, 1] > 4]
    for event in events:
        a, b = float(event(first).mean()), float(event(second).mean())
        doubt = 4 * ((1 - a) / (a * people) + (1 - b) / (b * people)) ** 0.5
        assert np.log(a / b) < amount + doubt
    tail = np.log(float(events[1](first).mean()) / float(events[1](second).mean()))
    assert tail > 0.9 * amount  # and the test can see it: half the noise would show twice this
