"""The schema: the public facts about the tables, written by their owner.

    unit: {name: patient, max_rows: 8}       # the unit of privacy; or  unit: row
    tables:
      visits:
        unit: patient_id                     # the column that identifies a patient; not listed below
        rows: 100000                         # optional: a public size, at least the true one: for plans and intervals
        columns:
          ward: {type: text, categories: [cardiology, surgery]}
          stay_days: {type: integer, bounds: [0, 60]}
          email: {type: text, role: identifier, tags: [gdpr, hipaa]}      # optional: role, tags and hierarchy
          zip: {type: text, role: quasi-identifier, hierarchy: zip.csv}   # of a column
          admitted: {type: date, bounds: [2020-01-01, 2026-12-31], nullable: false}
        never: [{ward: maternity, age: {from: 70}}]     # optional: combinations that no row can have
        determines: [ward -> building, 'ward, floor -> nurse']   # optional: functional dependencies
      wards:
        public: true                         # not secret: joined freely
        columns:
          ward: {type: text, categories: [cardiology, surgery]}
    foreign_keys: [visits.ward -> wards.ward]

Types are integer, real, text, boolean, date and timestamp (UTC). The schema is enforced, not trusted: values outside
the bounds are clipped, values outside the categories read as NULL, and a row with NULL where `nullable: false` is left
out of every query that uses the column. So bounds and categories must be known without looking at the data. Names
that begin with `_cl_` are reserved and refused. The word `confirm` marks a column whose bounds or categories were
drafted from values; no source is opened with such a schema until the owner has removed it.

A column may state its `role` for publishing rows: `identifier` (names a person by itself, such as an e-mail address),
`quasi-identifier` (names one together with others, such as a postcode), `sensitive` (must not be linked to a person,
such as a diagnosis) or `plain`. `tags` names the regulations it falls under (gdpr, hipaa, pci-dss, ferpa, glba, ccpa,
or lower-case words of the owner's own), and `hierarchy` a file beside the schema with generalisations of its values.
A column with `role: identifier` is treated as if it were not listed: no query, model or generator reads it, no hub
stores it, and no user of a hub sees its name. The other roles and the tags change nothing that a query reads.
"""

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from cloister.privacy.errors import BadSchema
from cloister.privacy.loss import ROW, Unit

__all__ = [
    "RESERVED",
    "ROLES",
    "TAGS",
    "TYPES",
    "UNIT",
    "Bound",
    "Column",
    "ForeignKey",
    "Role",
    "Schema",
    "Table",
    "Type",
    "glimpse",
    "internal",
    "is_reserved",
]

Type = Literal["integer", "real", "text", "boolean", "date", "timestamp"]
Bound = int | float | date | datetime
TYPES: tuple[Type, ...] = get_args(Type)
Role = Literal["identifier", "quasi-identifier", "sensitive", "plain"]
ROLES: tuple[Role, ...] = get_args(Role)
TAGS = ("gdpr", "hipaa", "pci-dss", "ferpa", "glba", "ccpa")  # known regulations; a schema may have words of its own
_MOST_TAGS = 20
_TAG = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_TAG = 40
RESERVED = "_cl_"


def internal(name: str) -> str:
    """Return a reserved name for generated SQL that no schema and no query can use.

    Schemas and queries with a name that `is_reserved` are refused. Otherwise an engine could read an analyst's alias in
    place of a generated one, and the contribution bound is built on generated aliases.
    """
    return RESERVED + name


def is_reserved(name: str) -> bool:
    """Return True if a name has the prefix of `internal`, in any case: engines fold case."""
    return name.lower().startswith(RESERVED)


UNIT = internal("unit")  # name of the unit column in every view

# Symmetric, so that no negation overflows; finite, so that no sum is infinite.
_LIMITS: Mapping[str, tuple[Bound, Bound]] = {
    "integer": (-(2**63 - 1), 2**63 - 1),
    "real": (-sys.float_info.max, sys.float_info.max),
    "date": (date.min, date.max),
    "timestamp": (datetime.min, datetime.max),
}
_PYTHON = {"integer": int, "real": float, "date": date, "timestamp": datetime, "text": str}


