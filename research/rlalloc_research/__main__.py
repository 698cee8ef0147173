"""``python -m rlalloc_research``: tables and figures of papers, one command each."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from rlalloc.errors import ConfigError, PolicyError, RlallocError
from rlalloc_simulator.command_line import errors_end_here, progress_bar

if TYPE_CHECKING:
    from rlalloc_research.speed_model.speed_table import SpeedTable

app = typer.Typer(no_args_is_help=True, help="Tables and figures of papers.")


@app.command("pareto-front")
def pareto_front(
    term: Annotated[
        str, typer.Argument(metavar="TERM", help="A term of the objective (docs/admin/objective.md).")
    ] = "gpu_held",
    *,
    weights: Annotated[str, typer.Option(help="Weights of TERM beside jct 1.")] = "0,2,5,100",
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    workloads: Annotated[int, typer.Option(min=1, help="Simulated workloads to learn from.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps of each policy.")] = 3000,
    validation_workloads: Annotated[int, typer.Option(min=1, help="Workloads to judge on.")] = 80,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the front to this PNG.")] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
) -> None:
    """Compare one weight-conditioned policy with one policy per weight."""
    from rlalloc.heuristics import BASELINE_NAME
    from rlalloc_research.pareto_front import ParetoFrontSettings
    from rlalloc_research.research_wiring import make_pareto_front
    from rlalloc_simulator.comparison.paired_statistics import CONFIDENCE

    with errors_end_here("research", ConfigError, PolicyError):
        settings = ParetoFrontSettings(
            term=term,
            weights=_weights(weights),
            seed=seed,
            workloads=workloads,
            steps=steps,
            validation_workloads=validation_workloads,
        )
        with progress_bar() as report:
            found = make_pareto_front(settings, png, processes, report)
    table = Table(
        title=f"Over those of {BASELINE_NAME}, on {validation_workloads} workloads [{CONFIDENCE:.0%} interval]"
    )
    for column in (f"weight of {term}", *(f"{name}: {what}" for name in found for what in ("mean JCT", term))):
        table.add_column(column, justify="right")
    for points in zip(*found.values(), strict=True):
        cells = [str(interval) for point in points for interval in (point.jct, point.cost)]
        table.add_row(f"{points[0].weight:g}", *cells)
    terminal = Console()
    Console(width=None if terminal.is_terminal else 140).print(table, highlight=False)


def _weights(text: str) -> tuple[float, ...]:
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError as err:
        raise PolicyError(f"--weights {text}: write numbers separated by commas, as 0,0.1,1") from err
    if not all(0 <= weight <= 1e6 for weight in weights):
        raise PolicyError(f"--weights {text}: write weights from 0 to 1000000")
    return weights


@app.command()
def planning(
    policies: Annotated[
        list[str],
        typer.Argument(metavar="POLICY...", help="As for rlalloc evaluate; planned: in front of one makes it plan."),
    ],
    *,
    workload: Annotated[Path, typer.Option(metavar="FILE", help="The workload to compare on.")],
    loads: Annotated[str, typer.Option(help="Offered GPU loads.")] = "0.6,1.0,1.5",
    settings: Annotated[str, typer.Option(help="sizes, urgency, requeue; some of them.")] = "sizes,urgency",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Tables, figure and runs.")] = Path(
        "planning"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Compare policies that plan with those that do not."""
    from rlalloc_research.planning.compared_planning import plain_or_planned
    from rlalloc_simulator.commands.policy_commands import loads_of
    from rlalloc_simulator.workloads.workload_errors import WorkloadError
    from rlalloc_trainer.commands.evaluate_command import show
    from rlalloc_trainer.evaluation.evaluate import EvaluationSettings, evaluate

    with errors_end_here("research", WorkloadError, PolicyError), progress_bar() as report:
        asked = EvaluationSettings(
            policies=tuple(policies),
            files=(workload,),
            only=(workload.stem,),
            loads=loads_of(loads),
            settings=tuple(settings.split(",")),
            output=output,
            workers=workers,
        )
        evaluated = evaluate(asked, report, plain_or_planned)
    show(evaluated)


