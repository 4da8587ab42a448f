"""Base transfers: one key of two, a fresh one each time, and no point outside the group."""

from collections import Counter

import pytest
from nacl import bindings as group

from cloister.privacy.errors import ChannelBroken
from cloister.privacy.noise.source import SYSTEM, SeededSource
from cloister.vault.circuits.base_transfer import _hash_to_group, receive_keys, send_keys

from .parties import channels, failure_of, run_both

ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture
def pair():
    made = channels()
    yield made
    for channel in made:
        channel.abort()


def test_the_receiver_gets_the_chosen_key_of_each_pair(pair):
    choices = [bool(int(bit)) for bit in "0110100110"]
    (offered, left), (got, right) = run_both(
        lambda: send_keys(pair[0], 10, SYSTEM), lambda: receive_keys(pair[1], choices, SYSTEM)
    )
    assert got == [keys[choice] for keys, choice in zip(offered, choices, strict=True)]
    assert left == right
    assert len({key for keys in offered for key in keys}) == 20


def test_equal_exponents_give_other_keys_in_another_run():
    found = []
    for _ in range(2):
        first, second = channels()
        (keys, _), _ = run_both(
            lambda: send_keys(first, 1, SeededSource(1)),  # noqa: B023
            lambda: receive_keys(second, [True], SeededSource(2)),  # noqa: B023
        )
        found.append(keys)
        first.abort()
        second.abort()
    assert found[0] != found[1]


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),  # order 4
        b"\x01" + bytes(31),  # the identity
        b"\xff" * 32,  # not in its one encoding
        b"\x02" + bytes(31),  # not on the curve
        group.crypto_core_ed25519_add(  # on the curve, outside the subgroup of prime order
            group.crypto_scalarmult_ed25519_base_noclamp(b"\x05" + bytes(31)), bytes(32)
        ),
    ],
)
def test_points_outside_the_group_are_refused_by_both_parties(point):
    good = group.crypto_scalarmult_ed25519_base_noclamp(b"\x07" + bytes(31))
    for sent in (point + good, good + point):
        first, second = channels()
        second.send("base transfer, receiver", sent)
        told = failure_of(lambda: send_keys(first, 1, SYSTEM), ChannelBroken)  # noqa: B023
        assert "no element of the group" in told
        second.abort()
    for sent in (point + good, good + point):
        for choice in (False, True):
            first, second = channels()
            first.send("base transfer, sender", sent)
            told = failure_of(lambda: receive_keys(second, [choice], SYSTEM), ChannelBroken)  # noqa: B023
            assert "no element of the group" in told
            first.abort()


def test_a_receiver_whose_point_cancels_the_hash_is_refused(pair):
    # own = -H(other): the sender's base would be the identity.
    other = group.crypto_scalarmult_ed25519_base_noclamp(b"\x07" + bytes(31))
    mask = _hash_to_group(pair[0].session, 0, False, other)
    negated = group.crypto_scalarmult_ed25519_noclamp((ORDER - 1).to_bytes(32, "little"), mask)
    pair[1].send("base transfer, receiver", negated + other)
    failure_of(lambda: send_keys(pair[0], 1, SYSTEM), ChannelBroken)


def test_the_hash_depends_on_run_number_place_and_point():
    good = group.crypto_scalarmult_ed25519_base_noclamp(b"\x07" + bytes(31))
    points = [
        _hash_to_group(session, index, place, point)
        for session in (bytes(32), b"1" * 32)
        for index in (0, 1)
        for place in (False, True)
        for point in (good, group.crypto_core_ed25519_add(good, good))
    ]
    assert len(set(points)) == 16
    assert all(group.crypto_core_ed25519_is_valid_point(point) for point in points)


class Recording:
    """A channel that keeps what is sent and answers with a point of the group."""

    session = bytes(32)

    def __init__(self):
        self.sent = b""

    def send(self, step, body):
        self.sent += body

    def receive(self, step, size):
        return group.crypto_scalarmult_ed25519_base_noclamp(b"\x07" + bytes(31)) * (size // 32)


def test_what_the_receiver_sends_looks_alike_for_both_choices():
    # Low bits of both points, which say something of a point that is not uniform: ones are half, within 5 deviations.
    for choice in (False, True):
        channel = Recording()
        receive_keys(channel, [choice] * 400, SeededSource(3))
        points = [channel.sent[at : at + 32] for at in range(0, len(channel.sent), 32)]
        for place in (0, 1):
            ones = Counter(point[0] & 1 for point in points[place::2])[1]
            assert abs(ones - 200) < 50
            assert len(set(points[place::2])) == 400
