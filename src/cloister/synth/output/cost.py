"""The cost of a table, also in the measure of the request: a spend of epsilon 1 with a delta is paid as a rho.

    asked = epsilon(1, delta="1e-9")
    cost_text(budget_share(asked).loss, asked)     # "rho ≈0.0149731 (epsilon 1 with delta 1e-09)"

A metadata file states the epsilon beside the charged loss. A reader is never shown an epsilon that this loss does not
imply.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cloister.privacy.errors import BadSource, CloisterError
from cloister.privacy.filter import budget_share
from cloister.privacy.loss import Loss, epsilon
from cloister.privacy.number import rational, show

__all__ = ["AS_EPSILON", "cost_text", "stated_epsilon", "written_epsilon"]

AS_EPSILON = "loss as epsilon"


def cost_text(loss: Loss, asked: Loss | None) -> str:
    """Format a loss, with the requested epsilon where it was paid as a rho."""
    if asked is None or asked.measure != "epsilon" or loss.measure == "epsilon":
        return str(loss)
    beside = f" with delta {show(asked.delta)}" if asked.delta else ""
    return f"{loss} (epsilon {show(asked.amount)}{beside})"


def written_epsilon(asked: Loss | None) -> dict[str, Any]:
    """Return the metadata entry: {"loss as epsilon": {"epsilon": 1, "delta": 1e-09}}; empty for a spend in rho."""
    if asked is None or asked.measure != "epsilon":
        return {}
    return {AS_EPSILON: {"epsilon": _up(asked.amount), "delta": _up(asked.delta)}}


def stated_epsilon(side: Mapping[str, Any]) -> Loss | None:
    """Return the epsilon that a metadata file states; None if it states none.

    Raises:
        BadSource: it states one that its loss does not imply.
    """
    if AS_EPSILON not in side:
        return None
    try:
        stated, loss = side[AS_EPSILON], Loss.from_json(side["loss"])
        requested = epsilon(stated["epsilon"], delta=stated["delta"] or None)
        allowed = budget_share(requested).loss if loss.measure == "rho" else requested
        if not loss <= allowed or set(stated) != {"epsilon", "delta"}:
            raise ValueError
    except (CloisterError, ValueError, KeyError, TypeError):
        raise BadSource("the metadata file states an epsilon that its loss does not keep. Ask for it anew.") from None
    return requested


def _up(exact: Fraction) -> int | float:
    """Round a number up to the next one that JSON can represent: a loss is never understated."""
    if exact.denominator == 1:
        return int(exact)
    near = float(exact)
    return near if rational(near) >= exact else math.nextafter(near, math.inf)
