"""How far a synthetic table is from the real one: half the L1 distance of three-way marginals; models made of it.

And how long a score looks for the closest rows.
"""

import time
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["NEAREST_ROWS", "error", "floors", "learned", "nearest_seconds", "score"]

MARGINALS = 80
NEAREST_ROWS = 50_000
Cells = np.ndarray[Any, Any]


def error(real: Cells, made: Cells, sizes: list[int]) -> float:
    """The mean over 80 random triples of columns, the same ones every time."""
    every = list(combinations(range(len(sizes)), 3))
    chosen = np.random.default_rng(0).choice(len(every), min(MARGINALS, len(every)), replace=False)
    return float(np.mean([_half_l1(real, made, sizes, every[i]) for i in chosen]))


def _half_l1(real: Cells, made: Cells, sizes: list[int], places: tuple[int, ...]) -> float:
    shape = [sizes[place] for place in places]
    shares = []
    for rows in (real, made):
        at = np.ravel_multi_index(tuple(rows[:, place] for place in places), shape)
        shares.append(np.bincount(at, minlength=int(np.prod(shape))) / len(rows))
    return 0.5 * float(np.abs(shares[0] - shares[1]).sum())


def floors(real: Cells, sizes: list[int], seeds: int = 5) -> tuple[float, float]:
    """The errors of rows drawn again from the real ones, and of columns shuffled by themselves. Neither is private."""
    low, high = [], []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        low.append(error(real, real[random.integers(0, len(real), len(real))], sizes))
        apart = np.column_stack([random.permutation(column) for column in real.T])
        high.append(error(real, apart, sizes))
    return float(np.mean(low)), float(np.mean(high))


def score(found: float, low: float, high: float) -> float:
    """1 for a bootstrap, 0 for independent columns."""
    return 1 - (found - low) / (high - low)


def learned(made: pd.DataFrame, test: pd.DataFrame) -> tuple[float, float]:
    """Accuracy and AUC on real rows of a logistic regression that saw synthetic rows of Adult alone."""
    from learning.data import _features  # the 49 public features of the learning benchmark
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    rich = made.income.to_numpy() == ">50K"
    model = LogisticRegression(max_iter=2000).fit(_features(made), rich)
    asked, truth = _features(test), test.income.to_numpy() == ">50K"
    likely = model.predict_proba(asked)[:, 1]
    return float(((likely > 0.5) == truth).mean()), float(roc_auc_score(truth, likely))


def nearest_seconds() -> float:
    """To find, for as many synthetic rows as real and held-back ones, the closest of each: 8 categories, 8 numbers."""
    from cloister.attack.tables.synthetic.closeness import closest
    from cloister.data.schema import Schema
    from cloister.synth.scoring.rows import only_table, read_rows, sides_of

    categories, numbers = [f"c{i}" for i in range(8)], [f"x{i}" for i in range(8)]
    columns: dict[str, Any] = {name: {"type": "integer", "categories": list(range(10))} for name in categories}
    columns |= {name: {"type": "real", "bounds": [0, 1]} for name in numbers}
    table = only_table(Schema.load({"unit": "row", "tables": {"t": {"columns": columns}}}), None)
    sides = sides_of(table, None, 32)

    def rows(seed: int) -> Any:
        random = np.random.default_rng(seed)
        made = {name: random.integers(10, size=NEAREST_ROWS) for name in categories}
        return read_rows(made | {name: random.random(NEAREST_ROWS) for name in numbers}, table, sides)

    real, held, made = (rows(seed) for seed in range(3))
    start = time.perf_counter()
    closest(made, real)
    closest(made, held)
    return time.perf_counter() - start
