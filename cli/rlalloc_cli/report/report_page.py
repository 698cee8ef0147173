"""A report as one self-contained page: no script, nothing from elsewhere. All names are users', and are escaped."""

import heapq
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from rlalloc.counted import counted
from rlalloc_cli.report.report_fields import clock, moment, printable
from rlalloc_cli.report.report_sources import Report
from rlalloc_cli.report.report_text import AMOUNTS, RESULT_WORDS, UNITS, about
from rlalloc_cli.report.report_totals import GroupTotals, Totals
from rlalloc_cli.report.report_what_if import RATIOS, over_requested
from rlalloc_cli.report.reported_runs import Amounts, ReportedRun, amounts, less

if TYPE_CHECKING:
    from rlalloc_trainer.pipelines.what_if import WhatIf

_LISTED: Final = 25
_LONGEST_NAME: Final = 48
_WIDTH: Final = 100.0
_WIDEST: Final = 0.5
"""Part of a ratio that the picture of intervals shows on either side of 1, at least."""


class Bar(NamedTuple):
    """One bar of a picture: its name, its length in percent of the longest, and what it says."""

    name: str
    length: float
    text: str


class Whisker(NamedTuple):
    """One interval of a picture: places in percent of its width, and what it says."""

    name: str
    low: float
    estimate: float
    high: float
    text: str
    better: bool


