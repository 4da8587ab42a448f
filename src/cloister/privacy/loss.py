"""Privacy loss as a value, `epsilon(1)`, `epsilon(1, delta=1e-6)`, `rho("0.1")`; and the unit that it protects.

A loss is exact (rationals, never floats), states its neighbour relation, adds, compares and prints. Losses of
different measure or relation never mix silently: the error names the conversion.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Literal

from cloister.privacy import conversion
from cloister.privacy.errors import BadBounds, BadLoss, BadName, MeasureMismatch, RelationMismatch, UnknownRelation
from cloister.privacy.number import Number, exp_up, rational, rounded_up, show

__all__ = ["ROW", "Loss", "Measure", "Relation", "Unit", "check_loss", "epsilon", "rho"]


Measure = Literal["epsilon", "rho"]


class Relation(StrEnum):
    """The neighbour relation: the pairs of tables that are neighbours."""

    ADD_REMOVE = "add/remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def of(cls, word: "str | Relation") -> "Relation":
        """Return the relation named by the caller."""
        try:
            return cls(word)
        except ValueError:
            raise UnknownRelation(f"relation must be 'add/remove' or 'replace-one', got {word!r:.40}.") from None


@dataclass(frozen=True, slots=True, repr=False)
class Loss:
    """An amount of privacy loss. Made with `epsilon(...)` or `rho(...)`.

    Attributes:
        measure: `"epsilon"` (pure, or approximate if delta > 0) or `"rho"` (zCDP, approximate if delta > 0).
        amount: the epsilon or rho.
        delta: probability with which the guarantee may fail; a total is capped at 1, where nothing is guaranteed.
        relation: the neighbour relation.

    >>> epsilon("0.1") * 10 == epsilon(1)
    True
    >>> print(epsilon(1, delta=1e-6) + epsilon("0.5"))
    epsilon 1.5, delta 1e-06
    """

    measure: Measure
    amount: Fraction
    delta: Fraction = Fraction(0)
    relation: Relation = Relation.ADD_REMOVE

    def __post_init__(self) -> None:
        if self.measure not in ("epsilon", "rho"):
            raise BadLoss(f"a loss is measured in epsilon or rho, got {self.measure!r:.40}.")
        if not (isinstance(self.amount, Fraction) and isinstance(self.delta, Fraction)):
            raise BadLoss("a loss holds exact rationals. Write epsilon(...) or rho(...), which make them.")
        if not isinstance(self.relation, Relation):
            raise UnknownRelation("a loss holds a Relation. Write epsilon(..., relation='replace-one').")
        if self.amount < 0 or not 0 <= self.delta <= 1:
            raise BadLoss("a loss cannot be negative, and its delta must lie in [0, 1].")

    @classmethod
    def parse(cls, text: str, *, bare: bool = False) -> "Loss":
        """Read a loss from text; commas and equals signs count as spaces.

        Args:
            text: a measure and an amount; then, if wanted, a delta and a neighbour relation.
            bare: whether a number without a measure is an epsilon.

        >>> print(Loss.parse("rho 0.01"), "|", Loss.parse("epsilon 0.5, delta 1e-8"), "|", Loss.parse("0.5", bare=True))
        rho 0.01 | epsilon 0.5, delta 1e-08 | epsilon 0.5
        """
        words = text.lower().replace(",", " ").replace("=", " ").split() if isinstance(text, str) else []
        relation = Relation.ADD_REMOVE
        if words and words[-1] in set(Relation):
            relation = Relation.of(words.pop())
        if bare and words and words[0] not in ("epsilon", "rho"):
            words.insert(0, "epsilon")
        if len(words) not in (2, 4) or words[0] not in ("epsilon", "rho") or words[2:3] not in ([], ["delta"]):
            ways = (
                "'epsilon 1, delta 1e-6', or '0.5' for epsilon 0.5"
                if bare
                else "'epsilon 0.5' or 'epsilon 0.5 delta 1e-8'"
            )
            raise BadLoss(f"{text!r:.60} is no loss. Write 'rho 0.01', {ways}.")
        make = rho if words[0] == "rho" else epsilon
        return make(words[1], delta=words[3] if len(words) == 4 else None, relation=relation)

    @classmethod
    def nothing(cls, measure: Measure, relation: Relation = Relation.ADD_REMOVE) -> "Loss":
        """Return a loss of zero, the start of a total."""
        return cls(measure, Fraction(0), relation=relation)

    @property
    def is_pure(self) -> bool:
        """Return True if this is a pure epsilon."""
        return self.measure == "epsilon" and self.delta == 0

    # Arithmetic: composition of releases on the same data.

    def __add__(self, other: "Loss") -> "Loss":
        self._alike(other, "added")
        return replace(self, amount=self.amount + other.amount, delta=_capped(self.delta + other.delta))

    def __radd__(self, other: object) -> "Loss":
        return self if other == 0 else NotImplemented  # so that sum() works

    def __sub__(self, other: "Loss") -> "Loss":
        self._alike(other, "subtracted")
        return replace(self, amount=self.amount - other.amount, delta=self.delta - other.delta)

    def __mul__(self, count: int) -> "Loss":
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BadLoss(f"a loss is multiplied by a whole number of releases, got {count!r:.40}.")
        return replace(self, amount=self.amount * count, delta=_capped(self.delta * count))

    __rmul__ = __mul__

    def split(self, parts: int) -> "Loss":
        """Return an equal share: `parts` of them add up to exactly this loss."""
        if isinstance(parts, bool) or not isinstance(parts, int) or parts < 1:
            raise BadLoss(f"a loss is split into a whole number of parts, got {parts!r:.40}.")
        return replace(self, amount=self.amount / parts, delta=self.delta / parts)

    # Order: a loss is within another if its amount and its delta are.

    def __le__(self, other: "Loss") -> bool:
        self._alike(other, "compared")
        return self.amount <= other.amount and self.delta <= other.delta

    def __lt__(self, other: "Loss") -> bool:
        return self <= other and self != other

    def __ge__(self, other: "Loss") -> bool:
        return other <= self

    def __gt__(self, other: "Loss") -> bool:
        return other < self

    def _alike(self, other: "Loss", verb: str) -> None:
        if not isinstance(other, Loss):
            raise MeasureMismatch(
                f"a loss is {verb} with a loss, not with a {type(other).__name__}. Write epsilon(...)."
            )
        if self.relation != other.relation:
            raise RelationMismatch(
                f"losses that speak of different neighbours ({self.relation}, {other.relation}) cannot be {verb}. "
                "Convert the add/remove one with as_replace_one()."
            )
        if self.measure != other.measure:
            raise MeasureMismatch(
                f"{self.measure} and {other.measure} cannot be {verb}. "
                "Convert with as_rho() (exact) or as_epsilon(delta=...) (rounded up)."
            )

    # Conversions: rounded up.

    def as_rho(self) -> "Loss":
        """Convert to zCDP exactly: rho = epsilon²/2, with the same delta."""
        if self.measure == "rho":
            return self
        return replace(self, measure="rho", amount=conversion.rho_of_epsilon(self.amount))

    def as_epsilon(self, delta: Number | None = None) -> "Loss":
        """Convert to (epsilon, delta), rounded up.

        Args:
            delta: the delta to convert a rho at. It is added to the delta the loss already has, and the result
                states the total (Bun & Steinke 2016, Lemma 8.8).
        """
        if self.measure == "epsilon":
            return self
        if delta is None:
            raise BadLoss("a rho becomes an epsilon only at a delta. Write loss.as_epsilon(delta='1e-6').")
        extra = _delta(delta)
        amount = conversion.epsilon_of_rho(self.amount, extra)
        return replace(self, measure="epsilon", amount=amount, delta=_capped(self.delta + extra))

    def group(self, size: int) -> "Loss":
        """Return the loss for a group of `size` units.

        Pure: size·epsilon. zCDP: size²·rho. (epsilon, delta): (size·epsilon, size·e^((size-1)·epsilon)·delta),
        rounded up. Approximate zCDP is converted first. This is for `size` units in one release; `size` releases
        about one unit are `loss * size`.
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise BadLoss(f"a group has a whole number of units, got {size!r:.40}.")
        if size == 1:
            return self
        if self.measure == "rho":
            if self.delta:
                raise BadLoss("a rho with a delta has no group form here. Convert with as_epsilon(delta=...) first.")
            return replace(self, amount=self.amount * size * size)
        delta, exponent = self.delta, (size - 1) * self.amount
        if delta:
            # e^5000 exceeds the inverse of any delta allowed here; larger powers would only take longer.
            delta = _capped(rounded_up(exp_up(exponent) * size * delta)) if exponent < 5000 else Fraction(1)
        return replace(self, amount=self.amount * size, delta=delta)

    def as_replace_one(self) -> "Loss":
        """Convert an add/remove loss to replace-one: remove one unit, add another, so a group of two."""
        if self.relation is Relation.REPLACE_ONE:
            return self
        return replace(self.group(2), relation=Relation.REPLACE_ONE)

    # Words.

    def __str__(self) -> str:
        text = f"{self.measure} {show(self.amount)}"
        if self.delta:
            text += f", delta {show(self.delta)}" if self.delta < 1 else ", delta 1 (no promise)"
        return text if self.relation is Relation.ADD_REMOVE else f"{text} ({self.relation})"

    def __repr__(self) -> str:
        parts = [f"'{self.amount}'"]
        if self.delta:
            parts.append(f"delta='{self.delta}'")
        if self.relation is not Relation.ADD_REMOVE:
            parts.append(f"relation='{self.relation}'")
        return f"{self.measure}({', '.join(parts)})"

    def to_json(self) -> dict[str, str]:
        """Return an exact record for ledgers and receipts."""
        return {
            "measure": self.measure,
            "amount": str(self.amount),
            "delta": str(self.delta),
            "relation": str(self.relation),
        }

    @classmethod
    def from_json(cls, record: dict[str, str]) -> "Loss":
        """Return the loss recorded in a ledger or receipt."""
        try:
            measure, amount, delta, relation = (record[key] for key in ("measure", "amount", "delta", "relation"))
        except (KeyError, TypeError):
            raise BadLoss("a recorded loss has a measure, an amount, a delta and a relation.") from None
        if measure not in ("epsilon", "rho"):
            raise BadLoss("a loss is measured in epsilon or rho.")
        return cls(
            "epsilon" if measure == "epsilon" else "rho",
            rational(amount, "amount"),
            rational(delta, "delta"),
            Relation.of(relation),
        )