@app.command()
def parallelism(
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each learner.")] = 10,
    folder: Annotated[Path, typer.Option(help="Where runs are kept, so that a second call goes on.")] = Path(
        "parallelism"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
) -> None:
    """Choose GPU counts and parallelism by Q-learning, SARSA, a fixed policy and SAC, and compare with the best."""
    from rlalloc_research.research_wiring import compare_parallelism

    with errors_end_here("research"), progress_bar() as report:
        rows = compare_parallelism(seeds, folder, workers, report)
    table = Table(title=f"Mean and deviation over {seeds} seeds, on episodes that nothing was learned on")
    table.add_column("policy")
    for column in ("accuracy", "precision", "F1", "within 1%", "total reward", "kWh a job", "s a job", "failed"):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        pairs = zip(msgspec.structs.astuple(row.mean), msgspec.structs.astuple(row.deviation), strict=True)
        places = (3, 3, 3, 3, 2, 3, 0, 4)
        cells = (f"{mean:,.{each}f} ± {spread:.{each}f}" for (mean, spread), each in zip(pairs, places, strict=True))
        table.add_row(name, *cells)
    terminal = Console()
    Console(width=None if terminal.is_terminal else 160).print(table)


FolderOption = Annotated[Path, typer.Option(help="Where finished runs are kept; a second call goes on.")]
PngOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to this PNG.")]


@app.command("sac-check")
def sac_check(
    task: Annotated[list[str] | None, typer.Option(help="Only this task: pendulum or cluster; repeatable.")] = None,
    *,
    seeds: Annotated[int, typer.Option(min=2, help="Runs of each library.")] = 5,
    folder: FolderOption = Path("sac-check"),
    png: PngOption = None,
) -> None:
    """Compare our SAC with stable-baselines3's: the same tasks, settings and budget."""
    from rlalloc_research.sac_check import TASKS, run_check

    with errors_end_here("research", PolicyError):
        if unknown := [name for name in task or () if name not in TASKS]:
            raise PolicyError(f"--task {unknown[0]}: write one of {', '.join(TASKS)}")
        run_check(task or (), seeds, folder, png)


@app.command("imitation-ablation")
def imitation_ablation(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each arm.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of a run.")] = 6000,
    every: Annotated[int, typer.Option(min=1, help="Steps between evaluations.")] = 500,
    folder: FolderOption = Path("imitation-ablation"),
    png: PngOption = None,
) -> None:
    """Measure what prioritised replay and imitation save in environment steps."""
    from rlalloc_research.imitation_ablation import run_ablation

    with errors_end_here("research", PolicyError):
        run_ablation(folder, seeds, steps, every, png)


@app.command("advantage-noise")
def advantage_noise(
    workloads: Annotated[int, typer.Option(min=1, help="Training workloads.")] = 6,
    futures: Annotated[int, typer.Option(min=2, help="Futures of each decision.")] = 8,
) -> None:
    """Measure how long counterfactual advantages take, how noisy they are, and how biased."""
    from rlalloc_research.advantage_noise import print_noise

    with errors_end_here("research"):
        print_noise(workloads, futures)


@app.command("critic-fit")
def critic_fit(
    folder: Annotated[Path, typer.Argument(help="The training folder of `rlalloc train policy`.")],
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps of the critics.")] = 6000,
) -> None:
    """Measure how well critics predict advantages that they never saw."""
    from rlalloc_research.critic_fit import print_fit

    with errors_end_here("research", PolicyError):
        print_fit(folder, steps)


@app.command("typical-advantages")
def typical_advantages(
    workloads: Annotated[int, typer.Option(min=1, help="Training workloads.")] = 60,
) -> None:
    """Measure how much decisions change each term of the objective."""
    from rlalloc_research.typical_advantages import print_typical

    with errors_end_here("research"):
        print_typical(workloads)


@app.command("planning-latency")
def planning_latency(
    decisions: Annotated[int, typer.Option(min=1, help="Timed decisions of each size of cluster.")] = 60,
    budget: Annotated[float, typer.Option(min=0.001, help="Latency budget of a decision [s].")] = 0.5,
) -> None:
    """Time planned decisions by the size of the cluster."""
    from rlalloc_research.planning_latency import print_latency

    with errors_end_here("research"):
        print_latency(decisions, budget)


@app.command("llm-memory")
def llm_memory(
    ran: Annotated[
        Path | None, typer.Option(metavar="CSV", help="llm-foundry's throughput table: which of its runs fit?")
    ] = None,
) -> None:
    """Compare computed parameters and GPU memory of LLMs with published figures."""
    from rlalloc.errors import RlallocError
    from rlalloc_research.llm_memory import print_cases

    with errors_end_here("research", RlallocError):
        print_cases(ran)


@app.command("profiles-and-prior")
def profiles_and_prior(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Profiles measured on one GPU.")],
) -> None:
    """Compare what profiles measured on one GPU with what rlalloc computes from the architecture alone."""
    from rlalloc_research.profiles_and_prior import table_of

    with errors_end_here("research", RlallocError):
        table = table_of(files)
    terminal = Console()
    Console(width=None if terminal.is_terminal else 150).print(table, highlight=False)


@app.command("trace-run-times")
def trace_run_times(
    trace_format: Annotated[str, typer.Argument(metavar="FORMAT", help="As `rlalloc simulate convert` names it.")],
    files: Annotated[list[Path], typer.Argument(help="The trace.")],
    last: Annotated[int, typer.Option(min=1, help="Only so many jobs, the last ones, are read.")] = 25_000,
    blocks: Annotated[int, typer.Option(min=1, help="So often is the model learned anew.")] = 8,
) -> None:
    """Predict the run times of a published trace in strict time order."""
    from rlalloc.errors import RlallocError
    from rlalloc_cli.history_evaluate import print_figures
    from rlalloc_research.trace_run_times import evaluate_trace
    from rlalloc_simulator.workloads.readers import FORMATS

    if trace_format not in FORMATS:
        raise typer.BadParameter(f"{trace_format!r}: write one of {', '.join(FORMATS)}")
    with errors_end_here("research", RlallocError), progress_bar() as report:
        result = evaluate_trace(files, trace_format, last, report, blocks)
    for title, predictors in (
        (f"Run times of {result.jobs:,} jobs, after {result.skipped:,} others", result.predictors),
        (f"Remaining times of running jobs, {result.running:,} questions", result.remaining),
    ):
        print_figures(title, predictors)


@app.command("undeclared-needs")
def undeclared_needs(
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the published tables (research/README.md).")
    ] = None,
    measured: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Instead an SWF log that has what its jobs used; repeatable."),
    ] = None,
    skip: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="The first part of a --measured log, which is not counted.")
    ] = 0.2,
    log: Annotated[list[str] | None, typer.Option(help="Only this log: Atlas, Philly or Kalos; repeatable.")] = None,
    last: Annotated[int, typer.Option(min=1, help="Only so many jobs of a log, the last ones.")] = 40_000,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of the needs.")] = 2,
    exceeded: Annotated[
        float | None, typer.Option(min=0.0001, max=0.2, help="trimming.exceeded; else its default.")
    ] = None,
) -> None:
    """Trim memory and CPUs that nobody declared: kills, and what is given back (docs/results/past-usage.md)."""
    from rlalloc.errors import RlallocError
    from rlalloc.usage.trimming_rules import DEFAULT_RULES
    from rlalloc_research.undeclared_needs.logged_jobs import LOGS
    from rlalloc_research.undeclared_needs.needs_table import measured_rows, needs_rows

    if (data is None) == (not measured):
        raise typer.BadParameter("write either --data or --measured")
    if unknown := [name for name in log or () if name not in LOGS]:
        raise typer.BadParameter(f"--log {unknown[0]}: write one of {', '.join(LOGS)}")
    rules = DEFAULT_RULES if exceeded is None else msgspec.structs.replace(DEFAULT_RULES, exceeded=exceeded)
    with errors_end_here("research", RlallocError), progress_bar() as report:
        if data is not None:
            rows = list(needs_rows(data, tuple(log or LOGS), last, seeds, rules, report))
        else:
            rows = list(measured_rows(measured or (), last, skip, rules, report))
    drawn = f"{seeds} draws of the needs" if data is not None else "use as measured"
    table = Table(title=f"Trimmed to what like jobs used, in strict time order; {drawn}")
    for heading in (
        "log", "needs", "jobs", "memory trimmed", "CPUs trimmed", "killed", "of trimmed", "of memory trimmed",
        "memory back", "where trimmed", "CPUs back", "where trimmed", "run time", "timed out",
    ):  # fmt: skip
        table.add_column(heading, justify="left" if heading in ("log", "needs") else "right")
    for row in rows:
        of = row.figures
        table.add_row(
            row.log,
            row.assumed,
            f"{of.jobs:,}",
            f"{of.memory_trimmed / of.jobs:.0%}",
            f"{of.cpus_trimmed / of.jobs:.0%}",
            f"{of.killed:,}",
            f"{of.killed_part:.2%}",
            f"{of.killed / max(1, of.memory_trimmed):.2%}",
            f"{of.memory_back:.0%}",
            f"{of.memory_back_where_trimmed:.0%}",
            f"{of.cpus_back:.0%}",
            f"{of.cpus_back_where_trimmed:.0%}",
            f"+{of.slowdown_hours / of.run_hours:.2%}",
            f"{of.timed_out:,}",
        )
    terminal = Console()
    Console(width=None if terminal.is_terminal else 190).print(table, highlight=False)