@dataclass(frozen=True, slots=True)
class Column:
    """The public facts about a column.

    Attributes:
        name: as the source spells it.
        type: the type its values are read as, whatever type the source declares. Text that is not UTF-8 or has more
            than a million bytes is missing.
        bounds: lower and upper limit of an integer, real, date or timestamp; values beyond are clipped.
        categories: every text or integer accepted; other values read as NULL.
        nullable: if False, rows in which the column reads as NULL are left out.
        confirmed: False until the owner confirms bounds, categories or a role drafted from values.
        role: its role where rows are published; None if the schema does not say.
        tags: the regulations it falls under, and words of the owner's own.
        hierarchy: name of a file beside the schema with generalisations of its values. It is not opened here.
    """

    name: str
    type: Type
    bounds: tuple[Bound, Bound] | None = None
    categories: tuple[str | int, ...] | None = None
    nullable: bool = True
    confirmed: bool = True
    role: Role | None = None
    tags: tuple[str, ...] = ()
    hierarchy: str | None = None

    @property
    def limits(self) -> tuple[Bound, Bound] | None:
        """Return the range of its view: its bounds, or the widest of its type; None for text and boolean."""
        return self.bounds or _LIMITS.get(self.type)

    def problems(self) -> Iterator[str]:
        """Yield the problems of the column, in the order of the file."""
        if not _is_name(self.name):
            yield f"needs a printable name that does not begin with {RESERVED}"
        if self.type not in TYPES:
            yield f"has the type {glimpse(self.type)}. Types are {', '.join(TYPES)}"
        elif self.bounds is not None and self.categories is not None:
            yield "has bounds and categories. Keep one of them"
        elif self.bounds is not None:
            yield from self._bounds_problems(self.bounds)
        elif self.categories is not None:
            yield from self._categories_problems(self.categories)
        if self.role is not None and self.role not in ROLES:
            yield f"has the role {glimpse(self.role)}. Roles are {', '.join(ROLES)}"
        yield from self._tags_problems(self.tags)
        if self.hierarchy is not None and not _is_beside(self.hierarchy):
            yield "needs hierarchy: file.csv, the name of a file beside the schema or in a folder there, without '..'"

    def _bounds_problems(self, bounds: tuple[Bound, Bound]) -> Iterator[str]:
        widest = _LIMITS.get(self.type)
        if widest is None:
            yield f"is {self.type} and takes no bounds. Remove them"
        elif not _is_pair(bounds) or not all(_is_a(self.type, bound) for bound in bounds):
            yield f"needs bounds: [lower, upper], each a finite {self.type}"
        elif not widest[0] <= bounds[0] < bounds[1] <= widest[1]:  # type: ignore[operator]
            yield f"needs a lower bound below the upper one, between {widest[0]} and {widest[1]}"

    def _categories_problems(self, categories: tuple[str | int, ...]) -> Iterator[str]:
        if self.type not in ("text", "integer"):
            yield f"is {self.type} and takes no categories. Remove them"
        elif (
            not _is_list(categories)
            or not categories
            or not all(_is_category(self.type, category) for category in categories)
        ):
            yield f"needs categories: [...], a list of {self.type}s (quote words like 'yes', 'no' and '007')"
        elif len(set(categories)) < len(categories):
            yield "lists a category twice. Keep one of each"

    def _tags_problems(self, tags: tuple[str, ...]) -> Iterator[str]:
        if not _is_list(tags) or len(tags) > _MOST_TAGS or not all(map(_is_tag, tags)):
            yield (
                f"needs tags: [...], at most {_MOST_TAGS} of {', '.join(TAGS)} or lower-case words of your own, "
                "such as internal-only"
            )
        elif len(set(tags)) < len(tags):
            yield "lists a tag twice. Keep one of each"


