"""One contract for all accountants, then what is special about each."""

import dataclasses
import itertools
import math
import sys
from fractions import Fraction

import pytest

from cloister.privacy.accountant import (
    DistributionAccountant,
    GaussianStep,
    LaplaceStep,
    PureAccountant,
    RenyiAccountant,
    ZcdpAccountant,
    advanced,
    amplified,
    parallel,
    post_processed,
    sequential,
)
from cloister.privacy.accountant.amplification import sampled_gaussian_rdp
from cloister.privacy.errors import (
    BadLoss,
    BadProbability,
    BadScale,
    MeasureMismatch,
    MissingExtra,
    RelationMismatch,
    WrongMeasure,
)
from cloister.privacy.loss import Loss, Relation, epsilon, rho

REPLACE = Relation.REPLACE_ONE
KINDS = [PureAccountant, ZcdpAccountant, RenyiAccountant, DistributionAccountant]
APPROXIMATE = KINDS[1:]

every_accountant = pytest.mark.parametrize("kind", KINDS)


@dataclasses.dataclass(frozen=True)
class Opaque:
    """A mechanism of which nothing is known but one Rényi curve."""

    curve: float
    relation: Relation = Relation.ADD_REMOVE
    pure: Loss | None = None
    zcdp: Loss | None = None

    def rdp(self, alpha):
        return self.curve * alpha


def true_delta(each, count, at):
    """The exact delta of `count` randomised responses of epsilon `each`: no accountant may claim less."""
    total = 0.0
    for heads in range(count + 1):
        log_left = each * heads - count * math.log1p(math.exp(each))
        log_right = each * (count - heads) - count * math.log1p(math.exp(each))
        total += math.comb(count, heads) * max(0.0, math.exp(log_left) - math.exp(at + log_right))
    return total


# The contract.


@every_accountant
def test_composing_nothing_costs_nothing(kind):
    fresh = kind()
    assert fresh.epsilon("1e-6") == fresh.delta(0) == 0
    assert fresh.loss("1e-6").amount == 0
    assert fresh.compose(epsilon(1), count=0) == fresh


@every_accountant
def test_the_order_of_composing_does_not_matter(kind):
    one = kind().compose(epsilon("0.1")).compose(epsilon("1/3"), count=3).compose(LaplaceStep(5))
    other = kind().compose(LaplaceStep(5)).compose(epsilon("1/3"), count=3).compose(epsilon("0.1"))
    assert one == other
    assert one.epsilon("1e-6") == other.epsilon("1e-6") > 0


@every_accountant
def test_a_count_is_that_many_steps(kind):
    step_by_step = kind()
    for _ in range(5):
        step_by_step = step_by_step.compose(epsilon("0.1"))
    assert step_by_step == kind().compose(epsilon("0.1"), count=5)


@every_accountant
@pytest.mark.parametrize("what", ["gaussian", 0.1, None, [epsilon(1)], Opaque, LaplaceStep])
def test_what_is_no_step_is_refused_and_nothing_changes(kind, what):
    before = kind().compose(epsilon(1))
    with pytest.raises(BadLoss, match="composes a Loss or a mechanism"):
        before.compose(what)
    assert before == kind().compose(epsilon(1))


@every_accountant
@pytest.mark.parametrize("count", [-1, 1.5, True, "2", None])
def test_only_whole_counts_are_composed(kind, count):
    with pytest.raises(BadLoss, match="whole number"):
        kind().compose(epsilon(1), count=count)


@every_accountant
def test_relations_never_mix(kind):
    with pytest.raises(RelationMismatch, match=r"as_replace_one\(\)"):
        kind().compose(epsilon(1, relation=REPLACE))
    with pytest.raises(RelationMismatch):
        kind(relation=REPLACE).compose(LaplaceStep(1))
    assert kind(relation=REPLACE).compose(epsilon(1, relation=REPLACE)).loss("1e-6").relation is REPLACE


