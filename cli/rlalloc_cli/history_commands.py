"""``rlalloc history``: the jobs of the site that have ended."""

import time
from contextlib import closing, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from rlalloc.config import DEFAULT_PATH
from rlalloc.errors import RlallocError
from rlalloc.history import LogFormat
from rlalloc.history.log_import import opened
from rlalloc.store import Store
from rlalloc_cli.config_option import ConfigOption, loaded_config
from rlalloc_cli.history_evaluate import history_evaluate
from rlalloc_cli.terminal import CONSOLE, complain, fail

TIME_FORMATS: Final = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]

history_app = typer.Typer(no_args_is_help=True, help="Import and show the jobs of the site that have ended.")


@history_app.command("import")
def history_import(
    file: Annotated[Path | None, typer.Argument(help="A log of ended jobs. Without it, rlalloc asks sacct.")] = None,
    *,
    log_format: Annotated[LogFormat, typer.Option("--from", help="The format of the file: sacct or swf.")] = "sacct",
    starttime: Annotated[
        datetime | None,
        typer.Option(formats=TIME_FORMATS, help="Only jobs that ended at or after this time; for sacct."),
    ] = None,
    endtime: Annotated[
        datetime | None,
        typer.Option(formats=TIME_FORMATS, help="Only jobs that ended before this time; for sacct."),
    ] = None,
    pseudonymize: Annotated[
        bool,
        typer.Option(
            "--pseudonymize", help="Replace names of users, accounts and jobs, as with history.pseudonymize: true."
        ),
    ] = False,
    create: Annotated[
        bool, typer.Option("--create", help="Begin a new store if there is none at store.url.")
    ] = False,
    config: ConfigOption = DEFAULT_PATH,
) -> None:
    """Add past jobs to the store. A later run adds new jobs; after an interruption, it continues where it stopped.

    Without arguments, it asks sacct for all jobs that ended since the last import; the first time, for those of
    the last store.keep_history_days.
    """
    from rlalloc_cli.history_import import import_file, import_live, importing
    from rlallocd.outcomes.ended_job_collection import SETTLED_AFTER_S

    if file is not None and (starttime or endtime):
        fail("--starttime and --endtime apply to sacct, not to FILE: leave out FILE or these options", code=2)
    loaded = loaded_config(config)
    since_s = starttime.astimezone().timestamp() if starttime else None
    until_s = endtime.astimezone().timestamp() if endtime else time.time() - SETTLED_AFTER_S
    if since_s is not None and since_s >= until_s:
        fail("--starttime must lie before --endtime, and not in the future", code=2)
    try:
        with (
            opened(file) if file is not None else nullcontext() as log,
            importing(loaded, pseudonymize=pseudonymize or loaded.history.pseudonymize, create=create) as (
                store,
                importer,
            ),
        ):
            try:
                if log is not None:
                    import_file(importer, log, log_format)
                else:
                    import_live(importer, store, loaded, since_s, until_s)
            except KeyboardInterrupt:
                complain(f"interrupted: {importer.done.describe()}; the same command goes on from there")
                raise
    except RlallocError as err:
        fail(str(err), code=1)
    CONSOLE.print(importer.done.describe(), soft_wrap=True)


history_app.command("evaluate")(history_evaluate)


@history_app.command("show")
def history_show(
    *,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw run times against time limits into this file (.png, .svg, .pdf)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    config: ConfigOption = DEFAULT_PATH,
) -> None:
    """Summarise the past jobs: users, sizes, run times, time limits and waits."""
    import msgspec

    from rlalloc.history.earlier_reading import earlier_reading, why_none_yet
    from rlalloc.history.history_summary import summarize
    from rlalloc_cli.history_plot import plot_limits
    from rlalloc_cli.history_show import print_summary

    loaded = loaded_config(config)
    try:
        with closing(Store(loaded.store.url, read_only=True)) as store:
            found, spans = summarize(store.history.past_jobs())
            reading = earlier_reading(store.history, loaded, time.time())
    except RlallocError as err:
        fail(str(err), code=1)
    unread = f"rlallocd goes on, {reading.describe()}" if reading is not None and reading.unread_s else ""
    if not found.jobs:
        fail(f"no past jobs yet: {unread or why_none_yet(loaded)}", code=1)
    if json:
        typer.echo(msgspec.json.encode(found))
    else:
        print_summary(found, unread)
    if plot is not None:
        if not len(spans.run_s):
            fail("no job has a time limit: there is nothing to draw", code=1)
        try:
            plot_limits(spans, plot)
        except (OSError, ValueError) as err:
            fail(f"cannot draw {plot}: {err}; name a file that ends in .png, .svg or .pdf", code=1)
