"""Syntheses of a tiny table, thousands of them, beside a neighbour with one unit more; and what is seen of them.

The attacker knows both tables and sees everything that a generator releases, choices and counts, not just the rows.
From a transcript it works out how much likelier each step is under either table, with the released values put in, and
adds up: no attack on the same outputs is stronger (Neyman & Pearson).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import cloister as cl
from cloister.attack import Audit, Batched, audit
from cloister.data.schema import Schema
from cloister.privacy.filter import BudgetShare
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace
from cloister.privacy.noise import SeededSource, Source
from cloister.synth.domain.domain import read_domain
from cloister.synth.measure.marginals import Measurer

MOST = 2
COLUMNS = {
    "ward": {"type": "text", "categories": ["a", "b"], "nullable": False},
    "age": {"type": "integer", "bounds": [0, 1], "nullable": False},
    "back": {"type": "boolean", "nullable": False},
}
FEW = {"person": [1, 2, 3, 4], "ward": ["a", "b", "a", "b"], "age": [0, 1, 0, 1], "back": [False, False, True, True]}
ONE = {"person": [9] * 5, "ward": ["b"] * 5, "age": [0] * 5, "back": [True] * 5}  # more rows than count
MORE = {name: [*FEW[name], *ONE[name]] for name in FEW}


def schema_of(columns: dict[str, Any]) -> Schema:
    tables = {"visits": {"unit": "person", "columns": columns}}
    return Schema.load({"unit": {"name": "person", "max_rows": MOST}, "tables": tables})


@dataclass
class Tables:
    """Two neighbouring tables in engines, whose counts are asked for once."""

    datasets: tuple[Any, Any]
    known: dict[Any, dict[Any, Any]] = field(default_factory=dict)

    @classmethod
    def opened(cls, folder: Path, rows: tuple[Any, Any] = (FEW, MORE), columns: Any = None) -> "Tables":
        schema = schema_of(columns or COLUMNS)
        names = ["person", *(columns or COLUMNS)]
        made = [
            cl.open(pa.table(one).select(names), schema=schema, budget=cl.rho(10**6), ledger=folder / str(side))
            for side, one in enumerate(rows)
        ]
        for one in made:
            one.tables.engine.run = _kept(one.tables.engine.run)
        return cls((made[0], made[1]))

    def close(self) -> None:
        for one in self.datasets:
            one.close()


def _kept(ask: Callable[[str], Any]) -> Callable[[str], Any]:
    known: dict[str, Any] = {}
    return lambda sql: known[sql] if sql in known else known.setdefault(sql, ask(sql))


class Recording:
    """A meter that keeps what each step saw and told."""

    def __init__(self, noise: Source, public: str) -> None:
        self.noise, self.source = noise, SeededSource(public)
        self.steps: list[tuple[Any, Any, Any]] = []

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        seen = look()
        self.steps.append((mechanism, seen, mechanism.release(seen, self.noise)))
        return self.steps[-1][2]


class Replaying:
    """A meter that tells what was told before, and adds up how much likelier that is than where it was told."""

    def __init__(self, steps: list[tuple[Any, Any, Any]], public: str) -> None:
        self.ratio, self._steps, self.source = 0.0, iter(steps), SeededSource(public)

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        before, seen, told = next(self._steps)
        self.ratio += log_probability(mechanism, look(), told) - log_probability(before, seen, told)
        return told


def log_probability(mechanism: Any, seen: Any, told: Any) -> float:
    """Up to a constant that does not depend on what was seen."""
    if isinstance(mechanism, DiscreteGaussian | DiscreteLaplace):
        gap = (np.asarray(told) - np.asarray(seen)).astype(float)
        if isinstance(mechanism, DiscreteLaplace):
            return -float(np.abs(gap).sum() / float(mechanism.scale))
        return -float(np.square(gap / float(mechanism.sigma)).sum() / 2)
    return float(np.log(mechanism.probabilities(seen)[told]))


@dataclass(frozen=True)
class Generator:
    """A generator without its charge: `steps` is handed a survey with a meter of ours."""

    module: Any
    name: str
    told: dict[str, Any] = field(default_factory=dict)

    def steps(self, data: Any) -> Callable[[Any, Loss], Any]:
        """What it does with a meter and a loss, on a dataset."""
        kept: dict[str, Any] = {}

        def keeping(_data: Any, steps: Any, **more: Any) -> None:
            kept["steps"], kept["asked"] = steps, more

        inner = self.module.synthesise
        self.module.synthesise = keeping
        try:
            getattr(self.module, self.name)(data, spend=cl.rho(1), **self.told)
        finally:
            self.module.synthesise = inner
        asked = {one: kept["asked"][one] for one in ("table", "columns", "bins") if one in kept["asked"]}
        domain, relation = read_domain(data, **asked)
        exact: dict[Any, Any] = {}

        def carried(meter: Any, loss: Loss) -> Any:
            return kept["steps"](Measurer(domain, relation, meter, BudgetShare(loss), exact), lambda share, word: None)

        return carried


def evidence(generator: Generator, tables: Tables, loss: Loss, n: int, seed: str = "") -> np.ndarray[Any, Any]:
    """For n runs on each table how much likelier all they told is on the larger one (logarithms)."""
    noise = SeededSource(f"{generator.name} {loss} {seed}")
    carried = [generator.steps(data) for data in tables.datasets]
    found = np.zeros((2, n))
    for side in (0, 1):
        for i in range(n):
            public = f"public {side} {i}"
            record = Recording(noise, public)
            carried[side](record, loss)
            other = Replaying(record.steps, public)
            carried[1 - side](other, loss)
            found[side, i] = -other.ratio if side else other.ratio
    return found


def certified(ratios: np.ndarray[Any, Any], claim: Loss, confidence: float) -> Audit:
    """What these ratios prove about the loss."""
    return audit(Batched(lambda side, n: ratios[side][:n]), 0, 1, claim, n=ratios.shape[1], confidence=confidence)


__all__ = ["FEW", "MORE", "Generator", "Tables", "certified", "evidence"]
