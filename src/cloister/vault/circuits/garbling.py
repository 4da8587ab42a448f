"""Half-gates: garble a circuit, and evaluate it on labels, a step of many gates at a time.

Each wire has a label for 0 and one for 1, which differ by one secret offset (free XOR, Kolesnikov, Schneider 2008).
The offset's lowest bit is 1: the lowest bit of a label is a random colour that says which row of a table to use, and
nothing of the value (point and permute). An XOR costs nothing, an AND two blocks (Zahur, Rosulek, Evans 2015). The two
hashes of gate number g (`label_hash`) use the tweaks 2g and 2g + 1, each once under an offset.

Parties: a garbler, which makes labels and tables, and an evaluator, which gets one label of each input and the tables.
Learned: the evaluator gets one label of each wire, and no value but of the outputs whose checks it is given; the
garbler nothing, but the values of outputs whose hashes it is given. With two labels of one wire the evaluator would
have the offset and see everything: an object garbles once.
Collusion: none to consider; there are two parties.
An active attacker: with a changed bit in a table or label every output is right or refused, since a wrong label is
neither of a wire's two. That the garbler garbled the agreed circuit is not proven.
Tests: tests/unit/vault/circuits/test_garbling.py.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, ChannelBroken
from cloister.privacy.noise.source import SYSTEM, Source
from cloister.vault.circuits.circuit import EVALUATOR, GARBLER, Bits, Circuit, Index, Party
from cloister.vault.circuits.label_hash import BLOCK_BYTES, Blocks, LabelHash
from cloister.vault.secret import Secret

__all__ = ["TABLE_BYTES", "Evaluation", "Garbling", "batches"]

TABLE_BYTES = 2 * BLOCK_BYTES  # of an AND gate
_BATCH_GATES = 1 << 15  # AND gates whose tables are sent together: 1 MiB
_STEP_GATES = 1 << 13  # gates computed together, so that their labels stay in the cache
# Tweaks of outputs, apart from those of gates. Each reader has its own: the evaluator knows both hashes of its own
# checks, and must not be able to answer the garbler with the wrong one.
_OUTPUTS = {EVALUATOR: np.uint64(2 << 62), GARBLER: np.uint64(3 << 62)}


class Garbling(Secret):
    """The garbler's half: labels of all wires, and the tables of the AND gates.

    Nothing of it may be used for a second run. It never prints a label.
    """

    __slots__ = ("_circuit", "_garbled", "_hash", "_labels", "_offset", "key")

    def __init__(self, circuit: Circuit, *, source: Source = SYSTEM) -> None:
        self._circuit = circuit
        self.key = source.bytes(BLOCK_BYTES)  # public: of the hash
        self._hash = LabelHash(self.key)
        self._offset = np.frombuffer(source.bytes(BLOCK_BYTES), dtype=np.uint64).copy()
        self._offset[0] |= np.uint64(1)
        self._labels: Blocks = np.empty((circuit.rows, 2), dtype=np.uint64)
        # The constant False: the evaluator's label is 0, which it needs no message for.
        self._labels[0] = 0
        count = circuit.first_gate - 1
        drawn = np.frombuffer(source.bytes(count * BLOCK_BYTES), dtype=np.uint64)
        self._labels[1 : circuit.first_gate] = drawn.reshape(count, 2)
        self._garbled = False

    def tables(self) -> Iterator[Blocks]:
        """Garble, once, and yield the tables of each batch of steps: four words for each AND gate."""
        if self._garbled:
            raise BadInput("a circuit is garbled once: a second evaluation would reveal the inputs. Make a new one.")
        self._garbled = True
        done = 0
        for steps, gates in batches(self._circuit):
            tables: Blocks = np.empty((gates, 4), dtype=np.uint64)
            at = 0
            for is_and, start, end in steps:
                if is_and:
                    self._and(start, end, done + at, tables[at : at + end - start])
                    at += end - start
                else:
                    _xor(self._circuit, self._labels, start, end)
            done += at
            yield tables

    def labels_of(self, rows: Index, bits: Bits) -> Blocks:
        """Return the labels that stand for these bits on these rows of inputs."""
        return self._labels[rows] ^ (self._offset * bits[:, None])

    def pairs_of(self, rows: Index) -> tuple[Blocks, Blocks]:
        """Return both labels of rows of inputs, for oblivious transfer."""
        return self._labels[rows], self._labels[rows] ^ self._offset

    def checks(self, reader: Party) -> Blocks:
        """Return the hashes of both labels of a party's outputs, the one for the value 0 first: four words each.

        Whoever has the checks and the label of an output learns its value, and that the label is one of the two.
        """
        zero, places = self._outputs(), self._circuit.output_places(reader)
        numbers = np.flatnonzero(places).astype(np.uint64)
        labels = np.stack([zero[places], zero[places] ^ self._offset])
        return np.concatenate(list(self._hash.hash(labels, numbers | _OUTPUTS[reader])), axis=1)

    def decode(self, hashes: Blocks) -> Bits:
        """Return the garbler's outputs from the evaluator's hashes; refuse any that is of neither label."""
        return _decode(self.checks(GARBLER), hashes)

    def __repr__(self) -> str:
        return f"<Garbling of {self._circuit.and_gates} AND gates>"

    def _outputs(self) -> Blocks:
        circuit = self._circuit
        return self._labels[circuit.output_rows] ^ (self._offset * circuit.output_flips[:, None])

    def _and(self, start: int, end: int, number: int, tables: Blocks) -> None:
        circuit, offset, gates = self._circuit, self._offset, slice(start, end)
        zero_left = self._input(circuit.left[gates], circuit.flip_left[gates])
        zero_right = self._input(circuit.right[gates], circuit.flip_right[gates])
        four = np.stack([zero_left, zero_left ^ offset, zero_right, zero_right ^ offset])
        tweaks = _tweaks(number, end - start)
        left = self._hash.hash(four[:2], tweaks)
        right = self._hash.hash(four[2:], tweaks | np.uint64(1))
        of_left, of_right = _mask(zero_left), _mask(zero_right)
        # The half gate whose one input's colour the garbler knows.
        first = left[0] ^ left[1]
        first ^= offset & of_right
        # The half gate whose one input's colour the evaluator knows.
        second = right[0] ^ right[1]
        second ^= zero_left
        tables[:, :2] = first
        tables[:, 2:] = second
        first &= of_left
        first ^= left[0]
        second ^= zero_left
        second &= of_right
        first ^= second
        first ^= right[0]
        self._labels[circuit.first_gate + start : circuit.first_gate + end] = first

    def _input(self, rows: Index, flips: Bits) -> Blocks:
        labels = self._labels.take(rows, axis=0)
        if flips.any():
            labels ^= self._offset * flips[:, None]
        return labels


class Evaluation(Secret):
    """The evaluator's half: one label of each wire. It never prints a label."""

    __slots__ = ("_batches", "_circuit", "_done", "_hash", "_labels")

    def __init__(self, circuit: Circuit, key: bytes) -> None:
        self._circuit = circuit
        self._hash = LabelHash(key)
        self._labels: Blocks = np.zeros((circuit.rows, 2), dtype=np.uint64)
        self._batches = batches(circuit)
        self._done = 0

    def take_inputs(self, rows: Index, labels: Blocks) -> None:
        """Set the labels of rows of inputs."""
        self._labels[rows] = labels

    def take_tables(self, tables: Blocks) -> None:
        """Evaluate the next batch of steps with its tables."""
        steps, gates = next(self._batches, ([], -1))
        if len(tables) != gates:
            raise BadInput(f"the next batch has {max(gates, 0)} tables, got {len(tables)}. Use the same circuit.")
        at = 0
        for is_and, start, end in steps:
            if is_and:
                self._and(start, end, self._done + at, tables[at : at + end - start])
                at += end - start
            else:
                _xor(self._circuit, self._labels, start, end)
        self._done += at

    def hashes(self, reader: Party) -> Blocks:
        """Return the hashes of the labels of a party's outputs."""
        if self._done != self._circuit.and_gates:
            raise BadInput("the circuit is not evaluated to its end. Give it all tables first.")
        places = self._circuit.output_places(reader)
        labels = self._labels[self._circuit.output_rows[places]]
        return self._hash.hash(labels, np.flatnonzero(places).astype(np.uint64) | _OUTPUTS[reader])

    def decode(self, checks: Blocks) -> Bits:
        """Return the evaluator's outputs; refuse any whose label is none of the garbler's two."""
        return _decode(checks, self.hashes(EVALUATOR))

    def __repr__(self) -> str:
        return f"<Evaluation of {self._circuit.and_gates} AND gates>"

    def _and(self, start: int, end: int, number: int, tables: Blocks) -> None:
        circuit, gates = self._circuit, slice(start, end)
        left = self._labels.take(circuit.left[gates], axis=0)
        right = self._labels.take(circuit.right[gates], axis=0)
        tweaks = _tweaks(number, end - start)
        hashed = self._hash.hash(left, tweaks)
        hashed ^= self._hash.hash(right, tweaks | np.uint64(1))
        hashed ^= tables[:, :2] & _mask(left)
        left ^= tables[:, 2:]
        left &= _mask(right)
        hashed ^= left
        self._labels[circuit.first_gate + start : circuit.first_gate + end] = hashed


