"""Two leaks of floating-point arithmetic, used as attacks.

Textbook Laplace noise is a logarithm of one of 2^53 uniform doubles. Added to the answer a it can reach only some
doubles, added to b others, so one output often reveals the answer for any epsilon (Mironov 2012, "On significance
of the least significant bits for differential privacy"). And a float sum depends on the order of its rows by more than
one row may change it (Casacuberta et al. 2022, "Widespread underestimation of sensitivity").
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.intervals import Floats
from cloister.privacy.errors import BadScale

__all__ = ["Guesses", "guess", "orders_that_differ", "reachable", "try_to_tell_apart"]

_GRAIN = 2.0**-53  # numpy's uniform doubles are the multiples of this
_WINDOW = 2  # inverting the logarithm finds the uniform double to within this many grains
# The C library's logarithm, which numpy's generators call; np.log sometimes rounds the last bit differently.
_log = np.frompyfunc(math.log, 1, 1)


@dataclass(frozen=True, slots=True)
class Guesses:
    """Results of an attacker who guesses which of two answers produced each output."""

    right: int
    wrong: int
    undecided: int

    @property
    def rate(self) -> float:
        """Return the share of right guesses, with undecided cases counted as coin tosses: 0.5 is chance."""
        return (self.right + self.undecided / 2) / (self.right + self.wrong + self.undecided)


def reachable(outputs: ArrayLike, answer: float, scale: float) -> NDArray[np.bool_]:
    """Return a mask of the outputs that `numpy.random.Generator.laplace(answer, scale)` can return.

    It draws U and returns answer + scale·ln(2U) below the median, answer - scale·ln(2 - U - U) above. We invert that
    to find U, and try the few doubles around it.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise BadScale(f"scale must be positive and finite, got {scale!r:.40}.")
    x = np.asarray(outputs, dtype=np.float64)
    tail = np.exp(-np.abs(x - answer) / scale) / 2
    near = np.rint(np.where(x >= answer, 1 - tail, tail) / _GRAIN)
    possible = np.zeros(x.shape, dtype=np.bool_)
    for step in range(-_WINDOW, _WINDOW + 1):
        u = np.clip(near + step, 1, 2**53 - 1) * _GRAIN
        upper = u >= 0.5
        logs = _log(np.where(upper, 2.0 - u - u, u + u)).astype(np.float64)
        possible |= np.where(upper, answer - scale * logs, answer + scale * logs) == x
    return possible


def guess(outputs: ArrayLike, left: float, right: float, scale: float) -> NDArray[np.int64]:
    """Return -1 where only the left answer can reach the output, 1 where only the right one can, 0 if undecided."""
    return reachable(outputs, right, scale).astype(np.int64) - reachable(outputs, left, scale).astype(np.int64)


def try_to_tell_apart(
    mechanism: Callable[[float, int], ArrayLike], left: float, right: float, scale: float, n: int = 1_000
) -> Guesses:
    """Attack a mechanism that adds noise to an answer: `mechanism(answer, n)` returns n outputs.

    Privacy: with |left - right| far below the scale, any epsilon-private mechanism keeps the rate very close to one
    half; at most e^epsilon / (1 + e^epsilon).
    """
    says = np.concatenate(
        (-guess(mechanism(left, n), left, right, scale), guess(mechanism(right, n), left, right, scale))
    )
    return Guesses(int((says > 0).sum()), int((says < 0).sum()), int((says == 0).sum()))


def orders_that_differ(lower: float = 2.0**40, rows: int = 2**13) -> tuple[Floats, Floats]:
    """Return the same rows in two orders whose sequential sums in doubles differ widely.

    All rows are in [lower, lower + 1], so replacing one changes the true sum by at most 1. Late in the sum a double
    cannot hold the fractions, so it matters whether they come early or late. As tables both are equal.
    """
    whole, fractional = np.full(rows // 2, lower), np.full(rows // 2, lower + 0.49)
    return np.concatenate((fractional, whole)), np.concatenate((whole, fractional))
