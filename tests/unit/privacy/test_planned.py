"""Planned releases: the price of discrete noise on sampled integer vectors, from both sides; noise for a loss."""

import math
import multiprocessing
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from cloister.privacy.accountant import DiscreteGaussianStep, DistributionAccountant, GaussianStep, RenyiAccountant
from cloister.privacy.accountant import planned as planned_module
from cloister.privacy.accountant.planned import NoiseSteps, PlannedRelease, lower_price, price, solve
from cloister.privacy.accountant.rounded_gaussian import divergence, total_variation
from cloister.privacy.errors import BadLoss, BadScale, CloisterError, OverBudget
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.noise import SYSTEM, SeededSource

S = 2**30


def step(multiplier=1, rate=1, coordinates=10):
    return DiscreteGaussianStep(int(multiplier * S), S, coordinates, rate)


# The distance of discrete from rounded normal noise.


@pytest.mark.parametrize("sigma", [1024, 1500])
def test_the_bound_on_the_divergence_holds_for_the_laws_summed_point_by_point(sigma):
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 40
    k = range(-9 * sigma, 9 * sigma + 1, 61)  # a coarse lattice of points: the summand is smooth
    discrete = [mpmath.exp(-(mpmath.mpf(i) ** 2) / (2 * sigma**2)) for i in k]
    norm = sigma * mpmath.sqrt(2 * mpmath.pi)  # of all integers, to 10^-1000000
    edge = sigma * mpmath.sqrt(2)
    rounded = [(mpmath.erf((i + 0.5) / edge) - mpmath.erf((i - 0.5) / edge)) / 2 for i in k]
    squared = 61 * sum(
        (q - p / norm) ** 2 / (p / norm) for p, q in zip(discrete, rounded, strict=True)
    )  # chi² by Riemann's sum
    assert squared <= divergence(Fraction(sigma)) * (1 + Fraction(1, 10**6))
    assert squared >= float(divergence(Fraction(sigma))) * 0.99  # the bound is sharp


def test_noise_on_a_coarse_grid_is_refused():
    with pytest.raises(BadScale, match="finer grid"):
        divergence(Fraction(1000))
    with pytest.raises(BadScale):
        DistributionAccountant().compose(DiscreteGaussianStep(500, 100, 3))


def test_the_distance_grows_with_the_root_of_all_integers_and_shrinks_with_the_grid():
    def apart(sigma, draws):
        return total_variation(divergence(Fraction(sigma)) * draws)

    assert apart(S, 10**10) < 4e-15
    assert math.isclose(apart(2**20, 4 * 10**6), 2 * apart(2**20, 10**6), rel_tol=1e-9)
    assert math.isclose(apart(2**20, 10**6), 16 * apart(2**22, 10**6), rel_tol=1e-9)
    assert math.isclose(apart(2**20, 10**6), math.sqrt(10**6) / (24 * 2.0**40), rel_tol=1e-5)


def test_discrete_noise_costs_what_normal_noise_costs_and_the_distance():
    normal = DistributionAccountant().compose(GaussianStep(1, rate="0.01"), 1000)
    fine = DistributionAccountant().compose(step(1, "0.01", 10**6), 1000)
    assert normal.epsilon(1e-5) <= fine.epsilon(1e-5) <= normal.epsilon(1e-5) * (1 + Fraction(1, 10**6))
    coarse = DistributionAccountant().compose(DiscreteGaussianStep(2**16, 2**16, 10**6, "0.01"), 1000)
    assert coarse.epsilon(1e-5) > normal.epsilon(1e-5)
    assert coarse.delta(1) >= normal.delta(1) + Fraction((1 + math.e) * math.sqrt(1e9) / (24 * 2.0**32))


def test_where_the_distance_exceeds_delta_there_is_no_finite_epsilon():
    plan = DistributionAccountant().compose(DiscreteGaussianStep(2**11, 2**11, 10**6, "0.01"), 1000)
    with pytest.raises(CloisterError, match="no finite epsilon"):
        plan.epsilon("1e-5")


# Prices.


