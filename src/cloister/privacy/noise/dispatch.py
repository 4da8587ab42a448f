"""Dispatch of draws: read exact ratios, then send few or huge ones to `scalar`, many to the arrays.

A scale or probability is one ratio p/q for all draws, or an array of them, one for each. Arrays work in int64, in
pieces that stay in the processor's cache; values beyond int64 go through Python integers instead.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, BadNumber, BadScale
from cloister.privacy.noise.source import Size, Source
from cloister.privacy.number import rational, show

__all__ = ["DrawRequest", "Bools", "Index", "Integers", "Whole", "draw", "pick", "read", "redraw"]

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
    given = np.asarray(value, dtype=object)
    shape = given.shape if size is None else _shape(size)
    exacts = [_checked(rational(one, name), name, least, most) for one in given.flat]
    p = np.array([one.numerator for one in exacts], dtype=object).reshape(given.shape)
    q = np.array([one.denominator for one in exacts], dtype=object).reshape(given.shape)
    try:
        return DrawRequest(np.broadcast_to(p, shape).ravel(), np.broadcast_to(q, shape).ravel(), shape)  # type: ignore[arg-type]
    except ValueError:
        raise BadInput(f"{name} of shape {given.shape} does not fit size {shape}.") from None


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
    pieces = [slice(start, min(start + _PIECE, count)) for start in range(0, count, _PIECE)]
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