def batches(circuit: Circuit) -> Iterator[tuple[list[tuple[bool, int, int]], int]]:
    """Group the steps, large ones cut into pieces, by the tables that are sent together; yield steps and AND gates."""
    steps, gates = [], 0
    for is_and, begin, end in circuit.steps:
        for start in range(begin, end, _STEP_GATES):
            stop = min(start + _STEP_GATES, end)
            steps.append((is_and, start, stop))
            gates += (stop - start) * is_and
            if gates >= _BATCH_GATES:
                yield steps, gates
                steps, gates = [], 0
    yield steps, gates


def _xor(circuit: Circuit, labels: Blocks, start: int, end: int) -> None:
    found = labels[circuit.first_gate + start : circuit.first_gate + end]
    # mode="clip" lets numpy write to `out` directly; the rows are in range, since they were counted out.
    np.take(labels, circuit.left[start:end], axis=0, out=found, mode="clip")
    found ^= labels.take(circuit.right[start:end], axis=0)


def _tweaks(number: int, count: int) -> NDArray[np.uint64]:
    return np.arange(2 * number, 2 * (number + count), 2, dtype=np.uint64)


def _mask(labels: Blocks) -> Blocks:
    """Return all ones for labels of colour 1, as a column."""
    return np.asarray(-(labels[:, :1] & np.uint64(1)))


def _decode(checks: Blocks, hashes: Blocks) -> Bits:
    # Both words and both labels of all outputs are compared, whatever is found on the way.
    is_zero = np.bitwise_or.reduce(checks[:, :2] ^ hashes, axis=1) == 0
    is_one = np.bitwise_or.reduce(checks[:, 2:] ^ hashes, axis=1) == 0
    if np.count_nonzero(is_zero ^ is_one) != len(hashes):
        raise ChannelBroken(
            "a label of the output is not one that the garbler made: a table or a label was changed. Nothing is "
            "output. Run the protocol again with new labels."
        )
    return np.asarray(is_one)
