"""Yao's protocol: a garbler and an evaluator compute a circuit on both inputs.

Parties: a garbler and an evaluator, each with private inputs, and a circuit that both know.
Learned: each party learns the outputs that the circuit gives to it (`to=`), and the other's input only as far as these
outputs reveal it. Both know the circuit and the formats of inputs and outputs.
Collusion: none to consider; there are two parties. The outputs themselves may reveal inputs: that is for whoever
writes the circuit.
An active attacker: security is proven against semi-honest parties, which follow the protocol and keep what they
see (Lindell, Pinkas 2009; half-gates: Zahur, Rosulek, Evans 2015). A malicious *garbler* can garble another circuit,
and so learn or change what the evaluator's outputs tell; it can also make a run fail or not depending on a bit of the
evaluator's input. A malicious *evaluator* learns nothing more than its outputs, since the oblivious transfers hold
against malicious parties and labels cannot be forged; it can end the run after it has seen its outputs, and before
the garbler sees its own. Somebody between the two can end the run, and nothing else (`channel`).
Tests: tests/unit/vault/circuits/test_two_party.py, tests/e2e/test_circuits_two_processes.py.
"""

from dataclasses import dataclass, field
from hmac import compare_digest

import numpy as np

from cloister.privacy.errors import ChannelBroken
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.vault.circuits.channel import FRAME_BYTES, Channel
from cloister.vault.circuits.circuit import EVALUATOR, GARBLER, Circuit, Value, Values
from cloister.vault.circuits.garbling import Evaluation, Garbling, batches
from cloister.vault.circuits.label_hash import BLOCK_BYTES, Blocks
from cloister.vault.circuits.transfer import TransferReceiver, TransferSender
from cloister.vault.secret import Secret

__all__ = ["Evaluator", "Garbler"]

_PART = FRAME_BYTES // 4  # bytes of labels in one message


@dataclass(slots=True, repr=False)
class Garbler(Secret):
    """The party that garbles. It may run several circuits over one channel; the base transfers are done once.

    Attributes:
        channel: the channel to the evaluator.
        source: where labels come from.
    """

    channel: Channel
    source: Source = SYSTEM
    _transfer: TransferSender | None = field(default=None, init=False)

    def run(self, circuit: Circuit, inputs: Values) -> dict[str, Value]:
        """Run one circuit with new labels, and return the outputs that the garbler reads.

        Args:
            circuit: the circuit, the same as the evaluator's.
            inputs: the garbler's inputs, by name.

        Raises:
            BadInput: an input does not fit its declaration; nothing was sent.
            ChannelBroken: the evaluator has another circuit, or a message is not the one that was due.
            PeerLost: the evaluator went away.
        """
        bits = circuit.input_bits(GARBLER, inputs)
        _agree(self.channel, circuit)
        garbling = Garbling(circuit, source=self.source)
        self.channel.send("hash key", garbling.key)
        _send(self.channel, "garbler's labels", garbling.labels_of(circuit.input_rows(GARBLER), bits))
        theirs = circuit.input_rows(EVALUATOR)
        if len(theirs):
            if self._transfer is None:
                self._transfer = TransferSender.open(self.channel, source=self.source)
            self._transfer.send(*garbling.pairs_of(theirs))
        for tables in garbling.tables():
            self.channel.send("tables", _raw(tables))
        _send(self.channel, "output checks", garbling.checks(EVALUATOR))
        count = int(circuit.output_places(GARBLER).sum())
        hashes = _receive(self.channel, "output hashes", count, 2)
        try:
            return circuit.decode(garbling.decode(hashes), GARBLER)
        except ChannelBroken:
            self.channel.abort()
            raise

    def __repr__(self) -> str:
        return f"Garbler({self.channel!r})"


@dataclass(slots=True, repr=False)
class Evaluator(Secret):
    """The party that evaluates. It may run several circuits over one channel; the base transfers are done once.

    Attributes:
        channel: the channel to the garbler.
        source: where the secrets of the oblivious transfers come from.
    """

    channel: Channel
    source: Source = SYSTEM
    _transfer: TransferReceiver | None = field(default=None, init=False)

    def run(self, circuit: Circuit, inputs: Values) -> dict[str, Value]:
        """Run one circuit, and return the outputs that the evaluator reads.

        Args:
            circuit: the circuit, the same as the garbler's.
            inputs: the evaluator's inputs, by name.

        Raises:
            BadInput: an input does not fit its declaration; nothing was sent.
            ChannelBroken: the garbler has another circuit, a message is not the one that was due, or a label is wrong.
            PeerLost: the garbler went away.
        """
        bits = circuit.input_bits(EVALUATOR, inputs)
        _agree(self.channel, circuit)
        evaluation = Evaluation(circuit, self.channel.receive("hash key", size=BLOCK_BYTES))
        rows = circuit.input_rows(GARBLER)
        evaluation.take_inputs(rows, _receive(self.channel, "garbler's labels", len(rows), 2))
        if len(bits):
            if self._transfer is None:
                self._transfer = TransferReceiver.open(self.channel, source=self.source)
            evaluation.take_inputs(circuit.input_rows(EVALUATOR), self._transfer.receive(bits))
        for _, gates in batches(circuit):
            evaluation.take_tables(_blocks(self.channel.receive("tables", size=4 * 8 * gates), 4))
        count = int(circuit.output_places(EVALUATOR).sum())
        checks = _receive(self.channel, "output checks", count, 4)
        try:
            found = circuit.decode(evaluation.decode(checks), EVALUATOR)
        except ChannelBroken:
            self.channel.abort()
            raise
        _send(self.channel, "output hashes", evaluation.hashes(GARBLER))
        return found

    def __repr__(self) -> str:
        return f"Evaluator({self.channel!r})"


def _agree(channel: Channel, circuit: Circuit) -> None:
    """Check that both parties have the same circuit."""
    channel.send("circuit", circuit.digest)
    if not compare_digest(channel.receive("circuit", size=len(circuit.digest)), circuit.digest):
        channel.abort()
        raise ChannelBroken("the peer has another circuit. Build it from the same program on both sides.")


def _send(channel: Channel, step: str, blocks: Blocks) -> None:
    raw = _raw(blocks)
    for at in range(0, len(raw), _PART):
        channel.send(step, raw[at : at + _PART])


def _receive(channel: Channel, step: str, count: int, words: int) -> Blocks:
    size = count * words * 8
    parts = [channel.receive(step, size=min(_PART, size - at)) for at in range(0, size, _PART)]
    return _blocks(b"".join(parts), words)


def _blocks(raw: bytes, words: int) -> Blocks:
    return np.frombuffer(raw, dtype=np.uint64).reshape(-1, words)


def _raw(blocks: Blocks) -> memoryview:
    return np.ascontiguousarray(blocks).reshape(-1).view(np.uint8).data
