"""The requests that receipts of synthetic tables and their scores contain the hash of.

A metadata file states all parts of its request, and `verify` builds it again: a receipt of anything else does not fit.
Further options, and the label of a reader's work, enter as a hash. So a request is short, and its first word tells what
it is for: no SQL and no other request begins like this.
"""

import re
from collections.abc import Sequence
from typing import Any

from cloister.privacy.signing import fingerprint

__all__ = ["is_digest", "score_request", "settings_digest", "table_request"]


def settings_digest(settings: Any, reader: Any) -> str:
    """Return the hash of further options, and of the label of a reader's work."""
    label = "" if reader is None else reader.label
    return fingerprint(f"{settings!r}\n{label}" if label else repr(settings))


def table_request(table: str, method: str, columns: Sequence[str], settings: str) -> str:
    """Return the request for a synthetic table. One for two tables does not name them: each is handed on by itself."""
    if method == "two_tables":
        return f"synthesise two tables with {settings}"
    return f"synthesise {table} by {method} with {settings}: {list(columns)!r}"


def score_request(table: str, settings: str) -> str:
    """Return the request for a score of a synthetic table."""
    return f"score synthetic {table} with {settings}"


def is_digest(value: object) -> bool:
    """Return True if a value is a hash, as a metadata file states it."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None