@every_accountant
def test_a_larger_delta_needs_no_larger_epsilon_and_more_steps_cost_more(kind):
    accountant = kind().compose(epsilon("0.2"), count=10)
    by_delta = [accountant.epsilon(delta) for delta in ("1e-9", "1e-6", "0.001", "0.1", "0.5")]
    assert by_delta == sorted(by_delta, reverse=True)
    assert len(set(by_delta)) > 3
    by_epsilon = [accountant.delta(at) for at in (0, "0.5", 1, "1.5", 3)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert accountant.compose(epsilon("0.2")).epsilon("1e-6") > accountant.epsilon("1e-6")


@every_accountant
@pytest.mark.parametrize(("each", "count"), [("0.1", 1), ("0.1", 40), ("1", 1), ("1", 12), ("4", 2)])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 0.9])
def test_no_claim_is_below_what_randomised_response_really_loses(kind, each, count, share):
    accountant = kind().compose(epsilon(each), count=count)
    at = share * float(each) * count
    truth = true_delta(float(each), count, at)
    assert accountant.delta(at) >= truth * (1 - 1e-12)
    if 1e-9 < truth < 1:
        assert accountant.epsilon(truth) >= at * (1 - 1e-9)


@every_accountant
def test_an_epsilon_and_its_delta_tell_the_same_story(kind):
    accountant = kind().compose(epsilon("0.2"), count=10)
    for delta in ("1e-9", "1e-6", "0.01"):
        assert accountant.delta(accountant.epsilon(delta)) <= Fraction(delta) * Fraction(1_001, 1_000)


@every_accountant
def test_a_whole_plan_becomes_one_loss_for_the_ledger(kind):
    accountant = kind().compose(epsilon("0.2"), count=10)
    assert accountant.loss("1e-6") == epsilon(accountant.epsilon("1e-6"), delta="1e-6")


@every_accountant
@pytest.mark.parametrize("bad", [-1, 1, "1.5", float("nan"), "small", None])
def test_a_delta_is_a_probability(kind, bad):
    with pytest.raises(ValueError, match=r"CLO-10[12]: delta"):
        kind().compose(epsilon(1)).epsilon(bad)


@every_accountant
@pytest.mark.parametrize("bad", [-1, float("inf"), "large", None])
def test_an_epsilon_is_not_negative(kind, bad):
    with pytest.raises(ValueError, match=r"CLO-10[12]: epsilon"):
        kind().compose(epsilon(1)).delta(bad)


@every_accountant
def test_an_accountant_cannot_be_changed(kind):
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().relation = REPLACE


@every_accountant
@pytest.mark.parametrize("amount", ["1e-6", "1e-3", "1", "300"])
@pytest.mark.parametrize("delta", ["1e-10", "0.5"])
def test_extreme_losses_give_finite_answers(kind, amount, delta):
    accountant = kind().compose(epsilon(amount))
    assert accountant.epsilon(delta) >= 0
    if kind in (PureAccountant, DistributionAccountant):  # up to one point of the grid
        assert accountant.epsilon(delta) <= Fraction(amount) + Fraction(1, 10**4)
    assert 0 <= accountant.delta(amount) <= 1


@pytest.mark.parametrize("kind", [PureAccountant, ZcdpAccountant, RenyiAccountant])
def test_losses_beyond_all_use_are_still_added(kind):
    accountant = kind().compose(epsilon("1e4"), count=100)
    assert accountant.epsilon("1e-300") >= 10**6 - 700
    assert accountant.delta(1) > Fraction(999, 1000)


# Each of them.


def test_a_tenth_and_two_tenths_are_three_tenths():
    assert PureAccountant().compose(epsilon("0.1")).compose(epsilon("0.2")).epsilon() == Fraction(3, 10)


@pytest.mark.parametrize("what", [rho(1), epsilon(1, delta=1e-6), GaussianStep(1), Opaque(1.0)])
def test_a_pure_accountant_takes_pure_steps_only(what):
    with pytest.raises(WrongMeasure, match="CLO-203"):
        PureAccountant().compose(what)


def test_a_zcdp_accountant_adds_rho_and_delta():
    accountant = ZcdpAccountant().compose(rho("0.1", delta="1e-7"), count=3).compose(epsilon("0.2", delta="1e-7"))
    assert accountant.rho == Fraction("0.32")
    assert accountant.spent_delta == Fraction("4e-7")
    assert accountant.epsilon("1e-6") == rho("0.32").as_epsilon("6e-7").amount
    assert accountant.delta(5) == Fraction("4e-7") + ZcdpAccountant(rho=Fraction("0.32")).delta(5)


@pytest.mark.parametrize("kind", [ZcdpAccountant, RenyiAccountant])
def test_a_delta_that_the_steps_already_spent_cannot_pay_again(kind):
    accountant = kind().compose(epsilon("0.1", delta="1e-6"))
    for delta in ("1e-6", "1e-7", 0):
        with pytest.raises(BadLoss, match="above 1e-06"):
            accountant.epsilon(delta)
    assert accountant.epsilon("1.1e-6") > 0


