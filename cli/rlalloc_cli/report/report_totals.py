"""Totals of a report, added up as its lines go by: some 24 bytes are kept of a run."""

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np

from rlalloc_cli.report.reported_runs import RESULTS, Amounts, ReportedRun, Result, amounts
from rlallocd.slurm import Span

_MOST_REASONS: Final = 1000
"""Different reasons that are counted one by one; whatever else comes counts as ``other``."""


class Spread(msgspec.Struct, frozen=True):
    """How long something took, seconds: how many there were, their mean, median and 95th percentile."""

    count: int
    mean_s: float | None = None
    median_s: float | None = None
    p95_s: float | None = None

    @classmethod
    def of(cls, seconds: "array[float]") -> "Spread":
        """The spread of these durations."""
        if not seconds:
            return cls(0)
        values = np.frombuffer(seconds, dtype=np.float64)
        median, p95 = np.quantile(values, (0.5, 0.95)).tolist()
        return cls(len(values), float(values.mean()), median, p95)


class GroupTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of some runs.

    ``jobs`` counts runs but for those after a requeue; an array's tasks count one by one. ``held`` is sacct's
    AllocTRES times Elapsed; ``asked``, ``decided`` and ``applied`` are other sizes of the same runs for the same time
    (what was asked for, where there is no other). ``given`` and ``net`` are of runs in a size of ours. ``cpu_s_used``
    is of the runs that lie in the span as a whole and whose use is known, which held ``cpu_s_of_used``. ``waits`` are
    of runs that started in the span, ``runs_s`` and ``jct`` of those that ended in it. ``killed`` counts by cause,
    ``our_doing`` those of them that were.
    """

    runs: int
    jobs: int
    states: dict[str, int]
    asked: Amounts
    decided: Amounts
    applied: Amounts
    held: Amounts
    given: Amounts
    net: Amounts
    cpu_s_used: float
    cpu_s_of_used: float
    ended: int
    waits: Spread
    run_times: Spread
    jct: Spread
    killed: dict[str, int]
    our_doing: dict[str, int]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a report: of all runs, by result, and by policy version; and what was undone or skipped, and why."""

    all: GroupTotals
    by_result: dict[Result, GroupTotals]
    by_policy: dict[str, GroupTotals]
    undone: dict[str, int]
    skipped: dict[str, int]


class _Group:
    """Adds up runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.jobs = 0
        self.ended = 0
        self.states: Counter[str] = Counter()
        self.sums = {name: Amounts() for name in ("asked", "decided", "applied", "held", "given", "net")}
        self.cpu_s_used = 0.0
        self.cpu_s_of_used = 0.0
        self.waits, self.run_times, self.jct = (array("d") for _ in range(3))
        self.killed: Counter[str] = Counter()
        self.our_doing: Counter[str] = Counter()

    def add(self, run: ReportedRun, span: Span) -> None:
        self.runs += 1
        self.jobs += not run.again
        self.states[run.state] += 1
        if run.held is not None:
            sizes = {
                "asked": run.asked,
                "decided": run.decided or run.asked,
                "applied": run.applied or run.asked,
                "held": run.held,
            }
            for name, size in sizes.items():
                self.sums[name].add(amounts(size, run.elapsed_s))
            for name, given in (("given", run.given), ("net", run.net)):
                if given is not None:
                    self.sums[name].add(given)
            if run.cpu_s_used is not None and run.elapsed_s == run.run_s:
                self.cpu_s_used += run.cpu_s_used
                self.cpu_s_of_used += run.held.cpus * run.run_s
            self._times(run, span)
        if run.killed_by is not None:
            self.killed[run.killed_by] += 1
        if run.our_doing is not None and (run.end_s or 0) <= span.until_s:
            self.our_doing[run.our_doing] += 1

    def _times(self, run: ReportedRun, span: Span) -> None:
        if run.wait_s is not None and run.start_s is not None and span.since_s <= run.start_s <= span.until_s:
            self.waits.append(run.wait_s)
        if run.jct_s is not None and run.end_s is not None and run.end_s <= span.until_s:
            self.ended += 1
            self.run_times.append(run.run_s)
            self.jct.append(run.jct_s)

    def totals(self) -> GroupTotals:
        return GroupTotals(
            runs=self.runs,
            jobs=self.jobs,
            states=dict(self.states.most_common()),
            **self.sums,
            cpu_s_used=self.cpu_s_used,
            cpu_s_of_used=self.cpu_s_of_used,
            ended=self.ended,
            waits=Spread.of(self.waits),
            run_times=Spread.of(self.run_times),
            jct=Spread.of(self.jct),
            killed=dict(self.killed.most_common()),
            our_doing=dict(self.our_doing.most_common()),
        )


class TotalsSoFar:
    """Adds up the lines of a report of ``span``."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._all = _Group()
        self._by_result: dict[Result, _Group] = {}
        self._by_policy: dict[str, _Group] = {}
        self._undone: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()

    def add(self, run: ReportedRun) -> None:
        """Count one more line."""
        groups = [self._all, self._by_result.setdefault(run.result, _Group())]
        if run.policy is not None:
            groups.append(self._by_policy.setdefault(run.policy, _Group()))
        for group in groups:
            group.add(run, self._span)
        if run.result == "undone" and not run.again:
            _count(self._undone, run.why)
        elif run.result == "skipped" and not run.again:
            _count(self._skipped, run.why.partition(":")[0])

    def totals(self) -> Totals:
        """The totals of all lines so far."""
        return Totals(
            all=self._all.totals(),
            by_result={name: self._by_result[name].totals() for name in RESULTS if name in self._by_result},
            by_policy={name: group.totals() for name, group in sorted(self._by_policy.items())},
            undone=_most_common(self._undone),
            skipped=_most_common(self._skipped),
        )


def _count(counter: Counter[str], what: str) -> None:
    counter[what if what in counter or len(counter) < _MOST_REASONS else "other"] += 1


def _most_common(counter: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(counter).most_common())
