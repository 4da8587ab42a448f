"""Oblivious transfers, extended: many transfers from 128 of the expensive kind.

Parties: a sender with two messages a transfer, and a receiver with a secret choice.
Learned: the receiver learns the messages that it chose, the sender nothing.
Collusion: none to consider; there are two parties.
An active attacker: a receiver that uses other choices in one column than in another is caught by the consistency check
except with probability about 2^-128, or learns bits of the sender's secret offset at the price of being caught
with probability 1/2 a bit, which the proof allows for. A cheating sender learns nothing; it may make the run
end. What a malicious party does get to choose is its own *random* strings ("endemic"), so random and correlated
transfers are to be used as masks, never as a common coin. That messages are well formed for what they are used for
(labels of a circuit, products in a ring) is not proven by this layer.
Tests: tests/unit/vault/circuits/test_transfer.py.

The extension is that of Ishai, Kilian, Nissim and Petrank (CRYPTO 2003) with the consistency check of Keller, Orsini
and Scholl (CRYPTO 2015) in the form whose proof holds: a universal linear hash of every column, masked by extra columns
(Roy, SoftSpokenOT, CRYPTO 2022, section 4 with k = 1; he shows a gap in the first proof of KOS). The hash is a uniform
128-row bit matrix, drawn by the sender after the receiver's columns have arrived.
"""

import hashlib
import threading
from collections.abc import Iterator
from hmac import compare_digest

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, ChannelBroken
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.vault.circuits.base_transfer import KEY_BYTES, receive_keys, send_keys
from cloister.vault.circuits.channel import Channel
from cloister.vault.circuits.label_hash import BLOCK_BYTES, Blocks, LabelHash
from cloister.vault.secret import Secret

__all__ = ["TransferReceiver", "TransferSender", "Words"]

Words = NDArray[np.uint64]  # shape (n, words)
_Bits = NDArray[np.bool_]

_COLUMNS = 128
_BATCH = 1 << 18  # transfers in one message: its columns are 4 MiB
_MOST_WORDS = 1 << 16
_SPREAD = 48  # tweaks are the transfer's number in the low 48 bits, the number of the block above


