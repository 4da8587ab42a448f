"""The one way data goes: charge, then look, then noise."""

import numpy as np
import pytest

from cloister.lessons.noise import Staircase
from cloister.privacy.errors import BadInput, LookFailed, OverBudget, TextbookOnly, WrongMeasure
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Unit, epsilon, rho
from cloister.privacy.measure import measure, measure_all
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Laplace, PermuteAndFlip
from cloister.privacy.noise import SeededSource

COUNT = DiscreteLaplace.for_loss(1, epsilon("0.25"))


@pytest.fixture
def ledger(tmp_path):
    with Ledger.in_folder(tmp_path / "ledger") as ledger:
        yield ledger


@pytest.fixture
def account(ledger):
    return ledger.open_account("visits", epsilon(1))


def test_the_charge_is_durable_before_the_first_row_is_read(account):
    seen = []

    def look():
        seen.append(account.spent)
        return 10

    measure(look, COUNT, account=account, request="count")
    assert seen == [epsilon("0.25")]


def test_an_answer_comes_with_error_loss_unit_and_receipt(account, ledger):
    answer = measure(lambda: 1000, COUNT, account=account, request="count", unit=Unit("patient"))
    low, high = answer.interval("0.999999999")
    assert low <= 1000 <= high
    assert answer.loss == epsilon("0.25")
    assert answer.standard_error == COUNT.standard_error
    assert answer.private
    answer.receipt.verify(ledger.key.public)
    assert "±" in str(answer)
    assert "epsilon 0.25" in answer._repr_html_()


def test_a_refused_question_reads_nothing_and_spends_nothing(account):
    greedy = DiscreteLaplace.for_loss(1, epsilon(2))

    def look():
        raise AssertionError("a row was read")

    with pytest.raises(OverBudget):
        measure(look, greedy, account=account, request="too much")
    assert account.left == epsilon(1)


def test_a_failing_look_stays_charged_and_tells_nothing(account):
    def look():
        raise ValueError("secret diagnosis of Mallory")

    with pytest.raises(LookFailed) as refusal:
        measure(look, COUNT, account=account, request="count")
    assert "Mallory" not in str(refusal.value)
    assert refusal.value.__suppress_context__
    assert "Mallory" in refusal.value.owner_detail
    assert account.spent == epsilon("0.25")


def test_a_seeded_source_marks_the_release_and_its_receipt(account):
    answer = measure(lambda: 5, COUNT, account=account, request="lesson", source=SeededSource(1))
    assert not answer.private
    assert answer.receipt.body["private"] is False
    assert str(answer).startswith("NOT PRIVATE")
    assert "not private" in str(answer.receipt)


def test_textbook_noise_and_wrong_measures_are_refused_by_a_ledger(account):
    with pytest.raises(TextbookOnly):
        measure(lambda: 5, Staircase.for_loss(1, epsilon("0.1")), account=account, request="lesson")
    with pytest.raises(WrongMeasure):
        measure(lambda: 5, DiscreteGaussian.for_loss(1, rho("0.1")), account=account, request="gauss")
    assert account.spent.amount == 0


def test_choices_and_arrays_and_reals_go_the_same_way(account):
    choice = measure(lambda: [5, 500, 7], PermuteAndFlip.for_loss(1, epsilon("0.2")), account=account, request="mode")
    assert choice.value == 1
    with pytest.raises(TypeError, match="choice"):
        choice.margin()
    many = measure(lambda: np.array([1, 2, 3]), COUNT, account=account, request="histogram")
    assert many.value.shape == (3,)
    assert "each" in str(many)
    total = Laplace.for_bounds(0, 60, epsilon("0.2"))
    days = measure(lambda: total.grid.total(total.grid.encode([3.5, 9], 0, 60)), total, account=account, request="days")
    assert isinstance(days.value, float)


def test_several_accounts_pay_together_or_not_at_all(ledger, account):
    mine = ledger.open_account("visits", epsilon("0.3"), analyst="ada")
    pay = {"accounts": [account, mine], "request": "count"}
    values, receipt = measure_all(lambda: [7], [COUNT], **pay)
    assert len(values) == 1
    assert [one["account"] for one in receipt.body["accounts"]] == ["visits", "visits@ada"]
    with pytest.raises(OverBudget, match="ada"):
        measure_all(lambda: [7], [COUNT], **pay)
    assert account.spent == mine.spent == epsilon("0.25")


def test_a_release_needs_a_mechanism_and_an_account(account):
    with pytest.raises(BadInput):
        measure_all(list, [], accounts=[account], request="nothing")
