"""Blind signatures, the signer's half: RSABSSA-SHA384-PSS-Randomized of RFC 9474.

A device multiplies the encoded message m by r^e, for a secret random r. The key takes the e-th root of the product,
which is the root of m times r; the device divides by r. The result is an ordinary RSASSA-PSS signature (SHA-384, a
salt of 48 bytes) on a message that the signer has never seen.
"""

import base64
import binascii
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from cloister.privacy.errors import BadInput, Broken
from cloister.privacy.signing import canonical, fingerprint
from cloister.vault.key_file import StoredSecret

__all__ = ["SALT_BYTES", "SCHEME", "BlindKey", "key_fingerprint", "public_numbers", "unbase64url", "unit", "verify"]

SCHEME = "RSABSSA-SHA384-PSS-Randomized"
SALT_BYTES = 48
_SIZES = (2048, 3072, 4096)
_MOST_BITS = 8192  # a larger key would only slow a phone down
_EXPONENTS = range(65537, 1 << 32, 2)
_PADDING = padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BlindKey(StoredSecret):
    """A key that signs blinded messages. It never prints itself.

    **One key for one wave of one survey.** The signer cannot see what a ballot is for: if a key were used for two,
    a person invited to one could get a ballot for the other. For the same reason the key signs nothing but ballots
    (RFC 9474, 6.2).

    Equal numbers get equal signatures: a device whose connection broke may send its number again.
    """

    _key: rsa.RSAPrivateKey
    _numbers: rsa.RSAPrivateNumbers

    @classmethod
    def create(cls, bits: int = 2048) -> "BlindKey":
        """Create a new key of 2048, 3072 or 4096 bits."""
        if bits not in _SIZES:
            raise BadInput(f"a key for blind signatures has 2048, 3072 or 4096 bits, got {bits!r:.20}. 2048 will do.")
        key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        return cls(key, key.private_numbers())

    @classmethod
    def from_bytes(cls, raw: bytes) -> "BlindKey":
        """Return the key written by `to_bytes`."""
        try:
            key = load_der_private_key(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise BadInput("these bytes are no key for blind signatures. Make one with BlindKey.create().")
        blind_key = cls(key, key.private_numbers())
        public_numbers(blind_key.public())  # a weak key is refused here, not on the respondents' phones
        return blind_key

    def to_bytes(self) -> bytes:
        """Return the private key as PKCS #8 in DER, not encrypted: store it with `save`, or seal it."""
        return self._key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def file_id(self) -> str:
        """Return the public key's fingerprint."""
        return key_fingerprint(self.public())

    def public(self) -> dict[str, object]:
        """Return the public key for JSON: the scheme's name, the size, and n and e in base64url."""
        numbers = self._numbers.public_numbers
        return {
            "scheme": SCHEME,
            "bits": numbers.n.bit_length(),
            "n": _base64url(numbers.n),
            "e": _base64url(numbers.e),
        }

    def sign(self, blinded: bytes) -> bytes:
        """Compute BlindSign of RFC 9474, 4.3: the e-th root of the number that a device sent.

        Mark the invitation as used before calling this, and store `blinded` with it: a second number for the same
        invitation would be a second ballot.

        Args:
            blinded: the number from `Ballot.begin`, as many bytes as the key's modulus.

        Raises:
            BadInput: it is no number below the modulus.
            Broken: a computation error; showing the result would reveal the key.
        """
        n, e = self._numbers.public_numbers.n, self._numbers.public_numbers.e
        message = int.from_bytes(blinded, "big")
        if len(blinded) != _size(n) or not 0 < message < n:
            raise BadInput(
                f"what is to be signed is a number of {_size(n)} bytes, below the key's modulus. "
                "Begin the ballot again with this survey's key."
            )
        # The caller chooses the base, and the time of pow() depends on it: with a random factor, removed afterwards,
        # the time no longer depends on the number sent (Kocher 1996, 10; RFC 9474, 7.1).
        factor = unit(n)
        root = self._root(message * pow(factor, e, n) % n) * pow(factor, -1, n) % n
        # With one wrong bit in half of the computation, gcd(root^e - message, n) is a prime of the key (Boneh, DeMillo,
        # Lipton 1997). So every result is checked before it is returned.
        if pow(root, e, n) != message:
            raise Broken(
                "the signature came out wrong and was thrown away. Check this machine's memory, then try again."
            )
        return root.to_bytes(_size(n), "big")

    def _root(self, number: int) -> int:
        """Return the e-th root by the Chinese remainder theorem, with new multiples of p - 1 and q - 1 as exponents."""
        numbers = self._numbers
        of_p = pow(number % numbers.p, numbers.dmp1 + secrets.randbits(64) * (numbers.p - 1), numbers.p)
        of_q = pow(number % numbers.q, numbers.dmq1 + secrets.randbits(64) * (numbers.q - 1), numbers.q)
        return of_q + (of_p - of_q) * numbers.iqmp % numbers.p * numbers.q


def verify(public: Mapping[str, object], message: bytes, signature: bytes) -> bool:
    """Return True if this key signed this message: RSASSA-PSS-VERIFY with SHA-384, MGF1 and a salt of 48 bytes.

    Args:
        public: the key, as returned by `BlindKey.public`.
        message: the prepared message: 32 random bytes, then the text.
        signature: the signature from `Ballot.finish`.
    """
    try:
        _loaded(public).verify(signature, message, _PADDING, hashes.SHA384())
    except InvalidSignature:
        return False
    return True


def key_fingerprint(public: Mapping[str, object]) -> str:
    """Return the SHA-256 of the public key as canonical JSON, in hexadecimal, to be printed and compared."""
    public_numbers(public)
    return fingerprint(canonical(dict(public)).decode("ascii"))


def public_numbers(public: Mapping[str, object]) -> tuple[int, int]:
    """Return n and e of a published key; refuse a weak or malformed key."""
    numbers = _loaded(public).public_numbers()
    return numbers.n, numbers.e


def unit(n: int) -> int:
    """Draw a secret, uniform, invertible number from 1 to n - 1."""
    while True:
        drawn = 1 + secrets.randbelow(n - 1)
        if gcd(drawn, n) == 1:
            return drawn


def unbase64url(text: object) -> bytes:
    """Decode base64url; only the canonical form without padding is accepted."""
    try:
        raw = base64.b64decode(str(text) + "=" * (-len(str(text)) % 4), altchars="-_", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if not isinstance(text, str) or base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=") != text:
        raise BadInput("bytes are written in base64url without padding here. Send them as they were made.")
    return raw


def _loaded(public: Mapping[str, object]) -> rsa.RSAPublicKey:
    fields = {"scheme": str, "bits": int, "n": str, "e": str}
    record = dict(public) if isinstance(public, Mapping) else {}
    if set(record) != set(fields) or any(type(record[name]) is not kind for name, kind in fields.items()):
        raise BadInput(
            "a key for blind signatures has the fields scheme, bits, n and e. Take it from the survey's page."
        )
    return _read(*(str(record[name]) for name in fields))


@lru_cache(maxsize=64)
def _read(scheme: str, bits: str, modulus: str, exponent: str) -> rsa.RSAPublicKey:
    """Check and load a key, cached: checking a signature takes less time than loading a key."""
    n, e = (int.from_bytes(unbase64url(text), "big") for text in (modulus, exponent))
    if scheme != SCHEME:
        raise BadInput(f"the key's scheme must be {SCHEME}. Take it from the survey's page.")
    if str(n.bit_length()) != bits or (_base64url(n), _base64url(e)) != (modulus, exponent):
        raise BadInput(
            "the key's size is not what it says, or n or e has more than one spelling. Take it as it was made."
        )
    if not _SIZES[0] <= n.bit_length() <= _MOST_BITS or n % 2 == 0 or e not in _EXPONENTS:
        raise BadInput(
            f"a key for blind signatures has an odd modulus of {_SIZES[0]} to {_MOST_BITS} bits and an odd exponent "
            "from 65537 to 2^32. Ask for a proper key."
        )
    return rsa.RSAPublicNumbers(e, n).public_key()


def _base64url(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes(_size(number), "big")).decode("ascii").rstrip("=")


def _size(number: int) -> int:
    return (number.bit_length() + 7) // 8
