"""Bounds on the probability of observed reports under honest devices, for every truth and every sample size.

Nothing here is an approximation: p values are upper bounds, so false alarms are at most as frequent as stated.
"""

from collections.abc import Callable
from functools import singledispatch
from math import exp, inf, lgamma, log, log1p

import numpy as np

from cloister.local.base.number import NumberMechanism
from cloister.local.base.oracle import Floats, Oracle
from cloister.local.mechanisms.direct import DirectEncoding, RandomisedResponse
from cloister.local.mechanisms.duchi import Duchi
from cloister.local.mechanisms.hadamard import HadamardResponse
from cloister.local.mechanisms.hashing import LocalHashing
from cloister.local.mechanisms.histogram import HistogramEncoding
from cloister.local.mechanisms.hybrid import Hybrid
from cloister.local.mechanisms.laplace import LaplaceNumber
from cloister.local.mechanisms.memoised import Memoised
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.local.mechanisms.subset import SubsetSelection
from cloister.local.mechanisms.unary import ThresholdEncoding, UnaryEncoding
from cloister.local.mechanisms.window import Windowed

__all__ = ["at_least", "at_most", "bernstein", "chernoff", "copies", "copies_of_bits", "laplace_mgf"]


def at_least(count: int, n: int, p: float) -> float:
    """Bound the probability of at least `count` among n, if each occurs with at most probability p."""
    from scipy.special import bdtrc

    return 1.0 if count <= 0 else float(bdtrc(count - 1, n, min(p, 1.0)))


def at_most(count: int, n: int, p: float) -> float:
    """Bound the probability of at most `count` among n, if each occurs with at least probability p."""
    from scipy.special import bdtr

    return 1.0 if count >= n else float(bdtr(count, n, max(p, 0.0)))


def chernoff(total: float, log_mgf: Callable[[Floats], Floats], limit: float = 20.0) -> float:
    """Bound the probability that a sum reaches `total`, from f, the log of its moment generating function.

    It is at most e^(f(x) - x·total) for any x; the best of a fixed list is taken.
    """
    x = np.geomspace(1e-5, 1.0, 400) * limit
    return exp(min(0.0, float((log_mgf(x) - x * total).min())))


def laplace_mgf(scale: float, n: int) -> Callable[[Floats], Floats]:
    """Return the log moment generating function of n discrete Laplace variables; it is finite below 1/scale."""
    t = exp(-1 / scale)

    def log_mgf(x: Floats) -> Floats:
        return np.asarray(n * (2 * log1p(-t) - np.log1p(-t * np.exp(x)) - np.log1p(-t * np.exp(-x))))

    return log_mgf


def bernstein(beyond: float, n: int, variance: float, farthest: float) -> float:
    """Bound the probability that a sum of n independent variables exceeds its expectation by `beyond`.

    Args:
        beyond: the excess.
        n: the number of variables.
        variance: of each, at most.
        farthest: bounds each variable's excess over its own expectation.
    """
    return 1.0 if beyond <= 0 else exp(-(beyond**2) / (2 * (n * variance + farthest * beyond / 3)))


def copies(mechanism: Oracle, most: int, n: int) -> float:
    """Bound the probability that n reports hold `most` copies of one report, whatever the answers.

    The probability that k given people send the same report is the sum over y of the product of Pr[y | x_i], which by
    Hölder's inequality is at most the largest over x of the sum of Pr[y | x]^k. There are n over k such groups.
    """
    if most < 2:
        return 1.0
    groups = lgamma(n + 1) - lgamma(most + 1) - lgamma(n - most + 1)
    return exp(min(0.0, groups + _same(mechanism, most)))


def copies_of_bits(ones: Floats, counts: Floats, n: int, bits: int, p: float, q: float) -> Floats:
    """Bound, for each report of bits, the probability of this many copies of some report that is as unlikely.

    A report y of coins q has the probability w(y), and w adds up to 1 over all reports; no answer makes y more than p/q
    times as likely. So k copies of y occur with probability at most (n over k) (w(y) p/q)^k. If y is suspected only
    where that is below w(y) times a level, then the false alarms of all y together are at most at that level.

    Args:
        ones: the number of 1 bits of each report.
        counts: the number of its copies.
        n: reports in all.
        bits: of a report.
        p: the probability of the true bit.
        q: of every other.
    """
    from scipy.special import gammaln

    likely = ones * log(q) + (bits - ones) * log1p(-q)
    groups = gammaln(n + 1) - gammaln(counts + 1) - gammaln(n - counts + 1)
    return np.asarray(np.exp(np.minimum(0.0, groups + counts * (likely + log(p / q)) - likely)))


