"""Shared fixed-point numbers: sums, products and truncation, with a bound that is proven for every result.

A number x is the integer x·2^f modulo 2^64, cut into additive shares. Each array carries a public bound B of its
absolute integers, which follows from the bounds declared for the inputs. Every operation computes the bound of its
result first and refuses one that reaches 2^62: no sum or product wraps, and none does so silently.

**Truncation** (Escudero, Ghosh, Keller, Rachuri, Scholl 2020, section 5.1). A product has 2f bits after the point and
loses f of them. With |x| < 2^62 let y = x + 2^62, so 0 < y < 2^63, and let r = b·2^63 + s be a uniform word whose
parts are shared. c = y + r mod 2^64 is uniform and is opened. u = y + s is below 2^64; its low 63 bits are those of c,
and its top bit is v = c₆₃ xor b. So y = v·2^63 + (c mod 2^63) - s, and

    t = v·2^(63-f) + ((c mod 2^63) >> f) - (s >> f)

differs from y/2^f by the difference of two fractions in [0, 1): t is ⌊y/2^f⌋ or ⌊y/2^f⌋ + 1, always. The error of a
truncation is below one unit of the last place (2^-f), with no failure probability.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadInput, BadNumber, OutOfRange
from cloister.vault.paillier.encoding import exact_array, exact_fraction
from cloister.vault.secret import Hidden
from cloister.vault.sharing import ring
from cloister.vault.sharing.party import Party
from cloister.vault.sharing.ring import Words
from cloister.vault.sharing.supply import LOW, product_shape

__all__ = ["LIMIT", "Shared", "as_divisor", "as_shared", "concatenate", "encoded_public", "stack"]

LIMIT = 1 << 62
_PUBLIC = "a public operand is a finite number whose fixed-point form has at most 62 bits."
_DIVIDED = "shared numbers are divided by divide(a, b, at_least=...), and by a public one as a * (1 / b)."


class Shared(Hidden):
    """One party's share of an array of numbers.

    Attributes:
        party: the party that holds this share.
        bound: public: no integer behind this array is larger in absolute value.
    """

    __slots__ = ("_share", "bound", "party")
    __array_ufunc__ = None  # numpy leaves `array * shared` to __rmul__

    def __init__(self, party: Party, share: Words, bound: int) -> None:
        self.party, self._share, self.bound = party, share, self.check_bound(bound)

    @staticmethod
    def check_bound(bound: int) -> int:
        """Return a bound, or refuse one that could wrap."""
        if bound >= LIMIT:
            raise OutOfRange(
                f"this result may need {bound.bit_length()} bits, and shared numbers have 62. Nothing was computed. "
                "Declare narrower bounds, use fewer fraction_bits, or clip() the operands."
            )
        return bound

    @property
    def words(self) -> Words:
        """This party's share, for protocols that are built on it."""
        return self._share

    @property
    def shape(self) -> tuple[int, ...]:
        """The public shape."""
        return self._share.shape

    @property
    def T(self) -> "Shared":  # noqa: N802 (numpy's name)
        """The transpose."""
        return self._with(self._share.T, self.bound)

    def __getitem__(self, at: Any) -> "Shared":
        return self._with(np.asarray(self._share[at], dtype=np.uint64), self.bound)

    def __len__(self) -> int:
        return len(self._share)

    @ring.wrapping
    def __add__(self, other: "Shared | ArrayLike") -> "Shared":
        """Add shared or public numbers, element by element. No message is sent."""
        right = self.operand(other)
        product_shape(self.shape, right.shape, matrix=False)
        return self._with(self._share + right._share, self.bound + right.bound)

    __radd__ = __add__

    @ring.wrapping
    def __neg__(self) -> "Shared":
        """Return the numbers with the other sign. No message is sent."""
        return self._with(np.zeros_like(self._share) - self._share, self.bound)

    def __sub__(self, other: "Shared | ArrayLike") -> "Shared":
        """Subtract shared or public numbers, element by element. No message is sent."""
        return self + -self.operand(other)

    def __rsub__(self, other: ArrayLike) -> "Shared":
        """Subtract the shared numbers from public ones."""
        return -self + other

    @ring.wrapping
    def __mul__(self, other: "Shared | ArrayLike") -> "Shared":
        """Multiply, element by element. Only a whole public number costs no message."""
        if isinstance(other, int | np.integer):  # exact, and costs nothing
            factor = np.uint64(int(other) % (1 << 64))
            return self._with(self._share * factor, self.bound * abs(int(other)))
        right = self.operand(other)
        self.check_bound(self.bound * right.bound)
        product_shape(self.shape, right.shape, matrix=False)
        if isinstance(other, Shared):
            product = self.party.multiply_words(self._share, right._share)
        else:
            product = self._share * encoded_public(self.party, other)[0]
        return self._with(product, self.bound * right.bound).truncate(self.party.fraction_bits)

    __rmul__ = __mul__

    @ring.wrapping
    def __matmul__(self, other: "Shared | ArrayLike") -> "Shared":
        """Multiply as vectors and matrices, shared or public."""
        right = self.operand(other)
        product_shape(self.shape, right.shape, matrix=True)
        bound = self.check_bound(self.bound * right.bound * self.shape[-1])
        if isinstance(other, Shared):
            product = self.party.multiply_words(self._share, right._share, matrix=True)
        else:
            product = np.matmul(self._share, encoded_public(self.party, other)[0])
        return self._with(np.asarray(product, dtype=np.uint64), bound).truncate(self.party.fraction_bits)

    def __rmatmul__(self, other: ArrayLike) -> "Shared":
        """Multiply a public vector or matrix by this one."""
        left = exact_array(other)
        if left.ndim > 2 or self._share.ndim > 2:
            raise BadNumber(f"arrays of the shapes {left.shape} and {self.shape} have no product of this kind.")
        return (self.T @ left.T).T

    def __truediv__(self, other: object) -> NoReturn:
        """Refuse: a quotient needs the smallest divisor, see `divide`."""
        raise BadInput(_DIVIDED)

    __rtruediv__ = __truediv__

    def sum(self, axis: int | None = None) -> "Shared":
        """Return the sum over an axis, or over all."""
        count = self._share.size if axis is None else self.shape[axis]
        self.check_bound(self.bound * count)
        return self._with(np.asarray(self._share.sum(axis=axis, dtype=np.uint64)), self.bound * count)

    def reshape(self, *shape: int) -> "Shared":
        """Return the same numbers in another shape."""
        return self._with(self._share.reshape(shape), self.bound)

    @ring.wrapping
    def truncate(self, bits: int) -> "Shared":
        """Divide by 2^bits; the result is off by less than one in the last place."""
        if bits == 0:
            return self
        if not 0 < bits < 62:
            raise OutOfRange("a number of 62 bits cannot lose this many. Use more fraction_bits, or narrower bounds.")
        count, cut = self._share.size, np.uint64(bits)
        mask, shifted, top = (part.reshape(self.shape) for part in self.party.supply.truncation(count, bits))
        first = self.party.index == 0
        opened = self.party.open_words(self._share + mask + np.uint64(LIMIT if first else 0))
        high = opened >> np.uint64(63)
        carry = top - (top * high << np.uint64(1))  # high xor top = high + top - 2·high·top
        result = (carry << np.uint64(63 - bits)) - shifted
        if first:
            result = result + (high << np.uint64(63 - bits)) + ((opened & LOW) >> cut) - np.uint64(LIMIT >> bits)
        return self._with(result, (self.bound >> bits) + 1)

    def open(self) -> NDArray[np.float64]:
        """Open the numbers to all parties. What is opened is no longer secret: everybody agrees on it first."""
        opened = ring.signed(self.party.open_words(self._share))
        if opened.size and max(abs(int(opened.max())), abs(int(opened.min()))) > self.bound:
            self.party.abort()
            raise OutOfRange("what was opened is outside its proven range, so a party computed wrongly. Run it again.")
        return np.ldexp(opened.astype(np.float64), -self.party.fraction_bits)

    def within(self, bound: int) -> "Shared":
        """Return the same share with a smaller bound that is known by proof. Use `compare.clip` where it is not."""
        return self._with(self._share, min(bound, self.bound))

    def _with(self, share: Words, bound: int) -> "Shared":
        return Shared(self.party, share, bound)

    def operand(self, other: "Shared | ArrayLike") -> "Shared":
        """Return shared numbers as they are, and public ones as numbers that party 0 holds."""
        if not isinstance(other, Shared):
            encoded, bound = encoded_public(self.party, other)
            return Shared(self.party, encoded if self.party.index == 0 else np.zeros_like(encoded), bound)
        if other.party is not self.party:
            raise BadInput("these shares are of different parties, and a party computes with its own.")
        return other


