"""``rlalloc explain JOBID``: what was asked, what was given, why, and what it gained, in a few lines."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from rlalloc.bounds import CONSENT
from rlalloc.counted import counted
from rlalloc.job import Bounds, Range
from rlalloc.local_times import local_time
from rlalloc.store import OPEN_STATES, Outcome
from rlalloc.store.job_story import Chapter
from rlalloc_cli.explain import Lines, as_asked, in_vain_words, times_of
from rlalloc_cli.terminal import CONSOLE

_STEPS: Final = {
    "intended": "being changed",
    "applied": "changed, and about to be let go",
    "begun": "in force since",
    "restoring": "being given its request back",
    "restored": "given its request back",
    "left": "left as submitted",
    "gone": "gone before it could be changed",
    "lost": "started before it could be restored",
}
"""States of a change in the journal, for people."""
_ORIGINS: Final = {CONSENT: "rule for such scripts"}
"""Origins of bounds whose names are ours, for people."""
_TAKEN_BACK: Final = ("restored", "left")
_LEFT_ALONE: Final = "off"
"""The name of the reason why a decision left such a job as submitted."""


def print_shortly(story: Sequence[Chapter], running: str = "") -> None:
    """Print what concerns the job's latest submission; `--verbose` has the rest. ``running``: how it runs now."""
    latest = [each for each in story if each.decision.submitted_s == story[-1].decision.submitted_s]
    first = latest[0].decision
    CONSOLE.print(
        f"job {first.job_id} {first.job_name!r} of {first.user}, account {first.account}, submitted "
        f"{local_time(first.submitted_s)} to {first.partition}"
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, line in _lines_of(latest, running):
        table.add_row(name, line)
    CONSOLE.print(table)
    CONSOLE.print("add --verbose for all bounds, steps and what the policy saw", style="dim")


def _lines_of(chapters: Sequence[Chapter], running: str) -> Lines:
    typed = any(each.decision.allocation is not None and each.decision.allocation.gpu_type for each in chapters)
    yield "asked", as_asked(chapters[0].decision) + (", GPUs of any type" if typed else "")
    for number, chapter in enumerate(chapters):
        told = chapters[number - 1].decision.bounds if number else None
        yield from _decision_lines(chapter, told, again_later=number < len(chapters) - 1)
    yield from _left_alone_lines(chapters)
    if running:
        yield "now", running
    yield from _outcome_lines(chapters)


def _decision_lines(chapter: Chapter, told: Bounds | None, *, again_later: bool) -> Lines:
    """What was decided, and why; bounds that were ``told`` already are not repeated."""
    decision = chapter.decision
    size = decision.allocation
    if decision.skip_code == _LEFT_ALONE:
        return
    if size is None:
        yield "given", "as submitted"
        yield "why", f"skipped: {decision.reason}"
        return
    shadow = decision.mode == "shadow"
    last = chapter.applications[-1] if chapter.applications else None
    taken_back = last is not None and last.state in _TAKEN_BACK
    given = "as asked" if size == decision.request else size.describe()
    name = "would give" if shadow else "decided" if taken_back else "at first" if again_later else "given"
    yield name, given + (" (shadow: nothing was changed)" if shadow else "")
    why = f"policy {decision.policy_version or '-'} at {local_time(decision.decided_s)}"
    if decision.predicted_gain is not None:
        why += f", decided again while it waited, expected to save {decision.predicted_gain:.0%} of its cost"
    yield "why", why
    if size.gpu_type is not None:
        yield "", size.gpu_type.why()
    if (slowdown := decision.slowdown) is not None and size != decision.request:
        by_size = "for its size alone, " if size.gpu_type is not None else ""
        yield "", f"{by_size}expected to run {slowdown.median:.2f} times as long, from {slowdown.source}"
    if (bounds := decision.bounds) is not None and bounds != told:
        yield "", "; ".join(filter(None, (f"GPUs could be {_range(bounds.gpus)}", bounds.script)))
        yield from (("", text) for text in (bounds.sockets, bounds.past) if text)
    if last is not None:
        detail = f", {last.detail}" if last.state == "restored" else ""
        yield "state", f"{_STEPS.get(last.state, last.state)} {local_time(last.changed_s)}{detail}"
    for task in chapter.of_tasks:
        step = _STEPS.get(task.state, task.state)
        yield "", f"its task with job id {task.job_id}: {step} {local_time(task.changed_s)}"


def _left_alone_lines(chapters: Sequence[Chapter]) -> Lines:
    """Who had the job left alone, when and why, and what it has since; nothing where nobody had."""
    asked = [each.decision for each in chapters if each.decision.skip_code == _LEFT_ALONE]
    if asked:
        yield "left alone", f"{local_time(asked[-1].decided_s)}: {asked[-1].reason.partition(': ')[2]}"
        yield "has now", _has_now(chapters)


def _has_now(chapters: Sequence[Chapter]) -> str:
    """The size of a job that is left alone: its request, unless somebody else had changed it before."""
    states = {each.state for chapter in chapters for each in chapter.applications}
    if not states.isdisjoint(OPEN_STATES):
        return "its request, once rlallocd has restored it"
    if "lost" in states:
        return "the size that it started with: it started before its request could be restored"
    if "begun" in states:
        return "the size that somebody else has set since"
    return f"its request: {as_asked(chapters[0].decision)}"


def _outcome_lines(chapters: Sequence[Chapter]) -> Lines:
    in_force = next((each for each in chapters if each.outcome is not None), None)
    if in_force is None or in_force.outcome is None:
        yield "outcome", "not known yet: sacct reports it once the job has ended"
        return
    outcome, decision = in_force.outcome, in_force.decision
    yield "outcome", f"{outcome.state}, {times_of(decision, outcome)} on {counted(outcome.gpus, 'GPU')}"
    if in_vain := in_vain_words(in_force, outcome.nodes, outcome.cpus, outcome.gpus, outcome.mem_mib):
        yield "", in_vain
    if outcome.our_doing is not None:
        yield "harmed", f"{outcome.our_doing} in a size that rlalloc chose; similar jobs keep their requests for now"
    if freed := _left_to_others(in_force, outcome):
        yield "gained", f"while it ran, others could use {freed} of what it asked for"


def _left_to_others(chapter: Chapter, outcome: Outcome) -> str:
    """What a resized job did not hold of its request; empty where it was not resized, or only grew."""
    request = chapter.decision.request
    if not outcome.started_s or not any(each.state == "begun" for each in chapter.applications):
        return ""
    mem_gib = (request.mem_mib - outcome.mem_mib) / 1024
    gpus, cpus = request.gpus - outcome.gpus, request.cpus - outcome.cpus
    parts = ((gpus, counted(gpus, "GPU")), (cpus, counted(cpus, "CPU")), (mem_gib, f"{mem_gib:.0f} GiB"))
    return ", ".join(words for number, words in parts if round(number) > 0)


def _range(bound: Range) -> str:
    if bound.minimum == bound.maximum:
        return f"{bound.minimum:g} only (from the {bound.minimum_from})"
    said = {_ORIGINS.get(origin, origin) for origin in (bound.minimum_from, bound.maximum_from)}
    return f"{bound.minimum:g} to {bound.maximum:g} (from the {' and the '.join(sorted(said))})"