class RunsToShow:
    """Picks the lines worth showing as they go by: most given back, or to give back, and ends of our doing."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._most: list[tuple[float, int, ReportedRun]] = []
        self.harmed: list[ReportedRun] = []
        self.harmed_in_all = 0

    def add(self, run: ReportedRun) -> None:
        """Look at one more line."""
        if run.our_doing is not None:
            self.harmed_in_all += 1
            if len(self.harmed) < _LISTED:
                self.harmed.append(run)
        if (left := _left(run)) is not None and run.elapsed_s:
            weight = abs(left.gpu_s) + abs(left.cpu_s) / 100 + abs(left.mem_mib_s) / 1e6
            heapq.heappush(self._most, (weight, next(self._numbers), run))
            if len(self._most) > _LISTED:
                heapq.heappop(self._most)

    @property
    def most(self) -> list[ReportedRun]:
        """Those that gave back most first."""
        return [run for _, _, run in sorted(self._most, reverse=True)]


def page_of(report: Report, totals: Totals, shown: RunsToShow, simulated: "WhatIf | None") -> str:
    """The page."""
    environment = Environment(
        loader=PackageLoader("rlalloc_cli.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    everything = totals.all
    return environment.get_template("report_page.html.j2").render(
        about=about(report),
        made=moment(int(time.time())),
        facts=_facts(totals),
        bars={unit: _bars(everything, resource) for resource, unit in UNITS.items()},
        results=_results(totals),
        result_words=RESULT_WORDS,
        groups=[("Result", {**{str(name): group for name, group in totals.by_result.items()}, "all": everything})]
        + ([("Policy version", totals.by_policy)] if totals.by_policy else []),
        columns=_COLUMNS,
        cells=_cells,
        amounts=AMOUNTS,
        units=UNITS,
        grouped=_grouped,
        everything=everything,
        kills=_kills(totals),
        lists={"Undone, and why": totals.undone, "Skipped, and why": totals.skipped},
        most=[_run(run) for run in shown.most],
        harmed=[_run(run) for run in shown.harmed],
        harmed_in_all=shown.harmed_in_all,
        what_if=simulated,
        whiskers=_whiskers(simulated) if simulated is not None and simulated.jct is not None else [],
    )


def _left(run: ReportedRun) -> Amounts | None:
    """What a run gave back; in shadow mode, what it would have given in the same time."""
    if run.result == "shadow":
        return less(amounts(run.asked, run.elapsed_s), amounts(run.decided, run.elapsed_s))
    return run.given


def _facts(totals: Totals) -> list[tuple[str, str]]:
    everything = totals.all
    changed = totals.by_result.get("changed")
    shadow = totals.by_result.get("shadow")
    return [
        ("jobs", f"{everything.jobs:,}"),
        ("GPU-hours held", _rounded(everything.held, "gpu")),
        ("changed", f"{changed.jobs if changed else 0:,}"),
        *([("would have been changed", f"{shadow.jobs:,}")] if shadow else []),
        ("GPU-hours given back", _rounded(everything.given, "gpu")),
        ("CPU-hours given back", _rounded(everything.given, "cpu")),
        ("GiB-hours given back", _rounded(everything.given, "mem")),
        ("killed by our doing", f"{sum(everything.our_doing.values()):,}"),
    ]


def _rounded(amount: Amounts, resource: str) -> str:
    """Hours that fit a small box: without decimals from a thousand on."""
    value = _hours(amount, resource)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def _grouped(amount: Amounts | None, resource: str) -> str:
    """Hours with a comma between thousands."""
    return "" if amount is None else f"{_hours(amount, resource):,.2f}"


def _bars(group: GroupTotals, resource: str) -> list[Bar]:
    """Hours asked for, decided, applied and held, beside each other."""
    values = {name: _hours(getattr(group, name), resource) for name in ("asked", "decided", "applied", "held")}
    longest = max(values.values()) or 1.0
    return [Bar(name, _WIDTH * value / longest, f"{value:,.2f}") for name, value in values.items()]


def _hours(amount: Amounts, resource: str) -> float:
    return (
        amount.gpu_s if resource == "gpu" else amount.cpu_s if resource == "cpu" else amount.mem_mib_s / 1024
    ) / 3600


def _results(totals: Totals) -> list[Bar]:
    all_jobs = max(1, totals.all.jobs)
    return [
        Bar(name, _WIDTH * group.jobs / all_jobs, f"{group.jobs:,} jobs") for name, group in totals.by_result.items()
    ]


def _whiskers(found: "WhatIf") -> list[Whisker]:
    ratios = {title: ratio for name, title in RATIOS.items() if (ratio := getattr(found, name)) is not None}
    reach: float = max(_WIDEST, *(abs(value - 1.0) for ratio in ratios.values() for value in (ratio.low, ratio.high)))

    def place(value: float) -> float:
        return _WIDTH / 2 * (1.0 + (value - 1.0) / reach)

    return [
        Whisker(
            title, place(ratio.low), place(ratio.estimate), place(ratio.high), over_requested(ratio), ratio.high < 1.0
        )
        for title, ratio in ratios.items()
    ]


_COLUMNS: Final = (
    ("jobs", "jobs"),
    ("GPU-hours", "GPU-hours held"),
    ("wait", "mean wait"),
    ("wait p95", "95th percentile of waits"),
    ("run", "mean run time"),
    ("JCT", "mean JCT"),
    ("JCT p95", "95th percentile of JCTs"),
    ("killed", "killed for time or memory"),
    ("ours", "of them our doing"),
)


def _cells(group: GroupTotals) -> Sequence[str]:
    return (
        f"{group.jobs:,}",
        _grouped(group.held, "gpu"),
        clock(group.waits.mean_s) or "-",
        clock(group.waits.p95_s) or "-",
        clock(group.run_times.mean_s) or "-",
        clock(group.jct.mean_s) or "-",
        clock(group.jct.p95_s) or "-",
        f"{sum(group.killed.values()):,}",
        f"{sum(group.our_doing.values()):,}",
    )


def _kills(totals: Totals) -> list[tuple[str, Mapping[str, int], int]]:
    """Who, killed by what, of how many that ended."""
    changed = totals.by_result.get("changed")
    rest = [group for name, group in totals.by_result.items() if name != "changed"]
    others = {
        cause: number
        for cause in ("timeout", "out-of-memory", "gpu-out-of-memory")
        if (number := sum(group.killed.get(cause, 0) for group in rest))
    }
    found: list[tuple[str, Mapping[str, int], int]] = [
        ("jobs as submitted", others, sum(group.ended for group in rest))
    ]
    if changed is not None:
        found.insert(0, ("jobs that rlalloc resized", changed.killed, changed.ended))
        found.insert(1, ("of them our doing", changed.our_doing, changed.ended))
    return found


def _run(run: ReportedRun) -> dict[str, str]:
    left, name = _left(run), run.job_name
    return {
        "job": run.job_id,
        "name": printable(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"),
        "user": run.user,
        "elapsed": clock(run.elapsed_s),
        "asked": _sizes(run.asked),
        "got": _sizes(run.decided if run.result == "shadow" else run.held),
        "GPU-hours": _grouped(left, "gpu"),
        "CPU-hours": _grouped(left, "cpu"),
        "GiB-hours": _grouped(left, "mem"),
        "ended by": run.our_doing or "",
    }


def _sizes(size: msgspec.Struct | None) -> str:
    if size is None:
        return ""
    values = msgspec.structs.asdict(size)
    counts = (counted(values["gpus"], "GPU"), counted(values["cpus"], "CPU"), f"{values['mem_mib'] / 1024:.0f} GiB")
    return ", ".join(count.replace(" ", "\u00a0") for count in counts)
