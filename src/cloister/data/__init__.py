"""Tables in engines, and the public facts about them.

Read in the order of the work:

    schema      public facts: columns, types, bounds, categories, unit of privacy
    strict_yaml  YAML with the line of every value; the only parser of YAML
    schema_file  schema.yaml to a Schema and back
    draft       a draft schema.yaml, from names and types, or for the owner from values
    engines     DuckDB, PostgreSQL and Spark, behind one Protocol
    dialect     the SQL of each engine
    views       canonical views: every table as its schema describes it, for any cell values
    tables      a source and its schema, opened together
    pinned_files  files held open, so that a changed name does not redirect a read
    charts      Vega-Lite: style and files of every chart
    statistics  bounded integer sums by group, computed in the engine
    summaries   counts, histograms, marginals, sums and cross products by column names
    private_table  a table for models, under a policy's view: sums over it, or a bounded number of rows per unit
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
    """Import a name from its module on first use, so that reading a schema does not load the SQL parser."""
    if name not in _HOMES:
        raise AttributeError(f"cloister.data has no {name!r}. It offers: {', '.join(__all__)}.")
    value: object = getattr(import_module(f"cloister.data.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
