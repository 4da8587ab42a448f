"""Plausible deniability: release a synthetic row only if enough real rows could have generated it as easily.

After Bindschaedler, Shokri & Gunter 2017, *Plausible deniability for privacy-preserving data synthesis*. A seed-based
model M turns one real row (the seed) into one synthetic row y, and the probability Pr[y = M(d)] can be computed for
every real row d. The seed's band is the i with gamma^(-i-1) < Pr[y = M(seed)] <= gamma^(-i). The test counts the real
rows in that band, including the seed, and passes y if they are at least k.

Its limits, which are why everything here is labelled not private:

- With a fixed k the test is not differentially private: whether y passes reveals facts about other rows.
- With a noisy k (`epsilon0`) it is, but for **one** released row: (epsilon0 + ln(1 + gamma/t), e^(-epsilon0 (k - t)))
  for every t from 1 to k - 1. A table of n rows costs n times that (`loss_of_a_row`), or less by better composition.
- All of this assumes that M does not depend on the table. A model fitted to it has to be charged separately.
- Rows that fail must leave no trace, not even their number.

Falls to: `attack.tables.synthetic.membership.attack_membership`, where the test is not private.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import epsilon
from cloister.privacy.mechanisms import DiscreteLaplace
from cloister.privacy.noise import Source
from cloister.privacy.number import Number, rational
from cloister.synth.scoring.negatives import NotPrivateTable, decoded
from cloister.synth.scoring.rows import ScoreRows, only_table, read_rows, sides_of

__all__ = ["Deniability", "deniable", "loss_of_a_row", "seeded_rows"]


@dataclass(frozen=True, slots=True)
class Deniability:
    """Result of the test for one synthetic row. As sensitive as the real rows.

    Attributes:
        passed: whether the row may be released.
        alike: number of real rows in the seed's band, including the seed.
    """

    passed: bool
    alike: int


def deniable(
    likelihoods: ArrayLike,
    seed: int,
    *,
    k: int,
    gamma: float,
    epsilon0: Number | None = None,
    source: Source | None = None,
) -> Deniability:
    """Test one synthetic row.

    Args:
        likelihoods: Pr[y = M(d)] for every real row d.
        seed: index of the row that y was generated from.
        k: minimum number of rows that could have been the seed.
        gamma: factor by which their likelihoods may differ, above 1.
        epsilon0: if given, discrete Laplace noise of scale 1/epsilon0 is added to k.
        source: source of the random bits for that noise.

    Privacy: none without epsilon0. With it, see `loss_of_a_row`: for one row, a model that was not fitted to the table,
        and no information about rows that fail. Nothing is charged here.
    """
    chances = np.asarray(likelihoods, dtype=np.float64)
    if chances.ndim != 1 or not 0 <= seed < len(chances) or not 0 < chances[seed] <= 1:
        raise BadInput("likelihoods is one chance for each real row, and the seed's is above 0.")
    _check(k, gamma)
    with np.errstate(divide="ignore"):
        band = np.floor(-np.log(chances) / math.log(gamma) + 1e-12)
    alike = int((band == band[seed]).sum())
    counted = alike
    if epsilon0 is not None:
        counted = int(DiscreteLaplace.for_loss(1, epsilon(epsilon0)).release(alike, source))
    return Deniability(counted >= k, alike)


def loss_of_a_row(k: int, gamma: float, epsilon0: Number, delta: float) -> float:
    """Return the epsilon that one row costs under the noisy test, at this delta; infinite if there is none.

    The least epsilon0 + ln(1 + gamma/t) over all t < k with e^(-epsilon0 (k - t)) <= delta. Theorem 1 of the paper.
    """
    _check(k, gamma)
    rate = float(rational(epsilon0, "epsilon0"))
    if rate <= 0 or not 0 < delta < 1:
        raise BadInput("epsilon0 is above 0, delta between 0 and 1.")
    t = min(k - 1, math.floor(k + math.log(delta) / rate))
    return rate + math.log1p(gamma / t) if t >= 1 else math.inf


def seeded_rows(
    real: Any,
    schema: Schema | Any,
    rows: int,
    *,
    keep: Fraction | float = 0.5,
    k: int = 50,
    gamma: float = 4.0,
    table: str | None = None,
    seed: int = 0,
) -> NotPrivateTable:
    """Generate rows by the simplest seed-based model, each after the test, to show what it accepts.

    A column keeps the seed's value with probability `keep`, else it is uniform over its public values; the model
    depends on no other row. Numbers are cut into 32 bins and returned as the start of their bin.

    Privacy: none: k is fixed, and the number of tries depends on the rows.
    """
    stay = float(keep)
    if not 0 < stay < 1 or rows < 1:
        raise BadInput("keep is between 0 and 1, and rows is at least 1.")
    facts = only_table(schema if isinstance(schema, Schema) else Schema.load(schema), table)
    real_rows = read_rows(real, facts, sides_of(facts, None, 32))
    random = np.random.default_rng(seed)
    sizes = np.array([len(side.labels) + side.column.nullable for side in real_rows.sides])
    passed, tries = list[NDArray[Any]](), 0
    while len(passed) < rows and tries < 100 * rows:
        tries += 1
        index = int(random.integers(len(real_rows)))
        candidate = np.where(random.random(len(sizes)) < stay, real_rows.codes[index], random.integers(sizes))
        if deniable(_chances(real_rows, candidate, stay, sizes), index, k=k, gamma=gamma).passed:
            passed.append(candidate)
    codes = np.array(passed, dtype=np.int64).reshape(-1, len(sizes))
    why = f"{len(passed):,} of {tries:,} passed a test for {k} look-alikes, which promises nothing for a whole table."
    return NotPrivateTable(decoded(real_rows.sides, _points(real_rows, codes)), "seeds with plausible deniability", why)


def _chances(rows: ScoreRows, candidate: NDArray[Any], keep: float, sizes: NDArray[Any]) -> NDArray[np.float64]:
    other = (1 - keep) / sizes
    return np.asarray(np.where(rows.codes == candidate, keep + other, other).prod(axis=1))


def _points(rows: ScoreRows, codes: NDArray[Any]) -> NDArray[np.float64]:
    points = np.empty(codes.shape)
    for j, side in enumerate(rows.sides):
        bins = isinstance(side.labels[0], tuple)
        width = max(len(side.labels) - (0 if bins else 1), 1) if side.ordered else 1
        points[:, j] = np.where(codes[:, j] == len(side.labels), np.nan, codes[:, j] / width)
    return points


def _check(k: int, gamma: float) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 2 or not gamma > 1:
        raise BadInput("k is a whole number of at least 2, and gamma is above 1.")
