"""Encrypted vectors: sums, products with plain numbers, fresh randomness, masks.

A vector carries its layout and the total absolute weight of its summands. Every operation states the weight of its
result before it computes, and one that exceeds the layout is refused: no slot can overflow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NoReturn, cast

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected, OutOfRange
from cloister.privacy.noise.source import SYSTEM, Source, integer
from cloister.vault.paillier.keys import PrivateKey, PublicKey
from cloister.vault.paillier.layout import Layout
from cloister.vault.secret import Secret

__all__ = ["EncryptedVector", "Mask", "check_vector", "decrypt", "linear_combination"]


@dataclass(frozen=True, slots=True, eq=False)
class EncryptedVector:
    """A vector of numbers under a public key.

    Attributes:
        public: the key.
        layout: the declared shape, common to all that is added.
        ciphertexts: numbers modulo n², `layout.ciphertexts` of them.
        summands: Σ|w| over the vectors inside, each with an integer weight w; at most `layout.summands`.
        net: Σw, which `Levels` needs to decode.
        noise: largest absolute noise added so far; at most `layout.noise_bound`.
        masked: True if a mask was added; a masked vector is only decrypted.
    """

    public: PublicKey
    layout: Layout
    ciphertexts: tuple[mpz, ...]
    summands: int = 1
    net: int = 1
    noise: int = 0
    masked: bool = False

    @classmethod
    def encrypt(
        cls,
        values: ArrayLike,
        public: PublicKey,
        layout: Layout,
        randomness: str = "fixed-base",
        source: Source = SYSTEM,
    ) -> "EncryptedVector":
        """Encrypt a vector.

        Args:
            values: numbers within the bounds of the layout's encoding; a wider value is refused.
            public: the key of who may decrypt.
            layout: the declared shape of the sum that this vector will be part of.
            randomness: "fixed-base" (fast), or "textbook" (one assumption less).
            source: source of the random exponents. Anyone who knows them decrypts.
        """
        _check_agreed(public, layout)
        encoded = layout.encoding.encode(values)
        if len(encoded) != layout.length:
            raise BadNumber(
                f"the layout is for {layout.length} values, and {len(encoded)} were given. Declare that length."
            )
        plain = layout.pack(encoded, public.bits)
        return cls(public, layout, tuple(public.encrypt_number(number, randomness, source) for number in plain))

    @classmethod
    def sum(cls, vectors: Sequence["EncryptedVector"]) -> "EncryptedVector":
        """Add vectors of one key and layout; refuse a sum that the layout does not hold before adding any."""
        return linear_combination([1] * len(vectors), vectors)

    def __repr__(self) -> str:
        count, most = self.summands, self.layout.summands
        return f"<EncryptedVector: {self.layout.length} values, {count} of {most} summands, {self.public!r}>"

    def __add__(self, other: "EncryptedVector") -> "EncryptedVector":
        """Add a vector of the same key and layout."""
        return linear_combination([1, 1], [self, other])

    def __radd__(self, other: object) -> "EncryptedVector":
        """Begin Python's `sum`, which adds to 0; refuse other numbers."""
        if isinstance(other, int) and not other:
            return self
        return linear_combination([1, 1], [self, cast(EncryptedVector, other)])

    def __sub__(self, other: "EncryptedVector") -> "EncryptedVector":
        """Subtract a vector of the same key and layout; it counts as a summand, too."""
        return linear_combination([1, -1], [self, other])

    def __neg__(self) -> "EncryptedVector":
        """Return the encrypted vector with the other sign."""
        return linear_combination([-1], [self])

    def __mul__(self, weight: int) -> "EncryptedVector":
        """Multiply all values by one whole number w, which counts as |w| summands."""
        return linear_combination([weight], [self])

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> NoReturn:
        """Refuse: encrypted numbers are whole."""
        raise BadInput("encrypted numbers are not divided. Multiply by whole weights, and divide after decryption.")

    def add_plain(self, values: ArrayLike) -> "EncryptedVector":
        """Add a plain vector as one more summand."""
        encoded = self.layout.encoding.encode(values)
        return self._added(encoded, self._holds(self.summands + 1, self.net + 1, self.noise))

    def add_noise(self, noise: Sequence[int], bound: int) -> "EncryptedVector":
        """Add noise, in encoded integers.

        Args:
            noise: one integer for each value.
            bound: public largest absolute value of the noise, counted against the layout's `noise_bound`.
        """
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
            raise BadNumber("the bound of the noise is a whole number that is not negative.")
        integers = _whole_numbers(noise, "Round noise before, by a rule that is private.")
        if any(abs(value) > bound for value in integers):
            raise OutOfRange("a noise value is outside the bound declared for it. Declare a wider one.")
        return self._added(integers, self._holds(self.summands, self.net, self.noise + bound))

    def times(self, weights: Sequence[int]) -> "EncryptedVector":
        """Multiply each value by an integer weight of its own; the layout must not be packed."""
        exact = self._weights(weights)
        largest = max(abs(weight) for weight in exact)
        if len({*exact}) > 1 and self.layout.encoding.describe()["encoding"] != "fixed-point":
            raise BadInput("levels have an offset, so different weights cannot be decoded. Encode as FixedPoint.")
        result = self._holds(self.summands * largest, self.net * exact[0], self.noise * largest)
        powers = [_power(number, weight, self.public) for number, weight in zip(self.ciphertexts, exact, strict=True)]
        return replace(result, ciphertexts=tuple(powers))

    def dot(self, weights: Sequence[int]) -> "EncryptedVector":
        """Return the encrypted Σ weightᵢ·valueᵢ, a vector of one value; the layout must not be packed."""
        return self.transform([weights])

    def transform(self, matrix: Sequence[Sequence[int]] | NDArray[Any]) -> "EncryptedVector":
        """Return the encrypted product of an integer matrix with this vector; the layout must not be packed.

        A row's Σ|w| counts as its weight, so the layout must hold `summands` times the largest.
        """
        rows = [self._weights(row) for row in matrix]
        if not rows:
            raise BadNumber("a matrix has at least one row.")
        weight = max(sum(abs(entry) for entry in row) for row in rows)
        nets = {sum(row) for row in rows}
        if len(nets) > 1 and self.layout.encoding.describe()["encoding"] != "fixed-point":
            raise BadInput("levels have an offset, so rows of different sums cannot be decoded. Encode as FixedPoint.")
        result = self._holds(self.summands * weight, self.net * nets.pop(), self.noise * weight)
        made = replace(self.layout, length=len(rows))
        made.slots(self.public.bits)  # a mask for more values is longer, and must fit as well
        products = [_product(self.ciphertexts, row, self.public) for row in rows]
        return replace(result, layout=made, ciphertexts=tuple(products))

    def rerandomise(self, randomness: str = "textbook", source: Source = SYSTEM) -> "EncryptedVector":
        """Return the same values under fresh randomness, which links it to no ciphertext before.

        Every random part has Jacobi symbol 1, so the symbol links nothing. "textbook" is uniform over all random parts
        that a checked ciphertext can have: not even the key holder can link, whatever it made of n and h. "fixed-base"
        is about ten times as fast, and for those who do not hold the key: its holder chose h.

        Do this before a computed vector is sent to the key holder: it can compute the random numbers of ciphertexts,
        and those of a sum or product show which ones went in, and with which weights.
        """
        self.public.check_unmarked(self.ciphertexts)
        fresh = [
            number * self.public.random_part(randomness, source) % self.public.squared for number in self.ciphertexts
        ]
        return replace(self, ciphertexts=tuple(fresh))

    def mask(self, source: Source = SYSTEM) -> "tuple[EncryptedVector, Mask]":
        """Add a secret random number to each value: the result to send to the key holder, and the mask to keep.

        Privacy:
            The masked vector has fresh, uniform randomness, and the numbers in it are within 2^-mask_bits, in
            statistical distance over the whole vector, of numbers that do not depend on the values. It states the
            layout's summands and noise, not those of this vector: the mask keeps what is needed.
        """
        if not self.layout.mask_bits or self.masked:
            raise OutOfRange("this layout has no room for a mask, or holds one. Declare mask_bits; 40 is usual.")
        drawn = tuple(integer(self.layout.mask_size, source) for _ in range(self.layout.length))
        plain = self.layout.pack_masks(drawn, self.public.bits)
        # What is sent states the declared most, since the true weights may be a secret of who computed.
        stated = replace(self, summands=self.layout.summands, net=0, noise=self.layout.noise_bound)
        moved = replace(stated, ciphertexts=self._shifted(plain), masked=True)
        return moved.rerandomise(source=source), Mask(self.layout, self.net, drawn)

    def to_bytes(self) -> bytes:
        """Return the vector as bytes, with its layout and the key's fingerprint.

        The bytes state `summands`, `net` and `noise`, thus the sums of the weights of what was computed. Mask a vector
        whose weights are secret.
        """
        from cloister.vault.paillier.wire import write_vector

        return write_vector(self)

    @classmethod
    def from_bytes(cls, raw: bytes, public: PublicKey, layout: Layout, summands: int | None = 1) -> "EncryptedVector":
        """Return the vector written by `to_bytes`; refuse another key, another layout, or numbers outside the group.

        Args:
            raw: the bytes.
            public: the key that was agreed on.
            layout: the layout that was agreed on.
            summands: the weight that the sender must state: 1 for an owner's vector, since a sender who states less
                than it sends would make room for a sum that overflows. None believes a trusted sender.
        """
        from cloister.vault.paillier.wire import read_vector

        _check_agreed(public, layout)
        return read_vector(raw, public, layout, summands)

    def _holds(self, summands: int, net: int, noise: int) -> "EncryptedVector":
        """Return this vector with other totals, if its layout holds them."""
        if self.masked:
            raise OutOfRange("a masked vector has no room left. Compute first, then mask and decrypt.")
        if summands > self.layout.summands:
            raise OutOfRange(
                f"this result would weigh {summands} summands, and the layout was declared for {self.layout.summands}. "
                "Nothing was added. Declare more summands and encrypt again."
            )
        if noise > self.layout.noise_bound:
            raise OutOfRange(
                f"this result would hold noise up to {noise}, and the layout was declared for "
                f"{self.layout.noise_bound}. Nothing was added. Declare a wider noise_bound and encrypt again."
            )
        return replace(self, summands=summands, net=net, noise=noise)

    def _added(self, integers: list[int], result: "EncryptedVector") -> "EncryptedVector":
        if len(integers) != self.layout.length:
            raise BadNumber(f"the layout is for {self.layout.length} values, and {len(integers)} were given.")
        return replace(result, ciphertexts=self._shifted(self.layout.pack(integers, self.public.bits)))

    def _shifted(self, plain: list[int]) -> tuple[mpz, ...]:
        n, modulus = self.public.n, self.public.squared
        shifts = zip(self.ciphertexts, plain, strict=True)
        return tuple(number * (1 + n * (shift % n)) % modulus for number, shift in shifts)

    def _weights(self, weights: Sequence[int] | NDArray[Any]) -> list[int]:
        if self.layout.packed:
            raise BadInput(
                "values that share a ciphertext share their weight. Encrypt with packed=False, or use one weight."
            )
        exact = [_weight(weight) for weight in weights]
        if len(exact) != self.layout.length:
            raise BadNumber(f"the vector has {self.layout.length} values, and {len(exact)} weights were given.")
        return exact


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Mask(Secret):
    """The random numbers that hide a masked vector. Whoever holds it and the decrypted vector knows the values."""

    layout: Layout
    net: int
    numbers: tuple[int, ...]

    def remove(self, masked: Sequence[int] | NDArray[Any]) -> NDArray[Any]:
        """Return the values of a decrypted masked vector."""
        integers = _whole_numbers(masked)
        if len(integers) != len(self.numbers):
            raise BadNumber(f"the mask is for {len(self.numbers)} values, and {len(integers)} were given.")
        plain = [value - number for value, number in zip(integers, self.numbers, strict=True)]
        if any(abs(value) > self.layout.magnitude for value in plain):
            raise CiphertextRejected("these are not the numbers that this mask hides, so nothing is returned.")
        return self.layout.encoding.decode(plain, self.net)


