"""Runs for the tests of the comparison: jobs of a GPU, told by their times."""

import msgspec

from rlalloc.job import Allocation
from rlalloc_validation.job_comparison import Pair, pairs_of
from rlalloc_validation.recorded_run import RanJob, Run

SIZE = Allocation(
    nodes=1, gpus_per_node=1, tasks_per_node=1, cpus_per_task=1, mem_mib_per_node=1000, time_limit_s=600
)


def ran(number: int, submitted_s: float, started_s: float | None, ended_s: float, **changes: object) -> RanJob:
    plain = RanJob(
        number=number,
        submitted_s=submitted_s,
        noted_s=submitted_s,
        started_s=started_s,
        ended_s=ended_s,
        state="COMPLETED",
        size=SIZE,
        nodes=(0,),
    )
    return msgspec.structs.replace(plain, **changes)


def run(*jobs: RanJob) -> Run:
    return Run(mode="off", by="a test", jobs=jobs)


def pairs(real: list[RanJob], engine: list[RanJob]) -> tuple[Pair, ...]:
    return pairs_of(run(*real), run(*engine))
