"""Read and write schema.yaml. Unknown and repeated keys are problems."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

import yaml

from cloister.data import strict_yaml
from cloister.data.schema import Bound, Column, ForeignKey, Schema, Table, glimpse
from cloister.data.strict_yaml import YamlProblem, YamlValue
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.loss import ROW, Unit
from cloister.privacy.number import rational

__all__ = ["CONFIRM", "FILL_IN", "MAX_BYTES", "plain", "read", "to_yaml", "written"]

CONFIRM = "confirm that this is public"
FILL_IN = "fill in"
MAX_BYTES = 200_000  # of YAML, unless the caller allows more
_MOST_DIGITS = 30
_WHOLE = re.compile("[-+]?(0|[1-9][0-9_]*)")
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "float", "timestamp")}
_RESOLVER: Any
_CONSTRUCTOR: Any
_RESOLVER, _CONSTRUCTOR = yaml.resolver.Resolver(), yaml.constructor.SafeConstructor()
_PROBLEMS = {
    "syntax": "the schema is not YAML{place}. See `cloister schema draft` for the form.",
    "alias": "the schema has an alias (*). Write out what it stands for.",
    "depth": "the schema is nested too deeply.",
    "documents": "the schema is followed by another document (---). Keep one of them.",
}

_WORDS = {
    "schema": ("unit", "tables", "foreign_keys"),
    "unit": ("name", "max_rows"),
    "table": ("unit", "public", "rows", "max_rows", "columns", "never", "determines"),
    "column": ("type", "bounds", "categories", "nullable", "role", "tags", "hierarchy", "confirm"),
}


def read(
    source: str | Mapping[str, Any], unit: Unit | None = None, max_bytes: int | None = MAX_BYTES
) -> tuple[Schema, list[str]]:
    """Return the schema and the problems of its form; `Schema.problems` reports those of its content."""
    raw = _parsed(source, max_bytes) if isinstance(source, str) else source
    problems: list[str] = []
    words = _words("schema", "schema", raw, problems)
    protects = _unit(words.get("unit"), unit, problems)
    tables = {
        str(name): _table(str(name), entry, problems)
        for name, entry in _mapping("tables", words.get("tables"), problems).items()
    }
    keys = words.get("foreign_keys") or []
    if not isinstance(keys, list | tuple):
        problems.append("foreign_keys: write a list such as [visits.ward -> wards.ward]")
        keys = []
    return Schema(tables, protects, tuple(_foreign_keys(keys, problems))), problems


def written(schema: Schema) -> str:
    """Return the schema as YAML."""
    unit: Any = "row" if schema.unit == ROW else {"name": schema.unit.name, "max_rows": schema.unit.max_rows}
    raw: dict[str, Any] = {"unit": unit, "tables": {name: _plain_table(table) for name, table in schema.tables.items()}}
    if schema.foreign_keys:
        raw["foreign_keys"] = [str(key) for key in schema.foreign_keys]
    return to_yaml(raw)


def to_yaml(raw: Mapping[str, Any]) -> str:
    """Return plain values as YAML in our layout."""
    return str(yaml.safe_dump(raw, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110))


def plain(bounds: tuple[Bound, Bound]) -> list[Any]:
    """Return bounds as plain YAML values: timestamps as text."""
    return [bound.isoformat(" ") if isinstance(bound, datetime) else bound for bound in bounds]


def _parsed(text: str, max_bytes: int | None) -> Any:
    """Parse YAML into plain values: text, numbers, dates, lists and mappings."""
    size = len(text.encode("utf-8", "replace"))
    if max_bytes is not None and size > max_bytes:
        raise BadSchema(
            f"the schema has {size:,} bytes, and at most {max_bytes:,} are read. Shorten it, or raise max_bytes."
        )
    try:
        document = strict_yaml.parse(text)
    except YamlProblem as problem:
        raise BadSchema(_PROBLEMS[problem.kind].format(place=problem.place)) from None
    return None if document is None else _value(document)


def _value(node: YamlValue) -> Any:
    if node.tag is not None:
        raise BadSchema(f"the schema has a tag (!) in line {node.line}. Write the value without it.")
    if node.kind == "text":
        return _scalar(node.value, node.line) if node.plain else node.value
    if node.kind == "list":
        return [_value(child) for child in node.value]
    mapping: dict[str, Any] = {}
    for key, value in node.value:
        if key.kind != "text":
            raise BadSchema(f"the schema has a name in line {key.line} that is not a word.")
        if key.value in mapping:  # YAML itself would silently keep the last
            raise BadSchema(f"the schema says twice: {key.value} (line {key.line}). Keep one of each.")
        mapping[key.value] = _value(value)
    return mapping


def _scalar(text: str, line: int) -> Any:
    """Parse an unquoted scalar: a number, a date or timestamp, true, false, null, or text."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    if tag == "tag:yaml.org,2002:int":
        if not _WHOLE.fullmatch(text):  # 0x10, 010 and 1:30 are numbers to some readers of YAML and text to others
            return text
        if len(text) > _MOST_DIGITS:
            raise BadSchema(f"the schema has a number of more than {_MOST_DIGITS} digits in line {line}. Shorten it.")
        return int(text)
    if tag not in _TAGS or (":" in text and tag.endswith("float")):
        return text
    try:
        return _CONSTRUCTOR.yaml_constructors[tag](_CONSTRUCTOR, yaml.ScalarNode(tag, text))
    except (yaml.YAMLError, ValueError, OverflowError):  # such as 2026-02-31
        raise BadSchema(_PROBLEMS["syntax"].format(place="")) from None


