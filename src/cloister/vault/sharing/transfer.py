"""Correlated randomness for two parties without a dealer, from oblivious transfer.

**Statement.** *Parties:* two; party 0 is the sender of all transfers. *What each learns:* its own shares. *Who must not
collude:* there are only the two. *An active attacker* can make the material wrong, and so results, and may choose its
own random values; the transfers themselves hold (`vault.circuits.transfer`). So this supply is for parties who follow
the protocol. *Test:* tests/unit/vault/sharing/test_transfer.py.

A bit s of the receiver and a word t of the sender give additive shares of s·t by one correlated transfer: the sender
keeps -r, the receiver gets r + s·t. Products of words are sums of 64 of these, one for each bit (Gilboa 1999). A bit
that is the XOR of two is b₀ + b₁ - 2·b₀·b₁ as a number.
"""

from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.vault.secret import Secret
from cloister.vault.sharing import ring
from cloister.vault.sharing.ring import BITS, Bits, Words
from cloister.vault.sharing.supply import LOW, Parts, product_shape

if TYPE_CHECKING:
    from cloister.vault.circuits.channel import Channel

__all__ = ["TransferSupply"]

_PLACES = np.arange(BITS, dtype=np.uint64)
_TOP = np.uint64(BITS - 1)


class TransferSupply(Secret):
    """A party's end of the preparation. Both make the same calls in the same order."""

    __slots__ = ("_receiver", "_sender", "_source")

    def __init__(self, channel: "Channel", index: int, source: Source = SYSTEM) -> None:
        # Imported here: the transfers need PyNaCl, and dealt shares do not.
        from cloister.vault.circuits.transfer import TransferReceiver, TransferSender

        if index not in (0, 1):
            raise BadInput("oblivious transfer is between two parties, numbered 0 and 1. Three use a dealer.")
        self._source = source
        self._sender = TransferSender.open(channel, source=source) if index == 0 else None
        self._receiver = TransferReceiver.open(channel, source=source) if index == 1 else None

    def triple(self, left: tuple[int, ...], right: tuple[int, ...], matrix: bool) -> Parts:
        """Return shares of uniform a and b, and of a·b or a @ b."""
        first, second = ring.uniform(left, self._source), ring.uniform(right, self._source)
        if not (first.size and second.size):
            return first, second, np.zeros(product_shape(left, right, matrix), dtype=np.uint64)
        if matrix:
            return first, second, self._matrix_product(first, second)
        own = np.asarray(np.multiply(first, second))
        wide = [np.broadcast_to(part, own.shape).reshape(-1) for part in (first, second)]
        # a₀·b₁ and b₀·a₁: the sender's operands in one order, the receiver's in the other.
        offsets = np.concatenate(wide)[:, None] << _PLACES
        choices = _bits(np.concatenate(wide[::-1]))
        crossed = self._products(offsets.reshape(-1, 1), choices.reshape(-1))
        summed = crossed.reshape(2, own.size, BITS).sum(axis=(0, 2), dtype=np.uint64)
        return first, second, own + summed.reshape(own.shape)

    def bit_triple(self, size: int) -> tuple[Bits, Bits, Bits]:
        """Return XOR shares of uniform bytes a and b, and of a & b."""
        first, second = (np.frombuffer(self._source.bytes(size), dtype=np.uint8) for _ in range(2))
        pair = [np.unpackbits(part, bitorder="little") for part in (first, second)]
        # Sums of top bits have no carry, so additive shares of them are XOR shares.
        offsets = np.concatenate(pair).astype(np.uint64)[:, None] << _TOP
        crossed = self._products(offsets, np.concatenate(pair[::-1]).astype(bool)) >> _TOP
        halves = crossed.reshape(2, -1).astype(np.uint8)
        return first, second, (first & second) ^ np.packbits(halves[0] ^ halves[1], bitorder="little")

    def masked_bits(self, count: int) -> tuple[Words, Words]:
        """Return additive shares of uniform words, and XOR shares of the same words."""
        word = ring.uniform((count,), self._source)
        offsets = word[:, None] & (np.uint64(1) << _PLACES)
        crossed = self._products(offsets.reshape(-1, 1), _bits(word).reshape(-1))
        return word - 2 * crossed.reshape(count, BITS).sum(axis=1, dtype=np.uint64), word

    def truncation(self, count: int, cut: int) -> Parts:
        """Return shares of a uniform word r, of (r mod 2^63) >> cut, and of its highest bit."""
        word = ring.uniform((count,), self._source)
        alone = word[:, None] & (np.uint64(1) << _PLACES)
        forms = [alone, (alone & LOW) >> np.uint64(cut), alone >> _TOP]
        offsets = np.stack(forms, axis=2).reshape(-1, 3)
        crossed = self._products(offsets, _bits(word).reshape(-1)).reshape(count, BITS, 3).sum(axis=1, dtype=np.uint64)
        own = np.stack([word, (word & LOW) >> np.uint64(cut), word >> _TOP], axis=1)
        joined = own - 2 * crossed
        return joined[:, 0], joined[:, 1], joined[:, 2]

    def coins(self, count: int) -> tuple[Bits, Words]:
        """Return XOR shares of uniform bits, packed eight to a byte, and additive shares of the same bits."""
        packed = np.frombuffer(self._source.bytes((count + 7) // 8), dtype=np.uint8)
        bits = ring.unpack_bits(packed, count)
        return packed, bits - 2 * self._products(bits[:, None], bits.astype(bool))[:, 0]

    def _matrix_product(self, first: Words, second: Words) -> Words:
        if max(first.ndim, second.ndim) > 2:
            shape = product_shape(first.shape, second.shape, matrix=True)
            stacked = np.broadcast_shapes(first.shape[:-2], second.shape[:-2])
            pair = [np.broadcast_to(part, (*stacked, *part.shape[-2:])) for part in (first, second)]
            flat = (part.reshape(-1, *part.shape[len(stacked) :]) for part in pair)
            return np.stack([self._matrix_product(*matrices) for matrices in zip(*flat, strict=True)]).reshape(shape)
        left = first.reshape(1, -1) if first.ndim == 1 else first
        right = second.reshape(-1, 1) if second.ndim == 1 else second
        (rows, inner), columns = left.shape, right.shape[1]
        # A₀ @ B₁: for each bit of an entry of B₁, a column of A₀. A₁ @ B₀: for each bit of A₁, a row of B₀.
        by_columns = self._scaled(np.repeat(left.T, columns, axis=0), right.reshape(-1))
        by_rows = self._scaled(np.tile(right, (rows, 1)), left.reshape(-1))
        crossed = by_columns.reshape(inner, columns, rows).sum(axis=0, dtype=np.uint64).T
        crossed = crossed + by_rows.reshape(rows, inner, columns).sum(axis=1, dtype=np.uint64)
        own = np.matmul(first, second)
        return np.asarray(own + crossed.reshape(np.shape(own)), dtype=np.uint64)

    def _scaled(self, vectors: Words, factors: Words) -> Words:
        """Return shares of factorᵢ·vectorᵢ: factors of the receiver, vectors of the sender."""
        offsets = (vectors[:, None, :] << _PLACES[:, None]).reshape(-1, vectors.shape[1])
        crossed = self._products(offsets, _bits(factors).reshape(-1))
        return np.asarray(crossed.reshape(len(factors), BITS, -1).sum(axis=1, dtype=np.uint64))

    def _products(self, offsets: Words, choices: NDArray[np.bool_]) -> Words:
        """Return shares of choice·offset: the sender's offsets, the receiver's choices; the other's are ignored."""
        if self._sender is not None:
            return np.zeros_like(offsets) - self._sender.correlated(np.ascontiguousarray(offsets))
        assert self._receiver is not None
        return self._receiver.correlated(np.ascontiguousarray(choices), words=offsets.shape[1])


def _bits(words: Words) -> NDArray[np.bool_]:
    """Return the bits of words, lowest first, along a new last axis."""
    return cast("NDArray[np.bool_]", (words[..., None] >> _PLACES & np.uint64(1)).astype(bool))
