"""``rlalloc keys``: the CURVE keys of daemon and agent on different hosts."""

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.table import Table

from rlalloc.config import DEFAULT_PATH
from rlalloc.errors import ConfigError
from rlalloc.system.run_as_owner import name_of
from rlalloc_cli.config_option import ConfigOption, loaded_config
from rlalloc_cli.terminal import CONSOLE, fail

keys_app = typer.Typer(
    no_args_is_help=True, help="Make and show the keys for an agent on another host (CURVE over TCP)."
)

_USERS: Final = {"daemon": "rlallocd", "agent": "rlalloc"}
"""As whom the units run, which read the secret keys."""
_GROUP: Final = "rlalloc"


@keys_app.command("make")
def make(
    side: Annotated[Literal["daemon", "agent"], typer.Argument(help="Whose keys: make them on its host.")],
    *,
    owner: Annotated[
        str | None, typer.Option(help="The user of the service (default: that of its unit).", show_default=False)
    ] = None,
    config: ConfigOption = DEFAULT_PATH,
) -> None:
    """Make the key pair of daemon or agent in agent.keys. Existing keys are never replaced."""
    from rlalloc.curve_keys import CLIENTS, make_pair

    directory = loaded_config(config).agent.keys
    try:
        user = _uid(owner or _USERS[side], required=owner is not None)
        _make_directory(directory)
        public, secret = make_pair(directory, side)
        if user is not None:
            os.chown(secret, user, -1)
    except ConfigError as err:
        fail(str(err), code=1)
    except OSError as err:
        fail(f"{err.filename}: {err.strerror}; run this as root", code=1)
    CONSOLE.print(f"{secret}: secret, for {owner or _USERS[side]} alone; do not copy it anywhere", soft_wrap=True)
    other, place = ("agent", f"{CLIENTS}/daemon.key") if side == "daemon" else ("daemon", "agent.key")
    CONSOLE.print(f"{public}: public; copy it to the {other}'s host as agent.keys/{place}", soft_wrap=True)


@keys_app.command("show")
def show(*, config: ConfigOption = DEFAULT_PATH) -> None:
    """Show the keys of this host: whose they are, and who may read them. Exit 1 if TCP is set and one is missing."""
    from rlalloc.curve_keys import check_keys

    loaded = loaded_config(config)
    directory = loaded.agent.keys
    table = Table(box=None, pad_edge=False)
    for heading in ("file", "owner", "mode", "public key"):
        table.add_column(heading, no_wrap=True)
    try:
        for path in sorted([*directory.glob("*.key*"), *directory.glob("*/*.key")]):
            found = path.stat()
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            table.add_row(str(path.relative_to(directory)), name_of(found.st_uid), mode, _public_key(path))
    except OSError as err:
        fail(f"{err.filename}: {err.strerror}; run this as root", code=1)
    CONSOLE.print(f"{directory}:" if table.row_count else f"{directory}: no keys", soft_wrap=True)
    if table.row_count:
        CONSOLE.print(table, soft_wrap=True)
    try:
        check_keys(loaded.agent)
    except ConfigError as err:
        fail(str(err), code=1)


def _make_directory(directory: Path) -> None:
    """The directory of keys, which the services' group may enter. Raises OSError."""
    from rlalloc.curve_keys import CLIENTS

    for each in (directory, directory / CLIENTS):
        if not each.exists():
            each.mkdir(mode=0o750)
            each.chmod(0o750)
            if os.geteuid() == 0:
                try:
                    os.chown(each, 0, grp.getgrnam(_GROUP).gr_gid)
                except KeyError:
                    each.chmod(0o755)


def _uid(user: str, *, required: bool) -> int | None:
    """Whose the secret key is to be; None for the user of this command. Raises ConfigError for an unknown name."""
    if os.geteuid() != 0 and not required:
        return None
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as err:
        raise ConfigError(f"there is no user {user} here: name the user of the service by --owner") from err


def _public_key(path: Path) -> str:
    from zmq.auth.certs import load_certificate

    try:
        return load_certificate(path)[0].decode("ascii", "replace")
    except (OSError, ValueError):
        return "not a key, or not readable by you"
