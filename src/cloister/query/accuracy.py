"""Accuracy first: the smallest loss whose expected error is within a limit."""

from collections.abc import Callable

from cloister.privacy.errors import BadNumber, QueryRefused
from cloister.privacy.loss import Loss
from cloister.privacy.number import rounded_up
from cloister.query.explain import expected_error
from cloister.query.plan import Plan

__all__ = ["cheapest"]

_MOST = 10**6


def cheapest(plan_at: Callable[[Loss], Plan], within: float, pure: bool) -> Plan:
    """Search for the smallest sufficient loss. The search uses public facts only and costs nothing.

    Args:
        plan_at: the plan at a given loss.
        within: the largest half-width an answer's interval may have.
        pure: whether the account adds epsilons.
    """
    if not within > 0:
        raise BadNumber("within must be positive: how far off an answer may be.")
    low, high = 1e-9, 1.0
    while _error(plan_at(_loss(high, pure))) > within:
        low, high = high, high * 4
        if high > _MOST:
            raise QueryRefused(
                f"no sensible loss reaches an error of {within:g} here. Allow more, or ask of larger groups."
            )
    for _ in range(40):
        middle = (low * high) ** 0.5
        if _error(plan_at(_loss(middle, pure))) > within:
            low = middle
        else:
            high = middle
        if high / low < 1.001:
            break
    return plan_at(_loss(high, pure))


def _loss(amount: float, pure: bool) -> Loss:
    return Loss("epsilon" if pure else "rho", rounded_up(amount, 4))


def _error(plan: Plan) -> float:
    """Return the largest expected error among the answers."""
    errors = [expected_error(plan, aggregate) for aggregate in plan.question.aggregates]
    if None in errors:
        raise QueryRefused(
            "the error of this question cannot be told beforehand. Say spend=..., or give `rows` in the schema."
        )
    return max(error for error in errors if error is not None)