@dataclass(frozen=True, slots=True)
class Table:
    """The public facts about a table.

    Attributes:
        name: as the source spells it.
        columns: those that may be used, by name. Columns with the role identifier are moved to `identifiers`.
        unit: the column that identifies the unit; None in a public table and where the unit is the row.
        max_rows: number of rows of one unit that count here, if fewer than the unit's own limit. For a public table:
            number of its rows that count for one row joined to them, where the unit is the row.
        public: True if nothing in it is secret.
        rows: a public size, not below the true one: for plans, and for the rounding that intervals of sums include.
        never: combinations that no row can have, each as {column: value, list of values, or {from: …, below: …}}.
        determines: columns that determine the value of another: (("ward", "floor"), "nurse").
        identifiers: columns with the role identifier, by name. What reads `columns` cannot reach them.
        order: names of all columns in the order of the file, if there are identifiers.

    Every synthetic row satisfies `never` and `determines`. Nothing else relies on them.
    """

    name: str
    columns: Mapping[str, Column]
    unit: str | None = None
    max_rows: int | None = None
    public: bool = False
    rows: int | None = None
    never: tuple[Mapping[str, Any], ...] = ()
    determines: tuple[tuple[tuple[str, ...], str], ...] = ()
    identifiers: Mapping[str, Column] = field(default_factory=dict)
    order: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        named = {name: column for name, column in self.columns.items() if column.role == "identifier"}
        if named:
            columns = {name: column for name, column in self.columns.items() if name not in named}
            object.__setattr__(self, "order", (*self.columns, *self.identifiers))
            object.__setattr__(self, "columns", columns)
            object.__setattr__(self, "identifiers", {**self.identifiers, **named})

    @property
    def listed(self) -> dict[str, Column]:
        """Return every column, identifiers too, in the order of the file."""
        columns = {**self.identifiers, **self.columns}
        return {name: columns[name] for name in dict.fromkeys((*self.order, *columns)) if name in columns}

    def without_identifiers(self) -> "Table":
        """Return the table as its users see it: identifiers are not even named."""
        return replace(self, identifiers={}, order=()) if self.identifiers else self

    def problems(self, unit: Unit) -> Iterator[str]:
        """Yield the problems of the table under this unit, in the order of the file."""
        if not _is_name(self.name):
            yield f"needs a printable name that does not begin with {RESERVED}"
        if self.unit is not None and is_reserved(self.unit):
            yield f"names the unit column {self.unit}, and names that begin with {RESERVED} are reserved. Rename it"
        if self.unit is not None and (self.public or unit == ROW):
            yield f"names a unit column, but {'is public' if self.public else 'protects rows'}. Remove its unit"
        elif self.unit is None and not self.public and unit != ROW:
            yield f"needs unit: the column that names a {unit.name}; or public: true"
        elif self.unit in self.listed:
            yield f"lists its unit column {self.unit} among the columns. Remove it there: it names people"
        for word, number in (("max_rows", self.max_rows), ("rows", self.rows)):
            if number is not None and not (_is_a("integer", number) and 0 < number < 2**63):
                yield f"needs a whole number above 0 for {word}, of at most 63 bits"
        for rule in self.never:
            if len(rule) < 1 or any(name not in self.columns for name in rule):
                yield "needs columns of its own in never: [{ward: maternity, age: {from: 70}}]"
            for wanted in rule.values():
                if isinstance(wanted, Mapping) and not (wanted and set(wanted) <= {"from", "below"}):
                    yield "writes a range in never as {from: …, below: …}, one of them or both"
                elif not all(map(_is_plain, _each(wanted))):
                    yield "writes values in never as text, true or false, dates, or numbers of at most 63 bits"
        decided = [right for _, right in self.determines]
        for left, right in self.determines:
            if right in left or any(name not in self.columns for name in (*left, right)):
                yield "needs columns of its own in determines: [ward -> building]"
            elif set(left) & set(decided) or decided.count(right) > 1:
                yield f"has {right} or what decides it decided twice. Say what decides it in the end, once"
        if not self.columns:
            yield "needs columns that are not identifiers" if self.identifiers else "needs columns"
        yield from _same_but_for_case([*self.listed, *([self.unit] if self.unit else [])])


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A column with keys of another table. The number of matching rows is enforced where it matters, not trusted."""

    table: str
    column: str
    other_table: str
    other_column: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} -> {self.other_table}.{self.other_column}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The public facts about some tables under one unit. Privacy: everything in here is taken to be public."""

    tables: Mapping[str, Table]
    unit: Unit
    foreign_keys: tuple[ForeignKey, ...] = ()

    @staticmethod
    def parse(text: str, unit: Unit | None = None, *, max_bytes: int | None = 200_000) -> "Schema":
        """Read a schema from its YAML text, which is never taken for a path.

        Results are cached by text.

        Args:
            unit: the unit of privacy, if the schema states none; otherwise the two must agree.
            max_bytes: longer text is refused before parsing; None means no limit.

        Raises:
            BadSchema: with every problem, in order. Marks to confirm are left to `check`.
        """
        if not isinstance(text, str):
            raise BadSchema("the schema is not text. Schema.load reads a dict or a file.")
        schema = _parsed(text, unit, max_bytes)
        tables = {
            name: replace(table, columns=dict(table.columns), identifiers=dict(table.identifiers))
            for name, table in schema.tables.items()
        }
        return replace(schema, tables=tables)  # one caller's changes must not reach the next

    @staticmethod
    def load(
        source: "str | os.PathLike[str] | Mapping[str, Any] | Schema",
        unit: Unit | None = None,
        *,
        max_bytes: int | None = 200_000,
    ) -> "Schema":
        """Read a schema from a file, or from a dict; text of several lines is read as by `parse`.

        For untrusted text call `parse`: here a single line is opened as a file.

        Args:
            unit, max_bytes: as in `parse`.

        Raises:
            BadSchema: with every problem, in order. Marks to confirm are left to `check`.
        """
        if isinstance(source, Schema):
            return source
        if isinstance(source, Mapping):
            return _read(source, unit)
        if isinstance(source, str) and "\n" in source:
            return Schema.parse(source, unit, max_bytes=max_bytes)
        path = Path(source)
        if not path.is_file():
            raise BadSchema(f"there is no schema file {path}. `cloister schema draft FILE` writes a first one.")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise BadSchema(f"{path} is not UTF-8 text. Save it as such.") from None
        return Schema.parse(text, unit, max_bytes=max_bytes)

    def dump(self) -> str:
        """Return the schema as YAML that `load` reads back."""
        from cloister.data.schema_file import written

        return written(self)

    def without_identifiers(self) -> "Schema":
        """Return the schema as users other than the owner see it; the same object if it has no identifiers."""
        if not any(table.identifiers for table in self.tables.values()):
            return self
        return replace(self, tables={name: table.without_identifiers() for name, table in self.tables.items()})

    def check(self) -> None:
        """Refuse a schema with any problem, or with a mark that its owner has not confirmed.

        Raises:
            BadSchema: with every problem, in order.
        """
        waiting = [
            f"{table.name}.{column.name}: confirm that its {_drafted(column)} are public, and remove the mark"
            for table in self.tables.values()
            for column in table.listed.values()
            if not column.confirmed
        ]
        _refuse([*self.problems(), *waiting])

    def problems(self) -> list[str]:
        """Return the problems, each with its place and a remedy."""
        messages = [] if self.tables else ["tables: there is none"]
        messages += [f"tables: {problem}" for problem in _same_but_for_case(list(self.tables))]
        for table in self.tables.values():
            messages += [f"{table.name}: {problem}" for problem in table.problems(self.unit)]
            for column in table.listed.values():
                messages += [f"{table.name}.{column.name}: {problem}" for problem in column.problems()]
        return messages + [
            f"foreign key {key}: {problem}" for key in self.foreign_keys for problem in self._misses(key)
        ]

    def _misses(self, key: ForeignKey) -> Iterator[str]:
        for name, column in ((key.table, key.column), (key.other_table, key.other_column)):
            table = self.tables.get(name)
            if table is not None and column in table.identifiers:
                yield f"{name}.{column} is an identifier, and nothing reads it. Use the unit column, or remove the key"
            elif table is None or not (column in table.columns or column == table.unit):
                yield f"there is no column {name}.{column} in the schema"


