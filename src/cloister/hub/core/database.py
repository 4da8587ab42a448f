"""The hub's own database: users, policies, jobs, decisions. It never holds rows of a dataset.

SQLite in the hub's folder, unless CLOISTER_DATABASE_URL names a PostgreSQL database.

In both, transactions that write take turns: what one of them has read is still so when it writes. So a check and the
change that relies on it belong into one transaction, and need no locks of rows.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Session, sessionmaker

__all__ = ["Base", "Database", "now"]

# A number of our own for PostgreSQL's advisory locks: "clohubtu". Not the ledger's, which is charged inside such a
# transaction and may be in the same database.
_TURN = 0x636C6F6875627475


class Base(DeclarativeBase):
    """Base class of every table of the hub."""

    # Every constraint has a name, so that a later migration can change it in SQLite too.
    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def now() -> float:
    """Return the time in seconds since 1970 (UTC), as every time is stored."""
    return time.time()


class Database:
    """Connection to the hub's tables.

    Args:
        url: an SQLAlchemy address: sqlite:///… or postgresql+psycopg://….
    """

    def __init__(self, url: str) -> None:
        self.url = url
        sqlite = url.startswith("sqlite")
        options: dict[str, Any] = {"connect_args": {"timeout": 30}} if sqlite else {"pool_pre_ping": True}
        # Parameters are answers, addresses and hashes: an error must not quote them.
        self.engine = sa.create_engine(url, pool_size=20, max_overflow=20, hide_parameters=True, **options)
        if sqlite:
            sa.event.listen(self.engine, "connect", _prepare_sqlite)
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        self._sessions = sessionmaker(self.engine, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Open a session for reading."""
        with self._sessions() as session:
            yield session
            session.expunge_all()  # a rollback would expire the loaded objects, which pages still use
            session.rollback()

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Open a transaction, when no other one writes; keep it short."""
        with self._sessions() as session, session.begin():
            connection = session.connection(execution_options={"cloister_writing": True})
            if connection.dialect.name == "postgresql":  # SQLite has one writer at a time: see `_begin_sqlite`
                # Each statement sees what was committed before it, so all that follow see what earlier writers did.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_TURN)))
            yield session

    def migrate(self) -> None:
        """Migrate the tables to this version."""
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with self.engine.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # we begin ourselves, below
    for statement in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 30000"):
        connection.execute(f"PRAGMA {statement}")


def _begin_sqlite(connection: Any) -> None:
    # A reader that becomes a writer later could fail because another writer was faster: take the lock at the start.
    writing = connection.get_execution_options().get("cloister_writing")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
