"""Offer the names of a package, and import each of them on first use.

A package lists its names as imports for type checkers, and as `__all__`. The same imports serve the interpreter:

    if TYPE_CHECKING:
        from cloister.synth.generators.aim import aim

    __all__ = ["aim"]
    __getattr__, __dir__ = door(__name__)
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

__all__ = ["door", "homes"]


def door(
    package: str, *, renamed: Mapping[str, str] | None = None, extras: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported on first use.

    Args:
        package: the package's `__name__`.
        renamed: former names, each with its present one, such as {"Checked": "local.CheckedEnvelope"}. They still work,
            with a DeprecationWarning.
        extras: optional packages that the modules need, each with the message if it is not installed.
    """
    room = package.rpartition(".")[2]

    def get(name: str) -> object:
        if name in (renamed or {}):
            home, _, new = (renamed or {})[name].rpartition(".")
            warnings.warn(f"{room}.{name} is {home}.{new} now.", DeprecationWarning, stacklevel=2)
            return getattr(import_module(f"cloister.{home}"), new)
        module = homes(package).get(name)
        if module is None:
            raise AttributeError(f"{package} has no {name!r}. It offers: {', '.join(sys.modules[package].__all__)}.")
        try:
            value = _import(module, name)
        except ModuleNotFoundError as error:
            message = (extras or {}).get((error.name or "").partition(".")[0])
            if message is None:
                raise
            from cloister.privacy.errors import MissingExtra

            raise MissingExtra(message) from None
        vars(sys.modules[package])[name] = value
        return value

    def names() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return get, names


@cache
def homes(package: str) -> dict[str, str]:
    """Return the module of each name that a package offers, as its imports for type checkers state it."""
    import ast

    spec = sys.modules[package].__spec__
    source = None if spec is None else spec.loader.get_source(package)  # type: ignore[union-attr]
    if source is None:
        raise ImportError(f"the source of {package} is not installed, and it lists what the package offers.")
    guarded = next(node for node in ast.parse(source).body if isinstance(node, ast.If)).body
    return {
        alias.asname or alias.name: node.module or ""
        for node in guarded
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _import(module: str, name: str) -> object:
    """Return a name of a module, or the submodule of that name."""
    home = import_module(module)
    return getattr(home, name) if name in vars(home) else import_module(f"{module}.{name}")
