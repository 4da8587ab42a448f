"""SQL dialects of the engines: quoted names, constants, safe casts, patterns, and families of declared types.

Every method returns SQL text; `x` and `t` stand for SQL text too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Literal

from sqlglot import exp

__all__ = [
    "Family",
    "Dialect",
    "LONGEST_TEXT",
    "decimals",
    "family",
    "dialect_of",
    "is_text",
    "as_double",
    "canonical",
    "greatest_of",
    "least_of",
    "literal",
    "near_zero",
    "rounded_near_zero",
    "verbatim",
]


# Small pieces of SQL that every engine reads the same: constants, casts, LEAST and GREATEST.


_TINY = 1e-84  # adding and subtracting it rounds away everything below its last digit


def literal(value: Any) -> exp.Expression:
    """Return a public value as an SQL constant, typed so that every engine reads it alike."""
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, int):
        return exp.Literal.number(value) if value >= 0 else exp.Paren(this=exp.Neg(this=exp.Literal.number(-value)))
    if isinstance(value, float):
        number = exp.Cast(this=exp.Literal.number(repr(abs(value))), to=exp.DataType.build("DOUBLE"))
        return number if value >= 0 else exp.Paren(this=exp.Neg(this=number))
    if isinstance(value, datetime):
        return exp.Cast(this=exp.Literal.string(value.isoformat(" ")), to=exp.DataType.build("TIMESTAMPNTZ"))
    if isinstance(value, date):
        return exp.Cast(this=exp.Literal.string(value.isoformat()), to=exp.DataType.build("DATE"))
    return exp.Literal.string(str(value))


def as_double(sql: exp.Expression) -> exp.Expression:
    """Return an expression cast to a double."""
    return exp.Cast(this=sql.copy(), to=exp.DataType.build("DOUBLE"))


def canonical(sql: exp.Expression, kind: str) -> exp.Expression:
    """Return an expression whose equal values are identical to the last bit: a real without negative zero.

    Engines treat 0.0 and -0.0 as equal; which of them represents both depends on the order of rows.
    """
    if kind != "real":
        return sql.copy()
    return exp.Paren(this=exp.Add(this=as_double(sql), expression=literal(0.0)))


def verbatim(sql: str) -> exp.Expression:
    """Return SQL text as a node. Such nodes are equal only if identical; sqlglot ignores the case of other text."""
    return exp.Literal(this=sql, is_string=False)


def least_of(first: exp.Expression, *others: exp.Expression) -> exp.Expression:
    """Return the smallest of some expressions. Engines differ on NULL among them: exclude it with an outer CASE."""
    return exp.Least(this=first, expressions=list(others), ignore_nulls=True)


def greatest_of(first: exp.Expression, *others: exp.Expression) -> exp.Expression:
    """Return the largest of some expressions; for NULL see `least_of`."""
    return exp.Greatest(this=first, expressions=list(others), ignore_nulls=True)


def rounded_near_zero(sql: exp.Expression) -> exp.Expression:
    """Round a double near zero to steps of about 1e-100, so that it is a factor that cannot underflow.

    Values above 1e-67 are unchanged. PostgreSQL raises an error when a product or quotient underflows, and the error
    reveals that such a row exists.
    """
    tiny = literal(_TINY)
    raised = exp.Paren(this=exp.Add(this=exp.Paren(this=sql.copy()), expression=tiny))
    return exp.Paren(this=exp.Sub(this=raised, expression=tiny.copy()))


def near_zero(value: float) -> float:
    """Return the result of `rounded_near_zero` for a number."""
    return (value + _TINY) - _TINY


LONGEST_TEXT = 1_000_000  # bytes in UTF-8; PostgreSQL fails on a pattern in 128 MiB and TRANSLATE of 256 MiB
Family = Literal["integer", "wide", "float", "text", "uuid", "boolean", "date", "timestamp", "zoned"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL dialect of one engine.

    Attributes:
        longest_name: number of bytes of a name that it reads, or None if all. Longer names may collide.
    """

    dialect: str
    double: str
    string: str
    moment: str
    families: Mapping[str, Family] = field(repr=False)
    cast_word: str = "TRY_CAST"
    longest_name: int | None = None

    def name(self, name: str) -> str:
        """Return a quoted name."""
        return _quoted(name, self.dialect)

    def is_cut(self, name: str) -> bool:
        """Return True if the engine would truncate this name."""
        return self.longest_name is not None and len(name.encode("utf-8", "replace")) > self.longest_name

    def text(self, value: str) -> str:
        """Return a text constant."""
        return _text_constant(value, self.dialect)

    def constant(self, value: object) -> str:
        """Return a public value of any column type as a constant."""
        if isinstance(value, float):  # through text, which every engine rounds correctly
            return f"CAST('{value + 0.0!r}' AS {self.double})"  # without a negative zero
        if isinstance(value, datetime):
            return f"CAST('{value.isoformat(' ')}' AS {self.moment})"
        if isinstance(value, date):
            return f"CAST('{value.isoformat()}' AS DATE)"
        return self.text(value) if isinstance(value, str) else f"CAST({value} AS BIGINT)"

    def infinity(self, sign: str = "") -> str:
        """Return the infinity of this sign."""
        return f"CAST('{sign}Infinity' AS {self.double})"

    def safe(self, x: str, kind: str) -> str:
        """Return a cast that never fails in DuckDB and Spark; in PostgreSQL the caller's CASE makes it safe."""
        return f"{self.cast_word}({x} AS {kind})"

    def held(self, x: str) -> str:
        """Return text on which no function fails: NULL if it has more than `LONGEST_TEXT` bytes or is not UTF-8.

        The length is tested first: PostgreSQL knows it without reading the text. What DuckDB and PostgreSQL hold is
        UTF-8 already, where their tables were opened.
        """
        word = f"CAST({x} AS {self.string})"
        length = "STRLEN" if self.dialect == "duckdb" else "OCTET_LENGTH"
        readable = f"TRY_VALIDATE_UTF8({word})" if self.dialect == "spark" else word
        return f"CASE WHEN {length}({word}) <= {LONGEST_TEXT} THEN {readable} END"

    def trimmed(self, x: str, of: str = " ") -> str:
        """Return text without these characters at its ends; engines disagree about which others are blank."""
        if self.dialect == "duckdb":
            return f"TRIM({x}, '{of}')"
        if self.dialect == "postgres":
            # An enumeration has no text of its own to trim; a pattern needs a collation that compares by bytes.
            return f"""TRIM('{of}' FROM CAST({x} AS TEXT) COLLATE "C")"""
        return f"TRIM('{of}' FROM {x})"

    def is_like(self, t: str, pattern: str) -> str:
        """Return a condition that a pattern matches the whole text. In Java `$` would accept a trailing line break."""
        if self.dialect == "duckdb":
            return f"REGEXP_FULL_MATCH({t}, '{pattern}')"
        if self.dialect == "postgres":
            return f"{t} ~ '^({pattern})$'"
        anchored = self.text(rf"\A({pattern})\z")
        return f"{t} RLIKE {anchored}"


