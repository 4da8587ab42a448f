"""Read a request for a release from text: models, hierarchies, shares and roles, as a command or a form writes them.

    parse_models("k=5, l=3, t=0.2 (disease, ordered)", ["disease"])
    parse_hierarchy("intervals:0,100,5,10")
    parse_share("5 %")

Models are written as labels print them, so a label can be read back:

    k=5                     l=3 (disease)             frequency l=3 (disease)    entropy l=3 (disease)
    recursive (2, 3)        t=0.2 (disease, kl)       alpha=0.5, k=5 (disease)   beta=1 (disease), basic beta=1
    k-map=5                 delta-presence=0..0.5     joint l=2 (disease; income)

A model of a sensitive column without the column's name holds for every sensitive column.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cloister.anonymize import models
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import (
    AlphaK,
    BetaLikeness,
    DeltaPresence,
    DistinctDiversity,
    EntropyDiversity,
    FrequencyDiversity,
    JointDiversity,
    KAnonymity,
    KMap,
    Model,
    RecursiveDiversity,
    TCloseness,
)
from cloister.privacy.errors import BadInput

__all__ = ["METHODS", "models_of", "parse_hierarchy", "parse_models", "parse_named", "parse_share", "parse_weights"]

METHODS = {
    "recode": "global recoding: every value of a column at the same level of its hierarchy, the proven optimum",
    "mondrian": "Mondrian: classes of different sizes, as intervals and sets; needs no hierarchies",
    "cluster": "clusters of similar rows, as intervals and sets; keeps most, takes longest",
    "top_down": "top-down specialisation: a cut through each hierarchy",
    "suppress_cells": "local suppression: as few cells as possible become *",
}
"""Ways to make a release; each is a function of this room with that name."""

_FORMS = (
    "Write models as labels do: k=5, l=3 (disease), frequency l=3, entropy l=3, recursive (2, 3), t=0.2 (disease, "
    "ordered), alpha=0.5, k=5 (disease), beta=1, basic beta=1, joint l=2 (disease; income), k-map=5, "
    "delta-presence=0..0.5."
)
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_DISTANCES = ("equal", "ordered", "hierarchical", "total variation", "kl")
_NOT_PRIVATE = ": not differentially private"
_MOST_TEXT = 10_000

# The pattern of each model up to its column, and what makes it: of the numbers alone, or of the numbers and a column.
_Make = Callable[..., Model]
_ALONE: tuple[tuple[str, _Make], ...] = (
    (rf"k-map\s*=\s*{_NUMBER}", lambda k: KMap(_whole("k of k-map", k))),
    (rf"delta-presence\s*=\s*{_NUMBER}\s*\.\.\s*{_NUMBER}", lambda low, high: DeltaPresence(float(low), float(high))),
    (rf"k\s*=\s*{_NUMBER}(?!\s*\()", lambda k: KAnonymity(_whole("k", k))),
)
_OF_COLUMN: tuple[tuple[str, _Make], ...] = (
    (rf"frequency\s+l\s*=\s*{_NUMBER}", lambda column, l: FrequencyDiversity(float(l), column)),  # noqa: E741
    (rf"entropy\s+l\s*=\s*{_NUMBER}", lambda column, l: EntropyDiversity(float(l), column)),  # noqa: E741
    (
        rf"recursive\s*\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)",
        lambda column, c, l: RecursiveDiversity(float(c), _whole("l", l), column),  # noqa: E741
    ),
    (
        rf"alpha\s*=\s*{_NUMBER}\s*,\s*k\s*=\s*{_NUMBER}",
        lambda column, alpha, k: AlphaK(float(alpha), _whole("k", k), column),
    ),
    (rf"basic\s+beta\s*=\s*{_NUMBER}", lambda column, beta: BetaLikeness(float(beta), column, enhanced=False)),
    (rf"beta\s*=\s*{_NUMBER}", lambda column, beta: BetaLikeness(float(beta), column)),
    (rf"l\s*=\s*{_NUMBER}", lambda column, l: DistinctDiversity(_whole("l", l), column)),  # noqa: E741
)
_CLOSE = rf"t\s*=\s*{_NUMBER}"
_JOINT = rf"joint\s+l\s*=\s*{_NUMBER}\s*(?:\(([^()]*)\))?"
_ELSEWHERE = (
    (r"k\s*\^\s*m", "k^m is about sets of items, not about the rows of a table: anonymise_sets makes such sets."),
    (r"m\s*=", "m-invariance is about several releases of the same people: republish makes them, with their ids."),
)


def parse_models(
    text: str, sensitive: Sequence[str] = (), hierarchies: Mapping[str, Hierarchy] | None = None
) -> tuple[Model, ...]:
    """Read the models of a requirement from text in the form of a label.

    Args:
        text: models separated by commas; `: not differentially private` at the end is ignored.
        sensitive: the sensitive columns. A model that names no column holds for each of them.
        hierarchies: of sensitive columns, for t-closeness with the hierarchical distance.

    Raises:
        BadInput: the text is no list of models, or a model needs a column or a hierarchy that is not given.

    >>> from cloister.anonymize.models import Requirement
    >>> Requirement(parse_models("k=5, entropy l=3, t=0.2 (disease, ordered)", ["disease"])).label
    'k=5, entropy l=3 (disease), t=0.2 (disease, ordered): not differentially private'
    """
    rest = text.strip().removesuffix(_NOT_PRIVATE).strip()
    if not rest or len(rest) > _MOST_TEXT:
        raise BadInput(f"say what the release must satisfy. {_FORMS}")
    parsed: list[Model] = []
    while rest:
        several, rest = _next(rest, sensitive, hierarchies or {})
        parsed += several
        rest = rest.lstrip()
        if rest and rest[0] not in ",;":
            raise _unread(rest)
        if rest and not (rest := rest[1:].lstrip()):
            raise BadInput(f"a model is missing after the last comma. {_FORMS}")
    doubled = [model.label for place, model in enumerate(parsed) if model in parsed[:place]]
    if doubled:
        raise BadInput(f"{doubled[0]} is required twice. Write it once.")
    return tuple(parsed)


def _next(rest: str, sensitive: Sequence[str], hierarchies: Mapping[str, Hierarchy]) -> tuple[list[Model], str]:
    """Return the first model of a text, once for each column that it is for, and the text behind it."""
    if match := re.match(_CLOSE, rest, re.IGNORECASE):
        columns, distance, rest = _column(rest[match.end() :], sensitive, match[0], distances=True)
        return [_close(float(match[1]), column, distance, hierarchies) for column in columns], rest
    for pattern, make in _OF_COLUMN:
        if match := re.match(pattern, rest, re.IGNORECASE):
            columns, _, rest = _column(rest[match.end() :], sensitive, match[0])
            return [make(column, *match.groups()) for column in columns], rest
    for pattern, make in _ALONE:
        if match := re.match(pattern, rest, re.IGNORECASE):
            return [make(*match.groups())], rest[match.end() :]
    if match := re.match(_JOINT, rest, re.IGNORECASE):
        among = tuple(name.strip() for name in (match[2] or ";".join(sensitive)).split(";"))
        return [JointDiversity(_whole("l", match[1]), among)], rest[match.end() :]
    for pattern, reason in _ELSEWHERE:
        if re.match(pattern, rest, re.IGNORECASE):
            raise BadInput(reason)
    if re.match("alpha", rest, re.IGNORECASE):
        raise BadInput("alpha is read together with its k: alpha=0.5, k=5 (disease).")
    raise _unread(rest)


def _unread(rest: str) -> BadInput:
    return BadInput(f"{rest!r:.60} cannot be read as a model. {_FORMS}")


def _column(
    rest: str, sensitive: Sequence[str], model: str, *, distances: bool = False
) -> tuple[Sequence[str], str, str]:
    """Return the columns that a model is for, the distance if one is named, and the text behind them."""
    opening = re.match(r"\s*\(", rest)
    if opening is None:
        if not sensitive:
            raise BadInput(
                f"{model} is about a sensitive column: name it, {model} (disease), or give sensitive columns."
            )
        return sensitive, "equal", rest
    inner = rest[opening.end() :]
    endings = ["", *(f", {name}" for name in _DISTANCES)] if distances else [""]
    for name in sorted(sensitive, key=len, reverse=True):  # known names may hold commas and parentheses
        for ending in endings:
            if re.match(rf"{re.escape(name + ending)}\)\s*(?:[,;]|$)", inner):
                return [name], ending[2:] or "equal", inner[len(name + ending) + 1 :]
    depth, end = 1, 0
    while end < len(inner) and depth:
        depth += {"(": 1, ")": -1}.get(inner[end], 0)
        end += 1
    if depth:
        raise BadInput(f"the column of {model} is not closed by a parenthesis: {model} (disease).")
    name, distance = inner[: end - 1].strip(), "equal"
    if distances and name.rpartition(",")[2].strip() in _DISTANCES and "," in name:
        name, distance = (part.strip() for part in name.rsplit(",", 1))
    if not name or (sensitive and name not in sensitive):
        raise BadInput(f"{name or 'no name'} is no sensitive column. Sensitive columns are: {', '.join(sensitive)}.")
    return [name], distance, inner[end:]


def _close(t: float, column: str, distance: str, hierarchies: Mapping[str, Hierarchy]) -> TCloseness:
    if distance != "hierarchical":
        return TCloseness(t, column, distance)  # type: ignore[arg-type]
    if column not in hierarchies:
        raise BadInput(f"the hierarchical distance needs a hierarchy of {column}, such as {column}=FILE.")
    return TCloseness(t, column, "hierarchical", hierarchies[column])


def _whole(name: str, text: str) -> int:
    number = float(text)
    if not number.is_integer() or number > 2**53:
        raise BadInput(f"{name} must be a whole number, not {text:.40}.")
    return int(number)


def models_of(described: Sequence[Mapping[str, Any]]) -> tuple[Model, ...]:
    """Return the models that `Requirement.describe` lists, as a file beside a release holds them.

    Raises:
        BadInput: an entry is no model of this room.

    >>> models_of([{"model": "KAnonymity", "k": 5}])
    (KAnonymity(k=5),)
    """
    kinds = {kind.__name__: kind for kind in Model.__subclasses__() if kind.__module__ == models.__name__}
    made = []
    for entry in described:
        kind = kinds.get(str(entry.get("model"))) if isinstance(entry, Mapping) else None
        if kind is None:
            raise BadInput(f"{entry!s:.60} is no model. Models are: {', '.join(kinds)}.")
        names = {item.name for item in fields(kind)}  # type: ignore[arg-type]
        given = {name: value for name, value in entry.items() if name in names and value is not None}
        try:
            if "hierarchy" in given:
                given["hierarchy"] = Hierarchy.table(given["hierarchy"])
            for name in {"values", "among"} & set(given):
                given[name] = tuple(given[name])
        except (AttributeError, TypeError):
            raise BadInput(f"a hierarchy or the values of {kind.__name__} cannot be read.") from None
        optional = {"distance", "hierarchy", "values", "enhanced"}
        if names - optional - set(given):
            raise BadInput(f"the model {kind.__name__} lacks {sorted(names - optional - set(given))[0]}.")
        made.append(kind(**given))
    return tuple(made)


def parse_hierarchy(text: str, folder: Path | None = None) -> Hierarchy:
    """Read a hierarchy: a file in ARX's format, or one made from public facts.

    Args:
        text: `FILE.csv`, `masking:5`, `intervals:0,100,5,10` (bounds, then widths), `dates`, `dates:month,year` or
            `flat`.
        folder: where the file is looked for; the current one unless given.

    >>> parse_hierarchy("masking:5").levels[1]("33617")
    '336**'
    >>> parse_hierarchy("intervals:0,100,5,10").kind
    'intervals of 5, 10'
    """
    kind, _, rest = text.strip().partition(":")
    words = [word.strip() for word in rest.split(",") if word.strip()]
    try:
        if kind == "masking" and len(words) == 1:
            return Hierarchy.masking(int(words[0]))
        if kind == "intervals" and len(words) > 2:
            low, high, *widths = map(float, words)
            return Hierarchy.intervals(low, high, widths)
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        kind = ""
    if kind == "dates":
        return Hierarchy.dates(*words)
    if kind == "flat" and not words:
        return Hierarchy.flat()
    path = (folder or Path()) / text.strip()
    if kind in ("masking", "intervals", "flat", "") or not path.is_file():
        raise BadInput(
            f"{text!r:.80} is no hierarchy. Give a file (value;level 1;…;*), masking:5, intervals:0,100,5,10, dates, "
            "dates:month,year or flat."
        )
    return Hierarchy.read_csv(path)


def parse_named(texts: Sequence[str], what: str, example: str) -> dict[str, str]:
    """Read entries of the form COLUMN=TEXT, each column once.

    >>> parse_named(["zip=masking:5"], "hierarchy", "zip=masking:5")
    {'zip': 'masking:5'}
    """
    entries: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not (equals and name.strip() and rest.strip()) or name.strip() in entries:
            raise BadInput(f"{text!r:.60} is no {what} of a column. Write {example}, and every column once.")
        entries[name.strip()] = rest.strip()
    return entries


def parse_share(text: str, *, whole: bool = False) -> float:
    """Read a share of rows: 5%, 5 % or 0.05. With `whole` it is above 0 and at most 1, else at least 0 and below 1.

    >>> parse_share("5 %"), parse_share("0.05")
    (0.05, 0.05)
    """
    plain = text.strip()
    number = plain.removesuffix("%").strip()
    if not re.fullmatch(r"\d+(\.\d+)?", number):
        raise BadInput(f"{text!r:.40} is no share. Write 5% or 0.05.")
    share = float(number) / 100 if plain.endswith("%") else float(number)
    if whole and not 0 < share <= 1:
        raise BadInput(f"this share is above 0 and at most 1, got {text:.40}. Write 5% or 0.05.")
    if not whole and not 0 <= share < 1:
        raise BadInput(f"a share is at least 0 and below 1, got {text:.40}. Write 5% or 0.05.")
    return share


def parse_weights(texts: Sequence[str]) -> dict[str, float]:
    """Read the importance of columns.

    >>> parse_weights(["age=2", "zip=0.5"])
    {'age': 2.0, 'zip': 0.5}
    """
    try:
        return {name: float(text) for name, text in parse_named(texts, "weight", "age=2").items()}
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput("a weight is a number, such as age=2.") from None
