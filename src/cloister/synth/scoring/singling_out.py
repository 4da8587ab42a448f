"""Is there a rule that fits exactly one person? Rules read off the synthetic table, tried on the real one.

A rule names values of one column (one that occurs once, the smallest, the largest), or of several columns of one
synthetic row, such that one synthetic row fits it. It singles out if exactly one real row fits. Many rules do by chance
alone, so they are tried on as many held-back rows, which the synthetic table does not know: only what goes beyond
counts. After Giomi, Boenisch, Wehmeyer & Tasnádi 2023 (Anonymeter); intervals are Clopper and Pearson's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.synth.scoring.figure import Figure, share
from cloister.synth.scoring.rows import Rows

__all__ = ["Rule", "SinglingOut", "attack_singling_out", "fits"]

Rule = tuple[tuple[int, str, float], ...]
"""Conditions on columns: (column, "=", "<=" or ">=", point)."""
_WAYS = (3, 4, 5)


@dataclass(frozen=True, slots=True)
class SinglingOut:
    """How often rules fit exactly one row.

    Attributes:
        rules: how many were tried.
        real: the share of rules that fit exactly one real row.
        fresh: the share that fit exactly one of as many held-back rows: chance.
        chance: how likely so many more hits among real rows are, if the synthetic table knows neither (a sign test on
            rules that hit in one of the two only).
        example: the first rule that hit among the real rows, in words.
    """

    rules: int
    real: Figure
    fresh: Figure
    chance: float
    example: str

    @property
    def risk(self) -> float:
        """What goes beyond chance, as a share of what chance leaves: (real - fresh)/(1 - fresh)."""
        return (self.real.value - self.fresh.value) / max(1 - self.fresh.value, 1e-9)

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        told = {"real": self.real.to_json(), "fresh": self.fresh.to_json()}
        return {"rules": self.rules, **told, "risk beyond chance": self.risk, "chance of this": self.chance}


def attack_singling_out(
    real: Rows, holdout: Rows, synthetic: Rows, most: int, random: np.random.Generator
) -> SinglingOut | None:
    """Try up to `most` rules on as many real rows as held-back ones; None if no rule fits one synthetic row alone."""
    half = list(_of_one_column(synthetic, random))[: most // 2]
    rules = half + list(_of_one_row(synthetic, most - len(half), random))
    if not rules:
        return None
    hits = np.array([[fits(one, rule).sum() == 1 for one in (real, holdout)] for rule in rules])
    from scipy.stats import binom

    only = int((hits[:, 0] & ~hits[:, 1]).sum()), int((hits[:, 1] & ~hits[:, 0]).sum())
    first = next((rule for rule, hit in zip(rules, hits[:, 0], strict=True) if hit), None)
    return SinglingOut(
        len(rules),
        share(int(hits[:, 0].sum()), len(rules)),
        share(int(hits[:, 1].sum()), len(rules)),
        float(binom.sf(only[0] - 1, sum(only), 0.5)),
        "" if first is None else _words(real, first),
    )


def fits(rows: Rows, rule: Rule) -> NDArray[np.bool_]:
    """Which rows a rule fits; what is missing fits none."""
    inside = np.ones(len(rows), dtype=bool)
    for j, sign, point in rule:
        values = rows.points[:, j]
        inside &= values == point if sign == "=" else values <= point if sign == "<=" else values >= point
    return inside


def _of_one_column(rows: Rows, random: np.random.Generator) -> Iterator[Rule]:
    """Values that occur once, the smallest and the largest, in a random order."""
    found: list[Rule] = []
    for j, side in enumerate(rows.sides):
        known = rows.points[~np.isnan(rows.points[:, j]), j]
        values, counts = np.unique(known, return_counts=True)
        single = values[counts == 1]
        found += [((j, "=", float(one)),) for one in random.permutation(single)[:200]]
        if side.ordered and len(single):
            found += [((j, "<=", float(values[0])),)] if counts[0] == 1 else []
            found += [((j, ">=", float(values[-1])),)] if counts[-1] == 1 else []
    yield from (found[i] for i in random.permutation(len(found)))


def _of_one_row(rows: Rows, most: int, random: np.random.Generator) -> Iterator[Rule]:
    """Some values of one row each: categories as they are, numbers from there on outwards."""
    if not len(rows):
        return
    middle = np.nan_to_num(np.nanmedian(np.where(np.isnan(rows.points).all(axis=0), 0.0, rows.points), axis=0))
    given = 0
    for _ in range(8 * most):
        if given == most:
            return
        row = rows.points[random.integers(len(rows))]
        known = np.flatnonzero(~np.isnan(row))
        chosen = random.choice(known, min(len(known), int(random.choice(_WAYS))), replace=False)
        rule = tuple((int(j), _sign(rows, j, row[j], middle[j]), float(row[j])) for j in chosen)
        if rule and fits(rows, rule).sum() == 1:
            given += 1
            yield rule


def _sign(rows: Rows, j: int, point: float, middle: float) -> str:
    if not rows.sides[j].ordered:
        return "="
    return ">=" if point > middle else "<="


def _words(rows: Rows, rule: Rule) -> str:
    parts = []
    for j, sign, point in rule:
        side = rows.sides[j]
        if not side.ordered:
            parts.append(f"{side.name} is {side.labels[int(point)]}")
            continue
        low, high = side.column.bounds or (0, 1)
        value: Any = low + (high - low) * point  # type: ignore[operator]
        if isinstance(value, float):
            value = round(value) if side.column.type == "integer" else float(f"{value:.6g}")
        parts.append(f"{side.name} {sign} {value}")
    return " and ".join(parts)
