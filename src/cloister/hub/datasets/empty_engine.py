"""Tables of a version without rows, keys or connections, for plans.

A plan depends only on the schema, the declared types and the engine's dialect. All of that was recorded when the
version was prepared, so the web processes plan without access to any row.
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
    """Engine that knows names and declared types, and runs nothing."""

    def __init__(self, dialect: DialectName, declared: Mapping[str, Mapping[str, str]]) -> None:
        self._dialect = dialect
        self._declared = declared

    @property
    def dialect(self) -> DialectName:
        """SQL dialect of the real engine."""
        return self._dialect

    def tables(self) -> list[str]:
        """Return the names of the tables."""
        return list(self._declared)

    def columns(self, table: str) -> dict[str, str]:
        """Return names and declared types, as the real engine gave them."""
        return dict(self._declared.get(table, {}))

    def place(self, table: str) -> str:
        """Return the quoted name."""
        return dialect_of(self._dialect).name(table)

    def prepare(self, sql: str) -> None:
        """Do nothing: there is no engine."""

    def run(self, sql: str) -> "pa.Table":
        """Refuse: there is nothing to run it on."""
        raise EngineFailed("this copy of the tables is for plans and has no rows. Work runs in a worker.")

    def again(self) -> "EmptyEngine":
        """Return itself: it has no state."""
        return self

    def close(self) -> None:
        """Do nothing: nothing is open."""


def twin_of(schema: Schema, dialect: DialectName, declared: Mapping[str, Mapping[str, str]]) -> Tables:
    """Return tables without rows, whose views are the same text as those of the real ones."""
    say = dialect_of(dialect)
    families = {
        table: {name: found for name, kind in columns.items() if (found := family(kind, say)) is not None}
        for table, columns in declared.items()
    }
    named = [(table.name, table.unit) for table in schema.tables.values() if table.unit is not None]
    return Tables(
        EmptyEngine(dialect, declared), schema, any(is_text(families[name][unit]) for name, unit in named), families
    )
