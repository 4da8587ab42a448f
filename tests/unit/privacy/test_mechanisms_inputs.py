"""Bad input is refused in one sentence, from the error tree, before any noise is drawn."""

import math
import pickle
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from cloister.lessons.noise import Staircase, Vector
from cloister.privacy.errors import (
    BadBounds,
    BadCandidates,
    BadInput,
    BadLoss,
    BadNumber,
    BadProbability,
    BadScale,
    ChargeClosed,
    NotPrivate,
    RelationMismatch,
    UnknownRelation,
)
from cloister.privacy.filter import noise_for
from cloister.privacy.loss import Relation, epsilon, rho
from cloister.privacy.mechanisms import (
    AboveThreshold,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    KaryResponse,
    Laplace,
    NoisyMax,
    PermuteAndFlip,
    RandomisedResponse,
    Sensitivity,
    TopK,
    discrete_gaussian,
    wishart,
)
from cloister.privacy.noise import SeededSource

MORE = {AboveThreshold: {"threshold": 3}, Vector: {"dimension": 2}}
PURE = [DiscreteLaplace, Laplace, Exponential, PermuteAndFlip, NoisyMax, TopK, AboveThreshold, Vector, Staircase]
WITH_SENSITIVITY = [*PURE, DiscreteGaussian, Gaussian]
WITHIN = {
    AboveThreshold: {"threshold": 3, "questions": 9},
    Vector: {"dimension": 2},
    **{key: {"candidates": 9} for key in [Exponential, PermuteAndFlip, NoisyMax, TopK]},
}


def loss_for(kind: type) -> object:
    return rho("0.1") if kind in (DiscreteGaussian, Gaussian) else epsilon(1)


@pytest.mark.parametrize("kind", WITH_SENSITIVITY)
@pytest.mark.parametrize(
    "bad", [0, -1, "-0.5", math.nan, math.inf, "many", None, True, 10**200, Fraction(1, 10**200), [1]]
)
def test_a_sensitivity_that_is_none_is_refused(kind: type[DiscreteLaplace], bad: int) -> None:
    with pytest.raises((BadNumber, BadScale), match="sensitivity"):
        kind.for_loss(bad, loss_for(kind), **MORE.get(kind, {}))


@pytest.mark.parametrize("kind", [DiscreteLaplace, NoisyMax, AboveThreshold])
def test_integer_noise_needs_a_whole_sensitivity_and_says_what_reals_use(kind: type[DiscreteLaplace]) -> None:
    with pytest.raises(BadScale, match="Grid"):
        kind.for_loss("1.5", epsilon(1), **MORE.get(kind, {}))


@pytest.mark.parametrize("kind", PURE)
@pytest.mark.parametrize("bad", [1, "1", None, epsilon(1, delta="1e-6"), rho(1, delta="1e-6"), epsilon(1) - epsilon(1)])
def test_a_pure_mechanism_takes_a_pure_epsilon_or_a_rho(kind: type[DiscreteLaplace], bad: object) -> None:
    with pytest.raises(BadLoss):
        kind.for_loss(1, bad, **MORE.get(kind, {}))


@pytest.mark.parametrize("kind", [DiscreteGaussian, Gaussian])
@pytest.mark.parametrize("bad", [1, "1", None, epsilon(1), rho(1, delta="1e-6"), rho(1) - rho(1)])
@pytest.mark.parametrize("scalar", [True, False])
def test_gaussian_noise_takes_a_rho_or_an_epsilon_with_delta(kind: type, bad: object, scalar: bool) -> None:
    with pytest.raises(BadLoss):
        kind.for_loss(1, bad, scalar=scalar)
    with pytest.raises(BadLoss):
        kind.for_bounds(0, 1, bad) if kind is Gaussian else discrete_gaussian.concentrated(1, bad)


