"""``rlalloc policy``: which policy versions there are, and which one is in use."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rlalloc.config import DEFAULT_PATH, load_config
from rlalloc.errors import ConfigError, PolicyError
from rlalloc.policies import PolicyStore, verify
from rlalloc_cli.terminal import CONSOLE, fail, local_time

ConfigOption = Annotated[Path, typer.Option("--config", envvar="RLALLOC_CONFIG", help="The configuration file.")]
policy_app = typer.Typer(no_args_is_help=True, help="List policy versions, or choose the one in use.")


@policy_app.command("list")
def policy_list(config: ConfigOption = DEFAULT_PATH) -> None:
    """List all versions, oldest first."""
    store = _store(config)
    table = Table()
    for heading in ("version", "in use", "created", "parent", "verdict of the gate"):
        table.add_column(heading, overflow="fold")
    for version in store.versions():
        in_use = "yes" if version == store.current() else ""
        try:
            manifest = verify(store.path(version))
        except PolicyError as err:
            table.add_row(version, in_use, "", "", f"cannot be served: {err}")
            continue
        verdict = str(manifest.evaluation.get("reason", "-"))
        table.add_row(version, in_use, local_time(manifest.created_s), manifest.parent or "-", verdict)
    CONSOLE.print(table)
    if store.current() is None:
        CONSOLE.print("no version was promoted yet: the agent serves the policy shipped with rlalloc")


@policy_app.command("promote")
def policy_promote(
    version: Annotated[str, typer.Argument(help="A version of `rlalloc policy list`.")],
    config: ConfigOption = DEFAULT_PATH,
) -> None:
    """Put a version in use, newer or older than the current one. The agent loads it without a restart."""
    try:
        _store(config).promote(version)
    except PolicyError as err:
        fail(str(err), code=1)
    CONSOLE.print(f"{version} is in use")


def _store(path: Path) -> PolicyStore:
    try:
        return PolicyStore(load_config(path).policy.directory)
    except ConfigError as err:
        fail(str(err), code=2)
