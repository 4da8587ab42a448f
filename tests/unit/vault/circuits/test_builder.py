"""Circuits compute what Python's integers compute, with the known number of AND gates."""

from decimal import Decimal
from fractions import Fraction
from math import isqrt
from random import Random

import numpy as np
import pytest

from cloister.privacy.errors import BadInput
from cloister.vault.circuits import BOTH, EVALUATOR, GARBLER, CircuitBuilder

from .parties import failure_of


def circuit_of(compute, width=32, signed=True, shape=()):
    build = CircuitBuilder()
    left = build.input("left", GARBLER, width=width, signed=signed, shape=shape)
    right = build.input("right", EVALUATOR, width=width, signed=signed, shape=shape)
    build.output("found", compute(left, right), to=BOTH)
    return build.circuit()


@pytest.mark.parametrize(
    ("compute", "signed_gates", "unsigned_gates"),
    [
        (lambda x, y: x + y, 32, 32),  # n with the carry
        (lambda x, y: (x + y).narrow(32), 31, 31),  # n - 1 modulo 2^n
        (lambda x, y: (x - y).narrow(32), 31, 31),
        (lambda x, y: x < y, 32, 32),
        (lambda x, y: x >= y, 32, 32),
        (lambda x, y: x.equals(y), 31, 31),
        (lambda x, y: (x < y).select(x, y), 64, 64),
        (lambda x, y: x.maximum(y), 64, 64),
        (lambda x, y: abs(x), 31, 0),
        (lambda x, y: x * x, 32 * 32 - 32, 32 * 32 - 32),
        (lambda x, y: x * y, 2 * 32 * 32 - 32, 2 * 32 * 32 - 32),
        (lambda x, y: x.divide(y, fraction=0), 1181, 1151),
        (lambda x, y: x.sqrt(fraction=0), 166, 136),
        (lambda x, y: x.rescale(4).narrow(8), 0, 0),
        (lambda x, y: ~(x < x), 0, 0),
    ],
)
def test_an_operation_costs_the_known_number_of_and_gates(compute, signed_gates, unsigned_gates):
    assert circuit_of(compute).and_gates == signed_gates
    assert circuit_of(compute, signed=False).and_gates == unsigned_gates


def test_a_dot_product_is_as_shallow_as_a_product_and_adds_little():
    one = circuit_of(lambda x, y: x * y).and_gates
    eight = circuit_of(lambda x, y: x.dot(y), shape=(8,)).and_gates
    assert eight <= 8 * (one + 32)
    assert circuit_of(lambda x, y: x.dot(y), shape=(8,)).and_depth < 100


