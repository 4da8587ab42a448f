"""Privacy filter: several steps under one charge, each chosen after seeing the noisy results of earlier steps.

    request ──► reserve the whole spend (durable) ──► step ─► step ─► … ──► commit ──► one receipt
                                                        every step is paid from the reserve, or refused

Training, selection and synthesis read rows many times. The whole spend is on disk before the first look; the filter
then subtracts each step exactly, so adaptively chosen steps never cost more together than was reserved. A
`BudgetShare` splits the spend, a pure epsilon or a rho, among the steps.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

from cloister.privacy import conversion
from cloister.privacy.errors import BadInput, BadLoss, LookFailed, OverBudget, RelationMismatch
from cloister.privacy.ledger import Account, Charge
from cloister.privacy.loss import ROW, Loss, Relation, Unit
from cloister.privacy.measure import released_text
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Mechanism
from cloister.privacy.noise import SYSTEM, Source
from cloister.privacy.number import rounded_down, show
from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import fingerprint

__all__ = ["BudgetShare", "PrivacyFilter", "budget_share", "release_steps"]

_LONGEST_BITS = 256
_LEAST = Fraction(1, 10**40)  # below this the noise of a part could exceed what a mechanism can draw


@dataclass(frozen=True, slots=True)
class BudgetShare:
    """A spend that can be split.

    Attributes:
        loss: a pure epsilon, or a rho.
    """

    loss: Loss

    @property
    def pure(self) -> bool:
        """Return True if epsilons add (Laplace noise), False if rhos add (Gaussian noise)."""
        return self.loss.measure == "epsilon"

    def part(self, share: Fraction | int | str) -> Loss:
        """Return a share of the spend."""
        portion = Fraction(share)
        if not 0 < portion <= 1:
            raise BadLoss("a share of a spend is above 0 and is at most 1.")
        return Loss(self.loss.measure, self.loss.amount * portion, relation=self.loss.relation)

    def of_a_row(self, rows: int) -> "BudgetShare":
        """Return the spend per row that keeps a unit with this many rows within the whole.

        Group privacy: m rows cost m times a pure epsilon, and m² times a rho (Bun & Steinke 2016, Prop. 1.9).
        """
        return BudgetShare(self.part(Fraction(1, rows if self.pure else rows**2)))


def budget_share(spend: Loss | None, what: str = "the fit", who: str = "estimators") -> BudgetShare:
    """Read a spend; an (epsilon, delta) becomes the largest rho that implies it.

    An amount with very many digits is rounded down once, by less than 1e-30 of itself, so that its parts are short.

    Args:
        spend: the caller's loss.
        what: the purpose of the spend, for messages.
        who: the requester of the spend, for messages.
    """
    if not isinstance(spend, Loss):
        raise BadLoss(f"say what {what} may cost: spend=cl.epsilon(1, delta='1e-6') or spend=cl.rho('0.02').")
    if spend.relation is not Relation.ADD_REMOVE:
        raise BadLoss(f"{who} state add/remove neighbours. Give an add/remove spend; see Loss.as_replace_one.")
    if spend.measure == "epsilon" and spend.delta:
        spend = Loss("rho", conversion.rho_within(spend.amount, spend.delta), relation=spend.relation)
    elif spend.delta:
        raise BadLoss(f"{who} use no delta of their own beside a rho. Write spend=cl.rho('0.02').")
    elif spend.amount.denominator.bit_length() > _LONGEST_BITS:
        spend = replace(spend, amount=rounded_down(spend.amount, digits=30))
    if spend.amount < _LEAST:
        raise BadLoss(f"{what} would be noise alone: a spend is an epsilon or a rho of at least {float(_LEAST):g}.")
    return BudgetShare(spend)


def noise_for(l2: Fraction | int, l1: int, loss: Loss) -> DiscreteGaussian | DiscreteLaplace:
    """Return the noise on integers: Gaussian for a rho, Laplace for a pure epsilon.

    Args:
        l2, l1: sensitivity of the integers in either norm, for adding or removing one unit.
        loss: the loss of this step.
    """
    if loss.relation is not Relation.ADD_REMOVE:
        raise RelationMismatch(f"this noise is for {Relation.ADD_REMOVE} neighbours, and the loss is {loss}.")
    if loss.measure == "rho":
        return DiscreteGaussian.for_loss(l2, loss)
    return DiscreteLaplace.for_loss(l1, loss)


T = TypeVar("T")


@dataclass(slots=True)
class PrivacyFilter:
    """A filter that pays adaptive steps from a reserved loss.

    Attributes:
        account: the account in whose measure prices are stated.
        total: the reserved loss.
        source: the source of random bits.
        spent: the loss of the steps so far.
    """

    account: Account
    total: Loss
    source: Source
    spent: Loss
    _steps: Counter[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=Counter)
    _answers: list[str] = field(default_factory=list)

    @property
    def left(self) -> Loss:
        """Return the loss that remains for further steps."""
        return self.total - self.spent

    def release(self, look: Callable[[], Any], mechanism: Mechanism) -> Any:
        """Carry out one step: pay, look, add noise.

        Privacy: the mechanism's loss, which is part of the total; provided neighbouring tables move what `look`
            returns by at most the mechanism's sensitivity, whatever earlier steps released.

        Raises:
            OverBudget: if the step costs more than remains; then nothing is read.
        """
        # Exact: parts that were each rounded up would not fit into their sum. Only totals are kept in a ledger.
        price = self.account.rules.exact_price(mechanism)
        after = self.spent + price
        if after.amount > self.total.amount or after.delta > self.total.delta:
            raise OverBudget(
                f"this step needs {price.measure} {show(price.amount)}, {show(self.left.amount)} is left of what was "
                "reserved. Plan fewer or cheaper steps."
            )
        self.spent = after
        value = mechanism.release(look(), self.source)
        self._steps[mechanism.name, tuple(sorted(mechanism.parameters().items()))] += 1
        self._answers.append(released_text(value))
        return value

    def facts(self) -> tuple[list[dict[str, str]], str]:
        """Return the steps for a receipt, equal ones grouped, and the hash of all released values."""
        steps = [
            {"mechanism": name, **dict(parameters), "times": str(n)} for (name, parameters), n in self._steps.items()
        ]
        return steps, fingerprint("\n".join(self._answers))


def release_steps(
    steps: Callable[[PrivacyFilter], T],
    *,
    accounts: Sequence[Account],
    spend: Loss,
    request: str,
    unit: Unit = ROW,
    data_version: str = "",
    source: Source | None = None,
    private: bool = True,
    charge: Charge | None = None,
) -> tuple[T, Receipt]:
    """Carry adaptive steps out under one charge.

    Args:
        steps: reads rows only inside `meter.release`; its result must depend on released values alone.
        accounts: each pays the whole spend, all or none.
        spend: the loss of all steps together; all of it is charged, used or not.
        request, unit, data_version, source: as in `measure`.
        private: True if every other input of the steps was released privately; stated in the receipt.
        charge: the charge of exactly this spend and request, if it was reserved before (`Ledger.reserved`).

    Privacy: the spend, in the first account's measure, by adaptive composition: the filter refuses steps beyond it. If
        a step fails the charge stands, and the error reveals nothing else. Tested in tests/unit/privacy/test_filter.py.
    """
    if not accounts or len({account.cap.measure for account in accounts}) > 1:
        raise BadInput("steps need an account that pays, and several must count alike: all epsilon or all rho.")
    source = source or SYSTEM
    prices = [account.price(spend) for account in accounts]
    if charge is None:
        charge = accounts[0].book.reserve(list(zip(accounts, prices, strict=True)), request)
    elif {line.account: line.loss for line in charge.entry.lines} != {
        account.rules.key: price for account, price in zip(accounts, prices, strict=True)
    }:
        raise BadInput("the charge that was reserved is not the one of these accounts and this spend.")
    charge.look()
    nothing = Loss.nothing(prices[0].measure, prices[0].relation)
    meter = PrivacyFilter(accounts[0], prices[0], source, nothing)
    try:
        result = steps(meter)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # polars panics with an error that is no Exception
        raise LookFailed(
            "a step could not be carried out. The charge stands; ask the owner to look into it.",
            owner_detail=getattr(error, "owner_detail", "") or f"{type(error).__name__}: {error}",
        ) from None
    entry = charge.commit()
    parameters, answer = meter.facts()
    receipt = Receipt.of_charge(
        charge,
        entry,
        accounts[0].book.key,
        request=request,
        unit=unit,
        data_version=data_version,
        parameters=parameters,
        loss=prices[0],
        answer=answer,
        private=source.private and private,
    )
    return result, receipt
