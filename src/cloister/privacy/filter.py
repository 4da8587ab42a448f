"""Privacy filter: several steps under one charge, each chosen after seeing the noisy results of earlier steps.

    request ──► reserve the whole spend (durable) ──► step ─► step ─► … ──► commit ──► one receipt
                                                        every step is paid from the reserve, or refused

Training, selection and synthesis read rows many times. The whole spend is on disk before the first look; the filter
then subtracts each step exactly, so adaptively chosen steps never cost more together than was reserved.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cloister.privacy.canonical import fingerprint
from cloister.privacy.errors import BadInput, LookFailed, OverBudget
from cloister.privacy.ledger import Account
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.privacy.measure import released_text
from cloister.privacy.mechanisms import Mechanism
from cloister.privacy.noise import SYSTEM, Source
from cloister.privacy.number import show
from cloister.privacy.receipt import Receipt

__all__ = ["PrivacyFilter", "release_steps"]

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
) -> tuple[T, Receipt]:
    """Carry adaptive steps out under one charge.

    Args:
        steps: reads rows only inside `meter.release`; its result must depend on released values alone.
        accounts: each pays the whole spend, all or none.
        spend: the loss of all steps together; all of it is charged, used or not.
        request, unit, data_version, source: as in `measure`.
        private: True if every other input of the steps was released privately; stated in the receipt.

    Privacy: the spend, in the first account's measure, by adaptive composition: the filter refuses steps beyond it. If
        a step fails the charge stands, and the error reveals nothing else. Tested in tests/unit/privacy/test_filter.py.
    """
    if not accounts or len({account.cap.measure for account in accounts}) > 1:
        raise BadInput("steps need an account that pays, and several must count alike: all epsilon or all rho.")
    source = source or SYSTEM
    prices = [account.price(spend) for account in accounts]
    charge = accounts[0].book.reserve(list(zip(accounts, prices, strict=True)), request)
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
