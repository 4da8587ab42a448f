"""Two-of-two decryption: two holders of key shares decrypt together, and neither of them alone.

**Statement.** *Parties:* a dealer who makes the key, two share holders, anyone who combines. *What each learns:* a
share holder learns nothing from its share alone; whoever has both partial decryptions of a vector learns the vector.
*Who must not collude:* the two holders; and the dealer, who knows the key until `deal_key` returns, must be honest and
must keep neither the shares nor an image of its memory (Python cannot overwrite numbers, so the dealer is a process
that ends). *An active holder* can answer with a wrong partial decryption: a random one is noticed, because the
combination is then not 1 modulo n; one that was shifted on purpose by a multiple of n is not, and changes the result.
*Test:* tests/unit/vault/paillier/test_threshold.py.

The exponent d with d = 0 modulo λ and d = 1 modulo n takes c = (1 + n)^m·s to (1 + n)^m. It is cut into d = d₁ + d₂
over the integers with d₁ drawn 80 bits longer than d, so each share has the same distribution for every key, up to
2^-80 (Damgård, Jurik 2001; Fouque, Poupard, Stern 2000).
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

import gmpy2
from gmpy2 import mpz
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, CiphertextRejected
from cloister.vault.key_file import StoredSecret
from cloister.vault.paillier.keys import PrivateKey, PublicKey
from cloister.vault.paillier.vector import EncryptedVector, check_vector, decode
from cloister.vault.secret import Secret

__all__ = ["KeyShare", "PartialDecryption", "combine_partials", "deal_key"]

_HIDING_BITS = 80


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class KeyShare(StoredSecret):
    """One of two shares of a private key. It never prints itself and is not pickled.

    Attributes:
        public: the public key.
        number: 1 or 2.
    """

    public: PublicKey
    number: int
    _exponent: int

    def decrypt_partially(self, vector: EncryptedVector) -> "PartialDecryption":
        """Return this holder's half of a decryption. Agree first on what is decrypted: both halves reveal it."""
        if check_vector(vector).public != self.public:
            raise CiphertextRejected("this vector is encrypted under another key. Ask the holders of that key.")
        self.public.check_group(vector.ciphertexts)
        squared = self.public.squared
        powers = []
        for number in vector.ciphertexts:
            base = number if self._exponent >= 0 else gmpy2.invert(number, squared)
            powers.append(gmpy2.powmod_sec(base, abs(self._exponent), squared))
        return PartialDecryption(self.public, self.number, vector_digest(vector), tuple(powers))

    def to_bytes(self) -> bytes:
        """Return the share, not encrypted: store it with `save`, and seal it before sending it."""
        from cloister.vault.paillier.wire import write_share

        return write_share(self.public, self.number, self._exponent)

    def file_id(self) -> str:
        """Return the public key's fingerprint and the number of the share."""
        return f"{self.public.fingerprint} share {self.number}"

    @classmethod
    def from_bytes(cls, raw: bytes) -> "KeyShare":
        """Return the share written by `to_bytes`."""
        from cloister.vault.paillier.wire import read_share

        return cls(*read_share(raw))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PartialDecryption(Secret):
    """One holder's half of a decryption. Together with the other half it is the vector, so it is not printed either."""

    public: PublicKey
    number: int
    digest: bytes
    powers: tuple[mpz, ...]

    def to_bytes(self) -> bytes:
        """Return the half as bytes, to be sent to whoever may see the vector."""
        from cloister.vault.paillier.wire import write_partial

        return write_partial(self.public, self.number, self.digest, self.powers)

    @classmethod
    def from_bytes(cls, raw: bytes, public: PublicKey) -> "PartialDecryption":
        """Return the half written by `to_bytes`."""
        from cloister.vault.paillier.wire import read_partial

        return cls(public, *read_partial(raw, public))


def deal_key(bits: int = 3072) -> tuple[PublicKey, KeyShare, KeyShare]:
    """Make a key and cut it into two shares. The dealer then ends its process; it keeps no copy."""
    key = PrivateKey.create(bits)
    return (key.public, *cut(key))


def cut(key: PrivateKey) -> tuple[KeyShare, KeyShare]:
    """Return two shares of an existing key, whose holder can still decrypt alone."""
    p, q = key.secret_primes()
    n = key.public.n
    order = gmpy2.lcm(p - 1, q - 1)
    exponent = int(order * gmpy2.invert(order, n))
    first = secrets.randbits(2 * key.public.bits + _HIDING_BITS)
    return KeyShare(key.public, 1, first), KeyShare(key.public, 2, exponent - first)


def combine_partials(vector: EncryptedVector, partials: Sequence[PartialDecryption]) -> NDArray[Any]:
    """Return the numbers of a vector from both halves; a masked vector's as integers, for `Mask.remove`."""
    check_vector(vector)
    if not isinstance(partials, Sequence) or not all(isinstance(partial, PartialDecryption) for partial in partials):
        raise BadInput("partials are what each holder's decrypt_partially(vector) returned: [first, second].")
    if sorted(partial.number for partial in partials) != [1, 2]:
        raise CiphertextRejected("a decryption needs one half of each of the two holders. Ask the other one.")
    digest, n = vector_digest(vector), mpz(vector.public.n)
    for partial in partials:
        same = partial.public == vector.public and compare_digest(partial.digest, digest)
        if not same or len(partial.powers) != len(vector.ciphertexts):
            raise CiphertextRejected("a half of this decryption is of another vector or key. Ask for it again.")
    plaintexts = []
    for left, right in zip(*(partial.powers for partial in partials), strict=True):
        quotient, remainder = gmpy2.f_divmod(left * right % vector.public.squared - 1, n)
        if remainder:
            raise CiphertextRejected("a half of this decryption is wrong, so nothing is returned. Ask both again.")
        plaintexts.append(int(quotient))
    return decode(vector, plaintexts)


def vector_digest(vector: EncryptedVector) -> bytes:
    """Return the SHA-256 of a vector's bytes, which names it in partial decryptions."""
    from cloister.vault.paillier.wire import digest_of

    return digest_of(vector)
