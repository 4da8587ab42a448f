"""Shares with a MAC modulo 2^61 - 1: whoever sends a wrong share is noticed, and then nothing is opened.

**Statement.** *Parties:* two or three, and the dealer of `supply`, who is honest. *What each learns:* shapes, bounds
and what is opened by `reveal`; every other message is uniform. *Who must not collude:* all parties together, or the
dealer with any. *An active attacker* controls all parties but one. What it can do: end the run, for all or for some,
also after it has seen an output that others have not (no fairness). What it cannot do, except with probability 2^-60:
make an honest party return a wrong result. It chooses its own inputs freely, within the field rather than the declared
bounds. *Test:* tests/unit/vault/sharing/test_authenticated.py changes every single message.

Each value x is shared with α·x, where the key α is shared too and never opened (SPDZ: Damgård, Pastro, Smart, Zakarias
2012; Damgård, Keller, Larraia, Pastro, Scholl, Smart 2013). Opened values v are checked in one batch: with random
coefficients that all parties commit to and then open, Σ ρ(m - α·v) must be zero. Each party commits to its share of
this sum before it sees the others'. All parties compare what they saw opened, so that all saw the same.
"""

import hashlib
import math
from collections.abc import Sequence
from hmac import compare_digest

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import ArrayLike, NDArray

from cloister.privacy.errors import BadInput, BadNumber, ChannelBroken, OutOfRange
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.privacy.signing import canonical
from cloister.vault.paillier.encoding import refuse_masked
from cloister.vault.secret import Hidden, Secret
from cloister.vault.sharing import field
from cloister.vault.sharing.party import Party
from cloister.vault.sharing.ring import Words
from cloister.vault.sharing.supply import DealtSupply

__all__ = ["Authenticated", "AuthenticatedParty"]

_LIMIT = 1 << 60
_NONCE = 32


