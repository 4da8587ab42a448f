"""Surveys, invitations, submissions."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "surveys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("consent", sa.Text(), nullable=False),
        sa.Column("language", sa.String(length=2), nullable=False),
        sa.Column("owner_id", sa.Integer(), nullable=False),
        sa.Column("target", sa.Integer(), nullable=False),
        sa.Column("ends", sa.Double(), nullable=True),
        sa.Column("invited", sa.Boolean(), nullable=False),
        sa.Column("lasting", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("questions", sa.JSON(), nullable=False),
        sa.Column("ballot_key", sa.LargeBinary(), nullable=True),
        sa.Column("ballot_public", sa.JSON(), nullable=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("opened", sa.Double(), nullable=True),
        sa.Column("closed", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["owner_id"], ["people.id"], name="fk_surveys_owner_id"),
        sa.PrimaryKeyConstraint("id", name="pk_surveys"),
        sa.UniqueConstraint("name", name="uq_surveys_name"),
    )
    op.create_index("ix_surveys_owner_id", "surveys", ["owner_id"])
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("survey_id", sa.Integer(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("blinded", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["survey_id"], ["surveys.id"], name="fk_invitations_survey_id"),
        sa.PrimaryKeyConstraint("id", name="pk_invitations"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_invitations_survey_id", "invitations", ["survey_id"])
    op.create_table(
        "submissions",
        sa.Column("survey_id", sa.Integer(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("reports", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["survey_id"], ["surveys.id"], name="fk_submissions_survey_id"),
        sa.PrimaryKeyConstraint("survey_id", "wave", "id", name="pk_submissions"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "refusals",
        sa.Column("survey_id", sa.Integer(), nullable=False),
        sa.Column("wave", sa.Integer(), nullable=False),
        sa.Column("reason", sa.String(length=40), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["survey_id"], ["surveys.id"], name="fk_refusals_survey_id"),
        sa.PrimaryKeyConstraint("survey_id", "wave", "reason", name="pk_refusals"),
    )


def downgrade() -> None:
    """Remove them."""
    for name in ("refusals", "submissions", "invitations", "surveys"):
        op.drop_table(name)