@lru_cache(maxsize=128)  # the same few schemas are read with every request, and a long one takes a second
def _parsed(text: str, unit: Unit | None, max_bytes: int | None) -> Schema:
    return _read(text, unit, max_bytes)


def _read(source: str | Mapping[str, Any], unit: Unit | None, max_bytes: int | None = None) -> Schema:
    from cloister.data.schema_file import read

    schema, problems = read(source, unit, max_bytes)
    # Where the form is wrong, problems of the content are not reported too.
    misshapen = {problem.partition(":")[0] for problem in problems}
    _refuse(problems + [problem for problem in schema.problems() if problem.partition(":")[0] not in misshapen])
    return schema


def glimpse(value: object) -> str:
    """Return the beginning of a value, for a message. Python refuses to print integers of several thousand digits."""
    try:
        return f"{value!r:.40}"
    except ValueError:
        return "a number too long to print"


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        listed = "".join(f"\n  {number}. {problem}." for number, problem in enumerate(problems, 1))
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise BadSchema(f"the schema has {count}:{listed}\nCorrect it and run `cloister schema check FILE`.")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable() and not is_reserved(name)


def _drafted(column: Column) -> str:
    """Return what a draft may have taken from the values of a column, for a message."""
    return "bounds or categories" if column.role is None else "bounds, categories and role"


