"""What like jobs did lately: the state that a predictor reads, kept up to date job by job."""

import math
from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.past_job import PastJob, can_be_learned
from rlalloc.run_times.job_facts import JobFacts, family_name

RECENT: Final = 20
"""So many of a group's last runs count."""
MOST_GROUPS: Final = 80_000
"""Groups that are kept, of all kinds together: those in which a job ended last. Of one group all is kept in 2 KB."""
WEEK_H: Final = 168
KINDS: Final = (
    "user",
    "user_limit",
    "user_size",
    "user_limit_size",
    "user_name",
    "user_name_limit_size",
    "user_script",
    "account",
    "job_class",
    "partition_qos",
    "limit_size",
    "site",
)
"""Jobs that count as alike, by what they share."""
STATISTICS: Final = (
    "last",
    "one_before",
    "mean_of_2",
    "median_of_5",
    "mean",
    "spread",
    "shortest",
    "longest",
    "completed",
    "use_median_of_5",
    "use_mean",
    "runs",
    "age",
)
"""Of a group's last runs: log2 of their seconds; the part that completed; log2 of run time over limit; log2 of how
many there were, and of the seconds since the last one ended."""
LOG_SECONDS: Final = ("last", "one_before", "mean_of_2", "median_of_5", "mean", "shortest", "longest")
"""Those of STATISTICS that are log2 of seconds, but for ages."""
OF_JOB: Final = ("limit", "nodes", "cpus", "gpus", "mem_per_cpu", "hour", "weekday")
RUNNING: Final = ("running", "running_oldest", "running_alike", "running_alike_oldest", "running_alike_newest")
"""Jobs of the user, and those alike in limit and size, that run now: their number and log2 of the seconds so far."""
FEATURES: Final = (*OF_JOB, *(f"{kind}_{name}" for kind in KINDS for name in STATISTICS), *RUNNING)
"""The columns that a model reads."""
_UNKNOWN: Final = (math.nan,) * len(STATISTICS)
Key = tuple[object, ...]


class Group:
    """The last runs of jobs that are alike."""

    __slots__ = ("_statistics", "completed", "last_end_s", "log_runs", "log_uses", "runs")

    def __init__(self) -> None:
        self.log_runs = array("f")
        self.log_uses = array("f")
        self.completed = array("b")
        self.runs = 0
        self.last_end_s = 0.0
        self._statistics: tuple[float, ...] | None = None

    def add(self, log_run: float, log_use: float, ended_s: float, *, completed: bool) -> None:
        """Add a run: log2 of its seconds, and of its run time over its limit (NaN without one)."""
        _push(self.log_runs, log_run)
        if log_use == log_use:  # not NaN  # noqa: PLR0124
            _push(self.log_uses, log_use)
        _push(self.completed, completed)
        self.runs += 1
        self.last_end_s = ended_s
        self._statistics = None

    def statistics(self, now_s: float) -> tuple[float, ...]:
        """Return STATISTICS at a time [s]."""
        if self._statistics is None:
            self._statistics = self._computed()
        return (*self._statistics, math.log2(1 + self.runs), _log2_s(now_s - self.last_end_s))

    def _computed(self) -> tuple[float, ...]:
        runs, uses = list(self.log_runs), list(self.log_uses)
        number = len(runs)
        mean = sum(runs) / number
        return (
            runs[-1],
            runs[-2] if number > 1 else math.nan,
            sum(runs[-2:]) / len(runs[-2:]),
            median(runs[-5:]),
            mean,
            math.sqrt(sum((value - mean) ** 2 for value in runs) / number),
            min(runs),
            max(runs),
            sum(self.completed) / number,
            median(uses[-5:]) if uses else math.nan,
            sum(uses) / len(uses) if uses else math.nan,
        )


