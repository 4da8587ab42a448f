"""Extended oblivious transfers: right for every choice, and a receiver that cheats is caught."""

import time

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, ChannelBroken, PeerLost
from cloister.vault.circuits import transfer
from cloister.vault.circuits.label_hash import LabelHash
from cloister.vault.circuits.transfer import TransferReceiver, TransferSender

from .parties import channels, failure_of, run_both


def words(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, size=shape, dtype=np.uint64)


def bits(count, seed=1):
    return np.random.default_rng(seed).integers(0, 2, size=count).astype(bool)


@pytest.fixture(scope="module")
def halves():
    first, second = channels()
    pair = run_both(lambda: TransferSender.open(first), lambda: TransferReceiver.open(second))
    yield pair
    first.abort()
    second.abort()


@pytest.mark.parametrize("count", [0, 1, 7, 128, 129, 1000])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_receiver_gets_the_chosen_message_and_no_other(halves, count, size):
    sender, receiver = halves
    zero, one, choices = words(count, size), words(count, size, seed=5), bits(count)
    _, got = run_both(lambda: sender.send(zero, one), lambda: receiver.receive(choices, words=size))
    assert np.array_equal(got, np.where(choices[:, None], one, zero))


def test_random_messages_are_all_different_and_the_receiver_has_one_of_two(halves):
    sender, receiver = halves
    choices = bits(3000)
    (zero, one), got = run_both(lambda: sender.random(3000), lambda: receiver.random(choices))
    assert np.array_equal(got, np.where(choices[:, None], one, zero))
    assert len(np.unique(np.vstack([zero, one]), axis=0)) == 6000


def test_correlated_messages_differ_by_the_offset_in_the_ring(halves):
    sender, receiver = halves
    choices, offsets = bits(500), words(500, 3)
    base, got = run_both(lambda: sender.correlated(offsets), lambda: receiver.correlated(choices, words=3))
    assert np.array_equal(got - base, offsets * choices[:, None])


def test_products_in_the_ring_are_shared_by_correlated_transfers(halves):
    sender, receiver = halves
    x, y = words(20, seed=3), words(20, seed=4)
    places = np.arange(64, dtype=np.uint64)
    offsets = (x[:, None] << places).reshape(-1, 1)
    choices = (((y[:, None] >> places) & np.uint64(1)) == 1).reshape(-1)
    base, got = run_both(lambda: sender.correlated(offsets), lambda: receiver.correlated(choices, words=1))
    shares = (got - base).reshape(20, 64).sum(axis=1, dtype=np.uint64)
    assert np.array_equal(shares, x * y)


def test_long_messages_are_sent_in_parts(halves, monkeypatch):
    monkeypatch.setattr(transfer, "_BATCH", 256)
    sender, receiver = halves
    zero, one, choices = words(700, 70), words(700, 70, seed=5), bits(700)
    _, got = run_both(lambda: sender.send(zero, one), lambda: receiver.receive(choices, words=70))
    assert np.array_equal(got, np.where(choices[:, None], one, zero))


def test_the_bit_matrix_is_transposed():
    columns = words(128, 6)
    expected = np.unpackbits(columns.view(np.uint8), axis=1, bitorder="little").T[:301]
    assert np.array_equal(
        np.unpackbits(transfer._rows(columns, 301).view(np.uint8), axis=1, bitorder="little"), expected
    )


