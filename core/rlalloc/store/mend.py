"""Whose a store's files are: those of SQLite belong to the owner and the group of their directory."""

from pathlib import Path

import sqlalchemy as sa

from rlalloc.system.shared_files import mend_shared


def mend_store_files(url: str) -> None:
    """Give SQLite's files to the owner and the group of their directory, where that is its group's to write."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return
    path = Path(parsed.database)
    if path.parent.is_dir():
        for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            mend_shared(each)
