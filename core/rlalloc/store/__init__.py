"""The experience store: SQLAlchemy Core; SQLite in WAL mode by default, MariaDB or PostgreSQL by URL.

What is written here is on disk when the call returns: the daemon may be killed at any point. A program that writes
brings the store to the newest revision (rlalloc.store.migrations); one that reads changes nothing.
"""

from rlalloc.store.access import OldDecision, Store
from rlalloc.store.encoding import UnreadableRow
from rlalloc.store.lease_access import Lease
from rlalloc.store.outcome_access import JobsPage
from rlalloc.store.past_jobs_access import History
from rlalloc.store.row_access import JobKey, Position
from rlalloc.store.rows import (
    OPEN_STATES,
    Application,
    ApplicationState,
    Circumstances,
    Decision,
    Experience,
    JobHistory,
    Outcome,
    PolicyRow,
)

__all__ = [
    "OPEN_STATES",
    "Application",
    "ApplicationState",
    "Circumstances",
    "Decision",
    "Experience",
    "History",
    "JobHistory",
    "JobKey",
    "JobsPage",
    "Lease",
    "OldDecision",
    "Outcome",
    "PolicyRow",
    "Position",
    "Store",
    "UnreadableRow",
]
