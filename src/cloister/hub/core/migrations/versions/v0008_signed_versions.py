"""Signatures of the versions of a dataset's tables. The hub signs those that are there when it is opened."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. No key is at hand here: see `catch_up` in core/signed_state.py."""
    op.add_column("versions", sa.Column("signature", sa.Text(), nullable=True))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("versions", "signature")
