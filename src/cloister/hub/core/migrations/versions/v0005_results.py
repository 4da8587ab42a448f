"""How large results are, and which are the same."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("jobs", sa.Column("size", sa.BigInteger(), nullable=True))
    op.add_column("jobs", sa.Column("digest", sa.String(length=64), nullable=True))
    jobs = sa.table("jobs", sa.column("size"), sa.column("result"))
    length = sa.func.length(sa.cast(jobs.c.result, sa.Text()))
    op.get_bind().execute(sa.update(jobs).where(jobs.c.result.is_not(None)).values(size=length))


def downgrade() -> None:
    """Remove them."""
    op.drop_column("jobs", "digest")
    op.drop_column("jobs", "size")