class AuthenticatedParty(Secret):
    """A party whose openings are checked. It stands on a `Party` with a dealer.

    Each has a key of its own, from when it is made until another is made on the same supply.
    """

    __slots__ = ("_key", "_key_number", "_party", "_pending", "_seen", "_source")

    def __init__(self, party: Party, source: Source = SYSTEM) -> None:
        if not isinstance(party.supply, DealtSupply):
            raise BadInput("authenticated shares need a dealer. Use DealtSupply.")
        self._party, self._source = party, source
        self._key, self._key_number = party.supply.mac_key(), party.supply.keys
        self._pending: list[tuple[Words, Words]] = []
        self._seen = hashlib.sha256(b"cloister authenticated shares v1")

    @property
    def index(self) -> int:
        """This party's number."""
        return self._party.index

    @property
    def _supply(self) -> DealtSupply:
        supply = self._party.supply
        if not isinstance(supply, DealtSupply) or supply.keys != self._key_number:
            raise BadInput("another AuthenticatedParty was made on this supply since, with a new key. Use that one.")
        return supply

    def share(self, owner: int, shape: tuple[int, ...], most: int, values: ArrayLike | None = None) -> "Authenticated":
        """Share whole numbers that one party owns. Every party calls this; only the owner gives values.

        Args:
            owner: the number of the party whose values these are.
            shape: the public shape.
            most: public bound of the absolute values.
            values: the owner's integers; None for the other parties.
        """
        shape = self._party.checked_input(owner, shape, values)
        mine = owner == self.index
        _checked_bound(most)
        # The name says what was declared, so that parties who declared something else stop here.
        declared = hashlib.sha256(canonical([str(most), list(shape)])).hexdigest()
        count, step = math.prod(shape), f"checked input {declared[:16]}"
        mask, share, mac = self._supply.field_input(count, owner)
        offset = field.add(_encoded(values, shape, most), field.negative(mask)) if mine else np.zeros(count, np.uint64)
        if mine:
            for peer in self._party.peers():
                self._party.link(peer).send(step, offset.astype("<u8").tobytes())
        else:
            offset = _elements(self._party.link(owner).receive(step, size=8 * count), self._party)
        self._seen.update(offset.astype("<u8").tobytes())
        return self._moved(Authenticated(self, share, mac, most), offset, most).reshape(*shape)

    def reveal(self, numbers: "Authenticated") -> NDArray[np.int64]:
        """Open numbers to all parties, after everything that led to them was checked.

        Raises:
            ChannelBroken: a share was wrong. Nothing is returned, and the run is over.
        """
        if not isinstance(numbers, Authenticated) or numbers.owner is not self:
            raise BadInput("a party opens its own authenticated shares. Give numbers that this party computed.")
        self._check()
        opened = self._opened(numbers)
        self._check()
        found = field.signed(opened)
        if found.size and int(np.abs(found).max()) > numbers.bound:
            self._fail("an opened number is outside its range, so an input was wider than declared")
        return found

    def _moved(self, numbers: "Authenticated", offset: Words, bound: int) -> "Authenticated":
        """Add public elements: to the share of party 0, and to everybody's MAC."""
        value = field.add(numbers.value, offset) if self.index == 0 else numbers.value
        mac = field.add(numbers.mac, field.multiply(offset, self._key + np.zeros_like(offset)))
        return Authenticated(self, value, mac, bound)

    def _product(self, left: "Authenticated", right: "Authenticated") -> "Authenticated":
        shape = np.broadcast_shapes(left.value.shape, right.value.shape)
        flat = [np.broadcast_to(part, shape).reshape(-1) for part in (left.value, left.mac, right.value, right.mac)]
        count = flat[0].size
        first, second, product, *macs = self._supply.field_triple(count)
        masked = Authenticated(
            self,
            np.concatenate([_minus(flat[0], first), _minus(flat[2], second)]),
            np.concatenate([_minus(flat[1], macs[0]), _minus(flat[3], macs[1])]),
            _LIMIT - 1,
        )
        opened = self._opened(masked)
        of_left, of_right = opened[:count], opened[count:]
        # (a + d)(b + e) = ab + d·b + e·a + d·e
        value = field.add(product, field.add(field.multiply(of_left, second), field.multiply(of_right, first)))
        mac = field.add(macs[2], field.add(field.multiply(of_left, macs[1]), field.multiply(of_right, macs[0])))
        result = Authenticated(self, value, mac, left.bound * right.bound)
        return self._moved(result, field.multiply(of_left, of_right), result.bound).reshape(*shape)

    def _opened(self, numbers: "Authenticated") -> Words:
        """Open elements without a check; they wait for the next one."""
        parts = self._party.exchange("open field", np.ascontiguousarray(numbers.value).astype("<u8").tobytes())
        opened = numbers.value.reshape(-1)
        for part in parts:
            opened = field.add(opened, _elements(part, self._party))
        self._seen.update(opened.astype("<u8").tobytes())
        self._pending.append((opened, numbers.mac.reshape(-1)))
        return opened.reshape(numbers.value.shape)

    def _check(self) -> None:
        """Check the MACs of all that was opened since the last check, and that all parties saw the same."""
        if not self._pending:
            return
        opened, macs = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        seed = hashlib.sha256(b"".join(self._committed("coin", self._source.bytes(32)))).digest()
        self._seen.update(seed)
        stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
        drawn = field.from_words(np.frombuffer(stream.update(bytes(8 * opened.size)), dtype="<u8").astype(np.uint64))
        expected = field.multiply(opened, self._key + np.zeros_like(opened))
        difference = field.total(field.multiply(drawn, _minus(macs, expected)))
        parts = self._committed("check", difference.astype("<u8").tobytes() + self._seen.digest())
        total = field.reconstruct([_elements(part[:8], self._party) for part in parts])
        same = all(compare_digest(part[8:], parts[0][8:]) for part in parts)
        if not (same and compare_digest(total.tobytes(), bytes(8))):
            self._fail("a share or a message authentication code was wrong")
        self._pending.clear()

    def _committed(self, step: str, body: bytes) -> list[bytes]:
        """Exchange messages that no party can choose after it has seen another's; return them in the parties' order."""
        nonce = self._source.bytes(_NONCE)
        commitments = self._party.exchange(f"{step}: commit", _commitment(self.index, step, nonce + body))
        opened = self._party.exchange(f"{step}: open", nonce + body)
        for peer, commitment, message in zip(self._party.peers(), commitments, opened, strict=True):
            if not compare_digest(commitment, _commitment(peer, step, message)):
                self._fail("a party opened something else than it had committed to")
        by_party = dict(zip(self._party.peers(), opened, strict=True)) | {self.index: nonce + body}
        return [by_party[number][_NONCE:] for number in sorted(by_party)]

    def _fail(self, why: str) -> None:
        self._pending.clear()
        self._party.abort()
        raise ChannelBroken(
            f"{why}. The run is over and gave no output. Run it again with parties that you trust more."
        )