@pytest.mark.parametrize("kind", APPROXIMATE)
def test_an_approximate_measure_has_no_epsilon_at_delta_zero(kind):
    with pytest.raises(BadLoss, match="delta"):
        kind().compose(epsilon(1)).epsilon(0)


def test_a_zcdp_accountant_refuses_a_step_without_a_rho():
    with pytest.raises(WrongMeasure, match="RenyiAccountant"):
        ZcdpAccountant().compose(Opaque(1.0))


def test_a_renyi_accountant_reads_any_curve():
    curve = RenyiAccountant().compose(Opaque(0.05), count=2).epsilon("1e-6")
    assert Fraction(0) <= curve - ZcdpAccountant().compose(rho("0.1")).epsilon("1e-6") < Fraction(1, 500)


def test_an_infinite_curve_promises_nothing_and_a_false_one_is_refused():
    assert RenyiAccountant().compose(Opaque(math.inf), count=0) == RenyiAccountant()
    with pytest.raises(WrongMeasure, match="promise nothing"):
        RenyiAccountant().compose(Opaque(math.inf)).epsilon("1e-6")
    for false in (-1.0, math.nan):
        with pytest.raises(BadLoss, match="never negative"):
            RenyiAccountant().compose(Opaque(false))


@pytest.mark.parametrize("orders", [(), (Fraction(1),), (Fraction(1, 2),), (Fraction(11, 10),)])
def test_renyi_orders_are_exact_floats_above_one(orders):
    with pytest.raises(BadLoss, match="above 1"):
        RenyiAccountant(orders=orders)


@pytest.mark.parametrize("amount", ["1e-6", "0.01", "1", "20", "1e4"])
def test_the_curve_of_a_pure_loss_is_that_of_randomised_response(amount):
    accountant = RenyiAccountant().compose(epsilon(amount))
    e = float(amount)
    for order, found in zip(accountant.orders, accountant.curve, strict=True):
        assert found <= min(Fraction(amount), order * Fraction(amount) ** 2 / 2)
        a = float(order)
        if 0.01 <= e <= 20:
            truth = (a * e - e + math.log1p(math.exp((1 - 2 * a) * e)) - math.log1p(math.exp(-e))) / (a - 1)
            assert float(found) == pytest.approx(truth, rel=1e-8)
            assert float(found) >= truth * (1 - 1e-11)


@pytest.mark.parametrize("what", [rho(1), Opaque(1.0)])
def test_a_distribution_accountant_refuses_what_has_no_known_distribution(what):
    with pytest.raises(WrongMeasure, match="Use RenyiAccountant"):
        DistributionAccountant().compose(what)


def test_a_distribution_accountant_takes_a_mechanism_by_its_pure_loss():
    known = Opaque(1.0, pure=epsilon("0.1"))
    assert DistributionAccountant().compose(known) == DistributionAccountant().compose(epsilon("0.1"))


@pytest.mark.parametrize("interval", [0.0, -1.0, 1e-6, float("nan"), 2.0, "fine", 1])
def test_a_distribution_accountant_needs_a_sensible_grid(interval):
    with pytest.raises(BadScale, match="interval"):
        DistributionAccountant(interval=interval)


def test_a_plan_that_floats_cannot_hold_is_refused_and_the_largest_other_is_priced():
    for huge in (epsilon(10**4), GaussianStep("1e-9"), rho(10**12).as_epsilon(1e-6)):
        with pytest.raises(BadScale, match="promises nothing"):
            DistributionAccountant().compose(huge)
    largest = DistributionAccountant(interval=0.01).compose(epsilon(1), count=800)
    assert 450 < largest.epsilon("1e-6") < 700
    with pytest.raises(BadScale):
        largest.compose(epsilon(1), count=10**9)
    assert DistributionAccountant(interval=0.01).compose(epsilon(590)).epsilon("1e-6") <= Fraction("590.01")
    assert DistributionAccountant(interval=0.1).compose(GaussianStep("0.041")).epsilon("1e-10") < 600


def test_a_delta_below_the_resolution_of_floats_is_refused():
    with pytest.raises(BadLoss, match="1e-10"):
        DistributionAccountant().compose(epsilon(1)).epsilon("1e-11")