@pytest.mark.parametrize("kind", WITH_SENSITIVITY)
def test_within_refuses_what_no_noise_can_promise(kind: type[DiscreteLaplace]) -> None:
    more = WITHIN.get(kind, {})
    for confidence in (0, 1, "1.5", -1, math.nan, "often"):
        with pytest.raises((BadProbability, BadNumber), match="confidence"):
            kind.within(5, confidence, 1, **more)
    for error in (-1, math.nan, math.inf, "near"):
        with pytest.raises((BadNumber, BadScale), match="error"):
            kind.within(error, "0.9", 1, **more)
    with pytest.raises(UnknownRelation):
        kind.within(5, "0.9", 1, relation="cousins", **more)


@pytest.mark.parametrize(
    "statistic", [1.0, np.float64(3), np.array([1.5, 2]), [1, 2.0], True, "7", None, Fraction(1, 2)]
)
@pytest.mark.parametrize(
    "mechanism",
    [DiscreteLaplace.for_loss(1, epsilon(1)), Gaussian.for_loss(1, rho(1)), Laplace.for_loss(1, epsilon(1))],
)
def test_a_float_is_refused_with_the_way_to_a_grid(mechanism: DiscreteLaplace, statistic: object) -> None:
    with pytest.raises(BadInput, match=r"grid\.total\(grid\.encode"):
        mechanism.release(statistic, SeededSource(1))


def test_no_message_shows_the_statistic() -> None:
    secret = 123456.789
    for call in (
        lambda: DiscreteLaplace.for_loss(1, epsilon(1)).release(secret),
        lambda: Exponential.for_loss(1, epsilon(1)).choose([1, secret]),
        lambda: RandomisedResponse.coin("1/2").release([0, 123456]),
        lambda: KaryResponse.with_truth(3, "0.9").release([0, 123456]),
        lambda: AboveThreshold.for_loss(1, epsilon(1), threshold=3).release([secret]),
    ):
        with pytest.raises(BadInput) as caught:
            call()
        assert "123456" not in str(caught.value)
        assert re.match(r"(CLO-\d{3}: )?[a-z].*\.$", str(caught.value))


@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip, NoisyMax, TopK])
@pytest.mark.parametrize(
    "bad", [[], [1.0, 2], [[1, 2]], np.array([0.5]), ["a"], [None], [True, False], np.array([[1, 2]])]
)
def test_scores_are_a_list_of_exact_numbers(kind: type[Exponential], bad: object) -> None:
    for ask in (kind.for_loss(1, epsilon(1)).choose, kind.for_loss(1, epsilon(1)).probabilities):
        with pytest.raises(BadCandidates):
            ask(bad)


def test_noisy_max_needs_whole_scores_and_a_known_noise() -> None:
    with pytest.raises(BadCandidates, match="whole"):
        NoisyMax.for_loss(1, epsilon(1)).choose([Fraction(1, 2), 1])
    with pytest.raises(BadInput, match="geometric"):
        NoisyMax.for_loss(1, epsilon(1), noise="gumbel")


def test_no_more_can_be_chosen_than_there_are() -> None:
    with pytest.raises(BadCandidates, match="Lower k"):
        TopK.for_loss(1, epsilon(1), k=3).choose([1, 2])
    for bad in (0, -1, 1.5, True, "2"):
        with pytest.raises(BadNumber):
            TopK.for_loss(1, epsilon(1), k=bad)


@pytest.mark.parametrize("kind", [Exponential, PermuteAndFlip, NoisyMax, TopK, AboveThreshold])
def test_monotone_scores_exist_under_add_remove_only(kind: type[Exponential]) -> None:
    with pytest.raises(BadInput, match="monotone under add/remove only"):
        kind.for_loss(1, epsilon(1, relation="replace-one"), monotone=True, **MORE.get(kind, {}))


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: NoisyMax(1, epsilon(1), "geometric"),
        lambda: TopK(1, epsilon(1), 3),
        lambda: Exponential(1, epsilon(1), 1),
    ],
)
def test_an_argument_in_the_place_of_monotone_does_not_double_the_rate(mistake: Callable[[], object]) -> None:
    with pytest.raises(BadInput, match="True or False"):
        mistake()


