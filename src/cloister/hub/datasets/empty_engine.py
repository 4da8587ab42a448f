"""A version's twin: its tables as plans see them, without a row, a key or a connection.

A plan depends on the schema, the declared types and the engine's dialect, and on nothing else. All of that was written
down when the version was prepared, so the web processes plan without being able to read anything.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cloister.data.dialect import dialect_of, family, is_text
from cloister.data.engines.engine import DialectName
from cloister.data.schema import Schema
from cloister.data.tables import Tables
from cloister.privacy.errors import EngineFailed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EmptyEngine", "twin_of"]


class EmptyEngine:
    """An engine that knows names and declared types, and runs nothing."""

    def __init__(self, dialect: DialectName, declared: Mapping[str, Mapping[str, str]]) -> None:
        self._dialect = dialect
        self._declared = declared

    @property
    def dialect(self) -> DialectName:
        """Which SQL the real engine speaks."""
        return self._dialect

    def tables(self) -> list[str]:
        """The names of the tables."""
        return list(self._declared)

    def columns(self, table: str) -> dict[str, str]:
        """Names and declared types, as the real engine gave them."""
        return dict(self._declared.get(table, {}))

    def place(self, table: str) -> str:
        """The quoted name."""
        return dialect_of(self._dialect).name(table)

    def prepare(self, sql: str) -> None:
        """Nothing: there is no engine to ask."""

    def run(self, sql: str) -> "pa.Table":
        """There is nothing to run it on."""
        raise EngineFailed("this copy of the tables is for plans and has no rows. Work runs in a worker.")

    def again(self) -> "EmptyEngine":
        """There is nothing that one could see of another."""
        return self

    def close(self) -> None:
        """Nothing is open."""


def twin_of(schema: Schema, dialect: DialectName, declared: Mapping[str, Mapping[str, str]]) -> Tables:
    """Tables without rows, whose views are the same text as those of the real ones."""
    say = dialect_of(dialect)
    families = {
        table: {name: found for name, kind in columns.items() if (found := family(kind, say)) is not None}
        for table, columns in declared.items()
    }
    named = [(table.name, table.unit) for table in schema.tables.values() if table.unit is not None]
    return Tables(
        EmptyEngine(dialect, declared), schema, any(is_text(families[name][unit]) for name, unit in named), families
    )