def test_a_delta_that_the_steps_spend_has_no_finite_epsilon_below_it():
    with pytest.raises(WrongMeasure, match="no finite epsilon"):
        DistributionAccountant().compose(epsilon("0.1", delta="0.001"), count=20).epsilon("1e-6")


def test_without_dp_accounting_the_pip_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtra, match=r"pip install 'cloister\[accounting\]'"):
        DistributionAccountant()


# Steps.


def test_steps_state_their_loss_in_every_form():
    assert GaussianStep(2).zcdp == rho("0.125")
    assert GaussianStep(2).pure is None
    assert LaplaceStep(2).pure == epsilon("0.5")
    assert LaplaceStep(2).zcdp == rho("0.125")
    assert LaplaceStep("0.5", relation="replace-one").pure == epsilon(2, relation=REPLACE)


@pytest.mark.parametrize("make", [GaussianStep, LaplaceStep])
@pytest.mark.parametrize("bad", [0, -1, "1e-12", "1e12"])
def test_a_noise_multiplier_has_a_sensible_size(make, bad):
    with pytest.raises(BadScale, match="noise divided by sensitivity"):
        make(bad)


@pytest.mark.parametrize("rate", [0, -0.1, 1.1])
def test_a_rate_is_a_probability_above_zero(rate):
    with pytest.raises(BadProbability):
        GaussianStep(1, rate=rate)


def test_a_sampled_step_speaks_of_adding_and_removing():
    with pytest.raises(RelationMismatch, match="Poisson"):
        GaussianStep(1, rate="0.1", relation=REPLACE)
    assert GaussianStep(1, relation=REPLACE).zcdp == rho("0.5", relation=REPLACE)


@pytest.mark.parametrize("scale", ["1e-9", "0.01", "1", "1000", "1e9"])
def test_a_laplace_curve_stays_between_zero_and_its_pure_loss(scale):
    curve = [LaplaceStep(scale).rdp(alpha) for alpha in (1.001, 1.5, 2.0, 10.0, 1000.0)]
    assert all(0 < value <= (1 / float(scale)) * (1 + 1e-12) for value in curve)
    assert curve == sorted(curve)


@pytest.mark.parametrize("sigma", ["1e-9", "0.3", "1e9"])
@pytest.mark.parametrize("rate", ["1e-400", "1e-12", "0.5", "0.9999999999999999"])
def test_a_sampled_curve_rises_and_stays_below_the_unsampled_one(sigma, rate):
    step = GaussianStep(sigma, rate=rate)
    orders = (1.125, 1.5, 2.0, 2.5, 9.875, 64.0, 250.5, 1024.0)
    curve = [step.rdp(alpha) for alpha in orders]
    assert all(
        0 < value <= GaussianStep(sigma).rdp(alpha) * (1 + 1e-9) for value, alpha in zip(curve, orders, strict=True)
    )
    assert all(later >= earlier * (1 - 1e-9) - 1e-320 for earlier, later in itertools.pairwise(curve))


def test_the_sampled_curve_at_order_two_is_its_closed_form():
    for sigma, rate in [(1.0, 0.01), (0.5, 0.3), (20.0, 1e-6)]:
        truth = math.log1p(rate**2 * math.expm1(1 / sigma**2))
        assert truth <= sampled_gaussian_rdp(sigma, rate, 2.0) <= truth * (1 + 1e-11)


# The theorems.


def test_releases_on_the_same_data_add():
    assert sequential([epsilon("0.1"), epsilon("0.2")]) == epsilon("0.3")
    assert sequential(rho("0.1", delta=1e-9) for _ in range(3)) == rho("0.3", delta=3e-9)


def test_releases_on_disjoint_parts_cost_the_largest():
    assert parallel({"over 150k": epsilon("0.1"), "under 20k": epsilon("0.2")}) == epsilon("0.2")
    crossed = parallel({"a": epsilon(1, delta="1e-9"), "b": epsilon(2, delta="1e-12")})
    assert crossed == epsilon(2, delta="1e-9")


def test_disjoint_parts_under_replace_one_are_refused_with_the_way_out():
    with pytest.raises(RelationMismatch, match="two parts"):
        parallel({"a": epsilon(1, relation=REPLACE), "b": epsilon(1, relation=REPLACE)})
    assert parallel({"a": epsilon(1), "b": epsilon(1)}).as_replace_one() == epsilon(2, relation=REPLACE)


