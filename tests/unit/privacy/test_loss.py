"""Losses as values."""

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import pytest

from cloister.privacy.errors import BadLoss, BadNumber, MeasureMismatch, RelationMismatch, UnknownRelation
from cloister.privacy.loss import Loss, Relation, epsilon, rho

REPLACE = Relation.REPLACE_ONE


def test_ten_tenths_fill_one_exactly():
    assert epsilon(0.1) * 10 == sum(epsilon("0.1") for _ in range(10)) == epsilon(1)
    assert epsilon(1).split(3) * 3 == epsilon(1)


def test_a_loss_is_the_same_however_it_is_written():
    assert epsilon(0.5) == epsilon("1/2") == epsilon(Decimal("0.5")) == epsilon(Fraction(1, 2))
    assert len({rho(0.1), rho("0.1"), rho("0.1", delta=1e-6)}) == 2


@pytest.mark.parametrize("bad", [0, -1, "-0.1", Fraction(0)])
@pytest.mark.parametrize("make", [epsilon, rho])
def test_nothing_is_free(make, bad):
    with pytest.raises(BadLoss, match="must be positive"):
        make(bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, "much", None, True])
@pytest.mark.parametrize("make", [epsilon, rho])
def test_a_loss_needs_a_finite_number(make, bad):
    with pytest.raises(BadNumber):
        make(bad)


@pytest.mark.parametrize("bad", [0, 1, -1e-6, 1.5])
def test_a_delta_lies_strictly_between_zero_and_one(bad):
    with pytest.raises(BadLoss, match="strictly between 0 and 1"):
        epsilon(1, delta=bad)


@pytest.mark.parametrize("fields", [("epsilon", math.nan), ("epsilon", 1), ("rho", Fraction(1), math.nan)])
def test_a_loss_never_holds_a_float(fields):
    with pytest.raises(BadLoss, match="exact rationals"):
        Loss(*fields)


def test_a_loss_refuses_an_unknown_measure_or_relation():
    with pytest.raises(BadLoss, match="epsilon or rho"):
        Loss("mu", Fraction(1))
    with pytest.raises(UnknownRelation, match="add/remove"):
        epsilon(1, relation="bounded")
    with pytest.raises(UnknownRelation):
        Loss("rho", Fraction(1), relation="add/remove-ish")


def test_a_loss_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        epsilon(1).amount = Fraction(0)


def test_losses_add_in_both_parts():
    assert epsilon(1, delta="1e-6") + epsilon("0.5", delta="2e-6") == epsilon("1.5", delta="3e-6")
    assert Loss.nothing("rho") + rho("0.1") == rho("0.1")


def test_a_total_delta_stops_at_one_and_then_promises_nothing():
    half = epsilon(1, delta="0.5")
    assert (half + half + half).delta == (half * 3).delta == 1
    assert str(half * 3) == "epsilon 3, delta 1 (no promise)"
    # Two independent coins that each publish everything: no delta below 3/4 would be true, and none below 1 is claimed.
    assert (half + half).delta >= Fraction(3, 4)


def test_taking_more_than_there_is_is_refused():
    assert epsilon(1) - epsilon("0.9") == epsilon("0.1")
    with pytest.raises(BadLoss, match="negative"):
        epsilon(1) - epsilon("1.1")


@pytest.mark.parametrize("count", [-1, 1.5, True, "2", None])
def test_only_whole_counts_multiply_a_loss(count):
    with pytest.raises(BadLoss, match="whole number"):
        epsilon(1) * count


@pytest.mark.parametrize("parts", [0, -1, 2.0, True])
def test_only_whole_parts_split_a_loss(parts):
    with pytest.raises(BadLoss, match="whole number"):
        epsilon(1).split(parts)


def test_a_loss_is_within_another_only_if_both_parts_are():
    small, large = epsilon(1, delta="1e-6"), epsilon(2, delta="1e-5")
    crossed = epsilon(3, delta="1e-7")
    assert small <= large
    assert small < large
    assert large > small
    assert small >= epsilon(1, delta="1e-6")
    assert not crossed <= large
    assert not large <= crossed


@pytest.mark.parametrize("act", [lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a <= b, lambda a, b: a < b])
def test_measures_and_relations_never_mix_silently(act):
    with pytest.raises(MeasureMismatch, match=r"as_rho\(\)"):
        act(epsilon(1), rho(1))
    with pytest.raises(RelationMismatch, match=r"as_replace_one\(\)"):
        act(epsilon(1), epsilon(1, relation=REPLACE))
    with pytest.raises(MeasureMismatch, match="not with a float"):
        act(epsilon(1), 0.5)


