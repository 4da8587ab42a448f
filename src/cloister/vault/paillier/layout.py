"""The layout of a sum: how many values share one ciphertext, so that no slot can overflow.

A plaintext is a number modulo n. A layout cuts it into slots of `width` bits and places one value in each. The width
covers everything that was declared: the largest absolute sum of the summands, the noise, and a mask. The integers of
k slots stay below 2^(k·width) < n, so neither a slot nor the plaintext wraps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

import gmpy2

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected, OutOfRange
from cloister.vault.paillier.encoding import Encoding, FixedPoint, Levels, from_description

__all__ = ["Layout"]

_MOST_LENGTH = 1 << 32
_MOST_MASK_BITS = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """The declared shape of an encrypted sum. It is public, and every ciphertext carries it.

    Attributes:
        encoding: numbers to integers, with the bounds of one value.
        length: values in the vector.
        summands: how many vectors may be added. A vector with an integer weight w counts as |w| vectors.
        noise_bound: largest absolute total of the noise that may be added, in encoded integers.
        mask_bits: a mask hides the vector up to a statistical distance of 2^-mask_bits; 0 if none will be added.
        packed: several values in one ciphertext. False allows products with a different weight for each value.

    >>> from cloister.vault.paillier.encoding import FixedPoint
    >>> counts = Layout(FixedPoint(0, 2**32 - 1), length=10_000, summands=1_000)
    >>> counts.width, counts.slots(3072), counts.ciphertexts(3072)
    (43, 71, 141)
    """

    encoding: Encoding
    length: int
    summands: int = 1
    noise_bound: int = 0
    mask_bits: int = 0
    packed: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.encoding, FixedPoint | Levels):
            kind = type(self.encoding).__name__
            raise BadInput(f"encoding is a FixedPoint or Levels, got {kind:.40}. Write FixedPoint(0, 100).")
        _whole("length", self.length, 1, _MOST_LENGTH)
        _whole("summands", self.summands, 1, 1 << 512)
        _whole("noise_bound", self.noise_bound, 0, 1 << 512)
        _whole("mask_bits", self.mask_bits, 0, _MOST_MASK_BITS)
        if not isinstance(self.packed, bool):
            raise BadNumber(f"packed is True or False, got a {type(self.packed).__name__}.")

    @property
    def magnitude(self) -> int:
        """The largest absolute integer that a slot may hold before a mask is added."""
        return self.summands * max(abs(self.encoding.low), abs(self.encoding.high)) + self.noise_bound

    @property
    def mask_size(self) -> int:
        """The number of random bits added to a slot by a mask.

        A slot holds one of 2·magnitude + 1 integers. A uniform number of s more bits than that hides it up to a
        statistical distance of 2^-s; the distances of all slots add.
        """
        return (2 * self.magnitude).bit_length() + self.mask_bits + (self.length - 1).bit_length()

    @property
    def width(self) -> int:
        """The bits of a slot, which holds a value between 0 and 2·magnitude; a mask may carry once."""
        return self.mask_size + 1 if self.mask_bits else (2 * self.magnitude).bit_length()

    def slots(self, key_bits: int) -> int:
        """Return the number of values in one ciphertext; refuse a layout of which not even one fits."""
        fitting = (key_bits - 1) // self.width
        if not fitting:
            raise OutOfRange(
                f"one value of this layout needs {self.width} bits, and a key of {key_bits} bits holds {key_bits - 1}. "
                "Declare fewer summands, narrower bounds or less noise, or use a longer key."
            )
        return fitting if self.packed else 1

    def ciphertexts(self, key_bits: int) -> int:
        """Return the number of ciphertexts of a vector."""
        return ceil(self.length / self.slots(key_bits))

    def pack(self, integers: Sequence[int], key_bits: int) -> list[int]:
        """Return the plaintexts of integers, which may be negative; a plaintext may be negative too."""
        slots, magnitude = self.slots(key_bits), self.magnitude
        parts = [integers[start : start + slots] for start in range(0, len(integers), slots)]
        return [
            int(gmpy2.pack([value + magnitude for value in part], self.width)) - self._offset(len(part))
            for part in parts
        ]

    def pack_masks(self, masks: Sequence[int], key_bits: int) -> list[int]:
        """Return the plaintexts of masks, which are not negative and fill a slot."""
        slots = self.slots(key_bits)
        return [int(gmpy2.pack(list(masks[at : at + slots]), self.width)) for at in range(0, len(masks), slots)]

    def unpack(self, plaintexts: Sequence[int], n: int, masked: bool) -> list[int]:
        """Return the integers in decrypted plaintexts.

        Raises:
            CiphertextRejected: a slot is outside the declared range: somebody encrypted what was not declared.
        """
        slots, largest = self.slots(int(n).bit_length()), (1 << self.width) - 1 if masked else 2 * self.magnitude
        if len(plaintexts) != ceil(self.length / slots):
            raise CiphertextRejected("this vector has more or fewer ciphertexts than its layout. Ask for it again.")
        found: list[int] = []
        for plaintext in plaintexts:
            count = min(slots, self.length - len(found))
            shifted = (plaintext + self._offset(count)) % n
            parts = [int(part) for part in gmpy2.unpack(gmpy2.mpz(shifted), self.width)]
            parts += [0] * (count - len(parts))
            if len(parts) > count or max(parts) > largest:
                raise CiphertextRejected(
                    "what was decrypted is not within the declared layout, so nothing is returned. Ask the owners "
                    "whether all encrypted with this layout and key."
                )
            found += [part - self.magnitude for part in parts]
        return found

    def _offset(self, count: int) -> int:
        """Return the plaintext with `magnitude` in each of the first slots."""
        return self.magnitude * (((1 << self.width * count) - 1) // ((1 << self.width) - 1))

    def describe(self) -> dict[str, object]:
        """Return the layout for JSON. Numbers that may be long are written as text."""
        return {
            **self.encoding.describe(),
            "length": self.length,
            "summands": str(self.summands),
            "noise_bound": str(self.noise_bound),
            "mask_bits": self.mask_bits,
            "packed": self.packed,
        }

    @classmethod
    def from_description(cls, text: object) -> "Layout":
        """Return the layout of a description, as written by `describe`."""
        names = ("length", "summands", "noise_bound", "mask_bits", "packed")
        if not isinstance(text, dict) or not set(names) < set(text):
            raise BadNumber("this is no layout that this version knows. Ask for the sender's version.")
        encoding = from_description({name: value for name, value in text.items() if name not in names})
        summands, noise_bound = (_number(text[name]) for name in ("summands", "noise_bound"))
        return cls(encoding, cast(int, text["length"]), summands, noise_bound, text["mask_bits"], text["packed"])


def _whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadNumber(f"{name} of a layout is a whole number from {least} to 2^{most.bit_length() - 1}.")


def _number(text: object) -> int:
    if not isinstance(text, str) or len(text) > 200 or not (text.isascii() and text.isdigit()):
        raise BadNumber("this is no layout that this version knows. Ask for the sender's version.")
    return int(text)