def test_parts_have_names_and_losses_of_one_measure():
    with pytest.raises(BadLoss, match="every part has a name"):
        parallel([epsilon(1), epsilon(1)])
    with pytest.raises(MeasureMismatch):
        parallel({"a": epsilon(1), "b": rho(1)})


@pytest.mark.parametrize("none", [[], {}])
def test_composing_no_losses_is_refused(none):
    with pytest.raises(BadLoss, match="one or more"):
        (parallel if isinstance(none, dict) else sequential)(none)


def test_what_is_no_loss_is_not_composed():
    with pytest.raises(BadLoss, match="one or more"):
        sequential([epsilon(1), 0.5])
    with pytest.raises(BadLoss):
        post_processed(0.5)


def test_a_hundred_tenths_cost_631_by_advanced_composition_and_ten_by_adding():
    found = advanced(epsilon("0.1"), 100, delta="1e-6")
    truth = 0.1 * math.sqrt(200 * math.log(1e6)) + 10 * math.expm1(0.1)
    assert round(truth, 2) == 6.31
    assert truth * (1 - 1e-15) <= float(found.amount) <= truth * (1 + 1e-11)
    assert found.delta == Fraction(1, 10**6)
    assert (epsilon("0.1") * 100).amount == 10


def test_advanced_composition_adds_the_deltas_and_its_own():
    assert advanced(epsilon("0.1", delta="1e-8"), 100, delta="1e-6").delta == Fraction(2, 10**6)
    assert advanced(epsilon("0.1", delta="0.1"), 100, delta="1e-6").delta == 1


def test_advanced_composition_is_worse_than_adding_for_few_or_large_losses():
    assert advanced(epsilon("0.1"), 2, delta="1e-6").amount > (epsilon("0.1") * 2).amount
    assert advanced(epsilon(1), 1000, delta="1e-6").amount > (epsilon(1) * 1000).amount


@pytest.mark.parametrize(
    ("loss", "count", "delta", "error"),
    [
        (rho(1), 2, "1e-6", MeasureMismatch),
        (epsilon(1), 0, "1e-6", BadLoss),
        (epsilon(1), 1.5, "1e-6", BadLoss),
        (epsilon(1), 2, 0, BadLoss),
        (epsilon(1), 2, 1, BadLoss),
        (epsilon(10**4), 2, "1e-6", BadLoss),
    ],
)
def test_advanced_composition_refuses_what_it_does_not_cover(loss, count, delta, error):
    with pytest.raises(error):
        advanced(loss, count, delta)


def test_post_processing_is_free():
    assert post_processed(epsilon(1, delta=1e-6)) == epsilon(1, delta=1e-6)


@pytest.mark.parametrize(("amount", "rate"), [("1", "0.01"), ("1e-6", "0.5"), ("0.1", "1e-9"), ("600", "0.5")])
def test_sampling_amplifies_by_the_known_formula(amount, rate):
    found = amplified(epsilon(amount, delta="1e-6"), rate)
    truth = math.log1p(float(rate) * math.expm1(float(amount)))
    assert truth * (1 - 1e-14) <= float(found.amount) <= truth * (1 + 1e-11)
    assert found.delta == Fraction(rate) * Fraction(1, 10**6)


def test_sampling_everybody_or_a_hopeless_loss_changes_nothing():
    assert amplified(epsilon(1, delta=1e-6), 1) == epsilon(1, delta=1e-6)
    assert amplified(epsilon(1000), "0.5") == epsilon(1000)


def test_sampling_is_refused_where_the_theorem_does_not_hold():
    with pytest.raises(RelationMismatch, match="add/remove"):
        amplified(epsilon(1, relation=REPLACE), "0.1")
    with pytest.raises(MeasureMismatch, match="as_epsilon"):
        amplified(rho(1), "0.1")
    for rate in (0, 2, -1):
        with pytest.raises(BadProbability):
            amplified(epsilon(1), rate)


def test_sampled_randomised_response_really_loses_the_amplified_epsilon():
    # One bit, reported only if sampled; otherwise the answer is a fair coin. Removing the unit: a fair coin always.
    truth, rate = 1.0, 0.1
    high = math.exp(truth) / (1 + math.exp(truth))
    ratio = ((1 - rate) / 2 + rate * high) / 0.5
    assert math.log(ratio) <= float(amplified(epsilon(1), "0.1").amount)
