"""Draws from a law that is given by exact ratios: few or huge ones one at a time, many as arrays.

A scale or probability is one ratio p/q for all draws, or an array of them, one for each. Arrays work in int64, in
pieces that stay in the processor's cache (`uniform.py`, `bernoulli_exp.py`, `laplace.py`, `gaussian.py`). Single draws,
and values beyond int64, are made here in Python integers of any size, by the algorithms as published: Canonne, Kamath &
Steinke, "The Discrete Gaussian for Differential Privacy", 2020, algorithms 2 and 3.

Every exact sampler needs one test: is U < e^(-p/q) for a uniform real U and a rational p/q? `Toss` draws the first bits
of U, bounds e^(-p/q) from both sides with integers, and draws further bits only while the two overlap. The answer has
exactly the right probability, at any precision that decides it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, BadNumber, BadScale
from cloister.privacy.noise.source import Size, Source, integer
from cloister.privacy.number import rational, show

__all__ = [
    "Bools",
    "DrawRequest",
    "Index",
    "Integers",
    "Toss",
    "Whole",
    "bernoulli",
    "bernoulli_exp",
    "draw",
    "exp_bounds",
    "gaussian",
    "geometric",
    "laplace",
    "pick",
    "read",
    "redraw",
    "uniform",
]


Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
Index = slice | NDArray[np.intp]
Whole = int | Integers  # one integer for all draws, or one for each

# Up to this many draws, Python integers are quicker than arrays.
_FEW = 8
_PIECE = 1 << 15
# Beyond this many bits a scale is a mistake, and arithmetic on it would take too long.
_MOST_BITS = 4096


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """Exact ratios p/q: two integers, or two flat object arrays of Python integers, one entry per draw.

    `shape` is that of the result; None means a single Python number.
    """

    p: Any
    q: Any
    shape: tuple[int, ...] | None

    @property
    def lone(self) -> bool:
        """Return True if all draws have one ratio."""
        return isinstance(self.p, int)

    @property
    def count(self) -> int:
        """Return the number of draws requested."""
        return 1 if self.shape is None else math.prod(self.shape)

    @property
    def largest(self) -> int:
        """The largest integer in any ratio."""
        return int(max(np.max(self.p, initial=0), np.max(self.q, initial=0)))


def read(value: object, size: Size | None, name: str, least: int, most: int | None = None) -> DrawRequest:
    """Read a number or an array of numbers in [least, most]; a ratio without an upper end must be positive."""
    if isinstance(value, str | Fraction) or np.ndim(value) == 0:  # type: ignore[arg-type]
        exact = _checked(rational(value, name), name, least, most)
        return DrawRequest(exact.numerator, exact.denominator, _shape(size))
    values = np.asarray(value, dtype=object)
    shape = values.shape if size is None else _shape(size)
    exacts = [_checked(rational(number, name), name, least, most) for number in values.flat]
    p = np.array([ratio.numerator for ratio in exacts], dtype=object).reshape(values.shape)
    q = np.array([ratio.denominator for ratio in exacts], dtype=object).reshape(values.shape)
    try:
        return DrawRequest(np.broadcast_to(p, shape).ravel(), np.broadcast_to(q, shape).ravel(), shape)  # type: ignore[arg-type]
    except ValueError:
        raise BadInput(f"{name} of shape {values.shape} does not fit size {shape}.") from None


def draw(
    asked: DrawRequest,
    source: Source,
    one: Callable[[int, int, Source], Any],
    many: Callable[[Whole, Whole, int, Source], NDArray[Any]],
    limit: int,
) -> Any:
    """Draw with `one` (Python integers) if few are requested or a ratio reaches `limit`, else with `many` (int64)."""
    if asked.shape is None:
        return one(asked.p, asked.q, source)
    count = asked.count
    if count <= _FEW or asked.largest >= limit:
        p, q = ([asked.p] * count, [asked.q] * count) if asked.lone else (asked.p, asked.q)
        return _array([one(a, b, source) for a, b in zip(p, q, strict=True)]).reshape(asked.shape)
    p, q = (asked.p, asked.q) if asked.lone else (asked.p.astype(np.int64), asked.q.astype(np.int64))
    parts = -(-count // _PIECE)
    pieces = [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
    drawn = [many(pick(p, piece), pick(q, piece), piece.stop - piece.start, source) for piece in pieces]
    return np.concatenate(drawn).reshape(asked.shape)


def redraw(count: int, propose: Callable[[Index, int], tuple[Integers, Bools]]) -> Integers:
    """Sample by rejection: propose for every index, then again for those not accepted."""
    values, accepted = propose(slice(0, count), count)
    while (rejected := np.flatnonzero(~accepted)).size:
        values[rejected], accepted[rejected] = propose(rejected, rejected.size)
    return values


def pick(value: Whole, where: Index) -> Whole:
    """Return the entries of some of the draws."""
    return value if isinstance(value, int) else value[where]


def _array(values: list[Any]) -> NDArray[Any]:
    """Return an array of int64 or bool; of Python objects if one is too large, so that none overflows."""
    if all(-(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=bool if values and isinstance(values[0], bool) else np.int64)
    return np.array(values, dtype=object)


def _shape(size: Size | None) -> tuple[int, ...] | None:
    if size is None:
        return None
    shape = size if isinstance(size, tuple) else (size,)
    if not all(isinstance(side, int | np.integer) and not isinstance(side, bool) and side >= 0 for side in shape):
        raise BadNumber("size must be a whole number of draws, or a tuple of them.")
    return tuple(int(side) for side in shape)


def _checked(exact: Fraction, name: str, least: int, most: int | None) -> Fraction:
    if max(exact.numerator.bit_length(), exact.denominator.bit_length()) > _MOST_BITS:
        raise BadScale(f"{name} has more than {_MOST_BITS} bits. Check sensitivity and loss: their ratio is the scale.")
    if most is not None and not least <= exact <= most:
        raise BadScale(f"{name} must lie between {least} and {most}, got {show(exact)}.")
    if most is None and (exact < least or exact == 0):
        raise BadScale(f"{name} must be positive, got {show(exact)}. Sensitivity divided by loss is the scale.")
    return exact


# One draw at a time


@lru_cache(maxsize=4096)
def exp_bounds(p: int, q: int, bits: int) -> tuple[int, int]:
    """Return integers low <= 2^bits e^(-p/q) <= high with high - low <= 4, for p >= 0 and q > 0.

    >>> low, high = exp_bounds(1, 1, 16)
    >>> low <= 24109 <= high  # 2^16 / e = 24109.3
    True
    """
    if p >= bits * q:
        return 0, 1  # e^(-bits) < 2^(-bits)
    # e^(-x) = (e^(-x / 2^k))^(2^k) with x / 2^k < 1/16, so the series is short.
    k = max(0, (16 * p // q).bit_length())
    # Every truncation below is worth less than one unit of 2^-work. The series makes at most 2 errors per term, fewer
    # than 64 + bits terms; each squaring at most doubles what was there and adds one: < 2^(k+1) (2 bits + 130) units.
    guard = k + 2 + (2 * bits + 130).bit_length()
    work = bits + guard
    x = (p << work) // (q << k)
    total = term = 1 << work
    i = 1
    while term:
        term = (term * x >> work) // i
        total += -term if i & 1 else term
        i += 1
    for _ in range(k):
        total = total * total >> work
    near = total >> guard
    return max(0, near - 1), near + 2


class Toss:
    """A uniform number in [0, 1), of which only the bits needed so far are drawn."""

    __slots__ = ("_bits", "_source", "_value")

    def __init__(self, source: Source, value: int | None = None, bits: int = 64) -> None:
        self._value = integer(bits, source) if value is None else value
        self._bits = bits
        self._source = source

    def below_exp(self, p: int, q: int) -> bool:
        """Return True if this number is below e^(-p/q)."""
        if p == 0:
            return True
        while True:
            low, high = exp_bounds(p, q, self._bits)
            if self._value < low:
                return True
            if self._value >= high:
                return False
            self._value = (self._value << 64) | integer(64, self._source)
            self._bits += 64


def uniform(below: int, source: Source) -> int:
    """Draw uniformly from 0 … below - 1, by rejection."""
    bits = (below - 1).bit_length()
    while (drawn := integer(bits, source)) >= below:
        pass
    return drawn


def bernoulli(p: int, q: int, source: Source) -> bool:
    """Return True with probability p/q."""
    return uniform(q, source) < p


def bernoulli_exp(p: int, q: int, source: Source) -> bool:
    """Return True with probability e^(-p/q)."""
    return p == 0 or Toss(source).below_exp(p, q)


def geometric(p: int, q: int, source: Source) -> int:
    """Draw k >= 0 with probability proportional to e^(-k q/p), that is of scale p/q."""
    # X = U + p V has P(X = x) ∝ e^(-x/p): U is its remainder, V its quotient, and they are independent.
    while True:
        remainder = uniform(p, source)
        if bernoulli_exp(remainder, p, source):
            break
    toss, quotient = Toss(source), 0
    while toss.below_exp(quotient + 1, 1):
        quotient += 1
    return (remainder + p * quotient) // q


def laplace(p: int, q: int, source: Source) -> int:
    """Draw k with probability proportional to e^(-|k| q/p), that is of scale p/q."""
    while True:
        size = geometric(p, q, source)
        negative = integer(1, source)
        if size or not negative:  # zero has one sign only
            return -size if negative else size


def gaussian(p: int, q: int, source: Source) -> int:
    """Draw k with probability proportional to e^(-k²/(2 sigma²)), sigma = p/q."""
    scale, a, b = p // q + 1, p * p, q * q
    while True:
        drawn = laplace(scale, 1, source)
        if bernoulli_exp((abs(drawn) * scale * b - a) ** 2, 2 * a * b * scale * scale, source):
            return drawn
