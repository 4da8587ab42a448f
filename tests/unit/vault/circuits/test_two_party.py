"""Yao's protocol between two parties that disagree, cheat, vanish, or keep to it."""

import logging

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, ChannelBroken, CloisterError, PeerLost
from cloister.vault.circuits import BOTH, EVALUATOR, GARBLER, CircuitBuilder, Evaluator, Garbler
from cloister.vault.circuits.garbling import Garbling
from cloister.vault.circuits.transfer import TransferReceiver

from .parties import channels, failure_of, run_both


def millionaires(to=BOTH, width=32):
    build = CircuitBuilder()
    mine = build.input("garbler's", GARBLER, width=width, signed=False)
    theirs = build.input("evaluator's", EVALUATOR, width=width, signed=False)
    build.output("richer", mine > theirs, to=to)
    return build.circuit()


@pytest.fixture
def pair():
    made = channels(timeout_s=5)
    yield made
    for channel in made:
        channel.abort()


def outcome(call):
    try:
        return call()
    except CloisterError as error:
        return error


@pytest.mark.parametrize(("to", "garblers", "evaluators"), [(BOTH, 1, 1), (GARBLER, 1, 0), (EVALUATOR, 0, 1)])
def test_an_output_is_read_by_whom_the_circuit_says(pair, to, garblers, evaluators):
    circuit = millionaires(to)
    got = run_both(
        lambda: Garbler(pair[0]).run(circuit, {"garbler's": 3_000_000}),
        lambda: Evaluator(pair[1]).run(circuit, {"evaluator's": 2_999_999}),
    )
    assert [len(found) for found in got] == [garblers, evaluators]
    assert all(value == 1 for found in got for value in found.values())


def test_several_runs_share_the_base_transfers_and_no_labels(pair, monkeypatch):
    circuit, opened, offsets = millionaires(), [], []
    inner, made = TransferReceiver.open, Garbling.__init__

    def count(*args, **kwargs):
        opened.append(1)
        return inner(*args, **kwargs)

    def keep(self, *args, **kwargs):
        made(self, *args, **kwargs)
        offsets.append(self._offset.tobytes())

    monkeypatch.setattr(TransferReceiver, "open", count)
    monkeypatch.setattr(Garbling, "__init__", keep)
    garbler, evaluator = Garbler(pair[0]), Evaluator(pair[1])
    for mine, theirs in ((5, 4), (4, 4), (0, 2**32 - 1)):
        got = run_both(
            lambda: garbler.run(circuit, {"garbler's": mine}),  # noqa: B023
            lambda: evaluator.run(circuit, {"evaluator's": theirs}),  # noqa: B023
        )
        assert got == ({"richer": mine > theirs},) * 2
    assert len(opened) == 1
    assert len(set(offsets)) == 3


def test_circuits_with_inputs_of_one_party_or_without_gates_run(pair):
    garbler, evaluator = Garbler(pair[0]), Evaluator(pair[1])
    for party, ours, theirs in ((GARBLER, {"x": -7}, {}), (EVALUATOR, {}, {"x": -7})):
        build = CircuitBuilder()
        x = build.input("x", party, width=8)
        build.output("square", x * x, to=BOTH)
        build.output("negative", ~(x >= build.constant(0, width=1)), to=EVALUATOR)
        build.output("fixed", build.constant([1, -2], width=2), to=GARBLER)
        circuit = build.circuit()
        got = run_both(lambda: garbler.run(circuit, ours), lambda: evaluator.run(circuit, theirs))  # noqa: B023
        assert got == ({"square": 49, "fixed": [1, -2]}, {"square": 49, "negative": 1})


def test_parties_with_different_circuits_are_refused_before_a_label_is_sent(pair):
    told = run_both(
        lambda: outcome(lambda: Garbler(pair[0]).run(millionaires(), {"garbler's": 1})),
        lambda: outcome(lambda: Evaluator(pair[1]).run(millionaires(GARBLER), {"evaluator's": 1})),
    )
    assert all(isinstance(error, ChannelBroken) and "another circuit" in str(error) for error in told)
    assert pair[0].sent_bytes < 500


def test_two_garblers_are_refused(pair):
    told = run_both(
        lambda: outcome(lambda: Garbler(pair[0]).run(millionaires(), {"garbler's": 1})),
        lambda: outcome(lambda: Garbler(pair[1]).run(millionaires(), {"garbler's": 1})),
    )
    assert {type(error) for error in told} <= {ChannelBroken, PeerLost}
    assert any("another step" in str(error) or "does not allow" in str(error) for error in told)


def test_an_input_out_of_range_is_refused_before_anything_is_sent(pair):
    before = pair[0].sent_bytes
    told = failure_of(lambda: Garbler(pair[0]).run(millionaires(), {"garbler's": 2**32 + 12345}), BadInput)
    assert "12345" not in told
    assert "4294979641" not in told
    assert pair[0].sent_bytes == before


class Altering:
    """A party's channel that changes one message after it was opened, as a party that cheats does."""

    def __init__(self, channel, step, change):
        self.inner, self.step, self.change = channel, step, change

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def send(self, step, body):
        if step == self.step:
            body = np.frombuffer(bytes(body), dtype=np.uint8).copy()
            self.change(body)
            body = body.data
        self.inner.send(step, body)


