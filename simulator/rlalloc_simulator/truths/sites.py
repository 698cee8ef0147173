"""A workload of any source as it would be on a site of real people, with the past of that site.

Arrivals, sizes, run times and ends are the source's. Users, families, limits, CPUs, memory, ranges and scaling are
drawn (``job_families``, ``people``). Jobs that are not part of the workload become its past: what accounting has kept
of the same users and families before the first submission.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc.past_job import PastJob
from rlalloc_simulator.truths.job_families import with_families
from rlalloc_simulator.truths.people import Habits, Script, Site, written_script
from rlalloc_simulator.workloads.workload_job import ClusterDescription, NodeGroup, WorkloadJob

MOST_PAST: Final = 4_000
"""Past jobs: what a site of this size sees in weeks, and enough for a model of run times."""
_LEAST_PAST_S: Final = 14 * 86_400.0
_MEMORY_SPREAD: Final = 0.2
_MOST_OF_MEMORY: Final = 0.95
"""How far below its largest a family's jobs stay (half-normal, logarithm), and the most of what is asked; assumed."""
_WAIT_S: Final = 600.0
_WAIT_SPREAD: Final = 1.0
"""Of the past jobs: median and log-deviation. Only when they ended matters."""


class WeekWorkload(msgspec.Struct, frozen=True):
    """Jobs in order of submission, the cluster that they come to, and past jobs, which lie before second 0."""

    cluster: ClusterDescription
    jobs: tuple[WorkloadJob, ...]
    past: tuple[PastJob, ...] = ()


def peopled(
    cluster: ClusterDescription,
    node: NodeGroup,
    jobs: Sequence[WorkloadJob],
    past: Sequence[WorkloadJob],
    habits: Habits,
    seed: int,
) -> WeekWorkload:
    """Return ``jobs`` as people with ``habits`` would submit them to ``cluster``; their users think of ``node``.

    ``past`` are other jobs of the source, in their order; the last MOST_PAST count. Deterministic.
    """
    generator = np.random.default_rng((seed, 41))
    before = list(past)[-MOST_PAST:]
    everything = with_families([*before, *jobs], generator)
    members: dict[int, list[WorkloadJob]] = defaultdict(list)
    for job, family in everything:
        members[family.number].append(job)
    site = Site.of([job for job, _ in everything], node, cluster.gpus)
    scripts = {number: written_script(members[number], site, habits, generator) for number in sorted(members)}
    less = np.exp(-_MEMORY_SPREAD * np.abs(generator.standard_normal(len(everything)))).tolist()
    written = [
        _as_written(job, scripts[family.number], each) for (job, family), each in zip(everything, less, strict=True)
    ]
    return WeekWorkload(
        cluster,
        tuple(msgspec.structs.replace(job, id=number) for number, job in enumerate(written[len(before) :], 1)),
        _past(written[: len(before)], jobs, generator),
    )


def _as_written(job: WorkloadJob, script: Script, less: float) -> WorkloadJob:
    """The job with its family's script; of memory it needs ``less`` times what the largest of the family does."""
    most_mib = _MOST_OF_MEMORY * script.request.mem_mib_per_node
    needs = msgspec.structs.replace(
        job.needs,
        speed=script.speed,
        cpu_fraction=script.cpu_fraction,
        max_rss_mib=less * min(script.max_rss_mib, most_mib),
    )
    return msgspec.structs.replace(
        job, request=script.request, directives=script.directives, needs=needs, dependency=(), partition="", qos=""
    )


def _past(
    before: Sequence[WorkloadJob], jobs: Sequence[WorkloadJob], generator: np.random.Generator
) -> tuple[PastJob, ...]:
    """Past jobs at the workload's own pace, over two weeks at least, the last one just before it begins."""
    own_s = (jobs[-1].submit_s - jobs[0].submit_s) / len(jobs)
    pace_s = max(own_s, _LEAST_PAST_S / max(1, len(before)))
    waits_s = _WAIT_S * np.exp(_WAIT_SPREAD * generator.standard_normal(len(before)))
    return tuple(
        _past_job(job, number, (number - len(before)) * pace_s, float(wait_s))
        for number, (job, wait_s) in enumerate(zip(before, waits_s, strict=True))
    )


def _past_job(job: WorkloadJob, number: int, submitted_s: float, wait_s: float) -> PastJob:
    request, run_s = job.request, job.held_s
    started_s = submitted_s + wait_s
    cpus = request.nodes * request.cpus_per_node
    timed_out = run_s >= request.time_limit_s
    return PastJob(
        job_id=f"past-{number}",
        user=job.user,
        account=job.account,
        partition="gpu",
        name=job.name,
        submitted_s=submitted_s,
        started_s=started_s,
        ended_s=started_s + run_s,
        state="TIMEOUT" if timed_out else job.end.state,
        nodes=request.nodes,
        cpus=cpus,
        gpus=request.gpus,
        mem_mib=float(request.nodes * request.mem_mib_per_node),
        limit_s=float(request.time_limit_s),
        max_rss_mib=job.needs.max_rss_mib,
        node_rss_mib=job.needs.max_rss_mib,
        cpu_s_used=min(1.0, job.needs.cpu_fraction) * cpus * run_s,
    )
