"""The demo's tables, as rich renders them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from rlalloc.store import Decision
from rlalloc_demo.checks import Check
from rlalloc_demo.demo_configuration import HOUR_S
from rlalloc_demo.demo_measures import Ran, Summary

Numbers = tuple[float, ...]


def comparison(shadow: Mapping[str, Summary], enforced: Mapping[str, Summary]) -> Table:
    """The same workload, with rlalloc in shadow mode and enforced."""
    table = Table(
        title="the same workload of jobs, as submitted (shadow mode) and sized by rlalloc (enforced); from sacct",
        caption=f"wait, run, JCT: mean seconds; {HOUR_S} s stand for an hour (GPU-hours, CPU-hours); "
        "ratio: enforced / shadow",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("jobs")
    table.add_column("rlalloc")
    for heading in ("number", "wait s", "run s", "JCT s", "longest", "makespan", "GPU-hours", "CPU-hours"):
        table.add_column(heading, justify="right")
    table.add_column("states")
    for name, before in shadow.items():
        after = enforced[name]
        table.add_row(name, "shadow", str(before.jobs), *_cells(before), _states(before))
        table.add_row("", "enforced", str(after.jobs), *_cells(after), _states(after))
        table.add_row("", Text("ratio", style="dim"), "", *_ratios(before, after), end_section=True)
    return table


def fault_table(title: str, jobs: Sequence[Ran], decisions: Mapping[int, Decision]) -> Table:
    """What became of jobs during a fault, and why."""
    table = Table(title=title, title_justify="left")
    for heading in ("job", "user", "submitted", "waited s", "state", "GPUs", "CPUs"):
        table.add_column(heading)
    table.add_column("why", overflow="fold")
    for job in jobs:
        record = job.record
        table.add_row(
            str(record.job_id),
            job.submitted.entry.user,
            clock_time(record.submitted_s),
            f"{job.wait_s:.0f}",
            record.state,
            str(record.gpus),
            str(record.cpus),
            why(job, decisions.get(record.job_id)),
        )
    return table


def check_table(checks: Sequence[Check]) -> Table:
    """The checks of the demo."""
    table = Table(title="what the demo has checked", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for check in checks:
        mark = Text("yes", style="green") if check.holds else Text("NO", style="bold red")
        table.add_row(mark, check.statement, check.detail)
    return table


def phase_table(lengths: Sequence[tuple[str, float]]) -> Table:
    """How long each phase took."""
    table = Table(title="phases", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, length_s in lengths:
        table.add_row(name, f"{length_s:.0f} s")
    table.add_row("in all", f"{sum(length_s for _, length_s in lengths):.0f} s", style="bold")
    return table


def why(job: Ran, decision: Decision | None) -> str:
    """Why a job ran with the size that it had, in a few words."""
    if job.submitted.entry.kind == "ordinary":
        return "not covered by any rule"
    if decision is None:
        return "never decided: began by itself after the grace, as submitted"
    if decision.reason:
        return f"as submitted: {decision.reason}"
    return f"decided by policy {decision.policy_version}"


def clock_time(epoch_s: float) -> str:
    """A time of day."""
    return datetime.fromtimestamp(epoch_s).astimezone().strftime("%H:%M:%S")


def _numbers(summary: Summary) -> Numbers:
    return (
        summary.wait_s,
        summary.run_s,
        summary.jct_s,
        summary.longest_jct_s,
        summary.makespan_s,
        summary.gpu_hours,
        summary.cpu_hours,
    )


def _cells(summary: Summary) -> list[str]:
    return [f"{value:.1f}" for value in _numbers(summary)]


def _ratios(before: Summary, after: Summary) -> list[Text]:
    return [_ratio(old, new) for old, new in zip(_numbers(before), _numbers(after), strict=True)]


def _ratio(old: float, new: float) -> Text:
    if old < 0.05:
        return Text("-", style="dim")
    ratio = new / old
    return Text(f"{ratio:.2f}", style="green" if ratio < 0.95 else "red" if ratio > 1.05 else "dim")


def _states(summary: Summary) -> str:
    if len(summary.states) == 1:
        return f"all {summary.states[0][0]}"
    return ", ".join(f"{count} {state}" for state, count in summary.states)
