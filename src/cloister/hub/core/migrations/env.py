"""Alembic's environment: the target tables, and a lock so that one process migrates at a time.

Web processes and workers start at the same time and all migrate; one of them does it, the others wait.
"""

from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.migration import MigrationContext

from cloister.hub.core import models
from cloister.hub.core.database import Base

_LOCK = 0x636C6F6D696772  # any constant will do, if all migrations use the same


def migrate(connection: sa.Connection) -> None:
    """Apply the missing migrations in one transaction."""
    if _is_there(connection):
        return
    _lock(connection)
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        transactional_ddl=True,  # SQLite too, since we begin transactions ourselves
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _is_there(connection: sa.Connection) -> bool:
    """Return True if no migration is missing; checked without a lock, since that is the usual case."""
    heads = MigrationContext.configure(connection).get_current_heads()
    connection.rollback()
    wanted: Any = context.get_revision_argument() or ()
    return set(heads) == ({wanted} if isinstance(wanted, str) else set(wanted))


def _lock(connection: sa.Connection) -> None:
    """Lock out other migrations until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    else:
        connection.execution_options(cloister_writing=True)  # BEGIN IMMEDIATE: see database.py
        connection.begin()


assert models.ROLES  # the tables are known to Base once they are loaded
migrate(context.config.attributes["connection"])
