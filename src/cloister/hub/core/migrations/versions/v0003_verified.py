"""Verified e-mail addresses: those of invited people are, those that people claimed themselves are not."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. Whoever came by an invitation for their address has verified it."""
    op.add_column("people", sa.Column("verified", sa.Double(), nullable=True))
    op.add_column("people", sa.Column("verify_asked", sa.Double(), nullable=True))
    people = sa.table("people", sa.column("id"), sa.column("email"), sa.column("created"), sa.column("verified"))
    links = sa.table("links", sa.column("purpose"), sa.column("detail", sa.JSON()), sa.column("used"))
    connection = op.get_bind()
    used = sa.select(links.c.detail).where(links.c.purpose == "invitation", links.c.used.is_not(None))
    invited = {str(row.detail.get("email")) for row in connection.execute(used)}
    for row in connection.execute(sa.select(people.c.id, people.c.email, people.c.created)).all():
        if row.email in invited:
            mine = sa.update(people).where(people.c.id == row.id)
            connection.execute(mine.values(verified=row.created))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("people", "verify_asked")
    op.drop_column("people", "verified")
