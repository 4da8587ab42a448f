"""Limits and approvals of a policy, compared exactly.

An account adds pure epsilons or rhos (privacy/ledger/account.py). Every limit of a policy is turned into the same
kind of cap that an account with that budget would have; a limit of the other kind is refused when the policy is read,
since an epsilon and a rho have no exact order.
"""

from fractions import Fraction
from functools import lru_cache

from cloister.hub.policy.policy import Budget, Policy
from cloister.privacy.errors import BadInput, BadLoss, OverBudget
from cloister.privacy.ledger.account import Rules
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.number import show

__all__ = ["cap", "described", "exact", "incomparable", "limits", "needs", "parse", "price", "refuse_above"]


def cap(limit: Loss) -> Loss:
    """Return a limit in the additive measure: an epsilon as it is, an (epsilon, delta) as rho, rounded down."""
    return limit if limit.amount == 0 else _rules("limit", limit).cap


def price(policy: Policy, loss: Loss) -> Loss:
    """Return the cost of a loss in the dataset's measure, never less than the loss.

    Raises:
        WrongMeasure: the account cannot express it.
    """
    return _rules(policy.dataset, policy.budget.lifetime).price(loss)


def needs(policy: Policy, loss: Loss) -> int:
    """Return how many different reviewers must agree before this may be spent.

    Privacy: every loss with a delta exceeds a limit without one.
    """
    cost = price(policy, loss)
    passed = [
        approval.needs
        for approval in policy.budget.approvals
        if not approval.above.amount or not cost <= cap(approval.above)
    ]
    return max(passed, default=0)


def refuse_above(policy: Policy, loss: Loss) -> None:
    """Refuse a loss above the limit of one request.

    Raises:
        OverBudget: with the requested and the allowed loss; a delta is named only where it is the cause.
    """
    limit, cost = policy.budget.per_request, price(policy, loss)
    if limit is None or cost <= cap(limit):
        return
    most = cap(limit)
    if cost.amount > most.amount:
        raise OverBudget(
            f"one request may cost {most.measure} {show(most.amount)} here, this one needs {most.measure} "
            f"{show(cost.amount)}. Lower the spend or ask the owner."
        )
    allowed = f"a delta of at most {show(most.delta)}" if most.delta else "no delta"
    raise OverBudget(
        f"one request may have {allowed} here, this one needs delta {show(cost.delta)}. Spend without a delta; where "
        "groups are not listed in the schema, name them in the question (WHERE … IN …) or ask the owner."
    )


def limits(budget: Budget) -> list[tuple[str, Loss]]:
    """Return every limit besides the lifetime's, with the word under `budget` that states it."""
    stated = [("per_user", budget.per_user), ("per_request", budget.per_request)]
    stated.append(("period", budget.period.loss if budget.period else None))
    stated += [(f"approvals[{i}]", approval.above) for i, approval in enumerate(budget.approvals, 1)]
    return [(word, loss) for word, loss in stated if loss is not None]


def incomparable(lifetime: Loss, limit: Loss) -> str:
    """Return why a limit cannot be compared with losses on this lifetime's account; empty if it can."""
    try:
        account, other = cap(lifetime).measure, cap(limit).measure
    except BadInput as error:
        return str(error).partition(": ")[2].rstrip(".")
    if limit.amount == 0 or account == other:
        return ""
    if account == "epsilon":
        return "the lifetime is a pure epsilon, so limits are too. Write {epsilon: …} without delta"
    same = limit.as_rho()
    return (
        "the lifetime adds up in rho, and a pure epsilon has no exact place there. "
        f"Write {{rho: {float(same.amount):g}}} for one release of that epsilon, or add a delta"
    )


def parse(text: str) -> Loss:
    """Parse a loss as it prints: `rho 0.05`, `epsilon 1, delta 1e-6`.

    >>> print(parse("epsilon 1, delta 1e-6"))
    epsilon 1, delta 1e-06
    """
    words = text.replace(",", " ").replace("=", " ").replace(":", " ").split()
    stated = dict(zip(words[::2], words[1::2], strict=False))
    measure = words[0] if words else ""
    if len(words) not in (2, 4) or measure not in ("epsilon", "rho") or set(stated) - {measure, "delta"}:
        raise BadLoss(f"write a loss like rho 0.05 or epsilon 1, delta 1e-6; got {text!r:.60}.")
    make = epsilon if measure == "epsilon" else rho
    return make(stated[measure], delta=stated.get("delta"))


@lru_cache(maxsize=1024)  # converting (epsilon, delta) to rho takes a while, and every decision needs it
def _rules(name: str, budget: Loss) -> Rules:
    return Rules.of(name, budget)


def described(loss: Loss) -> str:
    """Return a loss as `parse` reads it, exactly."""
    return f"{loss.measure} {exact(loss.amount)}" + (f", delta {exact(loss.delta)}" if loss.delta else "")


def exact(amount: Fraction) -> str:
    """Return a number as short exact text: a decimal if it has one, else a fraction.

    >>> exact(Fraction(1, 10**7)), exact(Fraction(1, 20)), exact(Fraction(1, 3))
    ('1e-7', '0.05', '1/3')
    """
    digits, places = amount.denominator, 0
    while digits % 10 == 0:
        digits, places = digits // 10, places + 1
    for prime in (2, 5):
        while digits % prime == 0:
            digits, places = digits // prime, places + 1
    if digits != 1 or places > 400:
        return str(amount)
    while places and (amount * 10 ** (places - 1)).denominator == 1:
        places -= 1
    text = str(int(amount * 10**places))
    if places > 4 and len(text) < places - 2:
        return f"{text}e-{places}"
    text = text.rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}" if places else text
