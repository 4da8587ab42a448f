"""Privacy amplification by Poisson sampling.

Every unit must enter the sample independently with the same probability, and the sample must stay secret. A shuffled
epoch cut into batches of fixed size is not Poisson sampling, and these bounds do not hold for it.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp

from cloister.privacy.errors import BadProbability, MeasureMismatch, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, exp_up, log_up, rational, rounded_up, show

__all__ = ["amplified", "sampled_gaussian_rdp", "sampling_rate"]

_TERMS = 400  # number of terms of the series at fractional orders


def amplified(loss: Loss, rate: Number) -> Loss:
    """Return the loss of a mechanism on a Poisson sample: (ln(1 + q(e^epsilon - 1)), q·delta), rounded up.

    Privacy: add/remove neighbours (Balle, Barthe & Gaboardi 2018, Th. 8). Replace-one losses are refused: a sample with
    and without the unit are not replace-one neighbours. A rho is refused: sampling does not keep zCDP's shape.

    >>> from cloister.privacy.loss import epsilon
    >>> print(amplified(epsilon(1), rate="0.01"))
    epsilon ≈0.0170369
    """
    q = sampling_rate(rate)
    if loss.measure != "epsilon":
        raise MeasureMismatch("sampling amplifies an epsilon, not a rho. Convert with as_epsilon(delta=...) first.")
    if loss.relation is not Relation.ADD_REMOVE:
        raise RelationMismatch("Poisson sampling amplifies add/remove losses. Give the mechanism's add/remove loss.")
    if q == 1:
        return loss
    # Sampling never increases the loss, so the loss itself is a bound where e^epsilon would be too long a number.
    amount = rounded_up(log_up(1 + q * (exp_up(loss.amount) - 1))) if loss.amount < 700 else loss.amount
    return Loss("epsilon", min(amount, loss.amount), q * loss.delta)


def sampling_rate(rate: Number) -> Fraction:
    """Return a sampling probability, checked to be in (0, 1]."""
    exact = rational(rate, "rate")
    if not 0 < exact <= 1:
        raise BadProbability(f"rate must lie above 0 and not above 1, got {show(exact)}. Write for example '0.01'.")
    return exact


def sampled_gaussian_rdp(sigma: float, rate: float, alpha: float) -> float:
    """Return an upper bound on the Rényi divergence of the Poisson-sampled Gaussian (Mironov, Talwar & Zhang 2019).

    ln A / (alpha - 1), where A = E[((1-q) + q e^((2z-1)/2sigma²))^alpha] over z ~ N(0, sigma²). Integer orders have a
    closed form. Between them it is the smaller of two bounds: the chord (ln A is convex in alpha, and 0 at 1) and the
    series. The divergence without sampling, alpha/2sigma², is a bound too.
    """
    unsampled = alpha / 2 / sigma / sigma
    if rate == 1:
        return _up(unsampled)
    below = math.floor(alpha)
    share = alpha - below
    log_a = (1 - share) * _log_moment(sigma, rate, below)
    if share:
        log_a = min(log_a + share * _log_moment(sigma, rate, below + 1), _log_series(sigma, rate, alpha))
    return _up(min(log_a / (alpha - 1), unsampled))


@lru_cache(maxsize=4096)
def _log_moment(sigma: float, rate: float, order: int) -> float:
    """Return ln A at an integer order, rounded up.

    A = sum over k of C(order, k) (1-q)^(order-k) q^k e^(k(k-1)/2sigma²). The binomial weights add up to 1, so
    A - 1 = the same sum with e^x - 1 for e^x: all terms are positive, and nothing cancels for small q.
    """
    if order == 1:
        return 0.0
    k = np.arange(2, order + 1)
    power = k * (k - 1) / 2 / sigma / sigma
    grown = np.where(
        power < 1, np.log(np.expm1(np.minimum(power, 1))), power + np.log1p(-np.exp(-np.maximum(power, 1)))
    )
    pieces = [_log_binomials(order), (order - k) * math.log1p(-rate), k * math.log(rate), grown]
    log_sum = float(logsumexp(np.sum(pieces, axis=0)))
    value = math.log1p(math.exp(log_sum)) if log_sum < 30 else log_sum + math.exp(-log_sum)
    # Each piece has an error of a few ulps and the sum of one more per term; that is S's relative error, and
    # ln(1+S) moves by at most min(1, ln(1+S)) times it.
    return _up(value + min(value, 1.0) * 2.0**-48 * (float(np.abs(pieces).sum(axis=0).max()) + order))


@lru_cache(maxsize=512)
def _log_binomials(order: int) -> npt.NDArray[np.float64]:
    return np.array([math.log(math.comb(order, k)) for k in range(2, order + 1)])


def _log_series(sigma: float, rate: float, alpha: float) -> float:
    """Return ln A at a fractional order, by the binomial series on both sides of the point of equal summands.

    The smaller over the larger is at most 1, so its expected powers fall, and beyond alpha the binomial coefficients
    fall and alternate: the remainder is at most the first term left out (section 3.3 of the paper).
    """
    if alpha > _TERMS / 2:
        return math.inf  # the alternation would not have begun; the chord is close there
    i = np.arange(_TERMS)
    sizes = np.cumprod(np.concatenate([[1.0], np.abs(alpha - i[:-1]) / i[1:]]))
    signs = np.where(i > alpha + 1, np.where((i - math.ceil(alpha)) % 2 == 0, 1.0, -1.0), 1.0)
    middle = sigma * sigma * math.log(1 / rate - 1) + 0.5
    total = error = 0.0
    for k, side in ((i, 1.0), (alpha - i, -1.0)):
        pieces = [
            (alpha - k) * math.log1p(-rate), k * math.log(rate), k * (k - 1) / 2 / sigma / sigma,
            log_ndtr(side * (middle - k) / sigma),
        ]  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):  # too large for a float: the chord is used
            terms = sizes * np.exp(np.sum(pieces, axis=0))
            total += float((signs * terms)[:-1].sum())
            error += float((terms * (np.abs(pieces).sum(axis=0) + _TERMS)).sum()) * 2.0**-48 + float(terms[-1])
    bound = total + error
    return _up(math.log(bound)) if 1 <= bound < math.inf else math.inf


def _up(value: float) -> float:
    """Round up by an allowance of sixteen roundings, and never to zero."""
    return math.nextafter(value * (1 + 2.0**-49), math.inf)
