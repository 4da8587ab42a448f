"""Outputs of jobs that people look at before the requester gets them, and the output that a reviewer saw."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both."""
    op.add_column("decisions", sa.Column("digest", sa.String(length=64), nullable=True))
    op.create_table(
        "outputs",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("facts", sa.LargeBinary(), nullable=True),
        sa.Column("released", sa.Double(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_outputs_dataset_id")),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_outputs_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_outputs")),
    )
    op.create_index("ix_outputs_dataset_id", "outputs", ["dataset_id"])


def downgrade() -> None:
    """Remove both."""
    op.drop_index("ix_outputs_dataset_id", "outputs")
    op.drop_table("outputs")
    op.drop_column("decisions", "digest")
