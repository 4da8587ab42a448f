"""Accounts: the rules of a budget, the charges against it, the loss spent and the loss left.

    budget                      kind   sum of           cap
    epsilon(2)                  pure   epsilon          2
    rho("0.5")                  zcdp   rho              0.5, and no delta
    epsilon(2, delta="1e-6")    zcdp   rho, delta       the largest rho that is (2, half the delta); the other half

Both sums are filters that stay valid when each query is chosen after seeing the answers before it
(Whitehouse, Ramdas, Rogers & Wu 2023).
"""

import math
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from cloister.privacy import conversion
from cloister.privacy.errors import (
    BadLoss,
    BadName,
    ChargeClosed,
    OverBudget,
    RelationMismatch,
    RowsWereRead,
    TextbookOnly,
    WrongMeasure,
)
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, rational, show
from cloister.privacy.signing import SigningKey

if TYPE_CHECKING:
    from cloister.privacy.ledger.chain import Entry, Head

__all__ = ["Account", "Balance", "Book", "Charge", "Priced", "Rules", "tidy"]


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
                raise BadName(
                    f"an account is named by up to 200 letters, digits or . _ - : /, got {word!r:.40}. Give another "
                    "name: cl.open(..., name=...), or --name."
                )
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
            hint = (
                "Convert it with as_replace_one()."
                if self.cap.relation is Relation.REPLACE_ONE
                else "State the spend for add/remove neighbours, or open an account for replace-one."
            )
            raise RelationMismatch(
                f"account {self.key} counts {self.cap.relation} losses, this one is {loss.relation}. {hint}"
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


class Charge:
    """A loss that is already counted. Only `void()` refunds it, and only before `look()`.

        charge = account.reserve(rho("0.1"), request)   # durable
        charge.look()                                   # rows may be read from here on
        ...
        charge.commit()                                 # the release exists

    A charge that is never finished, because of an error, a crash or a power failure, stays charged.

    Privacy: the loss is in the ledger before `look()` can be called, so no answer exists without a charge.
    """

    def __init__(self, entry: "Entry", settle: "Callable[[Entry, Literal['commit', 'void']], Entry]") -> None:
        self.entry = entry
        self._settle = settle
        self._state: Literal["reserved", "looked", "committed", "voided"] = "reserved"
        self._process = os.getpid()
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """`reserved`, `looked`, `committed` or `voided`."""
        return self._state

    def look(self) -> None:
        """Mark that rows may be read; from now on the charge cannot be voided."""
        with self._lock:
            self._still_open()
            self._state = "looked"

    def commit(self) -> "Entry":
        """Record that the charge led to a release."""
        with self._lock:
            self._still_open()
            entry = self._settle(self.entry, "commit")
            self._state = "committed"
            return entry

    def void(self) -> "Entry":
        """Refund the loss: nothing was read."""
        with self._lock:
            self._still_open()
            if self._state == "looked":
                raise RowsWereRead(f"charge {self.entry.number} cannot be voided: rows may have been read. It stands.")
            # Closed first: if the store fails halfway, rows can no longer be read without a charge.
            self._state = "voided"
            return self._settle(self.entry, "void")

    def _still_open(self) -> None:
        if os.getpid() != self._process:
            # A forked copy cannot know whether the original has looked or voided.
            raise ChargeClosed(
                f"charge {self.entry.number} belongs to the process that reserved it. Reserve again here."
            )
        if self._state in ("committed", "voided"):
            raise ChargeClosed(f"charge {self.entry.number} was already {self._state}. Reserve again for another look.")

    def __repr__(self) -> str:
        losses = "; ".join(f"{line.account}: {line.loss}" for line in self.entry.lines)
        return f"<Charge {self.entry.number} {self._state} ({losses})>"


@dataclass(frozen=True, slots=True)
class Balance:
    """The state of an account at one time."""

    rules: Rules
    spent: Loss

    @classmethod
    def at_opening(cls, rules: Rules) -> "Balance":
        """Return the balance of a new account, with nothing spent."""
        return cls(rules, Loss.nothing(rules.cap.measure, rules.cap.relation))

    @property
    def left(self) -> Loss:
        """Return the loss that can still be spent."""
        return self.rules.cap - self.spent

    def add(self, loss: Loss) -> "Balance":
        """Return the balance after a spend.

        Raises:
            OverBudget: the spend does not fit; the message states requested loss, remainder and difference.
        """
        amount, delta = tidy(self.spent.amount + loss.amount), tidy(self.spent.delta + loss.delta)
        cap = self.rules.cap
        for word, before, requested, total, limit in (
            (cap.measure, self.spent.amount, loss.amount, amount, cap.amount),
            ("delta", self.spent.delta, loss.delta, delta, cap.delta),
        ):
            if total > limit:
                left, short = show(limit - before), show(total - limit)
                raise OverBudget(
                    f"account {self.rules.key} needs {word} {show(requested)}, {left} is left, {short} short. "
                    "Lower the spend or ask the owner."
                )
        return replace(self, spent=replace(self.spent, amount=amount, delta=delta))

    def take_back(self, loss: Loss) -> "Balance":
        """Return the balance after a void."""
        amount, delta = tidy(self.spent.amount - loss.amount), tidy(self.spent.delta - loss.delta)
        return replace(self, spent=replace(self.spent, amount=amount, delta=delta))


class Book(Protocol):
    """The interface that an account needs of its ledger."""

    @property
    def key(self) -> SigningKey:
        """The owner's key, which signs receipts."""
        ...

    @property
    def head(self) -> "Head":
        """The newest entry, signed."""
        ...

    def balance(self, key: str) -> Balance:
        """Return an account's current rules and total."""
        ...

    def reserve(self, charges: "Sequence[tuple[Account, Loss | Priced]]", request: str) -> Charge:
        """Reserve losses, all or none."""
        ...

    def charge_all(self, charges: "Sequence[tuple[Account, Loss | Priced]]", request: str) -> "list[Entry]":
        """Spend losses at once, all or none."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """A budget in a ledger. `spent` and `left` are read each time, since other processes spend too."""

    rules: Rules
    book: Book

    @property
    def name(self) -> str:
        """The dataset."""
        return self.rules.name

    @property
    def kind(self) -> Literal["pure", "zcdp"]:
        """Return `"pure"` if epsilons add, `"zcdp"` if rhos and deltas add."""
        return self.rules.kind

    @property
    def cap(self) -> Loss:
        """The limit on the total."""
        return self.rules.cap

    @property
    def spent(self) -> Loss:
        """The total so far, including reserved charges."""
        return self.book.balance(self.rules.key).spent

    @property
    def left(self) -> Loss:
        """Return the loss that can still be spent."""
        return self.book.balance(self.rules.key).left

    def price(self, item: Loss | Priced) -> Loss:
        """Return the price of a spend or a mechanism in this account's measure."""
        return self.rules.price(item)

    def reserve(self, item: Loss | Priced, request: str) -> Charge:
        """Reserve a loss durably, before any row is read. See `Ledger.reserve`."""
        return self.book.reserve([(self, item)], request)

    def charge_all(self, items: Sequence[Loss | Priced], request: str) -> "list[Entry]":
        """Spend many losses in one transaction, all or none. See `Ledger.charge_all`."""
        return self.book.charge_all([(self, item) for item in items], request)

    def __str__(self) -> str:
        return str(self.rules)