@app.command("speed-model")
def speed_model(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the published tables (research/README.md).")],
    png: PngOption = None,
) -> None:
    """Fit the speed model's prior, and predict measured speeds that were held out (docs/results/speed-model.md)."""
    from rlalloc.errors import RlallocError
    from rlalloc_research.speed_model.fitted_prior import described
    from rlalloc_research.speed_model.held_out_speeds import TARGETS
    from rlalloc_research.speed_model.speed_table import speed_table

    with errors_end_here("research", RlallocError), progress_bar() as report:
        found = speed_table(data, png, report)
    errors = Table(title="Median relative error of held-out speeds, % (points)")
    for column in ("held out", "known", *found.tables, "all", "target"):
        errors.add_column(column, justify="left" if column in ("held out", "known") else "right")
    for row in found.rows:
        by_table = (
            f"{row.median_error(name):.1%} ({len(row.by_table[name])})" if name in row.by_table else "-"
            for name in found.tables
        )
        errors.add_row(row.row, row.known, *by_table, f"{row.median_error():.1%}", f"{TARGETS[row.row]:.0%}")
    limits = Table(title="Measured slowdowns within what a time limit allows")
    for column in ("table", "pairs of sizes", "95% quantile", "BERT's curve"):
        limits.add_column(column, justify="left" if column == "table" else "right")
    for each in found.allowed:
        limits.add_row(each.table, f"{each.pairs:,}", f"{each.held:.1%}", f"{each.held_by_the_curve:.1%}")
    terminal = Console()
    out = Console(width=None if terminal.is_terminal else 160)
    out.print(errors, highlight=False)
    out.print(limits, highlight=False)
    exact = sum(error < 0.05 for error in found.cpus) / len(found.cpus)
    out.print(f"CPU counts between one and all (Synergy): {exact:.0%} of {len(found.cpus)} speeds within 5%")
    out.print(f"Prior of {found.families} families: {described(found.prior)}", highlight=False)
    for left_out, prior in found.without.items():
        out.print(f"Without {left_out}: {described(prior)}", highlight=False)
    _print_layouts(out, found)


