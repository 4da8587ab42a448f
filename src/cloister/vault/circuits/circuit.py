"""A Boolean circuit, sorted into steps of gates that do not depend on each other.

A wire is a row of an array. Row 0 is the constant False, then come the inputs, then the gates in the order of the
steps: a step reads rows by index and writes one contiguous range. All gates of a step are of one kind, XOR or AND.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Literal, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput

__all__ = ["BOTH", "EVALUATOR", "GARBLER", "Bits", "Circuit", "Party", "Port", "Reader", "Value", "Values"]

Party = Literal["garbler", "evaluator"]
Reader = Literal["garbler", "evaluator", "both"]
GARBLER: Party = "garbler"
EVALUATOR: Party = "evaluator"
BOTH: Reader = "both"

_MOST_EXPONENT = 2_000  # of a Decimal, whose exact value is as long

Bits = NDArray[np.bool_]
Index = NDArray[np.intp]
Value = int | Fraction | list["Value"]  # a number, or lists of numbers in the shape of the port
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output: numbers of one format, in two's complement, the lowest bit first.

    Attributes:
        name: its name in the circuit.
        party: who gives the input, or who reads the output.
        shape: the shape of the array of numbers; () for a single number.
        width: bits of a number.
        fraction: bits after the point.
        signed: False if the highest bit is not a sign.
    """

    name: str
    party: Reader
    shape: tuple[int, ...]
    width: int
    fraction: int
    signed: bool

    @property
    def size(self) -> int:
        """Return the number of wires."""
        return prod(self.shape) * self.width

    def encode(self, value: object) -> Bits:
        """Return the bits of a number, or of nested lists or an array of numbers; round to the nearest, ties up."""
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise BadInput(f"input '{self.name}' has masked places. Fill in what is missing first.")
        if (shape := shape_of(value)) != self.shape:
            raise BadInput(f"input '{self.name}' has the shape {self.shape}, got {shape}. Give all its numbers.")
        numbers = np.asarray(value, dtype=object)
        low, high = (-(1 << (self.width - 1)), 1 << (self.width - 1)) if self.signed else (0, 1 << self.width)
        raw = bytearray()
        size = -(-self.width // 8)
        for number in numbers.flat:
            scaled = _scaled(number, self.fraction, self.name)
            if not low <= scaled < high:
                raise BadInput(
                    f"a number of input '{self.name}' is outside its declared range, {self.describe()}. "
                    "Declare a larger width, or scale the input."
                )
            raw += (scaled % (1 << self.width)).to_bytes(size, "little")
        rows = np.frombuffer(bytes(raw), dtype=np.uint8).reshape(-1, size)
        return np.unpackbits(rows, axis=1, count=self.width, bitorder="little").reshape(-1).astype(np.bool_)

    def decode(self, bits: Bits) -> Value:
        """Return the number, or nested lists of numbers: ints, or fractions if the port has bits after the point."""
        packed = np.packbits(bits.reshape(-1, self.width), axis=1, bitorder="little")
        numbers = np.empty(len(packed), dtype=object)
        for place, row in enumerate(packed):
            number = int.from_bytes(row.tobytes(), "little")
            if self.signed and number >> (self.width - 1):
                number -= 1 << self.width
            numbers[place] = Fraction(number, 1 << self.fraction) if self.fraction else number
        shaped: Value = numbers.reshape(self.shape).tolist()
        return shaped

    def describe(self) -> str:
        """Return the format in words."""
        kind = "signed" if self.signed else "unsigned"
        return f"{kind} numbers of {self.width} bits, {self.fraction} of them after the point"


@dataclass(frozen=True, eq=False)
class Circuit:
    """A circuit to be garbled. Both parties build it from the same program; `digest` shows that they did.

    Attributes:
        inputs: in the order of their wires, which begin at row 1.
        outputs: in the order of their wires in `output_rows`.
        left, right: for each gate, the rows that it reads.
        flip_left, flip_right: for each AND gate, whether the input is negated first; False for an XOR.
        steps: (AND or not, first gate, end) of each step.
        output_rows, output_flips: for each wire of the outputs, its row, and whether it is negated.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    left: Index
    right: Index
    flip_left: Bits
    flip_right: Bits
    steps: tuple[tuple[bool, int, int], ...]
    output_rows: Index
    output_flips: Bits

    @property
    def first_gate(self) -> int:
        """Return the row of the first gate."""
        return 1 + sum(port.size for port in self.inputs)

    @property
    def rows(self) -> int:
        """Return the number of rows: the constant, the inputs and the gates."""
        return self.first_gate + len(self.left)

    @cached_property
    def and_gates(self) -> int:
        """Return the number of AND gates, which is what a garbled circuit costs."""
        return sum(end - start for is_and, start, end in self.steps if is_and)

    @cached_property
    def and_depth(self) -> int:
        """Return the number of steps of AND gates."""
        return sum(is_and for is_and, _, _ in self.steps)

    @cached_property
    def digest(self) -> bytes:
        """Return a hash of the whole circuit, with the names and formats of its inputs and outputs."""
        hashed = hashlib.sha256(repr((self.inputs, self.outputs, self.steps)).encode())
        for rows in (self.left, self.right, self.output_rows):
            hashed.update(rows.astype("<i8").tobytes())
        for flips in (self.flip_left, self.flip_right, self.output_flips):
            hashed.update(np.packbits(flips).tobytes())
        return hashed.digest()

    def input_bits(self, party: Party, values: Values) -> Bits:
        """Encode the inputs of one party, in the order of the ports."""
        ports = [port for port in self.inputs if port.party == party]
        check_names(values, {port.name for port in ports}, f"the inputs of the {party}")
        encoded = [port.encode(values[port.name]) for port in ports]
        return np.concatenate([np.zeros(0, dtype=np.bool_), *encoded])

    def input_rows(self, party: Party) -> Index:
        """Return the rows of one party's inputs, in the order of the ports."""
        rows, at = [np.zeros(0, dtype=np.intp)], 1
        for port in self.inputs:
            if port.party == party:
                rows.append(np.arange(at, at + port.size, dtype=np.intp))
            at += port.size
        return np.concatenate(rows)

    def output_places(self, reader: Party) -> Bits:
        """Return which wires of the outputs this party may read."""
        return np.concatenate(
            [np.zeros(0, dtype=np.bool_)]
            + [np.full(port.size, port.party in (reader, BOTH), dtype=np.bool_) for port in self.outputs]
        )

    def decode(self, bits: Bits, reader: Party) -> dict[str, Value]:
        """Return the outputs that this party may read; the bits are those of its wires only."""
        values, at = {}, 0
        for port in self.outputs:
            if port.party in (reader, BOTH):
                values[port.name] = port.decode(bits[at : at + port.size])
                at += port.size
        return values

    def evaluate(self, values: Values) -> dict[str, Value]:
        """Compute all outputs in the clear, from the inputs of both parties: a reference for tests and estimates."""
        rows = np.zeros(self.rows, dtype=np.bool_)
        check_names(values, {port.name for port in self.inputs}, "the inputs of both parties")
        for party in (GARBLER, EVALUATOR):
            theirs = {port.name: values[port.name] for port in self.inputs if port.party == party}
            rows[self.input_rows(party)] = self.input_bits(party, theirs)
        for is_and, start, end in self.steps:
            gates = slice(start, end)
            left, right = rows[self.left[gates]], rows[self.right[gates]]
            found = (left ^ self.flip_left[gates]) & (right ^ self.flip_right[gates]) if is_and else left ^ right
            rows[self.first_gate + start : self.first_gate + end] = found
        bits = rows[self.output_rows] ^ self.output_flips
        found_values, at = {}, 0
        for port in self.outputs:
            found_values[port.name] = port.decode(bits[at : at + port.size])
            at += port.size
        return found_values

    def __repr__(self) -> str:
        return f"<Circuit, {self.and_gates} AND gates in {self.and_depth} steps>"


def check_names(values: object, names: set[str], whose: str) -> None:
    """Refuse values that are no mapping from exactly these names."""
    if not isinstance(values, Mapping):
        raise BadInput(f"{whose} are a dict from names to numbers, got {type(values).__name__:.40}.")
    wrong = {"missing": names - values.keys(), "unknown": {str(name) for name in values.keys() - names}}
    if any(wrong.values()):
        listed = "; ".join(f"{how}: {', '.join(sorted(found)):.200}" for how, found in wrong.items() if found)
        raise BadInput(f"{whose} are given by name, each once ({listed}).")


def shape_of(value: object) -> tuple[int, ...]:
    """Return the shape of a number, nested lists or an array."""
    try:
        return np.asarray(value, dtype=object).shape
    except ValueError:
        pass
    raise BadInput("an array of numbers has rows of one length. Give all its numbers.")


def _scaled(number: object, fraction: int, name: str) -> int:
    """Return a number as a multiple of 2^-fraction, exactly rounded."""
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, bool) or not isinstance(number, int | float | Fraction | Decimal | SupportsIndex):
        raise BadInput(f"input '{name}' takes numbers, got a {type(number).__name__}.")
    if isinstance(number, Decimal) and number.is_finite() and abs(number.adjusted()) > _MOST_EXPONENT:
        raise BadInput(f"input '{name}' takes decimals of at most {_MOST_EXPONENT} digits. Round it first.")
    try:
        exact = Fraction(number)  # type: ignore[arg-type]
    except (ValueError, OverflowError, TypeError):
        raise BadInput(f"input '{name}' takes finite numbers. Remove what is missing or infinite first.") from None
    if fraction == 0 and exact.denominator != 1:
        raise BadInput(f"input '{name}' takes whole numbers. Declare bits after the point with fraction=.")
    return int((exact * (2 << fraction) + 1) // 2)
