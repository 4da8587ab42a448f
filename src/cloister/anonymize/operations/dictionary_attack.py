"""The dictionary attack on salted hashes. Nothing here protects: it shows why pseudonyms need a secret key.

Identifiers can be listed: a block of phone numbers has ten thousand members, the taxi medallions of New York about 18
million. Whoever has the salt, which is stored beside the hashes and is no secret, hashes all of them and compares. A
salt prevents tables that are computed in advance; it neither avoids collisions nor hides values that can be listed.
With a random salt for each row equal values can no longer be joined, and the attack costs a pass for each row. A secret
key (`pseudonyms`) stops it.
"""

import hashlib
import itertools
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cloister.privacy.errors import BadName

__all__ = ["Recovered", "dictionary_attack", "number_block", "salted_hash_not_protected", "taxi_medallions"]

_ALGORITHMS = ("md5", "sha1", "sha256", "sha512")


@dataclass(frozen=True)
class Recovered:
    """Values recovered from hashes.

    Attributes:
        values: the value of each recovered hash.
        hashes: number of different hashes attacked.
        tried: number of candidates hashed.
    """

    values: dict[str, str]
    hashes: int
    tried: int

    @property
    def share(self) -> float:
        """Share of the hashes that were recovered."""
        return len(self.values) / self.hashes if self.hashes else 0.0


def salted_hash_not_protected(values: Iterable[str], salt: str | bytes = b"", algorithm: str = "sha256") -> list[str]:
    """Return the hexadecimal hash of salt and value, the usual and useless pseudonym.

    >>> salted_hash_not_protected(["5C27"], algorithm="md5")
    ['0f76c35d4a069e0fe76b21d28f009639']
    """
    prefix = _prefix(salt, algorithm)
    return [_digest(prefix, value) for value in values]


def dictionary_attack(
    hashes: Iterable[str], candidates: Iterable[str], salt: str | bytes = b"", *, algorithm: str = "sha256"
) -> Recovered:
    """Recover values by hashing candidates with the salt until every hash has its value.

    Args:
        hashes: hexadecimal hashes, as published.
        candidates: values to try, such as `number_block("813-555-", 4)`.
        salt: the salt, which is stored with the hashes.
        algorithm: md5, sha1, sha256 or sha512.

    >>> hashes = salted_hash_not_protected(["813-555-0142"], salt="pepper")
    >>> list(dictionary_attack(hashes, number_block("813-555-", 4), "pepper").values.values())
    ['813-555-0142']
    """
    prefix = _prefix(salt, algorithm)
    published = {text.lower() for text in hashes}
    values: dict[str, str] = {}
    tried = 0
    for candidate in candidates:
        if len(values) == len(published):
            break
        tried += 1
        digest = _digest(prefix, candidate)
        if digest in published:
            values[digest] = candidate
    return Recovered(values, len(published), tried)


def _prefix(salt: str | bytes, algorithm: str) -> "hashlib._Hash":
    if algorithm not in _ALGORITHMS:
        raise BadName(f"the algorithm is one of {', '.join(_ALGORITHMS)}.")
    return hashlib.new(algorithm, salt.encode() if isinstance(salt, str) else salt, usedforsecurity=False)


def _digest(prefix: "hashlib._Hash", value: str) -> str:
    state = prefix.copy()
    state.update(value.encode())
    return state.hexdigest()


def number_block(prefix: str, digits: int) -> Iterator[str]:
    """Yield every number with a prefix and further digits.

    >>> list(itertools.islice(number_block("813-555-", 4), 2))
    ['813-555-0000', '813-555-0001']
    """
    return (f"{prefix}{number:0{digits}d}" for number in range(10**digits))


def taxi_medallions(letters: int = 2) -> Iterator[str]:
    """Yield the medallion numbers of New York's taxis: 5C27, then XY123 with two and ABC123 with three letters.

    Args:
        letters: most letters: 1 (26,000 medallions), 2 (702,000) or 3 (18,278,000).
    """
    for first, letter, second in itertools.product(string.digits, string.ascii_uppercase, range(100)):
        yield f"{first}{letter}{second:02d}"
    for count in range(2, letters + 1):
        for word in itertools.product(string.ascii_uppercase, repeat=count):
            head = "".join(word)
            yield from (f"{head}{number:03d}" for number in range(1000))
