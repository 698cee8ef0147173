"""``rlalloc explain JOBID``: the whole story of one job, from the store."""

from collections.abc import Sequence

import msgspec
import numpy as np
from rich.table import Table

from rlalloc.allocation import gpus_for
from rlalloc.heuristics.order import SMALLEST_AREA_FIRST
from rlalloc.job import Allocation, Bounds, Range
from rlalloc.observation import FEATURES, SCHEMA_VERSION, Observation, heuristic_gpu_shares
from rlalloc.store import Application, Decision, Outcome, Store
from rlalloc_cli.terminal import CONSOLE, duration, local_time


class Chapter(msgspec.Struct, frozen=True):
    """One decision for the job, what was done about it and what came of it.

    ``in_force`` is the id of the decision that made the job what it is: this one, or another of the same job, which
    the outcome belongs to then.
    """

    decision: Decision
    applications: tuple[Application, ...]
    outcome: Outcome | None
    in_force: str


def story_of(store: Store, job_id: int) -> tuple[Chapter, ...]:
    """All decisions ever taken for this job id, oldest first; empty if there is none."""
    decisions = store.decisions_of(job_id)
    histories = store.histories({(job_id, int(decision.submitted_s)) for decision in decisions})
    outcomes = store.outcomes([decision.id for decision in decisions])
    story = []
    for decision in decisions:
        history = histories[job_id, int(decision.submitted_s)]
        applications = tuple(each for each in history.applications if each.decision_id == decision.id)
        story.append(Chapter(decision, applications, outcomes.get(decision.id), history.in_force.id))
    return tuple(story)


def story_as_json(story: Sequence[Chapter]) -> str:
    """The story as one JSON array; observations by feature name."""
    plain = [
        {
            "decision": {
                **msgspec.to_builtins(chapter.decision),
                "observation": named_observation(chapter.decision),
            },
            "gpus_of_heuristics": gpus_of_heuristics(chapter.decision),
            "in_force": chapter.in_force,
            "applications": msgspec.to_builtins(chapter.applications),
            "outcome": msgspec.to_builtins(chapter.outcome),
        }
        for chapter in story
    ]
    return msgspec.json.format(msgspec.json.encode(plain)).decode()


def named_observation(decision: Decision) -> dict[str, float]:
    """What the policy saw, by name of feature; empty where it was not asked or the encoding has changed since."""
    observation = _seen(decision)
    if observation is None:
        return {}
    return {name: round(float(value), 4) for name, value in zip(FEATURES, observation, strict=True)}


def _seen(decision: Decision) -> Observation | None:
    if decision.observation is None or decision.observation_schema != SCHEMA_VERSION:
        return None
    return np.frombuffer(decision.observation, dtype="<f4")


def gpus_of_heuristics(decision: Decision) -> dict[str, int]:
    """How many GPUs each heuristic that the agent can serve would have given the job, by name; empty likewise."""
    observation = _seen(decision)
    if observation is None or decision.bounds is None:
        return {}
    return {name: gpus_for(share, decision.bounds) for name, share in heuristic_gpu_shares(observation).items()}


def print_story(story: Sequence[Chapter]) -> None:
    """Print the story for a person."""
    for chapter in story:
        _print_chapter(chapter)


