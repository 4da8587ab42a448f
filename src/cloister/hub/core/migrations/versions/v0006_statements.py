"""Take the engine's statements out of kept plans: they name columns and rules that the asker's view may hide."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Remove them. Plans made from now on hold them only for whoever sees the tables whole."""
    jobs = sa.table("jobs", sa.column("id", sa.Integer), sa.column("plan", sa.JSON))
    bind = op.get_bind()
    numbers = list(bind.execute(sa.select(jobs.c.id).order_by(jobs.c.id)).scalars())
    for number in numbers:  # one at a time: plans may be long
        plan = bind.execute(sa.select(jobs.c.plan).where(jobs.c.id == number)).scalar_one()
        if isinstance(plan, dict) and plan.get("statements"):
            bind.execute(sa.update(jobs).where(jobs.c.id == number).values(plan={**plan, "statements": []}))


def downgrade() -> None:
    """Leave them out: they cannot be made again."""
