"""Correlated randomness: what parties prepare before they see data, and the dealer who hands it out.

**Statement.** *Parties:* a dealer and two or three parties. *What each learns:* the dealer sees the kinds and shapes
of what is asked for, which follow from the public program, and no message of the computation. A party learns its own
shares of what is dealt. *Who must not collude:* the dealer with any party; together they read all secrets. *An active
dealer* can make results wrong, and with what it later hears open them; the parties trust it to be honest. Without a
dealer use `transfer.TransferSupply`, for two parties. *An active last party*, which alone speaks to the dealer, may
order something else than the program says. What it is dealt is then unrelated to the words of the others, so it opens
no mask of theirs. *Test:* tests/unit/vault/sharing/test_transcripts.py, tests/unit/vault/sharing/test_dealer.py.

All but the last party expand their shares from a seed that they agree on with the dealer, and only the last is sent
a correction. The words follow from the seed and the whole order, its number, kind and facts: each order has a stream of
its own. The dealer is asked by the last party, and forgets what it dealt.
"""

import hmac
import json
import math
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from cloister.privacy.errors import BadNumber, ChannelBroken, CloisterError, OutOfRange
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.privacy.signing import canonical
from cloister.vault.secret import Secret
from cloister.vault.sharing import field, ring
from cloister.vault.sharing.link import Link
from cloister.vault.sharing.ring import Bits, Words

__all__ = ["MOST_WORDS", "DealtSupply", "Supply", "product_shape", "serve_dealer"]

_SEED_BYTES = 32
_MOST_ASK = 1 << 12
_MOST_CUT = 61
_MOST_PARTIES = 3
MOST_WORDS = 1 << 23  # 64 MiB, the longest message of a channel

Parts = tuple[Words, ...]


class Supply(Protocol):
    """Where a party gets its shares of correlated randomness. All parties ask for the same in the same order."""

    def triple(self, left: tuple[int, ...], right: tuple[int, ...], matrix: bool) -> Parts:
        """Return shares of uniform a and b, and of a·b or a @ b (Beaver 1991)."""

    def bit_triple(self, size: int) -> tuple[Bits, Bits, Bits]:
        """Return XOR shares of uniform bytes a and b, and of a & b."""

    def masked_bits(self, count: int) -> tuple[Words, Words]:
        """Return additive shares of uniform words, and XOR shares of the same words."""

    def truncation(self, count: int, cut: int) -> Parts:
        """Return shares of a uniform word r, of (r mod 2^63) >> cut, and of its highest bit."""

    def coins(self, count: int) -> tuple[Bits, Words]:
        """Return XOR shares of uniform bits, packed eight to a byte, and additive shares of the same bits."""


class _Expanded(Secret):
    """Uniform words from a seed and an order, as both the dealer and one party compute them."""

    __slots__ = ("_seed",)

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def words(self, order: bytes, place: int, count: int) -> Words:
        # A key for each order: whoever orders another kind, cut or owner learns nothing about the words of this one.
        key = hmac.digest(self._seed, order, "sha256")
        stream = Cipher(algorithms.ChaCha20(key, bytes(12) + place.to_bytes(4, "little")), mode=None).encryptor()
        return np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8").astype(np.uint64)


