"""A proof that a modulus n has no common factor with φ(n), from who knows its primes to who encrypts under it.

Without it a key holder could choose primes of which one divides the other's predecessor, or a square. Modulo n² there
are then numbers that are neither (1 + n)^m nor n-th residues, and no randomness hides them: a ciphertext that is marked
with one shows its weight in every sum, also in a masked one.

The proof is an n-th root modulo n of each of eleven numbers hashed from n (Goldberg, Reyzin, Sagga, Baldimtsi 2019). If
a prime f divides both n and φ(n), at most one number in f has a root. Small factors of n are refused, so f is above
4096, and all eleven have roots with probability below 2^-128.
"""

import hashlib
from functools import lru_cache

import gmpy2
from gmpy2 import mpz

__all__ = ["ROOTS", "is_proof", "prove"]

ROOTS = 11  # times 12 bits, of a factor above 4096


def prove(p: mpz, q: mpz) -> tuple[int, ...]:
    """Return the roots for the modulus p·q of two different primes."""
    n, lift = p * q, gmpy2.invert(q, p)
    roots = []
    for number in _challenges(int(n)):
        of_p, of_q = (gmpy2.powmod_sec(number % prime, gmpy2.invert(n, prime - 1), prime) for prime in (p, q))
        roots.append(int(of_q + (of_p - of_q) * lift % p * q))
    return tuple(roots)


@lru_cache(maxsize=64)
def is_proof(n: int, roots: tuple[int, ...]) -> bool:
    """Return True if these are the n-th roots of the numbers hashed from n."""
    whole = len(roots) == ROOTS and all(isinstance(root, int) and 0 <= root < n for root in roots)
    return whole and all(gmpy2.powmod(root, n, n) == number for root, number in zip(roots, _challenges(n), strict=True))


def _challenges(n: int) -> list[int]:
    """Return numbers modulo n from a random oracle, uniform up to 2^-128."""
    size = n.bit_length() // 8 + 16
    text = b"cloister paillier key proof v1" + n.to_bytes(n.bit_length() // 8 + 1, "big")
    drawn = hashlib.shake_256(text).digest(size * ROOTS)
    return [int.from_bytes(drawn[at : at + size], "big") % n for at in range(0, len(drawn), size)]
