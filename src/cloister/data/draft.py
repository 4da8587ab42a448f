"""Draft a schema.yaml: from names and declared types for any user, from values for the owner only."""

import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from cloister.data.dialect import Family, dialect_of, family
from cloister.data.engines.engine import Engine
from cloister.data.roles import role_of
from cloister.data.schema import Column, Table, Type
from cloister.data.schema_file import CONFIRM, FILL_IN, plain, to_yaml
from cloister.data.tables import open_engine
from cloister.data.views import read, view

__all__ = ["draft", "draft_as_owner"]

_TYPE: dict[str, Type] = {
    "integer": "integer", "wide": "real", "float": "real", "text": "text", "uuid": "text", "boolean": "boolean",
    "date": "date", "timestamp": "timestamp", "zoned": "timestamp",
}  # fmt: skip
_IN_TEXT: tuple[Type, ...] = ("integer", "real", "date", "timestamp")  # tried in this order on columns of text
_FEW = 50
_NEARLY_ALL = 0.95  # share of distinct values from which text is proposed as an identifier
_ENOUGH = 20  # values, below which such a share says nothing


def draft(source: object) -> str:
    """Return a schema with blanks, from the names and declared types of a file or address.

    Roles and tags are proposed by name. A column that no rule knows has none.

    Privacy: reads no value. Columns of a CSV file are text until the schema states another type.
    """
    return _drafted(source, "# Drafted from names and declared types; no value was read.\n", _blank)


def draft_as_owner(source: object) -> str:
    """Return a schema with bounds, categories and `nullable: false` suggested by the values, each marked `confirm`.

    Text with nearly as many distinct values as rows is proposed as an identifier, with a mark too. No value of a column
    that is proposed as an identifier is shown.

    Privacy: for the owner only. Its output comes from the rows, and is public only once the owner confirms it:
    `cloister schema check` refuses the schema until every mark is removed.
    """
    return _drafted(source, "# Drafted from VALUES: secret until you have confirmed each bound and category.\n", _seen)


def _drafted(source: object, first_line: str, column: Any) -> str:
    engine = open_engine(source)
    try:
        tables = {name: {"unit": FILL_IN, "columns": _columns(engine, name, column)} for name in engine.tables()}
        left_out = [f"# Left out: {line}\n" for name in engine.tables() for line in _left_out(engine, name)]
    finally:
        engine.close()
    help_text = (
        f"# Replace or remove every '{FILL_IN}'. unit: row, or {{name: patient, max_rows: 8}}; in a table, unit: the\n"
        "# column that names a patient (and remove it from columns), or instead public: true.\n"
        "# Roles and tags are proposals by name: correct them. A column with role: identifier is used by no query.\n"
    )
    return first_line + help_text + "".join(left_out) + to_yaml({"unit": FILL_IN, "tables": tables})


def _families(engine: Engine, table: str) -> Iterator[tuple[str, str, Family | None]]:
    say = dialect_of(engine.dialect)
    for name, declared in engine.columns(table).items():
        yield name, declared, family(declared, say)


def _columns(engine: Engine, table: str, column: Any) -> dict[str, Any]:
    return {
        name: column(engine, table, name, column_family)
        for name, _, column_family in _families(engine, table)
        if column_family is not None
    }


def _left_out(engine: Engine, table: str) -> Iterator[str]:
    for name, declared, column_family in _families(engine, table):
        if column_family is None:
            yield f"{table}.{name}, since {declared[:60]} is no type that can be read."


def _blank(engine: Engine, table: str, name: str, family: Family) -> dict[str, Any]:
    kind = _TYPE[family]
    proposed = _proposed(name, kind)
    if kind == "boolean" or _is_identifier(proposed):
        return {"type": kind, **proposed}
    return {"type": kind, "categories" if kind == "text" else "bounds": FILL_IN, **proposed}


def _proposed(name: str, kind: Type) -> dict[str, Any]:
    """Return the role and tags that the name suggests, as words of a schema; none if no rule knows it."""
    proposal = role_of(name, kind)
    if proposal.rule is None:
        return {}
    return {"role": proposal.role, **({"tags": list(proposal.tags)} if proposal.tags else {})}


def _is_identifier(words: Mapping[str, Any]) -> bool:
    return words.get("role") == "identifier"


