"""Reference page of the settings, from the settings themselves."""

from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from cloister.hub.core.settings import Settings

__all__ = ["settings_page"]

_KINDS: dict[Any, str] = {str: "text", int: "whole number", bool: "yes or no", Path: "path"}
_SECRET = frozenset({"master_key", "metrics_token", "smtp_url", "database_url", "ledger_url"})

_HEAD = """# Settings of a hub

A hub is set up by environment variables alone. What is empty or missing has the value shown here. `cloister hub init`
and `cloister hub serve` read the same ones, and so does every worker: give all of them the same settings.
[How to run a hub](guides/run-a-hub.md) says which of them matter first.

"""
_TAIL = """
Variables marked with * hold a secret. Set them from a file that only the hub's user can read, and keep them out of
command lines, where other users of the machine could see them.
"""


def settings_page() -> str:
    """Return docs/hub-settings.md, below the line that says where it is made."""
    kinds = get_type_hints(Settings)
    rows = ["| variable | kind | unless set | meaning |", "| --- | --- | --- | --- |"]
    for field in fields(Settings):
        name = f"`CLOISTER_{field.name.upper()}`" + ("*" if field.name in _SECRET else "")
        meaning = str(field.metadata["meaning"]).replace("|", "\\|")
        rows.append(f"| {name} | {_KINDS[kinds[field.name]]} | {_default(field.default)} | {meaning} |")
    return _HEAD + "\n".join(rows) + "\n" + _TAIL


def _default(value: Any) -> str:
    if value == "":
        return ""
    return f"`{'yes' if value is True else 'no' if value is False else value}`"
