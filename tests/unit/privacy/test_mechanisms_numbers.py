"""Every number a mechanism states, against the sum over its law."""

import math
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from cloister.lessons.noise import Staircase, Vector
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    KaryResponse,
    Laplace,
    RandomisedResponse,
    discrete_gaussian,
    root_above,
)
from cloister.privacy.mechanisms.discrete_laplace import laplace_at, laplace_at_least
from cloister.privacy.mechanisms.mechanism import pure_curve
from cloister.privacy.number import log_above, ratio_within, root_below, short_above

getcontext().prec = 50
REPLACE = {"relation": "replace-one"}


def gaussian_law(sigma: float, reach: int) -> np.ndarray:
    weights = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
    return weights / weights.sum()


def laplace_law(scale: float, reach: int) -> np.ndarray:
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return weights / weights.sum()


def renyi(law: np.ndarray, shift: int, alpha: float) -> float:
    p, q = law[shift:], law[:-shift]
    seen = (p > 0) & (q > 0)
    logs = alpha * np.log(p[seen]) + (1 - alpha) * np.log(q[seen])
    return float(np.logaddexp.reduce(logs)) / (alpha - 1)


@pytest.mark.parametrize("sensitivity", [1, 2, 7])
@pytest.mark.parametrize("amount", ["0.05", "1", "4"])
@pytest.mark.parametrize("alpha", [1.1, 2, 17])
def test_the_renyi_curve_of_discrete_laplace_is_exact(sensitivity: int, amount: str, alpha: float) -> None:
    made = DiscreteLaplace.for_loss(sensitivity, epsilon(amount))
    true = renyi(laplace_law(float(made.scale), int(60 * made.scale) + 60), sensitivity, alpha)
    assert true * (1 - 1e-9) <= made.rdp(alpha) <= true * (1 + 1e-6)


def test_one_moved_coordinate_is_the_worst_for_discrete_laplace() -> None:
    law = laplace_law(3.0, 400)
    for alpha in (1.5, 4, 40):
        whole = renyi(law, 6, alpha)
        assert renyi(law, 3, alpha) * 2 < whole
        assert renyi(law, 1, alpha) + renyi(law, 5, alpha) < whole


def test_laplace_on_a_fine_grid_has_the_curve_of_the_continuous_law() -> None:
    made = Laplace.for_loss(1, epsilon("0.7"))
    for alpha in (1.5, 2.0, 20.0):
        e = 0.7  # Mironov 2017, Prop. 6
        moment = alpha / (2 * alpha - 1) * math.exp((alpha - 1) * e) + (alpha - 1) / (2 * alpha - 1) * math.exp(
            -alpha * e
        )
        assert made.rdp(alpha) == pytest.approx(math.log(moment) / (alpha - 1), rel=1e-6)


@pytest.mark.parametrize(("sensitivity", "sigma"), [(1, "0.4"), (1, 5), (4, "7.5")])
def test_discrete_gaussian_has_exactly_the_rho_it_states_at_whole_orders(sensitivity: int, sigma: object) -> None:
    size = Fraction(sigma)
    made = DiscreteGaussian(sensitivity, size, rho(sensitivity**2 / (2 * size**2)))
    law = gaussian_law(float(size), int(30 * size) + 30)
    for alpha in (2, 3):
        assert made.rdp(alpha) == pytest.approx(renyi(law, sensitivity, alpha), rel=1e-6)
        assert made.rdp(alpha) >= alpha * float(made.loss.amount)
    for alpha in (1.2, 1.5, 2.7):
        assert made.rdp(alpha) >= renyi(law, sensitivity, alpha) * (1 - 1e-9)


def exact_delta(sensitivity: int, sigma: Fraction, amount: Fraction) -> Decimal:
    s, e, reach = Decimal(sigma.numerator) / sigma.denominator, Decimal(str(float(amount))).exp(), int(25 * sigma) + 25
    weight = [(-(Decimal(k) ** 2) / (2 * s * s)).exp() for k in range(-reach, reach + sensitivity + 1)]
    gain = sum(max(Decimal(0), weight[k] - e * weight[k + sensitivity]) for k in range(2 * reach + 1))
    return gain / sum(weight[: 2 * reach + 1])


