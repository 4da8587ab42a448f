"""Signatures of the versions of a dataset's tables, and an index of the space that a person's results take."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both. No key is at hand here: the hub signs when it is opened (`catch_up` in core/signed_state.py)."""
    op.add_column("versions", sa.Column("signature", sa.Text(), nullable=True))
    op.create_index("jobs_by_size", "jobs", ["person_id", "state", "size"])


def downgrade() -> None:
    """Remove both."""
    op.drop_index("jobs_by_size", "jobs")
    op.drop_column("versions", "signature")
