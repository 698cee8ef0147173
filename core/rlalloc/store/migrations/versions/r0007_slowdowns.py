"""Decisions keep by how much their job was expected to become slower in its new size."""

import sqlalchemy as sa

from rlalloc.store.migrations.additions import add_columns

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column: the expectation, what the time limit allows for and what both rest on, as JSON."""
    add_columns("decisions", sa.Column("slowdown", sa.Text))
