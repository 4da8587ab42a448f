"""Payers of a fit: a ledger or account found again, a part of a larger charge, or a dry run that charges nothing.

    Payer         reference from a pickled estimator to its ledger or account
    BudgetPart    share of another filter's budget: a fit inside a selection or a cross-validation
    DryRun        filter for fits on no rows

`fit_within(meter, model, X, y)` hands a filter to the private parts of a model (model_selection/candidates.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloister.privacy.errors import BadInput, OverBudget
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import show

__all__ = ["BudgetPart", "DryRun", "Payer", "part_of"]


@dataclass(frozen=True, slots=True)
class Payer:
    """Reference from a pickled estimator to its ledger or account. It holds neither a key nor a connection.

    Attributes:
        folder: the ledger's folder; None if it was not opened with `Ledger.in_folder`.
        owner: the ledger's public key, so that no other ledger in that folder is charged.
        name, analyst: those of the account; None for a ledger.
    """

    folder: str | None
    owner: str
    name: str | None = None
    analyst: str | None = None

    @classmethod
    def of(cls, payer: Ledger | Account) -> "Payer":
        """Describe a ledger or account."""
        book: Any = payer.book if isinstance(payer, Account) else payer
        folder = getattr(book, "folder", None)
        account = (payer.rules.name, payer.rules.analyst) if isinstance(payer, Account) else (None, None)
        return cls(None if folder is None else str(folder), str(book.key.public), *account)

    def ledger(self) -> Ledger:
        """Reopen the ledger."""
        if self.folder is None or not (Path(self.folder) / "ledger.db").exists():
            raise BadInput(
                "this model was unpickled, and the ledger that paid for it is not here. Set its ledger or account "
                "before it is fitted again."
            )
        book = Ledger.in_folder(self.folder)
        if str(book.key.public) != self.owner:
            book.close()
            raise BadInput("the folder of this model's ledger holds another ledger now. Set its ledger or account.")
        return book

    def account(self) -> Account:
        """Reopen the account."""
        assert self.name is not None
        return self.ledger().account(self.name, self.analyst)


@dataclass(slots=True)
class BudgetPart(PrivacyFilter):
    """Privacy filter for a share of another filter's budget, which a fit cannot exceed.

    Attributes:
        outer: the filter that holds the whole budget; it counts every step too.
    """

    outer: Any = None

    @classmethod
    def of(cls, outer: PrivacyFilter, share: Loss) -> "BudgetPart":
        """Return a filter for a share of another filter's budget."""
        price = outer.account.price(share)
        return cls(outer.account, price, outer.source, Loss.nothing(price.measure, price.relation), outer=outer)

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """Run one step, within the share and within the whole budget.

        Privacy: the mechanism's loss, counted by both.
        """
        after = self.spent + self.account.rules.exact_price(mechanism)
        if after.amount > self.total.amount or after.delta > self.total.delta:
            raise OverBudget(
                f"this step goes beyond its share of {self.total.measure} {show(self.total.amount)}. Plan fewer steps."
            )
        self.spent = after
        return self.outer.release(look, mechanism)


class DryRun:
    """Filter for fits on no rows: charges nothing, and finds wrong parameters early."""

    def __init__(self) -> None:
        self.source = SeededSource("rehearsal")

    def release(self, look: Any, mechanism: Mechanism) -> Any:
        """Run one step on no rows."""
        return mechanism.release(look(), self.source)


def part_of(meter: Any, share: Loss) -> Any:
    """Return a filter for a share of another filter's budget."""
    return meter if isinstance(meter, DryRun) else BudgetPart.of(meter, share)