def _log_sum(*parts: tuple[float, float, int]) -> float:
    """Return ln of the sum of times · chance^k."""
    terms = [log(times) + k * log(chance) for times, chance, k in parts if times > 0 and chance > 0]
    return float(np.logaddexp.reduce(terms)) if terms else -inf


@singledispatch
def _same(mechanism: Oracle, k: int) -> float:
    """Return ln of the largest over x of the sum over y of Pr[y | x]^k; 0, the trivial bound, where none is known."""
    return 0.0


@_same.register
def _direct(mechanism: DirectEncoding, k: int) -> float:
    return _log_sum((1, float(mechanism.p), k), (mechanism.domain - 1, float(mechanism.q), k))


@_same.register
def _response(mechanism: RandomisedResponse, k: int) -> float:
    return max(_bit(float(mechanism.p), k), _bit(float(mechanism.q), k))


def _bit(p: float, k: int) -> float:
    return _log_sum((1, p, k), (1, 1 - p, k))


@_same.register
def _bits(mechanism: UnaryEncoding | ThresholdEncoding, k: int) -> float:
    return _bit(float(mechanism.p), k) + (mechanism.domain - 1) * _bit(float(mechanism.q), k)


@_same.register
def _memoised(mechanism: Memoised, k: int) -> float:
    p, q = float(mechanism.p), float(mechanism.q)
    if mechanism.encoding == "direct":
        return _log_sum((1, p, k), (mechanism.domain - 1, q, k))
    return _bit(p, k) + (mechanism.domain - 1) * _bit(q, k)


@_same.register
def _sums(mechanism: HistogramEncoding, k: int) -> float:
    return mechanism.domain * _laplace(float(mechanism.scale), k)


def _laplace(scale: float, k: int) -> float:
    x = 1 / scale
    return k * log(np.tanh(x / 2)) - log(np.tanh(k * x / 2))


@_same.register
def _hashing(mechanism: LocalHashing, k: int) -> float:
    bucket = _log_sum((1, float(mechanism.p), k), (mechanism.buckets - 1, float(mechanism.lie), k))
    return bucket - (k - 1) * log(mechanism.seeds)


@_same.register
def _hadamard(mechanism: HadamardResponse, k: int) -> float:
    half = mechanism.order // 2
    return _log_sum((half, float(mechanism.inside), k), (mechanism.outputs - half, float(mechanism.outside), k))


@_same.register
def _subset(mechanism: SubsetSelection, k: int) -> float:
    d, size, p = mechanism.domain, mechanism.size, float(mechanism.p)
    inside, outside = _log_choose(d - 1, size - 1), _log_choose(d - 1, size)
    return float(np.logaddexp(k * log(p) - (k - 1) * inside, k * log(1 - p) - (k - 1) * outside))


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


@_same.register
def _one_of(mechanism: OneOfSet, k: int) -> float:
    p, q, d = float(mechanism.p), float(mechanism.q), mechanism.domain
    sizes = range(mechanism.most + 1)
    return max(_log_sum((m, p, k), (d - m, q, k), (1, 1 - m * p - (d - m) * q, k)) for m in sizes)


@_same.register
def _set_bits(mechanism: SetBits, k: int) -> float:
    """Bound a report by p/q times its probability under coins of probability q."""
    p, q = float(mechanism.p), float(mechanism.q)
    return k * log(p / q) + mechanism.domain * _bit(q, k)


@_same.register
def _padded(mechanism: PaddedSample, k: int) -> float:
    return _same(mechanism.inner, k)  # a mixture of its laws: the sum of powers is convex


@_same.register
def _window(mechanism: Windowed, k: int) -> float:
    return _log_sum((mechanism.window, float(mechanism.p), k), (mechanism.reach, float(mechanism.q), k))


@_same.register
def _duchi(mechanism: Duchi, k: int) -> float:
    return _bit(float(mechanism.p), k)


@_same.register
def _hybrid(mechanism: Hybrid, k: int) -> float:
    share = float(mechanism.share)
    near, bit = _same(mechanism.piecewise, k), _same(mechanism.duchi, k)
    return float(np.logaddexp(k * log(share) + near, k * log1p(-share) + bit))


@_same.register
def _laplace_number(mechanism: LaplaceNumber, k: int) -> float:
    return _laplace(float(mechanism.scale), k)


@_same.register
def _other_number(mechanism: NumberMechanism, k: int) -> float:
    return 0.0
