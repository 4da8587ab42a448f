"""How private each estimator was found to be when attacked on made-up rows (benchmarks/learning/audited.py)."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["FILE", "audited"]

FILE = Path(__file__).with_name("audited.json")


def audited(estimator: str) -> dict[str, Any] | None:
    """What the attack found; None for an estimator that was not attacked.

    Returns:
        claim: the loss that was claimed. lower_bound: epsilon is at least this at `delta`, with the `confidence`.
        allowed: what the claim allows there. samples: fits on each side. made: the day. attack: what was tried.
    """
    found = _all()["found"].get(estimator)
    return None if found is None else {**_all()["about"], **found}


@lru_cache(maxsize=1)
def _all() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))
