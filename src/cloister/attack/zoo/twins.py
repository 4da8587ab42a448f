"""A broken mechanism beside an honest one with the same claim, and the run of an audit over many such pairs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cloister.attack.mechanisms.audit import Audit, Batched, audit
from cloister.privacy.errors import BadNumber
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SeededSource, Source

__all__ = ["Draw", "Kind", "Twins", "ZooResult", "generator", "of_kind", "run_twins"]

Draw = Callable[[Any, int, Source], Any]
Kind = Literal["mechanism", "query", "training", "protocol"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """A broken mechanism and an honest one: `draw(data, n, source)` returns n independent outputs.

    Attributes:
        name: the fault in a few words.
        kind: where such a fault is made.
        fault: what is wrong, and what is right, in one sentence.
        broken: the mechanism with the fault.
        honest: the mechanism without it.
        left: an input.
        right: its neighbour under the claim's relation.
        claim: the loss that both state. It is true of the honest one.
        reference: where the fault is described; empty for a common slip.
    """

    name: str
    kind: Kind
    fault: str
    broken: Draw
    honest: Draw
    left: Any
    right: Any
    claim: Loss
    reference: str = ""

    def mechanism(self, which: Literal["broken", "honest"], seed: int) -> Batched:
        """Return one of the two as a mechanism for `attack.audit`, with a seed of its own."""
        draw: Draw = getattr(self, which)
        source = SeededSource(f"{self.name} {which} {seed}")
        return Batched(lambda data, n: draw(data, n, source))


@dataclass(frozen=True, slots=True)
class ZooResult:
    """Audits of a pair of twins.

    Attributes:
        twins: the pair.
        broken: the audit of the broken one.
        honest: audits of the honest one, each on samples of its own.
    """

    twins: Twins
    broken: Audit
    honest: tuple[Audit, ...]

    @property
    def caught(self) -> bool:
        """Return True if the broken one was refuted."""
        return self.broken.broken

    @property
    def false_alarms(self) -> int:
        """Number of audits that accused the honest one."""
        return sum(found.broken for found in self.honest)

    def __str__(self) -> str:
        verdict = "caught" if self.caught else "MISSED"
        alarms = f"{self.false_alarms} of {len(self.honest)} audits accuse its twin"
        shown = f"epsilon ≥ {self.broken.lower_bound:.3g} of {self.broken.allowed:.3g} allowed"
        return f"{verdict}  {self.twins.kind:<9}  {self.twins.name}: {shown}; {alarms}"


def generator(source: Source) -> np.random.Generator:
    """Return a generator seeded from a source: mechanisms here imitate code that draws floats."""
    return np.random.default_rng(int.from_bytes(source.bytes(8)))


def of_kind(kind: Kind) -> Callable[..., Twins]:
    """Return a short way to write pairs of one kind."""

    def twins(
        name: str, fault: str, broken: Draw, honest: Draw, left: Any, right: Any, claim: Loss, *, reference: str = ""
    ) -> Twins:
        return Twins(
            name=name,
            kind=kind,
            fault=fault,
            broken=broken,
            honest=honest,
            left=left,
            right=right,
            claim=claim,
            reference=reference,
        )

    return twins


def _audit(twins: Twins, *, samples: int, repeats: int, confidence: float) -> ZooResult:
    """Audit the broken mechanism once, and its twin several times."""

    def look(which: Literal["broken", "honest"], seed: int) -> Audit:
        mechanism = twins.mechanism(which, seed)
        return audit(mechanism, twins.left, twins.right, twins.claim, n=samples, confidence=confidence)

    return ZooResult(twins, look("broken", 0), tuple(look("honest", seed) for seed in range(repeats)))


def run_twins(zoo: Sequence[Twins]) -> Callable[..., Iterator[ZooResult]]:
    """Return the function that audits all pairs of a zoo."""

    def run(*, samples: int = 50_000, repeats: int = 1, confidence: float = 1 - 1e-6) -> Iterator[ZooResult]:
        """Audit every broken mechanism of the zoo and its honest twin, one pair after another.

        Args:
            samples: samples of each input.
            repeats: audits of each honest twin, on fresh samples.
            confidence: the chance that one audit does not accuse an honest mechanism.

        Privacy: nothing here reads data. Seeds are fixed, so that a run can be repeated.
        """
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise BadNumber(f"repeats is a whole number of at least 1, got {repeats!r:.40}.")
        return (_audit(twins, samples=samples, repeats=repeats, confidence=confidence) for twins in zoo)

    return run
