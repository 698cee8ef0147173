"""Which of several rlallocd acts: one row, changed by compare-and-swap."""

import sqlalchemy as sa
from alembic import op

from rlalloc.store.migrations.additions import add_table

revision = "0009"
down_revision = "0008"

_LEASES = sa.Table(
    "leases",
    sa.MetaData(),
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("holder", sa.String(255), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("renewals", sa.Integer, nullable=False),
    sa.Column("lasts_s", sa.Double, nullable=False),
    sa.Column("renewed_s", sa.Double, nullable=False),
    sa.Column("seal_key", sa.String(64), nullable=False),
)


def upgrade() -> None:
    """Add the table with its row, which nobody holds."""
    add_table(_LEASES)
    row: dict[str, str | float] = {"name": "rlallocd", "holder": "", "epoch": 0, "renewals": 0, "lasts_s": 0.0}
    row |= {"renewed_s": 0.0, "seal_key": ""}
    if op.get_bind().execute(sa.select(_LEASES.c.name)).first() is None:
        op.get_bind().execute(sa.insert(_LEASES), [row])
