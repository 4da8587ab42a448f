"""Membership inference: guess from the synthetic rows alone which rows were in the real table.

Two attackers, on real rows against held-out rows. One says `in` if a synthetic row is close. The other knows the
population and says `in` if the row's pairs of values are more frequent in the synthetic table than in that population:
small deviations of many marginals add up. The better attacker and its threshold are selected on one half of the rows;
the reported result is measured on the other half, without selection bias. If the synthetic table is independent of the
rows, no attacker is right more often than half.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.report.interval import Interval, share
from cloister.attack.tables.synthetic.coded_rows import CodedRows, Floats, cells, choose_columns
from cloister.privacy.loss import Loss

__all__ = ["Membership", "area", "attack_membership", "beaten"]

_MOST_PAIRS = 150
_FEW = 0.01  # share of non-members that may be flagged, where flags are to be trusted


@dataclass(frozen=True, slots=True)
class Membership:
    """Success of membership guesses.

    Attributes:
        attacker: "closest row" or "frequent pairs": the better one on the rows used for selection.
        right: the share of right guesses, on equally many members and non-members; 1/2 is chance.
        correct, guesses: the same in numbers.
        found: the share of members flagged, at a threshold that flags about 1 % of non-members.
        accused: the share of non-members flagged at that threshold.
        areas: area under the curve of each attacker, on all rows: how often a member scores above a non-member.
        blind: the share of right guesses without the table, from the rows alone: above 1/2 if non-members are of
            another population, and then right guesses say nothing about the table.
    """

    attacker: str
    right: Interval
    correct: int
    guesses: int
    found: Interval
    accused: Interval
    areas: Mapping[str, Interval]
    blind: float = 0.5

    @property
    def advantage(self) -> Interval:
        """Return 2 · right - 1: 0 is chance, 1 is always right."""
        low, high = self.right.low or 0.0, 1.0 if self.right.high is None else self.right.high
        return Interval(2 * self.right.value - 1, 2 * low - 1, 2 * high - 1)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file."""
        rates = {name: getattr(self, name).to_json() for name in ("right", "advantage", "found", "accused")}
        areas = {name: figure.to_json() for name, figure in self.areas.items()}
        return {"attacker": self.attacker, "guesses": self.guesses, **rates, "areas": areas}


def attack_membership(
    real: CodedRows,
    holdout: CodedRows,
    synthetic: CodedRows,
    away: tuple[Floats, Floats],
    random: np.random.Generator,
    population: tuple[CodedRows, CodedRows] | None = None,
) -> Membership:
    """Attack as many real rows as held-out ones.

    Args:
        real, holdout: equally many rows.
        away: the distance of each of them to the closest synthetic row.
        population: equally many real and held-out rows, including those above; just those unless given.
    """
    tilts = _tilts(real, holdout, synthetic, population or (real, holdout), random)
    suspicion = {"closest row": (-away[0], -away[1]), "frequent pairs": tilts}
    n = len(real)
    orders = random.permutation(n), random.permutation(n)
    training, tried = [order[: n // 2] for order in orders], [order[n // 2 :] for order in orders]
    trained = {
        name: _threshold(*(scores[at] for scores, at in zip(pair, training, strict=True)))
        for name, pair in suspicion.items()
    }
    best = max(trained, key=lambda name: trained[name][1])
    member, stranger = (scores[at] for scores, at in zip(suspicion[best], tried, strict=True))
    limit = trained[best][0]
    correct = int((member >= limit).sum() + (stranger < limit).sum())
    # The least threshold that flags at most 1 % of the known non-members; ties are flagged together.
    strict = np.quantile(suspicion[best][1][training[1]], 1 - _FEW, method="higher") if n > 1 else np.inf
    guesses = len(member) + len(stranger)
    return Membership(
        best,
        share(correct, guesses),
        correct,
        guesses,
        share(int((member > strict).sum()), len(member)),
        share(int((stranger > strict).sum()), len(stranger)),
        {name: area(*pair) for name, pair in suspicion.items()},
    )


def beaten(attack: Membership, claim: Loss) -> float:
    """Return the probability of at least that many right guesses, if the claim holds.

    With a pure epsilon, and each row held out or not by a fair coin of its own, right guesses are no more than coins
    that show heads with probability e^epsilon/(1 + e^epsilon) (Steinke, Nasr & Jagielski 2023, Theorem 3.1); a delta
    adds to that at most 2 · delta for each guess. A split into two halves is as good as coins but for a shuffle.
    """
    from scipy.stats import binom

    bound = claim if claim.measure == "epsilon" else claim.as_epsilon(delta="1e-9")
    heads = 1 / (1 + np.exp(-float(bound.amount)))
    return min(
        1.0, float(binom.sf(attack.correct - 1, attack.guesses, heads)) + 2 * attack.guesses * float(bound.delta)
    )


def area(member: Floats, stranger: Floats) -> Interval:
    """Return how often one of the first is larger than one of the second, ties half; the error is DeLong's."""
    from scipy.stats import rankdata

    m, n = len(member), len(stranger)
    both = rankdata(np.concatenate([member, stranger]))
    above, below = (both[:m] - rankdata(member)) / n, 1 - (both[m:] - rankdata(stranger)) / m
    error = np.sqrt((above.var(ddof=1) / m if m > 1 else 0.25) + (below.var(ddof=1) / n if n > 1 else 0.25))
    return Interval.of(float(above.mean()), float(error), 0.0, 1.0)


def _threshold(member: Floats, stranger: Floats) -> tuple[float, float]:
    """Return the threshold for `in` with most right guesses, and their number."""
    values = np.unique(np.concatenate([member, stranger]))
    caught = len(member) - np.searchsorted(np.sort(member), values)
    spared = np.searchsorted(np.sort(stranger), values)
    right = caught / max(len(member), 1) + spared / max(len(stranger), 1)
    best = int(np.argmax(right)) if len(values) else 0
    return (float(values[best]), float(right[best] / 2)) if len(values) else (0.0, 0.5)


def _tilts(
    real: CodedRows,
    holdout: CodedRows,
    synthetic: CodedRows,
    population: tuple[CodedRows, CodedRows],
    random: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return for each row the sum over pairs of columns of ln(synthetic share / population's share) of its cell.

    The population is real and held-out rows together: it contains equally much of both.
    """
    chosen = choose_columns(len(real.sides), min(2, len(real.sides)), _MOST_PAIRS, random)
    tilts: list[NDArray[Any]] = [np.zeros(len(real)), np.zeros(len(holdout))]
    scale = len(synthetic) / sum(map(len, population))
    for columns in chosen:
        size = int(np.prod([real.sides[j].size for j in columns]))
        inside = [cells(rows, columns) for rows in (real, holdout, synthetic, *population)]
        if size > 2**22:
            _, joint = np.unique(np.concatenate(inside), return_inverse=True)
            inside, size = np.split(joint, np.cumsum([len(codes) for codes in inside])[:-1]), int(joint.max()) + 1
        counts, *baselines = (np.bincount(codes, minlength=size) for codes in inside[2:])
        tilt = np.log((counts + 0.5) / ((baselines[0] + baselines[1]) * scale + 0.5))
        tilts[0] += tilt[inside[0]]
        tilts[1] += tilt[inside[1]]
    return np.asarray(tilts[0]), np.asarray(tilts[1])