@lru_cache(maxsize=4096)  # a statement repeats the same few names
def _quoted(name: str, dialect: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect)


@lru_cache(maxsize=4096)
def _text_constant(value: str, dialect: str) -> str:
    return exp.Literal.string(value).sql(dialect)


_COMMON: dict[str, Family] = {
    "boolean": "boolean", "smallint": "integer", "integer": "integer", "bigint": "integer",
    "date": "date", "timestamp with time zone": "zoned",
}  # fmt: skip
_DIALECTS = {
    "duckdb": Dialect("duckdb", "DOUBLE", "VARCHAR", "TIMESTAMP", _COMMON | {
        "tinyint": "integer", "utinyint": "integer", "usmallint": "integer", "uinteger": "integer",
        "ubigint": "wide", "hugeint": "wide", "uhugeint": "wide", "decimal": "wide",
        "float": "float", "double": "float", "varchar": "text", "enum": "text", "uuid": "uuid",
        "timestamp": "timestamp", "timestamp_s": "timestamp", "timestamp_ms": "timestamp", "timestamp_ns": "timestamp",
        "timestamptz_ns": "zoned",
    }),
    "postgres": Dialect("postgres", "DOUBLE PRECISION", "TEXT", "TIMESTAMP", _COMMON | {
        "numeric": "wide", "real": "float", "double precision": "float",
        "text": "text", "character varying": "text", "character": "text", "uuid": "uuid", "enum": "text",
        "citext": "text", "timestamp without time zone": "timestamp",
    }, "CAST", longest_name=63),
    "spark": Dialect("spark", "DOUBLE", "STRING", "TIMESTAMP_NTZ", _COMMON | {
        "tinyint": "integer", "int": "integer", "decimal": "wide", "float": "float", "double": "float",
        "string": "text", "varchar": "text", "char": "text", "timestamp_ntz": "timestamp", "timestamp": "zoned",
    }),
}  # fmt: skip


def dialect_of(dialect: str) -> Dialect:
    """Return the `Dialect` of this name."""
    return _DIALECTS[dialect]


def family(declared: str, say: Dialect) -> Family | None:
    """Return the family of a declared type, or None if no column can be read from it (lists, structures, …)."""
    # character varying(5), timestamp(3) with time zone, string collate UNICODE: the arguments do not matter here.
    plain = re.sub(r"\(.*?\)(?=[^)]*$)", "", declared.lower().replace("\n", " "), count=1)
    if plain.endswith("]"):
        return None
    plain = plain.partition(" collate ")[0]
    return say.families.get(" ".join(plain.split()))


def is_text(found: Family) -> bool:
    """Return True if a column of this family holds text. A UUID is text that is never a number, boolean or date."""
    return found in ("text", "uuid")


def decimals(declared: str, say: Dialect) -> int | None:
    """Return the number of decimal places of a declared type, or None if it states none."""
    if family(declared, say) == "integer":
        return 0
    stated = re.fullmatch(r"(?:decimal|numeric)\([0-9]+, ?([0-9]+)\)", declared.lower())
    return None if stated is None else int(stated.group(1))
