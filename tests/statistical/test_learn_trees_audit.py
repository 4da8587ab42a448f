"""k-means, trees and boosting on neighbouring tables: what they release tells no more about a row than they say.

The attacker knows both tables and sees everything a fit releases, step by step, not just the model. From a transcript
it works out how much likelier each step is under either table (by carrying the fit out again on both, with the
released values put in), and adds up: no attack on the same outputs can be stronger (Neyman & Pearson). The row in doubt
is the worst we can think of: alone in its cells, far from all others, or of a class that nobody else has.
"""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister.attack import Batched, audit
from cloister.learn.base.binned_estimator import BinnedRows
from cloister.learn.base.bins import read_axes, read_columns
from cloister.learn.cluster import lloyd
from cloister.learn.cluster.enclosing_ball import read_ground
from cloister.learn.cluster.lloyd import cluster
from cloister.learn.trees import additive, forest, tree_growth
from cloister.learn.trees.additive import boost
from cloister.learn.trees.boosting import _classes_task
from cloister.learn.trees.boosting_regressor import _number_task, _survey, _Target
from cloister.learn.trees.forest import RandomForestClassifier, _added, _calibrated, grow_at_random
from cloister.learn.trees.splits import SENSITIVITY, Apart
from cloister.learn.trees.tree_growth import grow
from cloister.privacy.filter import BudgetShare
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.mechanisms import PermuteAndFlip

from .learn_fits import Fit, evidence, seen

pytestmark = pytest.mark.statistical

SURE, N = 1 - 1e-7, 300


def binned(rows: Any, labels: Any, classes: Any = (0, 1), bins: int = 2) -> BinnedRows:
    columns = read_columns(np.asarray(rows, dtype=float), None, None)
    axes = read_axes(columns.names, (0, 1), bins, None, bins)
    return BinnedRows(columns, np.asarray(labels), axes, None if classes is None else np.asarray(classes))


@pytest.fixture
def account(tmp_path: Path) -> Callable[[Loss], Account]:
    book = Ledger.in_folder(tmp_path)
    return lambda loss: book.open_account(f"audit-{loss.measure}", loss)


def tree_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    grow(meter, budget, data, 2, Fraction(1))


def forest_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    for _ in range(2):
        grow(meter, budget, data, 1, Fraction(1, 2), 1)


def counted_forest_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    RandomForestClassifier(method="greedy", n_estimators=2, max_depth=1)._grow(meter, budget, data)


def sized_forest_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    """Its noisy count says whether splits are chosen or drawn, and how many trees there are."""
    RandomForestClassifier(method="auto", n_estimators=2, max_depth=1, max_features=1.0)._grow(meter, budget, data)


def calibrated_forest_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    trees = [grow(meter, budget, data, 1, Fraction(1, 4)) for _ in range(2)]
    _calibrated(_added(trees, np.array([3.0, 3.0])), meter, budget.part("1/2"), data)


def random_tree_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    grow_at_random(meter, budget, data, 2, 1)


def shapes_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    boost(meter, budget, data, _classes_task(2), 3, Fraction(1))


def three_shapes_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    boost(meter, budget, data, _classes_task(3), 3, Fraction(1))


def regression_of(meter: Any, budget: BudgetShare, data: BinnedRows) -> None:
    target = _Target(-1.0, 1.0)
    mean, deviation = _survey(meter, budget.part("1/25"), data, target)
    boost(meter, budget, data, _number_task(target, mean, deviation), 3, 1 - Fraction(1, 25))


def centres_of(meter: Any, budget: BudgetShare, rows: Any) -> None:
    cluster(meter, budget, read_ground((-1, 1), None, 2), lambda: rows, 2, 3)


SIX = [[0.1, 0.1], [0.2, 0.9], [0.3, 0.2], [0.1, 0.8], [0.2, 0.3], [0.4, 0.7]]
FEW, MORE = binned(SIX, [0] * 6), binned([*SIX, [0.9, 0.9]], [0] * 6 + [1])
FEW3, MORE3 = binned(SIX, [0, 1] * 3, (0, 1, 2)), binned([*SIX, [0.9, 0.9]], [0, 1] * 3 + [2], (0, 1, 2))
CALM, WILD = binned(SIX, [0.0] * 6, None), binned([*SIX, [0.9, 0.9]], [0.0] * 6 + [1.0], None)
NEAR = np.full((6, 2), -0.9)
FAR = np.vstack([NEAR, [[1.0, 1.0]]])