@pytest.mark.parametrize(
    ("sensitivity", "sigma", "amount"),
    [(1, "1/2", 1), (1, 5, "1/2"), (3, 7, 1), (10, 3, 2), (1, 12, "1/10"), (5, 1, "1/4")],
)
def test_the_delta_of_one_integer_is_exact_and_rounded_up(sensitivity: int, sigma: object, amount: object) -> None:
    found = discrete_gaussian.discrete_delta(sensitivity, Fraction(sigma), Fraction(amount))
    true = exact_delta(sensitivity, Fraction(sigma), Fraction(amount))
    assert true <= Decimal(found) <= true * Decimal("1.00000001")


@pytest.mark.parametrize(
    ("sensitivity", "amount"), [(1000, "1"), (10, "1/100"), (4000, "3"), (9000, "1/2"), (40000, "1")]
)
def test_the_integral_for_large_sigmas_bounds_the_sum_closely(sensitivity: int, amount: str) -> None:
    sigma, e = Fraction(4000), Fraction(amount)
    first = math.floor(e * sigma**2 / sensitivity - Fraction(sensitivity, 2)) + 1
    total = discrete_gaussian._sum(first, sensitivity, sigma, float(e))
    bound = discrete_gaussian._integral(float(first), sensitivity, 4000.0, float(e))
    assert total * (1 - 2e-11) <= bound <= total * 1.001