def _print_chapter(chapter: Chapter) -> None:
    decision = chapter.decision
    table = Table(title=f"job {decision.job_id} {decision.job_name!r}", show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("submitted", f"{local_time(decision.submitted_s)} by {decision.user}, account {decision.account}")
    table.add_row("request", decision.request.describe())
    table.add_row("class, rule", f"{decision.job_class}, {decision.rule} ({decision.mode}) on {decision.partition}")
    if decision.bounds is not None:
        for name, line in _bounds_lines(decision.bounds):
            table.add_row(name, line)
    table.add_row("decided", f"{local_time(decision.decided_s)}, decision {decision.id}")
    if decision.predicted_gain is not None:
        table.add_row("while it waited", f"predicted to save {decision.predicted_gain:.0%} of what it costs")
    for name, line in _observation_lines(decision):
        table.add_row(name, line)
    if decision.shares is not None and decision.log_probability is not None:
        shares = decision.shares
        sizes = f"GPU {shares.gpu:.3f}, CPU {shares.cpu:.3f}, memory {shares.mem:.3f}"
        table.add_row(
            "shares", f"{sizes}, urgency {shares.urgency:.3f}; log-probability {decision.log_probability:.3f}"
        )
        table.add_row("policy", decision.policy_version or "-")
    if decision.nice is not None and decision.patience_s is not None:
        falls = f"falling to nothing while it waits, within {duration(decision.patience_s)}"
        table.add_row("nice", f"+{decision.nice}, {falls}" if decision.nice else "+0: it keeps its place")
    table.add_row("allocation", _allocation_line(decision.request, decision.allocation, decision.mode))
    if decision.reason:
        table.add_row("left as submitted", decision.reason)
    for application in chapter.applications:
        table.add_row("applied", f"{application.state} at {local_time(application.changed_s)}: {application.detail}")
    for name, line in _outcome_lines(chapter):
        table.add_row(name, line)
    CONSOLE.print(table)


def _allocation_line(request: Allocation, allocation: Allocation | None, mode: str) -> str:
    if allocation is None:
        return "as submitted"
    if allocation == request:
        return "the request itself"
    return allocation.describe() + (" (shadow: not applied)" if mode == "shadow" else "")


def _bounds_lines(bounds: Bounds) -> tuple[tuple[str, str], ...]:
    counts = ", ".join(str(count) for count in bounds.gpu_counts)
    return (
        ("bounds: GPUs", f"{_range(bounds.gpus)}; workable: {counts}"),
        ("bounds: CPUs/GPU", _range(bounds.cpus_per_gpu)),
        ("bounds: MiB/GPU", _range(bounds.mem_mib_per_gpu)),
        ("tasks follow", "the GPUs (srun)" if bounds.task_per_gpu else "the nodes (torchrun)"),
    )


def _range(bound: Range) -> str:
    return f"{bound.minimum:g} (from the {bound.minimum_from}) to {bound.maximum:g} (from the {bound.maximum_from})"


def _observation_lines(decision: Decision) -> list[tuple[str, str]]:
    """What the policy saw, and what the heuristics would have made of it."""
    words = [f"{name} {value:g}" for name, value in named_observation(decision).items()]
    lines = [("" if first else "observed", ", ".join(words[first : first + 4])) for first in range(0, len(words), 4)]
    gpus = gpus_of_heuristics(decision)
    answers = ", ".join(f"{name.removesuffix(SMALLEST_AREA_FIRST)} {count}" for name, count in gpus.items())
    return [*lines, ("GPUs by heuristics", answers)] if gpus else lines


def _outcome_lines(chapter: Chapter) -> tuple[tuple[str, str], ...]:
    decision, outcome = chapter.decision, chapter.outcome
    if outcome is None and chapter.in_force != decision.id:
        return (("outcome", f"that of decision {chapter.in_force}, which is in force"),)
    if outcome is None:
        return (("outcome", "not known yet (from sacct, once the job has ended)"),)
    started_s = outcome.started_s
    wait = duration(started_s - decision.submitted_s if started_s else None)
    run_time = duration(outcome.ended_s - started_s if started_s else None)
    peak = "-" if outcome.max_rss_mib is None else f"{outcome.max_rss_mib:.0f} MiB"
    return (
        ("outcome", f"{outcome.state} (exit {outcome.exit_code}) at {local_time(outcome.ended_s)}"),
        ("", f"waited {wait}, ran {run_time} on {outcome.gpus} GPUs, {outcome.cpus} CPUs, {outcome.mem_mib:.0f} MiB"),
        ("", f"peak memory {peak}, reward {'-' if outcome.reward is None else f'{outcome.reward:.3f}'}"),
    )
