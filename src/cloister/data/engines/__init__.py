"""Engines: DuckDB in this process, PostgreSQL at an address, Spark on a cluster. Each is imported on first use."""

from cloister.data.engines.engine import DialectName, Engine

__all__ = ["DialectName", "Engine"]
