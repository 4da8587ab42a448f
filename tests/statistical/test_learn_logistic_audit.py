"""Linear classifiers, attacked on two tables that differ in one row: what they release, and the model alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister.attack import Audit, Batched, audit
from cloister.learn.base.frame import Frame, read_frame
from cloister.learn.base.inputs import read_table
from cloister.learn.base.row_source import ArrayRows
from cloister.learn.linear_model import clipped_gradients, moments
from cloister.learn.linear_model.classifier import PrivateRows
from cloister.learn.linear_model.gradient_descent import descend
from cloister.learn.linear_model.logistic import LogisticRegression
from cloister.learn.linear_model.loss_gradients import Hinge
from cloister.privacy.errors import LookFailed
from cloister.privacy.filter import budget_share
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

SURE = 1 - 1e-9
FRAME = read_frame((0, 1), None, 3)
OTHERS = np.array([[0.5, 0.5, 0.4], [0.4, 0.5, 0.5], [0.5, 0.6, 0.5], [0.6, 0.5, 0.5]])
CANARY = np.array([[1.0, 1.0, 1.0]])  # in a corner of the box: as long as a row can be
WITHOUT = OTHERS, np.array([0, 1, 0, 1])
WITH = np.vstack([OTHERS, CANARY]), np.array([0, 1, 0, 1, 1])


class Free:
    """A meter without a ledger that keeps what it released."""

    def __init__(self, source: SeededSource) -> None:
        self.source = source
        self.released: list[Any] = []

    def release(self, look: Callable[[], Any], mechanism: Any) -> Any:
        value = mechanism.release(look(), self.source)
        self.released.append(np.ravel(value).astype(float))
        return value


def logistic(method: str, spend: Loss, data: tuple[Any, Any], meter: Any) -> Any:
    rows = PrivateRows(ArrayRows(read_table(data[0]), data[1], np.array([0, 1])), FRAME)
    model = LogisticRegression(spend, bounds=(0, 1), classes=[0, 1], method=method)._learn(
        meter, budget_share(spend), rows
    )
    return np.append(model.coefficients, model.intercepts)


def machine(spend: Loss, data: tuple[Any, Any], meter: Any) -> Any:
    fitted = descend(meter, budget_share(spend), FRAME, Hinge(1), lambda: (FRAME.rows(data[0]), data[1]))
    return np.append(*fitted.model(FRAME))


def attacked(fit: Callable[..., Any], spend: Loss, *, all_steps: bool, n: int = 1500) -> Audit:
    """What samples prove. White box: every noisy number; black box: the coefficients."""
    source = SeededSource("canary")

    def draw(data: Any, n: int) -> Any:
        outputs = []
        for _ in range(n):
            meter = Free(source)
            model = fit(spend, data, meter)
            outputs.append(np.concatenate(meter.released) if all_steps else model)
        return np.array(outputs)

    return audit(Batched(draw), WITHOUT, WITH, budget_share(spend).loss, n=n, confidence=SURE)


FITS = {
    **{
        name: lambda *told, name=name: logistic(name, *told)
        for name in ("gradient", "newton", "quadratic", "functional")
    },
    "machine": machine,
}


@pytest.mark.parametrize("all_steps", [True, False], ids=["white box", "black box"])
@pytest.mark.parametrize(
    ("name", "spend"), [(name, rho("0.5")) for name in FITS] + [(name, epsilon(2)) for name in FITS], ids=str
)
def test_a_fit_costs_no_more_than_it_says(name: str, spend: Loss, all_steps: bool) -> None:
    found = attacked(FITS[name], spend, all_steps=all_steps, n=1200)
    assert found.verdict == "holds", str(found)


@pytest.mark.long
@pytest.mark.parametrize(("name", "share"), [("gradient", 0.1), ("quadratic", 0.2), ("machine", 0.1)])
def test_the_audit_sees_the_canary(name: str, share: float) -> None:
    """It has power: it proves a part of what was claimed."""
    found = attacked(FITS[name], rho(2), all_steps=True, n=2500)
    assert found.lower_bound > share * found.allowed, str(found)


# Broken twins


@pytest.mark.long
def test_gradients_that_are_not_clipped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipped_gradients.ClippedRows, "_limit", lambda self, *_, **__: np.full(len(self.rows), 2**40))
    monkeypatch.setattr(clipped_gradients.ClippedRows, "bound", lambda self, clip: int(clip / self.worth / 4))
    assert attacked(FITS["gradient"], rho("0.5"), all_steps=True).broken


def test_a_row_that_is_not_clipped_to_the_bounds_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    far = np.vstack([OTHERS, 12 * CANARY]), WITH[1]
    monkeypatch.setattr("cloister.learn.base.frame.shorten", lambda cells, longest: cells)
    monkeypatch.setattr(Frame, "rows", lambda self, table: (table - self.centre) * self.scale)
    monkeypatch.setitem(globals(), "WITH", far)
    assert attacked(FITS["quadratic"], rho("0.5"), all_steps=True).broken


@pytest.mark.long
def test_a_first_look_that_is_not_paid_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        standard_error = 0.0

        def release(self, value: Any, source: Any) -> Any:
            return value

    monkeypatch.setattr(moments, "noise_for", lambda *_: Bare())
    assert attacked(FITS["gradient"], rho("0.5"), all_steps=True).broken


def test_an_intercept_without_noise_is_caught() -> None:
    def bare(spend: Loss, data: Any, meter: Any) -> Any:
        weights = machine(spend, data, meter)
        weights[-1] = data[1].mean()
        return weights

    assert attacked(bare, rho("0.5"), all_steps=False).broken


def test_a_spend_that_every_step_takes_whole_is_stopped_by_the_meter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Shares forgotten: the second step finds nothing left, and nothing is released."""
    monkeypatch.setattr("cloister.privacy.filter.BudgetShare.part", lambda self, share: self.loss)
    model = LogisticRegression(rho("0.5"), bounds=(0, 1), classes=[0, 1], ledger=tmp_path)
    with pytest.raises(LookFailed) as caught:
        model.fit(*WITH)
    assert "OverBudget" in caught.value.owner_detail
    assert not hasattr(model, "coef_")
