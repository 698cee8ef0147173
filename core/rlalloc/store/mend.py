"""``python -m rlalloc.store.mend``, which rlallocd's unit runs as root before it starts: whose files they are.

A store that root restored from a backup belongs to root, and the daemon could only read it. What the daemon wrote
before its unit got another user belongs to that one.
"""

import contextlib
import os
import pwd
import stat
import sys
from collections.abc import Sequence
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


def hand_over(paths: Sequence[Path], user: str) -> None:
    """Give existing files to ``user``; links, and a name that nobody has, are left alone. Raises OSError."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            if found.st_uid != uid and found.st_nlink == 1 and not stat.S_ISLNK(found.st_mode):
                os.chown(path, uid, -1, follow_symlinks=False)


def main() -> None:
    """Mend the files of the configured site. A wrong configuration is the daemon's to complain of.

    systemd names the unit's user in the environment, of commands that it runs as root, too.
    """
    try:
        config = load_config(Path(os.environ.get("RLALLOC_CONFIG", DEFAULT_PATH)))
        mend_store_files(config.store.url)
        written = (config.runtime_directory / name for name in ("intercept", "state.json", "users.sock"))
        hand_over([*written, config.history.key_file], os.environ.get("USER", ""))
    except (ConfigError, sa.exc.ArgumentError, OSError) as err:
        sys.stderr.write(f"rlalloc.store.mend: {err}\n")


if __name__ == "__main__":
    main()