def test_without_sampling_the_price_is_that_of_one_gaussian():
    # T steps of sigma are one step of sigma/sqrt(T).
    one = DistributionAccountant(interval=1e-5).compose(GaussianStep(5), 1).epsilon(1e-5)
    many = price(((step(50, 1), 100),), epsilon(1, delta="1e-5"))
    assert abs(many / one - 1) < Fraction(1, 500)
    assert many >= one * (1 - Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("multiplier", "rate", "times"), [(1, "0.01", 1000), (2, "1/4", 200), ("0.8", "1/1000", 3000), (30, 1, 10)]
)
def test_the_price_is_near_that_of_dp_accounting_at_a_fine_interval(multiplier, rate, times):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    fine = pld.from_gaussian_mechanism(
        float(multiplier), value_discretization_interval=5e-5, sampling_prob=float(Fraction(rate))
    ).self_compose(times)
    oracle = fine.get_epsilon_for_delta(1e-5)
    own = float(price(((step(Fraction(multiplier), rate), times),), epsilon(1, delta="1e-5")))
    assert oracle * (1 - 1e-4) <= own <= oracle * 1.002


@pytest.mark.parametrize(
    ("spend", "rate", "times"),
    [("1", "1/100", 2000), ("3", "1/60", 1000), ("0.1", "1/50", 500), ("8", "1/4", 200), ("0.01", 1, 1), ("1", 1, 30)],
)  # fmt: skip
def test_lower_and_upper_bound_are_within_a_hundredth(spend, rate, times):
    loss = epsilon(spend, delta="1e-5")
    plan = ((solve(loss, steps=times, rate=rate, coordinates=1000, sensitivity=S), times),)
    upper, lower = float(price(plan, loss)), lower_price(plan, loss)
    assert 0.99 * upper <= lower <= upper


@pytest.mark.parametrize("multiplier", [0.5, 2.0, 50.0])
def test_the_lower_bound_is_below_the_exact_epsilon_of_one_gaussian(multiplier):
    # Balle & Wang 2018: delta = Phi(1/2s - es) - e^e Phi(-1/2s - es).
    def delta(e):
        near, far = (ndtr(sign / (2 * multiplier) - e * multiplier) for sign in (1, -1))
        return near - math.exp(e) * far

    exact = brentq(lambda e: delta(e) - 1e-5, 1e-9, 50)
    plan = ((step(multiplier * math.sqrt(20)), 20),)
    loss = epsilon(1, delta="1e-5")
    assert 0.985 * exact <= lower_price(plan, loss) <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-9) <= price(plan, loss) <= exact * 1.005


def test_a_rho_without_sampling_is_exact_and_with_it_has_no_lower_bound():
    assert lower_price(((step(10), 50),), rho(1)) == 0.25
    assert lower_price(((step(10, "0.5"), 50),), rho(1)) == 0


def test_a_rho_is_not_amplified_by_sampling():
    plan = ((step(10, "0.01"), 50),)
    assert price(plan, rho(1)) == Fraction(50, 200)
    curve = RenyiAccountant().compose(step(10, "0.01"), 50)
    assert curve.epsilon(1e-5) >= price(plan, epsilon(1, delta="1e-5"))


@pytest.mark.parametrize("spend", [epsilon("0.5", delta="1e-6"), epsilon(8, delta="1e-5"), rho("0.3")], ids=str)
@pytest.mark.parametrize(("rate", "times"), [("1/50", 300), (1, 20)])
def test_noise_for_a_loss_costs_at_most_the_loss_and_nearly_all_of_it(spend, rate, times):
    found = solve(spend, steps=times, rate=rate, coordinates=1000, sensitivity=S)
    paid = price(((found, times),), spend)
    assert paid <= spend.amount
    assert paid >= spend.amount * Fraction(99, 100)
    assert found.sigma.denominator == 1


def test_steps_beside_others_get_what_those_leave():
    also = ((step(10),  1),)  # fmt: skip
    spend = rho("0.1")
    found = solve(spend, steps=10, rate=1, coordinates=5, sensitivity=S, also=also)
    assert price((*also, (found, 10)), spend) <= spend.amount
    with pytest.raises(BadLoss, match="nothing is left"):
        solve(rho("0.001"), steps=10, rate=1, coordinates=5, sensitivity=S, also=also)


