"""Canonical JSON: one byte string for a record, so that all parties hash and sign the same bytes.

Keys are sorted, without spaces, in ASCII only. Numbers that are not whole are written as text ("1/10"), because a
float has no single spelling.
"""

import hashlib
import json

from cloister.privacy.errors import BadNumber

__all__ = ["canonical", "fingerprint"]

_dump = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False).encode


def canonical(record: object) -> bytes:
    """Return the canonical bytes of a record.

    Args:
        record: text, whole numbers, booleans, None, and lists and dicts (with text keys) of these.

    >>> canonical({"b": [1, True, None], "a": "1/10"})
    b'{"a":"1/10","b":[1,true,null]}'
    """
    _check(record, 0)
    return _dump(record).encode("ascii")


def fingerprint(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal, as which a request appears in ledgers and receipts."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check(value: object, depth: int) -> None:
    if value is None or isinstance(value, str | int):
        return
    if depth < 50:
        if isinstance(value, list):
            for item in value:
                _check(item, depth + 1)
            return
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            for item in value.values():
                _check(item, depth + 1)
            return
    raise BadNumber(
        "a signed record holds text, whole numbers, booleans, None, and shallow lists and dicts with text keys, "
        f"got a {type(value).__name__}. Write other numbers as text, such as '1/10'."
    )
