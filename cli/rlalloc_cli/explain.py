"""``rlalloc explain JOBID --verbose`` and ``--json``: all that is known of one job."""

from collections.abc import Mapping, Sequence

import msgspec
from rich.table import Table

from rlalloc.allocation import gpus_for
from rlalloc.counted import counted
from rlalloc.heuristics.order import SMALLEST_AREA_FIRST
from rlalloc.job import Bounds, Range
from rlalloc.local_times import duration, local_time
from rlalloc.run_time import EXPECTED_FRACTION_OF_LIMIT
from rlalloc.store import Decision, Outcome
from rlalloc.store.job_story import Chapter
from rlalloc.view import expected_as_requested_s
from rlalloc_cli.terminal import CONSOLE


def story_as_json(story: Sequence[Chapter]) -> str:
    """The story as one JSON array; observations by feature name."""
    plain = [
        {
            "decision": {
                **msgspec.to_builtins(chapter.decision),
                "observation": _rounded(chapter.features),
            },
            "gpus_of_heuristics": gpus_of_heuristics(chapter),
            "in_force": chapter.in_force,
            "applications": msgspec.to_builtins(chapter.applications),
            "outcome": msgspec.to_builtins(chapter.outcome),
        }
        for chapter in story
    ]
    return msgspec.json.format(msgspec.json.encode(plain)).decode()


def _rounded(features: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in features.items()}


def gpus_of_heuristics(chapter: Chapter) -> dict[str, int]:
    """How many GPUs each heuristic would have given the job, by name; empty where no policy was asked."""
    bounds = chapter.decision.bounds
    if bounds is None:
        return {}
    return {name: gpus_for(shares.gpu, bounds) for name, shares in chapter.alternatives.items()}


def print_story(story: Sequence[Chapter], running: str = "") -> None:
    """Print the story for a person. ``running``: how the job runs now, by the decision in force."""
    for chapter in story:
        _print_chapter(chapter, running if chapter.decision.id == story[-1].in_force else "")