def linear_combination(weights: Sequence[int], vectors: Sequence[EncryptedVector]) -> EncryptedVector:
    """Return the encrypted Σ weightᵢ·vectorᵢ. With packed rows it is a product of a plain row and an encrypted matrix.

    Args:
        weights: integers, one for each vector.
        vectors: vectors of one key and one layout.
    """
    exact = [_weight(weight) for weight in weights]
    if not vectors or len(exact) != len(vectors):
        raise BadNumber("vectors are added, at least one, each with one weight. Give as many weights as vectors.")
    first = vectors[0]
    for vector in vectors:
        if not isinstance(vector, EncryptedVector):
            raise BadInput(f"only encrypted vectors are added here, got {type(vector).__name__:.40}. Use add_plain.")
        if vector.public != first.public:
            raise CiphertextRejected("these vectors are encrypted under different keys. Encrypt all under one key.")
        if vector.layout != first.layout or vector.masked:
            raise BadInput(
                "only unmasked vectors of one layout are added. Declare one layout for all, before encrypting."
            )
    pairs = list(zip(exact, vectors, strict=True))
    result = first._holds(
        sum(abs(weight) * vector.summands for weight, vector in pairs),
        sum(weight * vector.net for weight, vector in pairs),
        sum(abs(weight) * vector.noise for weight, vector in pairs),
    )
    columns = zip(*(vector.ciphertexts for vector in vectors), strict=True)
    return replace(result, ciphertexts=tuple(_product(column, exact, first.public) for column in columns))


