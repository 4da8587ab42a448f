"""Ids of reports that were taken, so that none is counted twice. Reports that were taken before have none here."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "seen_reports",
        sa.Column("survey_id", sa.Integer(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["survey_id"], ["surveys.id"], name="fk_seen_reports_survey_id"),
        sa.PrimaryKeyConstraint("survey_id", "wave", "id", name="pk_seen_reports"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("seen_reports")
