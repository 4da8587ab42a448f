"""Audit a mechanism's claimed loss by sampling its outputs on two neighbouring inputs.

    sample both sides ──► a quarter learns features ──► a quarter chooses events ──► the others prove a bound

Choosing events and proving the bound on different samples keeps the bound valid (Ding et al. 2018, "Detecting
violations of differential privacy"; Bichsel et al. 2021, "DP-Sniper"). For mechanisms with few outputs,
`exact.py` needs no samples. Where outputs are known to be Gaussian, the distance of the two means in standard
deviations gives the whole curve of epsilons (Nasr et al. 2023, "Tight auditing"), and no event is needed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from cloister.attack.finding import FOREIGN_ERRORS, EpsilonBound, Finding, clopper_pearson
from cloister.attack.intervals import Floats, TradeoffCurve, curve, epsilon_at_least, epsilon_of_shift
from cloister.attack.mechanisms import chart as picture
from cloister.attack.mechanisms.events import Event, OutputFeature, choose, learn
from cloister.attack.mechanisms.outputs import Draws, Outputs, as_outputs
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, BadProbability, CloisterError
from cloister.privacy.loss import Loss
from cloister.privacy.number import lower_text

__all__ = ["Audit", "Batched", "audit", "check_claim", "draw_outputs"]

_KEPT = 8  # events at most that share the risk of a false alarm; each weakens the others slightly
_WORTH = 0.8  # of the best event's strain, below which an event is not kept
_LEARNING, _CHOOSING = 25_000, 250_000  # samples at most that features are learned and events chosen on
_FEWEST = 100


@dataclass(frozen=True, slots=True)
class Batched:
    """A mechanism that draws many outputs at once: `draw(data, n)` returns n of them."""

    draw: Callable[[Any, int], Draws]

    def __call__(self, data: Any) -> Any:
        """Draw one output."""
        return self.draw(data, 1)[0]

    def sample(self, data: Any, n: int) -> Draws:
        """Draw n outputs on the same data."""
        return self.draw(data, n)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        claim: the loss that was tested.
        lower_bound: epsilon is at least this at `delta`, with the stated confidence.
        allowed: the epsilon that the claim allows at `delta`.
        delta: the claim's delta; for a rho, the point of its curve that came nearest to breaking, or broke.
        event: the set of outputs that gave the bound.
        seen: its counts on the left and on the right input.
        n: samples per side; None if the distributions were enumerated.
        confidence: the chance that `lower_bound` is not above the truth; 1 if the distributions were enumerated.
    """

    claim: Loss
    lower_bound: float
    allowed: float
    delta: float
    event: str
    seen: tuple[float, float]
    n: int | None
    confidence: float
    sketch: picture.Sketch = field(repr=False)

    @property
    def broken(self) -> bool:
        """Return True if the claim is refuted."""
        return self.lower_bound > self.allowed

    @property
    def verdict(self) -> str:
        """Return `"broken"` if the claim is false, `"holds"` if this audit did not refute it, which is no proof."""
        return "broken" if self.broken else "holds"

    def picture(self) -> str:
        """Return an SVG of both outputs, the event, and the log ratio against the claim."""
        return picture.svg(self.sketch, self._headlines(), self.allowed)

    _repr_svg_ = picture

    def finding(self, target: str) -> Finding:
        """Return the audit as a finding about a target, for a report."""
        often, seldom = sorted(self.seen, reverse=True)
        proving = _sizes(self.n)[2] if self.n else 0  # enumerated distributions leave no doubt
        likely, unlikely = (
            clopper_pearson(share * proving, proving, 0.975) if proving else (share, share) for share in (often, seldom)
        )
        return Finding(
            attack="audit",
            target=target,
            access="release",
            knowledge="the two inputs, and how the mechanism behaves on each",
            measure="guesses which of the two inputs was used that are right",
            success=(1 + often - seldom) / 2,
            interval=((1 + likely[0] - unlikely[1]) / 2, (1 + likely[1] - unlikely[0]) / 2),
            baseline=0.5,
            attempts=self.n or 0,
            epsilon=EpsilonBound(self.lower_bound, self.delta, self.confidence, self.allowed),
            claim=self.claim,
            figures={"event": self.event, "its share on the left": self.seen[0], "on the right": self.seen[1]},
            pictures={"Outputs on both inputs, and the event": self.picture()},
            remedies=("Compare sensitivity, scale and composition with the proof: the event shows where to look.",)
            if self.broken
            else (),
            notes=("An audit that refutes nothing is no proof.",) if not self.broken else (),
        )

    def __str__(self) -> str:
        left, right = picture.sparkline(self.sketch.left), picture.sparkline(self.sketch.right)
        lines = f"left  {self.seen[0]:<9.4g} {left}", f"right {self.seen[1]:<9.4g} {right}"
        return "\n".join((*self._headlines(), *lines))

    def _headlines(self) -> tuple[str, str, str]:
        at = f" at delta {self.delta:.3g}" if self.delta else ""
        compared = f"claim {self.claim}: epsilon ≥ {lower_text(self.lower_bound, 4)}, allowed {self.allowed:.4g}{at}"
        how = f"{self.n:,} samples a side, confidence {100 * self.confidence:.10g} %" if self.n else "laws enumerated"
        return f"{self.verdict}: {compared}", self.event, how