def test_many_steps_and_a_small_epsilon_are_priced_fast(within):
    spend = epsilon(1, delta="1e-5")
    plan = ((step(1.4, "1/1000"), 100_000),)

    def priced(plan, spend):
        planned_module._epsilon.cache_clear()
        return price(plan, spend)

    assert within(1.0, lambda: priced(plan, spend)) > 0
    small = within(1.0, lambda: priced(((step(380), 1),), epsilon("0.01", delta="1e-5")))
    assert 0.005 < small < 0.01


# The mechanism.


def planned(times=3, spend=None):
    spend = spend or rho("0.5")
    return PlannedRelease(((solve(spend, steps=times, rate="1/2", coordinates=4, sensitivity=S), times),), spend)


def test_a_planned_release_is_a_mechanism_that_costs_its_loss():
    made = planned()
    assert isinstance(made, Mechanism)
    assert made.zcdp == rho("0.5")
    assert made.pure is None
    spend = epsilon(1, delta="1e-5")
    assert planned(spend=spend).zcdp == spend.as_rho()
    assert made.rdp(2) >= 2 * 0.49


def test_steps_that_cost_more_than_the_loss_are_refused():
    with pytest.raises(BadLoss, match="cost more"):
        PlannedRelease(((step(1, 1, 4), 3),), rho(1))
    with pytest.raises(BadLoss, match="needs an epsilon with a delta"):
        PlannedRelease(((step(1, 1, 4), 3),), epsilon(1))


def test_a_ledger_charges_the_whole_once_and_noise_ends_with_the_plan(tmp_path):
    made = planned(times=3)
    vector = np.arange(4, dtype=np.int64)

    def run(noise):
        results = [noise.release(vector) for _ in range(3)]
        with pytest.raises(OverBudget, match="no such step left"):
            noise.release(vector)
        return results

    released = made.release(run, SeededSource(1))
    assert len(released) == 3
    assert len({tuple(result) for result in released}) == 3  # fresh noise each time
    with Ledger.in_folder(tmp_path) as book:
        account = book.open_account("rows", rho(1))
        assert account.price(made) == rho("0.5")


def test_a_step_is_for_its_number_of_integers_only():
    noise = NoiseSteps(planned().steps, SeededSource(2))
    with pytest.raises(OverBudget):
        noise.release(np.zeros(5, dtype=np.int64))
    with pytest.raises(OverBudget):
        noise.release(np.zeros(4))
    noise.skip(3)
    with pytest.raises(OverBudget):
        noise.release(np.zeros(4, dtype=np.int64))


def test_noise_has_the_stated_standard_deviation():
    made = PlannedRelease(((step(2, 1, 20_000), 1),), rho("0.125"))
    drawn = made.release(lambda noise: noise.release(np.zeros(20_000, dtype=np.int64)), SeededSource(4)) / S
    assert abs(drawn.std() / 2 - 1) < 0.02
    assert abs(drawn.mean()) < 0.06


def test_noise_drawn_ahead_is_used_once_and_belongs_to_its_step():
    first, then = step(1, 1, 3), step(50, 1, 4)
    noise = NoiseSteps(((first, 40), (then, 30)), SeededSource(8))
    drawn = [noise.release(np.zeros(3, dtype=np.int64)) for _ in range(40)]
    wide = [noise.release(np.zeros(4, dtype=np.int64)) for _ in range(30)]
    assert len({tuple(vector) for vector in (*drawn, *wide)}) == 70
    assert len({number for vector in (*drawn, *wide) for number in vector.tolist()}) == 240
    assert 0.8 < np.std(drawn) / S < 1.2
    assert 40 < np.std(wide) / S < 60
    with pytest.raises(OverBudget):
        noise.release(np.zeros(4, dtype=np.int64))


def test_a_forked_process_uses_none_of_the_noise_that_was_drawn_ahead():
    noise, zeros = NoiseSteps(((step(1, 1, 4), 50),), SYSTEM), np.zeros(4, dtype=np.int64)
    noise.release(zeros)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put([noise.release(zeros).tolist() for _ in range(9)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs = queue.get()
    child.join()
    ours = [noise.release(zeros).tolist() for _ in range(9)]
    assert not {tuple(one) for one in ours} & {tuple(one) for one in theirs}
