"""Exact audits: with known output distributions, the true epsilon is computed without samples."""

import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from cloister.attack.intervals import Floats, TradeoffCurve, curve
from cloister.attack.mechanisms import chart
from cloister.attack.mechanisms.audit import Audit, check_claim
from cloister.privacy.errors import BadProbability
from cloister.privacy.loss import Loss

__all__ = ["audit_exact"]

_ROUNDING = 1e-9  # allowance for float arithmetic


def audit_exact(
    left: Mapping[Any, Fraction | float], right: Mapping[Any, Fraction | float], claim: Loss, *, tolerance: float = 0.0
) -> Audit:
    """Compare a claimed loss with two known output distributions.

    The bound is the exact epsilon at the claim's delta: the largest ln((P[S] - delta) / Q[S]) over all sets S, which
    is reached by taking outputs in the order of their likelihood ratio.

    Args:
        left: output → probability on one input, as Fractions or floats.
        right: the same for its neighbour. Outputs left out have probability 0.
        claim: the loss to compare with.
        tolerance: largest error of the float probability of a set; the bound allows for it.

    Privacy: nothing is drawn and nothing is spent.
    """
    allowed = curve(check_claim(claim))
    outputs = list(dict.fromkeys((*left, *right)))
    laws = [[law.get(output, 0) for output in outputs] for law in (left, right)]
    for law in laws:
        if not law or min(law) < 0 or abs(float(sum(law)) - 1) > tolerance + _ROUNDING:
            raise BadProbability("a law must give its outputs probabilities of at least 0 that add up to 1.")
    worst = [_worst_sets(a, b, allowed, tolerance) for a, b in (laws, laws[::-1])]
    bounds = np.array([[bound for bound, _ in side] for side in worst])
    swapped, point = divmod(int(allowed.strain(bounds).argmax()), len(allowed.deltas))
    bound, chosen = worst[swapped][point]
    # A bound within rounding of the claim counts as the claim: tight mechanisms must not be reported as broken.
    limit = float(allowed.epsilons[point])
    members = set(chosen)
    inside = [i in members for i in range(len(outputs))]
    return Audit(
        claim=claim,
        lower_bound=limit if abs(bound - limit) <= _ROUNDING * limit + 1e-13 else bound,
        allowed=limit,
        delta=float(allowed.deltas[point]),
        event=f"output in {_listed([outputs[i] for i in chosen])}, likelier on the {'right' if swapped else 'left'}",
        seen=(_mass(laws[0], chosen), _mass(laws[1], chosen)),
        n=None,
        confidence=1.0,
        sketch=chart.Sketch.of("output", [*map(str, outputs)], _floats(laws[0]), _floats(laws[1]), inside, 0.0),
    )


def _worst_sets(
    often: list[Fraction | float], seldom: list[Fraction | float], allowed: TradeoffCurve, tolerance: float
) -> list[tuple[float, list[int]]]:
    """Return, for each delta, the exact epsilon in this direction and the outputs that attain it."""
    order = sorted(range(len(often)), key=lambda i: often[i] / seldom[i] if seldom[i] else math.inf, reverse=True)
    masses = list(zip(accumulate(often[i] for i in order), accumulate(seldom[i] for i in order), strict=True))
    worst = []
    slack = Fraction(tolerance)
    for delta in map(Fraction, allowed.deltas.tolist()):
        bounds = [_log_ratio(p - delta - slack, q + slack) for p, q in masses]
        best = max(range(len(order)), key=bounds.__getitem__)
        worst.append((bounds[best], order[: best + 1]))
    return worst


def _log_ratio(p: Fraction | float, q: Fraction | float) -> float:
    if p <= 0:
        return 0.0
    return max(0.0, math.log(p) - math.log(q)) if q > 0 else math.inf


def _mass(law: list[Fraction | float], chosen: list[int]) -> float:
    return float(sum(law[i] for i in chosen))


def _floats(law: list[Fraction | float]) -> Floats:
    return np.array([float(p) for p in law])


def _listed(outputs: Sequence[Hashable]) -> str:
    text = ", ".join(str(output) for output in outputs[:6])
    return f"{{{text}, … {len(outputs) - 6} more}}" if len(outputs) > 6 else f"{{{text}}}"
