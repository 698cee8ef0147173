"""The experience store: SQLAlchemy Core; SQLite in WAL mode by default, MariaDB or PostgreSQL by URL.

What is written here is on disk when the call returns: the daemon may be killed at any point.
"""

from rlalloc.store.access import Store
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
    "JobHistory",
    "Outcome",
    "PolicyRow",
    "Store",
]
