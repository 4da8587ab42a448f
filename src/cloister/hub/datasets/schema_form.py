"""Schema as a form: one row per column, all fields as text, so that invalid input can be shown again.

SchemaForm.of_text(yaml)  ──►  page  ──►  SchemaForm.of_fields(sent)  ──►  .text()  ──►  Schema.parse
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cloister.data.schema import TYPES, Column, Schema, Table
from cloister.data.schema_file import CONFIRM, plain, read, to_yaml
from cloister.privacy.loss import ROW

__all__ = ["ColumnForm", "SchemaForm", "TableForm"]

_MOST = 2000


@dataclass(slots=True)
class ColumnForm:
    """Fields of a column."""

    name: str
    type: str = "text"
    low: str = ""
    high: str = ""
    categories: str = ""  # one a line
    nullable: bool = True
    confirmed: bool = True
    used: bool = True
    role: str = ""
    tags: str = ""  # separated by commas or spaces
    hierarchy: str = ""


@dataclass(slots=True)
class TableForm:
    """Fields of a table; `unit` is the name of one of its columns."""

    name: str
    unit: str = ""
    public: bool = False
    rows: str = ""
    max_rows: str = ""
    columns: list[ColumnForm] = field(default_factory=list)


@dataclass(slots=True)
class SchemaForm:
    """Fields of a schema."""

    unit: str = ""
    max_rows: str = "1"
    tables: list[TableForm] = field(default_factory=list)
    foreign_keys: str = ""  # one a line

    @classmethod
    def of_text(cls, text: str) -> "SchemaForm":
        """Read YAML, which may be an incomplete schema."""
        schema, _ = read(text)
        return cls.of(schema, drafted="unit: fill in" in text)

    @classmethod
    def of(cls, schema: Schema, drafted: bool = False) -> "SchemaForm":
        """Convert a schema; the unit of a draft is still open."""
        row = schema.unit == ROW
        return cls(
            "" if drafted else ("row" if row else schema.unit.name),
            "1" if row or drafted else str(schema.unit.max_rows),
            [_table(table) for table in schema.tables.values()],
            "\n".join(map(str, schema.foreign_keys)),
        )

    @classmethod
    def of_fields(cls, sent: Mapping[str, str]) -> "SchemaForm":
        """Read the fields that the page sent. Tables are numbered t0, t1, …; their columns t0-c0, t0-c1, …."""

        def text(name: str) -> str:
            return sent.get(name, "").strip()

        form = cls(text("unit"), text("max_rows"), [], text("foreign_keys"))
        for i in _numbered(sent, "t{}-name"):
            at = f"t{i}"
            table = TableForm(
                text(f"{at}-name"), text(f"{at}-unit"), bool(text(f"{at}-public")), text(f"{at}-rows"),
                text(f"{at}-max_rows"),
            )  # fmt: skip
            for j in _numbered(sent, f"{at}-c{{}}-name"):
                base = f"{at}-c{j}"
                table.columns.append(
                    ColumnForm(
                        text(f"{base}-name"), text(f"{base}-type"), text(f"{base}-low"), text(f"{base}-high"),
                        text(f"{base}-categories"), bool(text(f"{base}-nullable")), bool(text(f"{base}-confirmed")),
                        bool(text(f"{base}-used")), text(f"{base}-role"), text(f"{base}-tags"),
                        text(f"{base}-hierarchy"),
                    )
                )  # fmt: skip
            form.tables.append(table)
        return form

    def text(self) -> str:
        """Return YAML; invalid values stay as typed, so that the schema reports them."""
        unit: Any = "row" if self.unit == "row" else {"name": self.unit, "max_rows": _whole(self.max_rows)}
        raw: dict[str, Any] = {"unit": unit, "tables": {table.name: _plain(table) for table in self.tables}}
        if self.foreign_keys:
            raw["foreign_keys"] = [line.strip() for line in self.foreign_keys.splitlines() if line.strip()]
        return to_yaml(raw)


def _numbered(sent: Mapping[str, str], pattern: str) -> list[int]:
    return [number for number in range(_MOST) if pattern.format(number) in sent]


def _table(table: Table) -> TableForm:
    columns = [_column(column) for column in table.listed.values()]
    if table.unit is not None and table.unit not in table.listed and table.unit != "fill in":
        columns.insert(0, ColumnForm(table.unit))
    return TableForm(
        table.name,
        "" if table.unit is None else table.unit,
        table.public,
        "" if table.rows is None else str(table.rows),
        "" if table.max_rows is None else str(table.max_rows),
        columns,
    )


def _column(column: Column) -> ColumnForm:
    low, high = "", ""
    if isinstance(column.bounds, tuple) and len(column.bounds) == 2:
        low, high = ("" if bound == "fill in" else str(bound) for bound in plain(column.bounds))
    listed = column.categories if isinstance(column.categories, tuple) else ()
    kind = column.type if column.type in TYPES else "text"
    words = "\n".join(map(str, listed))
    tags = ", ".join(map(str, column.tags)) if isinstance(column.tags, tuple) else str(column.tags)
    role, hierarchy = ("" if word is None else str(word) for word in (column.role, column.hierarchy))
    facts = (column.name, kind, low, high, words, column.nullable, column.confirmed)
    return ColumnForm(*facts, role=role, tags=tags, hierarchy=hierarchy)


def _plain(table: TableForm) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    if table.public:
        raw["public"] = True
    elif table.unit:
        raw["unit"] = table.unit
    for word in ("rows", "max_rows"):
        if getattr(table, word):
            raw[word] = _whole(getattr(table, word))
    names_people = "" if table.public else table.unit
    columns = [column for column in table.columns if column.used and column.name != names_people]
    return raw | {"columns": {column.name: _plain_column(column) for column in columns}}


def _plain_column(column: ColumnForm) -> dict[str, Any]:
    raw: dict[str, Any] = {"type": column.type}
    if column.type in ("integer", "real", "date", "timestamp") and (column.low or column.high):
        raw["bounds"] = [_bound(column.type, column.low), _bound(column.type, column.high)]
    if column.type in ("text", "integer") and column.categories:
        words = [line.strip() for line in column.categories.splitlines() if line.strip()]
        raw["categories"] = [_whole(word) for word in words] if column.type == "integer" else words
    if not column.nullable:
        raw["nullable"] = False
    if column.role:
        raw["role"] = column.role
    if tags := column.tags.replace(",", " ").split():
        raw["tags"] = tags
    if column.hierarchy:
        raw["hierarchy"] = column.hierarchy
    if not column.confirmed:
        raw["confirm"] = CONFIRM
    return raw


def _whole(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _bound(kind: str, text: str) -> Any:
    try:
        return float(text) if kind == "real" else _whole(text)
    except ValueError:
        return text
