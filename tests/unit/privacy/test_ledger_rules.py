"""What a budget allows, what a spend costs, what is left: the ledger's arithmetic without a ledger."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.privacy import conversion
from cloister.privacy.errors import BadLoss, BadName, OverBudget, RelationMismatch, TextbookOnly, WrongMeasure
from cloister.privacy.ledger import Balance, Rules
from cloister.privacy.loss import Loss, epsilon, rho


@dataclass(frozen=True)
class Some:
    """A mechanism, as far as a ledger can see."""

    pure: Loss | None
    zcdp: Loss | None
    textbook: bool = False
    name: ClassVar[str] = "some mechanism"


def test_a_pure_epsilon_opens_a_pure_account() -> None:
    rules = Rules.of("visits", epsilon(2))
    assert (rules.kind, rules.cap, rules.key) == ("pure", epsilon(2), "visits")


def test_a_rho_opens_a_zcdp_account_without_delta() -> None:
    rules = Rules.of("visits", rho("0.5"), "ann")
    assert (rules.kind, rules.cap, rules.key) == ("zcdp", rho("0.5"), "visits@ann")


def test_a_budget_with_delta_splits_it_at_opening_and_shows_both_parts() -> None:
    rules = Rules.of("visits", epsilon(2, delta="1e-6"))
    half = Fraction(1, 2_000_000)
    assert (rules.converted, rules.cap.delta) == (half, half)
    assert rules.cap.amount == conversion.rho_within(Fraction(2), half)
    assert conversion.delta_of_rho(rules.cap.amount, 2) <= half
    assert str(rules).count("5e-07") == 2


def test_the_share_of_delta_for_spends_is_the_owners_choice() -> None:
    rules = Rules.of("visits", epsilon(2, delta="1e-6"), delta_for_spends="1/10")
    assert (rules.cap.delta, rules.converted) == (Fraction(1, 10**7), Fraction(9, 10**7))
    assert Rules.of("visits", epsilon(2, delta="1e-6"), delta_for_spends=0).cap.delta == 0
    for share in (1, -1, 2):
        with pytest.raises(BadLoss, match="share"):
            Rules.of("visits", epsilon(2, delta="1e-6"), delta_for_spends=share)


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 201, "visits@ann", "a\n", None, 3])
def test_a_bad_account_name_is_refused(name: object) -> None:
    with pytest.raises(BadName, match="200 letters"):
        Rules.of(name, epsilon(1))  # type: ignore[arg-type]
    with pytest.raises(BadName):
        Rules.of("visits", epsilon(1), name or "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "budget",
    [
        epsilon(10**7),
        epsilon(Fraction(1, 3**400)),
        rho(1, delta=Fraction(1, 3**400)),
        Loss.nothing("rho"),
        1,
        None,
    ],
)
def test_an_absurd_budget_is_refused(budget: object) -> None:
    with pytest.raises(BadLoss, match="budget"):
        Rules.of("visits", budget)  # type: ignore[arg-type]


def test_a_cap_that_does_not_keep_its_budget_is_not_sound() -> None:
    rules = Rules.of("visits", epsilon(1, delta="1e-6"))
    assert rules.sound
    assert not replace(rules, cap=rules.cap * 2).sound
    assert not replace(rules, cap=replace(rules.cap, delta=rules.budget.delta)).sound
    assert not replace(Rules.of("visits", epsilon(1)), cap=epsilon(2)).sound


def test_rules_read_back_as_they_were_written() -> None:
    for rules in (
        Rules.of("a", epsilon(1)),
        Rules.of("b", rho("1/3"), "ann"),
        Rules.of("c", epsilon(1, delta="1e-9", relation="replace-one")),
    ):
        assert Rules.from_json(rules.to_json()) == rules


def test_a_pure_account_takes_pure_losses_only() -> None:
    rules = Rules.of("visits", epsilon(1))
    assert rules.price(epsilon("0.1")) == epsilon("0.1")
    assert rules.price(Some(epsilon("0.1"), rho("0.001"))) == epsilon("0.1")
    for item in (rho("0.1"), epsilon("0.1", delta="1e-9"), Some(None, rho("0.1"))):
        with pytest.raises(WrongMeasure, match="pure"):
            rules.price(item)


def test_a_zcdp_account_prices_everything_in_rho() -> None:
    rules = Rules.of("visits", epsilon(1, delta="1e-6"))
    assert rules.price(rho("0.01")) == rho("0.01")
    assert rules.price(epsilon("0.1")) == rho("0.005")
    assert rules.price(epsilon("0.1", delta="1e-9")) == rho("0.005", delta="1e-9")
    assert rules.price(Some(epsilon("0.1"), rho("0.004"))) == rho("0.004")
    with pytest.raises(WrongMeasure, match="zCDP"):
        rules.price(Some(None, None))


def test_an_account_opened_with_rho_has_no_delta_to_spend() -> None:
    with pytest.raises(WrongMeasure, match="no delta"):
        Rules.of("visits", rho(1)).price(epsilon("0.1", delta="1e-9"))


def test_a_textbook_mechanism_is_refused() -> None:
    with pytest.raises(TextbookOnly, match="some mechanism"):
        Rules.of("visits", epsilon(1)).price(Some(epsilon("0.1"), None, textbook=True))


def test_another_relation_is_refused_and_the_conversion_told() -> None:
    with pytest.raises(RelationMismatch, match=r"as_replace_one\(\)"):
        Rules.of("visits", epsilon(1, relation="replace-one")).price(epsilon("0.1"))
    with pytest.raises(RelationMismatch, match="State the spend"):
        Rules.of("visits", epsilon(1)).price(epsilon("0.1", relation="replace-one"))


@pytest.mark.parametrize("item", [Loss.nothing("epsilon"), 0.1, None, "epsilon"])
def test_what_is_no_positive_loss_has_no_price(item: object) -> None:
    with pytest.raises(BadLoss):
        Rules.of("visits", epsilon(1)).price(item)  # type: ignore[arg-type]


def test_a_refusal_says_asked_left_and_difference() -> None:
    balance = Balance.at_opening(Rules.of("visits", rho(1))).add(rho("0.97"))
    with pytest.raises(
        OverBudget, match=r"needs rho 0\.1, 0\.03 is left, 0\.07 short\. Lower the spend or ask the owner\."
    ):
        balance.add(rho("0.1"))


def test_a_spend_whose_delta_does_not_fit_is_refused() -> None:
    balance = Balance.at_opening(Rules.of("visits", epsilon(3, delta="1e-6")))
    with pytest.raises(OverBudget, match=r"needs delta 1e-06, 5e-07 is left, 5e-07 short"):
        balance.add(epsilon("0.01", delta="1e-6").as_rho())


FRACTIONS = st.fractions(min_value=0, max_value=1, max_denominator=10**40).filter(lambda amount: amount > 0)


@given(st.lists(FRACTIONS, max_size=60))
def test_a_total_is_never_below_the_true_sum_and_stays_short(amounts: list[Fraction]) -> None:
    balance = Balance.at_opening(Rules.of("visits", rho(1_000)))
    for amount in amounts:
        balance = balance.add(rho(amount))
    assert sum(amounts) <= balance.spent.amount <= sum(amounts) + Fraction(1, 10**70)
    assert len(str(balance.spent.amount)) < 400


@given(st.lists(st.fractions(min_value=0, max_value=1, max_denominator=1000).filter(bool), max_size=20))
def test_giving_everything_back_leaves_exactly_nothing(amounts: list[Fraction]) -> None:
    balance = start = Balance.at_opening(Rules.of("visits", rho(1_000)))
    for amount in amounts:
        balance = balance.add(rho(amount))
    for amount in amounts:
        balance = balance.take_back(rho(amount))
    assert balance == start


def test_a_spend_of_absurdly_many_digits_is_rounded_up_so_that_it_can_be_read_again() -> None:
    price = Rules.of("visits", rho(1)).price(epsilon(Fraction(3**700, 7**700)))
    true = Fraction(3**700, 7**700) ** 2 / 2
    assert true < price.amount < true + Fraction(1, 10**70)
    assert Loss.from_json(price.to_json()) == price
