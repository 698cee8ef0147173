"""Logs in the Standard Workload Format that say what each job used, with requests of memory that are assumed.

Real are arrivals, users, executables, sizes, run times, and the CPU time and the memory that each job used. The
format has neither nodes nor GPUs, and few logs have requests of memory. Both are assumed here.
"""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.history import ReadTally, read_file
from rlalloc.past_job import PastJob, in_order_of_submission

NODE_PROCESSORS: Final = 12
"""Of most nodes of UniLu Gaia in 2014."""
_DEFAULT_MIB: Final = 4096.0
"""Memory of a node over its processors: what sites give to jobs that ask for none (DefMemPerCPU)."""
_OVER_ASKING: Final = (3.0, 0.6)
"""As in true_needs: median over users of what they ask over what their jobs used, and the spread of its logarithm."""
_LEAST_ASKED: Final = 1.05
"""A job that ran had asked for so many times what it used, at least."""

Requests = Callable[[Sequence[PastJob]], list[float]]
"""What each job asked for: MiB per processor."""


def own_requests(jobs: Sequence[PastJob]) -> list[float]:
    """What the log says, 0 where it says nothing."""
    return [job.mem_mib / job.cpus for job in jobs]


def default_requests(jobs: Sequence[PastJob]) -> list[float]:
    """Everybody gets the site's default; who used more had asked for the next multiple of it."""
    return [_DEFAULT_MIB * max(1, math.ceil(_LEAST_ASKED * _used_mib(job) / _DEFAULT_MIB)) for job in jobs]


def cautious_requests(jobs: Sequence[PastJob]) -> list[float]:
    """Users ask for a multiple of the most that one of their jobs has used so far, but not for more than the default.

    The multiple is the user's own. A job that used more than that had asked for just enough.
    """
    chance = random.Random(1)
    multiples: dict[str, float] = {}
    most: dict[str, float] = {}
    requests = []
    for job in jobs:
        if job.user not in multiples:
            multiples[job.user] = max(1.2, _OVER_ASKING[0] * math.exp(chance.gauss(0.0, _OVER_ASKING[1])))
        most[job.user] = max(most.get(job.user, 0.0), _used_mib(job))
        usual = min(_DEFAULT_MIB, multiples[job.user] * most[job.user])
        requests.append(max(_LEAST_ASKED * _used_mib(job), usual))
    return requests


_ASSUMED: Final[dict[str, Requests]] = {
    "4 GiB a processor": default_requests,
    "a multiple of the user's largest job": cautious_requests,
}


def requests_for(jobs: Sequence[PastJob]) -> dict[str, Requests]:
    """The requests to replay a log with, by name: its own where it has any, or where it has no use of memory."""
    assumed = any(map(_used_mib, jobs)) and not any(job.mem_mib for job in jobs)
    return _ASSUMED if assumed else {"the log's own": own_requests}


def processor_is_gpu(job: PastJob) -> PastJob:
    """A processor stands for a GPU, as in logged_jobs: like jobs have as many of them. No CPU can be spared."""
    nodes = -(-job.cpus // NODE_PROCESSORS)
    processors = nodes * -(-job.cpus // nodes)
    return msgspec.structs.replace(job, nodes=nodes, gpus=processors, cpus=processors)


def node_is_gpu(job: PastJob) -> PastJob:
    """A node's processors stand for a GPU and its CPUs."""
    nodes = -(-job.cpus // NODE_PROCESSORS)
    return msgspec.structs.replace(job, nodes=nodes, gpus=nodes)


SIZES: Final[dict[str, Callable[[PastJob], PastJob]]] = {
    "processor": processor_is_gpu,
    "node": node_is_gpu,
}
"""What stands for a GPU."""


def measured_jobs(path: Path, last: int) -> list[PastJob]:
    """The last jobs of a log in the order of submission: those whose memory and CPU time it has, if it has any's.

    Raises HistoryError.
    """
    jobs = in_order_of_submission(read_file(path, "swf", ReadTally()))[-last:]
    return [job for job in jobs if _used_mib(job) and job.cpu_s_used] or jobs


def with_requests(jobs: Sequence[PastJob], requests: Requests, sized: Callable[[PastJob], PastJob]) -> list[PastJob]:
    """The jobs in another size and with these requests; CPU time, and memory per processor, stay."""
    made = []
    for number, (job, asked_mib) in enumerate(zip(jobs, requests(jobs), strict=True)):
        new = sized(job)
        on_a_node = -(-job.cpus // new.nodes)
        made.append(
            msgspec.structs.replace(
                new,
                job_id=str(number),
                mem_mib=asked_mib * on_a_node * new.nodes,
                node_rss_mib=_used_mib(job) * on_a_node or None,
            )
        )
    return made


def _used_mib(job: PastJob) -> float:
    """The memory that a job used per processor; 0 where that is not known."""
    return job.max_rss_mib or 0.0
