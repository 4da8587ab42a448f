"""Syntheses without a ledger: what each step sees is kept, and what it released can be put into another run.

    table, run = recorded(patch, ds, lambda: synth.mst(ds, …))
    again, other = replayed(patch, neighbour, run, lambda: synth.mst(neighbour, …))

Both runs release the same values, so whatever differs between them is what a step saw of one unit, or a leak.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.noise import SeededSource, Source
from cloister.synth import run
from cloister.synth.generators import two_tables
from cloister.synth.scoring.utility import workload


@dataclass
class Step:
    """A look: what was seen, what noise it got, what was told."""

    mechanism: Any
    seen: Any
    told: Any


@dataclass
class Transcript:
    """A meter that keeps every step, or repeats what another one told.

    Chance that generators use beside their noise is public, and the same in both.
    """

    seed: str
    repeats: "Transcript | None" = None
    steps: list[Step] = field(default_factory=list)
    source: Source = field(init=False)
    noise: Source = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.noise = SeededSource(f"public {self.seed}"), SeededSource(self.seed)

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        seen = np.asarray(look())
        if self.repeats is None:
            told = mechanism.release(seen, self.noise)
        else:
            before = self.repeats.steps[len(self.steps)]
            assert mechanism == before.mechanism, "the plan depends on the data"
            assert seen.shape == before.seen.shape, "the size of an answer depends on the data"
            told = before.told
        self.steps.append(Step(mechanism, seen, told))
        return told

    @property
    def spent(self) -> dict[str, Fraction]:
        """The losses of all steps added up, by measure."""
        found: dict[str, Fraction] = {}
        for step in self.steps:
            loss: Loss = step.mechanism.loss
            found[loss.measure] = found.get(loss.measure, Fraction(0)) + loss.amount
        return found


def recorded(patch: pytest.MonkeyPatch, make: Callable[[], Any], seed: str = "transcript") -> tuple[Any, Transcript]:
    """A synthesis and its transcript."""
    return _carried(patch, Transcript(seed), make)


def replayed(patch: pytest.MonkeyPatch, first: Transcript, make: Callable[[], Any]) -> tuple[Any, Transcript]:
    """The same on other rows, if they had told the same."""
    return _carried(patch, Transcript(first.seed, first), make)


def _carried(patch: pytest.MonkeyPatch, meter: Transcript, make: Callable[[], Any]) -> tuple[Any, Transcript]:
    def without_a_ledger(steps: Callable[[Any], Any], **_: Any) -> tuple[Any, Any]:
        return steps(meter), SimpleNamespace(body={"mechanism": "any"}, text=lambda: "null")

    with patch.context() as inside:
        for module in (run, two_tables, workload):
            inside.setattr(module, "release_steps", without_a_ledger)
        return make(), meter


def moved(one: Step, other: Step) -> Fraction:
    """How far what two steps saw is apart, as a part of the sensitivity that their noise is made for."""
    gap = one.seen.astype(object) - other.seen.astype(object)
    sizes = [abs(Fraction(each)) for each in gap.ravel().tolist()]
    if isinstance(one.mechanism, DiscreteGaussian):
        return Fraction(sum(size**2 for size in sizes)) / one.mechanism.sensitivity**2
    if isinstance(one.mechanism, DiscreteLaplace):
        return sum(sizes, Fraction(0)) / one.mechanism.sensitivity
    return max(sizes) / one.mechanism.sensitivity
