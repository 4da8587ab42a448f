"""Tables in engines, and the public facts about them.

Read in the order of the work:

    schema      public facts: columns, types, bounds, categories, unit of privacy
    strict_yaml  YAML with the line of every value; the only parser of YAML
    schema_file  schema.yaml to a Schema and back
    roles       proposals of roles and regulation tags, from names and types
    draft       a draft schema.yaml, from names and types, or for the owner from values
    engines     DuckDB, PostgreSQL and Spark, behind one Protocol
    dialect     the SQL of each engine
    views       canonical views: every table as its schema describes it, for any cell values
    tables      a source and its schema, opened together
    pinned_files  files held open, so that a changed name does not redirect a read
    charts      Vega-Lite: style and files of every chart
    statistics  bounded integer sums by group, computed in the engine
    distinct    numbers of distinct units and values
    summaries   counts, histograms, marginals, sums and cross products by column names
    private_table  a table for models, under a policy's view: sums over it, or a bounded number of rows per unit
    private_data  the type of a dataset, for the rooms that may not import it
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.data.engines.engine import Engine
    from cloister.data.schema import Column, ForeignKey, Schema, Table
    from cloister.data.tables import Tables, open_tables

__all__ = ["Schema", "Table", "Column", "ForeignKey", "Engine", "Tables", "open_tables"]

__getattr__, __dir__ = door(__name__)
