"""Accounts: the rules of a budget, the loss spent and the loss left."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from cloister.privacy.errors import OverBudget
from cloister.privacy.ledger.charge import Charge
from cloister.privacy.ledger.entry import Entry
from cloister.privacy.ledger.head import Head
from cloister.privacy.ledger.rules import Priced, Rules, tidy
from cloister.privacy.loss import Loss
from cloister.privacy.number import show
from cloister.privacy.signing import SigningKey

__all__ = ["Account", "Balance", "Book"]


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
        for word, before, asked, total, limit in (
            (cap.measure, self.spent.amount, loss.amount, amount, cap.amount),
            ("delta", self.spent.delta, loss.delta, delta, cap.delta),
        ):
            if total > limit:
                left, short = show(limit - before), show(total - limit)
                raise OverBudget(
                    f"account {self.rules.key} needs {word} {show(asked)}, {left} is left, {short} short. "
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
    def head(self) -> Head:
        """The newest entry, signed."""
        ...

    def balance(self, key: str) -> Balance:
        """Return an account's current rules and total."""
        ...

    def reserve(self, charges: "Sequence[tuple[Account, Loss | Priced]]", request: str) -> Charge:
        """Reserve losses, all or none."""
        ...

    def charge_all(self, charges: "Sequence[tuple[Account, Loss | Priced]]", request: str) -> list[Entry]:
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

    def charge_all(self, items: Sequence[Loss | Priced], request: str) -> list[Entry]:
        """Spend many losses in one transaction, all or none. See `Ledger.charge_all`."""
        return self.book.charge_all([(self, item) for item in items], request)

    def __str__(self) -> str:
        return str(self.rules)