@pytest.mark.parametrize("amount", ["0.1", "1", "5"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-9"])
@pytest.mark.parametrize("sensitivity", [1, 30, 2**30])
def test_the_discrete_calibration_is_safe_and_near_the_continuous_one(
    amount: str, delta: str, sensitivity: int
) -> None:
    loss = epsilon(amount, delta=delta)
    sigma, continuous = discrete_gaussian.discrete(sensitivity, loss), discrete_gaussian.analytic(sensitivity, loss)
    assert discrete_gaussian.discrete_delta(sensitivity, sigma, loss.amount) <= loss.delta
    assert continuous <= sigma <= continuous * Fraction(6, 5)
    assert sigma < discrete_gaussian.concentrated(sensitivity, loss)


def test_the_analytic_calibration_meets_its_delta() -> None:
    for amount, delta in (("0.1", "1e-5"), ("1", "1e-6"), ("8", "1e-10")):
        sigma = float(discrete_gaussian.analytic(1, epsilon(amount, delta=delta)))
        assert discrete_gaussian.normal_delta(sigma, float(amount)) <= float(delta)
        assert discrete_gaussian.normal_delta(sigma * 0.9999, float(amount)) > float(delta)


def true_delta_over(sigma: Fraction, loss: Loss) -> mpmath.mpf:
    """The continuous Gaussian's delta at sensitivity 1 over the loss's, to 300 digits (Balle & Wang 2018, Thm 8)."""
    with mpmath.workdps(400):
        s, e, delta = (mpmath.mpf(x.numerator) / x.denominator for x in (sigma, loss.amount, loss.delta))
        return (mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)) / delta


@pytest.mark.parametrize("amount", ["1e-20", "1e-14", "1e-12", "1e-9", "1e-6", "1e-4", "1e-2", "0.3", "1", "10", "1e6"])
@pytest.mark.parametrize("delta", ["1e-100", "1e-50", "1e-30", "1e-20", "1e-10", "1e-5", "0.01", "0.5"])
def test_the_analytic_sigma_is_never_too_small_and_hardly_too_large(amount: str, delta: str) -> None:
    loss = epsilon(amount, delta=delta)
    sigma = discrete_gaussian.analytic(1, loss)
    assert true_delta_over(sigma, loss) <= 1
    assert true_delta_over(sigma * (1 - Fraction(1, 10**8)), loss) > 1


def test_known_sigmas() -> None:
    assert float(discrete_gaussian.analytic(1, epsilon(1, delta="1e-5"))) == pytest.approx(3.730632, rel=1e-6)
    assert float(discrete_gaussian.classical(1, epsilon("0.5", delta="1e-5"))) == pytest.approx(9.689611, rel=1e-6)
    # With delta outside the logarithm, as sometimes printed, sigma would be 44 times too large.
    assert math.sqrt(2 * math.log(1.25) / 1e-5) / math.sqrt(2 * math.log(1.25 / 1e-5)) == pytest.approx(43.6, abs=0.1)
    assert discrete_gaussian.concentrated(3, rho("0.125")) == 6


def test_an_irrational_sigma_is_rounded_up_so_that_the_stated_rho_holds() -> None:
    for amount in ("0.1", "1/3", "7"):
        made = DiscreteGaussian.for_loss(root_above(2), rho(amount))
        exact = made.sensitivity**2 / (2 * made.sigma**2)
        assert exact <= made.loss.amount <= exact * (1 + Fraction(1, 10**10))
        assert made.parameters()["sigma"] == str(made.sigma)


@pytest.mark.parametrize("scale", ["0.1", "1", "2.5", "40"])
def test_margins_and_quantiles_of_discrete_laplace_are_those_of_its_law(scale: str) -> None:
    made = DiscreteLaplace.for_loss(1, epsilon(1 / Fraction(scale)))
    reach = int(100 * Fraction(scale)) + 100
    check_law(made, laplace_law(float(scale), reach), reach)


@pytest.mark.parametrize("sigma", ["0.2", "1", "2.9", "3.1", "77"])
def test_margins_and_quantiles_of_discrete_gaussian_are_those_of_its_law(sigma: str) -> None:
    made = DiscreteGaussian(1, sigma, rho(1 / (2 * Fraction(sigma) ** 2)))
    reach = int(40 * Fraction(sigma)) + 40
    check_law(made, gaussian_law(float(sigma), reach), reach)


def check_law(made: DiscreteLaplace, law: np.ndarray, reach: int) -> None:
    at = np.arange(-reach, reach + 1)
    assert made.variance == pytest.approx((at**2 * law).sum(), rel=1e-9)
    for confidence in (0.01, 0.5, 0.9, 0.95, 0.999, 1 - 1e-9):
        k = made.margin(confidence)
        assert law[np.abs(at) <= k].sum() >= confidence - 1e-12
        assert k == 0 or law[np.abs(at) <= k - 1].sum() < confidence + 1e-12
    for p in (1e-6, 0.03, 0.4999, 0.5, 0.7, 0.975):
        k = made.quantile(p)
        assert law[at <= k].sum() >= p - 1e-12
        assert law[at <= k - 1].sum() < p + 1e-12


def test_large_sigmas_use_the_normal_law_to_a_billionth() -> None:
    below, above = (DiscreteGaussian(1, sigma, rho(1)) for sigma in (2**14, 2**14 + 1))
    for confidence in ("0.3", "0.95", "0.999999999"):
        assert 0 <= above.margin(confidence) - below.margin(confidence) <= 6 + 2**14 * 1e-8
    huge = DiscreteGaussian(1, 10**40, rho(1))
    assert huge.margin("0.95") / 10**40 == pytest.approx(1.959963985)


def test_confidences_near_one_are_still_covered() -> None:
    laplace = DiscreteLaplace.for_loss(1, epsilon(1))
    assert laplace.margin(1 - Fraction(1, 10**60)) == pytest.approx(138, abs=1)
    gaussian = DiscreteGaussian(1, 10, rho("0.005"))
    assert 160 < gaussian.margin(1 - Fraction(1, 10**60)) < 170


def test_tails_and_points_agree() -> None:
    at = np.arange(-200, 201)
    for scale in (0.3, 4.0):
        assert laplace_at(at, scale).sum() == pytest.approx(1)
        for k in (-3, 0, 1, 5):
            assert laplace_at_least(np.array([k]), scale)[0] == pytest.approx(laplace_at(at[at >= k], scale).sum())


def test_the_staircase_is_a_density_that_falls_by_epsilon_a_sensitivity() -> None:
    made = Staircase.for_loss(2, epsilon("0.8"))
    at = np.linspace(-60, 60, 1_200_001)
    width = at[1] - at[0]
    density = made.density(at)
    assert density.sum() * width == pytest.approx(1, abs=1e-4)
    assert (at**2 * density).sum() * width == pytest.approx(made.variance, rel=1e-4)
    for confidence in (0.05, 0.5, 0.95):
        assert density[np.abs(at) <= made.margin(confidence)].sum() * width == pytest.approx(confidence, abs=1e-4)
    x = np.linspace(-8.1, 8.1, 999)
    ratio = np.log(made.density(x) / made.density(x + 2))
    assert np.abs(ratio).max() == pytest.approx(0.8)
    assert made.variance < Laplace.for_loss(2, epsilon("0.8")).variance


def test_the_vector_mechanism_in_one_dimension_is_laplace() -> None:
    made = Vector.for_loss(1, epsilon("0.5"), dimension=1)
    assert made.variance == pytest.approx(8)
    assert made.margin("0.95") == pytest.approx(2 * math.log(20))


def test_randomised_response_goes_from_epsilon_to_p_and_back() -> None:
    for amount in ("0.01", "1", "3.7", "30"):
        made = RandomisedResponse.for_loss(epsilon(amount, **REPLACE))
        back = log_above(made.yes_if_true / made.yes_if_false)
        assert Fraction(amount) * (1 - Fraction(1, 10**9)) <= back <= Fraction(amount) * (1 + Fraction(1, 10**12))
        assert KaryResponse.for_loss(2, made.loss).truth == made.yes_if_true
    for p in ("0.05", "0.5", "0.8", "0.99"):
        coin = RandomisedResponse.coin(p)
        assert float(RandomisedResponse.coin_for_loss(coin.loss)) == pytest.approx(float(p), abs=1e-9)
    for choices in (2, 5, 100):
        made = KaryResponse.for_loss(choices, epsilon(2, **REPLACE))
        assert float(made.truth) == pytest.approx(math.exp(2) / (math.exp(2) + choices - 1))
        assert sum(made.probabilities(1)) == 1


def test_the_renyi_curves_of_finite_laws_are_exact() -> None:
    for made, inputs in (
        (RandomisedResponse.coin("0.3"), (False, True)),
        (RandomisedResponse.for_loss(epsilon(1, **REPLACE)), (False, True)),
        (KaryResponse.for_loss(6, epsilon(2, **REPLACE)), (0, 5)),
    ):
        laws = [np.array(made.probabilities(one), dtype=float) for one in inputs]
        for alpha in (1.01, 2, 30):
            true = max(math.log((p**alpha * q ** (1 - alpha)).sum()) / (alpha - 1) for p, q in (laws, laws[::-1]))
            assert true * (1 - 1e-12) <= made.rdp(alpha) <= true * (1 + 1e-6)


@pytest.mark.parametrize("alpha", [2.0, 1e5, 1e9])
def test_the_renyi_curves_of_finite_laws_are_never_below_the_truth(alpha: float) -> None:
    for made in (
        RandomisedResponse.for_loss(epsilon("1e-6", **REPLACE)),
        KaryResponse.for_loss(3, epsilon("1e-9", **REPLACE)),
        KaryResponse.for_loss(10, epsilon("1e-9", **REPLACE)),
    ):
        with localcontext() as context:
            context.prec = 60
            a = Decimal(alpha)
            p, q = ([Decimal(x.numerator) / x.denominator for x in made.probabilities(one)] for one in (0, 1))
            true = sum(x * ((x / y).ln() * (a - 1)).exp() for x, y in zip(p, q, strict=True)).ln() / (a - 1)
            assert true <= Decimal(made.rdp(alpha))


def test_no_pure_mechanism_exceeds_randomised_response() -> None:
    for e in (1e-6, 0.1, 1.0, 20.0):
        assert pure_curve(e, 1 + 1e-9) == pytest.approx(e * math.tanh(e / 2), rel=1e-6)
        assert pure_curve(e, 1e9) == pytest.approx(e, rel=1e-3)
        for alpha in (1.5, 2.0, 10.0):
            assert pure_curve(e, alpha) <= min(e, alpha * e * e / 2) * (1 + 1e-9)


def test_a_choice_pays_a_quarter_of_the_rho_its_epsilon_suggests() -> None:
    assert Exponential.for_loss(1, epsilon(2)).zcdp == rho("0.5")
    assert Exponential.for_loss(1, rho("0.5")).pure == epsilon(2)
    assert Exponential.for_loss(1, epsilon(2)).rate == 1
    assert Exponential.for_loss(1, epsilon(2), monotone=True).rate == 2


def test_roots_and_logarithms_enclose_the_truth() -> None:
    for square in (Fraction(2), Fraction(1, 3), Fraction(10**40 + 1), Fraction(3, 10**30)):
        assert root_below(square) ** 2 < square < root_above(square) ** 2
        assert root_above(square) / root_below(square) < 1 + Fraction(1, 10**10)
    assert root_above(Fraction(49, 64)) == root_below(Fraction(49, 64)) == Fraction(7, 8)
    assert ratio_within(Fraction(3), log_above(Fraction(3)))
    assert not ratio_within(Fraction(3), log_above(Fraction(3)) * (1 - Fraction(1, 10**10)))
    long = Fraction(10**30 + 1, 10**29)
    assert short_above(Fraction(7, 3)) == Fraction(7, 3)
    assert long < short_above(long) < long * (1 + Fraction(1, 10**10))


def test_a_grid_gaussian_costs_what_it_says() -> None:
    made = Gaussian.for_bounds(0, 10, rho("0.02"))
    assert made.standard_error == pytest.approx(50, rel=1e-6)
    assert made.steps.sensitivity * made.grid.step == 10
