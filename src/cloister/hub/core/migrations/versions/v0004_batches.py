"""Answers are shown to the collector of a survey in batches. Those that are there have been seen already."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.add_column("submissions", sa.Column("batch", sa.Integer(), nullable=True))
    submissions = sa.table("submissions", sa.column("batch"))
    op.get_bind().execute(sa.update(submissions).values(batch=1))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("submissions", "batch")