def epsilon(amount: Number, *, delta: Number | None = None, relation: str | Relation = Relation.ADD_REMOVE) -> Loss:
    """Return a loss of epsilon; with a delta, of (epsilon, delta).

    Privacy: for neighbouring tables x, y and any set S of outputs, Pr[M(x) in S] <= e^epsilon Pr[M(y) in S] + delta.
    """
    return Loss("epsilon", _positive(amount, "epsilon"), _delta(delta), Relation.of(relation))


def rho(amount: Number, *, delta: Number | None = None, relation: str | Relation = Relation.ADD_REMOVE) -> Loss:
    """Return a loss of rho in zero-concentrated differential privacy; with a delta, approximate zCDP.

    Privacy: for neighbouring tables the Rényi divergence of order alpha is at most rho·alpha for every alpha > 1,
    outside an event of probability delta.
    """
    return Loss("rho", _positive(amount, "rho"), _delta(delta), Relation.of(relation))


def check_loss(loss: object, name: str = "spend") -> None:
    """Refuse anything but an add/remove loss, before anything is read or charged."""
    if not isinstance(loss, Loss):
        raise BadLoss(
            f"{name} is a loss, got {type(loss).__name__}. Write {name}=epsilon('0.1') or {name}=rho('0.01'), "
            "from cloister import epsilon, rho."
        )
    if loss.relation is not Relation.ADD_REMOVE:
        raise BadLoss(
            f"questions state {Relation.ADD_REMOVE} neighbours, and this {name} is {loss}. Give an add/remove "
            f"{name}; Loss.as_replace_one says what it is worth when a unit is replaced."
        )


