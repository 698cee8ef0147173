"""Turns a trace's jobs into a workload's: in order of submission, gaps filled by a seeded model.

Every job draws the same number of random numbers, whether it needs them or not: what is drawn for one job does not
depend on what the trace knows of another.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import Final, TypeVar

import numpy as np
from msgspec.structs import replace

from rlalloc.bounds import NodeShape
from rlalloc.job import JOB_CLASSES, JobClass
from rlalloc_simulator.workloads.assumptions import CHECKPOINT_EVERY_S, CHECKPOINT_RESTART_S, Assumptions
from rlalloc_simulator.workloads.directives import written_directives
from rlalloc_simulator.workloads.trace_job import TraceJob
from rlalloc_simulator.workloads.workload_job import Checkpoint, Dependency, End, Needs, Request, Speed, WorkloadJob

Item = TypeVar("Item")
_DRAWS: Final = 20
_NORMAL = NormalDist()
_LEAST_RUN_S: Final = 1.0


def complete(trace: Iterable[TraceJob], assumptions: Assumptions, seed: int) -> tuple[float, Iterator[WorkloadJob]]:
    """Return the first submission (the workload's time zero) and the jobs; the same seed gives the same jobs.

    The trace is held in memory for sorting. Jobs submitted at the same second keep the trace's order.
    """
    ordered = sorted(trace, key=lambda job: job.submit_s)
    zero_s = ordered[0].submit_s if ordered else 0.0
    return zero_s, _completed(ordered, zero_s, assumptions, seed)


def modelled(trace: Sequence[TraceJob]) -> tuple[str, ...]:
    """Name what some job of the trace lacks and the model fills in, for the header."""
    lacking = {
        "user": any(not job.user for job in trace),
        "class": any(job.job_class is None for job in trace),
        "request.nodes": any(job.nodes is None for job in trace),
        "request.cpus": any(job.cpus is None for job in trace),
        "request.mem_mib_per_node": any(job.mem_mib is None for job in trace),
        "request.time_limit_s": any(job.time_limit_s is None for job in trace),
        "needs.cpu_fraction": any(job.cpus_used is None for job in trace),
        "needs.max_rss_mib": any(job.max_rss_mib is None for job in trace),
        "end": any(job.state == "UNKNOWN" for job in trace),
    }
    return (*(name for name, lacks in lacking.items() if lacks), "needs.speed", "directives", "checkpoint")


def nodes_for(gpus: int, shape: NodeShape) -> tuple[int, int]:
    """Nodes and GPUs on each for ``gpus`` in all: one node while it has room, then as few as divide the count.

    A count that does not divide evenly is rounded up to whole nodes.
    """
    if gpus <= shape.gpus:
        return 1, gpus
    fewest = math.ceil(gpus / max(1, shape.gpus))
    return (fewest, gpus // fewest) if gpus % fewest == 0 else (fewest, shape.gpus)


def word(text: str) -> str:
    """A name that Slurm's command lines take as it is."""
    return re.sub(r"[^A-Za-z0-9_.@:+-]", "_", text)[:128]


def _completed(
    ordered: Sequence[TraceJob], zero_s: float, assumptions: Assumptions, seed: int
) -> Iterator[WorkloadJob]:
    generator = np.random.default_rng((seed, 11))
    ids: dict[str, int] = {}
    for number, job in enumerate(ordered, 1):
        after = tuple(Dependency("afterany", ids[key]) for key in job.after if key in ids)
        if job.key:
            ids[job.key] = number
        completed = _one(number, job, assumptions, generator.random(_DRAWS).tolist())
        yield replace(completed, submit_s=job.submit_s - zero_s, dependency=after)


def _one(number: int, job: TraceJob, assumptions: Assumptions, draws: list[float]) -> WorkloadJob:
    job_class = job.job_class or (_class(assumptions, draws[0]) if job.gpus else None)
    state, elapsed_s = _ended(job, assumptions, draws[1])
    needs_s = _run_time_s(state, elapsed_s, assumptions, draws[2])
    limit_s = _time_limit_s(job, state, elapsed_s, needs_s, assumptions, draws[3])
    size = _Size(job, assumptions, draws[4:9])
    directives = ""
    if job_class is not None:
        directives = _directives(size, assumptions, draws[9:13])
    low, high = (
        exponents.of(job_class or "train")
        for exponents in (assumptions.speed_exponent_least, assumptions.speed_exponent_most)
    )
    request = Request(
        nodes=size.nodes,
        gpus_per_node=size.gpus_per_node,
        tasks_per_node=size.tasks_per_node,
        cpus_per_task=size.cpus_per_task,
        mem_mib_per_node=size.mem_asked_mib,
        time_limit_s=limit_s,
        gpu_type=word(job.gpu_type),
    )
    max_rss_mib = size.mem_needed_mib
    if state == "OUT_OF_MEMORY":
        max_rss_mib = max(max_rss_mib, size.mem_asked_mib * _between(assumptions.overrun, draws[14]))
    return WorkloadJob(
        id=number,
        submit_s=0.0,
        user=word(job.user) or _user(job.account, assumptions.users_per_account, draws[15]),
        account=word(job.account),
        partition=word(job.partition),
        qos=word(job.qos),
        name=word(job.name),
        job_class=job_class,
        request=request,
        directives=directives,
        needs=Needs(
            run_time_s=needs_s,
            cpu_fraction=size.cpu_fraction,
            max_rss_mib=max_rss_mib,
            speed=Speed("bert", round(low + (high - low) * draws[16], 3)),
        ),
        end=_end(job, state, elapsed_s),
        checkpoint=Checkpoint(CHECKPOINT_EVERY_S, CHECKPOINT_RESTART_S)
        if job_class is not None and draws[17] < assumptions.checkpointed.of(job_class)
        else None,
    )


def _ended(job: TraceJob, assumptions: Assumptions, draw: float) -> tuple[str, float]:
    """How it ended and after how long, drawn where the trace does not tell."""
    if job.state != "UNKNOWN":
        return job.state, job.elapsed_s
    ends = assumptions.ends
    if draw < ends.failed:
        return "FAILED", job.elapsed_s * ends.failed_time_factor
    if draw < ends.failed + ends.cancelled:
        return "CANCELLED", job.elapsed_s * ends.cancelled_time_factor
    return "COMPLETED", job.elapsed_s


def _run_time_s(state: str, elapsed_s: float, assumptions: Assumptions, draw: float) -> float:
    """What the job takes if nothing ends it: more than was seen if something did."""
    if state in ("FAILED", "CANCELLED"):
        elapsed_s /= _between(assumptions.progress_at_end, draw)
    elif state in ("TIMEOUT", "OUT_OF_MEMORY"):
        elapsed_s *= _between(assumptions.overrun, draw)
    return round(max(_LEAST_RUN_S, elapsed_s), 3)


def _time_limit_s(
    job: TraceJob, state: str, elapsed_s: float, needs_s: float, assumptions: Assumptions, draw: float
) -> int:
    """The limit asked, in whole minutes where it is drawn."""
    if job.time_limit_s is not None:
        return max(1, round(job.time_limit_s))
    if state == "TIMEOUT":  # what killed it was the limit
        return max(1, round(elapsed_s))
    median, deviation = assumptions.limit_used
    used = median * math.exp(deviation * _NORMAL.inv_cdf(min(max(draw, 1e-9), 1 - 1e-9)))
    return 60 * math.ceil(max(1.05, 1.0 / used) * needs_s / 60)


def _end(job: TraceJob, state: str, elapsed_s: float) -> End:
    """Time limits and memory end a job by themselves; a node's failure is none of the job's."""
    if job.ended_pending_s is not None:
        return End("CANCELLED", after_s=round(job.ended_pending_s, 3), while_pending=True)
    if state == "FAILED":
        return End("FAILED", after_s=round(elapsed_s, 3))
    if state == "CANCELLED":
        return End("CANCELLED", after_s=round(elapsed_s, 3))
    return End()


class _Size:
    """Nodes, tasks, CPUs and memory of a request, and what of it is needed."""

    def __init__(self, job: TraceJob, assumptions: Assumptions, draws: Sequence[float]) -> None:
        shape = assumptions.shape
        if job.nodes is not None:
            self.nodes, self.gpus_per_node = job.nodes, math.ceil(job.gpus / job.nodes)
        elif job.gpus:
            self.nodes, self.gpus_per_node = nodes_for(job.gpus, shape)
        else:
            self.nodes, self.gpus_per_node = max(1, math.ceil((job.cpus or 1) / shape.cpus)), 0
        per_node = max(1, self.gpus_per_node)
        asked = assumptions.cpus_asked_per_gpu
        if job.cpus is not None:
            cpus = max(1, math.ceil(job.cpus / self.nodes))
        else:
            cpus = max(1, min(shape.cpus, asked[int(draws[0] * len(asked))] * per_node))
        self.tasks_per_node = self._tasks(job, cpus, per_node, assumptions, draws[1])
        self.cpus_per_task = max(1, cpus // self.tasks_per_node)
        cpus = self.tasks_per_node * self.cpus_per_task
        used = (
            job.cpus_used / self.nodes
            if job.cpus_used
            else per_node * _between(assumptions.cpus_needed_per_gpu, draws[2])
        )
        self.cpu_fraction = round(max(0.01, used / cpus), 4)
        part_mib = shape.mem_mib / max(1, shape.gpus) * per_node
        needed = (
            job.max_rss_mib / self.nodes
            if job.max_rss_mib
            else part_mib * _between(assumptions.memory_needed_share, draws[3])
        )
        if job.mem_mib is not None:
            self.mem_asked_mib = max(1, math.ceil(job.mem_mib / self.nodes))
            if job.max_rss_mib is None:
                needed = min(needed, 0.95 * self.mem_asked_mib)  # it did run in what it asked
        else:
            base, mean = assumptions.memory_over_asked
            over = base - mean * math.log(max(1e-12, 1.0 - draws[4]))
            self.mem_asked_mib = max(1, math.ceil(max(needed, min(float(shape.mem_mib), needed * over))))
        self.mem_needed_mib = round(max(1.0, needed), 1)

    def _tasks(self, job: TraceJob, cpus: int, per_node: int, assumptions: Assumptions, draw: float) -> int:
        if job.tasks is not None:
            return max(1, min(cpus, math.ceil(job.tasks / self.nodes)))
        return per_node if draw < assumptions.task_per_gpu and cpus % per_node == 0 else 1


def _directives(size: _Size, assumptions: Assumptions, draws: Sequence[float]) -> str:
    gpus = size.nodes * size.gpus_per_node
    per_gpu = max(1, size.gpus_per_node)
    gpu_range = None
    if gpus and draws[0] < assumptions.moldable:
        down, up = (1, 2, 4)[int(draws[1] * 3)], (1, 2, 4)[int(draws[2] * 3)]
        gpu_range = (max(1, gpus // down), gpus * up)
    cpus = size.tasks_per_node * size.cpus_per_task / per_gpu
    mem_mib = size.mem_asked_mib / per_gpu
    repairable = draws[3] < assumptions.repairable
    return written_directives(
        gpus=gpu_range,
        cpus_per_gpu=(min(cpus, max(1.0, math.ceil(size.cpu_fraction * cpus))), cpus) if repairable else None,
        mem_mib_per_gpu=(min(mem_mib, 1.1 * size.mem_needed_mib / per_gpu), mem_mib) if repairable else None,
        task_per_gpu=size.tasks_per_node == size.gpus_per_node > 1,
    )


def _user(account: str, users: int, draw: float) -> str:
    """A user of the account: the k-th is as busy as 1/k of the first."""
    weights = {f"{word(account) or 'all'}-u{number}": 1.0 / number for number in range(1, users + 1)}
    return _weighted(weights, draw)


def _class(assumptions: Assumptions, draw: float) -> JobClass:
    return _weighted({name: assumptions.class_weights.of(name) for name in JOB_CLASSES}, draw)


def _weighted(weights: dict[Item, float], draw: float) -> Item:
    left = draw * sum(weights.values())
    for item, weight in weights.items():
        left -= weight
        if left < 0:
            return item
    return next(reversed(weights))


def _between(ends: tuple[float, float], draw: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * draw
