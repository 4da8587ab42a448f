"""The harness itself: it does not cry wolf more often than it says, and it sees nearly all there is to see."""

import math

import numpy as np
import pytest
from scipy import stats

from cloister.attack import Audit, Batched, OutputFeature, audit
from cloister.attack.intervals import curve
from cloister.attack.mechanisms.events import choose, learn
from cloister.attack.mechanisms.outputs import as_outputs
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import SeededSource, bernoulli, discrete_gaussian, discrete_laplace

pytestmark = pytest.mark.statistical

SURE = 1 - 1e-9


def laplace(scale: object, seed: str) -> Batched:
    source = SeededSource(seed)
    return Batched(lambda data, n: data + discrete_laplace(scale, n, source))  # type: ignore[arg-type]


def test_a_tight_mechanism_is_falsely_accused_no_more_often_than_stated() -> None:
    accused = sum(
        audit(laplace(1, f"tight {run}"), 0, 1, epsilon(1), n=2_000, confidence=0.8).broken for run in range(300)
    )
    # With a true rate of 0.2 more than this many happen once in a million.
    assert accused <= stats.binom.isf(1e-6, 300, 0.2)


def test_choosing_and_proving_on_the_same_samples_would_accuse_it_too_often() -> None:
    # The control for the test above: without held-out samples and without sharing the risk it would fail.
    accused = 0
    for run in range(300):
        sides = as_outputs(*(laplace(1, f"same {run} {side}").sample(side, 1_000) for side in (0, 1)))
        accused += choose(learn(*sides), *sides, curve(epsilon(1)), 0.2)[0].strain > 1
    assert accused > stats.binom.isf(1e-6, 300, 0.2)


def test_a_million_samples_of_laplace_show_nearly_the_whole_epsilon() -> None:
    found = audit(laplace(1, "power"), 0, 1, epsilon(1), n=1_000_000, confidence=SURE)
    assert 0.95 < found.lower_bound <= 1


@pytest.mark.parametrize("delta", ["0.01", "0.05"])
def test_gaussian_noise_shows_most_of_its_epsilon_at_a_delta(delta: str) -> None:
    # The epsilon of a Gaussian with shift over sigma equal to 1, from its hockey-stick divergence (Balle & Wang 2018).
    def gap(e: float) -> float:
        return float(stats.norm.cdf(0.5 - e) - math.exp(e) * stats.norm.cdf(-0.5 - e)) - float(delta)

    low, high = 0.0, 10.0
    while high - low > 1e-9:
        low, high = ((low + high) / 2, high) if gap((low + high) / 2) > 0 else (low, (low + high) / 2)
    source = SeededSource("gaussian power")
    found = audit(
        Batched(lambda data, n: data + discrete_gaussian(100, n, source)),
        0,
        100,
        epsilon(round(high, 6), delta=delta),
        n=500_000,
        confidence=SURE,
    )
    assert 0.8 * high < found.lower_bound <= high + 1e-6


def test_ten_percent_too_little_noise_is_caught_and_ten_percent_too_much_is_not() -> None:
    def look(scale: str) -> Audit:
        return audit(laplace(scale, "scale " + scale), 0, 10, epsilon(1), n=1_000_000, confidence=SURE)

    assert look("9").broken
    assert not look("10").broken
    assert not look("11").broken


def test_a_rho_is_refuted_through_the_curve_it_implies() -> None:
    source = SeededSource("rho")
    mechanism = Batched(lambda data, n: data + discrete_gaussian(10, n, source))
    assert audit(mechanism, 0, 10, rho("0.2"), n=500_000, confidence=SURE).broken  # the truth is 0.5
    assert not audit(mechanism, 0, 10, rho("0.5"), n=500_000, confidence=SURE).broken


def test_a_slow_callable_with_labels_for_outputs_can_be_audited() -> None:
    source = SeededSource("labels")

    def answer(truth: str) -> str:
        return truth if bernoulli("0.95", source=source) else {"yes": "no", "no": "yes"}[truth]

    found = audit(answer, "yes", "no", epsilon(1), n=4_000, confidence=SURE)
    assert found.broken
    assert found.lower_bound <= math.log(19)


def test_outputs_of_different_length_are_told_apart() -> None:
    found = audit(Batched(lambda data, n: [[0] * data] * n), 2, 3, epsilon(1), n=1_000, confidence=SURE)
    assert found.broken


def test_big_integers_are_read_without_wrapping() -> None:
    source = SeededSource("big")
    mechanism = Batched(lambda data, n: data + discrete_laplace(10**24, n, source))
    assert not audit(mechanism, 0, 10**24, epsilon(1), n=40_000, confidence=SURE).broken
    assert audit(mechanism, 0, 2 * 10**24, epsilon(1), n=40_000, confidence=SURE).broken


def test_not_a_number_is_an_output_like_any_other() -> None:
    def careless(data: float, n: int) -> np.ndarray:
        drawn = np.random.default_rng(0).integers(0, 2, n).astype(float)
        return np.where(drawn > 0, np.nan, drawn) if data else drawn

    assert audit(Batched(careless), 0, 1, epsilon(1), n=4_000, confidence=SURE).broken


