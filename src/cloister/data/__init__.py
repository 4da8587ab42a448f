"""Tables in engines, and what is public about them.

Read in the order of the work:

    schema      public facts: columns, types, bounds, categories, whom we protect
    reader      schema.yaml to a Schema and back
    draft       a first schema.yaml, from names and types, or for the owner from values
    engines     where rows live: DuckDB, PostgreSQL, Spark, behind one Protocol
    tongue      how each of them says things
    views       every table as its schema says it is, whatever the cells hold
    tables      a source and its schema, opened together
    pinned_files  files held open, so that a name that changes leads nowhere else
    statistics  bounded integer sums by group, computed where the rows live
    summaries   counts, histograms, marginals, sums and cross products by column names
    relation    a table as somebody may see it, for models: sums over it, or its rows, so many of each unit
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloister.data.engines.engine import Engine
    from cloister.data.schema import Column, ForeignKey, Schema, Table
    from cloister.data.tables import Tables, open_tables

__all__ = ["Schema", "Table", "Column", "ForeignKey", "Engine", "Tables", "open_tables"]

_HOMES = {
    "Schema": "schema",
    "Table": "schema",
    "Column": "schema",
    "ForeignKey": "schema",
    "Engine": "engines.engine",
    "Tables": "tables",
    "open_tables": "tables",
}


def __getattr__(name: str) -> object:
    """Fetch a name from its home the first time it is asked for: the SQL parser is not loaded to read a schema."""
    if name not in _HOMES:
        raise AttributeError(f"cloister.data has no {name!r}. It offers: {', '.join(__all__)}.")
    value: object = getattr(import_module(f"cloister.data.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
