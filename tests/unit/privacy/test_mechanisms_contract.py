"""One suite that every registered mechanism passes."""

import itertools
import math
from dataclasses import FrozenInstanceError
from fractions import Fraction

import numpy as np
import pytest

from cloister.lessons.noise import Staircase, Vector
from cloister.privacy.errors import BadNumber
from cloister.privacy.loss import Loss, Relation, epsilon, rho
from cloister.privacy.mechanisms import (
    REGISTRY,
    AboveThreshold,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    KaryResponse,
    Laplace,
    Mechanism,
    NoisyMax,
    PermuteAndFlip,
    RandomisedResponse,
    TopK,
)
from cloister.privacy.noise import SeededSource

LOCAL = epsilon("0.7", relation="replace-one")
EXAMPLES = [
    DiscreteLaplace.for_loss(3, epsilon("0.7")),
    DiscreteLaplace.for_loss(3, rho("0.1")),
    DiscreteGaussian.for_loss(3, rho("0.1")),
    DiscreteGaussian.for_loss(3, epsilon(1, delta="1e-6")),
    DiscreteGaussian.for_loss(3, epsilon(1, delta="1e-6"), scalar=True),
    Laplace.for_loss("0.3", epsilon("0.7")),
    Laplace.for_bounds(-1, "2.5", epsilon("0.7", relation="replace-one")),
    Gaussian.for_loss("0.3", rho("0.1")),
    Gaussian.for_bounds(0, 120, epsilon(2, delta="1e-7"), rows=4, scalar=True),
    RandomisedResponse.for_loss(LOCAL),
    RandomisedResponse.coin("0.3"),
    KaryResponse.for_loss(5, LOCAL),
    KaryResponse.for_loss(2, rho("0.1", relation="replace-one")),
    Exponential.for_loss(1, epsilon("0.7")),
    Exponential.for_loss("0.001", rho("0.1"), monotone=True),
    PermuteAndFlip.for_loss(1, epsilon("0.7")),
    PermuteAndFlip.for_loss(2, rho("0.1")),
    NoisyMax.for_loss(1, epsilon("0.7")),
    NoisyMax.for_loss(2, rho("0.1"), monotone=True, noise="geometric"),
    TopK.for_loss(1, epsilon("0.7"), k=3),
    TopK.for_loss(1, rho("0.1"), k=3),
    AboveThreshold.for_loss(1, epsilon("0.7"), threshold=10, positives=2),
    AboveThreshold.for_loss(1, rho("0.1"), threshold=-4, monotone=True),
    Vector.for_loss("0.5", epsilon("0.7"), dimension=4),
    Staircase.for_loss("0.5", epsilon("0.7")),
]
ADDITIVE = [one for one in EXAMPLES if hasattr(one, "interval") and not isinstance(one, Vector)]
ORDERS = [1.0001, 1.5, 2, 8, 64, 1000, 1e6]


def named(mechanism: Mechanism) -> str:
    return f"{mechanism.name} {mechanism.loss}"


every = pytest.mark.parametrize("mechanism", EXAMPLES, ids=named)
every_additive = pytest.mark.parametrize("mechanism", ADDITIVE, ids=named)


def test_every_registered_mechanism_is_in_this_suite() -> None:
    assert {one.name for one in EXAMPLES} == set(REGISTRY)
    assert all(REGISTRY[one.name] is type(one) for one in EXAMPLES)


def test_only_float_noise_is_marked_textbook() -> None:
    assert {name for name, kind in REGISTRY.items() if kind.textbook} == {"vector", "staircase"}


@every
def test_it_plays_the_role(mechanism: Mechanism) -> None:
    assert isinstance(mechanism, Mechanism)
    assert isinstance(mechanism.loss, Loss)
    assert mechanism.relation is mechanism.loss.relation


@every
def test_it_is_a_value(mechanism: Mechanism) -> None:
    assert mechanism == mechanism
    assert hash(mechanism) == hash(mechanism)
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        mechanism.loss = epsilon(1)  # type: ignore[misc]
    assert not hasattr(mechanism, "__dict__")


@every
def test_parameters_are_public_strings(mechanism: Mechanism) -> None:
    told = mechanism.parameters()
    assert told
    assert all(isinstance(part, str) and part for pair in told.items() for part in pair)


@every
def test_every_reading_of_the_loss_states_the_same_neighbours(mechanism: Mechanism) -> None:
    readings = [one for one in (mechanism.pure, mechanism.zcdp) if one is not None]
    assert readings
    assert all(one.relation is mechanism.relation for one in readings)


@every
def test_the_stated_loss_is_one_of_its_readings(mechanism: Mechanism) -> None:
    stated = mechanism.loss
    if stated.measure == "rho":
        assert mechanism.zcdp == stated
    elif stated.is_pure:
        assert mechanism.pure == stated
    else:
        assert mechanism.pure is None
        assert mechanism.zcdp is not None
        assert mechanism.zcdp.delta == 0


