"""Random databases, one unit more in them, and random questions about them.

A database is a schema with hostile names, and rows with every value that its columns can store. A neighbour has one
unit more, with several rows in every private table, and its rows in another order. `Asking` writes SQL over a schema:
mostly in the language, sometimes a step outside it.

Whatever is drawn comes from a `random.Random`: a seed is a case.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa
from sqlglot import exp

__all__ = [
    "AGGREGATES",
    "Asking",
    "Database",
    "draw_database",
    "draw_question",
    "draw_unit",
    "learn_internals",
    "other_version",
]

# What statements have called their own columns, what SQL calls things, and names that two readers take for one.
NAMES = [
    "a", "b", "c", "d", "x", "y", "n", "g", "_match", "_place", "_n", "_row", "_rows", "_heavy", "_person", "_in",
    "_pairs", "_cell", "_code", "k0", "k1", "v0", "s0", "d0", "g0", "leaf", "candidate", "power", "group", "select",
    "order", "é", "e\u0301", "A b", 'q"q', "_0", "_unit2", "count", "rowid", "ctid", "w", "t",
]  # fmt: skip
WORDS: list[Any] = [
    None, "", "a", "b", "A", " a", "é", "e\u0301", "E\u0301", "NULL", "nan", "1", "0x10", "日本",
    "1e999", "-inf", "true",
    "2025-02-30", "2025-06-01", "\n", "'", "\\", "%", "_", "secret@diagnosis",
]  # fmt: skip
DOUBLES: list[Any] = [
    None, 0.0, -0.0, 1.0, 1.0, 2.0, -1.0, 0.5, 2.5, 3.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 2.2e-308,
    1e300, -1e300, 1.7976931348623157e308, 2.0**53, 2.0**63, -(2.0**63), 1e16, 0.1, 0.30000000000000004,
]  # fmt: skip
WHOLES: list[Any] = [None, 0, 1, 1, 2, 3, -1, 5, 2**63 - 1, -(2**63), 2**53 + 1, 100, 7]
DATES: list[Any] = [
    None, dt.date(2025, 1, 1), dt.date(2025, 3, 1), dt.date(2025, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31),
    dt.date(2024, 2, 29), dt.date(1970, 1, 1),
]  # fmt: skip
MOMENTS: list[Any] = [None if day is None else dt.datetime(day.year, day.month, day.day, 12, 34, 56) for day in DATES]
STORED: Mapping[str, list[Any]] = {
    "integer": [pa.int64(), pa.int64(), pa.float64(), pa.string(), pa.int8()],
    "real": [pa.float64(), pa.float64(), pa.float64(), pa.string(), pa.float32(), pa.int64()],
    "text": [pa.string(), pa.string(), pa.int64()],
    "boolean": [pa.bool_(), pa.bool_(), pa.string(), pa.int64()],
    "date": [pa.date32(), pa.date32(), pa.string()],
    "timestamp": [pa.timestamp("us"), pa.string()],
}
CATEGORIES: Mapping[str, list[list[Any]]] = {
    "text": [["a", "b"], ["A", "B"], ["a", "é", "e\u0301"], ["1", "nan", "NULL"], ["日本", "'", "%"]],
    "integer": [[0, 1], [1, 2, 3], [-1, 7]],
}
BOUNDS: Mapping[str, list[tuple[Any, Any]]] = {
    "integer": [(0, 3), (-5, 12), (0, 100), (-(2**62), 2**62), (2, 5)],
    "real": [(0.0, 1.0), (-4.0, 8.0), (0.0, 1e6), (-1e90, 1e90), (0.1, 0.3)],
    "date": [("2025-01-01", "2025-12-31"), ("2025-02-27", "2025-03-02")],
    "timestamp": [("2025-01-01T00:00:00", "2025-12-31T23:59:59")],
}


@dataclass(frozen=True)
class Database:
    """A schema as a dict, the stored type of every column, rows by table, and what values columns have."""

    schema: dict[str, Any]
    stored: dict[str, dict[str, Any]]
    rows: dict[str, list[dict[str, Any]]]
    palettes: dict[str, dict[str, list[Any]]] = field(default_factory=dict, repr=False)

    @property
    def person(self) -> str | None:
        """The column that names the unit; None where the unit is the row."""
        return None if self.schema["unit"] == "row" else "person"

    @property
    def private(self) -> list[str]:
        return [name for name, table in self.schema["tables"].items() if not table.get("public")]

    def arrow(self) -> dict[str, pa.Table]:
        """The rows as Arrow tables with declared types."""
        return {
            name: pa.table(
                {column: pa.array([row[column] for row in self.rows[name]], kind) for column, kind in kinds.items()}
            )
            for name, kinds in self.stored.items()
        }

    def joined_by(self, more: Mapping[str, list[dict[str, Any]]], r: Random) -> "Database":
        """The same with rows more, all of them in another order."""
        rows = {}
        for name, known in self.rows.items():
            rows[name] = [*known, *more.get(name, [])]
            if name in self.private:
                r.shuffle(rows[name])
        return replace(self, rows=rows)


def palette(r: Random, kind: Any) -> list[Any]:
    """The few values of one column, so that rows and people share them; zeros of both signs often meet."""
    few = [cell(r, kind) for _ in range(r.randint(1, 4))]
    return [*few, 0.0, -0.0] if kind in (pa.float64(), pa.float32()) and r.random() < 0.5 else few


def cell(r: Random, kind: Any) -> Any:
    """Anything that a column of this Arrow type can hold."""
    if pa.types.is_string(kind):
        return r.choice(WORDS)
    if pa.types.is_boolean(kind):
        return r.choice([None, True, False])
    if pa.types.is_date(kind):
        return r.choice(DATES)
    if pa.types.is_timestamp(kind):
        return r.choice(MOMENTS)
    if pa.types.is_int8(kind):
        return r.choice([None, 0, 1, 2, -128, 127])
    if pa.types.is_integer(kind):
        return r.choice(WHOLES)
    if pa.types.is_float32(kind):
        return r.choice([None, 0.0, -0.0, 0.5, 1.0, math.nan, math.inf, 3e38, 1e-45])
    return r.choice(DOUBLES)


def draw_column(r: Random) -> dict[str, Any]:
    kind = r.choice(["integer", "integer", "real", "real", "text", "text", "boolean", "date", "timestamp"])
    column: dict[str, Any] = {"type": kind}
    if kind in CATEGORIES and r.random() < (0.7 if kind == "text" else 0.2):
        column["categories"] = r.choice(CATEGORIES[kind])
    elif kind in BOUNDS and r.random() < 0.75:
        column["bounds"] = list(r.choice(BOUNDS[kind]))
    if r.random() < 0.3:
        column["nullable"] = False
    return column


def draw_names(r: Random, count: int, taken: tuple[str, ...] = (), internals: float = 0.0) -> list[str]:
    """Names that a schema takes: no two that differ in case alone.

    Args:
        internals: how often a name is one that statements use for themselves.
    """
    found: list[str] = []
    while len(found) < count:
        known = r.choice(NAMES) if r.random() < 0.6 else r.choice("abcdxyn")
        name = r.choice(INTERNALS) if INTERNALS and r.random() < internals else known
        if name.lower() not in {one.lower() for one in (*found, *taken)}:
            found.append(name)
    return found


INTERNALS: list[str] = []


def learn_internals(statements: Iterable[str]) -> None:
    """Read off statements what they call their own columns and tables, so that questions can use the same words."""
    found = {name.replace('""', '"') for text in statements for name in re.findall(r'"((?:[^"]|"")+)"', text)}
    INTERNALS[:] = sorted(found | set(INTERNALS))


def draw_database(r: Random) -> Database:
    """A private table or two, and a public one that multiplies."""
    by_row = r.random() < 0.3
    tables: dict[str, Any] = {}
    for name in ("t", "u")[: r.choice([1, 1, 2])]:
        columns = {one: draw_column(r) for one in draw_names(r, r.randint(2, 4), ("person",))}
        tables[name] = {"columns": columns} if by_row else {"unit": "person", "columns": columns}
    shared = r.choice(list(tables["t"]["columns"]))  # so that there is something to join by
    listed = {shared: dict(tables["t"]["columns"][shared])}
    listed.update({one: draw_column(r) for one in draw_names(r, r.randint(1, 2), (shared,))})
    tables["w"] = {"public": True, "columns": listed}
    if r.random() < 0.8:
        tables["w"]["max_rows"] = r.choice([1, 2, 3])
    unit: Any = "row" if by_row else {"name": "person", "max_rows": r.choice([1, 1, 2, 3])}
    stored = {
        name: {one: r.choice(STORED[facts["type"]]) for one, facts in table["columns"].items()}
        for name, table in tables.items()
    }
    ids = pa.string() if r.random() < 0.7 else pa.int64()
    if not by_row:
        stored = {name: {"person": ids, **kinds} if name != "w" else kinds for name, kinds in stored.items()}
    people = ["1", "2", "é", "e\u0301", " 1", None, ""] if ids == pa.string() else [1, 2, -(2**63), None, 0]
    stored["w"][shared] = stored["t"][shared]
    rows, palettes = {}, {}
    for name, kinds in stored.items():
        palettes[name] = {one: palette(r, kind) for one, kind in kinds.items()}
        if name == "w":
            palettes[name][shared] = palettes["t"][shared]
        elif not by_row:
            palettes[name]["person"] = [r.choice(people) for _ in range(3)]  # few, so that they have several rows
        rows[name] = _rows(r, palettes[name], r.choice([0, 1, 4, 9]))
    return Database({"unit": unit, "tables": tables}, stored, rows, palettes)


def _rows(r: Random, palettes: Mapping[str, list[Any]], count: int) -> list[dict[str, Any]]:
    return [{one: r.choice(values) for one, values in palettes.items()} for _ in range(count)]


def draw_unit(r: Random, database: Database) -> dict[str, list[dict[str, Any]]]:
    """The rows of one unit more: one row, or a person with several in every private table."""
    more: dict[str, list[dict[str, Any]]] = {}
    tables = database.private if database.person else [r.choice(database.private)]
    for name in tables:
        kinds = database.stored[name]
        count = r.choice([1, 1, 2, 4, 9]) if database.person else 1
        alike = database.palettes.get(name) if r.random() < 0.5 else None
        own = alike or {one: [cell(r, kind) for _ in range(4)] for one, kind in kinds.items()}
        more[name] = _rows(r, own, count)
        for row in more[name]:
            if database.person:
                row["person"] = "z" if kinds["person"] == pa.string() else 2**53 + 1
    return more


def other_version(r: Random, database: Database) -> Database:
    """The same rows under a schema that differs a little: case of categories, bounds, types, caps, NULLs, the unit."""
    import copy

    schema = copy.deepcopy(database.schema)
    for table in schema["tables"].values():
        for column in table["columns"].values():
            if "categories" in column and column["type"] == "text" and r.random() < 0.7:
                swapped = [one.swapcase() for one in column["categories"]]
                column["categories"] = swapped if len(set(swapped)) == len(swapped) else column["categories"]
            elif "bounds" in column and column["type"] in ("integer", "real") and r.random() < 0.5:
                column["bounds"] = list(r.choice(BOUNDS[column["type"]]))
            if r.random() < 0.3:
                column["nullable"] = not column.get("nullable", True)
    if isinstance(schema["unit"], dict) and r.random() < 0.5:
        schema["unit"]["max_rows"] = r.choice([1, 2, 3])
    return replace(database, schema=schema)


# Questions

Template = Callable[["Asking"], str]

AGGREGATES: dict[type[exp.Expression], list[Template]] = {
    exp.Count: [
        lambda q: "COUNT(*)", lambda q: "COUNT(*)", lambda q: f"COUNT({q.any()})",
        lambda q: f"COUNT(DISTINCT {q.any()})", lambda q: f"COUNT(DISTINCT {q.people()})",
    ],
    exp.Sum: [lambda q: f"SUM({q.bounded()})", lambda q: f"SUM({q.condition()})"],
    exp.Avg: [lambda q: f"AVG({q.bounded()})"],
    exp.Variance: [lambda q: f"VARIANCE({q.bounded()})"],
    exp.VariancePop: [lambda q: f"VAR_POP({q.bounded()})"],
    exp.Stddev: [lambda q: f"STDDEV({q.bounded()})"],
    exp.StddevSamp: [lambda q: f"STDDEV_SAMP({q.bounded()})"],
    exp.StddevPop: [lambda q: f"STDDEV_POP({q.bounded()})"],
    exp.Median: [lambda q: f"MEDIAN({q.bounded()})"],
    exp.Quantile: [lambda q: f"QUANTILE({q.bounded()}, 0.3)"],
    exp.WithinGroup: [lambda q: f"PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY {q.bounded()})"],
    exp.Min: [lambda q: f"MIN({q.bounded()})"],
    exp.Max: [lambda q: f"MAX({q.bounded()})"],
    exp.Mode: [lambda q: f"MODE({q.listed()})"],
}  # fmt: skip


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class Asking:
    """Writes expressions over the columns in sight: pairs of SQL text and public facts."""

    r: Random
    columns: list[tuple[str, dict[str, Any]]]
    person: str | None
    depth: int = 2
    spelled: dict[str, str] = field(default_factory=dict)

    def of(self, *kinds: str) -> list[tuple[str, dict[str, Any]]]:
        return [one for one in self.columns if one[1]["type"] in kinds]

    def any(self) -> str:
        return self.r.choice(self.columns)[0] if self.columns and self.r.random() < 0.7 else self.number()

    def people(self) -> str:
        return self.person or self.any()

    def number(self) -> str:
        """A number that may lack limits."""
        r, known = self.r, self.of("integer", "real")
        if self.depth <= 0 or r.random() < 0.5:
            if known and r.random() < 0.85:
                return r.choice(known)[0]
            return r.choice(["0", "1", "-7", "0.5", "1e90", "NULL", str(2**62)])
        self.depth -= 1
        a, b = self.number(), self.number()
        dates, texts = self.of("date", "timestamp"), self.of("text")
        made = r.choice(
            [
                f"({a} {r.choice('+-*/')} {b})", f"({a} % 7)",
                f"{r.choice(['ABS', 'FLOOR', 'CEIL', 'ROUND', 'SQRT', 'LN'])}({a})",
                f"{r.choice(['LEAST', 'GREATEST', 'COALESCE', 'NULLIF'])}({a}, {b})",
                f"CASE WHEN {self.condition()} THEN {a} ELSE {b} END",
                f"WIDTH_BUCKET({a}, -1, 1e6, 5)", f"CAST({a} AS {r.choice(['INTEGER', 'DOUBLE'])})", f"-({a})",
                f"EXTRACT({r.choice(['YEAR', 'MONTH', 'DAY'])} FROM {r.choice(dates)[0]})" if dates else a,
                f"LENGTH({r.choice(texts)[0]})" if texts else b,
            ]
        )  # fmt: skip
        self.depth += 1
        return made

    def bounded(self) -> str:
        """A number that mostly has limits."""
        known = [text for text, facts in self.of("integer", "real") if "bounds" in facts]
        if known and self.r.random() < 0.6:
            return self.r.choice(known)
        return f"LEAST(GREATEST({self.number()}, -9), 9)" if self.r.random() < 0.9 else self.number()

    def text(self) -> str:
        known = self.of("text")
        if not known or self.r.random() < 0.2:
            return self.r.choice(["'a'", "''", "'é'", "'\\'", "NULL"])
        one = self.r.choice(known)[0]
        return self.r.choice(
            [one, one, f"LOWER({one})", f"UPPER({one})", f"SUBSTRING({one}, 1, 2)", f"COALESCE({one}, 'a')"]
        )

    def listed(self) -> str:
        """Something with a public list of values, mostly."""
        known = [text for text, facts in self.columns if "categories" in facts or facts["type"] == "boolean"]
        small = [
            text
            for text, facts in self.of("integer")
            if "bounds" in facts and facts["bounds"][1] - facts["bounds"][0] < 200
        ]
        dates = [text for text, _ in self.of("date", "timestamp")]
        ways = [*known, *known, *small, f"WIDTH_BUCKET({self.number()}, 0, 3, 3)", f"({self.condition()})"]
        ways += [f"EXTRACT(MONTH FROM {one})" for one in dates]
        return self.r.choice(ways) if self.r.random() < 0.95 else self.any()

    def condition(self) -> str:
        r, flags, dates, texts = self.r, self.of("boolean"), self.of("date"), self.of("text")
        if self.depth > 0 and r.random() < 0.25:
            self.depth -= 1
            made = (
                f"({self.condition()} {r.choice(['AND', 'OR'])} {self.condition()})"
                if r.random() < 0.7
                else f"NOT ({self.condition()})"
            )
            self.depth += 1
            return made
        self.depth -= 1
        ways = [
            f"{self.number()} {r.choice(['=', '<', '<>', '>='])} {self.number()}",
            f"{self.number()} BETWEEN 0 AND 2",
            f"{self.number()} IN (1, 2)",
        ]
        if self.columns:
            ways.append(f"{r.choice(self.columns)[0]} IS {r.choice(['', 'NOT '])}NULL")
        if texts:
            ways += [
                f"{self.text()} = {self.text()}",
                f"{self.text()} IN ('a', 'é', '')",
                f"{r.choice(texts)[0]} LIKE '{r.choice(['%', '_', 'a%'])}'",
            ]
        if flags:
            ways.append(r.choice(flags)[0])
        if dates:
            ways.append(f"{r.choice(dates)[0]} > DATE '2025-03-01'")
        self.depth += 1
        return r.choice(ways)

    def aggregate(self) -> str:
        kind = self.r.choice([*AGGREGATES, exp.Count, exp.Count, exp.Count])
        return self.r.choice(AGGREGATES[kind])(self)


def draw_question(r: Random, database: Database) -> str:
    """A question about any of its tables."""
    source, asking = _source(r, database)
    asked = [asking.aggregate() for _ in range(r.choice([1, 1, 2, 3]))]
    named = [
        f"{one} AS {quoted(f'm{i}' if r.random() < 0.8 else r.choice(NAMES) + str(i))}" for i, one in enumerate(asked)
    ]
    where = f" WHERE {asking.condition()}" if r.random() < 0.35 else ""
    keys = [asking.listed() for _ in range(r.choice([0, 0, 1, 1, 2]))]
    if keys and r.random() < 0.1:
        keys[0] = asking.any()  # a group that must be found, or is refused
    if not keys:
        return f"SELECT {', '.join(named)} FROM {source}{where}"
    shown = [f"{key} AS {quoted(f'key{i}')}" for i, key in enumerate(keys)]
    every = ", ".join(keys)
    grouped = r.choice([every, every, f"ROLLUP ({every})", f"GROUPING SETS (({keys[0]}), ())"])
    having = f" HAVING {r.choice(asked)} > 1" if r.random() < 0.1 else ""
    order = r.choice(["", "", "", " ORDER BY 1", " ORDER BY 1 DESC LIMIT 2", " LIMIT 1"])
    return f"SELECT {', '.join([*shown, *named])} FROM {source}{where} GROUP BY {grouped}{having}{order}"


def _columns(database: Database, table: str, alias: str) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{alias}.{quoted(name)}", facts) for name, facts in database.schema["tables"][table]["columns"].items()]


def _source(r: Random, database: Database) -> tuple[str, Asking]:
    """FROM, and what can be said of its rows."""
    person = None if database.person is None else "p.person"
    main = r.choice(database.private)
    columns = _columns(database, main, "p")
    bare = Asking(r, columns, person)
    kind = r.choice(
        ["bare", "bare", "bare", "where", "renamed", "public", "public", "private", "self", "union", "each"]
    )
    if kind == "where":
        return f"(SELECT * FROM {main} AS p WHERE {bare.condition()}) AS p", bare
    if kind == "renamed":
        # Columns get names that statements may use for themselves, with the values of others.
        names = draw_names(r, len(columns), ("person",), internals=0.5)
        told = [(f"p.{quoted(name)}", facts) for name, (_, facts) in zip(names, columns, strict=True)]
        listed = [f"{text} AS {quoted(name)}" for (text, _), name in zip(columns, names, strict=True)]
        if person:
            listed.append("p.person AS person" if r.random() < 0.5 else "p.person")
        return f"(SELECT {', '.join(listed)} FROM {main} AS p) AS p", Asking(r, told, person)
    if kind == "public":
        return _with_public(r, database, main, columns, person)
    if kind in ("private", "self"):
        other = r.choice(database.private) if kind == "private" else main
        more = _columns(database, other, "o")
        both = Asking(r, [*columns, *more], person)
        on = r.choice(["p.person = o.person" if person else "TRUE", both.condition(), "TRUE"])
        return f"{main} AS p {r.choice(['JOIN', 'LEFT JOIN'])} {other} AS o ON {on}", both
    if kind == "union":
        picked = r.choice(columns)
        parts = " UNION ALL ".join(f"SELECT {picked[0]} AS x FROM {main} AS p" for _ in range(r.choice([2, 2, 3])))
        return f"({parts}) AS p", Asking(r, [("p.x", picked[1])], None)
    if kind == "each" and person:
        inner = r.choice(
            [
                f"SUM({bare.bounded()})",
                "COUNT(*)",
                f"MAX({bare.bounded()})",
                f"AVG({bare.number()})",
                f"MIN({bare.number()})",
            ]
        )
        return f"(SELECT p.person, {inner} AS x FROM {main} AS p GROUP BY p.person) AS p", Asking(
            r, [("p.x", {"type": "real"})], person
        )
    return f"{main} AS p", bare


def _with_public(
    r: Random, database: Database, main: str, columns: list[tuple[str, dict[str, Any]]], person: str | None
) -> tuple[str, Asking]:
    """A join with a public table, or with a subquery of it whose columns have awkward names."""
    listed = _columns(database, "w", "w")
    source, told = "w", listed
    if r.random() < 0.5:
        names = draw_names(r, len(listed) + 1, internals=0.7)
        told = [(f"w.{quoted(name)}", facts) for name, (_, facts) in zip(names, listed, strict=False)]
        inner = [
            f"{text.replace('w.', 'q.', 1)} AS {quoted(name)}" for (text, _), name in zip(listed, names, strict=False)
        ]
        inner.append(f"{r.choice(['1', '1', '0', '2'])} AS {quoted(names[-1])}")
        told.append((f"w.{quoted(names[-1])}", {"type": "integer"}))
        twice = " CROSS JOIN w AS q2" if r.random() < 0.5 else ""
        source = f"(SELECT {', '.join(inner)} FROM w AS q{twice})"
    both = Asking(r, [*columns, *told], person)
    # The first column of the public table has the values of a private one.
    same = [f"{mine} = {told[0][0]}" for mine, facts in columns if facts == told[0][1]]
    on = r.choice([*same, *same, *same, "TRUE", both.condition()])
    return f"{main} AS p {r.choice(['JOIN', 'LEFT JOIN', 'JOIN'])} {source} AS w ON {on}", both
