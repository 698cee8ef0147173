"""The outcome of a workload, from sacct: wait, run time, JCT, GPU-hours and states, per kind of job and in all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

import msgspec

from rlalloc_demo.demo_configuration import HOUR_S
from rlalloc_demo.demo_workload import KINDS, Kind, Submitted
from rlallocd.slurm import AccountingRecord

ALL: Final = "all"


class Ran(msgspec.Struct, frozen=True):
    """One job that has ended. Times in seconds of the demo."""

    submitted: Submitted
    record: AccountingRecord

    @property
    def wait_s(self) -> float:
        """From submission to start; to the end where it never started."""
        return (self.record.started_s or self.record.ended_s or 0) - self.record.submitted_s

    @property
    def run_s(self) -> float:
        """From start to end."""
        return self.jct_s - self.wait_s

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return (self.record.ended_s or 0) - self.record.submitted_s


class Summary(msgspec.Struct, frozen=True):
    """Jobs of one kind: means in seconds of the demo, hours in the hours that they stand for."""

    jobs: int
    wait_s: float
    run_s: float
    jct_s: float
    longest_jct_s: float
    makespan_s: float
    gpu_hours: float
    cpu_hours: float
    states: tuple[tuple[str, int], ...]


def joined(submitted: Sequence[Submitted], records: Mapping[int, AccountingRecord]) -> list[Ran]:
    """Jobs with what sacct says of them."""
    return [Ran(each, records[each.job_id]) for each in submitted]


def summaries(jobs: Sequence[Ran]) -> dict[Kind | str, Summary]:
    """One summary for each kind that there is, and one for all."""
    kinds = {kind: [job for job in jobs if job.submitted.entry.kind == kind] for kind in KINDS}
    return {name: summary(those) for name, those in (*kinds.items(), (ALL, jobs)) if those}


def summary(jobs: Sequence[Ran]) -> Summary:
    """Summarise at least one job."""
    states = Counter(job.record.state for job in jobs)
    return Summary(
        jobs=len(jobs),
        wait_s=fmean(job.wait_s for job in jobs),
        run_s=fmean(job.run_s for job in jobs),
        jct_s=fmean(job.jct_s for job in jobs),
        longest_jct_s=max(job.jct_s for job in jobs),
        makespan_s=max(job.record.ended_s or 0 for job in jobs) - min(job.record.submitted_s for job in jobs),
        gpu_hours=sum(job.record.gpus * job.run_s for job in jobs) / HOUR_S,
        cpu_hours=sum(job.record.cpus * job.run_s for job in jobs) / HOUR_S,
        states=tuple(states.most_common()),
    )
