"""What past jobs used on a node and were given by rlalloc, and which ends of jobs were rlalloc's doing."""

import sqlalchemy as sa

from rlalloc.store.migrations.additions import add_columns, add_index

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns; NULL where it is not known, where rlalloc changed nothing, and where an end was not its doing.

    ``allotted`` is JSON.
    """
    add_columns("past_jobs", sa.Column("node_rss_mib", sa.Double), sa.Column("allotted", sa.Text))
    add_columns("outcomes", sa.Column("our_doing", sa.String(32)))
    add_index("outcomes_of_our_doing", "outcomes", "our_doing")
