"""Triggers with which SQLite and PostgreSQL refuse to change the audit log.

They stop mistakes and stolen credentials of the hub, but not the database's administrator; the chain of hashes and the
signed heads detect changes by the administrator.
"""

from typing import Any

import sqlalchemy as sa

from cloister.hub.core.models import AuditEntry

__all__ = ["protect", "unprotect"]

_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END"
_SQLITE = (
    f"CREATE TRIGGER IF NOT EXISTS audit_no_update BEFORE UPDATE ON audit {_REFUSE}",
    f"CREATE TRIGGER IF NOT EXISTS audit_no_delete BEFORE DELETE ON audit {_REFUSE}",
    # REPLACE INTO deletes without firing the trigger above: a number is only ever the next one.
    "CREATE TRIGGER IF NOT EXISTS audit_in_order BEFORE INSERT ON audit WHEN NEW.number <= "
    "(SELECT MAX(number) FROM audit) BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END",
)
_POSTGRES = (
    "CREATE OR REPLACE FUNCTION audit_never_changes() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit log is never changed'; END $$",
    "DROP TRIGGER IF EXISTS audit_never_changes ON audit",
    "CREATE TRIGGER audit_never_changes BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_never_changes()",
)
_UNDO = {
    "sqlite": tuple(f"DROP TRIGGER IF EXISTS audit_{name}" for name in ("no_update", "no_delete", "in_order")),
    "postgresql": ("DROP TRIGGER IF EXISTS audit_never_changes ON audit",),
}
_DO = {"sqlite": _SQLITE, "postgresql": _POSTGRES}


def protect(connection: sa.Connection) -> None:
    """Add the triggers. A migration calls this after it has created the table (`op.get_bind()`). Idempotent."""
    for command in _DO[connection.dialect.name]:
        connection.exec_driver_sql(command)


def unprotect(connection: sa.Connection) -> None:
    """Remove the triggers, for a migration that must alter the table and then protect it again."""
    for command in _UNDO[connection.dialect.name]:
        connection.exec_driver_sql(command)


@sa.event.listens_for(AuditEntry.__table__, "after_create")
def _created(_: sa.Table, connection: sa.Connection, **__: Any) -> None:
    protect(connection)