def truncated(numerator, denominator):
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 13, 33])
def test_every_operation_agrees_with_integers(width, signed):
    random = Random(width)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=width, shape=(6,), signed=signed)
    y = build.input("y", EVALUATOR, width=width, shape=(6,), signed=signed)
    found = {
        "sum": x + y, "difference": x - y, "product": x * y, "square": x * x, "dot": x.dot(y), "squares": x.dot(),
        "total": x.sum(), "negative": -x, "size": abs(x), "less": x < y, "most": x <= y, "equal": x.equals(y),
        "smaller": x.minimum(y), "larger": x.maximum(y), "least": x.min(), "largest": x.max(),
        "quotient": x.divide(y, fraction=3), "root": x.sqrt(fraction=2), "low": (x * y).narrow(width),
        "either": ((x < y) | x.equals(y)) ^ (y < x), "both": (x <= y) & (y <= x),
        "matrix": x.reshape(2, 3).matmul(y[:3]), "part": x[1:5:2], "count": (x < y).number().sum(),
    }  # fmt: skip
    for name, value in found.items():
        build.output(name, value, to=BOTH)
    circuit = build.circuit()
    for _ in range(3):
        xs = [low, high, *(random.randint(low, high) for _ in range(4))]
        ys = [low, *(random.randint(low, high) for _ in range(5))]
        got = circuit.evaluate({"x": xs, "y": ys})
        pairs = list(zip(xs, ys, strict=True))
        wrap = 1 << width
        expected = {
            "sum": [a + b for a, b in pairs], "difference": [a - b for a, b in pairs],
            "product": [a * b for a, b in pairs], "square": [a * a for a in xs],
            "dot": sum(a * b for a, b in pairs), "squares": sum(a * a for a in xs),
            "total": sum(xs), "negative": [-a for a in xs], "size": [abs(a) for a in xs],
            "less": [a < b for a, b in pairs], "most": [a <= b for a, b in pairs], "equal": [a == b for a, b in pairs],
            "smaller": [min(pair) for pair in pairs], "larger": [max(pair) for pair in pairs],
            "least": min(xs), "largest": max(xs),
            "root": [Fraction(isqrt(max(a, 0) * 16), 4) for a in xs],
            "low": [(a * b + wrap // 2) % wrap - wrap // 2 for a, b in pairs],
            "either": [(a <= b) != (b < a) for a, b in pairs], "both": [a == b for a, b in pairs],
            "matrix": [sum(a * b for a, b in zip(xs[at : at + 3], ys[:3], strict=True)) for at in (0, 3)],
            "part": xs[1:5:2], "count": sum(a < b for a, b in pairs),
        }  # fmt: skip
        assert {name: got[name] for name in expected} == expected
        for quotient, (a, b) in zip(got["quotient"], pairs, strict=True):
            assert b == 0 or quotient == Fraction(truncated(a * 8, b), 8)


def test_a_quotient_by_zero_is_the_largest_number_of_the_format():
    circuit = circuit_of(lambda x, y: x.divide(y, fraction=2), width=8, shape=(3,))
    got = circuit.evaluate({"left": [5, -5, 0], "right": [0, 0, 0]})["found"]
    assert got == [Fraction(1023, 4), Fraction(-1023, 4), Fraction(1023, 4)]


def test_fixed_point_numbers_are_aligned_and_round_down():
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=16, fraction=8)
    y = build.input("y", EVALUATOR, width=16, fraction=4)
    build.output("sum", x + y, to=BOTH)
    build.output("product", (x * y).rescale(8), to=BOTH)
    build.output("quotient", x.divide(y, fraction=6), to=BOTH)
    build.output("root", x.sqrt(fraction=8), to=BOTH)
    build.output("less", x < y, to=BOTH)
    build.output("shifted", x * build.constant(-2.5, width=8, fraction=1), to=BOTH)
    a, b = Fraction(37, 256), Fraction(-51, 16)
    got = build.circuit().evaluate({"x": float(a), "y": Decimal("-3.1875")})
    assert got["sum"] == a + b
    assert got["product"] == Fraction((a * b * 256).__floor__(), 256)
    assert got["quotient"] == Fraction(-int(-a / b * 64), 64)
    assert got["root"] == Fraction(isqrt(int(a * 65536)), 256)
    assert got["less"] == 0
    assert got["shifted"] == a * Fraction(-5, 2)


def test_inputs_are_rounded_to_the_nearest_number_of_the_format():
    port = CircuitBuilder()
    port.input("x", GARBLER, width=8, fraction=2, shape=(4,))
    rows = port._inputs[0]
    got = rows.decode(rows.encode([0.3, Fraction(3, 8), np.float64(-0.125), np.int64(-31)]))
    assert got == [Fraction(1, 4), Fraction(1, 2), 0, -31]


def test_constants_fold_and_unused_gates_are_left_out():
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=16)
    unused = x * x
    build.output("twice", x * build.constant(2, width=3), to=BOTH)
    circuit = build.circuit()
    assert unused.width == 32
    assert circuit.and_gates < 20
    assert circuit.evaluate({"x": -123})["twice"] == -246


def test_a_constant_an_input_and_a_negation_can_be_outputs():
    build = CircuitBuilder()
    x = build.input("x", EVALUATOR, width=4)
    build.output("same", x, to=BOTH)
    build.output("fixed", build.constant([3, -4], width=4), to=EVALUATOR)
    build.output("not", ~(x < build.constant(0, width=1)), to=GARBLER)
    circuit = build.circuit()
    assert circuit.evaluate({"x": -5}) == {"same": -5, "fixed": [3, -4], "not": 0}
    assert circuit.and_gates == 0


def test_whole_numbers_of_python_are_public_constants():
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=8)
    made = {
        "sum": x + 3, "less": x < -4, "more": x > 5, "most": x <= 9, "times": x * -5, "top": x.maximum(0),
        "half": x.divide(2, fraction=1), "is": x.equals(9),
    }  # fmt: skip
    for name, value in made.items():
        build.output(name, value, to=BOTH)
    assert build.circuit().evaluate({"x": 9}) == {
        "sum": 12, "less": 0, "more": 1, "most": 1, "times": -45, "top": 9, "half": Fraction(9, 2), "is": 1,
    }  # fmt: skip


def test_the_digest_tells_circuits_apart():
    makers = [lambda x, y: x + y, lambda x, y: x - y, lambda x, y: y + x]
    digests = [circuit_of(make).digest for make in makers]
    assert len(set(digests)) == 3
    assert circuit_of(makers[0]).digest == digests[0]
    assert circuit_of(makers[0], width=31).digest != digests[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda build, x: build.input("y", GARBLER, width=8.0),
        lambda build, x: build.input("y", GARBLER, width="8"),
        lambda build, x: build.input("y", GARBLER, width=True),
        lambda build, x: build.input("y", GARBLER, width=8, shape=(10**12,)),
        lambda build, x: build.input("y", GARBLER, width=8, shape=5),
        lambda build, x: build.input("y", GARBLER, width=8, shape=(3.7,)),
        lambda build, x: build.input("y", GARBLER, width=8, fraction=10**12),
        lambda build, x: build.constant(5, width=0),
        lambda build, x: build.constant(5, width=10**9),
        lambda build, x: build.constant(1, width=4.0),
        lambda build, x: build.constant([np.zeros((2, 2)), np.zeros((2, 3))], width=4),
        lambda build, x: build.constant(Decimal("1e999999999"), width=4),
        lambda build, x: x.narrow(10**9),
        lambda build, x: x.narrow(3.0),
        lambda build, x: x.rescale(10**9),
        lambda build, x: x.divide(3, fraction=10**9),
        lambda build, x: x.sqrt(fraction=10**9),
        lambda build, x: x + (1 << 10**5),
        lambda build, x: x + x[:2],
        lambda build, x: (x < 0) & (x[:2] < 0),
        lambda build, x: (x[:2] < 0).select(x, x),
        lambda build, x: x[3:],
        lambda build, x: x.reshape(2, 2),
    ],
)
def test_sizes_and_shapes_that_no_circuit_has_are_refused_before_memory_is_taken(call):
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=8, shape=(3,))
    failure_of(lambda: call(build, x), BadInput)
    assert [number.width for number in x] == [8, 8, 8]  # a loop over an array ends


