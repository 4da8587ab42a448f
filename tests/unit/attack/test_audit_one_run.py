"""One-run audits: valid for true claims, and sharp for false ones."""

import math

import numpy as np
import pytest

from cloister import epsilon, rho
from cloister.attack.mechanisms.audit_one_run import audit_one_run, epsilon_from_guesses
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, BadProbability
from cloister.privacy.mechanisms import DiscreteGaussian, KaryResponse
from cloister.privacy.noise import SeededSource


def answered(amount, seed, canaries=1000, guesses=None, claim=None):
    """Audit randomised response of a known epsilon: the hardest mechanism there is."""
    law = KaryResponse.for_loss(2, epsilon(amount, relation="replace-one"))
    source = SeededSource(f"answers {seed}")
    return audit_one_run(
        lambda inside: np.array([law.release(int(one), source) for one in inside]), lambda model: model, canaries,
        claim or epsilon(amount), guesses=guesses, source=SeededSource(f"coins {seed}"),
    )  # fmt: skip


@pytest.mark.parametrize("amount", [1, 4])
def test_a_true_claim_survives_and_a_false_one_is_refuted(amount):
    assert sum(answered(amount, seed).broken for seed in range(20)) <= 3
    assert answered(amount, 0, claim=epsilon(amount / 4)).broken


@pytest.mark.parametrize(("amount", "least"), [(1, 0.5), (4, 2.2), (8, 4.0)])
def test_a_thousand_canaries_prove_much_of_the_loss(amount, least):
    bounds = [answered(amount, seed, guesses=800).lower_bound for seed in range(5)]
    assert least <= np.median(bounds) <= amount


def test_the_bound_without_delta_is_that_of_a_binomial():
    # All of r right: e^epsilon/(1 + e^epsilon) = 0.05^(1/r).
    chance = 0.05 ** (1 / 100)
    exact = math.log(chance / (1 - chance))
    assert math.isclose(epsilon_from_guesses(100, 100, 100, 0.0, 0.95), exact, rel_tol=1e-9)
    assert epsilon_from_guesses(50, 100, 100, 0.0, 0.95) == 0
    assert epsilon_from_guesses(100, 100, 1000, 1e-5, 0.95) < exact


def test_a_rho_is_audited_through_its_curve():
    law = DiscreteGaussian.for_loss(1, rho(2))
    draw = SeededSource("noise")

    def train(inside):
        return inside.astype(np.int64) + law.release(np.zeros(1000, dtype=np.int64), draw)

    true = audit_one_run(train, lambda model: model, 1000, rho(2), source=SeededSource(3))
    assert true.verdict == "holds"
    false = audit_one_run(train, lambda model: model, 1000, rho("0.02"), guesses=100, source=SeededSource(3))
    assert false.verdict == "broken"
    assert "of 100 guesses right, 1000 canaries" in str(false)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"canaries": 5}, BadNumber),
        ({"guesses": 1}, BadNumber),
        ({"confidence": 1}, BadProbability),
        ({"claim": 1}, BadLoss),
        ({"score": lambda model: [1.0]}, BadInput),
    ],
)
def test_wrong_arguments_are_refused(changed, error):
    told = {"train": lambda inside: inside, "score": lambda model: model, "canaries": 20, "claim": epsilon(1)}
    with pytest.raises(error):
        audit_one_run(**(told | changed))
