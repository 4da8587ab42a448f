"""Half-gates: two blocks an AND, fresh labels, and no changed bit that passes."""

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, ChannelBroken
from cloister.privacy.noise.source import SeededSource
from cloister.vault.circuits import BOTH, EVALUATOR, GARBLER, CircuitBuilder, garbling
from cloister.vault.circuits.garbling import TABLE_BYTES, Evaluation, Garbling
from cloister.vault.circuits.label_hash import LabelHash

from .parties import failure_of


def adder(width=8, shape=(3,)):
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=width, shape=shape)
    y = build.input("y", EVALUATOR, width=width, shape=shape)
    build.output("sum", x + y, to=BOTH)
    build.output("product", x * y, to=EVALUATOR)
    build.output("less", x < y, to=GARBLER)
    return build.circuit()


def evaluation_of(circuit, garbled, values):
    evaluation = Evaluation(circuit, garbled.key)
    for party in (GARBLER, EVALUATOR):
        rows = circuit.input_rows(party)
        own = {port.name: values[port.name] for port in circuit.inputs if port.party == party}
        evaluation.take_inputs(rows, garbled.labels_of(rows, circuit.input_bits(party, own)))
    return evaluation


def run(circuit, garbled, values, tables=None):
    evaluation = evaluation_of(circuit, garbled, values)
    for batch in garbled.tables() if tables is None else tables:
        evaluation.take_tables(batch)
    return (
        circuit.decode(evaluation.decode(garbled.checks(EVALUATOR)), EVALUATOR),
        circuit.decode(garbled.decode(evaluation.hashes(GARBLER)), GARBLER),
    )


VALUES = {"x": [5, -128, 127], "y": [-7, -128, 3]}


def test_each_party_reads_its_outputs_and_no_others():
    circuit = adder()
    evaluators, garblers = run(circuit, Garbling(circuit), VALUES)
    assert evaluators == {"sum": [-2, -256, 130], "product": [-35, 16384, 381]}
    assert garblers == {"sum": [-2, -256, 130], "less": [0, 0, 0]}


def test_a_table_is_two_labels_for_each_and_gate():
    circuit = adder()
    assert sum(batch.nbytes for batch in Garbling(circuit).tables()) == TABLE_BYTES * circuit.and_gates
    assert TABLE_BYTES == 2 * 16


def test_many_small_batches_give_the_same_as_one(monkeypatch):
    monkeypatch.setattr(garbling, "_BATCH_GATES", 10)
    monkeypatch.setattr(garbling, "_STEP_GATES", 4)
    circuit = adder()
    garbled = Garbling(circuit)
    assert run(circuit, garbled, VALUES)[0]["product"] == [-35, 16384, 381]
    assert len(list(garbling.batches(circuit))) > 10


def test_one_gate_is_the_published_half_gate():
    # Computed by hand from the paper's equations, for all values and both negations of the inputs.
    for seed in range(8):
        build = CircuitBuilder()
        a = build.input("a", GARBLER, width=1, signed=False)
        b = build.input("b", EVALUATOR, width=1, signed=False)
        build.output("and", a.equals(build.constant(1, width=2)) & b.equals(build.constant(1, width=2)), to=BOTH)
        circuit = build.circuit()
        assert circuit.and_gates == 1
        garbled = Garbling(circuit, source=SeededSource(seed))
        (table,) = next(iter(garbled.tables()))
        (zero_a, zero_b), offset = garbled._labels[1:3], garbled._offset
        label_hash = LabelHash(garbled.key)

        def hashed(label, tweak, label_hash=label_hash):
            return label_hash.hash(label[None], np.array([tweak], dtype=np.uint64))[0]

        left = hashed(zero_a, 0) ^ hashed(zero_a ^ offset, 0) ^ (offset * (zero_b[0] & np.uint64(1)))
        right = hashed(zero_b, 1) ^ hashed(zero_b ^ offset, 1) ^ zero_a
        assert np.array_equal(table, np.concatenate([left, right]))
        for x in (0, 1):
            for y in (0, 1):
                assert run(circuit, garbled, {"a": x, "b": y}, [table[None]])[0] == {"and": x & y}