def test_absurd_losses_and_lists_are_refused_with_a_sentence() -> None:
    huge = epsilon(10**7, relation="replace-one")
    for make in (RandomisedResponse.for_loss, lambda loss: KaryResponse.for_loss(3, loss)):
        with pytest.raises(BadProbability, match="strictly between 0 and 1"):
            make(huge)
    with pytest.raises(BadCandidates, match="2\\^62"):
        KaryResponse.for_loss(2**63, epsilon(60, relation="replace-one"))
    tiny = epsilon("0.5", delta="1e-400")
    for calibrate in (discrete_gaussian.classical, discrete_gaussian.analytic, discrete_gaussian.discrete):
        with pytest.raises(BadLoss, match="1e-299"):
            calibrate(1, tiny)
    with pytest.raises(BadLoss, match="costs more"):  # its delta is 1e-342, which a double calls zero
        DiscreteGaussian(5000, 5000, epsilon(40, delta="1e-400"), scalar=True)


def test_a_survey_answer_is_protected_by_replacement() -> None:
    for make in (
        RandomisedResponse.for_loss,
        RandomisedResponse.coin_for_loss,
        lambda loss: KaryResponse.for_loss(3, loss),
    ):
        with pytest.raises(RelationMismatch, match="relation='replace-one'"):
            make(epsilon(1))


def test_answers_that_claim_less_than_they_cost_cannot_be_made() -> None:
    small = epsilon("0.5", relation="replace-one")
    with pytest.raises(BadLoss, match="cost more"):
        RandomisedResponse("3/4", "1/4", small)
    with pytest.raises(BadLoss, match="cost more"):
        KaryResponse(3, "0.9", small)
    with pytest.raises(BadLoss, match="cost more"):
        RandomisedResponse("0.999", "0.5", small)  # yes is harmless, no is not
    with pytest.raises(BadLoss, match="costs more"):
        DiscreteGaussian(1, 1, rho("0.49"))
    with pytest.raises(BadLoss, match="costs more"):
        DiscreteGaussian(1, 2, epsilon(1, delta="1e-6"), scalar=True)
    with pytest.raises(BadLoss, match="costs more"):
        DiscreteGaussian(1, "4.24", epsilon(1, delta="1e-6"))  # enough for one number, not proved for vectors
    assert DiscreteGaussian(1, "4.24", epsilon(1, delta="1e-6"), scalar=True).pure is None


def test_answers_that_tell_nothing_are_refused() -> None:
    one = epsilon(1, relation="replace-one")
    for make in (
        lambda: RandomisedResponse("1/2", "1/2", one),
        lambda: RandomisedResponse("1/4", "3/4", one),
        lambda: RandomisedResponse.coin(0),
        lambda: RandomisedResponse.coin(1),
        lambda: KaryResponse.with_truth(4, "1/4"),
        lambda: KaryResponse.with_truth(4, "0.1"),
    ):
        with pytest.raises(BadProbability):
            make()
    with pytest.raises(BadCandidates):
        KaryResponse.for_loss(1, one)
    with pytest.raises(BadLoss, match="ln 2"):
        RandomisedResponse.coin_for_loss(epsilon("0.69", relation="replace-one"))


def test_answers_outside_the_public_list_are_refused() -> None:
    for bad in (2, -1, "yes", 0.5, [0, 2]):
        with pytest.raises(BadCandidates):
            RandomisedResponse.coin("1/2").release(bad)
    for bad in (3, -1, "red", 0.5, [0, 3]):
        with pytest.raises(BadCandidates):
            KaryResponse.with_truth(3, "0.9").release(bad)
        with pytest.raises(BadCandidates):
            KaryResponse.with_truth(3, "0.9").estimate(bad)
    for made in (RandomisedResponse.coin("1/2"), KaryResponse.with_truth(3, "0.9")):
        with pytest.raises(BadNumber, match="number of answers"):
            made.estimate(np.array([], dtype=int))