def _positive(amount: Number, name: str) -> Fraction:
    exact = rational(amount, name)
    if exact <= 0:
        raise BadLoss(f"{name} must be positive, got {show(exact)}. Nothing is free; write for example {name}('0.1').")
    return exact


def _capped(delta: Fraction) -> Fraction:
    # A probability is at most 1. Capping below 1 would turn "no guarantee" into a false guarantee.
    return min(delta, Fraction(1))


def _delta(delta: Number | None) -> Fraction:
    if delta is None:
        return Fraction(0)
    exact = rational(delta, "delta")
    if not 0 < exact < 1:
        raise BadLoss(f"delta must lie strictly between 0 and 1, got {show(exact)}. Leave it out for a pure loss.")
    return exact


_MOST_ROWS = 10**9  # the contribution of one unit fits the integers of every engine


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of privacy: a row, or a person with a bounded number of rows.

    Args:
        name: `"row"`, or the column that identifies a person.
        max_rows: the contribution bound in rows; further rows are dropped before anything is computed.

    >>> print(Unit("patient", max_rows=8))
    one patient (at most 8 rows)
    """

    name: str
    max_rows: int = 1

    def __post_init__(self) -> None:
        name = self.name.strip() if isinstance(self.name, str) else ""
        if not 0 < len(name) <= 200 or not self.name.isprintable():
            raise BadName("a unit needs a short printable name. Write Unit('patient', max_rows=8).")
        if isinstance(self.max_rows, bool) or not isinstance(self.max_rows, int):
            raise BadBounds(f"max_rows must be a whole number of at least 1, got {self.max_rows!r:.40}.")
        if not 1 <= self.max_rows <= _MOST_ROWS:
            raise BadBounds(f"max_rows must be a whole number of at least 1 and at most {_MOST_ROWS:,}.")

    def __str__(self) -> str:
        rows = "1 row" if self.max_rows == 1 else f"{self.max_rows} rows"
        return "one row" if self == ROW else f"one {self.name} (at most {rows})"


ROW = Unit("row")
