"""Check the arguments of mechanisms. No message contains a private value."""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadCandidates, BadInput, BadLoss, BadNumber, BadProbability, BadScale
from cloister.privacy.loss import Loss
from cloister.privacy.number import Number, rational, show

# Beyond this a sensitivity or scale is a mistake, and its square would overflow a double.
_LARGEST = Fraction(10) ** 100
# Closer than this to 0 or 1, a probability rounds to it as a double.
_NEAREST = Fraction(1, 10**200)


def positive(value: Number, name: str) -> Fraction:
    """Return a positive number within the supported range."""
    exact = rational(value, name)
    if not 1 / _LARGEST <= exact <= _LARGEST:
        raise BadScale(f"{name} must be positive and between 1e-100 and 1e100, got {show(exact)}.")
    return exact


def whole(value: Number, name: str) -> int:
    """Return a positive whole number."""
    exact = positive(value, name)
    if exact.denominator != 1:
        raise BadScale(
            f"{name} must be a whole number, got {show(exact)}: this noise lives on the integers. "
            "For real numbers use Laplace or Gaussian, which work on a Grid."
        )
    return exact.numerator


def count(value: int, name: str) -> int:
    """Return a count: a Python integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadNumber(f"{name} must be a whole number of at least 1, got {value!r:.40}.")
    return value


def probability(value: Number, name: str) -> Fraction:
    """Return a probability strictly between 0 and 1."""
    exact = rational(value, name)
    if not _NEAREST <= exact <= 1 - _NEAREST:
        raise BadProbability(f"{name} must lie strictly between 0 and 1, got {show(exact)}.")
    return exact


def confidence_left(confidence: Number) -> Fraction:
    """Return 1 - confidence, the probability of being wrong."""
    return 1 - probability(confidence, "confidence")


def order(alpha: float) -> float:
    """Return the order of a Rényi divergence, checked."""
    exact = rational(alpha, "alpha")
    if not 1 < exact <= 10**9:
        raise BadNumber(f"alpha must be larger than 1 and at most 1e9, got {show(exact)}.")
    return float(exact)


def pure_or_rho(loss: Loss, name: str) -> None:
    """Refuse a loss that a pure mechanism cannot state."""
    if not isinstance(loss, Loss):
        raise BadLoss(f"{name} needs a loss, got a {type(loss).__name__}. Write epsilon(1) or rho('0.1').")
    if loss.delta or not loss.amount:
        raise BadLoss(f"{name} states a positive epsilon or rho without a delta, got {loss}. Leave the delta out.")


def integers(statistic: object) -> Any:
    """Return a Python int, or an array of integers (object arrays of Python ints too), never through floats."""
    if isinstance(statistic, list | tuple):
        statistic = np.array(statistic, dtype=object)  # numpy would turn a mixture of large integers into floats
    if isinstance(statistic, np.ndarray | np.generic):
        kind = statistic.dtype.kind
        if kind in "iu" or (kind == "O" and all(_is_integer(number) for number in np.ravel(statistic))):
            return statistic if statistic.ndim else int(statistic)
    elif _is_integer(statistic):
        return statistic
    raise BadInput(
        "this noise is added to whole numbers only; a float would leak its last digits. Put each row on a Grid first: "
        "grid.total(grid.encode(values, lower, upper)), and use Laplace or Gaussian on that grid."
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def scores_of(scores: Any, *, whole_only: bool = False) -> NDArray[Any]:
    """Return scores as an array of integers (or Fractions), one for each candidate of a public list."""
    listed = scores if isinstance(scores, np.ndarray) else np.array([*scores, None], dtype=object)[:-1]
    if listed.ndim != 1 or not listed.size:
        raise BadCandidates("a choice needs a list of candidates from public knowledge, one score each.")
    if listed.dtype.kind == "i":
        return listed
    if not all(
        _is_integer(score) or (isinstance(score, Fraction) and not whole_only) for score in listed.astype(object)
    ):
        allowed = "whole numbers" if whole_only else "whole numbers or Fractions"
        raise BadCandidates(f"scores must be {allowed}, one for each candidate; a float would leak its last digits.")
    return listed.astype(object)
