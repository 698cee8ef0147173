"""``python -m rlallocd.before_start``, which rlallocd's unit runs as root before it starts: whose files they are.

A store that root restored from a backup belongs to root, and the daemon could only read it. What the daemon wrote
before its unit got another user belongs to that one. And only root can give SlurmUser the file by which slurmctld
wakes the daemon.
"""

import contextlib
import os
import pwd
import stat
import sys
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from rlalloc.config import DEFAULT_PATH, load_config
from rlalloc.errors import ConfigError
from rlalloc.store.mend import mend_store_files
from rlalloc.system.shared_files import hand_over
from rlallocd.process.daemon_state import STATE_FILE
from rlallocd.slurm.slurm_user import slurm_user
from rlallocd.submissions.intercept import INTERCEPT_FILE, WAKE_FILE

WAKE_MODE: Final = 0o664


def give_wake_file(runtime_directory: Path, uid: int) -> None:
    """Make the wake file, and give it to SlurmUser and to the directory's group. Raises OSError."""
    path = runtime_directory / WAKE_FILE
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            path.unlink()
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, WAKE_MODE))
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chown(f"/proc/self/fd/{file}", uid, runtime_directory.stat().st_gid)
        Path(f"/proc/self/fd/{file}").chmod(WAKE_MODE)
    finally:
        os.close(file)


def main() -> None:
    """Put right what is the configured site's. A wrong configuration is the daemon's to complain of.

    systemd names the unit's user in the environment, of commands that it runs as root, too.
    """
    try:
        config = load_config(Path(os.environ.get("RLALLOC_CONFIG", DEFAULT_PATH)))
        mend_store_files(config.store.url)
        written = (config.runtime_directory / name for name in (INTERCEPT_FILE, STATE_FILE, "users.sock"))
        with contextlib.suppress(KeyError):  # a name that nobody has
            uid = pwd.getpwnam(os.environ.get("USER", "")).pw_uid
            for path in (*written, config.history.key_file):
                hand_over(path, uid)
        with contextlib.suppress(KeyError):
            give_wake_file(config.runtime_directory, pwd.getpwnam(slurm_user() or "").pw_uid)
    except (ConfigError, sa.exc.ArgumentError, OSError) as err:
        sys.stderr.write(f"rlallocd.before_start: {err}\n")


if __name__ == "__main__":
    main()
