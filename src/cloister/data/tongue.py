"""How each engine says things: quoted names, constants, safe casts, patterns, and what its declared types hold.

Every method gives SQL text; `x` and `t` stand for SQL text too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

from sqlglot import exp

__all__ = ["Family", "Tongue", "decimals", "family", "tongue"]

Family = Literal["integer", "wide", "float", "text", "boolean", "date", "timestamp", "zoned"]


@dataclass(frozen=True, slots=True)
class Tongue:
    """The words of one engine.

    Attributes:
        longest_name: how many bytes of a name it reads; None: all of them. Two names may become one beyond.
    """

    dialect: str
    double: str
    string: str
    moment: str
    families: Mapping[str, Family] = field(repr=False)
    cast_word: str = "TRY_CAST"
    longest_name: int | None = None

    def name(self, name: str) -> str:
        """A quoted name."""
        return exp.to_identifier(name, quoted=True).sql(self.dialect)

    def is_cut(self, name: str) -> bool:
        """Whether it would read a part of this name only."""
        return self.longest_name is not None and len(name.encode("utf-8", "replace")) > self.longest_name

    def text(self, value: str) -> str:
        """A text constant."""
        return exp.Literal.string(value).sql(self.dialect)

    def constant(self, value: object) -> str:
        """A public value of any column type."""
        if isinstance(value, float):  # through text, which every engine rounds correctly
            return f"CAST('{value + 0.0!r}' AS {self.double})"  # without a negative zero
        if isinstance(value, datetime):
            return f"CAST('{value.isoformat(' ')}' AS {self.moment})"
        if isinstance(value, date):
            return f"CAST('{value.isoformat()}' AS DATE)"
        return self.text(value) if isinstance(value, str) else f"CAST({value} AS BIGINT)"

    def infinity(self, sign: str = "") -> str:
        """Beyond every double."""
        return f"CAST('{sign}Infinity' AS {self.double})"

    def safe(self, x: str, kind: str) -> str:
        """A cast that never fails in DuckDB and Spark; in PostgreSQL a CASE around it has made it safe."""
        return f"{self.cast_word}({x} AS {kind})"

    def trimmed(self, x: str, of: str = " ") -> str:
        """Text without these characters at its ends; engines disagree about what else is blank."""
        return f"TRIM({x}, '{of}')" if self.dialect == "duckdb" else f"TRIM('{of}' FROM {x})"

    def is_like(self, t: str, pattern: str) -> str:
        """Whether all of a text matches a pattern. In Java `$` would let a line break pass."""
        if self.dialect == "duckdb":
            return f"REGEXP_FULL_MATCH({t}, '{pattern}')"
        if self.dialect == "postgres":
            return f"{t} ~ '^({pattern})$'"
        whole = self.text(rf"\A({pattern})\z")
        return f"{t} RLIKE {whole}"


_COMMON: dict[str, Family] = {
    "boolean": "boolean", "smallint": "integer", "integer": "integer", "bigint": "integer",
    "date": "date", "timestamp with time zone": "zoned",
}  # fmt: skip
_TONGUES = {
    "duckdb": Tongue("duckdb", "DOUBLE", "VARCHAR", "TIMESTAMP", _COMMON | {
        "tinyint": "integer", "utinyint": "integer", "usmallint": "integer", "uinteger": "integer",
        "ubigint": "wide", "hugeint": "wide", "uhugeint": "wide", "decimal": "wide",
        "float": "float", "double": "float", "varchar": "text", "enum": "text", "uuid": "text",
        "timestamp": "timestamp", "timestamp_s": "timestamp", "timestamp_ms": "timestamp", "timestamp_ns": "timestamp",
        "timestamptz_ns": "zoned",
    }),
    "postgres": Tongue("postgres", "DOUBLE PRECISION", "TEXT", "TIMESTAMP", _COMMON | {
        "numeric": "wide", "real": "float", "double precision": "float",
        "text": "text", "character varying": "text", "character": "text", "uuid": "text", "enum": "text",
        "citext": "text", "timestamp without time zone": "timestamp",
    }, "CAST", longest_name=63),
    "spark": Tongue("spark", "DOUBLE", "STRING", "TIMESTAMP_NTZ", _COMMON | {
        "tinyint": "integer", "int": "integer", "decimal": "wide", "float": "float", "double": "float",
        "string": "text", "varchar": "text", "char": "text", "timestamp_ntz": "timestamp", "timestamp": "zoned",
    }),
}  # fmt: skip


def tongue(dialect: str) -> Tongue:
    """The words of a dialect."""
    return _TONGUES[dialect]


def family(declared: str, say: Tongue) -> Family | None:
    """What kind of values a declared type holds, or None if no column can be read from it (lists, structures, …)."""
    # character varying(5), timestamp(3) with time zone, string collate UNICODE: the arguments do not matter here.
    plain = re.sub(r"\(.*?\)(?=[^)]*$)", "", declared.lower().replace("\n", " "), count=1)
    if plain.endswith("]"):
        return None
    plain = plain.partition(" collate ")[0]
    return say.families.get(" ".join(plain.split()))


def decimals(declared: str, say: Tongue) -> int | None:
    """How many digits behind the point the numbers of a declared type have; None if it does not say."""
    if family(declared, say) == "integer":
        return 0
    stated = re.fullmatch(r"(?:decimal|numeric)\([0-9]+, ?([0-9]+)\)", declared.lower())
    return None if stated is None else int(stated.group(1))
