"""Limits and approvals, compared exactly."""

from fractions import Fraction

import pytest

from cloister.hub.policy import cost
from cloister.hub.policy.policy import Approval, Budget, Policy
from cloister.privacy.errors import BadLoss, OverBudget, WrongMeasure
from cloister.privacy.ledger.account import Rules
from cloister.privacy.loss import Loss, epsilon, rho


def policy(lifetime, **limits):
    return Policy("visits", ("research",), Budget(lifetime, **limits), ())


APPROVALS = (Approval(rho("0.01"), 1), Approval(rho("0.05"), 2))


@pytest.mark.parametrize(("amount", "people"), [("0.01", 0), ("0.0100000001", 1), ("0.05", 1), ("0.06", 2)])
def test_the_threshold_itself_needs_nobody(amount, people):
    assert cost.needs(policy(epsilon(2, delta="1e-7"), approvals=APPROVALS), rho(amount)) == people


def test_an_epsilon_is_compared_by_its_rho():
    page = policy(rho(1), approvals=APPROVALS)
    assert cost.needs(page, epsilon("0.1")) == 0  # rho 0.005
    assert cost.needs(page, epsilon("0.2")) == 1  # rho 0.02


def test_a_delta_where_the_limit_has_none_passes_the_limit():
    page = policy(epsilon(2, delta="1e-7"), approvals=APPROVALS, per_request=rho("0.02"))
    assert cost.needs(page, rho("0.001", delta="1e-9")) == 2
    with pytest.raises(OverBudget):
        cost.refuse_above(page, rho("0.001", delta="1e-9"))


def test_a_delta_is_named_as_the_cause_only_where_it_is():
    page = policy(epsilon(2, delta="1e-7"), per_request=rho("0.05"))
    with pytest.raises(OverBudget, match="may have no delta here, this one needs delta 5e-09"):
        cost.refuse_above(page, rho("0.0002", delta="5e-9"))
    with pytest.raises(OverBudget, match=r"may cost rho 0\.05 here, this one needs rho 0\.06\. Lower"):
        cost.refuse_above(page, rho("0.06", delta="5e-9"))


def test_no_approvals_means_nobody_is_asked():
    assert cost.needs(policy(epsilon(1)), epsilon("0.5")) == 0


def test_above_nothing_every_release_is_asked_about():
    page = policy(epsilon(1), approvals=(Approval(Loss.nothing("epsilon"), 2),))
    assert cost.needs(page, epsilon("0.0001")) == 2


def test_above_nothing_holds_on_an_account_in_rho_too():
    page = policy(epsilon(2, delta="1e-7"), approvals=(Approval(Loss.nothing("epsilon"), 1),))
    assert cost.needs(page, rho("0.0001")) == 1


def test_a_request_above_the_limit_is_refused_with_both_numbers():
    page = policy(rho(1), per_request=rho("0.02"))
    cost.refuse_above(page, rho("0.02"))
    with pytest.raises(OverBudget, match=r"may cost rho 0\.02 here, this one needs rho 0\.03"):
        cost.refuse_above(page, rho("0.03"))


def test_a_loss_the_account_cannot_express_is_refused():
    with pytest.raises(WrongMeasure):
        cost.needs(policy(epsilon(1), approvals=(Approval(epsilon("0.1"), 1),)), rho("0.01"))


def test_a_limit_in_epsilon_and_delta_is_never_more_than_it_says():
    limit = epsilon(1, delta="1e-6")
    assert cost.cap(limit) == Rules.of("x", limit).cap
    assert cost.cap(limit).as_epsilon(delta="5e-7").amount <= 1


@pytest.mark.parametrize("text", ["rho 0.05", "epsilon 1, delta 1e-6", "epsilon 1/3"])
def test_a_loss_is_read_as_it_is_described(text):
    assert cost.described(cost.parse(text)) == text


@pytest.mark.parametrize("text", ["", "rho", "0.05", "rho 1 epsilon 2", "rho 1, delta 1e-6, delta 1e-7", "sigma 1"])
def test_what_is_no_loss_is_refused(text):
    with pytest.raises(BadLoss):
        cost.parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(2), "2"), (Fraction(1, 8), "0.125"), (Fraction(1, 7), "1/7"), (Fraction(5, 10**9), "5e-9"),
     (Fraction(100), "100"), (Fraction(1, 1000), "0.001"), (Fraction(123456789, 10**8), "1.23456789")],
)  # fmt: skip
def test_an_amount_is_written_short_and_exact(value, text):
    assert cost.exact(value) == text
    assert Fraction(text) == value