def test_a_width_of_numpy_is_the_same_width():
    digests = []
    for width in (8, np.int64(8)):
        build = CircuitBuilder()
        build.output("same", build.input("x", GARBLER, width=width), to=BOTH)
        digests.append(build.circuit().digest)
    assert digests[0] == digests[1]


def test_bad_programs_are_refused():
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=8, shape=(2,))
    for call in (
        lambda: build.input("x", GARBLER, width=8),
        lambda: build.input("", GARBLER, width=8),
        lambda: build.input("y", "both", width=8),
        lambda: build.input("y", GARBLER, width=0),
        lambda: build.input("y", GARBLER, width=8, shape=(0,)),
        lambda: build.output("out", x, to="everyone"),
        build.circuit,
        lambda: bool(x < x),
        lambda: x == x,
        lambda: (x < x) == (x < x),
        lambda: x + 0.5,
        lambda: x < True,
        lambda: bool(x),
        lambda: x.dot(x[:1]),
        lambda: x[0].sum(),
        lambda: x[0].min(),
        lambda: x.matmul(x),
        lambda: x.narrow(0),
        lambda: x.rescale(-8),
    ):
        failure_of(call, BadInput)
    build.output("sum", x.sum(), to=BOTH)
    assert "before the first gate" in failure_of(lambda: build.input("y", GARBLER, width=8), BadInput)


@pytest.mark.parametrize("value", [8, -9, 1e300, 77.5, float("nan"), float("inf"), "7", None, True, [1], [[1]]])
def test_an_input_outside_its_declaration_is_refused_without_its_value(value):
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=4)
    build.output("out", x, to=BOTH)
    told = failure_of(lambda: build.circuit().input_bits(GARBLER, {"x": value}), BadInput)
    assert not any(text in told for text in ("77", "1e300", "-9"))


def test_inputs_that_are_missing_or_unknown_are_refused():
    circuit = circuit_of(lambda x, y: x + y)
    for given in ({}, {"left": 1, "right": 2}, {"other": 1}):
        failure_of(lambda given=given: circuit.input_bits(GARBLER, given), BadInput)
    for given in ({}, {"left": 1}, {"left": 1, "right": 2, "more": 3}):
        failure_of(lambda given=given: circuit.evaluate(given), BadInput)


def test_operands_of_two_builders_are_refused():
    build, other = CircuitBuilder(), CircuitBuilder()
    x, y = build.input("x", GARBLER, width=8), other.input("y", EVALUATOR, width=8)
    for misuse in (
        lambda: x + y,
        lambda: x - y,
        lambda: x * y,
        lambda: x > y,
        lambda: x.equals(y),
        lambda: x.reshape(1).dot(y.reshape(1)),
        lambda: x.divide(y, fraction=2),
        lambda: (x > 1).select(y, y),
        lambda: (x > 1).select(x, y),
        lambda: (x > 1) & (y > 1),
        lambda: other.output("o", x, to=BOTH),
    ):
        with pytest.raises(BadInput, match="CircuitBuilder"):
            misuse()


@pytest.mark.parametrize("join", ["__and__", "__or__", "__xor__"])
def test_a_condition_is_joined_with_conditions_only(join):
    x = CircuitBuilder().input("x", GARBLER, width=8)
    for operand in (x, 1, True):
        with pytest.raises(BadInput, match="condition"):
            getattr(x > 1, join)(operand)


@pytest.mark.parametrize("fraction", [-3, 1.5, True, "2"])
def test_bits_after_the_point_are_not_negative(fraction):
    build = CircuitBuilder()
    x = build.input("x", GARBLER, width=8)
    for misuse in (
        lambda: CircuitBuilder().input("z", GARBLER, width=8, fraction=fraction),
        lambda: build.constant(1, width=8, fraction=fraction),
        lambda: x.rescale(fraction),
        lambda: x.divide(3, fraction=fraction),
        lambda: x.sqrt(fraction=fraction),
    ):
        with pytest.raises(BadInput, match="fraction"):
            misuse()
