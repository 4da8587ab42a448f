"""1,000 random circuits: garbled, evaluated and decoded, they give what Python's integers give."""

from random import Random

import pytest

from cloister.privacy.noise.source import SeededSource
from cloister.vault.circuits import BOTH, EVALUATOR, GARBLER, CircuitBuilder
from cloister.vault.circuits.garbling import Evaluation, Garbling

BATCHES, EACH = 10, 100


def quotient(a, b):
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


OPERATIONS = [
    (lambda a, b, c: a + b, lambda a, b, c: a + b),
    (lambda a, b, c: a - b, lambda a, b, c: a - b),
    (lambda a, b, c: a * b, lambda a, b, c: a * b),
    (lambda a, b, c: a * a, lambda a, b, c: a * a),
    (lambda a, b, c: -a, lambda a, b, c: -a),
    (lambda a, b, c: abs(a), lambda a, b, c: abs(a)),
    (lambda a, b, c: a.minimum(b), lambda a, b, c: min(a, b)),
    (lambda a, b, c: a.maximum(b), lambda a, b, c: max(a, b)),
    (lambda a, b, c: (a < b).select(c, a), lambda a, b, c: c if a < b else a),
    (lambda a, b, c: ((a <= b) ^ b.equals(c)).number(), lambda a, b, c: (a <= b) != (b == c)),
    (lambda a, b, c: ((a > b) | ~(b < c)).select(b, c), lambda a, b, c: b if a > b or b >= c else c),
    (lambda a, b, c: a.divide(b, fraction=0), lambda a, b, c: quotient(a, b) if b else None),
    (
        lambda a, b, c: a.divide(b, fraction=2).rescale(0),
        lambda a, b, c: quotient(4 * a, b) >> 2 if b else None,
    ),
    (
        lambda a, b, c: a.narrow(5),
        lambda a, b, c: (a + 16) % 32 - 16,
    ),
]


def random_circuit(random):
    """A circuit of a few operations on random inputs, the inputs, and what its outputs are."""
    build, values, pool = CircuitBuilder(), {GARBLER: {}, EVALUATOR: {}}, []
    for number in range(random.randint(1, 4)):
        width, party, signed = random.randint(1, 9), random.choice([GARBLER, EVALUATOR]), random.random() < 0.5
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
        value = random.choice([low, high, random.randint(low, high)])
        pool.append((build.input(f"in {number}", party, width=width, signed=signed), value))
        values[party][f"in {number}"] = value
    for _ in range(random.randint(2, 8)):
        (a, x), (b, y), (c, z) = (random.choice(pool) for _ in range(3))
        gates, plain = random.choice(OPERATIONS)
        expected = plain(x, y, z)
        if a.width + b.width <= 24 and a.width > 2 and expected is not None:
            pool.append((gates(a, b, c), int(expected)))
    for number, (wires, _) in enumerate(pool):
        build.output(f"out {number}", wires, to=BOTH)
    return build.circuit(), values, {f"out {number}": value for number, (_, value) in enumerate(pool)}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_circuits_agree_with_integers(batch):
    random = Random(batch)
    gates = 0
    for _ in range(EACH):
        circuit, values, expected = random_circuit(random)
        assert circuit.evaluate(values[GARBLER] | values[EVALUATOR]) == expected
        garbled = Garbling(circuit, source=SeededSource(random.random().hex()))
        evaluation = Evaluation(circuit, garbled.key)
        for party, own in values.items():
            rows = circuit.input_rows(party)
            evaluation.take_inputs(rows, garbled.labels_of(rows, circuit.input_bits(party, own)))
        for tables in garbled.tables():
            evaluation.take_tables(tables)
        assert circuit.decode(evaluation.decode(garbled.checks(EVALUATOR)), EVALUATOR) == expected
        gates += circuit.and_gates
    assert gates > 30 * EACH
