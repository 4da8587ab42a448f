"""A secret for n holders, of whom any t recover it: Shamir's polynomials, with shares that each holder can check.

**Statement.** *Parties:* one who splits, n holders, one who recovers. *What each learns:* a holder learns its share and
the commitments; fewer than t holders together learn nothing about the secret with Pedersen's commitments, and with
Feldman's only g^secret. *Who must not collude:* any t holders. *An active attacker:* whoever splits can deny service,
but cannot give holders shares of different secrets if they all see the same commitments; a holder who hands in a wrong
share is named when the secret is recovered, and its share is not used. *Test:* tests/unit/vault/sharing/test_shamir.py.

Secrets are numbers modulo the order of the prime subgroup of edwards25519 (2^252 + …), and commitments are points of
it (libsodium through PyNaCl). Feldman (1987) commits to coefficients as a·G. That shows secret·G: harmless for a
random key, fatal for a secret that can be guessed. So the default is Pedersen (1991), a·G + b·H with a second random
polynomial and a point H that was hashed from a text, so that nobody knows its logarithm: it hides perfectly, and binds
as long as discrete logarithms are hard.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hmac import compare_digest

from nacl import bindings

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected
from cloister.vault.key_file import StoredSecret

__all__ = ["ORDER", "Commitments", "HeldShare", "recover", "split"]

ORDER = (1 << 252) + 27742317777372353535851937790883648493
_IDENTITY = (1).to_bytes(32, "little")
_MOST_HOLDERS = 1_000
_MAGIC = b"CLSH\x01"


@dataclass(frozen=True, slots=True)
class Commitments:
    """Public points, one for each coefficient of the polynomial. All holders compare their fingerprint.

    Attributes:
        scheme: "pedersen" or "feldman".
        points: as many as shares are needed.
    """

    scheme: str
    points: tuple[bytes, ...]

    def __post_init__(self) -> None:
        if self.scheme not in ("pedersen", "feldman") or not 1 <= len(self.points) <= _MOST_HOLDERS:
            raise BadInput("commitments are of the scheme pedersen or feldman, one for each coefficient.")
        for point in self.points:
            whole = isinstance(point, bytes) and len(point) == 32
            if not whole or not (point == _IDENTITY or bindings.crypto_core_ed25519_is_valid_point(point)):
                raise CiphertextRejected("a commitment is no point of the group. Ask for the commitments again.")

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the commitments, for holders to compare."""
        return hashlib.sha256(b"cloister commitments v1" + self.scheme.encode() + b"".join(self.points)).hexdigest()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class HeldShare(StoredSecret):
    """One holder's share: the value of the secret polynomial, and of the blinding one, at the holder's number.

    Attributes:
        holder: from 1.
    """

    holder: int
    _value: int
    _blinding: int

    def check(self, commitments: Commitments) -> None:
        """Refuse a share that does not fit the commitments."""
        if not self.fits(commitments):
            raise CiphertextRejected(
                f"the share of holder {self.holder} does not fit the commitments. Do not use it, and ask for another."
            )

    def fits(self, commitments: Commitments) -> bool:
        """Return True if this share lies on the polynomial that was committed to."""
        expected = _IDENTITY
        for point in reversed(commitments.points):
            expected = _add(_times(self.holder, expected), point)
        return compare_digest(_commit(commitments.scheme, self._value, self._blinding), expected)

    def at_holder(self) -> tuple[int, int]:
        """Return the holder's number and the secret value, for `recover`."""
        return self.holder, self._value

    def to_bytes(self) -> bytes:
        """Return the share, not encrypted: store it with `save`, and seal it before sending it."""
        numbers = (self._value.to_bytes(32, "little"), self._blinding.to_bytes(32, "little"))
        return _MAGIC + self.holder.to_bytes(4, "big") + b"".join(numbers)

    def file_id(self) -> str:
        """Return the number of the holder."""
        return f"share of holder {self.holder}"

    @classmethod
    def from_bytes(cls, raw: bytes) -> "HeldShare":
        """Return the share written by `to_bytes`."""
        if not isinstance(raw, bytes) or raw[:4] != _MAGIC[:4] or len(raw) < 5:
            raise CiphertextRejected("these bytes are no share of a secret. Ask for them again.")
        if raw[4:5] != _MAGIC[4:]:
            raise CiphertextRejected(f"this share has version {raw[4]}, and version 1 is read. Update Cloister.")
        holder = int.from_bytes(raw[5:9], "big")
        value, blinding = (int.from_bytes(raw[at : at + 32], "little") for at in (9, 41))
        if len(raw) != 73 or not 1 <= holder <= _MOST_HOLDERS or value >= ORDER or blinding >= ORDER:
            raise CiphertextRejected("these bytes are no share of a secret, or were cut off. Ask for them again.")
        return cls(holder, value, blinding)


