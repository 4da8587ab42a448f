"""No key, share, mask or plain value appears in logs, errors, reprs or pickles of encrypted sums and shared secrets."""

import copy
import logging
import pickle
import socket
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, CloisterError
from cloister.privacy.signing import SigningKey
from cloister.vault import Ballot, BlindKey, circuits, key_fingerprint, paillier, sharing
from cloister.vault.circuits.garbling import Evaluation, Garbling
from cloister.vault.paillier.threshold import cut
from cloister.vault.sharing import Party, local_links

PLANTED = 7_345_219_877
KEY = paillier.PrivateKey.create(2048)
P, Q = map(int, KEY.secret_primes())
LAYOUT = paillier.Layout(paillier.FixedPoint(0, 2**40), length=2, summands=3, mask_bits=40)
VECTOR = paillier.EncryptedVector.encrypt([PLANTED, 1], KEY.public, LAYOUT)
MASKED, MASK = VECTOR.mask()
FIRST, SECOND = cut(KEY)
OTHER = paillier.PrivateKey.create(2048)
PARTIAL = FIRST.decrypt_partially(VECTOR)
[HELD, *_], COMMITMENTS = sharing.split(PLANTED, 2, 3)


class NoSupply:
    """A supply that is never asked."""


PARTY = Party(0, {1: local_links(2)[0][1]}, NoSupply())
SHARED = sharing.Shared(PARTY, np.full(2, PLANTED, dtype=np.uint64), 1 << 40)
CONDITION = sharing.Condition(PARTY, np.full(2, PLANTED, dtype=np.uint64))
SECRETS = [
    *(str(number) for number in (P, Q, PLANTED, *MASK.numbers, FIRST._exponent, SECOND._exponent, HELD._value)),
    *(f"{number:x}" for number in (P, Q, PLANTED)),
    *(f"{part:,}" for part in (PLANTED,)),
    *(str(int(power)) for power in PARTIAL.powers),
]


def a_circuit():
    build = circuits.CircuitBuilder()
    build.output("same", build.input("x", circuits.GARBLER, width=4), to=circuits.BOTH)
    return build.circuit()


def both_ends():
    """Both ends of a channel, and what stands on it."""
    keys, sockets = [SigningKey.create(), SigningKey.create()], socket.socketpair()

    def end(place):
        channel = circuits.Channel.open(sockets[place], keys[place], peer=keys[1 - place].public, first=not place)
        kind = circuits.TransferReceiver if place else circuits.TransferSender
        return [channel, kind.open(channel)]

    with ThreadPoolExecutor(2) as pool:
        return [thing for made in pool.map(end, (0, 1)) for thing in made]


ENDS = both_ends()
GARBLING = Garbling(a_circuit())
BLIND = BlindKey.create()
BALLOT = Ballot.begin(BLIND.public(), "survey", "1", key_fingerprint(BLIND.public()))[1]
ON_CHANNELS = [
    *ENDS,
    circuits.Garbler(ENDS[0]),
    circuits.Evaluator(ENDS[2]),
    GARBLING,
    Evaluation(a_circuit(), GARBLING.key),
]
HOLDERS = [KEY, MASK, FIRST, SECOND, PARTIAL, HELD, PARTY, SHARED, CONDITION, BLIND, BALLOT, *ON_CHANNELS]


def clean(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def test_the_search_finds_what_is_planted():
    assert not clean(f"a log line with {P}")
    assert not clean(f"value {PLANTED} refused")


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_an_object_with_secrets_is_not_printed_pickled_or_copied(holder):
    assert clean(repr(holder) + str(holder) + f"{holder}" + repr([holder]) + repr({"key": holder}))
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(BadInput, match="neither pickled nor copied"):
            leave(holder)


def misuses():
    """Calls that fail with a secret at hand."""
    raw, share, held = KEY.to_bytes(), FIRST.to_bytes(), HELD.to_bytes()
    yield lambda: paillier.EncryptedVector.encrypt([PLANTED, 2**41], KEY.public, LAYOUT)
    yield lambda: paillier.EncryptedVector.encrypt([PLANTED], KEY.public, LAYOUT)
    yield lambda: paillier.EncryptedVector.encrypt([PLANTED, float("nan")], KEY.public, LAYOUT)
    yield lambda: paillier.FixedPoint(0, 5).encode([PLANTED])
    yield lambda: paillier.Levels(0, 5, 3).encode([PLANTED])
    yield lambda: VECTOR + VECTOR * 3
    yield lambda: OTHER.decrypt(VECTOR)
    yield lambda: KEY.decrypt_number(P)
    yield lambda: MASK.remove([PLANTED, 1])
    yield lambda: MASK.remove([PLANTED])
    yield lambda: paillier.PrivateKey.from_primes(P, P)
    yield lambda: paillier.PrivateKey.from_bytes(raw[:-1])
    yield lambda: paillier.PrivateKey.from_bytes(raw[:-600] + bytes(600))
    yield lambda: paillier.PublicKey.from_bytes(raw)
    yield lambda: paillier.KeyShare.from_bytes(share[:-1])
    yield lambda: paillier.KeyShare.from_bytes(raw)
    yield lambda: paillier.combine_partials(VECTOR, [PARTIAL, PARTIAL])
    yield lambda: paillier.combine_partials(VECTOR + VECTOR, [PARTIAL, SECOND.decrypt_partially(VECTOR)])
    yield lambda: sharing.HeldShare.from_bytes(held + b"x")
    yield lambda: sharing.recover([HELD], COMMITMENTS)
    yield lambda: HELD.check(sharing.split(PLANTED, 2, 3)[1])
    yield lambda: sharing.split(-PLANTED, 1, 2)
    yield lambda: PARTY.share(0, (1,), 0, 5, [PLANTED])
    yield lambda: PARTY.share(0, (2,), 0, 2**40, [PLANTED])
    yield lambda: SHARED * SHARED


@pytest.mark.parametrize("number", range(25))
def test_no_error_traceback_or_log_line_holds_a_secret(number, caplog):
    caplog.set_level(logging.DEBUG)
    misuse = list(misuses())[number]
    with pytest.raises(CloisterError) as caught:
        misuse()
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(error.args) + caplog.text
    assert clean(shown)
    assert str(error).rstrip().endswith((".", "?"))


def test_all_misuses_are_tried():
    assert len(list(misuses())) == 25


def test_a_computation_logs_nothing(caplog):
    caplog.set_level(logging.DEBUG)

    def program(party):
        number = party.share(0, (1,), 0, 2**20, [12_345.5] if party.index == 0 else None)
        return sharing.maximum(number, 3).open().tolist()

    assert sharing.run_parties(program)[0] == [12_345.5]
    KEY.decrypt(VECTOR)
    assert caplog.text == ""