def test_the_hash_of_columns_is_linear_and_sees_single_bits():
    coin, size = bytes(range(16)), 16 * 9
    left, right = words(4, 18), words(4, 18, seed=2)
    hashed = [transfer._column_hash(columns, coin, size) for columns in (left, right, left ^ right)]
    assert np.array_equal(hashed[0] ^ hashed[1], hashed[2])
    single = np.zeros((18 * 64, 18), dtype=np.uint64)
    single[np.arange(18 * 64), np.arange(18 * 64) // 64] = np.uint64(1) << (np.arange(18 * 64) % 64).astype(np.uint64)
    found = transfer._column_hash(single, coin, size)
    assert len(np.unique(found, axis=0)) == len(found)
    assert found.any(axis=1).all()


class Cheating:
    """A channel of a receiver that flips its first choice in some columns, to learn bits of the sender's offset."""

    def __init__(self, channel, columns):
        self.inner, self.columns = channel, columns
        self.receive = channel.receive

    def send(self, step, body):
        if step == "transfer columns":
            matrix = np.frombuffer(body, dtype=np.uint8).reshape(128, -1).copy()
            matrix[self.columns, 0] ^= 1
            body = matrix.reshape(-1).data
        self.inner.send(step, body)


def cheat_in(columns_of):
    """What the sender says to a receiver that cheats in columns chosen by the sender's offset."""
    first, second = channels()
    sender, cheat = run_both(lambda: TransferSender.open(first), lambda: TransferReceiver.open(second))
    cheat._channel = Cheating(second, columns_of(sender._offset_bits))

    def offer():
        try:
            sender.random(100)
        except ChannelBroken as error:
            return str(error)
        return "nothing"

    told, _ = run_both(offer, lambda: cheat.random(bits(100)))
    first.abort()
    second.abort()
    return told


def test_a_receiver_with_inconsistent_choices_is_caught():
    # It escapes if all of the 64 bits that it guesses are 0: probability 2^-64.
    assert "do not agree" in cheat_in(lambda offset: np.arange(64))
    assert "do not agree" in cheat_in(lambda offset: np.flatnonzero(offset)[:1])


def test_a_receiver_that_guesses_a_bit_of_the_offset_right_escapes_as_the_proof_allows():
    assert cheat_in(lambda offset: np.flatnonzero(~offset)[:1]) == "nothing"


def test_halves_that_disagree_on_sizes_are_refused():
    first, second = channels(timeout_s=5)
    sender, receiver = run_both(lambda: TransferSender.open(first), lambda: TransferReceiver.open(second))

    def part(call, channel):
        try:
            call()
        except (ChannelBroken, PeerLost) as error:
            return type(error).__name__
        finally:
            channel.abort()
        return "finished"

    told = run_both(
        lambda: part(lambda: sender.random(1000), first), lambda: part(lambda: receiver.random(bits(10)), second)
    )
    assert told == ("ChannelBroken", "PeerLost")


def test_bad_arguments_are_refused_before_anything_is_sent(halves):
    sender, receiver = halves
    before = sender._channel.sent_bytes, receiver._channel.sent_bytes
    for call in (
        lambda: sender.random(-1),
        lambda: sender.random(3, words=0),
        lambda: sender.correlated(np.zeros(3, dtype=np.uint64)),
        lambda: sender.correlated(np.zeros((3, 1), dtype=np.int64)),
        lambda: sender.send(words(3, 2), words(3, 1)),
        lambda: receiver.random(np.array([0, 1])),
        lambda: receiver.receive(np.zeros((2, 2), dtype=bool)),
    ):
        failure_of(call, BadInput)
    assert before == (sender._channel.sent_bytes, receiver._channel.sent_bytes)


def test_neither_half_prints_a_secret(halves):
    for half in halves:
        text = repr(half)
        assert len(text) < 60
        assert not any(str(word) in text for word in np.frombuffer(halves[0]._offset.tobytes(), dtype=np.uint64))


def test_the_hash_is_the_published_one():
    # TMMO computed block by block with the one-block interface of the same cipher.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    def one(block):
        return Cipher(algorithms.AES(bytes(range(16))), modes.ECB()).encryptor().update(block)

    blocks, tweaks = words(20, 2), words(20, seed=9)
    got = LabelHash(bytes(range(16))).hash(blocks, tweaks)
    for block, tweak, result in zip(blocks, tweaks, got, strict=True):
        inner = one(block.tobytes())
        masked = bytes(a ^ b for a, b in zip(inner, tweak.tobytes() + bytes(8), strict=True))
        assert bytes(a ^ b for a, b in zip(one(masked), inner, strict=True)) == result.tobytes()
    failure_of(lambda: LabelHash(b"short"), BadInput)


def test_a_hundred_thousand_transfers_take_seconds(halves):
    sender, receiver = halves
    began = time.monotonic()
    run_both(lambda: sender.random(100_000), lambda: receiver.random(bits(100_000)))
    assert time.monotonic() - began < 20
