"""Old place of `cloister.lessons.controls`; its names are served from there with a warning."""

import warnings
from importlib import import_module


def __getattr__(name: str) -> object:
    """Return a control from its new place."""
    if name.startswith("__"):
        raise AttributeError(name)
    warnings.warn(f"query.controls.{name} is lessons.controls.{name} now.", DeprecationWarning, stacklevel=2)
    value: object = getattr(import_module("cloister.lessons.controls"), name)
    return value
