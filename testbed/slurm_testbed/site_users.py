"""The ordinary users of a site: Unix accounts and their associations in slurmdbd."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import TYPE_CHECKING

from .external_commands import run_command
from .requirements import search_path
from .testbed_errors import InvalidSpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMAND_TIMEOUT_S = 30.0
MARK = "slurm-testbed "
NO_HOME = "/nonexistent"  # a user's HOME is inside each site, see Site.home


def create_unix_users(names: Sequence[str], root: Path) -> None:
    """Create those users that do not exist, marked with the root directory's name.

    Users of a root directory that is gone (its sites crashed with it) become this one's. The caller holds the root
    directory's lock.
    """
    mark = f"--comment={_mark(root)}"
    for name in names:
        try:
            orphaned = _is_orphan(pwd.getpwnam(name))
        except KeyError:
            new = ["useradd", "--no-create-home", f"--home-dir={NO_HOME}", "--user-group", "--shell=/bin/bash"]
            _run_as_root([*new, mark, name])
        else:
            if orphaned:
                _run_as_root(["usermod", mark, name])


def created_user_ids(root: Path) -> frozenset[int]:
    """User ids of the users that sites under `root` created."""
    return frozenset(entry.pw_uid for entry in _created_users(root))


def remove_unix_users(root: Path) -> list[str]:
    """Remove the users that sites under `root` created, and no others; returns their names.

    The caller holds the root directory's lock and has ended their processes.
    """
    names = [entry.pw_name for entry in _created_users(root)]
    for name in names:
        _run_as_root(["userdel", name])
    return names


def register_in_slurmdbd(
    cluster: str, account: str, users: Sequence[str], run: Callable[[Sequence[str]], object]
) -> None:
    """Add the cluster, the account and the users' associations, by what runs a command on the site.

    Raises CommandFailedError.
    """
    additions = [["cluster", cluster], ["account", account, f"Cluster={cluster}"]]
    if users:
        names = ",".join(users)
        additions.append(["user", names, f"Account={account}", f"DefaultAccount={account}"])
    for addition in additions:
        run(["sacctmgr", "--immediate", "--quiet", "add", *addition])


def unix_identity(name: str) -> pwd.struct_passwd:
    """Look a Unix user up; raises InvalidSpecError where there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError as error:
        raise InvalidSpecError(
            f"no Unix user {name!r}: name it in SiteSpec.users (`up --user`), or create it"
        ) from error


def _created_users(root: Path) -> list[pwd.struct_passwd]:
    return [entry for entry in pwd.getpwall() if entry.pw_gecos == _mark(root)]


def _is_orphan(user: pwd.struct_passwd) -> bool:
    """Tell whether a testbed made the user whose root directory is gone."""
    return user.pw_gecos.startswith(MARK) and not Path(user.pw_gecos.removeprefix(MARK)).exists()


def _mark(root: Path) -> str:
    """Return the GECOS text of users that belong to `root` (":" would end the field)."""
    return f"{MARK}{str(root).replace(':', '_')}"


def _run_as_root(command: Sequence[str]) -> None:
    run_command(command, timeout_s=COMMAND_TIMEOUT_S, environment={"PATH": search_path()})