class TransferSender(Secret):
    """The sender's half. Both halves make the same calls, with the same sizes, in the same order."""

    __slots__ = ("_channel", "_columns", "_done", "_hash", "_lock", "_offset", "_offset_bits", "_source")

    def __init__(self, channel: Channel, offset: bytes, keys: list[bytes], transcript: bytes, source: Source) -> None:
        self._channel = channel
        self._source = source
        self._offset = np.frombuffer(offset, dtype=np.uint64)
        self._offset_bits = _bits(offset)
        self._columns = [_stream(key) for key in keys]
        self._hash = LabelHash(_hash_key(channel, transcript))
        self._done, self._lock = 0, threading.Lock()

    @classmethod
    def open(cls, channel: Channel, *, source: Source = SYSTEM) -> "TransferSender":
        """Run the base transfers, in which this party is the receiver of keys.

        Args:
            channel: the channel to the receiver.
            source: where the secret offset comes from.
        """
        offset = source.bytes(_COLUMNS // 8)
        keys, transcript = receive_keys(channel, _bits(offset).tolist(), source)
        return cls(channel, offset, keys, transcript, source)

    def random(self, count: int, *, words: int = 2) -> tuple[Words, Words]:
        """Return two random messages of each transfer; the receiver gets the one that it chooses.

        Args:
            count: the number of transfers.
            words: the length of a message in words of 64 bits.
        """
        _check_size(count, words)
        zero, one = (np.empty((count, words), dtype=np.uint64) for _ in range(2))
        for part in _parts(count):
            with self._lock:  # no number is used for two rows
                rows = self._extend(part.stop - part.start)
                numbers = np.arange(self._done, self._done + len(rows), dtype=np.uint64)
                self._done += len(rows)
                zero[part] = _pads(self._hash, rows, numbers, words)
                rows ^= self._offset
                one[part] = _pads(self._hash, rows, numbers, words)
        return zero, one

    def correlated(self, offsets: Words) -> Words:
        """Return random words r; the receiver gets r, or r + offset modulo 2^64, as it chooses.

        Args:
            offsets: the secret differences, shape (n, words).
        """
        offsets = _checked(offsets)
        zero, one = self.random(*offsets.shape[:1], words=offsets.shape[1])
        for part in _parts(*zero.shape):
            self._channel.send("correlated transfer", _raw(zero[part] - one[part] + offsets[part]))
        return zero

    def send(self, zero: Words, one: Words) -> None:
        """Send two messages of each transfer, of which the receiver reads one.

        Args:
            zero: the messages for the choice False, shape (n, words).
            one: those for the choice True, in the same shape.
        """
        zero, one = _checked(zero), _checked(one)
        if zero.shape != one.shape:
            raise BadInput("both messages of a transfer have the same length. Give two arrays of one shape.")
        masks = self.random(len(zero), words=zero.shape[1])
        for part in _parts(*zero.shape):
            for mask, message in zip(masks, (zero, one), strict=True):
                self._channel.send("chosen transfer", _raw(mask[part] ^ message[part]))

    def __repr__(self) -> str:
        return f"<TransferSender, {self._done} transfers>"

    def _extend(self, count: int) -> Blocks:
        """Return row j of q = t xor (choice_j and offset), of which the receiver holds t."""
        size = _column_bytes(count)
        raw = self._channel.receive("transfer columns", size=_COLUMNS * size)
        columns = np.frombuffer(raw, dtype=np.uint64).reshape(_COLUMNS, -1).copy()
        columns[~self._offset_bits] = 0
        for column, stream in zip(columns, self._columns, strict=True):
            column ^= _draw(stream, size)
        self._check(columns, size)
        return _rows(columns, count)

    def _check(self, columns: Words, size: int) -> None:
        coin = self._source.bytes(KEY_BYTES)
        self._channel.send("transfer coin", coin)
        answer = self._channel.receive("transfer check", size=(_COLUMNS + 1) * BLOCK_BYTES)
        claimed = np.frombuffer(answer, dtype=np.uint64).reshape(_COLUMNS + 1, 2)
        expected = claimed[:-1] ^ (claimed[-1] * self._offset_bits[:, None])
        if not compare_digest(_column_hash(columns, coin, size).tobytes(), expected.tobytes()):
            self._channel.abort()
            raise ChannelBroken(
                "the receiver's columns of the oblivious transfer do not agree with each other. The run is over and "
                "gave no output. Do not trust this peer."
            )


class TransferReceiver(Secret):
    """The receiver's half. Both halves make the same calls, with the same sizes, in the same order."""

    __slots__ = ("_channel", "_columns", "_done", "_hash", "_lock", "_source")

    def __init__(self, channel: Channel, keys: list[tuple[bytes, bytes]], transcript: bytes, source: Source) -> None:
        self._channel = channel
        self._source = source
        self._columns = [(_stream(zero), _stream(one)) for zero, one in keys]
        self._hash = LabelHash(_hash_key(channel, transcript))
        self._done, self._lock = 0, threading.Lock()

    @classmethod
    def open(cls, channel: Channel, *, source: Source = SYSTEM) -> "TransferReceiver":
        """Run the base transfers, in which this party is the sender of keys.

        Args:
            channel: the channel to the sender.
            source: where the secret exponents and the masks of the check come from.
        """
        keys, transcript = send_keys(channel, _COLUMNS, source)
        return cls(channel, keys, transcript, source)

    def random(self, choices: NDArray[np.bool_], *, words: int = 2) -> Words:
        """Return the chosen one of two random messages of each transfer.

        Args:
            choices: the secret choices, shape (n,).
            words: the length of a message in words of 64 bits.
        """
        choices = np.asarray(choices)
        if choices.dtype != np.bool_ or choices.ndim != 1:
            raise BadInput("choices are one array of booleans, a choice for each transfer. Give shape (n,).")
        _check_size(len(choices), words)
        chosen = np.empty((len(choices), words), dtype=np.uint64)
        for part in _parts(len(choices)):
            with self._lock:  # no number is used for two rows
                rows = self._extend(choices[part])
                numbers = np.arange(self._done, self._done + len(rows), dtype=np.uint64)
                self._done += len(rows)
                chosen[part] = _pads(self._hash, rows, numbers, words)
        return chosen

    def correlated(self, choices: NDArray[np.bool_], *, words: int = 2) -> Words:
        """Return r, or r + offset modulo 2^64 where the choice is True; the sender has r and the offsets.

        Args:
            choices: the secret choices, shape (n,).
            words: the length of a message in words of 64 bits.
        """
        chosen = self.random(choices, words=words)
        for part in _parts(*chosen.shape):
            chosen[part] += self._message("correlated transfer", chosen[part].shape) * choices[part, None]
        return chosen

    def receive(self, choices: NDArray[np.bool_], *, words: int = 2) -> Words:
        """Return the chosen one of the sender's two messages of each transfer.

        Args:
            choices: the secret choices, shape (n,).
            words: the length of a message in words of 64 bits.
        """
        chosen = self.random(choices, words=words)
        for part in _parts(*chosen.shape):
            sent = [self._message("chosen transfer", chosen[part].shape) for _ in range(2)]
            chosen[part] ^= np.where(choices[part, None], sent[1], sent[0])
        return chosen

    def __repr__(self) -> str:
        return f"<TransferReceiver, {self._done} transfers>"

    def _message(self, step: str, shape: tuple[int, ...]) -> Words:
        raw = self._channel.receive(step, size=8 * shape[0] * shape[1])
        return np.frombuffer(raw, dtype=np.uint64).reshape(shape)

    def _extend(self, choices: _Bits) -> Blocks:
        """Return the rows t of the matrix whose columns the two keys of each base transfer hide."""
        size = _column_bytes(len(choices))
        packed = np.frombuffer(self._source.bytes(size), dtype=np.uint8).copy()
        bits = np.unpackbits(packed[: size - BLOCK_BYTES], bitorder="little")
        bits[: len(choices)] = choices
        packed[: size - BLOCK_BYTES] = np.packbits(bits, bitorder="little")
        column = packed.view(np.uint64)
        kept = np.empty((_COLUMNS + 1, size // 8), dtype=np.uint64)
        sent = np.empty((_COLUMNS, size // 8), dtype=np.uint64)
        for place, (zero, one) in enumerate(self._columns):
            kept[place] = _draw(zero, size)
            np.bitwise_xor(kept[place], _draw(one, size), out=sent[place])
        sent ^= column
        kept[-1] = column
        self._channel.send("transfer columns", _raw(sent))
        coin = self._channel.receive("transfer coin", size=KEY_BYTES)
        self._channel.send("transfer check", _raw(_column_hash(kept, coin, size)))
        return _rows(kept[:-1], len(choices))


def _column_bytes(count: int) -> int:
    """Return the bytes of a column: the transfers, filled up to blocks, and one block that masks the check."""
    return (-(-count // _COLUMNS) + 1) * BLOCK_BYTES


def _column_hash(columns: Words, coin: bytes, size: int) -> Words:
    """Return 128 bits of each column: a random bit matrix times the column, plus the column's last block.

    Two columns that differ have equal hashes with probability 2^-128 over the coin. The last block is uniform and is
    used for nothing else: the hash says nothing of the rest of a column.
    """
    words = (size - BLOCK_BYTES) // 8
    matrix = _draw(_stream(coin), _COLUMNS * words * 8).reshape(_COLUMNS, words)
    parities = np.empty((len(columns), _COLUMNS), dtype=np.uint8)
    head = np.ascontiguousarray(columns[:, :words])
    room = np.empty_like(head)
    for place, row in enumerate(matrix):
        np.bitwise_and(head, row, out=room)
        parities[:, place] = np.bitwise_count(np.bitwise_xor.reduce(room, axis=1)) & 1
    hashed = np.packbits(parities, axis=1, bitorder="little").view(np.uint64)
    return np.asarray(hashed ^ columns[:, words:])


def _rows(columns: Words, count: int) -> Blocks:
    """Transpose the bit matrix: 128 columns to `count` rows of 128 bits."""
    rows = np.empty((-(-count // 8) * 8, BLOCK_BYTES), dtype=np.uint8)
    raw = columns.view(np.uint8)
    step = 1 << 10  # bytes of a column, so that the unpacked bits stay in the cache
    for at in range(0, len(rows) // 8, step):
        some = raw[:, at : min(at + step, len(rows) // 8)]
        bits = np.unpackbits(some, axis=1, bitorder="little")
        rows[8 * at : 8 * at + bits.shape[1]] = np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little")
    return rows.view(np.uint64)[:count]


def _pads(label_hash: LabelHash, rows: Blocks, numbers: NDArray[np.uint64], words: int) -> Words:
    """Hash each row to this many words. The hash breaks the relation of the rows by the sender's offset."""
    blocks = -(-words // 2)
    pads = np.empty((len(rows), blocks, 2), dtype=np.uint64)
    for block in range(blocks):
        pads[:, block] = label_hash.hash(rows, numbers | np.uint64(block << _SPREAD))
    return pads.reshape(len(rows), 2 * blocks)[:, :words]


def _hash_key(channel: Channel, transcript: bytes) -> bytes:
    return hashlib.sha256(b"cloister transfer hash 1" + channel.session + transcript).digest()[:BLOCK_BYTES]


def _stream(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(BLOCK_BYTES))).encryptor()


def _draw(stream: CipherContext, size: int) -> Words:
    return np.frombuffer(stream.update(bytes(size)), dtype=np.uint64)


def _bits(raw: bytes) -> _Bits:
    return np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little").astype(np.bool_)


def _raw(words: Words) -> memoryview:
    return np.ascontiguousarray(words).reshape(-1).view(np.uint8).data


def _parts(count: int, words: int = 1) -> Iterator[slice]:
    """Split transfers into parts whose messages, of that many words each, are short enough to be sent."""
    step = max(_BATCH // words, 1)
    return (slice(at, min(at + step, count)) for at in range(0, count, step))


def _check_size(count: int, words: int) -> None:
    if count < 0 or not 1 <= words <= _MOST_WORDS:
        raise BadInput(f"messages have 1 to {_MOST_WORDS} words of 64 bits, and their number is not negative.")


def _checked(messages: Words) -> Words:
    if not isinstance(messages, np.ndarray) or messages.dtype != np.uint64 or messages.ndim != 2:
        raise BadInput("messages are an array of 64-bit words without sign, shape (n, words). Convert them first.")
    return messages
