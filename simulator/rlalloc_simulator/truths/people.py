"""What people write into their scripts, a family at a time: sizes, limits, CPUs, memory and ranges.

Limits follow the logs of two real sites (``job_families``): one limit, the default, stands on 37% (Atlas) and 10%
(KTH) of the jobs; the others are round; 11 and 13% of the jobs run into theirs; the median job uses 4 and 41% of it.
CPUs follow Kalos (12 to 15 of the 16 that a GPU has, with a tail to 7 times as many) and what Synergy measured to be
needed. Of memory nobody has published requests and needs together: the figures are assumptions.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
import numpy as np

from rlalloc_simulator.truths.scaling_mixture import Source, drawn_speed
from rlalloc_simulator.workloads.chosen_limits import round_limit_s
from rlalloc_simulator.workloads.completion import nodes_for
from rlalloc_simulator.workloads.directives import written_directives
from rlalloc_simulator.workloads.workload_job import NodeGroup, Request, Speed, WorkloadJob

Asking = Literal["right", "mixed", "over"]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
ALL_GPUS: Final = 0
"""A factor of bounds: from 1 to all GPUs of the cluster."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How users of a site ask.

    resizable   part of the families that declare a range of GPUs
    factor      from the request over it to the request times it; ALL_GPUS for 1 to all of the cluster
    asking      right: the size that suits them; over: two or four times that; mixed: 60% right, 40% over
    declared    part of the families that declare least CPUs and memory a GPU, with a margin
    scaling     the source of all curves; None for the mixture
    """

    resizable: Share = 0.3
    factor: int = 4
    asking: Asking = "mixed"
    declared: Share = 0.1
    scaling: Source | None = None


MODEST: Final = Habits()
_OVER: Final = {"right": 0.0, "mixed": 0.4, "over": 1.0}
_DEFAULT_LIMIT: Final = 0.35
"""Part of the families that take the site's default, if their jobs fit into it."""
_MAXIMUM_LIMIT: Final = 0.2
"""Part that names the site's maximum."""
_TOO_SHORT: Final = 0.2
"""Part whose limit is what most of their jobs need, not all."""
_DEFAULT_FITS: Final = 0.8
"""So many of the jobs fit into the default limit: an assumption, Atlas' default fits 60%."""
_CPUS_NEEDED: Final = (*(1.0,) * 16, 3.0, 4.0, 6.0, 6.0)
"""A GPU, each as likely: language models need one, others 3 to 12 (Synergy, 12 models); a fifth are others."""
_CPUS_ASKED: Final = (0.25, 0.5, 0.75, 0.75, 0.94, 0.94, 1.0, 1.0, 1.0, 2.0)
"""Of a GPU's part of the node's CPUs, each as likely. Kalos: 12 to 15 of 16, a tenth far more; least, by hand."""
_MEMORY_NEEDED: Final = (0.08, 0.5)
"""Of a GPU's part of the node's memory, uniform."""
_MEMORY_BY_PART: Final = 0.5
"""Part of the families that ask for the GPU's part; the others for what they need times 1.1 plus an exponential."""
_MARGIN: Final = (1.1, 2.0)
"""Declared least over needed: people round up what they have seen."""


class Script(msgspec.Struct, frozen=True):
    """What all jobs of a family have in common, and the most that they need."""

    request: Request
    directives: str
    speed: Speed
    cpu_fraction: float
    max_rss_mib: float


class Site(msgspec.Struct, frozen=True):
    """Where the family submits: the node that users have in mind, GPUs of the cluster, and the site's limits [s]."""

    node: NodeGroup
    gpus: int
    default_limit_s: int
    maximum_limit_s: int

    @classmethod
    def of(cls, jobs: Sequence[WorkloadJob], node: NodeGroup, gpus: int) -> "Site":
        """Return a site whose limits fit these jobs: round ones."""
        run_s = np.array([job.held_s for job in jobs] or [1.0])
        default_s = round_limit_s(float(np.quantile(run_s, _DEFAULT_FITS)))
        return cls(node, gpus, default_s, round_limit_s(float(run_s.max())))


def written_script(jobs: Sequence[WorkloadJob], site: Site, habits: Habits, generator: np.random.Generator) -> Script:
    """Return the script of a family: what its jobs, of one size, run. Draws as many numbers for each family."""
    draws = generator.random(9).tolist()
    extra = float(generator.exponential(0.7))
    gpus, node = jobs[0].request.gpus, site.node
    over = 1 if draws[0] >= _OVER[habits.asking] else (2 if draws[1] < 0.5 else 4)
    speed = drawn_speed(generator, max(1, gpus // over), habits.scaling)
    nodes, per_node = nodes_for(gpus, node.shape)
    part = node.cpus / node.gpus
    cpus = max(1, min(node.cpus, round(_pick(_CPUS_ASKED, draws[2]) * part * per_node)))
    cpus_needed = min(_pick(_CPUS_NEEDED, draws[3]), part)
    memory_part = node.mem_mib / node.gpus
    mem_needed = memory_part * (_MEMORY_NEEDED[0] + (_MEMORY_NEEDED[1] - _MEMORY_NEEDED[0]) * draws[4]) * per_node
    mem_asked = memory_part * per_node if draws[5] < _MEMORY_BY_PART else mem_needed * (1.1 + extra)
    request = Request(
        nodes=nodes,
        gpus_per_node=per_node,
        tasks_per_node=1,
        cpus_per_task=cpus,
        mem_mib_per_node=max(1, min(node.mem_mib, math.ceil(mem_asked))),
        time_limit_s=_limit_s(jobs, site, draws[6]),
        gpu_type=node.gpu_type,
    )
    margin = _MARGIN[0] + (_MARGIN[1] - _MARGIN[0]) * draws[7]
    allocation = request.allocation
    declares = draws[8] < habits.declared
    least_cpus = min(allocation.cpus_per_gpu, math.ceil(cpus_needed * margin))
    least_mib = min(allocation.mem_mib_per_gpu, margin * mem_needed / per_node)
    return Script(
        request=request,
        directives=written_directives(
            gpus=_range(gpus, site, habits) if generator.random() < habits.resizable else None,
            cpus_per_gpu=(least_cpus, allocation.cpus_per_gpu) if declares else None,
            mem_mib_per_gpu=(least_mib, allocation.mem_mib_per_gpu) if declares else None,
        ),
        speed=speed,
        cpu_fraction=cpus_needed / allocation.cpus_per_gpu,
        max_rss_mib=mem_needed,
    )


def _limit_s(jobs: Sequence[WorkloadJob], site: Site, draw: float) -> int:
    """The site's default, its maximum, or a round limit that fits the family's longest job, or only half of them."""
    run_s = [job.held_s for job in jobs]
    longest_s = round_limit_s(max(run_s))
    if draw < _DEFAULT_LIMIT:
        return max(site.default_limit_s, longest_s)
    if draw < _DEFAULT_LIMIT + _MAXIMUM_LIMIT:
        return site.maximum_limit_s
    if draw < _DEFAULT_LIMIT + _MAXIMUM_LIMIT + _TOO_SHORT:
        return round_limit_s(float(np.median(run_s)))
    return longest_s


def _range(gpus: int, site: Site, habits: Habits) -> tuple[int, int]:
    if habits.factor == ALL_GPUS:
        return 1, site.gpus
    return max(1, gpus // habits.factor), max(gpus, min(site.gpus, gpus * habits.factor))


def _pick(values: Sequence[float], draw: float) -> float:
    return values[int(draw * len(values))]
