"""Sets, rankings, several questions and memoised answers: drawn from the verified law, erring as stated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from cloister import local
from cloister.attack.queries.averaging import guess
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

N = 100_000


def mechanisms(amount: str) -> dict[str, tuple[local.Oracle, Any, int]]:
    """Each with an answer, and that answer's number in the law."""
    loss, half = local.epsilon(amount), local.epsilon(amount).split(2)
    return {
        "one of set": (local.OneOfSet.for_loss(5, 3, loss), {0, 3}, 0b01001),
        "one of a full set": (local.OneOfSet.for_loss(5, 3, loss), {0, 3, 4}, 0b11001),
        "bits of set": (local.SetBits.for_loss(5, 3, loss), {1, 3, 4}, 0b11010),
        "bits of nothing": (local.SetBits.for_loss(4, 2, loss), set(), 0),
        "padded bits": (local.PaddedSample(4, 2, local.UnaryEncoding.optimised(5, loss)), {2}, 0b0100),
        "padded hash": (local.PaddedSample(5, 2, local.LocalHashing.for_loss(6, loss, buckets=3)), {1, 4}, 0b10010),
        "pair": (local.PairOrder.for_loss(4, loss), [3, 1, 0, 2], 20),
        "place": (local.ItemAtPlace.for_loss(4, loss), [3, 1, 0, 2], 20),
        "memoised": (local.Memoised.direct(5, lifetime=loss, report=half), 2, 2),
        "memoised bits": (local.Memoised.unary(4, lifetime=loss, report=half), 2, 2),
    }


def numbers(mechanism: local.Oracle, answer: Any) -> NDArray[np.int64]:
    """Reports on one answer, as the numbers that the wire's bytes spell."""
    people = np.tile(answer, (N, 1)) if isinstance(answer, list) else [answer] * N
    wire = mechanism.encode(mechanism.perturb(people, SeededSource(f"{mechanism.name} {answer}"))).astype(np.int64)
    return np.asarray((wire << (8 * np.arange(wire.shape[1]))).sum(axis=1))


def surprise(seen: NDArray[np.int64], law: Any) -> float:
    """The p-value of Pearson's test of reports against a law."""
    chances = np.array([float(chance) for chance in law])
    counts = np.bincount(seen, minlength=len(chances))
    if counts[chances == 0].any():
        return 0.0
    rare = N * chances < 20  # taken together
    seen_of, expected = (np.append(one[~rare], one[rare].sum()) for one in (counts, N * chances))
    some = expected > 0
    statistic = (np.square(seen_of[some] - expected[some]) / expected[some]).sum()
    return float(chi2.sf(float(statistic), some.sum() - 1))


@pytest.mark.parametrize("name", mechanisms("2"))
def test_reports_follow_the_verified_law_and_no_other(name: str) -> None:
    mechanism, answer, number = mechanisms("2")[name]
    seen = numbers(mechanism, answer)
    assert surprise(seen, mechanism.law(number)) > 1e-7
    if name == "bits of nothing":  # all coins, whatever the epsilon is: only the shape of q tells
        return
    for other in ("1.8", "2.2"):
        assert surprise(seen, mechanisms(other)[name][0].law(number)) < 1e-7


SETS: dict[str, Callable[[int, int, Any], local.Oracle]] = {
    "one": local.OneOfSet.for_loss,
    "bits": local.SetBits.for_loss,
    "padded": local.PaddedSample.for_loss,
}


@pytest.mark.parametrize("amount", ["0.5", "3"])
@pytest.mark.parametrize("name", SETS)
def test_the_squared_error_of_sets_is_that_of_the_closed_form(name: str, amount: str) -> None:
    options, people = 200, 3000
    mechanism = SETS[name](options, 4, local.epsilon(amount))
    chosen = np.zeros((people, options), dtype=bool)
    for person in range(people):  # from none to four, the first options more often
        chosen[person, [(person * step) % (40 * step + 1) for step in range(person % 5)]] = True
    truth, source, errors = chosen.mean(axis=0), SeededSource(f"sets {name}"), []
    for _ in range(20):
        estimate = mechanism.estimate(mechanism.aggregate(mechanism.perturb(chosen, source)))
        errors.append(np.square(estimate.frequencies - truth))
    # 4,000 squared errors, some of them correlated: a scale 10 % off would be 20 % off here.
    assert np.mean(errors) / mechanism.variance(truth, people).mean() == pytest.approx(1, abs=0.09)


