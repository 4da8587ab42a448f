"""Adaptive steps under one charge."""

from fractions import Fraction

import pytest

from cloister.privacy.errors import LookFailed, OverBudget
from cloister.privacy.filter import release_steps
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.mechanisms import DiscreteGaussian
from cloister.privacy.noise import SeededSource

STEP = DiscreteGaussian.for_loss(1, rho("0.1"))


@pytest.fixture
def ledger(tmp_path):
    with Ledger.in_folder(tmp_path) as ledger:
        yield ledger


@pytest.fixture
def account(ledger):
    return ledger.open_account("visits", rho(1))


def run(steps, account, spend="0.3", **more):
    return release_steps(steps, accounts=[account], spend=rho(spend), request="train", **more)


def test_the_whole_spend_is_charged_before_the_first_look(account):
    seen = []
    run(lambda meter: meter.release(lambda: seen.append(account.spent.amount) or 5, STEP), account)
    assert seen == [rho("0.3").amount]
    assert account.spent.amount == rho("0.3").amount


def test_steps_follow_from_one_another_within_the_total(account):
    def steps(meter):
        first = meter.release(lambda: 1000, STEP)
        second = meter.release(lambda: first, STEP)
        third = meter.release(lambda: second, STEP)
        assert meter.left.amount == 0
        return first, second, third

    values, receipt = run(steps, account, source=SeededSource("a"))
    assert len(set(values)) > 1
    assert receipt.body["parameters"][0]["times"] == "3"
    assert not receipt.body["private"]


@pytest.mark.parametrize("amount", ["0.0" + "123456789" * 30, "0.000000001" + "123456789" * 60])
def test_parts_of_very_many_digits_fit_into_their_sum(account, amount):
    def steps(meter):
        for _ in range(3):
            meter.release(lambda: 0, DiscreteGaussian.for_loss(1, rho(rho(amount).amount / 3)))
        return meter.left.amount

    left, _ = run(steps, account, spend=amount)
    assert 0 <= left < Fraction(1, 10**76)  # the ledger's own rounding, upwards


def test_a_step_beyond_the_total_is_refused_before_it_looks(account):
    looked = []

    def steps(meter):
        for _ in range(3):
            meter.release(lambda: 0, STEP)
        with pytest.raises(OverBudget, match=r"needs rho 0.1, 0 is left"):
            meter.release(lambda: looked.append(1), STEP)

    run(steps, account)
    assert not looked


def test_steps_that_fail_tell_nothing_and_stay_charged(account):
    def steps(meter):
        return meter.release(lambda: int("Ada Lovelace, 36"), STEP)

    with pytest.raises(LookFailed) as caught:
        run(steps, account)
    assert "Ada" not in str(caught.value)
    assert account.spent.amount == rho("0.3").amount


def test_a_spend_over_budget_reads_nothing(account):
    looked = []
    with pytest.raises(OverBudget):
        run(lambda meter: looked.append(1), account, spend="1.1")
    assert not looked


def test_several_accounts_pay_in_one_entry_and_the_chain_holds(ledger, account, tmp_path):
    mine = ledger.open_account("visits", rho(1), "ada")
    _, receipt = release_steps(
        lambda meter: meter.release(lambda: 3, STEP), accounts=[account, mine], spend=rho("0.2"), request="train"
    )
    assert [one["account"] for one in receipt.body["accounts"]] == ["visits", "visits@ada"]
    receipt.verify(ledger.key.public)
    verify(tmp_path / "ledger.db", ledger.key.public, head=ledger.head)


def test_a_pure_account_prices_pure_steps(ledger):
    pure = ledger.open_account("pure", epsilon(1))
    from cloister.privacy.mechanisms import DiscreteLaplace

    step = DiscreteLaplace.for_loss(1, epsilon("0.25"))
    value, _ = release_steps(
        lambda meter: [meter.release(lambda: 0, step) for _ in range(4)],
        accounts=[pure],
        spend=epsilon(1),
        request="x",
    )
    assert len(value) == 4
    assert pure.left.amount == 0