def _print_layouts(out: Console, found: "SpeedTable") -> None:
    """The constants of training steps, and Megatron-LM's layouts by them."""
    fitted = ", ".join(f"{name} {value:.2f}" for name, value in found.constants._asdict().items())
    reached = ", ".join(f"{name} {value:.2f}" for name, value in found.efficiency.items())
    out.print(f"Training steps by MPT: {fitted}; efficiency: {reached}", highlight=False)
    table = Table(title="Megatron-LM's layouts (Narayanan et al. 2021, table 1): TFLOP/s of an A100")
    for column in ("billion parameters", "TP", "PP", "GPUs", "published", "predicted", "error"):
        table.add_column(column, justify="right")
    for row in found.layouts:
        error = f"{row.predicted / row.published - 1:+.1%}"
        sizes = (row.tensor, row.pipeline, row.gpus)
        table.add_row(f"{row.billions:.1f}", *map(str, sizes), f"{row.published:.0f}", f"{row.predicted:.0f}", error)
    out.print(table, highlight=False)
    if found.scaling:
        counts = sorted(found.scaling[0].errors)
        scaling = Table(title="How MLPerf's GPT-3 on H100 scales, from its smallest entry: relative error")
        scaling.add_column("predicted by")
        for count in counts:
            scaling.add_column(f"{count:,} GPUs", justify="right")
        for each in found.scaling:
            scaling.add_row(each.how, *(f"{each.errors[count]:+.1%}" for count in counts))
        out.print(scaling)