@every
def test_readings_are_exact_rationals_without_delta(mechanism: Mechanism) -> None:
    for reading in (mechanism.pure, mechanism.zcdp):
        if reading is not None:
            assert isinstance(reading.amount, Fraction)
            assert reading.amount > 0
            assert reading.delta == 0


@every
def test_rho_is_never_worse_than_what_the_pure_loss_implies(mechanism: Mechanism) -> None:
    if mechanism.pure is not None and mechanism.zcdp is not None:
        assert mechanism.zcdp.amount <= mechanism.pure.as_rho().amount * (1 + Fraction(1, 10**9))


@every
def test_the_renyi_curve_keeps_to_the_other_readings(mechanism: Mechanism) -> None:
    for alpha in ORDERS:
        value = mechanism.rdp(alpha)
        assert value > 0
        assert math.isfinite(value)
        if mechanism.zcdp is not None:
            assert value <= alpha * float(mechanism.zcdp.amount) * (1 + 1e-9)
        if mechanism.pure is not None:
            assert value <= float(mechanism.pure.amount) * (1 + 1e-9)


@every
def test_the_renyi_curve_never_falls(mechanism: Mechanism) -> None:
    curve = [mechanism.rdp(alpha) for alpha in ORDERS]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in itertools.pairwise(curve))


@every
@pytest.mark.parametrize("alpha", [1, 0.5, -2, math.nan, math.inf, "two", None])
def test_an_order_that_is_none_is_refused(mechanism: Mechanism, alpha: float) -> None:
    with pytest.raises(BadNumber):
        mechanism.rdp(alpha)


@every_additive
def test_intervals_are_centred_and_grow_with_confidence(mechanism: DiscreteLaplace) -> None:
    for confidence in ("0.5", "0.9", "0.999999"):
        low, high = mechanism.interval(100, confidence)
        assert high - 100 == pytest.approx(100 - low) == pytest.approx(mechanism.margin(confidence))
    assert mechanism.margin("0.5") <= mechanism.margin("0.9") < mechanism.margin("0.999999")


@every_additive
def test_quantiles_are_symmetric_and_ordered(mechanism: DiscreteLaplace) -> None:
    assert mechanism.quantile("0.01") == -mechanism.quantile("0.99") < 0
    assert mechanism.quantile("0.5") == pytest.approx(0, abs=1e-6 * mechanism.standard_error)
    assert mechanism.quantile("0.975") == mechanism.margin("0.95")


@every_additive
def test_the_margin_of_two_thirds_is_about_a_standard_error(mechanism: DiscreteLaplace) -> None:
    assert mechanism.standard_error == pytest.approx(math.sqrt(mechanism.variance))
    assert 0.4 < mechanism.margin("0.683") / mechanism.standard_error < 1.4


@every_additive
def test_the_same_seed_gives_the_same_release(mechanism: DiscreteLaplace) -> None:
    first, second = (mechanism.release(7, SeededSource(5)) for _ in range(2))
    assert first == second
    assert mechanism.release(7, SeededSource(6)) != first or mechanism.release(7, SeededSource(8)) != first


@every_additive
def test_what_is_promised_within_an_error_is_kept(mechanism: DiscreteLaplace) -> None:
    for error, confidence in ((5, "0.95"), (40, "0.5"), ("12.5", "0.9999")):
        made = type(mechanism).within(error, confidence, 1)
        assert made.margin(confidence) <= float(error)
        assert made.relation is Relation.ADD_REMOVE


@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian, Laplace, Gaussian, Staircase])
def test_half_a_percent_less_loss_would_break_the_promise_within(kind: type[DiscreteLaplace]) -> None:
    made = kind.within(5, "0.95", 1)
    cheaper = Loss(made.loss.measure, made.loss.amount * Fraction(199, 200))
    assert kind.for_loss(1, cheaper).margin("0.95") > 5


@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip, NoisyMax, TopK])
def test_a_choice_within_an_error_keeps_its_margin(kind: type[Exponential]) -> None:
    for more in ({}, {"monotone": True}):
        made = kind.within(20, "0.95", 1, candidates=30, **more)
        assert made.margin("0.95", 30) <= 20 * (1 + 1e-9)
    geometric = NoisyMax.within(20, "0.95", 1, candidates=30, noise="geometric")
    assert geometric.margin("0.95", 30) <= 20 * (1 + 1e-9)
    assert geometric.loss < NoisyMax.within(20, "0.95", 1, candidates=30).loss