class DealtSupply(Secret):
    """A party's end of a dealer.

    Attributes:
        keys: how many keys of authenticated shares were dealt; the last one is in use.
    """

    __slots__ = ("_expanded", "_last", "_link", "_lock", "_number", "keys")

    def __init__(self, link: Link, last: bool) -> None:
        self._link, self._last, self._number, self._lock = link, last, 0, threading.Lock()
        self.keys = 0
        self._expanded = None if last else _Expanded(link.receive("seed", size=_SEED_BYTES))

    def triple(self, left: tuple[int, ...], right: tuple[int, ...], matrix: bool) -> Parts:
        """Return shares of uniform a and b, and of a·b or a @ b."""
        return self._ask("triple", list(left), list(right), matrix)

    def bit_triple(self, size: int) -> tuple[Bits, Bits, Bits]:
        """Return XOR shares of uniform bytes a and b, and of a & b."""
        first, second, both = (part.view(np.uint8)[:size] for part in self._ask("bit triple", (size + 7) // 8))
        return first, second, both

    def masked_bits(self, count: int) -> tuple[Words, Words]:
        """Return additive shares of uniform words, and XOR shares of the same words."""
        added, xored = self._ask("masked bits", count)
        return added, xored

    def truncation(self, count: int, cut: int) -> Parts:
        """Return shares of a uniform word r, of (r mod 2^63) >> cut, and of its highest bit."""
        return self._ask("truncation", count, cut)

    def coins(self, count: int) -> tuple[Bits, Words]:
        """Return XOR shares of uniform bits and additive shares of the same bits."""
        xored, added = self._ask("coins", count)
        return xored.view(np.uint8)[: (count + 7) // 8], added

    def mac_key(self) -> Words:
        """Return a share of a new key of authenticated shares, for all that is dealt from now on."""
        self.keys += 1
        return self._ask("mac key")[0]

    def field_triple(self, count: int) -> Parts:
        """Return shares of a, b and a·b in the field, then of their products with the key."""
        return self._ask("field triple", count)

    def field_input(self, count: int, owner: int) -> Parts:
        """Return uniform r, shares of r, and shares of its product with the key. Only the owner's first part is r."""
        unknown, share, mac = self._ask("field input", count, owner)
        return unknown, share, mac

    def end(self) -> None:
        """Tell the dealer that nothing more will be asked for."""
        if self._last:
            self._link.send("ask", b"")

    def _ask(self, kind: str, *facts: object) -> Parts:
        recipe = _RECIPES[kind](*facts)
        sizes = [math.prod(shape) for shape in recipe.shapes]
        if sum(sizes) > MOST_WORDS:
            raise OutOfRange(
                f"this step needs {sum(sizes)} words of randomness, and {MOST_WORDS} are dealt at once. Compute the "
                "arrays in parts."
            )
        if not any(sizes):  # arrays without numbers
            parts = [np.zeros(0, dtype=np.uint64) for _ in sizes]
        else:
            with self._lock:  # no number is used for two orders: both would be masked alike
                self._number += 1
                parts = self._words(canonical([self._number, kind, list(facts)]), recipe, sizes)
        return tuple(part.reshape(shape) for part, shape in zip(parts, recipe.shapes, strict=True))

    def _words(self, order: bytes, recipe: "_Recipe", sizes: list[int]) -> list[Words]:
        if self._expanded is None:
            self._link.send("ask", order)
            whole = np.frombuffer(self._link.receive("dealt", size=8 * sum(sizes)), dtype="<u8").astype(np.uint64)
            return list(np.split(whole, np.cumsum(sizes)[:-1]))
        drawn = (self._expanded.words(order, place, size) for place, size in enumerate(sizes))
        return [
            words if join in ("add", "xor") else field.from_words(words)
            for words, join in zip(drawn, recipe.joins, strict=True)
        ]


def serve_dealer(links: dict[int, Link], source: Source = SYSTEM) -> None:
    """Deal until the last party ends.

    Args:
        links: a link to each party, by its number.
        source: source of seeds and of what is dealt. Whoever knows it reads all secrets.
    """
    try:
        _serve(links, source)
    except BaseException:
        for link in links.values():
            link.abort()  # so that no party waits for what is not dealt
        raise


def _serve(links: dict[int, Link], source: Source) -> None:
    *others, last = sorted(links)
    seeds = []
    for number in others:
        seed = source.bytes(_SEED_BYTES)
        links[number].send("seed", seed)
        seeds.append(_Expanded(seed))
    dealing, number = _Dealing(source, seeds, field.uniform((1,), source), b""), 0
    while ask := links[last].receive("ask"):
        number += 1
        links[last].send("dealt", _dealt(number, replace(dealing, order=ask)))


@dataclass(frozen=True, slots=True, repr=False)
class _Dealing(Secret):
    """Secrets of the dealer while it answers one order: all seeds, the present key of MACs, the order's bytes."""

    source: Source
    seeds: list[_Expanded]
    key: Words
    order: bytes


@dataclass(frozen=True, slots=True)
class _Recipe:
    """A kind of correlated randomness: the shapes of its parts, how shares of each are joined, and how it is made."""

    shapes: list[tuple[int, ...]]
    joins: list[str]
    make: Callable[[_Dealing], list[Words]]


def _dealt(number: int, dealing: _Dealing) -> bytes:
    """Return the last party's shares of what it ordered."""
    recipe, sizes = _ordered(number, dealing)
    parts = []
    for place, (size, value, join) in enumerate(zip(sizes, recipe.make(dealing), recipe.joins, strict=True)):
        known = [seed.words(dealing.order, place, size) for seed in dealing.seeds]
        flat = value.reshape(-1)
        if join == "xor":
            flat = flat ^ reduce(operator.xor, known)
        elif join == "add":
            flat = flat - reduce(operator.add, known)
        elif join == "field":
            flat = field.add(flat, field.negative(field.reconstruct([field.from_words(part) for part in known])))
        parts.append(flat)  # "alone": for the last party as it is
    return b"".join(part.astype("<u8").tobytes() for part in parts)


def _ordered(number: int, dealing: _Dealing) -> tuple[_Recipe, list[int]]:
    """Return what an order asks for, and the sizes of its parts. It is checked before anything is made of its size."""
    ask, recipe = dealing.order, None
    try:
        stated, kind, facts = json.loads(ask[:_MOST_ASK])
        recipe = _RECIPES[kind](*facts)
        # One spelling for each order, since its bytes choose the stream.
        sound = ask == canonical([number, kind, facts]) and not isinstance(stated, bool)
        sound = sound and (kind != "field input" or facts[1] <= len(dealing.seeds))
    except (ValueError, TypeError, KeyError, RecursionError, CloisterError):
        sound = False
    if recipe is None or not sound:
        raise ChannelBroken(
            "the dealer was asked out of turn or for something unknown. It dealt nothing; run it again."
        )
    sizes = [math.prod(shape) for shape in recipe.shapes]
    if not 0 < sum(sizes) <= MOST_WORDS:
        raise ChannelBroken("the dealer was asked for too much or for nothing. It dealt nothing; run it again.")
    return recipe, sizes


def _whole(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadNumber(f"an order of correlated randomness needs a whole number from {least} to {most} here.")
    return value


def _shape(sides: list[int]) -> tuple[int, ...]:
    if not isinstance(sides, list):
        raise BadNumber("the shape of an operand is a list of whole numbers.")
    return tuple(_whole(side, 0, MOST_WORDS) for side in sides)


def product_shape(left: tuple[int, ...], right: tuple[int, ...], matrix: bool) -> tuple[int, ...]:
    """Return the shape of a product, without making one."""
    try:
        if not matrix:
            return np.broadcast_shapes(left, right)
        if left and right and left[-1] == right[-2:][0]:
            joined = np.broadcast_shapes(left[:-2], right[:-2])
            return (*joined, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))
    except ValueError:
        pass
    raise BadNumber(f"arrays of the shapes {left} and {right} have no product of this kind. Reshape one of them.")


def _triple(left: list[int], right: list[int], matrix: bool) -> _Recipe:
    if not isinstance(matrix, bool):
        raise BadNumber("a product of matrices is asked for by True or False.")
    shapes = [_shape(left), _shape(right)]
    product = np.matmul if matrix else np.multiply
    shapes.append(product_shape(shapes[0], shapes[1], matrix))

    def make(dealing: _Dealing) -> list[Words]:
        first, second = (ring.uniform(shape, dealing.source) for shape in shapes[:2])
        return [first, second, np.asarray(product(first, second), dtype=np.uint64)]

    return _Recipe(shapes, ["add"] * 3, ring.wrapping(make))


def _bit_triple(size: int) -> _Recipe:
    _whole(size, 0, MOST_WORDS)

    def make(dealing: _Dealing) -> list[Words]:
        first, second = (ring.uniform((size,), dealing.source) for _ in range(2))
        return [first, second, first & second]

    return _Recipe([(size,)] * 3, ["xor"] * 3, make)


def _masked_bits(count: int) -> _Recipe:
    _whole(count, 0, MOST_WORDS)

    def make(dealing: _Dealing) -> list[Words]:
        word = ring.uniform((count,), dealing.source)
        return [word, word]

    return _Recipe([(count,)] * 2, ["add", "xor"], make)


def _truncation(count: int, cut: int) -> _Recipe:
    _whole(count, 0, MOST_WORDS)
    _whole(cut, 1, _MOST_CUT)

    def make(dealing: _Dealing) -> list[Words]:
        word = ring.uniform((count,), dealing.source)
        return [word, (word & LOW) >> np.uint64(cut), word >> np.uint64(63)]

    return _Recipe([(count,)] * 3, ["add"] * 3, make)


def _coins(count: int) -> _Recipe:
    size = (_whole(count, 0, MOST_WORDS) + 63) // 64

    def make(dealing: _Dealing) -> list[Words]:
        packed = ring.uniform((size,), dealing.source)
        return [packed, ring.unpack_bits(packed.view(np.uint8), count)]

    return _Recipe([(size,), (count,)], ["xor", "add"], make)


def _mac_key() -> _Recipe:
    def make(dealing: _Dealing) -> list[Words]:
        # A new one for each order: whoever was caught with a wrong share has learned the key by it.
        dealing.key[:] = field.uniform((1,), dealing.source)
        return [dealing.key.copy()]

    return _Recipe([(1,)], ["field"], make)


def _field_triple(count: int) -> _Recipe:
    _whole(count, 0, MOST_WORDS)

    def make(dealing: _Dealing) -> list[Words]:
        first, second = (field.uniform((count,), dealing.source) for _ in range(2))
        parts = [first, second, field.multiply(first, second)]
        return [*parts, *(field.multiply(part, np.broadcast_to(dealing.key, part.shape)) for part in parts)]

    return _Recipe([(count,)] * 6, ["field"] * 6, make)


def _field_input(count: int, owner: int) -> _Recipe:
    _whole(count, 0, MOST_WORDS)
    _whole(owner, 0, _MOST_PARTIES - 1)

    def make(dealing: _Dealing) -> list[Words]:
        # An owner with a seed expands r itself, from the part that is nobody else's.
        last = len(dealing.seeds)
        drawn = (
            field.from_words(dealing.seeds[owner].words(dealing.order, 0, count))
            if owner < last
            else field.uniform((count,), dealing.source)
        )
        alone = drawn if owner == last else np.zeros_like(drawn)
        return [alone, drawn, field.multiply(drawn, np.broadcast_to(dealing.key, drawn.shape))]

    return _Recipe([(count,)] * 3, ["alone", "field", "field"], make)


LOW = np.uint64((1 << 63) - 1)
_RECIPES: dict[str, Callable[..., _Recipe]] = {
    "triple": _triple,
    "bit triple": _bit_triple,
    "masked bits": _masked_bits,
    "truncation": _truncation,
    "coins": _coins,
    "mac key": _mac_key,
    "field triple": _field_triple,
    "field input": _field_input,
}
