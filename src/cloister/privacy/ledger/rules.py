"""The rules of an account: the limit of its budget and the price of a spend.

    budget                      kind   sum of           cap
    epsilon(2)                  pure   epsilon          2
    rho("0.5")                  zcdp   rho              0.5, and no delta
    epsilon(2, delta="1e-6")    zcdp   rho, delta       the largest rho that is (2, half the delta); the other half

Both sums are filters that stay valid when each query is chosen after seeing the answers before it
(Whitehouse, Ramdas, Rogers & Wu 2023).
"""

import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol

from cloister.privacy import conversion
from cloister.privacy.errors import BadLoss, BadName, RelationMismatch, TextbookOnly, WrongMeasure
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, rational, show

__all__ = ["Priced", "Rules", "tidy"]

_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,200}")
_LARGEST_BUDGET = 10**6
_LONGEST_BITS = 512


class Priced(Protocol):
    """The losses that a ledger needs of a mechanism."""

    name: ClassVar[str]
    textbook: ClassVar[bool]

    @property
    def pure(self) -> Loss | None:
        """Its loss as a pure epsilon, if it has one."""
        ...

    @property
    def zcdp(self) -> Loss | None:
        """Its loss as rho, if it has one."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules fixed when an account was opened; they never change.

    Attributes:
        name: the dataset.
        analyst: the analyst of the account, or None if shared.
        budget: the budget as the owner wrote it.
        cap: the budget as a limit on sums: of epsilon, or of rho and the spends' own deltas.
        converted: the part of the budget's delta used to convert the rho cap to the budget's epsilon.
    """

    name: str
    analyst: str | None
    budget: Loss
    cap: Loss
    converted: Fraction = Fraction(0)

    @classmethod
    def of(cls, name: str, budget: Loss, analyst: str | None = None, delta_for_spends: Number = "1/2") -> "Rules":
        """Return the rules that a budget implies.

        Args:
            name: the dataset.
            budget: the loss that all spends together may reach.
            analyst: the analyst of the account; None for a shared account.
            delta_for_spends: for an (epsilon, delta) budget, the share of delta that spends may use up themselves; the
                rest converts the rho cap to epsilon.
        """
        for word in (name,) if analyst is None else (name, analyst):
            if not isinstance(word, str) or not _NAME.fullmatch(word):
                raise BadName(f"an account is named by up to 200 letters, digits or . _ - : /, got {word!r:.40}.")
        if not isinstance(budget, Loss) or not 0 < budget.amount <= _LARGEST_BUDGET:
            raise BadLoss(f"a budget is a loss of more than 0 and at most {_LARGEST_BUDGET}. Write epsilon(1).")
        share = rational(delta_for_spends, "delta_for_spends")
        if not 0 <= share < 1:
            raise BadLoss(f"delta_for_spends is a share of delta from 0 to below 1, got {show(share)}.")
        cap, converted = budget, Fraction(0)
        if budget.measure == "epsilon" and budget.delta:
            converted = budget.delta * (1 - share)
            rho = conversion.rho_within(budget.amount, converted)
            cap = Loss("rho", rho, budget.delta * share, budget.relation)
        rules = cls(name, analyst, budget, cap, converted)
        if cap.amount <= 0 or any(amount != tidy(amount) for amount in rules._amounts()):
            raise BadLoss(
                f"a budget of {budget} is too small, or takes too many digits. Write epsilon(1, delta='1e-6')."
            )
        return rules

    def _amounts(self) -> tuple[Fraction, ...]:
        return self.budget.amount, self.budget.delta, self.cap.amount, self.cap.delta, self.converted

    @property
    def sound(self) -> bool:
        """Return True if spends up to the cap keep the budget."""
        if not self.converted:
            return self.cap == self.budget
        paid = conversion.delta_of_rho(self.cap.amount, self.budget.amount) <= self.converted * (1 + Fraction(1, 10**9))
        return (
            paid and self.cap.delta + self.converted <= self.budget.delta and self.cap.relation == self.budget.relation
        )

    @property
    def key(self) -> str:
        """The account's name in the ledger: `dataset`, or `dataset@analyst`."""
        return self.name if self.analyst is None else f"{self.name}@{self.analyst}"

    @property
    def kind(self) -> Literal["pure", "zcdp"]:
        """Return `"pure"` if epsilons add, `"zcdp"` if rhos and deltas add."""
        return "pure" if self.cap.measure == "epsilon" else "zcdp"

    def price(self, item: "Loss | Priced") -> Loss:
        """Return the price of a spend or a mechanism in this account's measure, exact or rounded up, for the ledger."""
        exact = self.exact_price(item)
        return replace(exact, amount=tidy(exact.amount), delta=tidy(exact.delta))

    def exact_price(self, item: "Loss | Priced") -> Loss:
        """Return the exact price of a spend or a mechanism in this account's measure.

        Privacy: the price is never below the loss: a pure account adds pure epsilons; a zCDP account adds
        rho, or epsilon²/2 for an epsilon, and the delta (Bun & Steinke 2016, Prop. 1.4 and Lemma 8.8).
        """
        loss = item if isinstance(item, Loss) else self._of_mechanism(item)
        if loss.relation != self.cap.relation:
            way = (
                "Convert it with as_replace_one()."
                if self.cap.relation is Relation.REPLACE_ONE
                else "State the spend for add/remove neighbours, or open an account for replace-one."
            )
            raise RelationMismatch(
                f"account {self.key} counts {self.cap.relation} losses, this one is {loss.relation}. {way}"
            )
        if self.kind == "pure" and not loss.is_pure:
            raise WrongMeasure(
                f"account {self.key} adds pure epsilons only, got {loss}. Spend epsilon(...) without delta."
            )
        price = loss if self.kind == "pure" else loss.as_rho()
        if price.delta and not self.cap.delta:
            raise WrongMeasure(
                f"account {self.key} has no delta to spend, got {loss}. Open it with an (epsilon, delta) budget."
            )
        if price.amount <= 0:
            raise BadLoss("a spend must be positive. Nothing is free; write for example rho('0.1').")
        return price

    def _of_mechanism(self, mechanism: Priced) -> Loss:
        if not hasattr(mechanism, "textbook"):
            raise BadLoss(f"a spend is a loss or a mechanism, got a {type(mechanism).__name__}. Write rho('0.1').")
        if mechanism.textbook:
            raise TextbookOnly(f"{mechanism.name} rests on continuous noise and is for lessons. Use its discrete twin.")
        loss = mechanism.pure if self.kind == "pure" else mechanism.zcdp
        if loss is None:
            measure = "a pure" if self.kind == "pure" else "a zCDP"
            raise WrongMeasure(
                f"account {self.key} needs {measure} guarantee, and {mechanism.name} has none. Use another one."
            )
        return loss

    def __str__(self) -> str:
        text = f"{self.key}: {self.cap} ({self.kind})"
        if self.converted:
            text += f", from {self.budget}, of which delta {show(self.converted)} converts rho to epsilon"
        return text

    def to_json(self) -> dict[str, Any]:
        """Return an exact record for the ledger."""
        return {
            "name": self.name,
            "analyst": self.analyst,
            "budget": self.budget.to_json(),
            "cap": self.cap.to_json(),
            "converted": str(self.converted),
        }

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Rules":
        """Return the rules recorded in an `open` entry."""
        budget, cap = Loss.from_json(record["budget"]), Loss.from_json(record["cap"])
        return cls(record["name"], record["analyst"], budget, cap, rational(record["converted"]))


def tidy(amount: Fraction) -> Fraction:
    """Return the amount, rounded up by less than 1e-77 if it has too many digits.

    Otherwise a few hundred spends with large, unrelated denominators would make every later entry enormous.
    """
    if amount.denominator.bit_length() <= _LONGEST_BITS:
        return amount
    return Fraction(math.ceil(amount * 2**256), 2**256)
