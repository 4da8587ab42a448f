"""Fits on the visits that DuckDB made (benchmarks/visits): inside the engine, and on rows that are read out of it."""

import time
from pathlib import Path
from typing import Any

from visits.questions import SCHEMAS, database

import cloister.dataset
from cloister import learn
from cloister.privacy.loss import rho

_SPEND = rho("0.01")
_NUMBERS = ["region", "cost", "code"]
_TWO = ["ward A", "ward B"]

INSIDE: dict[str, Any] = {
    "MixedNB, two classes": lambda data: learn.MixedNB(_SPEND, classes=_TWO).fit(
        data, target="ward", features=_NUMBERS, table="visits"
    ),
    "GaussianNB, four classes": lambda data: learn.GaussianNB(_SPEND, fill=0.0).fit(
        data, target="ward", features=_NUMBERS, table="visits"
    ),
    "LinearRegression": lambda data: learn.LinearRegression(_SPEND, fill=0.0).fit(
        data, target="code", features=["region", "ward", "cost"], table="visits"
    ),
    "PCA": lambda data: learn.PCA(_SPEND, fill=0.0).fit(data, features=_NUMBERS, table="visits"),
    "LogisticRegression, quadratic": lambda data: learn.LogisticRegression(_SPEND, classes=_TWO, fill=0.0).fit(
        data, target="ward", features=_NUMBERS, table="visits"
    ),
}
READING: dict[str, Any] = {
    "LogisticRegression, gradient": lambda data: learn.LogisticRegression(
        _SPEND, classes=_TWO, fill=0.0, method="gradient"
    ).fit(data, target="ward", features=_NUMBERS, table="visits"),
    "GradientBoostingClassifier": lambda data: learn.GradientBoostingClassifier(_SPEND, classes=_TWO, fill=0.0).fit(
        data, target="ward", features=_NUMBERS, table="visits"
    ),
}


def fits(files: Path, rows: int, ledger: str, *, times: int = 3) -> dict[str, tuple[float, float]]:
    """Seconds of the best of some fits: where a row is protected, and where a person is, with eight rows at most."""
    found: dict[str, list[float]] = {}
    for unit in ("row", "person"):
        for some, count in ((INSIDE, rows), (READING, rows // 10)):
            opened = cloister.dataset.open(
                database(files, count), schema=SCHEMAS[unit], budget=rho(100), ledger=f"{ledger}-{unit}-{count}"
            )
            with opened as data:
                for name, fit in some.items():
                    best = min(_seconds(fit, data) for _ in range(times))
                    found.setdefault(f"{name}: {count:,} rows", []).append(best)
    return {name: (row, person) for name, (row, person) in found.items()}


def _seconds(fit: Any, data: Any) -> float:
    start = time.perf_counter()
    fit(data)
    return time.perf_counter() - start