def as_shared(numbers: object, what: str = "this") -> Shared:
    """Return shared numbers as they are; refuse anything else."""
    if not isinstance(numbers, Shared):
        kind = type(numbers).__name__
        raise BadInput(f"{what} takes shared numbers, as party.share returns them, and got {kind:.40}.")
    return numbers


def as_divisor(numbers: object) -> Shared:
    """Return a shared divisor; refuse a public one, by which is multiplied."""
    if not isinstance(numbers, Shared):
        raise BadInput(_DIVIDED)
    return numbers


def concatenate(parts: Sequence[Shared]) -> Shared:
    """Join shared arrays along their first axis. No message is sent."""
    if not parts:
        raise BadInput("an array is joined from at least one part.")
    first = as_shared(parts[0], "concatenate")
    # As an operand, a part of another party is refused.
    words = [first.operand(as_shared(part, "concatenate")).words for part in parts]
    if not first.shape or len({part.shape[1:] if part.ndim else None for part in words}) > 1:
        raise BadNumber("arrays are joined that have an axis, and one shape but for the first one. Reshape them.")
    return Shared(first.party, np.concatenate(words), max(part.bound for part in parts))


def stack(parts: Sequence[Shared]) -> Shared:
    """Stack shared arrays of one shape along a new first axis."""
    if not parts:
        raise BadNumber("a stack has at least one part.")
    first = as_shared(parts[0], "stack")
    # As an operand, a part of another party is refused.
    words = [first.operand(as_shared(part, "stack")).words for part in parts]
    return Shared(first.party, np.stack(words), max(part.bound for part in parts))


def encoded_public(party: Party, values: ArrayLike) -> tuple[Words, int]:
    """Return public numbers as ring elements, and the largest absolute integer among them."""
    array = exact_array(values)
    if array.dtype.kind in "iubO":
        # Exact: a float has 53 bits, and an operand may have 62.
        exact = [round(exact_fraction(value) * (1 << party.fraction_bits)) for value in array.reshape(-1).tolist()]
        if any(abs(value) >= LIMIT for value in exact):
            raise BadNumber(_PUBLIC)
        words = np.array(exact, dtype=np.int64).view(np.uint64).reshape(array.shape)
        return words, max(map(abs, exact), default=0)
    if array.dtype.kind != "f":
        raise BadNumber(_PUBLIC)
    with np.errstate(over="ignore"):  # infinity is refused below
        scaled = np.rint(np.ldexp(array.astype(np.float64), party.fraction_bits))
    if not np.isfinite(scaled).all() or (array.size and np.abs(scaled).max() >= LIMIT):
        raise BadNumber(_PUBLIC)
    integers = scaled.astype(np.int64)
    return integers.view(np.uint64).reshape(array.shape), int(np.abs(integers).max()) if array.size else 0
