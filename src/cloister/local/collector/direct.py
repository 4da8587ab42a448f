"""Direct encoding and randomised response, at the collector."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.oracle import Floats, Oracle
from cloister.local.collector.counts import frequencies, likelihood, tally
from cloister.local.collector.projection import Likelihood
from cloister.local.collector.spread import Spread, coins, spread_of
from cloister.local.mechanisms.direct import DirectEncoding
from cloister.local.mechanisms.response import RandomisedResponse

__all__ = ["chosen", "debiased"]


@tally.register
def _counts(mechanism: DirectEncoding | RandomisedResponse, data: NDArray[Any]) -> NDArray[np.int64]:
    return np.bincount(data.astype(np.int64), minlength=mechanism.domain)


@frequencies.register
def _direct(
    mechanism: DirectEncoding, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    return chosen(debiased(mechanism, table, people), values)


@frequencies.register
def _response(
    mechanism: RandomisedResponse, table: NDArray[Any], people: int, values: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64] | None, Floats]:
    yes = float(debiased(mechanism, table[1:], people)[0])
    return chosen(np.array([1 - yes, yes]), values)


@likelihood.register
def _direct_likelihood(mechanism: DirectEncoding, table: NDArray[Any], people: int) -> Likelihood:
    p, q = float(mechanism.p), float(mechanism.q)

    def through(shares: Floats) -> Floats:  # the channel is symmetric: it is its own transpose
        return np.asarray(q * shares.sum() + (p - q) * shares)

    return Likelihood(table.astype(np.float64), through, through)


@likelihood.register
def _response_likelihood(mechanism: RandomisedResponse, table: NDArray[Any], people: int) -> Likelihood:
    channel = np.array([[float(chance) for chance in mechanism.law(value)] for value in (0, 1)])
    return Likelihood(table.astype(np.float64), lambda shares: shares @ channel, lambda weights: channel @ weights)


def debiased(mechanism: Oracle, supports: NDArray[Any], people: int) -> Floats:
    """(count/n - q) / (p - q), Wang et al. 2017."""
    return np.asarray((supports / people - float(mechanism.q)) / float(mechanism.p - mechanism.q))


def chosen(shares: Floats, values: NDArray[np.int64] | None) -> tuple[NDArray[np.int64] | None, Floats]:
    """All shares, or those of some values."""
    return values, shares if values is None else shares[values]


@spread_of.register
def _response_spread(
    mechanism: RandomisedResponse, table: NDArray[Any], n: int, shares: Floats, values: NDArray[np.int64] | None
) -> Spread:
    """Of no and yes: who means no says no with probability 1 - q, and who means yes with 1 - p."""
    p, q = float(mechanism.p), float(mechanism.q)
    named = slice(None) if values is None else values
    return coins(np.array([1 - q, p])[named], np.array([1 - p, q])[named], len(shares), n)
