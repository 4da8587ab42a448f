"""The composition theorems, as functions from losses to a loss.

Group privacy is `Loss.group`: k units in one release. k releases about one unit are `loss * k`: sequential composition.
"""

from collections.abc import Hashable, Iterable, Mapping
from fractions import Fraction

from cloister.privacy.errors import BadLoss, MeasureMismatch, RelationMismatch
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import Number, exp_up, log_down, rational, rounded_up, show, sqrt_up

__all__ = ["advanced", "parallel", "post_processed", "sequential"]


def sequential(losses: Iterable[Loss]) -> Loss:
    """Compose releases on the same data: losses add, exactly.

    Privacy: adaptive. A mechanism may be chosen after seeing all earlier outputs, and all outputs are published.

    >>> from cloister.privacy.loss import epsilon
    >>> print(sequential([epsilon("0.1"), epsilon("0.2")]))
    epsilon 0.3
    """
    first, *rest = _several(losses)
    return sum(rest, start=first)


def parallel(parts: Mapping[Hashable, Loss]) -> Loss:
    """Compose releases on disjoint parts of the data: the largest loss is the total loss.

    Privacy: add/remove neighbours only; the rule that assigns a unit to its part is public and depends only on
    that unit; every unit is in at most one part, with all its rows. A caller states this by naming the parts. Under
    replace-one a unit can leave one part and enter another, which changes both parts' sizes, so that their replace-one
    losses do not apply: refused. Compose add/remove losses and convert the result with as_replace_one().

    >>> from cloister.privacy.loss import epsilon
    >>> print(parallel({"salary > 150k": epsilon("0.1"), "salary < 20k": epsilon("0.2")}))
    epsilon 0.2
    """
    if not isinstance(parts, Mapping):
        raise BadLoss("parallel composition takes {part: loss}: every part has a name. Use sequential for a list.")
    losses = _several(parts.values())
    if any(loss.relation is not Relation.ADD_REMOVE for loss in losses):
        raise RelationMismatch(
            "parallel composition speaks of add/remove neighbours; replacing a unit touches two parts. "
            "Give each part's add/remove loss and convert the result with as_replace_one()."
        )
    sequential(losses)  # refuses losses that do not mix
    return Loss(losses[0].measure, max(loss.amount for loss in losses), max(loss.delta for loss in losses))


def advanced(loss: Loss, count: int, delta: Number) -> Loss:
    """Compose `count` releases of one (epsilon, delta) each by advanced composition, rounded up.

    epsilon·sqrt(2·count·ln(1/delta')) + count·epsilon·(e^epsilon - 1), and count·delta + delta' (Dwork, Rothblum &
    Vadhan 2010). It is for teaching: plain addition is better for few releases (below about 2 ln(1/delta')) and for
    epsilon above about 0.7, and zCDP is nearly always better than both.

    Privacy: adaptive in the mechanisms; epsilon, delta and count are fixed beforehand.

    >>> from cloister.privacy.loss import epsilon
    >>> print(advanced(epsilon("0.1"), 100, delta="1e-6"))
    epsilon ≈6.30823, delta 1e-06
    """
    _several([loss])
    if loss.measure != "epsilon":
        raise MeasureMismatch("advanced composition is for epsilons; a rho composes by addition: loss * count.")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadLoss(f"count must be a whole number of releases, got {count!r:.40}.")
    extra = rational(delta, "delta")
    if not 0 < extra < 1:
        raise BadLoss(f"delta must lie strictly between 0 and 1, got {show(extra)}.")
    if loss.amount > 700:
        raise BadLoss(f"advanced composition of epsilon {show(loss.amount)} is beyond all use. Add: loss * count.")
    spread = loss.amount * sqrt_up(-2 * count * log_down(extra))
    drift = count * loss.amount * (exp_up(loss.amount) - 1)
    total = min(count * loss.delta + extra, Fraction(1))
    return Loss("epsilon", rounded_up(spread + drift), total, loss.relation)


def post_processed(loss: Loss) -> Loss:
    """Return the loss of post-processing, which is the loss of the release itself.

    Rounding, clamping at zero, making counts consistent, plotting and training on noisy statistics have no further
    loss, though they may bias (clamping raises small counts on average).
    """
    _several([loss])
    return loss


def _several(losses: Iterable[Loss]) -> list[Loss]:
    loss_list = list(losses)
    if not loss_list or not all(isinstance(loss, Loss) for loss in loss_list):
        raise BadLoss("composition takes one or more losses. Write epsilon(...) or rho(...).")
    return loss_list
