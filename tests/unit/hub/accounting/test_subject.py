"""The card for a data subject promises what the loss promises, and never more."""

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.hub.accounting.subject_card import PRIORS, card, cards, percent
from cloister.privacy.ledger import Balance, Rules
from cloister.privacy.loss import Loss, epsilon, rho


def words(found):
    return " ".join(found.sentences)


def test_a_pure_epsilon_of_one_moves_fifty_fifty_to_seventy_three():
    found = card(epsilon(1))
    half = found.taking_part[PRIORS.index(Fraction(1, 2))]
    assert float(half.most) == pytest.approx(math.e / (1 + math.e))
    assert half.words == ("50 %", "26.8 %", "73.2 %")
    assert "at most 73.2 % sure" in words(found)
    assert "factor of at most 2.72" in words(found)
    assert found.delta == 0
    assert "delta" not in words(found)


def test_nothing_spent_says_that_nothing_was_learned():
    for nothing in (Loss.nothing("epsilon"), Loss.nothing("rho")):
        found = card(nothing)
        assert "Nothing has been released" in words(found)
        assert found.guess == Fraction(1, 2)
        assert all(one.most == one.prior == one.least for one in (*found.taking_part, *found.fact))


@given(st.fractions(Fraction(1, 1000), 20), st.sampled_from(PRIORS))
def test_beliefs_keep_to_the_odds(amount, prior):
    found = next(one for one in card(epsilon(amount)).taking_part if one.prior == prior)

    def odds(share):
        return share / (1 - share)

    limit = Fraction(math.exp(amount)) * (1 + Fraction(1, 10**9))
    assert odds(found.most) / odds(prior) <= limit
    assert odds(prior) / odds(found.least) <= limit
    assert found.least < prior < found.most < 1


def likelihoods(amount, delta):
    """The worst (epsilon, delta) release there is: reveals all with probability delta, else randomised response."""
    keep = math.exp(amount) / (1 + math.exp(amount))
    yes = {"in!": delta, "in": (1 - delta) * keep, "out": (1 - delta) * (1 - keep), "out!": 0.0}
    no = {"in!": 0.0, "in": (1 - delta) * (1 - keep), "out": (1 - delta) * keep, "out!": delta}
    return yes, no


@pytest.mark.parametrize(("amount", "delta"), [*product((0.1, 1, 3), (0.001, 0.1))])
def test_the_worst_release_stays_within_the_card_except_with_probability_delta(amount, delta):
    found = card(epsilon(amount, delta=delta))
    yes, no = likelihoods(amount, delta)
    for belief in found.taking_part:
        prior, beyond = float(belief.prior), 0.0
        for outcome in yes:
            seen = prior * yes[outcome] + (1 - prior) * no[outcome]
            after = prior * yes[outcome] / seen
            if not float(belief.least) - 1e-9 <= after <= float(belief.most) + 1e-9:
                beyond += seen
        assert beyond <= float(found.delta) + 1e-12
        assert beyond > 0  # the card speaks of delta because it is needed
    right = sum(max(yes[one], no[one]) for one in yes) / 2
    assert right == pytest.approx(float(found.guess))  # tight: no smaller share would be true


@pytest.mark.parametrize("amount", [0.001, 0.05, 0.5, 2])
def test_the_gaussian_stays_within_the_guesses_that_its_rho_allows(amount):
    # A Gaussian of that rho has means sqrt(2 rho) apart; the best guess from fifty-fifty is right Phi(sqrt(rho/2)).
    right = 0.5 * (1 + math.erf(math.sqrt(amount / 2) / math.sqrt(2)))
    found = card(rho(amount))
    assert right <= float(found.guess) < 1
    assert float(found.guess) <= (1 + math.sqrt(amount / 2)) / 2 + 1e-12
    assert found.delta == Fraction(1, 10**6)
    assert "1 in 1,000,000" in words(found)


def test_a_rho_is_read_at_the_delta_that_the_budget_set_aside_for_it():
    rules = Rules.of("visits", epsilon(2, delta="1e-7"))
    balance = Balance.at_opening(rules)
    now, ever = cards(Balance(rules, rules.cap))
    assert now == ever
    assert float(ever.epsilon) == pytest.approx(2, rel=1e-6)
    assert ever.delta == Fraction(1, 10**7)  # half converts, half was spent
    assert cards(balance)[0].epsilon == 0


def test_a_fact_about_somebody_known_to_be_in_the_data_is_protected_less():
    found = card(epsilon(1))
    assert found.fact_epsilon == 2
    assert found.fact[2].words == ("50 %", "11.9 %", "88.1 %")
    assert card(rho("0.01")).fact_epsilon < 2 * card(rho("0.01")).epsilon + Fraction(1, 10)
    approximate = card(epsilon(1, delta="1e-6"))
    assert approximate.fact_delta > 2 * approximate.delta


def test_a_replace_one_loss_promises_nothing_about_taking_part():
    found = card(epsilon(1, relation="replace-one"))
    assert found.taking_part == ()
    assert found.fact_epsilon == 1
    assert "a fact about you" in words(found)


def test_an_absurd_loss_is_called_so():
    found = card(epsilon(5000))
    assert found.odds is None
    assert "protects nobody" in words(found)
    assert found.guess == 1
    assert "protects nobody" in words(card(Loss("epsilon", Fraction(1), Fraction(1))))


def test_percentages_are_rounded_against_ourselves():
    assert percent(Fraction(73_105, 100_000)) == "73.2 %"
    assert percent(Fraction(26_895, 100_000), up=False) == "26.8 %"
    assert percent(Fraction(999_999, 1_000_000)) == "100 %"
    assert percent(Fraction(0)) == "0 %"