class RecentRuns:
    """The last runs of each user, account, partition, … and the jobs that run now.

    Memory is bounded: MOST_GROUPS groups with RECENT runs each.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[int, Key | None], Group] = {}
        self._running: dict[Key, dict[str, float]] = {}
        self._running_keys: dict[str, tuple[Key, Key]] = {}

    def started(self, job_id: str, facts: JobFacts, started_s: float) -> None:
        """Note that a job runs since ``started_s`` [s]."""
        self.left(job_id)
        keys = user_and_alike(facts)
        self._running_keys[job_id] = keys
        for key in keys:
            self._running.setdefault(key, {})[job_id] = started_s

    def add(self, job: PastJob) -> None:
        """Note that a job ended. Jobs are to be added in the order of their ends; one that never ran is left out."""
        self.left(job.job_id)
        if not can_be_learned(job):
            return
        log_run = _log2_s(job.run_s_as_requested)
        log_use = math.nan if job.limit is None else log_run - _log2_s(job.limit)
        for place in enumerate(_keys(job)):
            if place[1] is None:
                continue
            group = self._groups.pop(place, None) or Group()
            group.add(log_run, log_use, job.ended_s, completed=job.state == "COMPLETED")
            self._groups[place] = group  # the last in the dict is the one that changed last
            if len(self._groups) > MOST_GROUPS:
                del self._groups[next(iter(self._groups))]

    @property
    def groups(self) -> int:
        """How many groups of like jobs there are."""
        return len(self._groups)

    def group(self, kind: str, facts: JobFacts) -> Group | None:
        """Return the last runs of those that are like a job in one of KINDS; None where none ended yet."""
        number = KINDS.index(kind)
        return self._groups.get((number, _keys(facts)[number]))

    def features(self, jobs: Sequence[JobFacts], now_s: float) -> NDArray[np.float32]:
        """Return FEATURES of jobs at a time [s], a row each; NaN where nothing is known."""
        rows = [self._row(facts, now_s) for facts in jobs]
        return np.array(rows, np.float32).reshape(len(rows), len(FEATURES))

    def _row(self, facts: JobFacts, now_s: float) -> list[float]:
        limit = facts.limit
        hours = facts.submitted_s / 3600.0
        row = [
            math.nan if limit is None else _log2_s(limit),
            math.log2(max(facts.nodes, 1)),
            math.log2(max(facts.cpus, 1)),
            math.log2(1 + max(facts.gpus, 0)),
            max(facts.mem_mib, 0.0) / max(facts.cpus, 1),
            hours % 24.0,
            hours % WEEK_H // 24.0,
        ]
        for place in enumerate(_keys(facts)):
            group = self._groups.get(place)
            row.extend(_UNKNOWN if group is None else group.statistics(now_s))
        of_user, alike = (self._running.get(key) for key in user_and_alike(facts))
        row.append(len(of_user) if of_user else 0.0)
        row.append(_log2_s(now_s - next(iter(of_user.values()))) if of_user else math.nan)
        row.append(len(alike) if alike else 0.0)
        row.append(_log2_s(now_s - next(iter(alike.values()))) if alike else math.nan)
        row.append(_log2_s(now_s - next(reversed(alike.values()))) if alike else math.nan)
        return row

    def left(self, job_id: str) -> None:
        """Note that a job no longer runs, however it ended."""
        for key in self._running_keys.pop(job_id, ()):
            running = self._running[key]
            del running[job_id]
            if not running:
                del self._running[key]


def median(values: Sequence[float]) -> float:
    """Return the median of at least one number; statistics.median takes several times as long."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def _push(values: "array[Any]", value: float) -> None:
    """Append a value to the last RECENT ones."""
    values.append(value)
    if len(values) > RECENT:
        del values[0]


def _log2_s(seconds: float) -> float:
    """Return log2 of a duration [s]; less than a second counts as one."""
    return math.log2(seconds) if seconds > 1.0 else 0.0


def user_and_alike(facts: JobFacts) -> tuple[Key, Key]:
    """Return the groups of jobs that a job runs among: of its user, and alike in user, limit and size."""
    return (facts.user,), (facts.user, facts.limit, facts.nodes, facts.cpus, facts.gpus)


def _keys(facts: JobFacts) -> tuple[Key | None, ...]:
    """Return the group of each of KINDS that a job belongs to; None where its class is not known."""
    user, limit = facts.user, facts.limit
    size = (facts.nodes, facts.cpus, facts.gpus)
    name = family_name(facts.name)
    return (
        (user,),
        (user, limit),
        (user, size),
        (user, limit, size),
        (user, name),
        (user, name, limit, size),
        (user, facts.script),
        (facts.account,),
        (facts.job_class,) if facts.job_class else None,
        (facts.partition, facts.qos),
        (limit, size),
        (),
    )
