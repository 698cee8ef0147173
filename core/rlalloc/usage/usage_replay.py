"""What trimming would have done to the jobs of a log, strictly in time order.

At each submission only jobs that had ended are known. A trimmed job gets its floors, no more. What it then does is up
to ``Truth``; one that is killed is submitted again at once, and runs as requested.
"""

import heapq
import math
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from rlalloc.past_job import Allotted, PastJob
from rlalloc.usage.family_kills import FamilyKills, Kill
from rlalloc.usage.past_usage import PastUsage
from rlalloc.usage.trimming_rules import TrimmingSection

_MIB_PER_GIB: Final = 1024


class Run(NamedTuple):
    """What a job did in a size: whether it was killed for its memory, and its run time over that as requested."""

    killed: bool
    slowdown: float = 1.0
    cpus_per_gpu_used: float | None = None


class Truth(Protocol):
    """What jobs would have done in other sizes."""

    def run(self, number: int, node_mib: float, cpus_per_gpu: float) -> Run:
        """Run the log's job of that number with so much memory on each node [MiB] and so many CPUs per GPU."""
        ...


class LoggedUse:
    """Truth as far as a log of jobs that ran as requested has it.

    A job that had used more memory on a node is killed. One that had used more CPUs takes longer in proportion.
    """

    def __init__(self, jobs: Sequence[PastJob]) -> None:
        self._jobs = jobs

    def run(self, number: int, node_mib: float, cpus_per_gpu: float) -> Run:
        """See Truth."""
        job = self._jobs[number]
        used = cpus_per_gpu_used(job)
        return Run((job.node_rss_mib or 0.0) > node_mib, max(1.0, (used or 0.0) / cpus_per_gpu))