def audit(
    mechanism: Callable[[Any], Any],
    left: Any,
    right: Any,
    claim: Loss,
    *,
    n: int = 100_000,
    confidence: float = 0.95,
    features: Sequence[OutputFeature] = (),
    family: Literal["gaussian"] | None = None,
) -> Audit:
    """Try to refute a claimed loss by sampling.

    Args:
        mechanism: any callable from data to an output (number, vector, label). Runs must be independent. If it has a
            method `sample(data, n)` (see `Batched`), that is called once per side.
        left: one input.
        right: its neighbour under the claim's relation; the caller ensures that they are neighbours.
        claim: the loss that the mechanism states; a rho is tested through the (epsilon, delta) curve it implies.
        n: samples per side.
        confidence: the chance that a true claim survives is at least this.
        features: further scores whose tails are tried as events.
        family: "gaussian" if the outputs are numbers, or vectors, with Gaussian noise of one variance: a bound from
            their means, which is sharper, and which means nothing for other noise.

    Privacy: for use on synthetic inputs. It calls the mechanism 2n times, charges no ledger, and shows its outputs.
    """
    _check(mechanism, n, confidence, family)
    allowed, risk = curve(check_claim(claim)), 1.0 - confidence
    if family == "gaussian":
        return _gaussian(
            as_outputs(draw_outputs(mechanism, left, n), draw_outputs(mechanism, right, n)), claim, confidence
        )
    learning, choosing, proving = _split(
        as_outputs(draw_outputs(mechanism, left, n), draw_outputs(mechanism, right, n)), n
    )
    events = choose([*learn(*learning), *features], *choosing, allowed, risk / _KEPT)
    events = [event for event in events[:_KEPT] if event.strain >= _WORTH * events[0].strain]
    bounds, observed = _prove(events, proving, allowed, risk)
    best, point = divmod(int(allowed.strain(bounds).argmax()), len(allowed.deltas))
    event = events[best]
    return Audit(
        claim=claim,
        lower_bound=float(bounds[best, point]),
        allowed=float(allowed.epsilons[point]),
        delta=float(allowed.deltas[point]),
        event=f"{event}, likelier on the {'right' if event.swapped else 'left'}",
        seen=observed[best],
        n=n,
        confidence=confidence,
        sketch=picture.sketch(event, event.feature(proving[0]), event.feature(proving[1])),
    )


def check_claim(claim: object) -> Loss:
    """Return the claim, or refuse what is no loss."""
    if not isinstance(claim, Loss):
        raise BadLoss(f"a claim must be a loss, got a {type(claim).__name__}. Write epsilon(1) or rho('0.1').")
    return claim


def _check(mechanism: object, n: object, confidence: object, family: object) -> None:
    if not callable(mechanism):
        raise BadInput(f"a mechanism must be a callable from data to an output, got a {type(mechanism).__name__}.")
    if isinstance(n, bool) or not isinstance(n, int) or n < _FEWEST:
        raise BadNumber(f"n must be a whole number of at least {_FEWEST} samples a side, got {n!r:.40}.")
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise BadProbability(f"confidence must lie strictly between 0 and 1, got {confidence!r:.40}. Write 0.99.")
    if family not in (None, "gaussian"):
        raise BadInput(f"family is 'gaussian' or None, got {family!r:.40}.")


def draw_outputs(mechanism: Callable[[Any], Any], data: Any, n: int) -> Draws:
    """Return n outputs of a mechanism, by its `sample` if it has one."""
    sample = getattr(mechanism, "sample", None)
    try:
        drawn: Draws = sample(data, n) if callable(sample) else [mechanism(data) for _ in range(n)]
    except CloisterError:
        raise
    except FOREIGN_ERRORS as error:
        name = getattr(mechanism, "__name__", type(mechanism).__name__)
        raise BadInput(f"{name} failed on an input ({type(error).__name__}). Call it on both inputs first.") from error
    if not hasattr(drawn, "dtype") and all(output is None for output in drawn):
        raise BadInput("the mechanism returns None, from which nothing is learned. Return what would be released.")
    if len(drawn) != n:
        raise BadNumber(f"the mechanism's sample(data, n) was asked for {n} outputs and gave {len(drawn)}.")
    return drawn


