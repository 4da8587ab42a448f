"""Fits on rows of a dataset protect a person with all of their rows.

Two tables differ by one person, who has more rows than count, all alike and unlike everybody else's. The attacker sees
everything a fit releases and knows both tables, as in test_learn_trees_audit.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn
from cloister.attack import Batched, audit
from cloister.privacy.filter import BudgetShare
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.release import Release

from .learn_fits import Fit, evidence, seen

pytestmark = pytest.mark.statistical

SURE, N, MOST = 1 - 1e-7, 100, 3
SCHEMA = {
    "unit": {"name": "person", "max_rows": MOST},
    "tables": {
        "visits": {
            "unit": "person",
            "columns": {
                "age": {"type": "real", "bounds": [0, 1], "nullable": False},
                "cost": {"type": "real", "bounds": [0, 1], "nullable": False},
                "back": {"type": "boolean", "nullable": False},
            },
        }
    },
}
FEW = {"person": [1, 2, 3, 4, 5, 6], "age": [0.1, 0.2, 0.3] * 2, "cost": [0.2, 0.9] * 3, "back": [False] * 6}
ONE = {"person": [7] * 5, "age": [0.9] * 5, "cost": [1.0] * 5, "back": [True] * 5}
MORE = {name: [*FEW[name], *ONE[name]] for name in FEW}


@pytest.fixture
def tables(tmp_path: Path) -> Any:
    """Both tables; what a statement gives is kept, so that thousands of fits need not ask again."""
    opened = [cl.open(pa.table(one), schema=SCHEMA, budget=rho(100), ledger=tmp_path) for one in (FEW, MORE)]
    for one in opened:
        one.tables.engine.run = _kept(one.tables.engine.run)
    yield tuple(opened)
    for one in opened:
        one.close()


def _kept(run: Callable[[str], Any]) -> Callable[[str], Any]:
    known: dict[str, Any] = {}
    return lambda sql: known[sql] if sql in known else known.setdefault(sql, run(sql))


def fit_of(kind: Any, told: dict[str, Any], asked: dict[str, Any], payer: Any) -> Fit:
    """A fit of an estimator, whole, but for the charge."""

    def fit(meter: Any, budget: BudgetShare, data: Any) -> None:
        meter.account = payer
        model = kind(budget.loss, **told)

        def train(steps: Any, _data: Any = None, asked: str = "") -> Any:
            found = steps(meter, budget)
            model.release_ = Release(found, budget.loss, data.unit, asked, {})
            return found

        model._train = train
        model.fit(data, features=["age", "cost"], **asked)

    fit.__name__ = kind.__name__
    return fit


LOUD, PURE = rho(2), epsilon(4)
BACK = {"target": "back"}
# The last number: how much of the loss the attacker must at least see, so that the audit is known to have power.
CASES: list[tuple[Any, dict[str, Any], dict[str, Any], Loss, float]] = [
    (learn.DecisionTreeClassifier, {"max_depth": 2, "bins": 2}, BACK, LOUD, 0.2),
    (learn.DecisionTreeClassifier, {"max_depth": 2, "bins": 2}, BACK, PURE, 0.4),
    (learn.GradientBoostingClassifier, {"rounds": 3, "bins": 2}, BACK, LOUD, 0.5),
    (learn.LinearSVC, {}, BACK, LOUD, 0.3),
    (learn.KMeans, {"n_clusters": 2, "max_iter": 3}, {}, LOUD, 0.3),
]
IDS = [f"{case[0].__name__}, {case[3]}" for case in CASES]


@pytest.mark.parametrize(("kind", "told", "asked", "loss", "least"), CASES, ids=IDS)
def test_a_fit_tells_no_more_about_a_person_than_it_says(
    tables: Any, kind: Any, told: dict[str, Any], asked: dict[str, Any], loss: Loss, least: float
) -> None:
    payer = tables[0].account
    most = loss if loss.measure == "rho" else loss.as_rho()
    ratios = evidence(fit_of(kind, told, asked, payer), payer, loss, tables, N, most)
    amount, chance = seen(ratios, loss)
    assert least * float(loss.amount) <= amount <= float(loss.amount) + chance
    found = audit(Batched(lambda side, n: np.array(ratios[side][:n])), 0, 1, loss, n=N, confidence=SURE)
    assert found.verdict == "holds", str(found)


@pytest.mark.parametrize("fault", ["rows cost nothing more", "rows are not capped"])
def test_a_fault_is_caught(tables: Any, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    kind, told, asked, loss, _ = CASES[2]
    if fault == "rows cost nothing more":
        monkeypatch.setattr(BudgetShare, "of_a_row", lambda self, _rows: self)
    else:
        from cloister.data.private_table import ChosenRows, PrivateTable

        monkeypatch.setattr(PrivateTable, "chosen", lambda self, names: ChosenRows(self.rows, tuple(names), 99, ""))
    payer = tables[0].account
    amount, chance = seen(evidence(fit_of(kind, told, asked, payer), payer, loss, tables, N), loss)
    assert amount > float(loss.amount) + chance