class Authenticated(Hidden):
    """One party's share of whole numbers, and of their MACs.

    Attributes:
        owner: the party that holds this share.
        value: share of the numbers.
        mac: share of the numbers times the key.
        bound: public: no number is larger in absolute value, if the inputs were as declared.
    """

    __slots__ = ("bound", "mac", "owner", "value")

    def __init__(self, owner: AuthenticatedParty, value: Words, mac: Words, bound: int) -> None:
        self.owner, self.value, self.mac, self.bound = owner, value, mac, _checked_bound(bound)

    def __add__(self, other: "Authenticated | int") -> "Authenticated":
        if isinstance(other, int):
            offset = np.full(self.value.shape, other % field.PRIME, dtype=np.uint64)
            return self.owner._moved(self, offset, self.bound + abs(other))
        self._same(other)
        value, mac = field.add(self.value, other.value), field.add(self.mac, other.mac)
        return Authenticated(self.owner, value, mac, self.bound + other.bound)

    def __neg__(self) -> "Authenticated":
        return Authenticated(self.owner, field.negative(self.value), field.negative(self.mac), self.bound)

    def __sub__(self, other: "Authenticated | int") -> "Authenticated":
        return self + -other

    def __mul__(self, other: "Authenticated | int") -> "Authenticated":
        if isinstance(other, int):
            factor = np.full(self.value.shape, other % field.PRIME, dtype=np.uint64)
            value, mac = field.multiply(self.value, factor), field.multiply(self.mac, factor)
            return Authenticated(self.owner, value, mac, self.bound * abs(other))
        self._same(other)
        _checked_bound(self.bound * other.bound)
        return self.owner._product(self, other)

    def sum(self) -> "Authenticated":
        """Return the sum of all numbers."""
        value, mac = field.total(self.value), field.total(self.mac)
        return Authenticated(self.owner, value.reshape(1), mac.reshape(1), self.bound * self.value.size)

    def reshape(self, *shape: int) -> "Authenticated":
        """Return the same numbers in another shape."""
        return Authenticated(self.owner, self.value.reshape(shape), self.mac.reshape(shape), self.bound)

    def _same(self, other: "Authenticated") -> None:
        if not isinstance(other, Authenticated) or other.owner is not self.owner:
            raise BadInput("a party computes with its own authenticated shares and with whole numbers.")


def _checked_bound(bound: int) -> int:
    if isinstance(bound, bool) or not isinstance(bound, int) or not 0 <= bound < _LIMIT:
        raise OutOfRange("this result may need 60 bits or more, and the field holds 60. Declare narrower bounds.")
    return bound


def _encoded(values: ArrayLike | None, shape: tuple[int, ...], most: int) -> Words:
    refuse_masked(values)
    array = np.asarray(values)
    if array.shape != shape or array.dtype.kind not in "iu":
        raise BadNumber(f"this input was declared as whole numbers in the shape {shape}.")
    integers: Sequence[int] = array.reshape(-1).tolist()
    if any(abs(value) > most for value in integers):
        raise OutOfRange("a value is outside the bounds declared for it. Declare wider bounds, or clip before sharing.")
    return np.array([value % field.PRIME for value in integers], dtype=np.uint64)


def _elements(raw: bytes, party: Party) -> Words:
    values = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
    if values.size and int(values.max()) >= field.PRIME:
        party.abort()
        raise ChannelBroken("a message holds numbers outside the field. The run is over and gave no output.")
    return values


def _minus(left: Words, right: Words) -> Words:
    return field.add(left, field.negative(right))


def _commitment(index: int, step: str, body: bytes) -> bytes:
    return hashlib.sha256(b"cloister commitment v1" + bytes([index, len(step)]) + step.encode("ascii") + body).digest()
