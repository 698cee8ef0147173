"""``rlalloc policy``: which policy versions there are, and which one is in use."""

import syslog
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rlalloc.config import DEFAULT_PATH
from rlalloc.errors import PolicyError
from rlalloc.local_times import local_time
from rlalloc.policy.policies import SHIPPED_NAME, PolicyStore, Promotion, verify
from rlalloc.system.run_as_owner import login_name, run_as_owner_of
from rlalloc_cli.config_option import ConfigOption, exit_on_errors, loaded_config
from rlalloc_cli.terminal import CONSOLE, fail

ReasonOption = Annotated[str, typer.Option(help="Why, for whoever reads `rlalloc policy list` later.")]
policy_app = typer.Typer(no_args_is_help=True, help="List policy versions, or choose the one in use.")


@policy_app.command("list")
def policy_list(config: ConfigOption = DEFAULT_PATH) -> None:
    """List all versions, oldest first, with who put which in use last, and why."""
    store = _store(config)
    table = Table()
    for heading in ("version", "in use", "created", "parent", "verdict of the gate", "last put in use"):
        table.add_column(heading, overflow="fold")
    with exit_on_errors():
        latest = {change.version: change for change in store.promotions()}
    current = store.current() or SHIPPED_NAME
    for version in dict.fromkeys((SHIPPED_NAME, *store.versions(), current)):  # the current one may be gone
        row = _manifest_cells(store, version)
        in_use = "yes" if version == current else ""
        cells = (version, in_use, *row, _promotion_text(latest.get(version)))
        table.add_row(*cells)
    CONSOLE.print(table)


@policy_app.command("promote")
def policy_promote(
    version: Annotated[
        str,
        typer.Argument(help=f"A version of `rlalloc policy list`, or {SHIPPED_NAME}: the one shipped with rlalloc."),
    ],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Promote it although the gate refused it; needs --reason.")
    ] = False,
    reason: ReasonOption = "",
    config: ConfigOption = DEFAULT_PATH,
) -> None:
    """Put a version in use, newer or older than the current one. The agent loads it without a restart.

    Root runs this as the owner of policy.directory.
    """
    if force and not reason.strip():
        fail("--force needs --reason TEXT", code=2)
    store = _store_to_change(config)
    with exit_on_errors():
        refusal = None if version == SHIPPED_NAME else store.manifest(version).refusal
        if refusal is not None and not force:
            fail(
                f"the gate refused {version}: {refusal}; to put it in use all the same, write --force --reason TEXT",
                code=1,
            )
        store.promote(version, by=login_name(), reason=_one_line(reason), forced=refusal is not None)
    _tell(store)


@policy_app.command("rollback")
def policy_rollback(reason: ReasonOption = "", config: ConfigOption = DEFAULT_PATH) -> None:
    """Put the version before the current one in use again. Again goes back one more."""
    store = _store_to_change(config)
    with exit_on_errors():
        store.roll_back(by=login_name(), reason=_one_line(reason))
    _tell(store)


def _manifest_cells(store: PolicyStore, version: str) -> tuple[str, str, str]:
    """When a version was made, from which, and what the gate said of it."""
    if version == SHIPPED_NAME:
        return "", "", "shipped with rlalloc"
    try:
        manifest = verify(store.path(version))
    except PolicyError as err:
        return "", "", f"cannot be served: {err}"
    verdict = str(manifest.evaluation.get("reason", "-"))
    return local_time(manifest.created_s), manifest.parent or "-", verdict


def _promotion_text(change: Promotion | None) -> str:
    if change is None:
        return "-"
    forced = ", forced" if change.forced else ""
    why = f": {change.reason}" if change.reason else ""
    return f"{local_time(change.time_s)} by {change.by or 'unknown'}{forced}{why}"


def _tell(store: PolicyStore) -> None:
    """Tell what was put in use: the person, and the system's log."""
    change = store.promotions()[-1]
    line = f"{change.version} is in use instead of {change.before}"
    syslog.openlog("rlalloc")
    syslog.syslog(syslog.LOG_NOTICE, f"policy {line}; {_promotion_text(change)}")
    CONSOLE.print(line)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _store_to_change(path: Path) -> PolicyStore:
    """As ``_store``; root goes on as the owner of the policies."""
    store = _store(path)
    run_as_owner_of(store.directory)
    return store


def _store(path: Path) -> PolicyStore:
    return PolicyStore(loaded_config(path).policy.directory)
