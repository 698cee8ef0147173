"""Decisions keep how long their job was expected to run."""

import sqlalchemy as sa

from rlalloc.store.migrations.additions import add_columns

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column: quantiles and what they rest on, as JSON; NULL where only the time limit was known."""
    add_columns("decisions", sa.Column("run_time", sa.Text))