def _seen(engine: Engine, table: str, name: str, family: Family) -> dict[str, Any]:
    kind = _kind_of_text(engine, table, name) if family == "text" else _TYPE[family]
    proposed = _proposed(name, kind)
    if _is_identifier(proposed):
        return {"type": kind, **proposed}
    x, rows = _column_of(engine, table, name, kind, family)
    every, present, distinct = _one_row(
        engine, f"SELECT COUNT(*) AS a, COUNT({x}) AS b, COUNT(DISTINCT {x}) AS c {rows}"
    )
    if kind == "text" and not proposed and present >= _ENOUGH and distinct >= _NEARLY_ALL * present:
        return {"type": kind, "role": "identifier", "confirm": CONFIRM}
    facts = _values(engine, table, name, kind, family)
    mark = facts.pop("confirm", None)
    if 0 < every == present:
        # That no value is missing was observed in the rows, like bounds, so it must be confirmed too.
        facts, mark = {**facts, "nullable": False}, CONFIRM
    return {**facts, **proposed, **({} if mark is None else {"confirm": mark})}


def _values(engine: Engine, table: str, name: str, kind: Type, family: Family) -> dict[str, Any]:
    """Return the type of a column, and the bounds or categories that its values suggest."""
    if kind == "boolean":
        return {"type": kind}
    x, rows = _column_of(engine, table, name, kind, family)
    if kind == "text":
        found_values = engine.run(f"SELECT DISTINCT {x} AS x {rows} LIMIT {_FEW + 2}").column("x").to_pylist()
        values = sorted(value for value in found_values if value is not None)
        return {"type": kind, "categories": values, "confirm": CONFIRM} if 0 < len(values) <= _FEW else {"type": kind}
    # Infinities, and numbers that stand for them, would make the bounds useless.
    usual = f" WHERE ABS({x}) < {10**18}" if kind in ("integer", "real") else ""
    low, high = _one_row(engine, f"SELECT MIN({x}) AS a, MAX({x}) AS b {rows}{usual}")
    if low is None:
        return {"type": kind, "bounds": FILL_IN}
    return {"type": kind, "bounds": plain(_outward(low, high)), "confirm": CONFIRM}


def _column_of(engine: Engine, table: str, name: str, kind: Type, family: Family) -> tuple[str, str]:
    """Return a column read as a type: its quoted name, and its FROM clause."""
    alone = Table(table, {name: Column(name, kind)})
    sql = view(alone, {name: family}, engine.place(table), engine.dialect).sql(engine.dialect)
    say = dialect_of(engine.dialect)
    return say.name(name), f"FROM ({sql}) AS {say.name(table)}"


def _kind_of_text(engine: Engine, table: str, name: str) -> Type:
    """Return the first type as which every value of a text column can be read."""
    say, source = dialect_of(engine.dialect), engine.place(table)
    counts = [f"COUNT({read(kind, 'text', name, say)}) AS {kind}s" for kind in ("text", *_IN_TEXT)]
    condition = f"{say.name(name)} IS NOT NULL AND NOT {say.is_like(say.trimmed(say.name(name)), '[nN][aA][nN]')}"
    total, *parsed = _one_row(engine, f"SELECT {', '.join(counts)} FROM {source} WHERE {condition}")  # noqa: S608
    return next((kind for kind, count in zip(_IN_TEXT, parsed, strict=True) if count == total > 0), "text")


def _one_row(engine: Engine, sql: str) -> list[Any]:
    return list(engine.run(sql).to_pylist()[0].values())


def _outward(low: Any, high: Any) -> tuple[Any, Any]:
    """Round bounds that came from values: numbers to one digit of the larger, dates to whole years."""
    if isinstance(low, datetime):
        return datetime(low.year, 1, 1), datetime(high.year, 12, 31, 23, 59, 59)
    if isinstance(low, date):
        return date(low.year, 1, 1), date(high.year, 12, 31)
    largest = max(abs(low), abs(high))
    step = Decimal(10) ** (math.floor(math.log10(largest)) if largest else 0)
    ends = math.floor(Decimal(low) / step) * step, math.ceil(Decimal(high) / step) * step
    lower, upper = ends if ends[0] < ends[1] else (ends[0], ends[0] + step)
    return (int(lower), int(upper)) if isinstance(low, int) else (float(lower), float(upper))
