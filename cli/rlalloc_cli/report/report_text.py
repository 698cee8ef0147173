"""A report on the terminal, for programs, and as JSON."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rlalloc_cli.report.report_fields import Field, cell, clock, hours, moment, row_of
from rlalloc_cli.report.report_sources import Report
from rlalloc_cli.report.report_totals import GroupTotals, Totals

_MOST_LISTED: Final = 10
RESULT_WORDS: Final = {
    "changed": "ran, or waits, in a size that rlalloc chose",
    "kept": "rlalloc decided to keep the size that was asked for",
    "skipped": "rlalloc left the job alone",
    "shadow": "would have been changed in enforce mode",
    "undone": "a change was not made, or was taken back",
    "open": "a change is under way",
    "none": "no decision of rlalloc",
}
"""What results mean."""
AMOUNTS: Final = ("asked", "decided", "applied", "held", "given", "net")
UNITS: Final = {"gpu": "GPU-hours", "cpu": "CPU-hours", "mem": "GiB-hours"}
_KILLS: Final = ("Killed", "Ours")
_COLUMNS: Final[dict[str, tuple[int, Callable[[GroupTotals], str]]]] = {
    "Jobs": (5, lambda group: str(group.jobs)),
    "GPUHours": (8, lambda group: hours(group.held, "gpu")),
    "WaitMean": (10, lambda group: clock(group.waits.mean_s)),
    "WaitP95": (10, lambda group: clock(group.waits.p95_s)),
    "JCTMean": (10, lambda group: clock(group.jct.mean_s)),
    "JCTP95": (10, lambda group: clock(group.jct.p95_s)),
    "Killed": (6, lambda group: str(sum(group.killed.values()))),
    "Ours": (4, lambda group: str(sum(group.our_doing.values()))),
}
"""Columns of totals, with their widths."""


def table_lines(report: Report, fields: Sequence[Field], *, runs: bool) -> Iterator[str]:
    """The table as sacct prints one, and the totals; without ``runs`` only the totals."""
    found = report.runs()
    if runs:
        yield " ".join(cell(field.name, field.width) for field in fields)
        yield " ".join("-" * abs(field.width) for field in fields)
    for run in found:
        if runs:
            yield " ".join(cell(text, field.width) for text, field in zip(row_of(run, fields), fields, strict=True))
    if runs:
        yield ""
    yield from totals_lines(report, report.totals())


def parsable_lines(report: Report, fields: Sequence[Field]) -> Iterator[str]:
    """One line for each run, and a header, as ``sacct --parsable2``."""
    found = report.runs()
    yield "|".join(field.name for field in fields)
    for run in found:
        yield "|".join(text.replace("|", "_") for text in row_of(run, fields))


def json_lines(report: Report, more: Mapping[str, object]) -> Iterator[str]:
    """One JSON object, line by line: what was asked, ``runs``, ``totals``, and what ``more`` has."""
    head = {
        "starttime_s": report.span.since_s,
        "endtime_s": report.span.until_s,
        **{name: getattr(report.asked, name) or None for name in ("user", "account", "partition")},
        "everybody": report.everybody,
    }
    found = report.runs()
    yield f'{{"report": {_json(head)},'
    yield '"runs": ['
    before = ""
    for run in found:
        yield f"{before}{_json(run)}"
        before = ","
    yield "],"
    yield f'"totals": {_json(report.totals())}'
    for name, value in more.items():
        yield f', "{name}": {_json(value)}'
    yield "}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def about(report: Report) -> str:
    """Which runs the report has, in one line."""
    asked = report.asked
    named = [f"{name} {value}" for name, value in (("user", asked.user), ("account", asked.account)) if value]
    named += [f"partition {asked.partition}"] if asked.partition else []
    whose = ", ".join(named) or ("all users" if report.everybody else "your own jobs")
    return f"{moment(report.span.since_s)} to {moment(report.span.until_s)}, {whose}"


def totals_lines(report: Report, totals: Totals) -> Iterator[str]:
    """The totals for people, 80 columns wide."""
    yield about(report)
    yield "runs are cut at the ends of this span, as by sacct --truncate"
    yield ""
    yield cell("", -10) + "".join(cell(name, 11) for name in AMOUNTS)
    for resource, unit in UNITS.items():
        values = (hours(getattr(totals.all, name), resource) for name in AMOUNTS)
        yield cell(unit, -10) + "".join(cell(value, 11) for value in values)
    yield ""
    if totals.all.cpu_s_of_used:
        part = totals.all.cpu_s_used / totals.all.cpu_s_of_used
        yield f"used of the CPU time held: {part:.1%}, of runs whose use is known"
    yield "given: asked for and not held while a changed job ran; net: the same, less what"
    yield "a longer run holds (an estimate)"
    yield ""
    results = {str(name): group for name, group in totals.by_result.items()}
    yield from _groups("Result", {**results, "all": totals.all}, -9, tuple(_COLUMNS))
    if totals.by_policy:
        yield ""
        yield from _groups("Policy", totals.by_policy, -24, ("Jobs", "GPUHours", "WaitMean", "JCTMean", *_KILLS))
    for title, counted in (("undone, and why", totals.undone), ("skipped, and why", totals.skipped)):
        if counted:
            yield ""
            yield from _counted(title, counted)


def _groups(title: str, groups: Mapping[str, GroupTotals], width: int, columns: Sequence[str]) -> Iterator[str]:
    chosen = [(name, *_COLUMNS[name]) for name in columns]
    yield " ".join((cell(title, width), *(cell(name, wide) for name, wide, _ in chosen)))
    for name, group in groups.items():
        yield " ".join((cell(name, width), *(cell(show(group), wide) for _, wide, show in chosen)))


def _counted(title: str, counted: Mapping[str, int]) -> Iterator[str]:
    yield title
    for what, number in list(counted.items())[:_MOST_LISTED]:
        yield f"{number:7} {what}"[:80]
    if (left := sum(list(counted.values())[_MOST_LISTED:])) > 0:
        yield f"{left:7} for other reasons"
