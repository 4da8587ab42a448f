"""Worst-case inputs are searched for by several divergences, and the audit of the worst pair uses fresh samples."""

import math

import numpy as np
import pytest

import cloister as cl
from cloister import attack
from cloister.attack.mechanisms import worst_case
from cloister.privacy.errors import BadInput, BadNumber

PAIRS = [([value] * 5, [value] * 4) for value in range(16)]


def counting(scale, fault=lambda rows, noisy: noisy):
    """A noisy count of rows, whose fault may depend on the rows."""

    def draw(rows, n):
        noisy = len(rows) + np.random.default_rng().laplace(scale=scale, size=n)
        return fault(rows, noisy)

    return attack.Batched(draw)


def test_a_fault_on_one_pair_of_sixteen_is_found_and_refuted():
    faulty = counting(
        1.0, lambda rows, noisy: np.round(noisy) if rows[0] != 13 else len(rows) + (noisy - len(rows)) / 8
    )
    assert not attack.audit(faulty, *PAIRS[0], cl.epsilon(1), n=20_000).broken
    found = attack.audit_worst(faulty, PAIRS, cl.epsilon(1), n=20_000)
    assert found.broken
    assert found.worst.left[0] == 13
    assert len(found.candidates) == len(PAIRS)
    assert found.worst.samples > found.candidates[-1].samples  # better pairs get more samples
    assert "the worst of 16 pairs of inputs, by " in str(found)
    assert "left [13, 13, 13, 13, 13]" in str(found)


def test_an_honest_mechanism_is_not_accused_however_many_pairs_are_tried():
    honest = counting(1.0, lambda rows, noisy: np.round(noisy))  # the last bits of the raw numbers show the count
    accused = sum(attack.audit_worst(honest, PAIRS, cl.epsilon(1), n=4_000, search=200).broken for _ in range(20))
    assert accused <= 4  # each with probability 5 % at most; more than 4 of 20 comes once in 400


@pytest.mark.parametrize("epsilon", [0.5, 1, 3])
def test_randomised_response_reaches_every_divergence_that_a_claim_allows(epsilon):
    likely = math.exp(epsilon) / (1 + math.exp(epsilon))
    laws = np.array([likely, 1 - likely]), np.array([1 - likely, likely])
    for name, value in worst_case._divergences(*laws).items():
        assert value == pytest.approx(worst_case._most(name, cl.epsilon(epsilon))), name


def test_gaussian_laws_are_within_what_a_rho_allows():
    grid = np.linspace(-12, 12, 20_001)
    left, right = (np.exp(-((grid - shift) ** 2) / 2) for shift in (0.0, 0.8))
    allowed = cl.rho("0.32")  # 0.8²/2
    found = worst_case._divergences(left / left.sum(), right / right.sum())
    for name, value in found.items():
        assert value <= worst_case._most(name, allowed) * (1 + 1e-6), name
    assert found["Rényi"] == pytest.approx(worst_case._most("Rényi", allowed), rel=1e-6)


def test_what_sampling_alone_shows_is_taken_off():
    same = attack.Batched(lambda rows, n: np.random.default_rng().normal(size=n))
    tried = worst_case._tried(same, [0], [1], cl.epsilon(1), 20_000)
    assert tried.strain < 0.2


def test_patterns_are_neighbours_and_differ():
    pairs = attack.neighbour_patterns(4, step=2.0)
    assert len(pairs) == len({str(pair) for pair in pairs}) >= 12
    assert all(0 < np.abs(np.subtract(left, right)).max() <= 2.0 for left, right in pairs)
    assert attack.neighbour_patterns(1) == [([0.0], [1.0]), ([0.0], [-1.0]), ([10.0], [11.0]), ([10.0], [9.0])]


def test_noise_that_forgets_the_largest_of_many_counts_is_found_among_the_patterns():
    def largest(counts, n):  # the index of the largest count, whose noise is that of one count for all
        draw = np.random.default_rng()
        return np.argmax(np.asarray(counts) + draw.laplace(scale=0.5, size=(n, len(counts))), axis=1)

    found = attack.audit_worst(attack.Batched(largest), attack.neighbour_patterns(5), cl.epsilon(1), n=40_000)
    assert found.broken


def test_wrong_arguments_are_refused():
    with pytest.raises(BadInput, match="at least one"):
        attack.audit_worst(counting(1.0), [], cl.epsilon(1))
    with pytest.raises(BadInput, match="left, right"):
        attack.audit_worst(counting(1.0), [[1, 2, 3]], cl.epsilon(1))
    with pytest.raises(BadNumber, match="search"):
        attack.audit_worst(counting(1.0), PAIRS, cl.epsilon(1), search=10)
    with pytest.raises(BadInput, match="callable"):
        attack.audit_worst(3, PAIRS, cl.epsilon(1))
    with pytest.raises(BadNumber, match="width"):
        attack.neighbour_patterns(0)
    with pytest.raises(BadNumber, match="step"):
        attack.neighbour_patterns(2, step=math.inf)
