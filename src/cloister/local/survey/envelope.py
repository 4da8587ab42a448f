"""The wire format: canonical JSON around a report's bytes, encoded alike by both halves in every language.

    {"id":"…","level":"1","mechanism":{…},"private":true,"question":"smoker","report":"AQ","version":1}

    id         16 random bytes, new for every report: the same report twice is counted once, and nothing else is linked
    level      the epsilon of this report, as `describe()` writes it
    mechanism  `describe()`: exact public facts, with the bits per answer
    private    false if the randomness was seeded, which protects no one
    question   its id: letters, digits, dots, dashes, underscores
    report     the report's `width` bytes, in base64url without padding
    version    1

Keys are sorted, there are no spaces, all is ASCII: one content has one encoding, and two envelopes for one question and
level differ in `id` and `report` alone. Test vectors for clients in other languages are in tests/vectors/local.json;
the order in which one person's random bytes are read is stated in mechanisms/: first those of the report (for Laplace
noise, see base/laplace_rows.py), then 16 for the id.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from cloister.local.base.oracle import Reports
from cloister.local.base.wire import encode
from cloister.privacy.errors import BadName
from cloister.privacy.noise.source import SYSTEM, Source

__all__ = ["ID_BYTES", "VERSION", "canonical", "check_question", "pack", "text_of", "unpack", "seal"]

VERSION = 1
ID_BYTES = 16
_QUESTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def canonical(content: Any) -> bytes:
    r"""Return JSON with sorted keys, no spaces and ASCII only.

    >>> canonical({"b": 1, "a": "ä"})
    b'{"a":"\\u00e4","b":1}'
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def check_question(name: object) -> str:
    """Return the id of a question, or refuse an invalid one."""
    if not isinstance(name, str) or not _QUESTION.fullmatch(name):
        raise BadName("a question's id has 1 to 64 letters, digits, dots, dashes and underscores, such as 'smoker'.")
    return name


def pack(data: bytes) -> str:
    """Return base64url text without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def unpack(text: object) -> bytes | None:
    """Return the bytes of `pack`ed text; None for anything else, another encoding of the same bytes included."""
    if not isinstance(text, str) or not text.isascii() or len(text) % 4 == 1:
        return None
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        return None
    return data if pack(data) == text else None


def text_of(question: str, description: Mapping[str, Any], private: bool) -> tuple[bytes, bytes, bytes]:
    """Return the fixed parts of an envelope: before the id, between id and report, after the report."""
    hole = "\0"  # the id's is the first of these in the text, the report's the last
    content = {
        "id": hole,
        "level": description["loss"],
        "mechanism": dict(description),
        "private": private,
        "question": question,
        "report": hole,
        "version": VERSION,
    }
    before, mark, rest = canonical(content).partition(b"\\u0000")
    between, _, after = rest.rpartition(mark)
    return before, between, after


# Device: reports into envelopes.


def seal(question: str, reports: Reports, source: Source | None = None) -> list[bytes]:
    """Return one envelope for each report, ready to be sent.

    Args:
        question: the id of the question.
        reports: a result of `perturb`.
        source: the source of ids; default the operating system. A seeded one marks the envelopes, as seeded
            reports do.

    Privacy: an envelope reveals the question, the level, and participation; about the answer it reveals the report and
        nothing more. Its id is random, so that it does not link two answers of one person.
    """
    drawn_from = source or SYSTEM
    private = reports.private and drawn_from.private
    before, between, after = text_of(check_question(question), reports.mechanism.describe(), private)
    ids = drawn_from.bytes(ID_BYTES * len(reports))
    return [
        b"".join((before, pack(ids[start : start + ID_BYTES]).encode(), between, pack(row.tobytes()).encode(), after))
        for start, row in zip(range(0, len(ids), ID_BYTES), encode(reports), strict=True)
    ]
