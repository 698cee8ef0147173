"""What runs again and again finds its rows by an index: open jobs, the latest decisions, what was begun lately."""

from alembic import op
from sqlalchemy import Column, Integer, text

from rlalloc.store.migrations.additions import add_columns, add_index, drop_index

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Note in each decision whether its job's outcome is awaited, and add indexes."""
    add_columns("decisions", Column("awaits_outcome", Integer, nullable=False, server_default="1"))
    op.get_bind().execute(
        text(
            "UPDATE decisions SET awaits_outcome = 0 WHERE EXISTS ("
            "SELECT 1 FROM decisions AS other JOIN outcomes ON outcomes.decision_id = other.id "
            "WHERE other.job_id = decisions.job_id AND other.submitted_s = decisions.submitted_s)"
        )
    )
    add_index("decisions_by_time", "decisions", "decided_s", "id")
    add_index("decisions_awaiting_outcome", "decisions", "awaits_outcome", "decided_s", "id")
    add_index("applications_by_decision", "applications", "decision_id")
    add_index("applications_by_state_and_time", "applications", "state", "changed_s")
    drop_index("applications_by_state", "applications")
