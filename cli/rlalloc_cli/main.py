"""``rlalloc``: the tree of commands."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final

import typer

from rlalloc import __version__
from rlalloc.config import DEFAULT_PATH
from rlalloc.errors import RlallocError
from rlalloc_cli.config_commands import config_app
from rlalloc_cli.config_option import ConfigForAllOption, exit_on_errors, loaded_config
from rlalloc_cli.history_commands import history_app
from rlalloc_cli.keys_commands import keys_app
from rlalloc_cli.policy import policy_app
from rlalloc_cli.profile_commands import profile_app
from rlalloc_cli.report.report_command import report
from rlalloc_cli.terminal import CONSOLE, complain, escape_what_cannot_be_printed, fail

_TRAINER: Final = ("rlalloc_trainer", "rlalloc_simulator")
_TRAINER_EXTRA: Final = "trainer"
_LARGEST_SCRIPT_BYTES: Final = 4 << 20
"""Slurm's max_script_size, by default."""

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(config_app, name="config")
app.add_typer(policy_app, name="policy")
app.add_typer(history_app, name="history")
app.add_typer(profile_app, name="profile")
app.add_typer(keys_app, name="keys")


def main() -> None:
    """Console script."""
    escape_what_cannot_be_printed()
    mount_trainer()
    try:
        app()
    except ModuleNotFoundError as err:
        missing = (err.name or "").partition(".")[0]
        if not _belongs_to_trainer(missing):
            raise
        complain(f"this command needs the Python package {missing}: pip install 'rlalloc[{_TRAINER_EXTRA}]'")
        sys.exit(1)