def decrypt(key: PrivateKey, vector: EncryptedVector) -> NDArray[Any]:
    """Decrypt a vector to numbers; a masked one to integers, for `Mask.remove`."""
    if check_vector(vector).public != key.public:
        raise CiphertextRejected("this vector is encrypted under another key. Ask the holder of that key.")
    return decode(vector, [key.decrypt_number(number) for number in vector.ciphertexts])


def check_vector(vector: object) -> EncryptedVector:
    """Return an encrypted vector; refuse bytes and other objects."""
    if not isinstance(vector, EncryptedVector):
        raise BadInput(
            f"vector is an EncryptedVector, got {type(vector).__name__:.40}. Read bytes with "
            "EncryptedVector.from_bytes(raw, public, layout, summands=...)."
        )
    return vector


def _check_agreed(public: object, layout: object) -> None:
    if not isinstance(public, PublicKey):
        raise BadInput(
            f"public is a PublicKey, got {type(public).__name__:.40} of {type(public).__module__:.60}. "
            "It is PrivateKey.public, or PublicKey.from_bytes(raw)."
        )
    if not isinstance(layout, Layout):
        raise BadInput(f"layout is a Layout, got {type(layout).__name__:.40}. All parties agree on one.")


def decode(vector: EncryptedVector, plaintexts: Sequence[int]) -> NDArray[Any]:
    """Return the numbers in decrypted plaintexts of a vector."""
    integers = vector.layout.unpack(plaintexts, vector.public.n, vector.masked)
    if vector.masked:
        return np.array(integers, dtype=object)
    return vector.layout.encoding.decode(integers, vector.net)