def split(secret: int, needed: int, holders: int, scheme: str = "pedersen") -> tuple[list[HeldShare], Commitments]:
    """Split a secret into shares for so many holders.

    Args:
        secret: a number from 0 to ORDER - 1, such as a 252-bit key.
        needed: how many shares recover it.
        holders: how many shares are made.
        scheme: "pedersen", or "feldman" for random keys whose public point may be known.

    Privacy:
        Fewer than `needed` shares with Pedersen's commitments have one distribution for all secrets. Feldman's also
        show secret·G.
    """
    if isinstance(secret, bool) or not isinstance(secret, int) or not 0 <= secret < ORDER:
        raise BadNumber("a secret is a whole number from 0 to the group's order, which has 252 bits and a little more.")
    whole = all(isinstance(count, int) and not isinstance(count, bool) for count in (needed, holders))
    if not whole or not 1 <= needed <= holders <= _MOST_HOLDERS:
        raise BadNumber(f"from 1 to all of at most {_MOST_HOLDERS} holders are needed to recover a secret.")
    polynomial = [secret, *(secrets.randbelow(ORDER) for _ in range(needed - 1))]
    blinding = [secrets.randbelow(ORDER) if scheme == "pedersen" else 0 for _ in range(needed)]
    points = tuple(_commit(scheme, *pair) for pair in zip(polynomial, blinding, strict=True))
    shares = [HeldShare(at, _value(polynomial, at), _value(blinding, at)) for at in range(1, holders + 1)]
    return shares, Commitments(scheme, points)


def recover(shares: Sequence[HeldShare], commitments: Commitments) -> int:
    """Return the secret from enough shares, after each was checked.

    Raises:
        CiphertextRejected: a share does not fit the commitments (its holder is named), or there are too few.
    """
    for share in shares:
        share.check(commitments)
    points = dict(share.at_holder() for share in shares)
    needed = len(commitments.points)
    if len(points) < needed:
        raise CiphertextRejected(f"{needed} shares of different holders are needed, and {len(points)} were given.")
    chosen = list(points.items())[:needed]
    total = 0
    for at, value in chosen:
        above = below = 1
        for other, _ in chosen:
            if other != at:
                above, below = above * other % ORDER, below * (other - at) % ORDER
        total += value * above * pow(below, -1, ORDER)
    return total % ORDER


def _value(polynomial: list[int], at: int) -> int:
    result = 0
    for coefficient in reversed(polynomial):
        result = (result * at + coefficient) % ORDER
    return result


def _commit(scheme: str, value: int, blinding: int) -> bytes:
    match scheme:
        case "feldman":
            return _base(value)
        case "pedersen":
            return _add(_base(value), _times(blinding, _second_base()))
    raise BadInput('a scheme is "pedersen" or "feldman".')


def _base(scalar: int) -> bytes:
    """Return scalar·G. libsodium refuses zero, whose point is the identity."""
    if scalar == 0:
        return _IDENTITY
    return bindings.crypto_scalarmult_ed25519_base_noclamp(scalar.to_bytes(32, "little"))


def _times(scalar: int, point: bytes) -> bytes:
    if scalar == 0 or point == _IDENTITY:
        return _IDENTITY
    return bindings.crypto_scalarmult_ed25519_noclamp(scalar.to_bytes(32, "little"), point)


def _add(left: bytes, right: bytes) -> bytes:
    return bindings.crypto_core_ed25519_add(left, right)


@cache
def _second_base() -> bytes:
    """Return H: hashed to the curve, so that nobody knows its logarithm to the base G."""
    return bindings.crypto_core_ed25519_from_uniform(hashlib.sha256(b"cloister pedersen base v1").digest())
