"""Empirical privacy audits of the estimators on synthetic rows (benchmarks/learning/audited.py)."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["FILE", "audited"]

FILE = Path(__file__).with_name("audited.json")


def audited(estimator: str) -> dict[str, Any] | None:
    """Return the audit result of an estimator; None if it was not audited.

    Returns:
        claim: the claimed loss. lower_bound: a lower bound on epsilon at `delta`, with the given `confidence`.
        allowed: the largest epsilon that the claim allows. samples: fits on each side. made: the date. attack: the
        attack that was run.
    """
    result = _all()["found"].get(estimator)
    return None if result is None else {**_all()["about"], **result}


@lru_cache(maxsize=1)
def _all() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))
