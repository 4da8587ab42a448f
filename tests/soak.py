"""Properties that run a little in every test run, and for as long as is useful under `pytest -m soak`.

few(25, randoms)(check)()      # the same 25 examples every time
soak(check, randoms)           # new ones for CLOISTER_SOAK_SECONDS
"""

import os
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

__all__ = ["SECONDS", "few", "randoms", "soak", "soaked"]

SECONDS = float(os.environ.get("CLOISTER_SOAK_SECONDS", "60"))  # of each soaked property
_QUIET = list(HealthCheck)


def few(examples: int, *strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property for every test run: so many examples, the same ones every time."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        limits = settings(
            max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=_QUIET
        )
        return limits(given(*strategies)(check))

    return decorate


def soak(check: Callable[..., Any], *strategies: Any) -> None:
    """The same property with ever new examples until the time is up. Its failure names the seed."""
    ends, round_ = time.monotonic() + SECONDS, int(os.environ.get("CLOISTER_SOAK_SEED", str(time.time_ns() % 10**6)))
    limits = settings(
        max_examples=50,
        deadline=None,
        database=None,
        suppress_health_check=_QUIET,
        phases=[Phase.generate, Phase.shrink],
    )

    def checked(drawn: tuple[Any, ...]) -> None:  # hypothesis refuses properties that return something
        check(*drawn)

    while time.monotonic() < ends:
        try:
            seed(round_)(limits(given(st.tuples(*strategies))(checked)))()
        except BaseException as error:
            error.add_note(f"CLOISTER_SOAK_SEED={round_}")
            raise
        round_ += 1


randoms = st.integers(0, 2**64 - 1).map(Random)  # one draw a case: what is made of it is drawn ten times quicker
soaked = pytest.mark.soak
