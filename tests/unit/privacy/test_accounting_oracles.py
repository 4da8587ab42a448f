"""Our numbers beside OpenDP's, dp-accounting's, closed forms and numerical integration."""

import math

import dp_accounting
import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.pld import accountant as optimal
from dp_accounting.pld import common
from scipy.stats import norm

from cloister.privacy.accountant import (
    DistributionAccountant,
    GaussianStep,
    LaplaceStep,
    PureAccountant,
    RenyiAccountant,
    ZcdpAccountant,
    advanced,
    amplification,
)
from cloister.privacy.accountant.amplification import sampled_gaussian_rdp
from cloister.privacy.accountant.events import DiscreteGaussianStep
from cloister.privacy.accountant.planned import lower_price, price, solve
from cloister.privacy.accountant.renyi import ORDERS
from cloister.privacy.errors import BadLoss, WrongMeasure
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.mechanisms import DiscreteGaussian, Gaussian

DELTAS = [1e-9, 1e-6, 1e-3]


@pytest.fixture(scope="module", autouse=True)
def opendp_features():
    dp.enable_features("contrib")


def opendp_curve(sigma):
    """OpenDP's privacy curve of a Gaussian with that noise multiplier, converted from its zCDP."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=sigma)).map(1.0)


def gaussian_delta(sigma, at):
    """The exact delta of Gaussian noise (Balle & Wang 2018)."""
    return norm.cdf(0.5 / sigma - at * sigma) - math.exp(at + norm.logcdf(-0.5 / sigma - at * sigma))


@pytest.mark.parametrize("sigma", [0.25, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_a_rho_converts_as_in_opendp_and_never_lower(sigma, delta):
    accountant = ZcdpAccountant().compose(GaussianStep(sigma))
    found, reference = float(accountant.epsilon(delta)), opendp_curve(sigma).epsilon(delta=delta)
    assert reference * (1 - 1e-9) <= found <= reference * (1 + 1e-6)


@pytest.mark.parametrize("amount", ["0.001", "0.1", "2"])
@pytest.mark.parametrize("delta", DELTAS)
def test_a_rho_converts_as_a_dense_renyi_curve_does_in_dp_accounting(amount, delta):
    orders = np.concatenate([1 + np.geomspace(0.05, 50, 4000), np.geomspace(52, 1e4, 2000)])
    reference = dp_accounting.rdp.RdpAccountant(orders=orders)
    reference.compose(dp_accounting.GaussianDpEvent(math.sqrt(0.5 / float(amount))))
    expected = reference.get_epsilon(delta)
    found = float(ZcdpAccountant().compose(rho(amount)).epsilon(delta))
    assert expected * (1 - 1e-4) <= found <= expected * (1 + 1e-9)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 4.0])
def test_every_accountant_stays_above_the_exact_gaussian(sigma):
    for at in (0.1, 1.0, 4.0):
        truth = gaussian_delta(sigma, at)
        for accountant in (ZcdpAccountant(), RenyiAccountant(), DistributionAccountant(interval=1e-3)):
            composed = accountant.compose(GaussianStep(sigma))
            assert float(composed.delta(at)) >= truth * (1 - 1e-12)
            if truth > 1e-9:
                assert float(composed.epsilon(truth)) >= at * (1 - 1e-9)


@pytest.mark.parametrize(("sigma", "count"), [(10.0, 100), (30.0, 1000), (100.0, 20_000)])
def test_convolved_gaussians_stay_above_the_exact_one_down_to_the_smallest_delta(sigma, count):
    composed = DistributionAccountant().compose(GaussianStep(sigma), count=count)
    for at in (0.1, 1.0, 3.0, 5.0, 6.5):
        truth = gaussian_delta(sigma / math.sqrt(count), at)
        assert truth <= float(composed.delta(at)) <= truth * 1.001 + 3e-12
        if truth > 1e-10:
            assert at <= float(composed.epsilon(truth)) <= at + 0.01


@pytest.mark.parametrize(("sigma", "count"), [(300, 200_000), (400, 300_000), (450, 400_000), (300, 600_000)])
@pytest.mark.parametrize("delta", ["2e-9", "1e-8", "1e-6"])
def test_many_steps_are_never_priced_below_the_exact_gaussian(sigma, count, delta):
    steps = ((DiscreteGaussianStep(sigma * 2**30, 2**30, 1, 1), count),)
    upper, lower = float(price(steps, epsilon(1, delta=delta))), lower_price(steps, epsilon(1, delta=delta))
    multiplier = sigma / math.sqrt(count)
    assert gaussian_delta(multiplier, upper) <= float(delta) <= gaussian_delta(multiplier, lower)
    assert upper <= lower * 1.1


@pytest.mark.parametrize(("sigma", "count"), [(300, 200_000), (300, 300_000), (400, 400_000), (300, 600_000)])
def test_a_delta_within_the_error_of_many_convolutions_has_no_epsilon(sigma, count):
    """An exact Gaussian of this size is priced up to half a percent too low without an allowance for each step."""
    steps = ((DiscreteGaussianStep(sigma * 2**30, 2**30, 1, 1), count),)
    with pytest.raises(WrongMeasure, match="no finite epsilon"):
        price(steps, epsilon(1, delta="1e-10"))
    with pytest.raises(BadLoss, match="larger delta"):
        solve(epsilon(1, delta="1e-10"), steps=count, rate=1, coordinates=1, sensitivity=2**30)


def discrete_delta(sigma, shift, count, at):
    """The delta of `count` discrete Gaussian releases, from the law of the sum of losses, point by point.

    The loss at noise k is shift (2 k + shift)/(2 sigma²), so losses of several releases add as the sums of their k do.
    """
    k = np.arange(-40 * math.ceil(sigma), 40 * math.ceil(sigma) + 1)
    law = np.exp(-(k**2) / (2 * sigma**2))
    law /= law.sum()
    total, places = law, k
    for _ in range(count - 1):
        total = np.convolve(total, law)
        places = np.arange(places[0] + k[0], places[-1] + k[-1] + 1)
    loss = shift * (2 * places + count * shift) / (2 * sigma**2)
    return float((total * -np.expm1(np.minimum(at - loss, 0))).sum())


@pytest.mark.parametrize(
    ("sigma", "shift", "count"), [(0.5, 1, 1), (1, 1, 1), (1, 1, 6), (5, 3, 1), (5, 1, 30), (2, 4, 2)]
)
def test_discrete_gaussian_noise_is_priced_by_its_own_law(sigma, shift, count):
    step = DiscreteGaussian(shift, sigma, rho(shift**2 / (2 * sigma**2)), scalar=True)
    plan = DistributionAccountant().compose(step, count)
    for at in (0.01, 0.5, 1.0, 3.0, 9.6):
        truth = discrete_delta(sigma, shift, count, at)
        assert truth * (1 - 1e-12) <= float(plan.delta(at)) <= truth * 1.003 + 3e-12
        if truth > 1e-9:
            assert float(plan.epsilon(truth)) >= at * (1 - 1e-9)


def test_the_continuous_law_would_price_discrete_noise_too_low():
    step = DiscreteGaussian(1, "1/2", rho(2), scalar=True)
    own, continuous = (DistributionAccountant().compose(one).delta("9.6") for one in (step, GaussianStep("1/2")))
    assert own > 3 * continuous


@pytest.mark.parametrize(
    "step",
    [
        DiscreteGaussian.for_loss(1, rho("0.1")),
        DiscreteGaussian.for_loss(2**20, rho("0.1"), scalar=True),
        Gaussian.for_loss(1, rho("0.1")),
    ],
)
def test_discrete_noise_without_a_known_distribution_is_refused_with_an_accountant_that_prices_it(step):
    with pytest.raises(WrongMeasure, match="Use RenyiAccountant or ZcdpAccountant"):
        DistributionAccountant().compose(step)
    assert RenyiAccountant().compose(step).epsilon(1e-6) > 0


def test_the_reference_case_of_private_gradient_descent():
    step = GaussianStep(1, rate="0.01")
    plan, curve = DistributionAccountant().compose(step, 1000), RenyiAccountant().compose(step, 1000)
    assert float(plan.epsilon(1e-5)) == pytest.approx(1.828, abs=5e-4)
    assert float(curve.epsilon(1e-5)) == pytest.approx(2.101, abs=1e-3)
    assert plan.loss(1e-5).as_rho().delta == plan.loss(1e-5).delta


@pytest.mark.parametrize(("sigma", "rate", "count"), [(0.8, 0.001, 5000), (2.0, 0.1, 300), (5.0, 0.5, 50)])
def test_sampled_gaussians_cost_what_dp_accounting_says(sigma, rate, count):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    renyi = dp_accounting.rdp.RdpAccountant(orders=[float(order) for order in ORDERS if order == int(order)])
    exact = dp_accounting.pld.PLDAccountant()
    step = GaussianStep(sigma, rate=rate)
    ours, tightest = RenyiAccountant().compose(step, count), DistributionAccountant().compose(step, count)
    for delta in (1e-8, 1e-5):
        # Theirs at whole orders only; ours has eighths too, so it may be a little smaller but never below the PLD.
        reference = renyi.compose(event, count).get_epsilon(delta) if delta == 1e-8 else renyi.get_epsilon(delta)
        pld = exact.compose(event, count).get_epsilon(delta) if delta == 1e-8 else exact.get_epsilon(delta)
        assert reference * 0.95 <= float(ours.epsilon(delta)) <= reference * (1 + 1e-9)
        assert pld * (1 - 1e-9) <= float(tightest.epsilon(delta)) <= pld * (1 + 1e-3)
        assert tightest.epsilon(delta) < ours.epsilon(delta)


def integrated_rdp(sigma, rate, alpha):
    """ln A/(alpha-1) by the trapezoid rule, which converges exponentially on such integrands, in long doubles.

    The integrand is u ↦ (1+u)^alpha - 1 - alpha·u for the ratio 1+u, whose last two parts integrate to nothing.
    """
    step = np.longdouble(sigma) / 512
    z = step * np.arange(-40 * 512, int((40 + (alpha + 5) / sigma) * 512)).astype(np.longdouble)
    law = np.exp(-z * z / (2 * np.longdouble(sigma) ** 2)) / (sigma * np.sqrt(2 * np.longdouble(np.pi)))
    u = np.longdouble(rate) * np.expm1((2 * z - 1) / (2 * np.longdouble(sigma) ** 2))
    excess = np.expm1(alpha * np.log1p(u)) - alpha * u
    return float(np.log1p((excess * law).sum() * step) / (alpha - 1))


@pytest.mark.parametrize(
    ("sigma", "rate"), [(1.0, 0.01), (0.6, 0.1), (2.0, 0.5), (1.0, 1e-4), (5.0, 0.9), (20.0, 0.01)]
)
def test_the_sampled_curve_is_the_integral_and_never_below_it(sigma, rate):
    for alpha in (1.125, 1.5, 2.0, 2.5, 3.125, 5.5, 9.875, 16.0):
        truth = integrated_rdp(sigma, rate, alpha)
        found = sampled_gaussian_rdp(sigma, rate, alpha)
        assert truth * (1 - 1e-13) <= found <= truth * (1 + 2e-3), alpha


@pytest.mark.parametrize("terms", [20, 21])
def test_a_series_cut_short_is_still_above_the_integral(monkeypatch, terms):
    monkeypatch.setattr(amplification, "_TERMS", terms)
    for alpha in (1.5, 2.5, 3.125, 5.5):
        assert sampled_gaussian_rdp(2.0, 0.5, alpha) >= integrated_rdp(2.0, 0.5, alpha)


@pytest.mark.parametrize("alpha", [1.125, 2.0, 3.5, 20.0])
@pytest.mark.parametrize("scale", [0.3, 1.0, 30.0, 3000.0])
def test_the_laplace_curve_is_the_integral_and_never_below_it(scale, alpha):
    # Left of 0 and right of 1 the ratio is constant and the integral known; between them Simpson's rule.
    b, a = np.longdouble(scale), np.longdouble(alpha)
    middle = np.linspace(0, 1, 200_001).astype(np.longdouble)
    values = np.exp((a - 1) * (1 - 2 * middle) / b - middle / b) / (2 * b)
    simpson = (values[0] + values[-1] + 4 * values[1:-1:2].sum() + 2 * values[2:-1:2].sum()) / (3 * 200_000)
    total = np.exp((a - 1) / b) / 2 + np.exp(-(a - 1) / b) * np.exp(-1 / b) / 2 + simpson
    truth = float(np.log(total) / (a - 1))
    found = LaplaceStep(scale).rdp(alpha)
    assert truth * (1 - 1e-9) <= found <= truth * (1 + 1e-6)


def test_laplace_noise_is_priced_as_in_dp_accounting():
    reference = dp_accounting.pld.PLDAccountant().compose(dp_accounting.LaplaceDpEvent(2.0), 20).get_epsilon(1e-6)
    found = float(DistributionAccountant().compose(LaplaceStep(2), 20).epsilon(1e-6))
    assert reference <= found <= reference * (1 + 1e-3)
    assert found <= float(RenyiAccountant().compose(LaplaceStep(2), 20).epsilon(1e-6)) <= 10


@pytest.mark.parametrize("count", [1, 20, 200])
@pytest.mark.parametrize("loss", [epsilon("0.1"), epsilon("0.1", delta="1e-9"), epsilon(1)])
def test_the_composition_theorems_stay_above_the_optimal_one_and_the_distribution_reaches_it(loss, count):
    parameters = common.DifferentialPrivacyParameters(float(loss.amount), float(loss.delta))
    best = optimal.advanced_composition(parameters, count, 1e-6)
    tightest = float(DistributionAccountant().compose(loss, count).epsilon(1e-6))
    # The theorem's function answers in whole steps of twice epsilon, rounded up.
    assert best - 2 * float(loss.amount) <= tightest <= best * (1 + 1e-9)
    others = [ZcdpAccountant(), RenyiAccountant(), *([PureAccountant()] if loss.is_pure else [])]
    assert all(float(other.compose(loss, count).epsilon(1e-6)) >= tightest * (1 - 1e-6) for other in others)
    # Advanced composition's own delta is what the steps leave of the total.
    left = 1e-6 - count * float(loss.delta)
    assert float(advanced(loss, count, delta=left).amount) >= tightest * (1 - 1e-6)
