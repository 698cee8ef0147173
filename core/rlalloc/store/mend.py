"""``python -m rlalloc.store.mend``, which rlallocd's unit runs as root before it starts: whose the store's files are.

A file that root restored from a backup belongs to root, and the daemon could only read it.
"""

import os
import sys
from pathlib import Path

import sqlalchemy as sa

from rlalloc.config import DEFAULT_PATH, load_config
from rlalloc.errors import ConfigError
from rlalloc.shared_files import mend_shared


def mend_store_files(url: str) -> None:
    """Give SQLite's files to the owner and the group of their directory, where that is its group's to write."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return
    path = Path(parsed.database)
    if path.parent.is_dir():
        for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            mend_shared(each)


def main() -> None:
    """Mend the files of the configured store. A wrong configuration is the daemon's to complain of."""
    try:
        config = load_config(Path(os.environ.get("RLALLOC_CONFIG", DEFAULT_PATH)))
        mend_store_files(config.store.url)
    except (ConfigError, sa.exc.ArgumentError) as err:
        sys.stderr.write(f"rlalloc.store.mend: {err}\n")


if __name__ == "__main__":
    main()