def test_a_pure_epsilon_is_half_its_square_in_rho():
    assert epsilon("0.2").as_rho() == rho("0.02")
    assert epsilon("0.2", delta="1e-6").as_rho() == rho("0.02", delta="1e-6")
    assert rho(1).as_rho() == rho(1)


def test_a_rho_becomes_an_epsilon_at_the_sum_of_both_deltas():
    plain, approximate = rho("0.1").as_epsilon("1e-6"), rho("0.1", delta="1e-7").as_epsilon("1e-6")
    assert approximate.amount == plain.amount
    assert (plain.delta, approximate.delta) == (Fraction(1, 10**6), Fraction(11, 10**7))
    assert epsilon(1).as_epsilon() == epsilon(1)
    with pytest.raises(BadLoss, match="only at a delta"):
        rho(1).as_epsilon()


def test_a_group_of_one_over_epsilon_is_bounded_by_odds_of_e_and_a_hundred_times_that_by_e_to_the_hundred():
    loss = epsilon("0.01")
    assert math.exp(loss.group(100).amount) == pytest.approx(math.e)
    assert math.exp(loss.group(10_000).amount) == pytest.approx(math.exp(100))


def test_a_group_multiplies_epsilon_and_squares_into_rho():
    assert epsilon("0.1").group(3) == epsilon("0.3")
    assert rho("0.1").group(3) == rho("0.9")
    assert rho("0.1", delta=1e-6).group(1) == rho("0.1", delta=1e-6)


def test_a_groups_delta_grows_by_its_size_and_by_e_to_the_rest():
    grown = epsilon(1, delta="1e-6").group(3)
    truth = 3 * math.exp(2) * 1e-6
    assert grown.amount == 3
    assert truth * (1 - 1e-15) <= float(grown.delta) <= truth * (1 + 1e-11)


@pytest.mark.parametrize(
    "loss", [epsilon(100, delta="1e-20"), epsilon(10**6, delta="1e-400"), epsilon(800, delta="1e-9")]
)
def test_a_group_too_large_for_its_delta_is_promised_nothing(loss):
    assert loss.group(10).delta == 1


def test_a_tiny_delta_survives_a_group_that_floats_could_not_compute():
    grown = epsilon(100, delta="1e-400").group(9)
    assert Fraction(1, 10**60) < grown.delta < Fraction(1, 10**50)


def test_the_group_of_an_approximate_rho_is_refused_with_the_way_out():
    with pytest.raises(BadLoss, match="as_epsilon"):
        rho("0.1", delta=1e-6).group(2)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
def test_a_group_has_a_whole_number_of_units(size):
    with pytest.raises(BadLoss, match="whole number"):
        epsilon(1).group(size)


def test_replacing_a_unit_is_removing_one_and_adding_one():
    assert epsilon(1).as_replace_one() == epsilon(2, relation=REPLACE)
    assert rho(1).as_replace_one() == rho(4, relation=REPLACE)
    assert epsilon(1, relation=REPLACE).as_replace_one() == epsilon(1, relation=REPLACE)


def test_a_loss_prints_for_people_and_for_python():
    assert str(epsilon(1, delta=1e-6)) == "epsilon 1, delta 1e-06"
    assert str(rho("0.1", relation=REPLACE)) == "rho 0.1 (replace-one)"
    loss = rho("1/3", delta="1e-9", relation=REPLACE)
    assert eval(repr(loss)) == loss


@pytest.mark.parametrize("loss", [epsilon("1/3"), rho("0.1", delta="1e-9", relation=REPLACE), Loss.nothing("rho")])
def test_a_loss_survives_being_written_down(loss):
    assert Loss.from_json(loss.to_json()) == loss


@pytest.mark.parametrize(
    "record",
    [{}, None, {"measure": "mu", "amount": "1", "delta": "0", "relation": "add/remove"}, {"measure": "rho"}, "rho"],
)
def test_a_record_that_is_no_loss_is_refused(record):
    with pytest.raises(BadLoss):
        Loss.from_json(record)


def test_a_record_with_an_impossible_amount_is_refused():
    good = epsilon(1).to_json()
    for field, value in [("amount", "-1"), ("delta", "1.1"), ("amount", "nan"), ("relation", "none")]:
        with pytest.raises((BadLoss, BadNumber, UnknownRelation)):
            Loss.from_json(good | {field: value})