def test_labels_are_never_used_twice():
    circuit = adder()
    seen = set()
    for _ in range(5):
        garbled = Garbling(circuit)
        list(garbled.tables())
        labels = np.vstack([garbled._labels[1:], garbled._labels[1:] ^ garbled._offset])
        # Gates may share a label only if they compute the same function: XORs of the same wires.
        inputs = np.vstack([labels[: circuit.first_gate - 1], labels[len(labels) // 2 :][: circuit.first_gate - 1]])
        fresh = {row.tobytes() for row in inputs} | {garbled._offset.tobytes(), garbled.key}
        assert len(fresh) == 2 * (circuit.first_gate - 1) + 2
        assert not fresh & seen
        seen |= fresh


def test_an_object_garbles_once():
    garbled = Garbling(adder())
    list(garbled.tables())
    assert "garbled once" in failure_of(lambda: list(garbled.tables()), BadInput)


def test_colours_are_opposite_on_a_wire_and_random_between_wires():
    circuit = adder(width=32, shape=(8,))
    garbled = Garbling(circuit)
    list(garbled.tables())
    zero, one = garbled.pairs_of(np.arange(1, circuit.rows))
    colours = zero[:, 0] & np.uint64(1)
    assert ((colours ^ (one[:, 0] & np.uint64(1))) == 1).all()
    assert abs(int(colours.sum()) - len(colours) / 2) < 4 * len(colours) ** 0.5


def test_hash_tweaks_are_used_once(monkeypatch):
    used = []
    inner = LabelHash.hash

    def keep(self, blocks, tweaks):
        used.extend(tweaks.tolist())
        return inner(self, blocks, tweaks)

    monkeypatch.setattr(LabelHash, "hash", keep)
    monkeypatch.setattr(garbling, "_BATCH_GATES", 50)
    circuit = adder()
    garbled = Garbling(circuit)
    list(garbled.tables())
    wires = [len(garbled.checks(party)) for party in (GARBLER, EVALUATOR)]
    assert len(used) == len(set(used)) == 2 * circuit.and_gates + sum(wires)


def test_a_flipped_bit_in_a_table_changes_no_output_unnoticed():
    circuit = adder(width=4, shape=())
    values = {"x": 3, "y": -5}
    garbled = Garbling(circuit)
    (tables,) = garbled.tables()
    right = run(circuit, garbled, values, [tables])
    noticed = 0
    for gate in range(circuit.and_gates):
        for word in range(4):
            changed = tables.copy()
            changed[gate, word] ^= np.uint64(1 << (gate % 64))
            try:
                assert run(circuit, garbled, values, [changed]) == right  # the row was not used
            except ChannelBroken as error:
                noticed += "changed" in str(error)
    assert noticed > circuit.and_gates  # half of the rows are used


@pytest.mark.parametrize("bit", [0, 1, 77, 127])
def test_a_flipped_bit_in_a_label_is_noticed(bit):
    circuit = adder()
    garbled = Garbling(circuit)
    tables = list(garbled.tables())
    for row in range(1, circuit.first_gate):
        evaluation = evaluation_of(circuit, garbled, VALUES)
        evaluation._labels[row, bit // 64] ^= np.uint64(1 << (bit % 64))
        for batch in tables:
            evaluation.take_tables(batch)
        failure_of(lambda: evaluation.decode(garbled.checks(EVALUATOR)), ChannelBroken)  # noqa: B023


def test_a_forged_output_hash_is_noticed_by_the_garbler():
    circuit = adder()
    garbled = Garbling(circuit)
    evaluation = evaluation_of(circuit, garbled, VALUES)
    for batch in garbled.tables():
        evaluation.take_tables(batch)
    hashes = evaluation.hashes(GARBLER)
    hashes[3, 1] ^= np.uint64(4)
    failure_of(lambda: garbled.decode(hashes), ChannelBroken)


def test_an_evaluator_cannot_answer_with_the_other_hash_of_its_own_check():
    # Of an output that both read, the evaluator knows the hashes of both labels, under its own tweak.
    circuit = adder()
    garbled = Garbling(circuit)
    evaluation = evaluation_of(circuit, garbled, VALUES)
    for batch in garbled.tables():
        evaluation.take_tables(batch)
    hashes, checks = evaluation.hashes(GARBLER), garbled.checks(EVALUATOR)
    for known in (checks[0, :2], checks[0, 2:]):
        hashes[0] = known
        failure_of(lambda: garbled.decode(hashes), ChannelBroken)


def test_nothing_is_read_before_the_circuit_is_evaluated_to_its_end():
    circuit = adder()
    garbled = Garbling(circuit)
    evaluation = evaluation_of(circuit, garbled, VALUES)
    failure_of(lambda: evaluation.hashes(EVALUATOR), BadInput)
    (tables,) = garbled.tables()
    failure_of(lambda: evaluation.take_tables(tables[:-1]), BadInput)


def test_an_offset_of_all_runs_has_the_colour_bit():
    assert all(Garbling(adder())._offset[0] & np.uint64(1) for _ in range(20))


def test_neither_half_prints_a_label():
    circuit = adder()
    garbled = Garbling(circuit)
    for thing in (garbled, Evaluation(circuit, garbled.key), circuit):
        assert repr(thing).startswith("<")
        assert len(repr(thing)) < 60
