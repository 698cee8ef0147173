"""Whether others can change the configuration file, or read a password in it."""

import os
import stat
from pathlib import Path

from rlalloc.config import Config
from rlalloc.store.database import without_secrets
from rlalloc.system.run_as_owner import name_of
from rlallocd.checks.file_access import ids_of
from rlallocd.checks.finding import Finding, failure, good


def file_findings(path: Path, config: Config, user: str) -> list[Finding]:
    """The file that ``config`` was read from; ``user`` is that of rlallocd."""
    what, mend = "configuration", f"chown root:rlalloc {path} && chmod 640 {path}"
    if who := _who_may_write(path, user):
        return [failure(what, f"{who} can change {path}, and so what rlallocd and root's commands do", mend)]
    others_read = bool(path.stat().st_mode & stat.S_IROTH)
    if others_read and without_secrets(config.store.url) != config.store.url:
        return [failure(what, f"all users can read the password in {path}", f"chmod o-rwx {path}")]
    return [good(what, f"{path} is valid")]


def _who_may_write(path: Path, user: str) -> str:
    """Who may change a file, beside root, ``user``, whoever asks, and groups; empty for nobody."""
    trusted = [0, os.geteuid()]
    try:
        trusted.append(ids_of(user)[0])
    except KeyError:  # not installed as its unit has it
        return ""
    for each in (path, path.parent):
        found = each.stat()
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return "every user"
        if found.st_uid not in trusted:
            return f"the user {name_of(found.st_uid)}"
    return ""
