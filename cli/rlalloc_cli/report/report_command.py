"""``rlalloc report``: options in sacct's manner."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from rlalloc.config import DEFAULT_PATH
from rlalloc.errors import ConfigError, RlallocError
from rlalloc.system.shared_files import replace_file
from rlalloc_cli.config_option import ConfigForAllOption
from rlalloc_cli.terminal import fail

_LIST = "LIST"


def report(  # noqa: PLR0913 (one argument per option)
    *,
    starttime: Annotated[
        str, typer.Option("--starttime", "-S", metavar="TIME", help="Start of the span, as sacct takes it.")
    ] = "",
    endtime: Annotated[
        str, typer.Option("--endtime", "-E", metavar="TIME", help="End of the span, as sacct takes it.")
    ] = "",
    user: Annotated[str, typer.Option("--user", "-u", metavar=_LIST, help="Only jobs of these users.")] = "",
    account: Annotated[str, typer.Option("--account", "-A", metavar=_LIST, help="Only jobs of these accounts.")] = "",
    partition: Annotated[
        str, typer.Option("--partition", "-r", metavar=_LIST, help="Only jobs of these partitions.")
    ] = "",
    columns: Annotated[
        str | None,
        typer.Option(
            "--format", "-o", metavar=_LIST, help="Fields, such as JobID,State%12; see docs/admin/report.md."
        ),
    ] = None,
    parsable: Annotated[
        bool, typer.Option("--parsable2", "-P", help="Print runs only, with | between fields, for programs.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML page into this file.")
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Also simulate what enforcing would have changed; takes minutes, and needs the extra trainer.",
        ),
    ] = False,
    totals: Annotated[bool, typer.Option("--totals", help="Print totals only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Show what jobs asked for, got and used, and what rlalloc decided. Users get a report of their own jobs."""
    from rlalloc_cli.report.report_fields import DEFAULT_FORMAT, FieldError, fields_of
    from rlalloc_cli.report.report_sources import Asked, WrongQuestion, open_report
    from rlalloc_cli.report.report_text import json_lines, parsable_lines, table_lines
    from rlalloc_cli.report.report_what_if import simulate_what_if, what_if_lines

    if parsable + totals + json + (html is not None) > 1 or (parsable and simulate):
        fail("choose one of --parsable2, --totals, --json and --html; --what-if does not go with --parsable2", code=2)
    try:
        fields = fields_of(columns or DEFAULT_FORMAT)
        with open_report(config, Asked(starttime, endtime, user, account, partition)) as found:
            simulated = simulate_what_if(found) if simulate else None
            if html is not None:
                from rlalloc_cli.report.report_page import RunsToShow, page_of

                shown = RunsToShow()
                for run in found.runs():
                    shown.add(run)
                write_page(html, page_of(found, found.totals(), shown, simulated))
            elif json:
                _print(json_lines(found, {"what_if": simulated} if simulate else {}))
            elif parsable:
                _print(parsable_lines(found, fields))
            else:
                _print(table_lines(found, fields, runs=not totals))
                _print(["", *what_if_lines(simulated)] if simulated is not None else [])
    except (ConfigError, FieldError, WrongQuestion) as err:
        fail(str(err), code=2)
    except RlallocError as err:
        fail(str(err), code=1)


def write_page(path: Path, text: str) -> None:
    """Write a whole file, or none; names of users' jobs are in it, so others may not read it.

    No device is replaced, nor a link to one: root would put a file in the place of /dev/null or /dev/stdout.
    """
    if path.exists() and (not path.is_file() or path.parent.resolve() == Path("/dev")):
        fail(f"cannot write {path}: it is not a regular file; name another one", code=1)
    try:
        replace_file(path, text.encode("utf-8"), 0o600)
    except OSError as err:
        fail(f"cannot write {path}: {err.strerror or err}", code=1)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        typer.echo(line)