def _job_id(text: str) -> int:
    """The id that sbatch printed, from one that squeue prints: ``4``, or ``4_2`` and ``4_[0-3]`` of an array."""
    match = re.fullmatch(r"([0-9]{1,10})(_([0-9]+|\[[0-9,%:-]+\]))?", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a job id: write it as squeue prints it, such as 4 or 4_2")
    return int(match[1])


@app.callback(invoke_without_command=True)
def top(*, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    """Learned GPU, CPU and memory shares for pending LLM jobs on Slurm."""
    if version:
        CONSOLE.print(f"rlalloc {__version__}")
        raise typer.Exit


@app.command()
def explain(
    job_id: Annotated[
        int,
        typer.Argument(
            metavar="JOBID",
            parser=_job_id,
            help="A job id as squeue prints it; 4_2 stands for its array, which is decided as one job.",
        ),
    ],
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also what the policy saw, all bounds and all steps.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON array with one element per decision.")] = False,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Show what a job asked for and got, why, and what came of it. Users may ask about their own jobs."""
    from rlalloc_cli.explain import print_story, story_as_json
    from rlalloc_cli.explain_shortly import print_shortly
    from rlalloc_cli.job_now import earlier_words, how_it_runs, is_another, job_now
    from rlalloc_cli.own_jobs import settings_for_me, story_for_me
    from rlalloc_cli.undecided import why_undecided

    with exit_on_errors():
        story = story_for_me(config, job_id)
        job = job_now(job_id, config) if story and not json else None
        if not story or is_another(job, story):
            why = why_undecided(job_id, settings_for_me(config))
            fail(f"no decision for job {job_id}: {why}{earlier_words(story)}", code=1)
    if json:
        typer.echo(story_as_json(story))
    elif verbose:
        print_story(story, how_it_runs(story, job))
    else:
        print_shortly(story, how_it_runs(story, job))


app.command()(report)


@app.command()
def off(
    job_id: Annotated[
        int | None,
        typer.Argument(metavar="[JOBID]", parser=_job_id, help="A pending job; 4_2 stands for its whole array."),
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="The whole site: decide and change nothing until `rlalloc on`.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", "--why", help="Why, for the log; --all needs it.")] = "",
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Give a pending job its request back and leave it alone, or switch rlalloc off for the whole site.

    Users may do so for their own jobs, root for all. Only root and SlurmUser may switch the site off.
    """
    from rlalloc_cli.own_jobs import leave_alone_for_me
    from rlalloc_cli.switch_command import switch_site

    if (job_id is None) != everything:
        fail("name a job, or switch the whole site off with --all --why TEXT", code=2)
    if everything and not reason.strip():
        fail("say why with --why TEXT: status and the log show it to others", code=2)
    with exit_on_errors():
        if job_id is None:
            CONSOLE.print(switch_site(config, reason, off=True))
        else:
            CONSOLE.print(leave_alone_for_me(config, job_id, reason))


@app.command()
def on(
    *,
    reason: Annotated[str, typer.Option("--reason", "--why", help="Why, for the log.")] = "",
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Switch rlalloc on again after `rlalloc off --all`. Only root and SlurmUser may do so."""
    from rlalloc_cli.switch_command import switch_site

    with exit_on_errors():
        CONSOLE.print(switch_site(config, reason, off=False))


@app.command()
def check(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A batch script, as sbatch takes it.")],
    *,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="GPUs of a node; by default, those of the largest node that Slurm has."),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The type of GPU, such as a100-80, if the script names none.")
    ] = None,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Show how a batch script is read and which GPU counts its job may get, given what its model needs.

    Without --gpus-per-node, the CPUs and memory of the largest node count, too, as far as the script states its own.
    If the #SBATCH lines ask for a form of job that rlalloc does not resize, it says so instead.
    For a wrong #RLALLOC line it also says what is right, and ends with exit 1.
    """
    from rlalloc_cli.check import print_report, report_on
    from rlalloc_cli.own_jobs import settings_for_me

    with exit_on_errors():
        loaded = settings_for_me(config)
        report = report_on(_read_script(script), loaded, gpus_per_node, gpu)
        print_report(report)
        if report.mistakes:
            fail("; ".join(report.mistakes), code=1)


def _read_script(script: Path) -> bytes:
    try:
        with script.open("rb") as file:
            text = file.read(_LARGEST_SCRIPT_BYTES + 1)
    except OSError as err:
        fail(f"{script}: {err.strerror}", code=2)
    if len(text) > _LARGEST_SCRIPT_BYTES:
        fail(
            f"{script}: larger than the 4 MiB that sbatch takes by default (max_script_size): no batch script", code=2
        )
    return text


@app.command()
def status(
    *,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Show the state of daemon, agent, policy, trainer and store on one screen. Exit 1 if something is wrong.

    Members of rlalloc-readers see only the state of the daemon.
    """
    from rlalloc_cli.own_jobs import may_read, state_for_me
    from rlalloc_cli.status import print_daemon_status, print_status

    try:
        well = print_status(loaded_config(config)) if may_read(config) else print_daemon_status(*state_for_me())
        if not well:
            raise typer.Exit(1)
    except RlallocError as err:
        fail(str(err), code=1)


@app.command()
def watch(
    *,
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two updates.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Print the screen once and exit.")] = False,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Show how many jobs wait, and the status, and update both until q or Ctrl-C.

    Without a terminal, print them once. Exit 1 if something is wrong at the end.
    """
    from rlalloc_cli.watch import watch as watch_until_told

    if not watch_until_told(loaded_config(config), every, once=once):
        raise typer.Exit(1)


@app.command()
def doctor(
    *,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="HOSTLIST",
            help="Also check the TaskProlog on these nodes, or on `all` with GPUs, by a short job on each; "
            "root also marks them as checked.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: ConfigForAllOption = DEFAULT_PATH,
) -> None:
    """Check the live site end to end and print each finding with its remedy. Exit 1 for a FAIL, 3 for a WARN."""
    from rlalloc_cli.doctor.doctor_checks import all_findings, findings_on_nodes
    from rlalloc_cli.doctor.doctor_report import EXIT, findings_as_json, print_findings
    from rlallocd.checks.finding import worst

    loaded = loaded_config(config)
    try:
        on_nodes = [] if nodes is None else findings_on_nodes(loaded, nodes)
    except RlallocError as err:
        fail(str(err), code=2)
    found = [*all_findings(config, loaded), *on_nodes]  # the nodes first: what it marks is seen by the other checks
    if json:
        typer.echo(findings_as_json(found))
    else:
        print_findings(found)
    raise typer.Exit(EXIT[worst(found)])


@app.command()
def needs(
    script: Annotated[
        Path,
        typer.Argument(
            metavar="SCRIPT", help="A batch script. Files that it names are read from the current folder."
        ),
    ],
    *,
    gpu: Annotated[str | None, typer.Option(metavar="TYPE", help="One type of GPU, such as a100-80 or h100.")] = None,
    gpu_memory: Annotated[
        float | None, typer.Option(metavar="GIB", min=1, max=4096, help="The memory of a GPU, in GiB.")
    ] = None,
    gpus_per_node: Annotated[int, typer.Option(min=1, max=1024, help="GPUs of a node.")] = 8,
    most: Annotated[int, typer.Option(min=1, max=16384, help="The largest count to try.")] = 64,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what the LLM of a batch script needs: parameters, GPU memory, and the GPU counts that fit each type."""
    from rlalloc_cli.needs import facts_of_file, needs_as_json, print_needs, types_to_show

    types = types_to_show(gpu, gpu_memory)
    facts = facts_of_file(script)
    if json:
        typer.echo(needs_as_json(facts, types, gpus_per_node, most))
    else:
        print_needs(facts, types, gpus_per_node, most)


def mount_trainer() -> None:
    """Mount the trainer's commands where it is installed; its heavy packages come only when a command needs them."""
    try:
        from rlalloc_simulator.commands.policy_commands import add_commands as add_policy_commands
        from rlalloc_simulator.commands.simulate_run_command import run as simulate_run
        from rlalloc_simulator.commands.workload_commands import app as simulate_app
        from rlalloc_trainer.commands.evaluate_command import evaluate
        from rlalloc_trainer.commands.train_commands import app as train_app
    except ModuleNotFoundError as err:
        if err.name not in _TRAINER:
            raise
        return  # a node without the trainer
    app.add_typer(train_app, name="train")
    simulate_app.command("run")(simulate_run)
    add_policy_commands(simulate_app)
    app.add_typer(simulate_app, name="simulate")
    app.command()(evaluate)


def _belongs_to_trainer(package: str) -> bool:
    """Whether the trainer's extra of this distribution names a package."""
    requirements = metadata.requires("rlalloc") or ()
    found = (re.match(r"([\w-]+).*extra *== *['\"](\w+)['\"]", line) for line in requirements)
    names = {match[1].lower() for match in found if match is not None and match[2] == _TRAINER_EXTRA}
    return package.lower() in names
