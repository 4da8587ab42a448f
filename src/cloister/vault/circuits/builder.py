"""Write a circuit as arithmetic on arrays of numbers.

    build = CircuitBuilder()
    mine = build.input("mine", GARBLER, width=32)
    theirs = build.input("theirs", EVALUATOR, width=32)
    build.output("richer", mine > theirs, to=BOTH)
    circuit = build.circuit()

A literal is twice a wire's number, plus 1 if it is negated: a negation costs nothing. Wire 0 is the constant False.
Gates with a constant, equal or opposite inputs are not made, and gates that no output needs are left out.
Each gate gets a sort key as it is made: the number of AND gates on its longest path, then the XORs since the last.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput
from cloister.vault.circuits.circuit import BOTH, EVALUATOR, GARBLER, Circuit, Party, Port, Reader, shape_of

if TYPE_CHECKING:
    from cloister.vault.circuits.number import Number, Truth

__all__ = ["FALSE", "TRUE", "CircuitBuilder", "Literals", "checked_fraction", "checked_width"]

Literals = NDArray[np.int64]
FALSE, TRUE = 0, 1

_XOR_BITS = 24  # of a sort key, for XORs since the last AND
_MOST_WIDTH = 4096
_MOST_WIRES = 1 << 28  # of one input


class CircuitBuilder:
    """Collects gates. Every call makes gates for whole arrays."""

    def __init__(self) -> None:
        self._keys = np.zeros(1 << 12, dtype=np.int64)
        self._wires = 1
        self._inputs: list[Port] = []
        self._outputs: list[tuple[Port, Literals]] = []
        self._gates: list[tuple[bool, int, Literals, Literals]] = []

    def input(
        self,
        name: str,
        party: Party,
        *,
        width: int,
        shape: Sequence[int] = (),
        fraction: int = 0,
        signed: bool = True,
    ) -> "Number":
        """Declare an input. All inputs are declared before the first gate.

        Args:
            name: its name; each once.
            party: who gives it.
            width: bits of a number, with the sign.
            shape: the shape of an array of numbers.
            fraction: bits after the point.
            signed: False for numbers from 0 to 2^width - 1.
        """
        from cloister.vault.circuits.number import Number

        if party not in (GARBLER, EVALUATOR):
            raise BadInput(f"an input is the garbler's or the evaluator's, got {party!r:.20}.")
        if self._gates:
            raise BadInput("inputs are declared before the first gate. Move this input up.")
        if not isinstance(shape, Sequence) or not all(_is_whole(length) for length in shape):
            raise BadInput("the shape of an input is a tuple of whole numbers, such as (3,).")
        port = self._port(name, party, tuple(int(length) for length in shape), width, fraction, signed)
        bits = self._new(np.zeros(port.size, dtype=np.int64)).reshape(*port.shape, width)
        self._inputs.append(port)
        if not signed:
            bits = np.concatenate([bits, np.full((*port.shape, 1), FALSE)], axis=-1)
        return Number(self, bits, fraction)

    def constant(self, value: object, *, width: int, fraction: int = 0) -> "Number":
        """Return a public number, or an array of them, as signed numbers of this width."""
        from cloister.vault.circuits.number import Number

        checked_fraction(fraction)
        port = Port("constant", BOTH, shape_of(value), checked_width(width), fraction, signed=True)
        return Number(self, port.encode(value).astype(np.int64).reshape(*port.shape, width), fraction)

    def output(self, name: str, value: "Number | Truth", *, to: Reader) -> None:
        """Declare an output and who reads it: the garbler, the evaluator or both."""
        if to not in (GARBLER, EVALUATOR, BOTH):
            raise BadInput(f"an output is read by the garbler, the evaluator or both, got {to!r:.20}.")
        if not hasattr(value, "wires"):
            kind = type(value).__name__
            raise BadInput(f"an output is a Number or a condition, got {kind:.40}. Use constant() for a public number.")
        bits, fraction, signed = value.wires()
        if value.build is not self:
            raise BadInput("this output is of another CircuitBuilder. Make inputs and outputs with one.")
        port = self._port(name, to, bits.shape[:-1], bits.shape[-1], fraction, signed)
        self._outputs.append((port, bits.reshape(-1)))

    def xor(self, left: Literals, right: Literals) -> Literals:
        """Return the XOR of two arrays of literals, which are broadcast."""
        left, right = _broadcast(left, right)
        # A constant or an equal wire leaves the other's wire, or wire 0, which is what the XOR of literals yields too.
        made = np.asarray(np.where(left >> 1 == right >> 1, (left ^ right) & 1, left ^ right))
        real = (left > TRUE) & (right > TRUE) & (left >> 1 != right >> 1)
        if real.any():
            a, b = left[real], right[real]
            made[real] = self._gate(False, a & ~1, b & ~1) | ((a ^ b) & 1)
        return made

    def and_(self, left: Literals, right: Literals) -> Literals:
        """Return the AND of two arrays of literals, which are broadcast."""
        left, right = _broadcast(left, right)
        made = np.where((left == TRUE) | (left == right), right, np.where(right == TRUE, left, FALSE))
        real = (left > TRUE) & (right > TRUE) & (left >> 1 != right >> 1)
        if real.any():
            made[real] = self._gate(True, left[real], right[real])
        return made

    def or_(self, left: Literals, right: Literals) -> Literals:
        """Return the OR of two arrays of literals, which are broadcast."""
        return self.and_(left ^ 1, right ^ 1) ^ 1

    def circuit(self) -> Circuit:
        """Return the circuit, sorted into steps, without gates that no output needs."""
        if not self._outputs:
            raise BadInput("a circuit without an output computes nothing. Declare one with output().")
        none = np.zeros(0, dtype=np.int64)
        left = np.concatenate([none, *(gate[2] for gate in self._gates)])
        right = np.concatenate([none, *(gate[3] for gate in self._gates)])
        outputs = np.concatenate([none, *(literals for _, literals in self._outputs)])
        first = 1 + sum(port.size for port in self._inputs)
        keys = self._keys[first : self._wires]
        order = np.argsort(keys, kind="stable")
        order = order[_needed(keys, order, left >> 1, right >> 1, outputs >> 1, first)]
        rows = np.zeros(self._wires, dtype=np.intp)
        rows[:first] = np.arange(first)
        rows[first + order] = np.arange(first, first + len(order))
        left, right = left[order], right[order]
        return Circuit(
            inputs=tuple(self._inputs),
            outputs=tuple(port for port, _ in self._outputs),
            left=rows[left >> 1],
            right=rows[right >> 1],
            flip_left=(left & 1).astype(np.bool_),
            flip_right=(right & 1).astype(np.bool_),
            steps=tuple(
                (int(keys[order[start]]) & ((1 << _XOR_BITS) - 1) == 0, start, end)
                for start, end in _steps(keys[order])
            ),
            output_rows=rows[outputs >> 1],
            output_flips=(outputs & 1).astype(np.bool_),
        )

    def _gate(self, is_and: bool, left: Literals, right: Literals) -> Literals:
        deepest = np.maximum(self._keys[left >> 1], self._keys[right >> 1])
        keys = ((deepest >> _XOR_BITS) + 1) << _XOR_BITS if is_and else deepest + 1
        made = self._new(keys)
        self._gates.append((is_and, self._wires, left, right))
        return made

    def _new(self, keys: NDArray[np.int64]) -> Literals:
        """Return literals of new wires with these sort keys."""
        start, end = self._wires, self._wires + len(keys)
        if end > len(self._keys):
            self._keys = np.concatenate([self._keys, np.zeros(max(end, len(self._keys)), dtype=np.int64)])
        self._keys[start:end] = keys
        self._wires = end
        return np.arange(start, end, dtype=np.int64) << 1

    def _port(self, name: str, party: Reader, shape: tuple[int, ...], width: int, fraction: int, signed: bool) -> Port:
        taken = [port.name for port in self._inputs] + [port.name for port, _ in self._outputs]
        if not isinstance(name, str) or not name or name in taken:
            raise BadInput(f"each input and output has a name of its own, got {name!r:.40} again or empty.")
        if any(length < 1 for length in shape) or prod(shape) * checked_width(width) > _MOST_WIRES:
            raise BadInput(f"an array has 1 to {_MOST_WIRES} bits in all; see '{name:.40}'. Compute it in parts.")
        return Port(name, party, shape, int(width), checked_fraction(fraction), signed)


def checked_fraction(fraction: int) -> int:
    """Return a number of bits after the point, or refuse one that is negative, too large or no whole number."""
    if not _is_whole(fraction) or not 0 <= fraction <= _MOST_WIDTH:
        raise BadInput(f"fraction is a number of bits after the point, 0 to {_MOST_WIDTH}, got {fraction!r:.20}.")
    return int(fraction)


def checked_width(width: int) -> int:
    """Return a number of bits, or refuse one that no number has."""
    if not _is_whole(width) or not 1 <= width <= _MOST_WIDTH:
        raise BadInput(f"a number has 1 to {_MOST_WIDTH} bits, got {width!r:.20}. Declare another width.")
    return int(width)


def _broadcast(left: Literals, right: Literals) -> tuple[Literals, Literals]:
    try:
        found = np.broadcast_arrays(left, right)
    except ValueError:
        raise BadInput("these arrays have shapes that do not fit each other. Reshape or index one of them.") from None
    return found[0], found[1]


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _needed(
    keys: NDArray[np.int64], order: NDArray[np.intp], left: Literals, right: Literals, outputs: Literals, first: int
) -> NDArray[np.bool_]:
    """Mark the gates, in this order, from which an output can be reached."""
    live = np.zeros(first + len(keys), dtype=np.bool_)
    live[outputs] = True
    for start, end in reversed(_steps(keys[order])):
        gates = order[start:end]
        gates = gates[live[first + gates]]
        live[left[gates]] = True
        live[right[gates]] = True
    return live[first + order]


def _steps(keys: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return the ranges of equal sort keys."""
    edges = np.flatnonzero(np.diff(keys)) + 1
    cuts = [0, *edges.tolist(), len(keys)] if len(keys) else [0]
    return list(pairwise(cuts))
