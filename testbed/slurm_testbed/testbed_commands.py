"""The command line: ``python -m slurm_testbed``.

Exit status: 0 fine, 1 failed, 2 wrong use (a site exists already, no such site), 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from . import registry
from . import site_users as accounts
from .layout import DEFAULT_ROOT
from .site import Site
from .specification import DEFAULT_USERS, SiteSpec
from .testbed_errors import InvalidSpecError, SiteExistsError, SiteNotFoundError, TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130

application = typer.Typer(
    name="slurm_testbed",
    help="Real Slurm sites on this machine, each in a directory of its own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False, soft_wrap=True)

Root = Annotated[Path, typer.Option("--root", help="Directory that holds the sites.")]
Name = Annotated[str, typer.Argument(help="Name of the site.")]


def main() -> None:
    """Run the command line."""
    application()


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turn the package's errors into a message and an exit status."""
    try:
        yield
    except (InvalidSpecError, SiteExistsError, SiteNotFoundError) as error:
        _complain(error)
        raise typer.Exit(WRONG_USE) from error
    except TestbedError as error:
        _complain(error)
        raise typer.Exit(FAILED) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error


@application.command()
def up(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    name: Annotated[str, typer.Option(help="Name of the site.")] = "default",
    nodes: Annotated[int, typer.Option(help="Number of nodes.")] = 4,
    gpus: Annotated[int, typer.Option(help="GPUs of each node.")] = 8,
    gpu_type: Annotated[str, typer.Option(help="Type of the GPUs.")] = "a100",
    cpus: Annotated[int, typer.Option(help="CPUs of each node.")] = 64,
    mem_mib: Annotated[int, typer.Option(help="Memory of each node in MiB.")] = 512_000,
    user: Annotated[list[str], typer.Option(help="An unprivileged user (repeat).")] = list(DEFAULT_USERS),  # noqa: B006
    enforce: Annotated[str, typer.Option(help="AccountingStorageEnforce.")] = "associations",
    conf: Annotated[list[str], typer.Option(help="KEY=VALUE for slurm.conf (repeat).")] = [],  # noqa: B006
    job_submit: Annotated[Path | None, typer.Option(help="A job_submit.lua to install.")] = None,
    task_prolog: Annotated[Path | None, typer.Option(help="A TaskProlog to install.")] = None,
    release: Annotated[
        str | None,
        typer.Option(help="Debian release whose Slurm runs: trixie, forky.", envvar="SLURM_TESTBED_RELEASE"),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="End a site of that name first.")] = False,
    keep_failed: Annotated[bool, typer.Option("--keep-failed", help="Keep a site that does not start.")] = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Start a site and return when all its nodes are idle."""
    with reported_errors():
        begin = time.monotonic()
        spec = SiteSpec(
            name=name,
            nodes=nodes,
            gpus_per_node=gpus,
            gpu_type=gpu_type,
            cpus_per_node=cpus,
            mem_mib_per_node=mem_mib,
            users=tuple(user),
            enforce=enforce,
            extra_slurm_conf=dict(_key_and_value(text) for text in conf),
            job_submit_lua=job_submit,
            task_prolog=task_prolog,
            release=release,
        )
        site = Site.start(spec, root, replace=replace, keep_failed=keep_failed)
        console.print(
            f"site {name} is up in {time.monotonic() - begin:.1f} s: "
            f"{nodes} nodes with {gpus} {gpu_type}, {cpus} CPUs, {mem_mib} MiB each; {site.directory}"
        )


@application.command()
def down(
    *,
    name: Annotated[str | None, typer.Argument(help="Name of the site.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All sites.")] = False,
    started_by: Annotated[
        str | None, typer.Option(help="All sites started with this in SLURM_TESTBED_STARTED_BY.")
    ] = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """End a site, running, crashed or half-started, and remove its directory; safe to repeat."""
    with reported_errors():
        if [every, name is not None, started_by is not None].count(True) != 1:
            raise InvalidSpecError("name one site, or --all, or --started-by")
        root = root.resolve()
        if started_by is not None:
            names = [record.name for record in registry.records(root) if record.started_by == started_by]
        else:
            names = registry.site_names(root) if name is None else [name]
        for each in names:
            begin = time.monotonic()
            existed = (root / each).exists()
            ended = registry.remove(each, root)
            what = "is removed" if existed else "is not there"
            console.print(f"site {each} {what}; {len(ended)} processes ended in {time.monotonic() - begin:.1f} s")


@application.command("list")
def list_sites(*, root: Root = DEFAULT_ROOT) -> None:
    """Show all sites."""
    with reported_errors():
        table = Table(box=None)
        for heading in ("name", "nodes", "slurmctld", "mariadbd", "directory", "state"):
            table.add_column(heading, no_wrap=heading != "state", overflow="fold")
        root = root.resolve()
        for name in registry.site_names(root):
            try:
                site = Site.attach(name, root)
            except SiteNotFoundError:
                table.add_row(name, "", "", "", str(root / name), "broken")
                continue
            dead = [daemon for daemon in site.daemon_names if not site.is_running(daemon)]
            state = f"not running: {', '.join(dead)}" if dead else "running"
            numbers = (len(site.nodes), site.ports.slurmctld, site.ports.mariadbd)
            table.add_row(name, *map(str, numbers), str(site.directory), state)
        console.print(table)


@application.command("env")
def print_environment(name: Name = "default", *, root: Root = DEFAULT_ROOT) -> None:
    """Print shell commands that point Slurm's commands to a site: eval "$(… env NAME)"."""
    with reported_errors():
        environment = Site.attach(name, root).environment()
        for key in ("SLURM_CONF", "PATH"):
            typer.echo(f"export {key}={shlex.quote(environment[key])}")


@application.command()
def logs(
    name: Name = "default",
    daemon: Annotated[str | None, typer.Argument(help="slurmctld, slurmdbd, n1, …; all if left out.")] = None,
    *,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Lines of each log.")] = 40,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Print the ends of a site's logs."""
    with reported_errors():
        site = Site.attach(name, root)
        for each in site.daemon_names if daemon is None else [daemon]:
            typer.echo(f"==> {each} <==\n{site.log_tail(each, lines)}")


@application.command()
def run(
    name: Name,
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    *,
    user: Annotated[str | None, typer.Option(help="Run as this unprivileged user.")] = None,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Run a command in a site's environment; its exit status is this one's."""
    with reported_errors():
        site = Site.attach(name, root)
        environment = site.environment(user)
        environment["TERM"] = os.environ.get("TERM", "dumb")
        if user is not None:
            identity = accounts.unix_identity(user)
            os.chdir(site.home(user))
            os.setgroups([])
            os.setgid(identity.pw_gid)
            os.setuid(identity.pw_uid)
        sys.stdout.flush()
        try:
            os.execvpe(command[0], command, environment)  # noqa: S606 - becoming that command is the point
        except OSError as error:
            raise InvalidSpecError(f"{command[0]}: cannot be executed: {error}") from error


def _key_and_value(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise InvalidSpecError(f"--conf {text!r}: KEY=VALUE is expected")
    return key, value


def _complain(error: TestbedError) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True, markup=False).print(f"slurm_testbed: {error}")