@pytest.mark.parametrize("maker", [local.PairOrder.for_loss, local.ItemAtPlace.for_loss])
def test_scores_and_matrices_are_unbiased_and_their_intervals_hold_the_truth(maker: Any) -> None:
    mechanism = maker(4, local.epsilon(2))
    people = np.array([[0, 1, 2, 3]] * 900 + [[2, 0, 3, 1]] * 600)
    scores = np.array([3 * 0.6 + 2 * 0.4, 2 * 0.6, 0.6 + 3 * 0.4, 0.4])
    source, held, found, squares = SeededSource(6), [], [], []
    for _ in range(400):
        estimate = mechanism.estimate(mechanism.aggregate(mechanism.perturb(people, source)), "0.9")
        low, high = estimate.interval
        held.append((low <= scores) & (scores <= high))
        found.append(estimate.scores)
        squares.append(((estimate.scores - scores) / estimate.standard_error) ** 2)
    assert np.mean(held, axis=0) == pytest.approx(0.9, abs=0.075)
    off = np.abs(np.mean(found, axis=0) - scores)
    assert (off < 4.5 * np.std(found, axis=0) / 20).all()
    assert np.mean(squares) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("strategy", ["split", "sample", 2])
def test_errors_of_several_questions_are_as_large_as_they_say(strategy: Any) -> None:
    people = 1200
    asked = local.Attributes.for_loss({"a": 3, "b": 2, "x": (0, 10)}, local.epsilon(6), people, strategy)
    who = np.arange(people)
    answers = {"a": who % 3, "b": who % 5 == 0, "x": who % 11 * 1.0}
    source, squares, means = SeededSource(f"several {strategy}"), [], []
    for _ in range(300):
        found = asked.estimate(asked.aggregate(asked.perturb(answers, source)))
        means.append([found["a"].frequencies[1], found["b"].frequencies[1], found["x"].mean])
        errors = [found["a"].standard_error[1], found["b"].standard_error[1], found["x"].standard_error]
        squares.append(((np.array(means[-1]) - [1 / 3, 0.2, 5.0]) / errors) ** 2)
    truth = np.array([np.mean(who % 3 == 1), 0.2, np.mean(who % 11)])
    assert (np.abs(np.mean(means, axis=0) - truth) < 4.5 * np.std(means, axis=0) / np.sqrt(300)).all()
    assert np.mean(squares, axis=0) == pytest.approx(1, abs=0.45)


def test_the_best_strategy_really_errs_least() -> None:
    people, loss = 2000, local.epsilon(1)
    questions = {f"q{place}": 4 for place in range(3)}
    answers = {name: np.arange(people) % 4 for name in questions}
    errors = {}
    for strategy in ("best", "split"):
        asked = local.Attributes.for_loss(questions, loss, people, strategy)  # type: ignore[arg-type]
        source, squares = SeededSource("best"), []
        for _ in range(60):
            found = asked.estimate(asked.aggregate(asked.perturb(answers, source)))
            squares += [np.square(found[name].frequencies - 0.25) for name in questions]
        errors[strategy] = np.sqrt(np.mean(squares))
        assert errors[strategy] == pytest.approx(asked.chosen.error, rel=0.1)
    assert errors["best"] < 0.8 * errors["split"]


@pytest.mark.parametrize("encoding", ["direct", "unary"])
def test_intervals_of_memoised_answers_hold_the_truth(encoding: str) -> None:
    maker = getattr(local.Memoised, encoding)
    mechanism = maker(4, lifetime=local.epsilon(3), report=local.epsilon(1))
    values, truth = np.repeat([0, 1], [1500, 500]), np.array([0.75, 0.25, 0, 0])
    source, held = SeededSource(7), []
    for _ in range(400):
        low, high = mechanism.estimate(mechanism.aggregate(mechanism.perturb(values, source)), "0.9").interval
        held.append((low <= truth) & (truth <= high))
    assert np.mean(held, axis=0) == pytest.approx(0.9, abs=0.075)


def test_the_more_fresh_reports_the_surer_the_guess() -> None:
    fresh = local.UnaryEncoding.optimised(8, local.epsilon("0.5"))
    source, hits = SeededSource("surer"), []
    for rounds in (1, 30, 1000):
        tables = [fresh.aggregate(fresh.perturb(np.full(rounds, 3), source)).table for _ in range(100)]
        hits.append(np.mean([guess(table, rounds).value == 3 for table in tables]))
    assert hits[0] < 0.45 < hits[1] < hits[2]
    assert hits[2] == 1
