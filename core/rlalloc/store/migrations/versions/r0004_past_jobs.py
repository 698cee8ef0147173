"""Jobs that have ended, and how far each source of them has been read."""

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import VARCHAR

from rlalloc.store.migrations.additions import add_table

revision = "0004"
down_revision = "0003"


def _any_text(characters: int) -> sa.String:
    """Any text, also where the database's own character set is narrower (MariaDB)."""
    wide = VARCHAR(characters, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(characters).with_variant(wide, "mysql", "mariadb")


PAST_JOBS: Final = sa.Table(
    "past_jobs",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("job_id", _any_text(32), nullable=False),
    sa.Column("user", _any_text(64), nullable=False),
    sa.Column("submitted_s", sa.Double, nullable=False),
    sa.Column("started_s", sa.Double, nullable=False),
    sa.Column("ended_s", sa.Double, nullable=False),
    sa.Column("state", _any_text(24), nullable=False),
    sa.Column("nodes", sa.Integer, nullable=False),
    sa.Column("cpus", sa.Integer, nullable=False),
    sa.Column("gpus", sa.Integer, nullable=False),
    sa.Column("mem_mib", sa.Double, nullable=False),
    sa.Column("limit_s", sa.Double),
    sa.Column("eligible_s", sa.Double),
    sa.Column("account", _any_text(64), nullable=False),
    sa.Column("partition", _any_text(64), nullable=False),
    sa.Column("qos", _any_text(64), nullable=False),
    sa.Column("name", _any_text(128), nullable=False),
    sa.Column("script", _any_text(64), nullable=False),
    sa.Column("max_rss_mib", sa.Double),
    sa.Column("cpu_s_used", sa.Double),
    sa.Index("past_jobs_of_job", "job_id", "submitted_s", unique=True),
    sa.Index("past_jobs_by_end", "ended_s", "id"),
    sa.Index("past_jobs_by_user", "user", "ended_s"),
    sa.Index("past_jobs_by_name", "user", "name", "ended_s"),
    sa.Index("past_jobs_by_script", "script", "ended_s"),
)

HISTORY_READS: Final = sa.Table(
    "history_reads",
    sa.MetaData(),
    sa.Column("source", sa.String(64), primary_key=True),
    sa.Column("position", sa.Double, nullable=False),
)


def upgrade() -> None:
    """Add both tables."""
    add_table(PAST_JOBS)
    add_table(HISTORY_READS)