def _print_chapter(chapter: Chapter, running: str) -> None:
    decision = chapter.decision
    table = Table(title=f"job {decision.job_id} {decision.job_name!r}", show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("submitted", f"{local_time(decision.submitted_s)} by {decision.user}, account {decision.account}")
    table.add_row("request", as_asked(decision))
    table.add_row("class, rule", f"{decision.job_class}, {decision.rule} ({decision.mode}) on {decision.partition}")
    if decision.bounds is not None:
        for name, line in bounds_lines(decision.bounds):
            table.add_row(name, line)
    table.add_row("decided", f"{local_time(decision.decided_s)}, decision {decision.id}")
    if decision.predicted_gain is not None:
        table.add_row(
            "re-decision", f"while pending; predicted to save {decision.predicted_gain:.0%} of the job's cost"
        )
    table.add_row("expected run", _run_time_line(decision))
    for name, line in _observation_lines(chapter):
        table.add_row(name, line)
    if decision.shares is not None and decision.log_probability is not None:
        shares = decision.shares
        sizes = f"GPU {shares.gpu:.3f}, CPU {shares.cpu:.3f}, memory {shares.mem:.3f}"
        table.add_row(
            "shares", f"{sizes}, urgency {shares.urgency:.3f}; log-probability {decision.log_probability:.3f}"
        )
        table.add_row("policy", decision.policy_version or "-")
    if decision.nice is not None and decision.patience_s is not None:
        falls = f"decays to 0 within {duration(decision.patience_s)} of waiting"
        table.add_row("nice", f"+{decision.nice}, {falls}" if decision.nice else "+0: the job keeps its place")
    for name, line in (*_allocation_lines(decision), *_plan_lines(decision)):
        table.add_row(name, line)
    for application in chapter.applications:
        table.add_row("applied", f"{application.state} at {local_time(application.changed_s)}: {application.detail}")
    for name, line in _outcome_lines(chapter, running):
        table.add_row(name, line)
    CONSOLE.print(table)


def as_asked(decision: Decision) -> str:
    """A job's request as Slurm had it at the decision.

    Slurm adds its defaults for each GPU only when it first tries to start the job.
    """
    later = ", before Slurm's defaults for each GPU (below)" if decision.skip_code == "gpu-defaults" else ""
    return decision.request.describe() + later


def _run_time_line(decision: Decision) -> str:
    """How long the job was expected to run as requested, and what that rests on."""
    expected = duration(expected_as_requested_s(decision))
    known = decision.run_time
    if known is None:
        return f"{expected} as requested: {EXPECTED_FRACTION_OF_LIMIT:g} of its time limit, all that is known"
    between = f"80% between {duration(known.low_s)} and {duration(known.high_s)}"
    return f"{expected} as requested, {between}; from {known.source}"


def _plan_lines(decision: Decision) -> tuple[tuple[str, str], ...]:
    """How the GPUs were to be divided into parallel ranks."""
    plan = decision.circumstances.plan if decision.circumstances is not None else None
    return (("plan", plan.describe()),) if plan is not None else ()


def _allocation_lines(decision: Decision) -> tuple[tuple[str, str], ...]:
    """The size, and what a new one was expected to cost, or why there is none."""
    size, slowdown = decision.allocation, decision.slowdown
    if size is None:
        return ("allocation", "as submitted"), ("skipped", decision.reason)
    if size == decision.request:
        return (("allocation", "same as the request"),)
    line = size.describe() + (" (shadow: not applied)" if decision.mode == "shadow" else "")
    if size.gpu_type is not None:
        line += f"; {size.gpu_type.why()}"
    if slowdown is None:
        return (("allocation", line),)
    times = f"{slowdown.median:.2f} times the run time, the time limit allows for {slowdown.allowed:.2f}"
    return ("allocation", line), ("slowdown", f"{times}; from {slowdown.source}")


def bounds_lines(bounds: Bounds) -> tuple[tuple[str, str], ...]:
    """Lines of a table that say what a job may get and who says so; what its script shows comes first."""
    counts = ", ".join(str(count) for count in bounds.gpu_counts)
    script = (("script", bounds.script),) if bounds.script else ()
    return (
        *script,
        ("bounds: GPUs", f"{_range(bounds.gpus)}; workable: {counts}"),
        ("bounds: CPUs/GPU", _range(bounds.cpus_per_gpu)),
        ("bounds: MiB/GPU", _range(bounds.mem_mib_per_gpu)),
        *((("sockets", bounds.sockets),) if bounds.sockets else ()),
        *((("past jobs", bounds.past),) if bounds.past else ()),
        ("tasks follow", "the GPUs (srun)" if bounds.task_per_gpu else "the nodes (torchrun)"),
    )


def _range(bound: Range) -> str:
    return f"{bound.minimum:g} (from the {bound.minimum_from}) to {bound.maximum:g} (from the {bound.maximum_from})"


def _observation_lines(chapter: Chapter) -> list[tuple[str, str]]:
    """What the policy saw, and what the heuristics would have made of it."""
    words = [f"{name} {value:g}" for name, value in _rounded(chapter.features).items()]
    lines = [("" if first else "observed", ", ".join(words[first : first + 4])) for first in range(0, len(words), 4)]
    gpus = gpus_of_heuristics(chapter)
    answers = ", ".join(f"{name.removesuffix(SMALLEST_AREA_FIRST)} {count}" for name, count in gpus.items())
    return [*lines, ("GPUs by heuristics", answers)] if gpus else lines


def _ours(outcome: Outcome) -> str:
    return "" if outcome.our_doing is None else f", {outcome.our_doing} in a size that rlalloc chose"


def _outcome_lines(chapter: Chapter, running: str) -> tuple[tuple[str, str], ...]:
    decision, outcome = chapter.decision, chapter.outcome
    if outcome is None and chapter.in_force != decision.id:
        return (("outcome", f"see decision {chapter.in_force}, which is in force"),)
    if outcome is None:
        now = (("now", running),) if running else ()
        return (*now, ("outcome", "not known yet: sacct reports it once the job has ended"))
    started_s = outcome.started_s
    wait = duration(started_s - decision.submitted_s if started_s else None)
    run_time = duration(outcome.ended_s - started_s if started_s else None)
    used = f"{counted(outcome.gpus, 'GPU')}, {counted(outcome.cpus, 'CPU')}"
    peak = "-" if outcome.max_rss_mib is None else f"{outcome.max_rss_mib:.0f} MiB"
    return (
        ("outcome", f"{outcome.state} (exit {outcome.exit_code}) at {local_time(outcome.ended_s)}{_ours(outcome)}"),
        ("", f"waited {wait}, ran {run_time} on {used}, {outcome.mem_mib:.0f} MiB"),
        ("", f"peak memory {peak}, reward {'-' if outcome.reward is None else f'{outcome.reward:.3f}'}"),
    )