def test_a_feature_of_the_callers_own_finds_what_ours_cannot() -> None:
    def parity_leak(data: int, n: int) -> np.ndarray:
        """Sixteen random bits whose parity is the secret: every coordinate alone and every sum of weights is fair."""
        bits = np.random.default_rng(5).integers(0, 2, (n, 16))
        bits[:, -1] = (bits[:, :-1].sum(axis=1) + data) % 2
        return bits

    parity = OutputFeature("parity", lambda rows: rows.sum(axis=1) % 2)
    assert not audit(Batched(parity_leak), 0, 1, epsilon(1), n=2_000, confidence=SURE).broken
    assert audit(Batched(parity_leak), 0, 1, epsilon(1), n=2_000, confidence=SURE, features=[parity]).broken


def _gaussian(eps: str, delta: str) -> tuple[Batched, int]:
    """Gaussian noise and the shift at which its loss is (eps, delta)."""
    low, high = 0.0, 40.0
    while high - low > 1e-9:
        low, high = ((low + high) / 2, high) if loss_of(low, high, delta) < float(eps) else (low, (low + high) / 2)
    source = SeededSource(f"family {eps} {delta}")
    return Batched(lambda data, n: data + discrete_gaussian(2**20, n, source)), round(low * 2**20)


def loss_of(low: float, high: float, delta: str) -> float:
    """The epsilon at which a shift of (low + high) / 2 deviations has this delta (Balle & Wang 2018)."""
    shift, below, above = (low + high) / 2, -100.0, 400.0
    for _ in range(80):
        e = (below + above) / 2
        gap = stats.norm.cdf(shift / 2 - e / shift) - math.exp(min(e, 300)) * stats.norm.cdf(-shift / 2 - e / shift)
        below, above = (e, above) if gap > float(delta) else (below, e)
    return (below + above) / 2


@pytest.mark.parametrize("delta", ["1e-5", "0.01"])
@pytest.mark.parametrize(("eps", "share"), [("0.1", 0.8), ("1", 0.95), ("4", 0.98)])
def test_a_known_family_shows_nearly_all_of_epsilon(eps: str, share: float, delta: str) -> None:
    # At 0.1 the mean is 0.91 of epsilon, and one run is 0.04 off.
    mechanism, shift = _gaussian(eps, delta)
    found = audit(mechanism, 0, shift, epsilon(eps, delta=delta), n=1_000_000, family="gaussian")
    assert share * float(eps) < found.lower_bound
    assert audit(mechanism, 0, 2 * shift, epsilon(eps, delta=delta), n=1_000_000, family="gaussian").broken


@pytest.mark.parametrize("eps", ["0.1", "1", "4"])
def test_without_a_family_three_quarters_are_shown_at_a_delta_that_samples_reach(eps: str) -> None:
    mechanism, shift = _gaussian(eps, "0.01")
    found = audit(mechanism, 0, shift, epsilon(eps, delta="0.01"), n=1_000_000)
    assert 0.75 * float(eps) < found.lower_bound


def test_a_tight_gaussian_is_falsely_accused_no_more_often_than_stated() -> None:
    mechanism, shift = _gaussian("1", "0.01")
    accused = sum(
        audit(mechanism, 0, shift, epsilon(1, delta="0.01"), n=1_000, confidence=0.8, family="gaussian").broken
        for _ in range(1_000)
    )
    assert accused <= stats.binom.isf(1e-6, 1_000, 0.2)
    assert accused > 0


def test_a_shift_along_a_direction_of_several_coordinates_is_found_by_the_family() -> None:
    source = SeededSource("family of vectors")
    mechanism = Batched(lambda data, n: np.asarray(data) + discrete_gaussian(1000, (n, 3), source))
    assert audit(mechanism, [0, 0, 0], [1000, -1000, 1000], rho("1/2"), n=50_000, family="gaussian").broken  # truth 3/2
    assert not audit(mechanism, [0, 0, 0], [1000, 0, 0], rho("1/2"), n=50_000, family="gaussian").broken


def test_a_family_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadInput, match="family"):
        audit(laplace(1, "no family"), 0, 1, epsilon(1), family="normal")  # type: ignore[arg-type]


def test_outputs_without_noise_have_no_bound_or_every_bound() -> None:
    fixed = Batched(lambda data, n: np.full(n, data))
    assert audit(fixed, 0, 0, epsilon(1, delta="0.01"), n=1_000, family="gaussian").lower_bound == 0
    assert audit(fixed, 0, 1, epsilon(1, delta="0.01"), n=1_000, family="gaussian").lower_bound == math.inf


def test_an_audit_becomes_a_finding_for_a_report() -> None:
    found = audit(laplace("1/4", "finding"), 0, 1, epsilon(1), n=50_000, confidence=SURE)
    finding = found.finding("counts")
    assert finding.broken
    assert finding.epsilon is not None
    assert finding.epsilon.lower == found.lower_bound
    assert finding.interval[0] <= finding.success <= finding.interval[1]
    assert finding.success > 0.5
