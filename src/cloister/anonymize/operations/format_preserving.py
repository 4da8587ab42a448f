"""Format-preserving encryption: FF1 of NIST SP 800-38G with AES, for many values at once.

FF1 is a Feistel network of ten rounds on numeral strings. Its revision 1 asks for at least a million possible strings.
Two cases are outside FF1 and are built on it, or beside it:

- strings with different alphabets per position (`AB1234`): the positions are read as one number, which is encrypted by
  FF1 in base 2 and encrypted again until it is below the number of strings (cycle walking, Black and Rogaway 2002);
- fewer than a million strings: all of them are sorted by AES of their number (the prefix cipher of the same paper),
  which is a permutation drawn by the key. NIST specifies nothing for this case.

Tested with the nine published samples for FF1.

Falls to: equal values stay equal, so tables join: `attack.tables.correlation`. Whoever has the key decrypts.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from cloister.anonymize.operations.operated import Integers
from cloister.privacy.errors import BadNumber

__all__ = ["LEAST", "ff1_decrypt", "ff1_encrypt", "permute"]

Bytes = npt.NDArray[np.uint8]
LEAST = 10**6  # smallest number of strings that FF1 is specified for (SP 800-38G, revision 1)
_ROUNDS = 10
_SMALL = 2**32  # halves up to here are computed in 64-bit integers, larger ones in Python's


def ff1_encrypt(key: bytes, tweak: bytes, numerals: Integers, radix: int) -> Integers:
    """Encrypt numeral strings of one length with FF1.

    Args:
        key: an AES key of 16, 24 or 32 bytes.
        tweak: public bytes; another tweak is another permutation.
        numerals: a row for each string, its numerals from 0 to radix − 1, most significant first.
        radix: number of numerals, from 2 to 65,536.

    Raises:
        BadNumber: there are fewer than a million such strings, or a numeral is out of range.

    >>> key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    >>> ff1_encrypt(key, b"", np.arange(10)[None, :], 10)
    array([[2, 4, 3, 3, 4, 7, 7, 4, 8, 4]])
    """
    return _Feistel(key, tweak, numerals, radix).run(numerals, range(_ROUNDS), 1)


def ff1_decrypt(key: bytes, tweak: bytes, numerals: Integers, radix: int) -> Integers:
    """Decrypt what `ff1_encrypt` returned for the same key, tweak and radix."""
    return _Feistel(key, tweak, numerals, radix).run(numerals, range(_ROUNDS - 1, -1, -1), -1)


class _Feistel:
    """The rounds of FF1 for strings of one length. Letters are those of the standard (algorithms 7 and 8)."""

    def __init__(self, key: bytes, tweak: bytes, numerals: Integers, radix: int) -> None:
        n = numerals.shape[1]
        if not 2 <= radix <= 2**16 or radix**n < LEAST:
            raise BadNumber("FF1 needs a radix from 2 to 65,536 and at least a million possible strings.")
        if numerals.size and not (numerals.min() >= 0 and numerals.max() < radix):
            raise BadNumber("a numeral is outside 0 to radix − 1.")
        self.radix, self.u, self.v = radix, n // 2, n - n // 2
        self.b = ((radix**self.v - 1).bit_length() + 7) // 8
        self.d = 4 * ((self.b + 3) // 4) + 4
        self.small = radix**self.v <= _SMALL
        self.encrypt = _aes(key)
        p = b"\x01\x02\x01" + radix.to_bytes(3) + bytes([10, self.u % 256]) + n.to_bytes(4) + len(tweak).to_bytes(4)
        self.start = self.encrypt(np.frombuffer(p, np.uint8)[None, :])
        self.head = np.frombuffer(tweak + bytes((-len(tweak) - self.b - 1) % 16), np.uint8)

    def run(self, numerals: Integers, rounds: range, sign: int) -> Integers:
        left, right = self._number(numerals[:, : self.u]), self._number(numerals[:, self.u :])
        for i in rounds:
            modulus = self.radix ** (self.u if i % 2 == 0 else self.v)
            if sign > 0:
                left, right = right, self._shift(left, self._y(i, right, modulus), modulus)
            else:
                left, right = self._shift(right, -self._y(i, left, modulus), modulus), left
        return np.hstack([self._numerals(left, self.u), self._numerals(right, self.v)])

    def _shift(self, half: Any, amount: Any, modulus: int) -> Any:
        return (half + amount) % modulus

    def _y(self, i: int, half: Any, modulus: int) -> Any:
        """Return the round function of a half, modulo the size of the other half."""
        q = np.hstack(
            [
                np.broadcast_to(self.head, (len(half), len(self.head))),
                np.full((len(half), 1), i, np.uint8),
                self._bytes(half),
            ]
        )
        state = np.broadcast_to(self.start, (len(half), 16))
        for block in range(0, q.shape[1], 16):  # CBC-MAC
            state = self.encrypt(state ^ q[:, block : block + 16])
        blocks = [state]
        for j in range(1, (self.d + 15) // 16):
            blocks.append(self.encrypt(state ^ np.frombuffer(j.to_bytes(16), np.uint8)))
        s = np.ascontiguousarray(np.hstack(blocks)[:, : self.d])
        if not self.small:
            return np.array([int.from_bytes(row.tobytes()) % modulus for row in s] + [None], dtype=object)[:-1]
        y = np.zeros(len(half), np.uint64)
        for word in s.view(">u4").astype(np.uint64).T:
            y = ((y << np.uint64(32)) | word) % np.uint64(modulus)
        return y.astype(np.int64)

    def _bytes(self, half: Any) -> Bytes:
        if self.small:
            return np.asarray(half.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - self.b :])
        joined = b"".join(int(number).to_bytes(self.b) for number in half)
        return np.frombuffer(joined, np.uint8).reshape(-1, self.b)

    def _number(self, numerals: Integers) -> Any:
        number = np.zeros(len(numerals), np.int64 if self.small else object)
        for column in numerals.T:
            number = number * self.radix + (column if self.small else column.astype(object))
        return number

    def _numerals(self, number: Any, length: int) -> Integers:
        columns = []
        for _ in range(length):
            columns.append((number % self.radix).astype(np.int64))
            number = number // self.radix
        return np.column_stack(columns[::-1])


def _aes(key: bytes) -> Any:
    """Return a function that encrypts blocks, a row each, with AES."""
    if len(key) not in (16, 24, 32):
        raise BadNumber("an AES key has 16, 24 or 32 bytes.")
    encryptor = Cipher(AES(key), ECB()).encryptor()  # noqa: S305  # the block cipher itself, inside CBC-MAC

    def encrypt(blocks: Bytes) -> Bytes:
        return np.frombuffer(encryptor.update(np.ascontiguousarray(blocks).tobytes()), np.uint8).reshape(-1, 16)

    return encrypt


def permute(
    key: bytes, tweak: bytes, numerals: Integers, radices: tuple[int, ...], *, inverse: bool = False
) -> Integers:
    """Permute numeral strings whose positions have different alphabets, by a key. See the module for the methods.

    Args:
        key: an AES key.
        tweak: public bytes.
        numerals: a row for each string.
        radices: number of numerals at each position.
        inverse: undo the permutation.
    """
    size = int(np.prod(np.array(radices, dtype=object))) if radices else 1
    if size == 1 or not len(numerals):
        return numerals
    if size >= LEAST and len(set(radices)) == 1:
        return (ff1_decrypt if inverse else ff1_encrypt)(key, tweak, numerals, radices[0])
    numbers = np.zeros(len(numerals), object if size >= LEAST else np.int64)
    for radix, column in zip(radices, numerals.T, strict=True):
        numbers = numbers * radix + (column.astype(object) if size >= LEAST else column)
    walked = _walk(key, tweak, numbers, size, inverse) if size >= LEAST else _prefix(key, tweak, numbers, size, inverse)
    columns = []
    for radix in reversed(radices):
        columns.append((walked % radix).astype(np.int64))
        walked = walked // radix
    return np.column_stack(columns[::-1])


def _walk(key: bytes, tweak: bytes, numbers: Any, size: int, inverse: bool) -> Any:
    """Encrypt numbers in base 2 until they are below the size; fewer than two times on average."""
    bits = (size - 1).bit_length()
    cipher = ff1_decrypt if inverse else ff1_encrypt
    powers = [1 << bit for bit in range(bits - 1, -1, -1)]
    result, outside = numbers.copy(), np.arange(len(numbers))
    while len(outside):
        numerals = np.column_stack([(result[outside] // power % 2).astype(np.int64) for power in powers])
        encrypted = cipher(key, tweak, numerals, 2)
        result[outside] = sum(column.astype(object) * power for column, power in zip(encrypted.T, powers, strict=True))
        outside = outside[(result[outside] >= size).astype(bool)]
    return result


def _prefix(key: bytes, tweak: bytes, numbers: Integers, size: int, inverse: bool) -> Integers:
    """Permute 0 to size − 1 by the order of their AES values."""
    encrypt = _aes(key)
    # The tweak and the size select the permutation: a CBC-MAC of them is added to every block.
    message = size.to_bytes(16) + len(tweak).to_bytes(16) + tweak + bytes(-len(tweak) % 16)
    state = np.zeros((1, 16), np.uint8)
    for block in np.frombuffer(message, np.uint8).reshape(-1, 16):
        state = encrypt(state ^ block)
    blocks = np.zeros((size, 16), np.uint8)
    blocks[:, 8:] = np.arange(size, dtype=">u8").view(np.uint8).reshape(-1, 8)
    images = encrypt(blocks ^ state).view("<u8")[:, 0]  # 64 bits of each; equal ones are as good as never
    order = np.argsort(images, kind="stable")
    if inverse:
        return np.asarray(order[numbers], dtype=np.int64)
    ranks = np.empty(size, np.int64)
    ranks[order] = np.arange(size)
    return ranks[numbers]