LOUD, PURE = rho(2), epsilon(4)
# The last number: how much of the loss the attacker must at least see, so that the audit is known to have power.
CASES = [
    (tree_of, (FEW, MORE), LOUD, 0.25),
    (tree_of, (FEW, MORE), PURE, 0.7),
    (tree_of, (FEW3, MORE3), LOUD, 0.25),
    (forest_of, (FEW, MORE), LOUD, 0.2),
    (forest_of, (FEW, MORE), PURE, 0.2),
    (counted_forest_of, (FEW, MORE), LOUD, 0.2),
    (counted_forest_of, (FEW, MORE), PURE, 0.2),
    (sized_forest_of, (FEW, MORE), LOUD, 0.3),
    (sized_forest_of, (FEW, MORE), PURE, 0.7),
    (calibrated_forest_of, (FEW, MORE), LOUD, 0.4),
    (calibrated_forest_of, (FEW, MORE), PURE, 0.4),
    (random_tree_of, (FEW, MORE), LOUD, 0.1),
    (random_tree_of, (FEW, MORE), PURE, 0.5),
    (shapes_of, (FEW, MORE), LOUD, 0.6),
    (shapes_of, (FEW, MORE), PURE, 0.7),
    (three_shapes_of, (FEW3, MORE3), LOUD, 0.6),
    (regression_of, (CALM, WILD), LOUD, 0.6),
    (centres_of, (NEAR, FAR), LOUD, 0.7),
    (centres_of, (NEAR, FAR), PURE, 0.7),
]


@pytest.mark.parametrize(
    ("fit", "tables", "loss", "least"), CASES, ids=[f"{case[0].__name__}, {case[2]}" for case in CASES]
)
def test_a_fit_tells_no_more_about_a_row_than_it_says_and_about_as_much(
    account: Any, fit: Fit, tables: tuple[Any, Any], loss: Loss, least: float
) -> None:
    ratios = evidence(fit, account(loss), loss, tables, N)
    amount, chance = seen(ratios, loss)
    assert least * float(loss.amount) <= amount <= float(loss.amount) + chance
    found = audit(Batched(lambda side, n: np.array(ratios[side][:n])), 0, 1, loss, n=N, confidence=SURE)
    assert found.verdict == "holds", str(found)


def one_feature(square: int) -> int:
    """A root that forgets that a row is in a cell of every feature."""
    return int((square / 2) ** 0.5)


def uncut(cells: Any, longest: int) -> Any:
    return cells


def half_as_sensitive(loss: Loss) -> Apart:
    return Apart(PermuteAndFlip.for_loss(SENSITIVITY // 2, loss, monotone=True))


class Half:
    """A choice made for half the sensitivity."""

    @staticmethod
    def for_loss(sensitivity: int, loss: Loss, monotone: bool) -> PermuteAndFlip:
        return PermuteAndFlip.for_loss(Fraction(sensitivity, 2), loss, monotone=monotone)


FAULTS = [
    ("features forgotten", shapes_of, (FEW, MORE), LOUD, (additive, "_root_above", one_feature)),
    ("features forgotten", shapes_of, (FEW, MORE), PURE, (additive, "_root_above", lambda square: 2**14)),
    ("residuals not clipped", regression_of, (CALM, WILD), LOUD, (additive, "shorten", uncut)),
    ("rows not clipped", centres_of, (NEAR, FAR), LOUD, (lloyd, "shorten", uncut)),
    (
        "a leaf's choice at half the sensitivity",
        random_tree_of,
        (FEW, MORE),
        PURE,
        (forest, "PermuteAndFlip", Half),
    ),
    ("half the sensitivity", tree_of, (FEW, MORE), PURE, (tree_growth, "chooser", half_as_sensitive)),
]


@pytest.mark.parametrize(
    ("fit", "tables", "loss", "fault"), [case[1:] for case in FAULTS], ids=[f"{case[0]}, {case[3]}" for case in FAULTS]
)
def test_a_fault_is_caught(
    account: Any, monkeypatch: Any, fit: Fit, tables: tuple[Any, Any], loss: Loss, fault: tuple[Any, str, Any]
) -> None:
    monkeypatch.setattr(*fault)
    amount, chance = seen(evidence(fit, account(loss), loss, tables, N), loss)
    assert amount > float(loss.amount) + chance
