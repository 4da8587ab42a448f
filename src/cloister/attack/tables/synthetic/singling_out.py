"""Singling out: rules derived from the synthetic table that match exactly one real person.

A rule names values of one column (one that occurs once, the smallest, the largest), or of several columns of one
synthetic row, such that one synthetic row matches it. It singles out if exactly one real row matches. Many rules do so
by chance: only the excess counts. After Giomi, Boenisch, Wehmeyer & Tasnádi 2023 (Anonymeter).

Chance is measured on held-out rows, of which the synthetic table is independent. If it is independent of the real ones
too, the choice of held-out rows is a shuffle: of the t people in both that a rule matches, the number among the real
ones is hypergeometric. Every row of both is therefore used, however many were held out: a rule from a copied row would
miss that person in a sample. Many rules match the same few people, so they hit or miss together: the probability of
that many hits is found by shuffling the held-out rows, never by adding rules up as if they were independent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval, share
from cloister.attack.tables.synthetic.coded_rows import CodedRows, Floats, Integers

__all__ = ["Rule", "SinglingOut", "attack_singling_out", "fits"]

Rule = tuple[tuple[int, str, float], ...]
"""Conditions on columns: (column, "=", "<=" or ">=", point)."""
_WAYS = (3, 4, 5)
_SHUFFLES, _AT_ONCE, _ENOUGH = 9_999, 303, 30
_NEVER = 1e-9  # rules that match this many people hardly ever hit by chance


@dataclass(frozen=True, slots=True)
class SinglingOut:
    """Share of rules that match exactly one row.

    Attributes:
        rules: number of rules tried.
        real: the share of rules that match exactly one real row (Clopper and Pearson's interval).
        fresh: the expected share if the synthetic table is independent of the rows, with its range in 19 of 20 cases.
        held_back: the share of all people, real and held out, who were held out.
        chance: the probability of that many rules that match one real row, if the synthetic table is independent of the
            rows: the share of up to 9,999 shuffles that have as many, including the actual one.
        example: the first rule that matches one real row, in words.
    """

    rules: int
    real: Interval
    fresh: Interval
    held_back: float
    chance: float
    example: str

    @property
    def risk(self) -> float:
        """Bound the share of rules that single out because the table depends on a person.

        A rule from a copied row that matches no one else certainly matches one real row, where chance gives it the
        share of people who are real: its excess is the held-out share, and more if it matches others too.
        """
        return max(-1.0, min(1.0, (self.real.value - self.fresh.value) / self.held_back))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        rates = {"real": self.real.to_json(), "fresh": self.fresh.to_json()}
        return {"rules": self.rules, **rates, "risk beyond chance": self.risk, "chance of this": self.chance}


def attack_singling_out(
    real: CodedRows, holdout: CodedRows, synthetic: CodedRows, most: int, random: np.random.Generator
) -> SinglingOut | None:
    """Try up to `most` rules on all real and held-out rows; None if no rule matches exactly one synthetic row."""
    half = list(_of_one_column(synthetic, random))[: most // 2]
    rules = half + list(_of_one_row(synthetic, most - len(half), random))
    if not rules:
        return None
    both = (real, 0), (holdout, len(real))
    people = [np.concatenate([np.flatnonzero(fits(rows, rule)) + start for rows, start in both]) for rule in rules]
    hits = np.array([int((matches < len(real)).sum()) == 1 for matches in people])
    likely = _chances(np.array([len(matches) for matches in people]), len(real), len(holdout))
    shuffled, chance = _shuffled(people, likely, int(hits.sum()), len(real), len(holdout), random)
    spread = 1.96 * float(shuffled.std()) / len(rules)
    expected = float(likely.mean())
    return SinglingOut(
        len(rules),
        share(int(hits.sum()), len(rules)),
        Interval(expected, max(0.0, expected - spread), min(1.0, expected + spread)),
        len(holdout) / (len(real) + len(holdout)),
        chance,
        _words(real, rules[int(hits.argmax())]) if hits.any() else "",
    )


def _chances(fitting: Integers, real: int, holdout: int) -> Floats:
    """Return the probability of exactly one real row among that many people, if held-out rows are a shuffle."""
    from scipy.stats import hypergeom

    return np.asarray(hypergeom.pmf(1, real + holdout, fitting, real))


def _shuffled(
    people: Sequence[Integers], likely: Floats, hits: int, real: int, holdout: int, random: np.random.Generator
) -> tuple[Integers, float]:
    """Return the hits in each shuffle of held-out rows, and the probability of at least the given number of hits.

    Shuffling stops early if many shuffles have as many hits (Besag & Clifford 1991): it is then not a rare event.
    """
    from scipy.sparse import csr_array

    possible = [matches for matches, chance in zip(people, likely, strict=True) if chance > _NEVER]
    if not possible:
        return np.zeros(1, dtype=np.int64), 1.0
    everybody, positions = np.unique(np.concatenate(possible), return_inverse=True)
    starts = np.cumsum([0, *(len(matches) for matches in possible)])
    fitting = csr_array(
        (np.ones(len(positions), dtype=np.int32), positions, starts), shape=(len(possible), len(everybody))
    )
    shuffles: list[Any] = []
    while sum(map(len, shuffles)) < _SHUFFLES and sum(int((batch >= hits).sum()) for batch in shuffles) < _ENOUGH:
        # The number of matched people who are real, and which: this is all that a shuffle of everyone decides.
        counts = random.hypergeometric(len(everybody), real + holdout - len(everybody), real, size=_AT_ONCE)
        ranks = random.random((len(everybody), _AT_ONCE)).argsort(axis=0).argsort(axis=0)
        shuffles.append(((fitting @ (ranks < counts).astype(np.int32)) == 1).sum(axis=0))
    every = np.concatenate(shuffles)
    return every, float((1 + (every >= hits).sum()) / (1 + len(every)))


def fits(rows: CodedRows, rule: Rule) -> NDArray[np.bool_]:
    """Return the rows that match a rule; missing values match none."""
    inside = np.ones(len(rows), dtype=bool)
    for j, sign, point in rule:
        values = rows.points[:, j]
        inside &= values == point if sign == "=" else values <= point if sign == "<=" else values >= point
    return inside


def _of_one_column(rows: CodedRows, random: np.random.Generator) -> Iterator[Rule]:
    """Yield values that occur once, the smallest and the largest, in a random order."""
    rules: list[Rule] = []
    for j, side in enumerate(rows.sides):
        present = rows.points[~np.isnan(rows.points[:, j]), j]
        values, counts = np.unique(present, return_counts=True)
        single = values[counts == 1]
        rules += [((j, "=", float(value)),) for value in random.permutation(single)[:200]]
        if side.ordered and len(single):
            rules += [((j, "<=", float(values[0])),)] if counts[0] == 1 else []
            rules += [((j, ">=", float(values[-1])),)] if counts[-1] == 1 else []
    yield from (rules[i] for i in random.permutation(len(rules)))


def _of_one_row(rows: CodedRows, most: int, random: np.random.Generator) -> Iterator[Rule]:
    """Yield some values of one row each: categories unchanged, numbers as ranges from the value outwards."""
    if not len(rows):
        return
    middle = np.nan_to_num(np.nanmedian(np.where(np.isnan(rows.points).all(axis=0), 0.0, rows.points), axis=0))
    yielded = 0
    for _ in range(8 * most):
        if yielded == most:
            return
        row = rows.points[random.integers(len(rows))]
        present = np.flatnonzero(~np.isnan(row))
        chosen = random.choice(present, min(len(present), int(random.choice(_WAYS))), replace=False)
        rule = tuple((int(j), _sign(rows, j, row[j], middle[j]), float(row[j])) for j in chosen)
        if rule and fits(rows, rule).sum() == 1:
            yielded += 1
            yield rule


def _sign(rows: CodedRows, j: int, point: float, middle: float) -> str:
    if not rows.sides[j].ordered:
        return "="
    return ">=" if point > middle else "<="


def _words(rows: CodedRows, rule: Rule) -> str:
    parts = []
    for j, sign, point in rule:
        side = rows.sides[j]
        if not side.ordered:
            parts.append(f"{side.name} is {side.labels[int(point)]}")
            continue
        parts.append(f"{side.name} {sign} {side.value(point)}")
    return " and ".join(parts)