def _whole_numbers(values: object, remedy: str = "Give the numbers that were decrypted.") -> list[int]:
    """Return integers as Python's; refuse what would be rounded or read as one."""
    listed: list[Any] = list(values) if isinstance(values, Sequence | np.ndarray) else [None]
    if any(isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) for value in listed):
        raise BadNumber(f"here one list of whole numbers is needed, in encoded units. {remedy}")
    return [int(value) for value in listed]


def _weight(weight: object) -> int:
    if isinstance(weight, bool) or not isinstance(weight, int | np.integer):
        raise BadNumber("a weight is a whole number. Scale real weights by a power of two and divide the result.")
    return int(weight)


def _power(number: mpz, weight: int, public: PublicKey) -> mpz:
    """Return number^weight. Weights are known to who computes and are not secret from its own processor."""
    return gmpy2.powmod(number, weight, public.squared)


def _product(numbers: Sequence[mpz], weights: Sequence[int], public: PublicKey) -> mpz:
    """Return Π numberᵢ^weightᵢ; the encryption of zero with randomness 1 if all weights are zero."""
    modulus = public.squared
    powers = (
        number if weight == 1 else _power(number, weight, public)
        for number, weight in zip(numbers, weights, strict=True)
        if weight
    )
    return cast(mpz, reduce(lambda left, right: left * right % modulus, powers, mpz(1)))