@app.command("shared-speeds")
def shared_speeds(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the published tables (research/README.md).")],
) -> None:
    """Predict how models scale from another model on the same GPUs (docs/explanation/scaling.md)."""
    from rlalloc.errors import RlallocError
    from rlalloc_research.speed_model.shared_speeds import shared_speeds as predicted

    with errors_end_here("research", RlallocError), progress_bar() as report:
        rows = predicted(data, report)
    table = Table(title=f"Speed-ups of {rows[0].families} families, from another model on the same GPUs")
    for column in ("shared", "mean error", "median error", "below the 95% quantile"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(f"{row.shared:g}", f"{row.error:.1%}", f"{row.median_error:.1%}", f"{row.coverage:.1%}")
    Console().print(table)


@app.command("truths")
def truths(
    *,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the published tables and logs.")],
) -> None:
    """Print what the truths of ``rlalloc evaluate`` are drawn from: fitted scaling, and what logs say of people."""
    from rlalloc.errors import RlallocError
    from rlalloc_research.truths.log_statistics import log_statistics
    from rlalloc_research.truths.scaling_fit import PARTS, scaling_fit

    with errors_end_here("research", RlallocError):
        fits = scaling_fit(data)
        logs = [log_statistics(path) for path in sorted((data / "swf").glob("*.swf"))]
    table = Table(title="Exponents beyond the knee: quantiles over measured curves")
    for column in ("source", "curves", *(f"{part:.0%}" for part in PARTS), "median knee", "median error"):
        table.add_column(column, justify="left" if column == "source" else "right")
    for fit in fits:
        exponents = (f"{each:.2f}" for each in fit.exponents)
        table.add_row(
            fit.source, str(fit.curves), *exponents, f"{fit.knees[len(PARTS) // 2]:.1f}", f"{fit.error:.3f}"
        )
    people = Table(title="Users, families and limits in logs")
    people.add_column("")
    for each in logs:
        people.add_column(each.log, justify="right")
    for place, name in enumerate(logs[0]._fields[1:] if logs else (), 1):
        people.add_row(name, *(f"{each[place]:.3g}" if place > 2 else f"{each[place]:,}" for each in logs))
    terminal = Console()
    out = Console(width=None if terminal.is_terminal else 160)
    out.print(table)
    out.print(people)


@app.command("limit-kills")
def limit_kills(
    *,
    policy: Annotated[str, typer.Option(help="A name of rlalloc simulate policies.")] = "price-by-order",
    load: Annotated[float, typer.Option(min=0.1, help="Offered GPU load.")] = 1.0,
    quick: Annotated[bool, typer.Option(help="Half of the workloads, smaller ones.")] = False,
) -> None:
    """Count the jobs that are killed at their time limits, by how they really scale (docs/results/speed-model.md)."""
    from rlalloc_research.speed_model.limit_kills import kills

    with errors_end_here("research", PolicyError), progress_bar() as report:
        rows = kills(policy, load, report, quick=quick)
    table = Table(title=f"{policy} at a load of {load:g}, means of the validation workloads")
    for column in ("scenario", "true speed-up", "workloads", "killed as requested", "killed", "mean JCT ratio"):
        table.add_column(column, justify="left" if column in ("scenario", "true speed-up") else "right")
    for row in rows:
        table.add_row(
            row.scenario,
            row.truth,
            str(row.workloads),
            f"{row.killed_as_requested:.1f}",
            f"{row.killed:.1f}",
            f"{row.jct_ratio:.3f}",
        )
    terminal = Console()
    Console(width=None if terminal.is_terminal else 120).print(table, highlight=False)


@app.command("gpu-types")
def gpu_types(
    *,
    workloads: Annotated[int, typer.Option(min=1, help="Simulated workloads.")] = 40,
    jobs: Annotated[int, typer.Option(min=20, help="Jobs of each, about.")] = 200,
) -> None:
    """Compare known-gain with and without the choice of a type of GPU, on sites with two types."""
    from rlalloc_research.type_choice_gain import compare

    with progress_bar() as report:
        rows = list(compare(workloads, jobs, report))
    table = Table(title=f"Mean JCT with the choice over without, {workloads} workloads of about {jobs} jobs")
    columns = ("a100 over v100", "Slurm takes first", "load", "GPU use", "JCT ratio", "worst workload", "killed")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            *(f"{row.true_speed:g}", row.first, f"{row.load:g}", f"{row.gpu_use:.0%}", str(row.jct)),
            *(f"{row.worst:.3f}", f"{row.killed[0]} → {row.killed[1]}"),
        )
    terminal = Console()
    Console(width=None if terminal.is_terminal else 120).print(table, highlight=False)