def _mapping(label: str, raw: Any, problems: list[str]) -> Mapping[Any, Any]:
    if isinstance(raw, Mapping):
        return raw
    problems.append(f"{label}: needs names with something under each")
    return {}


def _words(kind: str, label: str, raw: Any, problems: list[str]) -> Mapping[Any, Any]:
    """Return the keys and values of a part of the schema; every key must be known and every value present."""
    words = _mapping(label, raw, problems)
    for word, value in words.items():
        if word not in _WORDS[kind]:
            problems.append(f"{label}: the word {glimpse(word)} is unknown. Words here are {', '.join(_WORDS[kind])}")
        elif kind != "schema" and (value == FILL_IN or (isinstance(value, list | tuple) and FILL_IN in value)):
            problems.append(f"{label}: fill in {word}, or remove it")
    return {word: value for word, value in words.items() if value != FILL_IN}


def _unit(raw: Any, expected: Unit | None, problems: list[str]) -> Unit:
    stated = expected
    if raw == "row":
        stated = ROW
    elif raw is not None:
        words = _words("unit", "unit", raw, problems)
        try:
            stated = Unit(words.get("name", ""), words.get("max_rows", 1))
        except BadInput as error:
            problems.append(f"unit: {str(error).rstrip('.')}")
    elif expected is None:
        problems.append("unit: say whom to protect: row, or {name: patient, max_rows: 8}")
    if expected is not None and stated != expected:
        problems.append(f"unit: the schema protects {stated}, but {expected} was asked for. Make them agree")
    return stated or Unit("person")  # a placeholder: its absence is already among the problems


def _table(name: str, raw: Any, problems: list[str]) -> Table:
    words = _words("table", name, raw, problems)
    public = _truth(f"{name}: public", words.get("public", False), problems)
    columns = {
        str(column): _column(name, str(column), entry, problems)
        for column, entry in _mapping(f"{name}: columns", words.get("columns"), problems).items()
    }
    unit = words.get("unit")
    named = None if unit is None else str(unit)
    rules = _never(name, words.get("never") or [], problems), _determines(name, words.get("determines") or [], problems)
    return Table(name, columns, named, words.get("max_rows"), public, words.get("rows"), *rules)


def _never(table: str, raw: Any, problems: list[str]) -> tuple[dict[str, Any], ...]:
    if isinstance(raw, list | tuple) and all(isinstance(combination, Mapping) for combination in raw):
        return tuple({str(name): wanted for name, wanted in combination.items()} for combination in raw)
    problems.append(f"{table}: never is a list of combinations such as {{ward: maternity, age: {{from: 70}}}}")
    return ()


