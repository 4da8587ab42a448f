"""The quick integer filters never contradict exact arithmetic: checked at and around every place they could."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.privacy.noise import SeededSource, draws, gaussian, laplace
from cloister.privacy.noise.bernoulli_exp import below_exp, split_ratio
from cloister.privacy.noise.draws import Toss, exp_bounds
from cloister.privacy.noise.gaussian_exponent import SLACK, exponent, exponent_facts
from cloister.privacy.noise.source import Source

ratios = st.tuples(st.integers(0, 2**61), st.integers(1, 2**61)).filter(lambda r: r[0] < 60 * r[1])


class Replay(Source):
    """Gives the bytes it was told to, then says that more were wanted."""

    private = False

    def __init__(self, *words: int, width: int = 4) -> None:
        self._left = b"".join(word.to_bytes(width, "little") for word in words)

    def bytes(self, count: int) -> bytes:
        if count > len(self._left):
            raise EOFError
        taken, self._left = self._left[:count], self._left[count:]
        return taken


def exp_interval(p: int, q: int, bits: int = 300) -> tuple[Fraction, Fraction]:
    """e^(-p/q) between two fractions, by the alternating series of e^(-x/2^k) squared, without our own code."""
    k = max(0, (p // q).bit_length() + 4)
    x = Fraction(p, q << k)
    total, term, i = Fraction(1), Fraction(1), 0
    while term > Fraction(1, 2 ** (bits + 40)):
        i += 1
        term = Fraction(int(term * x / i * 2**600), 2**600)
        total += (-1) ** i * term
    for _ in range(k):
        total = Fraction(int(total * total * 2**600), 2**600)
    return total - Fraction(1, 2**bits), total + Fraction(1, 2**bits)


@given(ratios, st.sampled_from([8, 31, 64, 128]))
@settings(max_examples=300, deadline=None)
def test_bounds_on_the_exponential_hold(ratio, bits):
    p, q = ratio
    low, high = exp_bounds(p, q, bits)
    below, above = exp_interval(p, q)
    assert 0 <= high - low <= 4
    assert Fraction(low, 2**bits) <= above
    assert Fraction(high, 2**bits) >= below


@given(ratios)
@settings(max_examples=200, deadline=None)
def test_the_coin_filter_decides_only_what_is_certain(ratio):
    p, q = ratio
    below, above = exp_interval(p, q)
    middle = int(below * 2**31)
    whole, part = split_ratio(np.array([p]), q)
    for tossed in {
        max(0, min(2**31 - 1, middle + step)) for step in (-60, -19, -18, -11, -10, -1, 0, 1, 9, 10, 11, 60)
    }:
        unsure = []

        def exact(i: int, seen: list[int] = unsure) -> tuple[int, int]:
            seen.append(i)
            return p, q

        try:
            answer = below_exp(whole, part, 8, exact, Replay(tossed << 1))[0]
        except EOFError:  # it asked for more bits: nothing was decided
            continue
        if not unsure and answer:
            assert Fraction(tossed + 1, 2**31) <= above
        if not unsure and not answer:
            assert Fraction(tossed, 2**31) >= below


@given(
    st.integers(1, 2**54),
    st.integers(1, 2**54),
    st.floats(0, 9, allow_nan=False),
)
@settings(max_examples=500, deadline=None)
def test_the_gaussian_exponent_is_bounded_from_both_sides(p, q, sigmas):
    scale, shift, centre, divisor = exponent_facts(p, q)
    size = int(Fraction(p, q) * Fraction(sigmas))
    whole, part = exponent(np.array([size]), shift, centre, divisor)
    claimed = int(whole[0]) + Fraction(int(part[0]), 2**31)
    truth = (size - Fraction(p * p, q * q * scale)) ** 2 / (2 * Fraction(p * p, q * q))
    assert 0 <= part[0] < 2**31
    assert claimed <= truth
    if truth < 23:
        assert truth < claimed + Fraction(SLACK, 2**31)
    else:
        assert claimed > 22


def test_the_quotient_table_decides_only_what_is_certain():
    for threshold, step in product(laplace._QUOTIENTS.tolist(), (-2, -1, 0, 1, 2)):
        tossed = threshold + step
        if not 0 <= tossed < 2**32:
            continue
        try:
            quotient = laplace._quotients(1, Replay(tossed))[0]
        except EOFError:
            assert tossed in laplace._QUOTIENTS
            continue
        below, _ = exp_interval(int(quotient) + 1, 1)
        _, above = exp_interval(int(quotient), 1)
        assert Fraction(tossed, 2**32) >= below
        assert Fraction(tossed + 1, 2**32) <= above


def test_an_undecided_toss_goes_on_with_the_bits_it_has():
    # 2^31/e lies inside this cell; the continuation decides: all zeros are below, all ones above.
    cell = exp_bounds(1, 1, 96)[0] >> 65
    below = Toss(Replay(0, width=8), cell, 31)
    above = Toss(Replay(2**64 - 1, width=8), cell, 31)
    assert below.below_exp(1, 1)
    assert not above.below_exp(1, 1)


def test_every_outcome_of_a_small_uniform_has_the_same_weight():
    """All 2^3 three-bit words: those below 6 give themselves, the others are drawn again."""
    outcomes = []
    for word in range(8):
        try:
            outcomes.append(draws.uniform(6, Replay(word << 5, width=1)))
        except EOFError:
            outcomes.append(None)
    assert outcomes == [0, 1, 2, 3, 4, 5, None, None]


@pytest.mark.parametrize("seed", range(3))
def test_one_at_a_time_and_a_million_at_a_time_are_one_law(seed):
    """The two implementations agree bin by bin (two-sample chi-square)."""
    from scipy.stats import chi2_contingency

    for one, many in (
        (lambda s: draws.laplace(7, 2, s), lambda n, s: laplace.discrete_laplace("7/2", n, s)),
        (lambda s: draws.gaussian(7, 2, s), lambda n, s: gaussian.discrete_gaussian("7/2", n, s)),
    ):
        source = SeededSource(seed)
        singles = np.array([one(source) for _ in range(8_000)])
        bulk = many(80_000, source)
        cells = [[(np.clip(sample, -9, 9) == value).sum() for value in range(-9, 10)] for sample in (singles, bulk)]
        assert chi2_contingency(cells).pvalue > 1e-6
