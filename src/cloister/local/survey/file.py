"""A collection on disk: counts and ids, no report. Written atomically."""

import base64
import json
import os
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from cloister.local.base.counts import Counts
from cloister.local.survey.collection import Collection
from cloister.local.survey.envelope import ID_BYTES, VERSION
from cloister.local.survey.envelope_reader import Refusal
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadSource

__all__ = ["load", "save"]

_KINDS = {"<i8", "<u8", "<f8", "<i4", "<u4"}


def save(collection: Collection, path: Path | str) -> None:
    """Write questions, counts, refusals and the ids of counted reports; the ids are sorted, so no order is kept."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.write_text(json.dumps(_content(collection), indent=1) + "\n", encoding="utf-8")
    beside.replace(target)


def load(path: Path | str) -> Collection:
    """Read a collection that `save` wrote.

    Raises:
        BadSource: it is no such file, or says something that `save` does not write.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError
        collection = Collection(Question.read(facts) for facts in content["questions"])
        for name, levels in content["counts"].items():
            for level, facts in levels.items():
                collection._counts[name, level] = _counts(collection._counts[name, level], facts)
        collection.refused.update({reason: int(count) for reason, count in content["refused"].items()})
        ids = base64.b64decode(content["ids"], validate=True)
        collection._ids = {ids[start : start + ID_BYTES] for start in range(0, len(ids), ID_BYTES)}
        collection._stored = int(content.get("stored", 0))
        as_written = _plain(_content(collection)) == _plain(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise BadSource(f"{path} is no file of counts. Write one with `cloister local collect`.") from None
    counts = list(collection._counts.values())
    numbers = [collection._stored, *collection.refused.values()]
    numbers += [number for counted in counts for number in (counted.n, counted.refused)]
    if not as_written or min(numbers) < 0 or not set(collection.refused) <= set(get_args(Refusal)):
        raise BadSource(f"{path} is not as it was written. Restore it.")
    if len(ids) % ID_BYTES or collection.n != sum(counted.n for counted in counts):
        raise BadSource(f"{path} has as many ids as reports no longer: it was changed. Restore it.")
    return collection


def _content(collection: Collection) -> dict[str, Any]:
    counted = {name: collection.counts(name) for name in collection.questions}
    content = {
        "version": VERSION,
        "questions": [question.describe() for question in collection.questions.values()],
        "counts": {
            name: {level: _told(counts) for level, counts in levels.items()} for name, levels in counted.items()
        },
        "refused": dict(sorted(collection.refused.items())),
        "ids": _text(b"".join(sorted(collection._ids))),
    }
    if collection._stored:  # counted from a store, without ids
        content["stored"] = collection._stored
    return content


def _plain(content: Any) -> str:
    """Return the text of a file's content in one spelling; True is not 1 there."""
    return json.dumps(content, sort_keys=True)


def _told(counts: Counts) -> dict[str, Any]:
    facts = {"n": counts.n, "refused": counts.refused, "private": counts.private}
    if counts.table.dtype == object:  # sums that may outgrow 64 bits
        return {**facts, "kind": "integers", "shape": list(counts.table.shape), "table": counts.table.ravel().tolist()}
    table = np.ascontiguousarray(counts.table, dtype=counts.table.dtype.newbyteorder("<"))
    assert table.dtype.str in _KINDS
    return {**facts, "kind": table.dtype.str, "shape": list(table.shape), "table": _text(table.tobytes())}


def _counts(empty: Counts, facts: dict[str, Any]) -> Counts:
    data: NDArray[Any]
    if facts["kind"] == "integers":
        data = np.array([int(number) for number in facts["table"]], dtype=object)
    elif facts["kind"] in _KINDS:
        data = np.frombuffer(base64.b64decode(facts["table"], validate=True), dtype=facts["kind"])
    else:
        raise ValueError
    table = data.reshape(facts["shape"]).astype(empty.table.dtype)
    if not empty.kept and table.shape != empty.table.shape:
        raise ValueError
    n, refused = int(facts["n"]), int(facts["refused"])
    return Counts(empty.mechanism, table, n, refused, facts["private"] is True, empty.kept)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