def flip(body):
    body[len(body) // 2] ^= 1


def flip_all(body):
    body ^= 1


@pytest.mark.parametrize(
    ("step", "change", "cheat"),
    [
        ("garbler's labels", flip, GARBLER),
        ("chosen transfer", flip_all, GARBLER),
        ("tables", flip_all, GARBLER),
        ("hash key", flip, GARBLER),
        ("output checks", flip_all, GARBLER),
        ("output hashes", flip, EVALUATOR),
    ],
)
def test_a_party_that_changes_a_message_is_noticed_and_nothing_is_output(pair, step, change, cheat):
    left, right = pair
    if cheat == GARBLER:
        left = Altering(left, step, change)
    else:
        right = Altering(right, step, change)

    def party(kind, channel, values):
        found = outcome(lambda: kind(channel).run(millionaires(), values))
        if isinstance(found, CloisterError):
            channel.abort()
        return found

    told = run_both(
        lambda: party(Garbler, left, {"garbler's": 77}), lambda: party(Evaluator, right, {"evaluator's": 78})
    )
    honest = told[1 if cheat == GARBLER else 0]
    assert isinstance(honest, ChannelBroken)
    assert "was changed" in str(honest)


@pytest.mark.parametrize(
    "step", ["circuit", "hash key", "garbler's labels", "base transfer, sender", "transfer columns", "tables"]
)
def test_a_peer_that_disappears_at_any_step_leaves_one_sentence_and_no_output(pair, step):
    def vanish(channel):
        inner = channel.send

        class Leaving:
            def __getattr__(self, name):
                return getattr(channel, name)

            def send(self, name, body):
                if name == step:
                    channel.abort()
                inner(name, body)

        return Leaving()

    senders = {"base transfer, sender": 1, "transfer columns": 1}
    ends = [pair[0], pair[1]]
    leaving = senders.get(step, 0)
    ends[leaving] = vanish(ends[leaving])
    told = run_both(
        lambda: outcome(lambda: Garbler(ends[0]).run(millionaires(), {"garbler's": 1})),
        lambda: outcome(lambda: Evaluator(ends[1]).run(millionaires(), {"evaluator's": 1})),
    )
    assert isinstance(told[1 - leaving], PeerLost)
    assert str(told[1 - leaving]).count("\n") == 0


def test_no_log_error_or_repr_holds_a_secret(pair, caplog):
    caplog.set_level(logging.DEBUG)
    circuit = millionaires()
    mine, theirs = 0xC0FFEE11, 0xBADC0DE5
    garbler, evaluator = Garbler(pair[0]), Evaluator(pair[1])
    garblings = []

    def watched():
        inner = Garbling.__init__

        def keep(self, *args, **kwargs):
            inner(self, *args, **kwargs)
            garblings.append(self)

        return keep

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Garbling, "__init__", watched())
        run_both(
            lambda: garbler.run(circuit, {"garbler's": mine}), lambda: evaluator.run(circuit, {"evaluator's": theirs})
        )
        told = run_both(
            lambda: outcome(lambda: garbler.run(circuit, {"garbler's": mine})),
            lambda: outcome(lambda: evaluator.run(millionaires(GARBLER), {"evaluator's": theirs})),
        )
    things = [garbler, evaluator, *pair, garbler._transfer, evaluator._transfer, *garblings, circuit, *told]
    text = "\n".join([caplog.text, *map(repr, things), *map(str, things)])
    secrets = [garblings[0]._offset, *garblings[0]._labels[1:20], garbler._transfer._offset]
    planted = [secret.tobytes().hex() for secret in secrets] + [str(word) for pair in secrets for word in pair]
    planted += [str(mine), str(theirs), f"{mine:x}", f"{theirs:x}"]
    assert len(planted) > 40
    assert not [secret for secret in planted if secret in text]


STEPS = {
    GARBLER: [
        "circuit", "hash key", "garbler's labels", "base transfer, receiver", "transfer coin", "chosen transfer",
        "tables", "output checks",
    ],
    EVALUATOR: ["circuit", "base transfer, sender", "transfer columns", "transfer check", "output hashes"],
}  # fmt: skip


def random_flips(body):
    for place in np.random.default_rng(len(body)).integers(0, 8 * len(body), 3):
        body[place // 8] ^= 1 << (place % 8)


def nothing(body):
    body[:] = 0


@pytest.mark.parametrize("change", [random_flips, nothing])
@pytest.mark.parametrize(("cheat", "step"), [(party, step) for party, steps in STEPS.items() for step in steps])
def test_after_any_changed_message_the_other_party_outputs_rightly_or_nothing(pair, cheat, step, change):
    build = CircuitBuilder()
    x, y = (build.input(name, party, width=6) for name, party in (("x", GARBLER), ("y", EVALUATOR)))
    build.output("both", x * y, to=BOTH)
    build.output("garbler's", x < y, to=GARBLER)
    build.output("evaluator's", x.divide(y, fraction=1), to=EVALUATOR)
    circuit = build.circuit()
    ends, place = list(pair), 0 if cheat == GARBLER else 1
    ends[place] = Altering(ends[place], step, change)

    def party(kind, channel, values):
        found = outcome(lambda: kind(channel).run(circuit, values))
        if isinstance(found, CloisterError):
            channel.abort()
        return found

    told = run_both(lambda: party(Garbler, ends[0], {"x": 21}), lambda: party(Evaluator, ends[1], {"y": -5}))
    right = [{"both": -105, "garbler's": 0}, {"both": -105, "evaluator's": -4}]
    assert isinstance(told[1 - place], CloisterError) or told[1 - place] == right[1 - place]
    # A message that was not chosen, and a column where the sender's secret bit is 0, change nothing.
    unread = ("chosen transfer", "transfer columns")
    assert step in unread or any(isinstance(found, CloisterError) for found in told)
