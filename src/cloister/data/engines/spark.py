"""Spark: rows stay on the cluster; statements run in the session of the DataFrames."""

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from cloister.data.dialect import dialect_of
from cloister.data.engines.engine import DialectName, failing_quietly

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Spark"]

_NUMBERS = itertools.count(1)
_SETTINGS = {
    "spark.sql.variable.substitute": "false",  # or '${env:HOME}' in a text constant would be replaced
    "spark.sql.parser.escapedStringLiterals": "false",  # how our text constants are written
}


class Spark:
    """Some DataFrames of one Spark session.

    Two settings of the session (how text constants are read) are changed until `close`.

    Args:
        frames: the DataFrames, by table name.
    """

    dialect: ClassVar[DialectName] = "spark"

    @failing_quietly("Spark")
    def __init__(self, frames: Mapping[str, Any]) -> None:
        self._say, self._lock = dialect_of("spark"), threading.Lock()
        self._frames, number = dict(frames), next(_NUMBERS)
        self._views = {name: f"cloister_{number}_{i}" for i, name in enumerate(self._frames)}
        self._session = next(iter(self._frames.values())).sparkSession
        self._before = {setting: self._session.conf.get(setting) for setting in _SETTINGS}
        for setting, value in _SETTINGS.items():
            self._session.conf.set(setting, value)
        for name, frame in self._frames.items():
            frame.createOrReplaceTempView(self._views[name])

    def again(self) -> "Spark":
        """Return separate views on the same DataFrames, in the same session."""
        return Spark(self._frames)

    def tables(self) -> list[str]:
        """Return the names of the tables added."""
        return list(self._frames)

    @failing_quietly("Spark")
    def columns(self, table: str) -> dict[str, str]:
        """Return names and declared types."""
        return dict(self._frames[table].dtypes) if table in self._frames else {}

    def place(self, table: str) -> str:
        """Return the temporary view of the table."""
        return self._say.name(self._views[table])

    def failing(self, table: str, readers: Mapping[str, Callable[[str], str]]) -> list[str]:
        """Return none: a job takes long. Every type is tried in tests/e2e/test_engines.py."""
        return []

    def prepare(self, sql: str) -> None:
        """Do nothing: Spark may read files to plan."""

    @failing_quietly("Spark")
    def run(self, sql: str) -> "pa.Table":
        """Run one SELECT and return its result."""
        with self._lock, _silent():
            table: pa.Table = self._session.sql(sql).toArrow()
            return table

    @failing_quietly("Spark")
    def close(self) -> None:
        """Drop the temporary views and restore the settings; the session stays open."""
        for name in self._views.values():
            self._session.catalog.dropTempView(name)
        for setting, value in self._before.items():
            self._session.conf.set(setting, value)


class _silent:  # noqa: N801
    """Keep PySpark's own logger from printing an error with its rows before it is caught."""

    def __enter__(self) -> None:
        for logger in _loggers():
            logger.addFilter(_nothing)

    def __exit__(self, *_: object) -> None:
        for logger in _loggers():
            logger.removeFilter(_nothing)


def _loggers() -> list[logging.Logger]:
    from pyspark.logger import PySparkLogger  # created as PySpark would: another class of logger would break its calls

    return [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]


def _nothing(record: logging.LogRecord) -> bool:
    return False
