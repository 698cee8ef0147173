"""The plan of a job's parallel sizes: what is known of its model, and how the job gets to know it.

A plan goes into the AdminComment as ``rlalloc-plan:DPxTPxPP``. The TaskProlog reads it there and sets RLALLOC_DP,
RLALLOC_TP and RLALLOC_PP, if the plan is for as many GPUs as the job has. It looks only if rlalloc.lua marked the job
(RLALLOC_PLAN=1): its words may name a model or parallel sizes, or were not all read there. Any other job has data
parallelism alone.
"""

import functools
from typing import Final

from rlalloc.allocation import without_limit
from rlalloc.config import Config
from rlalloc.devices import Device
from rlalloc.job import Allocation, JobClass
from rlalloc.llm.gpu_types import memory_gib
from rlalloc.llm.needed_bounds import facts_of_job
from rlalloc.llm.parallel_layouts import ParallelPlan, follows_a_plan
from rlalloc.llm.parallel_plan import plan_for
from rlalloc.scripts.script_reading import Purposes, purposes_of
from rlalloc.scripts.script_rules import ScriptRules
from rlalloc.view import ClusterView
from rlallocd.submissions.job_tag import Tag

_SHOWS_A_MODEL: Final = ("model", "tensor", "pipeline", "tp", "pp", "serve", "hidden-size")
"""Parts of the words of a script that may name a model or parallel sizes; rlalloc.lua has the same."""


def gpu_memory_gib(gpu_type: str, cluster: ClusterView, config: Config) -> float | None:
    """The memory of the GPUs that a job may get, GiB: the smallest of several types, None if one is unknown.

    None of shards: they share the memory of their GPU.
    """
    if cluster.device.kind == "shard":
        return None
    sizes = [memory_gib(name, config.gpu_memory) for name in ((gpu_type,) if gpu_type else cluster.gpu_types)]
    return min((size for size in sizes if size is not None), default=None) if None not in sizes else None


def plan_of_job(
    tag: Tag,
    job_class: JobClass,
    rules: ScriptRules,
    size: Allocation,
    memory_of_gpu_gib: float | None,
    device: Device,
) -> ParallelPlan | None:
    """The plan of a job on ``size``; None where there is none that its script and its model allow.

    None on slices and shards: a process has one slice only, and the shards of a job are of one GPU.
    """
    if not device.whole:
        return None
    words = tag.words or ()
    purposes = purposes_of(words, rules, job_class=job_class, declared=tag.declares_class)
    return _plan(words, purposes, without_limit(size), memory_of_gpu_gib, device.type)


@functools.lru_cache(maxsize=8192)
def _plan(
    words: tuple[str, ...],
    purposes: Purposes,
    size: Allocation,
    memory_of_gpu_gib: float | None,
    gpu_type: str,
) -> ParallelPlan | None:
    """The plan of the program that takes its sizes from a plan. Kept: most jobs have no words, or the same."""
    programs = facts_of_job(words, purposes)
    facts = next(filter(follows_a_plan, programs), programs[0])
    return plan_for(facts, size, memory_of_gpu_gib, gpu_type)


def looks_for_a_plan(tag: Tag) -> bool:
    """Whether the TaskProlog looks for this job's plan: rlalloc.lua decides it by the same words."""
    return any(part in tag.collected for part in _SHOWS_A_MODEL)
