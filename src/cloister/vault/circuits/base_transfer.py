"""Oblivious transfers of random keys from a Diffie-Hellman exchange: the few that an extension starts from.

Parties: a sender, which gets two keys of each transfer, and a receiver, which gets the one that its secret bit chooses.
Learned: the sender learns nothing of the bits, the receiver nothing of the other keys.
Collusion: none to consider; there are two parties.
An active attacker gains nothing more than that: the protocol is that of Masny and Rindal (Endemic oblivious transfer,
CCS 2019), secure against malicious senders and receivers in the random-oracle model under the
computational Diffie-Hellman assumption. "Endemic" means that a cheating party may steer the keys which it gets itself.
That suffices for keys that encrypt messages; do not use them as a common coin.
Tests: tests/unit/vault/circuits/test_base_transfer.py.

The group is the subgroup of prime order of edwards25519. PyNaCl has no bindings of ristretto255; instead of a quotient
without a cofactor, each point received is checked to lie in the subgroup, in its one encoding.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloister.privacy.errors import ChannelBroken, MissingExtra
from cloister.privacy.noise.source import Source
from cloister.vault.circuits.channel import Channel

if TYPE_CHECKING:
    from nacl import bindings as group
else:
    try:
        from nacl import bindings as group
    except ModuleNotFoundError:
        raise MissingExtra("oblivious transfer needs PyNaCl. Run: pip install 'cloister[crypto]'") from None

__all__ = ["KEY_BYTES", "receive_keys", "send_keys"]

KEY_BYTES = 16
_POINT = 32
_LABEL = b"cloister base transfer 1"


def receive_keys(channel: Channel, choices: Sequence[bool], source: Source) -> tuple[list[bytes], bytes]:
    """Choose one key of each pair.

    Args:
        channel: the channel to the sender.
        choices: the secret bits.
        source: where the secret exponents come from.

    Returns:
        the chosen keys, and a hash of all points exchanged, equal on both sides.
    """
    pairs, exponents = [], []
    for index, choice in enumerate(choices):
        exponent, other = _scalar(source), group.crypto_scalarmult_ed25519_base_noclamp(_scalar(source))
        # The point of the other place is uniform; the chosen one is g^exponent less the hash of the other, which is
        # uniform too. So the pair says nothing of the choice. Nobody knows both discrete logarithms of the sums.
        mask = _hash_to_group(channel.session, index, bool(choice), other)
        own = group.crypto_core_ed25519_sub(group.crypto_scalarmult_ed25519_base_noclamp(exponent), mask)
        pairs.append((other, own) if choice else (own, other))
        exponents.append(exponent)
    sent = b"".join(point for pair in pairs for point in pair)
    channel.send("base transfer, receiver", sent)
    answer = channel.receive("base transfer, sender", size=2 * _POINT * len(pairs))
    # Both points of a pair are checked, so that a refusal does not depend on the choice.
    points = [_checked(channel, answer[at : at + _POINT]) for at in range(0, len(answer), _POINT)]
    keys = []
    for index, (choice, exponent) in enumerate(zip(choices, exponents, strict=True)):
        point = points[2 * index + bool(choice)]
        shared = group.crypto_scalarmult_ed25519_noclamp(exponent, point)
        keys.append(_key(channel.session, index, bool(choice), *pairs[index], point, shared))
    return keys, hashlib.sha256(_LABEL + sent + answer).digest()


def send_keys(channel: Channel, count: int, source: Source) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Offer pairs of random keys.

    Args:
        channel: the channel to the receiver.
        count: the number of pairs.
        source: where the secret exponents come from.

    Returns:
        the pairs, and a hash of all points exchanged, equal on both sides.
    """
    received = channel.receive("base transfer, receiver", size=2 * _POINT * count)
    points = [_checked(channel, received[at : at + _POINT]) for at in range(0, len(received), _POINT)]
    answer, keys = [], []
    for index, (zero, one) in enumerate(zip(points[::2], points[1::2], strict=True)):
        pair = []
        for place, (own, other) in enumerate(((zero, one), (one, zero))):
            # An exponent for each place: with one for both, the proof would need an interactive assumption.
            exponent = _scalar(source)
            point = group.crypto_scalarmult_ed25519_base_noclamp(exponent)
            base = group.crypto_core_ed25519_add(own, _hash_to_group(channel.session, index, bool(place), other))
            # The sum is the identity only for a receiver that knows a preimage of the hash.
            shared = group.crypto_scalarmult_ed25519_noclamp(exponent, _checked(channel, base))
            pair.append(_key(channel.session, index, bool(place), zero, one, point, shared))
            answer.append(point)
        keys.append((pair[0], pair[1]))
    sent = b"".join(answer)
    channel.send("base transfer, sender", sent)
    return keys, hashlib.sha256(_LABEL + received + sent).digest()


def _scalar(source: Source) -> bytes:
    """Draw an exponent; the bias from reducing 512 bits is below 2^-250."""
    return bytes(group.crypto_core_ed25519_scalar_reduce(source.bytes(64)))


def _hash_to_group(session: bytes, index: int, place: bool, point: bytes) -> bytes:
    """Hash to the group as a random oracle: a sum of two Elligator points (Brier et al. 2010; RFC 9380, section 3)."""
    drawn = hashlib.sha512(b"".join((_LABEL, b" point", session, index.to_bytes(4, "big"), bytes([place]), point)))
    halves = [group.crypto_core_ed25519_from_uniform(drawn.digest()[at : at + 32]) for at in (0, 32)]
    return bytes(group.crypto_core_ed25519_add(*halves))


def _key(session: bytes, index: int, place: bool, *points: bytes) -> bytes:
    """Hash the shared point, together with all that it depends on, to a key."""
    text = b"".join((_LABEL, b" key", session, index.to_bytes(4, "big"), bytes([place]), *points))
    return hashlib.sha256(text).digest()[:KEY_BYTES]


def _checked(channel: Channel, point: bytes) -> bytes:
    if not group.crypto_core_ed25519_is_valid_point(point):
        channel.abort()
        raise ChannelBroken("the peer sent what is no element of the group. The run is over. Do not trust this peer.")
    return point
