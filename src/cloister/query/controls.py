"""Old place of `cloister.lessons.controls`; its names are served from there with a warning."""

import warnings
from importlib import import_module


def __getattr__(name: str) -> object:
    """Return a control from its new place."""
    home = import_module("cloister.lessons.controls")
    if name not in home.__all__:
        raise AttributeError(f"query.controls has no {name!r}.")
    warnings.warn(f"query.controls.{name} is lessons.controls.{name} now.", DeprecationWarning, stacklevel=2)
    return getattr(home, name)