def _determines(table: str, raw: Any, problems: list[str]) -> tuple[tuple[tuple[str, ...], str], ...]:
    """Parse `ward -> building`, or 'ward, floor -> nurse', which YAML needs in quotes."""
    rules = []
    for text in raw if isinstance(raw, list | tuple) else [raw]:
        left, arrow, right = str(text).partition("->")
        names = tuple(name.strip() for name in left.split(","))
        if not arrow or not all(names) or not right.strip():
            problems.append(f"{table}: determines is a list such as [ward -> building, 'ward, floor -> nurse']")
            return ()
        rules.append((names, right.strip()))
    return tuple(rules)


def _column(table: str, name: str, raw: Any, problems: list[str]) -> Column:
    label = f"{table}.{name}"
    words = _words("column", label, raw, problems)
    kind, bounds, categories = words.get("type", "(none)"), words.get("bounds"), words.get("categories")
    if isinstance(bounds, list | tuple):
        bounds = tuple(_bound(kind, bound) for bound in bounds)
    if isinstance(categories, list | tuple):
        categories = tuple(categories)
    nullable = _truth(f"{label}: nullable", words.get("nullable", True), problems)
    confirmed = words.get("confirm", "confirmed") == "confirmed"
    tags = words.get("tags")
    tags = tuple(tags or ()) if tags is None or isinstance(tags, list | tuple) else tags
    return Column(name, kind, bounds, categories, nullable, confirmed, words.get("role"), tags, words.get("hierarchy"))


def _bound(kind: object, raw: Any) -> Bound:
    """Return a bound in the Python type of the column; an unreadable one is unchanged, for the schema to report."""
    try:
        if kind == "integer" and (number := rational(raw)).denominator == 1:
            return int(number)
        if kind == "real":
            return float(rational(raw))
        if kind == "date" and isinstance(raw, str):
            return date.fromisoformat(raw)
        if kind == "timestamp":
            moment = datetime.fromisoformat(raw if isinstance(raw, str) else raw.isoformat())
            return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (BadInput, ValueError, OverflowError, AttributeError):
        pass
    return raw  # type: ignore[no-any-return]


def _truth(label: str, raw: Any, problems: list[str]) -> bool:
    if not isinstance(raw, bool):
        problems.append(f"{label}: write true or false")
    return raw is True


def _foreign_keys(raw: Any, problems: list[str]) -> Iterator[ForeignKey]:
    for text in raw:
        ends = [part.strip().partition(".") for part in str(text).split("->")]
        if len(ends) == 2 and all(table and column for table, _, column in ends):
            yield ForeignKey(ends[0][0], ends[0][2], ends[1][0], ends[1][2])
        else:
            problems.append(f"foreign_keys: write {glimpse(text)} like visits.ward -> wards.ward")


def _plain_table(table: Table) -> dict[str, Any]:
    words = {"unit": table.unit, "public": table.public or None, "rows": table.rows, "max_rows": table.max_rows}
    stated: dict[str, Any] = {word: value for word, value in words.items() if value is not None}
    rules: dict[str, Any] = {
        "never": [dict(rule) for rule in table.never],
        "determines": [f"{', '.join(left)} -> {right}" for left, right in table.determines],
    }
    stated |= {word: listed for word, listed in rules.items() if listed}
    return stated | {"columns": {name: _plain_column(column) for name, column in table.listed.items()}}


def _plain_column(column: Column) -> dict[str, Any]:
    words = {
        "type": column.type,
        "bounds": None if column.bounds is None else plain(column.bounds),
        "categories": None if column.categories is None else list(column.categories),
        "nullable": None if column.nullable else False,
        "role": column.role,
        "tags": list(column.tags) or None,
        "hierarchy": column.hierarchy,
        "confirm": None if column.confirmed else CONFIRM,
    }
    return {word: value for word, value in words.items() if value is not None}