def _is_tag(tag: object) -> bool:
    return isinstance(tag, str) and len(tag) <= _LONGEST_TAG and _TAG.fullmatch(tag) is not None


def _is_beside(name: object) -> bool:
    """Return True if a name leads to a file in the folder of the schema or below it, on every system."""
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable() or set(name) & set(":\\"):
        return False
    path = PurePosixPath(name)
    return bool(path.name) and not path.is_absolute() and ".." not in path.parts


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _is_pair(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _is_a(kind: str, value: object) -> bool:
    """Return True if a value has exactly the Python type of a column type: a bool is no integer, a datetime no date.

    A timestamp keeps its zone if it cannot be represented in UTC, at either end of the range.
    """
    if type(value) is not _PYTHON[kind]:
        return False
    return getattr(value, "tzinfo", None) is None and (not isinstance(value, float) or math.isfinite(value))


def _each(wanted: object) -> Iterator[object]:
    """Yield the single values of a rule: one, those of a list, or the ends of a range."""
    if isinstance(wanted, Mapping):
        yield from wanted.values()
    elif isinstance(wanted, list | tuple):
        yield from wanted
    else:
        yield wanted


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return _is_text(value)
    if isinstance(value, int):
        return -(2**63) < value < 2**63
    return value is None or isinstance(value, date) or (isinstance(value, float) and math.isfinite(value))


def _is_text(value: str) -> bool:
    """Return True if text can be encoded as UTF-8 and stored by PostgreSQL, which allows no NUL in text."""
    return "\0" not in value and value.encode("utf-8", "replace").decode() == value


def _is_category(kind: str, value: object) -> bool:
    if isinstance(value, str):
        # Empty text reads as NULL, so that CSV and the other sources agree.
        return kind == "text" and value != "" and _is_text(value)
    return kind == "integer" and _is_a(kind, value) and -(2**63) < value < 2**63  # type: ignore[operator]


def _same_but_for_case(names: Sequence[str]) -> Iterator[str]:
    """Yield names that differ only in case, which some engine would treat as equal."""
    folded: dict[str, str] = {}
    for name in names:
        first = folded.setdefault(str(name).lower(), name)
        if first != name:
            yield f"the names {first} and {name} differ in case only. Rename one"