def test_sparse_vector_and_vector_keep_what_they_promise_within() -> None:
    watch = AboveThreshold.within(50, "0.95", 1, questions=100, threshold=7)
    assert watch.margin("0.95", 100) <= 50
    assert AboveThreshold.for_loss(1, epsilon(watch.epsilon * Fraction(98, 100)), threshold=7).margin("0.95", 100) > 50
    vector = Vector.within(10, "0.95", 2, dimension=8)
    assert vector.margin("0.95") == pytest.approx(10)


def test_shapes_and_types_go_through() -> None:
    laplace = DiscreteLaplace.for_loss(1, epsilon(1))
    assert type(laplace.release(5, SeededSource(1))) is int
    assert type(laplace.release(np.int32(5), SeededSource(1))) is int
    assert type(laplace.release(np.array(5), SeededSource(1))) is int
    for given in (np.zeros((2, 3), np.uint8), np.zeros((2, 3), object) + 1, [[1, 2, 3], [4, 5, 6]]):
        noisy = laplace.release(given, SeededSource(1))
        assert noisy.shape == (2, 3)
        assert noisy.dtype == np.int64
    assert laplace.release(np.array([], dtype=np.int64), SeededSource(1)).shape == (0,)


@pytest.mark.parametrize("edge", [2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**30])
def test_integers_never_wrap(edge: int) -> None:
    laplace = DiscreteLaplace.for_loss(10**6, epsilon(1))
    kind = np.int64 if -(2**63) <= edge < 2**63 else np.uint64 if edge < 2**64 else object
    noisy = laplace.release(np.full(50, edge, dtype=kind), SeededSource(3))
    assert all(abs(int(one) - edge) < 10**9 for one in noisy)
    assert abs(laplace.release(edge, SeededSource(3)) - edge) < 10**9
    assert abs(laplace.release([edge, -1], SeededSource(3))[0] - edge) < 10**9


def test_the_type_of_an_answer_tells_nothing_but_the_noisy_values() -> None:
    laplace = DiscreteLaplace.for_loss(1000, epsilon("0.001"))
    for statistic in (2**63 - 5, 2**62 + 1, 2**62 - 1):
        noisy = laplace.release(np.full(40, statistic), SeededSource(2))
        assert (noisy.dtype == np.int64) == all(-(2**63) <= int(one) < 2**63 for one in noisy)


def test_reals_come_back_on_the_grid() -> None:
    laplace = Laplace.for_bounds(0, 10, epsilon(1))
    total = laplace.grid.total(laplace.grid.encode([1.25, 3.5, 99.0, math.nan], 0, 10))
    value = laplace.release(total, SeededSource(4))
    assert abs(value - 14.75) < 300
    assert (Fraction(value) / laplace.grid.step).denominator == 1


def test_the_sensitivity_on_a_grid_holds_every_row() -> None:
    for lower, upper in ((0, 5), (-3, "0.1"), ("0.001", "0.0011"), (0, "1e-15"), ("-1e15", 0)):
        for relation in Relation:
            made = Laplace.for_bounds(lower, upper, epsilon(1, relation=relation), rows=3)
            ends = made.grid.encode([float(lower), float(upper)], lower, upper).tolist()
            sums = [count * end for count in range(4) for end in ends]  # of a unit with none to three rows
            moved = max(sums) - min(sums) if relation is Relation.REPLACE_ONE else max(map(abs, sums))
            assert made.steps.sensitivity == moved > 0
    one_row = Laplace.for_bounds(5, 7, epsilon(1, relation="replace-one"))
    assert one_row.steps.sensitivity * one_row.grid.step == 2
    vector = Gaussian.for_loss(1, rho("0.5"), roundings=10)
    assert vector.steps.sensitivity == 2**30 + 10


def test_symmetric_noise_keeps_a_matrix_symmetric() -> None:
    made = DiscreteGaussian.for_loss(1, rho("0.5"))
    noisy = made.release_symmetric(np.arange(9).reshape(3, 3) + np.arange(9).reshape(3, 3).T, SeededSource(1))
    assert (noisy == noisy.T).all()
    assert noisy.dtype == np.int64


def test_estimates_undo_the_bias_exactly_in_expectation() -> None:
    for made in (RandomisedResponse.coin("1/2"), RandomisedResponse.for_loss(LOCAL), RandomisedResponse.coin("0.2")):
        for share in (Fraction(0), Fraction(1, 3), Fraction(1)):
            seen = share * made.yes_if_true + (1 - share) * made.yes_if_false
            assert float((seen - made.yes_if_false) / (made.yes_if_true - made.yes_if_false)) == pytest.approx(
                float(share)
            )
    fair = RandomisedResponse.coin("1/2")
    answers = np.arange(100) < 60
    assert fair.estimate(answers).value == pytest.approx(2 * 0.6 - 0.5)
    assert KaryResponse.with_truth(3, "0.8").estimate(np.array([0, 0, 0, 1, 2])).value.sum() == pytest.approx(1)
