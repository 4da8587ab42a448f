"""Alembic's way in: which tables there should be, and who may change them now.

Pages and workers start at the same moment and all ask for the newest shape; one of them makes it, the others wait.
"""

from typing import Any

import sqlalchemy as sa
from alembic import context
from alembic.migration import MigrationContext

from cloister.hub.core import models
from cloister.hub.core.database import Base

_LOCK = 0x636C6F6D696772  # any constant will do, if all migrations use the same


def migrate(connection: sa.Connection) -> None:
    """Take the steps that are missing, in one transaction."""
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
    """Whether there is no step to take; asked without a lock, since it is nearly always so."""
    found = MigrationContext.configure(connection).get_current_heads()
    connection.rollback()
    wanted: Any = context.get_revision_argument() or ()
    return set(found) == ({wanted} if isinstance(wanted, str) else set(wanted))


def _lock(connection: sa.Connection) -> None:
    """Nobody else migrates until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    else:
        connection.execution_options(cloister_writing=True)  # BEGIN IMMEDIATE: see database.py
        connection.begin()


assert models.ROLES  # the tables are known to Base once they are loaded
migrate(context.config.attributes["connection"])