@app.command("ordinary-site")
def ordinary_site(
    *,
    scripts: Annotated[Path, typer.Option(metavar="FOLDER", help="The site's batch scripts, *.sh.")] = Path(
        "tests/slurm_plugin/scripts"
    ),
    config: Annotated[Path, typer.Option(metavar="FILE", help="The site's rules.")] = Path("etc/rlalloc.yaml"),
    workloads: Annotated[int, typer.Option(min=1, max=16, help="Simulated workloads.")] = 8,
    replicates: Annotated[int, typer.Option(min=1, help="Runs of each, with moved submissions.")] = 3,
    wider: Annotated[bool, typer.Option("--wider", help="Also under rules that allow more.")] = False,
) -> None:
    """Compare known-gain with as requested on a site where nobody writes a #RLALLOC line."""
    from rlalloc.config import load_config
    from rlalloc_research.ordinary_site import Extent, compare, scripts_in

    with errors_end_here("research", RlallocError), progress_bar() as report:
        rules = load_config(config)
        extent = Extent(workloads=workloads, replicates=replicates, wider=wider)
        rows = list(compare(rules, scripts_in(scripts, rules), extent, report))
    table = Table(title=f"known-gain over as requested, {workloads} workloads, {rows[0].jobs} jobs")
    for column in ("rule", "knowledge", "may resize", "may shrink", "JCT ratio", "killed for it", "worst user"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            *(row.rule, row.knowledge, f"{row.may_resize:.1%}", f"{row.may_shrink:.1%}", str(row.jct)),
            *(str(row.killed), f"{row.worst:.2f}"),
        )
    terminal = Console()
    Console(width=None if terminal.is_terminal else 120).print(table, highlight=False)


@app.command("price-check")
def price_check(
    *,
    pollux: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Pollux's step times and workloads: adds them.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="SCENARIO", help="Only this scenario of rlalloc evaluate; repeatable.")
    ] = None,
    others: Annotated[
        str, typer.Option(help="What decides the other jobs: known-gain or as-requested.")
    ] = "known-gain",
    seeds: Annotated[int, typer.Option(min=1, help="Validation workloads of each scenario.")] = 2,
    decisions: Annotated[int, typer.Option(min=1, help="Decisions of each workload that are taken again.")] = 20,
) -> None:
    """Force single jobs into each size, and compare what known-gain predicts with what comes of it."""
    from rlalloc_research.price_check.checked_workloads import CheckSettings, checked_workloads
    from rlalloc_research.price_check.price_tables import price_tables
    from rlalloc_simulator.workloads.workload_errors import WorkloadError

    with errors_end_here("research", WorkloadError), progress_bar() as report:
        settings = CheckSettings(
            decisions=decisions, seeds=seeds, others=others, pollux=pollux, only=tuple(only or ())
        )
        checked = list(checked_workloads(settings, report))
    terminal = Console()
    out = Console(width=None if terminal.is_terminal else 140)
    for table in price_tables(checked):
        out.print(table, highlight=False)


if __name__ == "__main__":
    app()
