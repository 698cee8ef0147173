"""``rlalloc explain JOBID --verbose`` and ``--json``: all that is known of one job."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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

_ALL_OF_NODES: Final = "; Slurm gives it all CPUs and GPUs of its nodes"
_SLURM_ADDS: Final = {
    "gpu-defaults": ", before Slurm's defaults for each GPU (below)",
    "whole-nodes": _ALL_OF_NODES,
    "exclusive-force": _ALL_OF_NODES,
}
"""What Slurm adds to a request, by the reason why the job runs as submitted."""
_IN_VAIN: Final = "as submitted: slurmctld had forgotten the decided size, or somebody had set the request again"
Lines = Iterator[tuple[str, str]]
"""Rows of a table: a name, and what there is to say."""


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
            "applications_of_tasks": msgspec.to_builtins(chapter.of_tasks),
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


def print_story(story: Sequence[Chapter], running: str) -> None:
    """Print the story for a person. ``running``: how the job runs now, by the decision in force."""
    for chapter in story:
        _print_chapter(chapter, running if chapter.decision.id == story[-1].in_force else "")


def _print_chapter(chapter: Chapter, running: str) -> None:
    decision = chapter.decision
    table = Table(title=f"job {decision.job_id} {decision.job_name!r}", show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, line in _lines_of(chapter, running):
        table.add_row(name, line)
    CONSOLE.print(table)


def _lines_of(chapter: Chapter, running: str) -> Lines:
    decision = chapter.decision
    yield "submitted", f"{local_time(decision.submitted_s)} by {decision.user}, account {decision.account}"
    yield "request", as_asked(decision)
    yield "class, rule", f"{decision.job_class}, {decision.rule} ({decision.mode}) on {decision.partition}"
    if decision.bounds is not None:
        yield from bounds_lines(decision.bounds)
    yield "decided", f"{local_time(decision.decided_s)}, decision {decision.id}"
    if decision.predicted_gain is not None:
        yield "re-decision", f"while pending; predicted to save {decision.predicted_gain:.0%} of the job's cost"
    yield "expected run", _run_time_line(decision)
    yield from _observation_lines(chapter)
    if (shares := decision.shares) is not None:
        sizes = f"GPU {shares.gpu:.3f}, CPU {shares.cpu:.3f}, memory {shares.mem:.3f}"
        drawn = "" if decision.log_probability is None else f"; log-probability {decision.log_probability:.3f}"
        yield "shares", f"{sizes}, urgency {shares.urgency:.3f}{drawn}"
        yield "policy", decision.policy_version or "-"
    if decision.nice is not None and decision.patience_s is not None:
        falls = f"decays to 0 within {duration(decision.patience_s)} of waiting"
        yield "nice", f"+{decision.nice}, {falls}" if decision.nice else "+0: the job keeps its place"
    yield from _allocation_lines(decision)
    if decision.circumstances is not None and (plan := decision.circumstances.plan) is not None:
        yield "plan", plan.describe()  # how the GPUs were to be divided into parallel ranks
    for application in chapter.applications:
        yield "applied", f"{application.state} at {local_time(application.changed_s)}: {application.detail}"
    for task in chapter.of_tasks:
        yield f"task, job {task.job_id}", f"{task.state} at {local_time(task.changed_s)}: {task.detail}"
    yield from _outcome_lines(chapter, running)


def as_asked(decision: Decision) -> str:
    """A job's request as Slurm had it at the decision.

    Slurm adds its defaults for each GPU only when it first tries to start the job. It adds whole nodes when the job
    starts.
    """
    return decision.request.describe() + _SLURM_ADDS.get(decision.skip_code, "")


def _run_time_line(decision: Decision) -> str:
    """How long the job was expected to run as requested, and what that rests on."""
    expected = duration(expected_as_requested_s(decision))
    known = decision.run_time
    if known is None:
        return f"{expected} as requested: {EXPECTED_FRACTION_OF_LIMIT:g} of its time limit, all that is known"
    between = f"80% between {duration(known.low_s)} and {duration(known.high_s)}"
    return f"{expected} as requested, {between}; from {known.source}"


def _allocation_lines(decision: Decision) -> Lines:
    """The size, and what a new one was expected to cost, or why there is none."""
    size, slowdown = decision.allocation, decision.slowdown
    if size is None:
        yield "allocation", "as submitted"
        yield "skipped", decision.reason
    elif size == decision.request:
        yield "allocation", "same as the request"
    else:
        line = size.describe() + (" (shadow: not applied)" if decision.mode == "shadow" else "")
        yield "allocation", line + (f"; {size.gpu_type.why()}" if size.gpu_type is not None else "")
        if slowdown is not None:
            times = f"{slowdown.median:.2f} times the run time, the time limit allows for {slowdown.allowed:.2f}"
            yield "slowdown", f"{times}; from {slowdown.source}"


def bounds_lines(bounds: Bounds) -> Lines:
    """Lines of a table that say what a job may get and who says so; what its script shows comes first."""
    if bounds.script:
        yield "script", bounds.script
    counts = ", ".join(str(count) for count in bounds.gpu_counts)
    yield "bounds: GPUs", f"{_range(bounds.gpus)}; workable: {counts}"
    yield "bounds: CPUs/GPU", _range(bounds.cpus_per_gpu)
    yield "bounds: MiB/GPU", _range(bounds.mem_mib_per_gpu)
    if bounds.sockets:
        yield "sockets", bounds.sockets
    if bounds.past:
        yield "past jobs", bounds.past
    yield "tasks follow", "the GPUs (srun)" if bounds.task_per_gpu else "the nodes (torchrun)"


def _range(bound: Range) -> str:
    return f"{bound.minimum:g} (from the {bound.minimum_from}) to {bound.maximum:g} (from the {bound.maximum_from})"


def _observation_lines(chapter: Chapter) -> Lines:
    """What the policy saw, and what the heuristics would have made of it."""
    words = [f"{name} {value:g}" for name, value in _rounded(chapter.features).items()]
    for first in range(0, len(words), 4):
        yield "" if first else "observed", ", ".join(words[first : first + 4])
    if gpus := gpus_of_heuristics(chapter):
        answers = (f"{name.removesuffix(SMALLEST_AREA_FIRST)} {count}" for name, count in gpus.items())
        yield "GPUs by heuristics", ", ".join(answers)


def in_vain_words(chapter: Chapter, nodes: int, cpus: int, gpus: int, mem_mib: float) -> str:
    """That a job that was given these runs, or ran, as submitted in spite of its decision; empty if it does not."""
    begun = any(each.state == "begun" for each in chapter.applications)
    return _IN_VAIN if begun and chapter.decision.was_in_vain(nodes, cpus, gpus, mem_mib) else ""


def times_of(decision: Decision, outcome: Outcome) -> str:
    """When a job's last run began, and how long it took. An earlier run of a requeued job does not count as wait."""
    if not outcome.started_s:
        return "never began, ran -"
    after, run_time = outcome.started_s - decision.submitted_s, outcome.ended_s - outcome.started_s
    return f"began {duration(after)} after its submission, ran {duration(run_time)}"


def _outcome_lines(chapter: Chapter, running: str) -> Lines:
    decision, outcome = chapter.decision, chapter.outcome
    if outcome is None:
        if chapter.in_force != decision.id:
            yield "outcome", f"see decision {chapter.in_force}, which is in force"
            return
        if running:
            yield "now", running
        yield "outcome", "not known yet: sacct reports it once the job has ended"
        return
    used = f"{counted(outcome.gpus, 'GPU')}, {counted(outcome.cpus, 'CPU')}"
    peak = "-" if outcome.max_rss_mib is None else f"{outcome.max_rss_mib:.0f} MiB"
    ours = "" if outcome.our_doing is None else f", {outcome.our_doing} in a size that rlalloc chose"
    yield "outcome", f"{outcome.state} (exit {outcome.exit_code}) at {local_time(outcome.ended_s)}{ours}"
    yield "", f"{times_of(decision, outcome)} on {used}, {outcome.mem_mib:.0f} MiB"
    if in_vain := in_vain_words(chapter, outcome.nodes, outcome.cpus, outcome.gpus, outcome.mem_mib):
        yield "", in_vain
    yield "", f"peak memory {peak}, reward {'-' if outcome.reward is None else f'{outcome.reward:.3f}'}"