class ReplayFigures(msgspec.Struct, kw_only=True):
    """What came of it; hours are those that jobs ran.

    ``over_asked`` is what jobs had asked for beyond what they used, ``given_back`` how much less of it they got; for
    a job that was killed, the run as requested that followed counts, and what the killed run held is taken off.
    ``trimmed_…`` are the same hours of trimmed jobs alone.
    ``timed_out`` are jobs that a slowdown would have brought to their time limits.
    """

    jobs: int = 0
    memory_trimmed: int = 0
    cpus_trimmed: int = 0
    trimmed: int = 0
    killed: int = 0
    over_asked_gib_hours: float = 0.0
    given_back_gib_hours: float = 0.0
    trimmed_over_asked_gib_hours: float = 0.0
    over_asked_cpu_hours: float = 0.0
    trimmed_over_asked_cpu_hours: float = 0.0
    given_back_cpu_hours: float = 0.0
    slowdown_hours: float = 0.0
    run_hours: float = 0.0
    timed_out: int = 0

    def add(self, other: "ReplayFigures") -> None:
        """Add the figures of another replay."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def killed_part(self) -> float:
        """Killed jobs over those whose memory or CPUs were trimmed."""
        return self.killed / self.trimmed if self.trimmed else 0.0

    @property
    def memory_back(self) -> float:
        """The part of the over-asked memory that is given back."""
        return self.given_back_gib_hours / self.over_asked_gib_hours if self.over_asked_gib_hours else math.nan

    @property
    def cpus_back(self) -> float:
        """Likewise of CPUs."""
        return self.given_back_cpu_hours / self.over_asked_cpu_hours if self.over_asked_cpu_hours else math.nan

    @property
    def memory_back_where_trimmed(self) -> float:
        """The part of the over-asked memory of trimmed jobs that is given back."""
        over = self.trimmed_over_asked_gib_hours
        return self.given_back_gib_hours / over if over else math.nan

    @property
    def cpus_back_where_trimmed(self) -> float:
        """Likewise of CPUs."""
        over = self.trimmed_over_asked_cpu_hours
        return self.given_back_cpu_hours / over if over else math.nan


def cpus_per_gpu_used(job: PastJob) -> float | None:
    """CPUs per GPU (per node where it had none) that a job used on average; None where that is not known."""
    if not job.cpu_s_used or job.run_s <= 0:
        return None
    return job.cpu_s_used / job.run_s / (job.gpus or max(1, job.nodes))


class UsageReplay:
    """Replays jobs that are in the order of their submission; figures count those from number ``first`` on."""

    def __init__(self, jobs: Sequence[PastJob], truth: Truth, rules: TrimmingSection, first: int) -> None:
        self.figures = ReplayFigures()
        self.usage = PastUsage(rules)
        self._jobs = jobs
        self._truth = truth
        self._rules = rules
        self._first = first
        self._kills = FamilyKills()
        self._ends: list[tuple[float, int, PastJob]] = []
        self._pushed = 0

    def run(self) -> ReplayFigures:
        """Replay all jobs."""
        for number, job in enumerate(self._jobs):
            while self._ends and self._ends[0][0] <= job.submitted_s:
                self._has_ended(*heapq.heappop(self._ends)[1:])
            self._submit(number, job)
        return self.figures

    def _has_ended(self, number: int, job: PastJob) -> None:
        self.usage.add(job)
        self._kills.ended(job)
        if job.state == "OUT_OF_MEMORY" and job.allotted is not None:
            kill = Kill(number, "out-of-memory", job.ended_s, job.allotted.gpus)
            self._kills.add(job.user, job.name, kill)

    def _submit(self, number: int, job: PastJob) -> None:
        asked_mib, asked_cpus = job.mem_mib / max(1, job.nodes), job.cpus / (job.gpus or max(1, job.nodes))
        node_mib, cpus = asked_mib, asked_cpus
        if self._kills.in_force(job.user, job.name, self._rules.least_jobs) is None:
            floors = self.usage.floors(job)
            if floors.node_mib is not None:
                unit = _MIB_PER_GIB * max(1, job.gpus // max(1, job.nodes))
                node_mib = min(asked_mib, math.ceil(floors.node_mib.amount / unit) * unit)
            if floors.cpus_per_gpu is not None:
                cpus = min(asked_cpus, math.ceil(floors.cpus_per_gpu.amount))
        done = self._truth.run(number, node_mib, cpus)
        as_run = self._as_run(job, node_mib, cpus, done)
        self._end(as_run)
        if done.killed:
            wait_s = job.started_s - job.submitted_s
            begin_s = as_run.ended_s + wait_s
            self._end(
                msgspec.structs.replace(
                    job, submitted_s=as_run.ended_s, started_s=begin_s, ended_s=begin_s + job.run_s
                )
            )
        if number >= self._first:
            self._count(job, node_mib, cpus, done, as_run.run_s)

    def _as_run(self, job: PastJob, node_mib: float, cpus: float, done: Run) -> PastJob:
        """What accounting would have had of it."""
        run_s = job.run_s * (0.5 if done.killed else done.slowdown)
        used = done.cpus_per_gpu_used
        cpu_s = job.cpu_s_used if used is None else used * run_s * (job.gpus or max(1, job.nodes))
        allotted = Allotted(
            nodes=job.nodes,
            cpus=round(cpus * (job.gpus or max(1, job.nodes))),
            gpus=job.gpus,
            mem_mib=node_mib * max(1, job.nodes),
            limit_s=job.limit_s,
            slowdown=done.slowdown,
        )
        is_trimmed = (allotted.cpus, allotted.mem_mib) != (job.cpus, job.mem_mib)
        return msgspec.structs.replace(
            job,
            ended_s=job.started_s + run_s,
            state="OUT_OF_MEMORY" if done.killed else job.state,
            allotted=allotted if is_trimmed else None,
            node_rss_mib=min(job.node_rss_mib, node_mib) if job.node_rss_mib is not None else None,
            cpu_s_used=cpu_s,
        )

    def _end(self, job: PastJob) -> None:
        self._pushed += 1
        heapq.heappush(self._ends, (job.ended_s, self._pushed, job))

    def _count(self, job: PastJob, node_mib: float, cpus: float, done: Run, held_s: float) -> None:
        figures, hours, nodes = self.figures, job.run_s / 3600.0, max(1, job.nodes)
        asked_mib, parts = job.mem_mib / nodes, job.gpus or nodes
        asked_cpus = job.cpus / parts
        figures.jobs += 1
        figures.memory_trimmed += node_mib < asked_mib
        figures.cpus_trimmed += cpus < asked_cpus
        figures.trimmed += node_mib < asked_mib or cpus < asked_cpus
        figures.killed += done.killed
        lost = held_s / 3600.0 if done.killed else 0.0
        if job.node_rss_mib is not None and asked_mib > 0.0:
            gib = nodes / _MIB_PER_GIB
            over = max(0.0, asked_mib - job.node_rss_mib) * gib * hours
            figures.over_asked_gib_hours += over
            figures.trimmed_over_asked_gib_hours += over if node_mib < asked_mib else 0.0
            back = 0.0 if done.killed else (asked_mib - node_mib) * hours
            figures.given_back_gib_hours += (back - node_mib * lost) * gib
        used = cpus_per_gpu_used(job)
        if used is not None:
            over = max(0.0, asked_cpus - used) * parts * hours
            figures.over_asked_cpu_hours += over
            figures.trimmed_over_asked_cpu_hours += over if cpus < asked_cpus else 0.0
            back = 0.0 if done.killed else asked_cpus - cpus * done.slowdown
            figures.given_back_cpu_hours += (back * hours - cpus * lost) * parts
        figures.run_hours += hours
        if not done.killed:
            figures.slowdown_hours += (done.slowdown - 1.0) * hours
            limit_s = job.limit_s
            figures.timed_out += limit_s is not None and job.run_s <= limit_s < job.run_s * done.slowdown