def test_bounds_are_two_numbers_the_lower_first() -> None:
    for lower, upper in ((5, 0), (1, 1)):
        with pytest.raises(BadBounds):
            Laplace.for_bounds(lower, upper, epsilon(1))
    for bad in (math.nan, math.inf, "low"):
        with pytest.raises(BadNumber):
            Gaussian.for_bounds(bad, 1, rho(1))
    with pytest.raises(BadNumber, match="rows"):
        Laplace.for_bounds(0, 1, epsilon(1), rows=0)
    with pytest.raises(BadInput, match="Grid"):
        Laplace.for_loss(1, epsilon(1), grid=3)


def test_an_exact_delta_is_for_one_number() -> None:
    one = DiscreteGaussian.for_loss(1, epsilon(1, delta="1e-6"), scalar=True)
    assert isinstance(one.release(5, SeededSource(1)), int)
    with pytest.raises(BadInput, match="single number"):
        one.release([1, 2], SeededSource(1))
    with pytest.raises(BadInput, match="square"):
        DiscreteGaussian.for_loss(1, rho(1)).release_symmetric(np.arange(6).reshape(2, 3))


def test_a_watch_ends_with_its_last_positive() -> None:
    watch = AboveThreshold.for_loss(1, epsilon(10), threshold=0, positives=2).watch(SeededSource(1))
    assert [watch.ask(-1000), watch.ask(1000), watch.ask(10**30)] == [False, True, True]
    with pytest.raises(ChargeClosed, match="Begin another"):
        watch.ask(-1000)
    for bad in (0, 1.5, True):
        with pytest.raises(BadNumber):
            AboveThreshold.for_loss(1, epsilon(1), threshold=3, positives=bad)
    with pytest.raises(BadInput, match="threshold"):
        AboveThreshold.for_loss(1, epsilon(1), threshold=2.5)


def test_the_classical_calibration_stops_at_one() -> None:
    assert float(discrete_gaussian.classical(1, epsilon("0.999", delta="1e-5"))) > 0
    for amount in (1, 2):
        with pytest.raises(BadLoss, match="analytic"):
            discrete_gaussian.classical(1, epsilon(amount, delta="1e-5"))
    for calibrate in (discrete_gaussian.classical, discrete_gaussian.analytic):
        with pytest.raises(BadLoss):
            calibrate(1, epsilon("0.5"))
        with pytest.raises(BadLoss):
            calibrate(1, rho("0.5"))


def test_a_vector_has_the_dimension_it_was_made_for() -> None:
    with pytest.raises(BadInput, match="3 coordinates"):
        Vector.for_loss(1, epsilon(1), dimension=3).release([1, 2])
    with pytest.raises(BadNumber):
        Vector.for_loss(1, epsilon(1), dimension=0)


def test_wishart_noise_is_refused_with_the_reason_and_the_replacement() -> None:
    with pytest.raises(NotPrivate, match=r"positive semidefinite.*no epsilon is finite.*release_symmetric"):
        wishart(np.eye(3), epsilon=1)


@pytest.mark.parametrize("kind", [DiscreteLaplace, DiscreteGaussian, Exponential, PermuteAndFlip, NoisyMax])
def test_a_sensitivity_that_knows_its_neighbours_takes_no_loss_for_others(kind):
    known = 3 * Sensitivity(2, Relation.ADD_REMOVE) * 5
    assert kind.for_loss(known, rho("0.1")).sensitivity == 30
    for same in (known, pickle.loads(pickle.dumps(known))):
        with pytest.raises(RelationMismatch, match=r"add/remove neighbours, and the loss is rho 0\.1 \(replace-one\)"):
            kind.for_loss(same, rho("0.1", relation="replace-one"))


def test_the_noise_that_rooms_share_takes_no_loss_for_other_neighbours():
    assert noise_for(1, 1, rho(1)) == DiscreteGaussian.for_loss(1, rho(1))
    with pytest.raises(RelationMismatch, match="add/remove"):
        noise_for(1, 1, rho(1, relation="replace-one"))
