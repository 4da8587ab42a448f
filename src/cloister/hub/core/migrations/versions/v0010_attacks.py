"""Attacks that owners run on what was made from their datasets."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "attacks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("progress", sa.Double(), nullable=False),
        sa.Column("stage", sa.String(length=200), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("facts", sa.LargeBinary(), nullable=True),
        sa.Column("report", sa.LargeBinary(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("finished", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_attacks_dataset_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_attacks_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attacks")),
    )
    op.create_index("ix_attacks_dataset_id", "attacks", ["dataset_id"])
    op.create_index("ix_attacks_state", "attacks", ["state"])


def downgrade() -> None:
    """Remove it."""
    op.drop_index("ix_attacks_state", "attacks")
    op.drop_index("ix_attacks_dataset_id", "attacks")
    op.drop_table("attacks")
