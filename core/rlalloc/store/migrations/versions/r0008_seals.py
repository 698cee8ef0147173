"""Entries of the journal have a seal, by which rlallocd knows its own."""

import sqlalchemy as sa

from rlalloc.store.migrations.additions import add_columns

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column; rlallocd fills it when it makes its key, at its first start afterwards."""
    add_columns("applications", sa.Column("seal", sa.String(64)))
