"""Operators work with an int on either side, and a wrong argument is named before anything is sent or waited for."""

import socket
import time

import pytest

from cloister.privacy.errors import BadInput
from cloister.privacy.signing import SigningKey
from cloister.vault.circuits import BOTH, EVALUATOR, GARBLER, Channel, CircuitBuilder
from cloister.vault.paillier import PrivateKey


def built(program):
    build = CircuitBuilder()
    x, y = build.input("x", GARBLER, width=8), build.input("y", EVALUATOR, width=8)
    build.output("result", program(x, y), to=BOTH)
    return build.circuit()


@pytest.mark.parametrize(
    "program",
    [lambda x, y: 1 + x, lambda x, y: 10 - x, lambda x, y: -3 * y, lambda x, y: 2 - 3 * x + y * 4],
)
@pytest.mark.parametrize(("x", "y"), [(0, 0), (5, -7), (-128, 127)])
def test_an_int_may_stand_on_the_left(program, x, y):
    assert built(program).evaluate({"x": x, "y": y}) == {"result": program(x, y)}


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (lambda x, y: x / y, r"divide\(other, fraction=16\)"),
        (lambda x, y: 1 / x, r"divide\(other, fraction=16\)"),
        (lambda x, y: x // y, r"divide\(other, fraction=0\)"),
        (lambda x, y: 0.5 + x, "constant"),
        (lambda x, y: 5, "an output is a Number or a condition, got int"),
    ],
)
def test_what_a_circuit_does_not_have_says_what_to_write(program, sentence):
    with pytest.raises(BadInput, match=sentence):
        built(program)


def test_wires_print_their_public_format():
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=8, shape=(3,), fraction=2)
    assert repr(x) == "<Number, shape (3,), 8 bits, 2 of them after the point>"
    assert repr(x < x) == "<Truth, shape (3,)>"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"x": 1}, "missing: y"),
        ({"x": 1, "y": 2, "z": 3}, "unknown: z"),
        ({"x": 1, "w": 3, "z": 3}, "missing: y; unknown: w, z"),
        (5, "a dict"),
        (None, "a dict"),
        ([1, 2], "a dict"),
    ],
)
def test_missing_and_unknown_inputs_are_named(values, sentence):
    with pytest.raises(BadInput, match=sentence):
        built(lambda x, y: x + y).evaluate(values)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"peer": "ed25519:AAAA"}, r"got str\. Read the line of the other party with PublicKey\.parse"),
        (
            {"peer": SigningKey.create()},
            "peer is the other party's PublicKey of cloister.privacy.signing, got SigningKey",
        ),
        ({"peer": PrivateKey.create(2048).public}, "cloister.privacy.signing"),
        ({"key": "clinic.key"}, r"SigningKey\.load"),
        ({"first": 1}, "first is True for one party and False for the other"),
        ({"stream": "127.0.0.1:8400"}, r"socket\.create_connection"),
    ],
)
def test_a_channel_refuses_wrong_arguments_before_it_waits_for_the_peer(wrong, sentence):
    # Before, it waited for thirty seconds and then blamed the peer.
    ours, theirs = socket.socketpair()
    given = {"stream": ours, "key": SigningKey.create(), "peer": SigningKey.create().public, "first": True, **wrong}
    begun = time.monotonic()
    with ours, theirs, pytest.raises(BadInput, match=sentence):
        Channel.open(given.pop("stream"), given.pop("key"), **given)
    assert time.monotonic() - begun < 10