def _split(samples: tuple[Outputs, Outputs], n: int) -> list[tuple[Outputs, Outputs]]:
    """Split samples: a quarter to learn on, a quarter to choose on, the others to prove on; of many, more prove."""
    cuts = np.cumsum((0, *_sizes(n)))
    return [(samples[0][a:b], samples[1][a:b]) for a, b in pairwise(cuts)]


def _sizes(n: int) -> tuple[int, int, int]:
    """Return the samples a side to learn on, to choose on and to prove on."""
    first, second = min(n // 4, _LEARNING), min(n // 4, _CHOOSING)
    return first, second, n - first - second


def _prove(
    events: list[Event], samples: tuple[Outputs, Outputs], allowed: TradeoffCurve, risk: float
) -> tuple[Floats, list[tuple[float, float]]]:
    """Return bounds per event and delta that hold jointly with probability 1 - risk, and the counts of each event."""
    n = len(samples[0])
    counts = [[int(event.holds(event.feature(side)).sum()) for side in samples] for event in events]
    often = [pair[event.swapped] for event, pair in zip(events, counts, strict=True)]
    seldom = [pair[not event.swapped] for event, pair in zip(events, counts, strict=True)]
    # Half of the risk for the event that promised most, the other half for all others.
    shares = [risk] if len(events) == 1 else [risk / 2, risk / 2 / (len(events) - 1)]
    parts = [slice(0, 1), slice(1, None)][: len(shares)]
    bounds = np.concatenate([
        epsilon_at_least(often[part], seldom[part], n, share, allowed.deltas)
        for part, share in zip(parts, shares, strict=True)
    ])  # fmt: skip
    return bounds, [(a / n, b / n) for a, b in counts]


def _gaussian(samples: tuple[Outputs, Outputs], claim: Loss, confidence: float) -> Audit:
    """Bound epsilon by the distance of two Gaussian means along the direction that a quarter of the samples chooses."""
    if not all(np.isfinite(side).all() for side in samples):
        raise BadInput("family='gaussian' is for outputs that are finite numbers, and some are not. Leave it out.")
    n, wide = len(samples[0]), samples[0].shape[1] > 1
    first = n // 4 if wide else 0
    direction = np.ones(1)
    if wide:
        gap = samples[0][:first].mean(axis=0) - samples[1][:first].mean(axis=0)
        spread = sum(np.cov(side[:first], rowvar=False) for side in samples) / 2
        direction = np.linalg.lstsq(spread, gap, rcond=None)[0]
    left, right = (np.asarray(side[first:] @ direction, dtype=np.float64) for side in samples)
    shift = _shift_at_least(left, right, 1 - confidence)
    allowed = curve(claim)
    bounds = np.array([epsilon_of_shift(shift, float(delta)) for delta in allowed.deltas])
    point = int(allowed.strain(bounds).argmax())
    feature = OutputFeature("best direction" if wide else "output", lambda rows: rows @ direction)
    swapped = bool(right.mean() > left.mean())
    event = Event(feature, float(left.mean() + right.mean()) / 2, above=True, swapped=swapped, strain=0.0)
    return Audit(
        claim=claim,
        lower_bound=float(bounds[point]),
        allowed=float(allowed.epsilons[point]),
        delta=float(allowed.deltas[point]),
        event=f"means {lower_text(shift, 4)} or more standard deviations apart, if the noise is Gaussian",
        seen=(float(event.holds(left).mean()), float(event.holds(right).mean())),
        n=n,
        confidence=confidence,
        sketch=picture.sketch(event, left, right),
    )


def _shift_at_least(left: Floats, right: Floats, risk: float) -> float:
    """Return a distance of the means in standard deviations that the truth is not below, but for the risk.

    Student's statistic is noncentral; its variance is that of a normal one plus the estimate's squared over twice the
    degrees of freedom.
    """
    from scipy.special import stdtrit

    n = len(left)
    freedom = 2 * n - 2
    deviation = float(np.sqrt((left.var(ddof=1) + right.var(ddof=1)) / 2))
    if not deviation > 0:
        return 0.0 if left[0] == right[0] else float("inf")
    shift = abs(float(left.mean() - right.mean())) / deviation
    return max(0.0, shift - float(stdtrit(freedom, 1 - risk / 2)) * float(np.sqrt(2 / n + shift**2 / (2 * freedom))))
