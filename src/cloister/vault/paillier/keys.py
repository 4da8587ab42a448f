"""Key pairs of Paillier: generation, encryption of one plaintext, decryption of one ciphertext.

With n = pq and g = 1 + n, a plaintext m is encrypted as (1 + n)^m · s modulo n², where s is a random n-th residue.
(1 + n)^m is 1 + mn, so the cost of an encryption is the cost of s:

    fixed-base  s = (h^n)^r for a short random r, from a precomputed table of powers (Damgård, Jurik, Nielsen 2010)
    textbook    s = r^n for a random unit r, as in Paillier 1999, with Jacobi symbol 1

The Jacobi symbol of a ciphertext modulo n is that of its random part, and anybody computes it. A random part with
symbol -1 would mark its ciphertext in every sum and after fresh randomness. So all are drawn with symbol 1, h has it
too, and vectors without it are refused when they are read or given fresh randomness. A key holder decrypts both.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import gmpy2
from gmpy2 import mpz
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, BadNumber, CiphertextRejected
from cloister.privacy.noise.source import SYSTEM, Source, integer
from cloister.vault.key_file import StoredSecret
from cloister.vault.paillier.proof import is_proof, prove

if TYPE_CHECKING:
    from cloister.vault.paillier.vector import EncryptedVector

__all__ = ["SIZES", "PrivateKey", "PublicKey", "decrypt_half"]

SIZES = (2048, 3072, 4096)
_WINDOW = 6
_APART = 100  # primes of b bits differ by more than 2^(b - 100): closer ones are found from n (FIPS 186-5, A.1.3)
_TESTS = 40  # Miller-Rabin after GMP's Baillie-PSW: 4^-40 for an adversarial number, far less for a random one
_PRIMES = [number for number in range(3, 4096, 2) if gmpy2.is_prime(number)]
_SMALL = prod(_PRIMES)
_SMOOTH = prod(prime ** (32 // (prime.bit_length() - 1)) for prime in (2, *_PRIMES))


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: the modulus n, and h, whose powers h^(n r) are the random part of ciphertexts.

    Attributes:
        roots: the proof that n has no common factor with φ(n) (`proof`). Without it n is taken on trust, and such a key
            has no bytes: every key that was read from bytes has one.
    """

    n: int
    h: int
    roots: tuple[int, ...] = field(default=(), repr=False, compare=False)
    _squared: mpz = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.n, int) and isinstance(self.h, int)) or self.n.bit_length() not in SIZES:
            raise BadNumber("a public key has a modulus of 2048, 3072 or 4096 bits. Ask its holder for the key again.")
        sound = self.n % 2 and gmpy2.gcd(self.n, _SMALL) == 1 and not gmpy2.is_prime(self.n)
        if not sound or not 1 < self.h < self.n - 1 or gmpy2.jacobi(self.h, self.n) != 1:
            raise BadNumber("this public key is malformed, and nothing is encrypted with it. Ask its holder again.")
        # Its powers are the random part of ciphertexts: of a small order, modulo either prime, they would hide nothing.
        if gmpy2.gcd(gmpy2.powmod(self.h, _SMOOTH, self.n) - 1, self.n) != 1:
            raise BadNumber("this public key has an h of small order, which hides nothing. Do not trust its holder.")
        if self.roots and not is_proof(self.n, self.roots):
            raise BadNumber("this public key has a wrong proof of its modulus. Ask its holder for the key again.")
        object.__setattr__(self, "_squared", mpz(self.n) ** 2)

    @property
    def bits(self) -> int:
        """The length of the modulus."""
        return self.n.bit_length()

    @property
    def squared(self) -> mpz:
        """The modulus of ciphertexts, n²."""
        return self._squared

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of n and h in hexadecimal, to be compared with the holder's."""
        size = self.bits // 8
        text = self.n.to_bytes(size, "big") + self.h.to_bytes(size, "big")
        return hashlib.sha256(b"cloister paillier key v1" + text).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the key as bytes."""
        from cloister.vault.paillier.wire import write_public_key

        return write_public_key(self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> "PublicKey":
        """Return the key written by `to_bytes`. Compare its fingerprint with the holder's."""
        from cloister.vault.paillier.wire import read_public_key

        return read_public_key(raw)

    def __repr__(self) -> str:
        return f"PublicKey({self.bits} bits, {self.fingerprint[:16]})"

    def random_part(self, randomness: str = "fixed-base", source: Source = SYSTEM) -> mpz:
        """Draw a random n-th residue, as which an encryption of zero looks.

        Args:
            randomness: "fixed-base", or "textbook", which needs one assumption less and about ten times the time.
            source: source of the random exponent or unit.
        """
        if randomness == "fixed-base":
            return _fixed_base_power(self, integer(self.bits // 2, source))
        if randomness == "textbook":
            return gmpy2.powmod(self._unit(source), self.n, self._squared)
        raise BadInput(f'randomness is "fixed-base" or "textbook", got {randomness!r:.30}.')

    def encrypt_number(self, plaintext: int, randomness: str = "fixed-base", source: Source = SYSTEM) -> mpz:
        """Encrypt one number modulo n."""
        return (1 + self.n * (plaintext % self.n)) * self.random_part(randomness, source) % self._squared

    def check_group(self, ciphertexts: tuple[mpz, ...]) -> None:
        """Refuse numbers that are no ciphertexts: not between 0 and n², or not coprime to n."""
        product = mpz(1)
        for number in ciphertexts:
            if not 0 < number < self._squared:
                raise CiphertextRejected("a number here is no ciphertext of this key: it is not below n². Ask again.")
            product = product * number % self.n
        if gmpy2.gcd(product, self.n) != 1:
            raise CiphertextRejected("a number here is no ciphertext of this key: it is not coprime to n. Ask again.")

    def check_unmarked(self, ciphertexts: tuple[mpz, ...]) -> None:
        """Refuse ciphertexts with Jacobi symbol -1, which anybody would recognise in a sum of others."""
        if any(gmpy2.jacobi(number, self.n) != 1 for number in ciphertexts):
            raise CiphertextRejected(
                "a ciphertext here has Jacobi symbol -1, which would mark it in every sum. Encrypt the vector again "
                "with this version of Cloister."
            )

    def _unit(self, source: Source) -> int:
        while True:
            drawn = integer(self.bits, source)
            # Drawn again rather than reduced, so that it is exactly uniform: a mask may hide to 2^-256. The symbol is 0
            # where the number is not coprime to n, and -1 where it would mark the ciphertext.
            if drawn < self.n and gmpy2.jacobi(drawn, self.n) == 1:
                return drawn


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class PrivateKey(StoredSecret):
    """A private key. It never prints itself and is not pickled."""

    public: PublicKey
    _p: mpz
    _q: mpz

    @classmethod
    def create(cls, bits: int = 3072) -> "PrivateKey":
        """Create a new key of 2048, 3072 (about 128 bits of security) or 4096 bits from the system's randomness."""
        if bits not in SIZES:
            raise BadNumber(f"a key has 2048, 3072 or 4096 bits, got {bits!r:.20}. 3072 is the default.")
        while True:
            p, q = _prime(bits // 2), _prime(bits // 2)
            # Close primes are found by Fermat's method. A common factor of p - 1 and q - 1 would show in n - 1.
            if abs(p - q) >> (bits // 2 - 100) and gmpy2.gcd(p - 1, q - 1) == 2:
                return cls.from_primes(p, q)

    @classmethod
    def from_primes(cls, p: int, q: int, h: int | None = None) -> "PrivateKey":
        """Return the key of two secret primes, each 3 modulo 4; h is drawn unless given."""
        whole = all(isinstance(number, int | mpz) and not isinstance(number, bool) for number in (p, q))
        if not whole or not all(number % 4 == 3 and gmpy2.is_prime(number, _TESTS) for number in (p, q)):
            raise BadNumber("a key is made of two different primes that are 3 modulo 4. Use PrivateKey.create().")
        # A short prime, or two that are close, are found from n.
        half = mpz(p).bit_length()
        if half != mpz(q).bit_length() or abs(mpz(p) - q) >> max(half - _APART, 0) == 0:
            raise BadNumber("a key is made of two different primes of one length, far apart. Use PrivateKey.create().")
        n = mpz(p) * q
        if h is None:
            # -x² has Jacobi symbol 1 and no small order: -1 is no square modulo either prime (Damgård et al. 2010).
            h = int(-(mpz(2 + secrets.randbelow(int(n) - 3)) ** 2) % n)
        return cls(PublicKey(int(n), h, prove(mpz(p), mpz(q))), mpz(p), mpz(q))

    @classmethod
    def from_bytes(cls, raw: bytes) -> "PrivateKey":
        """Return the key written by `to_bytes`."""
        from cloister.vault.paillier.wire import read_private_key

        return read_private_key(raw)

    def to_bytes(self) -> bytes:
        """Return the private key, not encrypted: store it with `save`, or seal it."""
        from cloister.vault.paillier.wire import write_private_key

        return write_private_key(self.public, int(self._p), int(self._q))

    def file_id(self) -> str:
        """Return the public key's fingerprint."""
        return self.public.fingerprint

    def decrypt(self, vector: "EncryptedVector") -> NDArray[Any]:
        """Decrypt a vector to numbers; a masked one to integers, for `Mask.remove`."""
        from cloister.vault.paillier.vector import decrypt

        return decrypt(self, vector)

    def decrypt_number(self, ciphertext: mpz) -> int:
        """Decrypt one ciphertext to a number modulo n."""
        self.public.check_group((ciphertext,))
        of_p = decrypt_half(ciphertext, self._p, self._q)
        of_q = decrypt_half(ciphertext, self._q, self._p)
        lift = gmpy2.invert(self._q, self._p)
        return int(of_q + (of_p - of_q) * lift % self._p * self._q)

    def secret_primes(self) -> tuple[mpz, mpz]:
        """Return p and q, for the dealer of a threshold key."""
        return self._p, self._q


def decrypt_half(ciphertext: mpz, p: mpz, other: mpz) -> mpz:
    """Return a plaintext modulo p, one of the two primes (Paillier 1999, section 7).

    Modulo p² the random part is an n-th power, so its order divides p - 1, and c^(p-1) is (1 + n)^(m(p-1)).
    """
    square = p * p
    power = gmpy2.powmod_sec(ciphertext % square, p - 1, square)
    # (1 + n)^(m(p-1)) = 1 + m(p-1)·n modulo p², and n = p·other, so the quotient by p is -m·other modulo p.
    return (power - 1) // p * gmpy2.invert(-other, p) % p


def _prime(bits: int) -> mpz:
    """Draw a prime of this many bits, 3 modulo 4, whose predecessor has only the small factor 2."""
    while True:
        # Both top bits are set, so that n has exactly twice as many bits.
        drawn = mpz(secrets.randbits(bits)) | (3 << (bits - 2)) | 3
        if gmpy2.gcd(drawn, _SMALL) == 1 == gmpy2.gcd(drawn - 1, _SMALL) and gmpy2.is_prime(drawn, _TESTS):
            return drawn


@lru_cache(maxsize=8)
def _table(public: PublicKey) -> tuple[tuple[mpz, ...], ...]:
    """Return the powers (h^n)^(digit · 2^(6·place)): one row for each place of an exponent of half the key's length."""
    base, modulus = gmpy2.powmod(public.h, public.n, public.squared), public.squared
    rows = []
    for _ in range(0, public.bits // 2, _WINDOW):
        row = [mpz(1)]
        for _ in range(1, 1 << _WINDOW):
            row.append(row[-1] * base % modulus)
        rows.append(tuple(row))
        base = row[-1] * base % modulus
    return tuple(rows)


def _fixed_base_power(public: PublicKey, exponent: int) -> mpz:
    """Return (h^n)^exponent with one product for six bits (Brickell, Gordon, McCurley, Wilson 1992)."""
    power, modulus, mask = mpz(1), public.squared, (1 << _WINDOW) - 1
    for place, row in enumerate(_table(public)):
        power = power * row[exponent >> (_WINDOW * place) & mask] % modulus
    return power
