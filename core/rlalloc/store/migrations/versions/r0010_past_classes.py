"""Which class of LLM job a past job was."""

import sqlalchemy as sa

from rlalloc.store.migrations.additions import add_columns

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column, empty for the jobs that are there: their class is not known."""
    add_columns("past_jobs", sa.Column("job_class", sa.String(16), nullable=False, server_default=""))
