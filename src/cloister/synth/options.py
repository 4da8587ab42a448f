"""Check options by type and range, before anything is charged.

    check_whole("rounds", rounds, most=1000, none=True)
    check_names("columns", columns)

Errors in options depend on no row. If a step found them, the charge would already have been made.

Privacy: public facts only; nothing is read.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from cloister.privacy.errors import BadInput

__all__ = ["MOST_ALLOWED", "check_flag", "check_names", "check_number", "check_progress", "check_whole"]

MOST_ALLOWED = 10**9  # largest model size that a caller may allow: more than memory holds


def check_whole(name: str, value: Any, *, least: int = 1, most: int | None = None, none: bool = False) -> None:
    """Refuse anything but a whole number in a range. With `none`, None is allowed too."""
    if value is None and none:
        return
    integer = isinstance(value, int) and not isinstance(value, bool)
    if not integer or value < least or (most is not None and value > most):
        reach = "" if most is None else f", and at most {most:,}"
        raise BadInput(f"{name} is a whole number of at least {least}{reach}{', or None' if none else ''}.")


def check_number(name: str, value: Any, *, least: float, most: float, what: str) -> None:
    """Refuse anything but a number from `least` to `most`. `what` names its purpose."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most or not math.isfinite(value):
        raise BadInput(f"{name} is a number from {least:g} to {most:g}: {what}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but True or False: other values would silently count as one of them."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} is True or False.")


def check_names(name: str, value: Any, *, none: bool = True) -> None:
    """Refuse anything but a list of names. With `none`, None is allowed too."""
    if value is None and none:
        return
    listed = isinstance(value, Iterable) and not isinstance(value, str | bytes) and not hasattr(value, "__next__")
    if not listed or not all(isinstance(entry, str) for entry in value):
        raise BadInput(f"{name} is a list of names.")


def check_progress(progress: Callable[[float, str], None] | None) -> None:
    """Refuse anything that is not callable with a share and a word."""
    if progress is not None and not callable(progress):
        raise BadInput("progress is a function of a share from 0 to 1 and a word, or None.")
