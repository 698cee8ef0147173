"""No query looks for the past jobs of a user, a name or a script any more."""

from rlalloc.store.migrations.additions import drop_index

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Drop the indexes that served them."""
    for name in ("past_jobs_by_user", "past_jobs_by_name", "past_jobs_by_script"):
        drop_index(name, "past_jobs")
