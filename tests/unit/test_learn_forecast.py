"""Forecasts of accuracy are made of what was released, and come true."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn
from cloister.data.hospital import SCHEMA, hospital

CLASSES = [0, 1]


def normal_classes(seed: int, rows: int, apart: float, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Two normal classes in eight features, within ±4."""
    chance = np.random.default_rng(seed)
    labels = (chance.random(rows) < share).astype(int)
    away = apart / np.sqrt(8) * (2 * labels[:, None] - 1) / 2
    return np.clip(chance.normal(size=(rows, 8)) + away, -4, 4), labels


WAYS: dict[str, tuple[type, dict[str, Any]]] = {
    "gradient": (learn.LogisticRegression, {"method": "gradient"}),
    "newton": (learn.LogisticRegression, {"method": "newton"}),
    "quadratic": (learn.LogisticRegression, {"method": "quadratic"}),
    "GaussianNB": (learn.GaussianNB, {}),
    "MixedNB": (learn.MixedNB, {}),
}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(("apart", "share"), [(2.0, 0.5), (3.0, 0.3), (0.6, 0.5)])
def test_a_forecast_on_normal_classes_is_within_two_percent_on_average(
    tmp_path: Path, name: str, apart: float, share: float
) -> None:
    kind, told = WAYS[name]
    gaps = []
    for seed in range(4):
        rows, labels = normal_classes(seed, 20_000, apart, share)
        fresh, truth = normal_classes(100 + seed, 20_000, apart, share)
        model = kind(
            cl.epsilon(1, delta="1e-6"), bounds=(-4, 4), classes=CLASSES, ledger=tmp_path, random_state=seed, **told
        ).fit(rows, labels)
        gaps.append(model.expected_accuracy_ - model.score(fresh, truth))
    assert abs(np.mean(gaps)) < 0.02
    assert np.abs(gaps).max() < 0.03


@pytest.mark.parametrize("kind", [learn.LogisticRegression, learn.MixedNB])
def test_a_forecast_inside_an_engine_is_within_three_percent(tmp_path: Path, kind: Any) -> None:
    data = hospital(8_000)
    names = ["age", "stay_days", "cost"]
    with cl.open(pa.table(data), schema=SCHEMA, budget=cl.rho(100), ledger=tmp_path) as ds:
        model = kind(cl.rho(1), random_state=0).fit(ds, target="readmitted", features=names)
    import pandas as pd

    rows = pd.DataFrame({name: data[name] for name in names})
    assert model.expected_accuracy_ == pytest.approx(model.score(rows, data["readmitted"]), abs=0.03)


def test_where_theory_gives_none_there_is_none(tmp_path: Path) -> None:
    rows, labels = normal_classes(0, 500, 2.0, 0.5)
    told: dict[str, Any] = {"bounds": (-4, 4), "ledger": tmp_path}
    three = np.arange(500) % 3
    spend = cl.rho(1)
    assert learn.LogisticRegression(spend, classes=[0, 1, 2], **told).fit(rows, three).expected_accuracy_ is None
    assert learn.GaussianNB(spend, classes=[0, 1, 2], **told).fit(rows, three).expected_accuracy_ is None
    plain = learn.GaussianNB(spend, classes=CLASSES, calibrate=False, **told).fit(rows, labels)
    assert plain.expected_accuracy_ is None
    hidden = learn.GaussianNB(cl.rho("1e-7"), classes=CLASSES, **told).fit(rows, labels)
    assert hidden.expected_accuracy_ is None  # the noise drowns it


@pytest.mark.parametrize("name", WAYS)
def test_no_rows_make_a_forecast_fail(tmp_path: Path, name: str) -> None:
    kind, told = WAYS[name]
    model = kind(cl.rho("0.01"), bounds=(-4, 4), classes=CLASSES, ledger=tmp_path, **told)
    expected = model.fit(np.zeros((0, 3)), np.zeros(0, dtype=int)).expected_accuracy_
    assert expected is None or 0 <= expected <= 1
