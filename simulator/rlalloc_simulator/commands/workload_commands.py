"""The commands ``rlalloc simulate convert|fit|generate|sbatch``: workloads of jobs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from rlalloc_simulator.command_line import errors_end_here
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_summary import Summary

app = typer.Typer(no_args_is_help=True, help="Workloads of jobs for the simulator, benchmarks and test sites.")

OutputOption = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]
LimitsOption = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="Time limits: recorded (those of the source, or drawn where it has none), or people: half of the jobs "
        "get a round limit that fits, half the site's maximum.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]


@app.callback()
def simulate() -> None:
    """Keep ``rlalloc simulate`` a group of commands, even with a single one."""


@app.command()
def convert(  # noqa: PLR0913 (the options of the command)
    trace: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="The trace; some formats have several files.")
    ],
    source: Annotated[str, typer.Option("--from", metavar="FORMAT", help="A format of docs/reference/workloads.md.")],
    output: OutputOption,
    *,
    seed: SeedOption = 0,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes of the cluster.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1)] = None,
    cpus_per_node: Annotated[int | None, typer.Option(min=1)] = None,
    mem_per_node: Annotated[int | None, typer.Option(min=1, metavar="MIB")] = None,
    moldable: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of jobs that get a range of GPUs; no trace has one.")
    ] = None,
    utc_offset: Annotated[
        int, typer.Option(metavar="SECONDS", help="Offset of the site's clock from UTC, for sacct.")
    ] = 0,
    week: Annotated[
        list[int] | None, typer.Option(min=1, max=53, help="Only this ISO week; may be given again.")
    ] = None,
    slower: Annotated[
        float, typer.Option(min=1.0, help="Stretch times: the test site ran X times as fast as the site it models.")
    ] = 1.0,
    limits: LimitsOption = "recorded",
) -> None:
    """Turn a recorded trace into a workload; what it lacks is filled by a seeded model."""
    from rlalloc_simulator.workloads.chosen_limits import limits_named
    from rlalloc_simulator.workloads.workload_making import ConvertSettings, convert_trace

    with errors_end_here("simulate", WorkloadError):
        settings = ConvertSettings(
            nodes,
            gpus_per_node,
            cpus_per_node,
            mem_per_node,
            moldable,
            utc_offset,
            seed,
            tuple(week or ()),
            slower,
            limits_named(limits),
        )
        summary = convert_trace(source, trace, settings, output)
    _print_summary(summary, output)


@app.command()
def fit(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD")],
    output: OutputOption,
) -> None:
    """Fit a model to a workload: arrivals, sizes, durations, users, ends, over-asking."""
    from rlalloc_simulator.workloads.workload_making import fit_workload

    with errors_end_here("simulate", WorkloadError):
        model = fit_workload(workload, output, f"rlalloc simulate fit {workload.name} -o {output.name}")
    Console(markup=False, emoji=False).print(
        f"{output}: {model.jobs} jobs with GPUs in {model.hours:g} hours; {model.cpu_jobs_left_out} without left out",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def generate(  # noqa: PLR0913 (the options of the command)
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file that fit wrote, or a shipped model.")],
    output: OutputOption,
    *,
    load: Annotated[
        float | None, typer.Option(min=0.01, max=100, help="Offered GPU load; without it, the model's own rate.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1)] = 8,
    gpus_per_node: Annotated[int, typer.Option(min=1)] = 8,
    cpus_per_node: Annotated[int, typer.Option(min=1)] = 96,
    mem_per_node: Annotated[int, typer.Option(min=1, metavar="MIB")] = 768_000,
    gpu_type: Annotated[str, typer.Option(help="The type that every request names; none by default.")] = "",
    hours: Annotated[float, typer.Option(min=0.01, help="Hours of submissions, from a Monday on.")] = 24.0,
    limits: LimitsOption = "recorded",
    seed: SeedOption = 0,
) -> None:
    """Draw a workload from a fitted model, for a cluster of one kind of nodes."""
    from rlalloc_simulator.workloads.chosen_limits import limits_named
    from rlalloc_simulator.workloads.generator import GeneratorSettings
    from rlalloc_simulator.workloads.workload_job import NodeGroup
    from rlalloc_simulator.workloads.workload_making import generate_workload

    with errors_end_here("simulate", WorkloadError):
        cluster = NodeGroup("node", nodes, gpus_per_node, cpus_per_node, mem_per_node, gpu_type)
        settings = GeneratorSettings(cluster=cluster, hours=hours, load=load, seed=seed)
        summary = generate_workload(model, settings, output, limits_named(limits))
    _print_summary(summary, output, summary.load(settings.gpus, hours))


@app.command()
def sbatch(
    workload: Annotated[Path, typer.Argument(metavar="WORKLOAD")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new folder for the scripts.")],
    *,
    compress: Annotated[
        float, typer.Option(min=1.0, help="Seconds of the workload that become one on the site.")
    ] = 60.0,
    keep: Annotated[
        str, typer.Option(help="Which of account,partition,qos go into the scripts: the site must have them.")
    ] = "",
) -> None:
    """Turn a workload into sbatch scripts that sleep, and a script that submits them in time."""
    from rlalloc_simulator.workloads.sbatch_scripts import ScriptSettings, write_scripts
    from rlalloc_simulator.workloads.workload_file import open_workload

    settings = ScriptSettings(compress, tuple(name.strip() for name in keep.split(",") if name.strip()))
    with errors_end_here("simulate", WorkloadError), open_workload(workload) as (header, jobs):
        count = write_scripts(output, header, jobs, settings)
    said = f"{count} scripts in {output}; start {output / 'submit.sh'} on the site."
    Console(markup=False, emoji=False).print(said, highlight=False, soft_wrap=True)


def _print_summary(summary: Summary, output: Path, load: float | None = None) -> None:
    table = Table(title=str(output), show_header=False)
    median, p90, p99, mean = summary.held_s
    rows = {
        "jobs": f"{summary.jobs} of {summary.users} users in {summary.span_h:.1f} h",
        "GPU-hours": f"{summary.gpu_hours:.1f}" + (f", offered load {load:.3f}" if load is not None else ""),
        "GPUs a job": f"{summary.mean_gpus:.2f}",
        "seconds held": f"p50 {median:.0f}, p90 {p90:.0f}, p99 {p99:.0f}, mean {mean:.0f}",
        "ends": ", ".join(f"{state} {share:.1%}" for state, share in summary.ends.items()),
        "needed of asked": f"CPUs {summary.cpu_fraction:.2f}, memory {summary.mem_fraction:.2f}, "
        f"time limit {summary.limit_used:.2f}",
        "moldable": f"{summary.moldable:.1%}",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console(markup=False, emoji=False).print(table)
