"""The plan of a job on the size that it gets: which of the layouts that model and script allow. Pure functions.

Of the layouts that fit the GPUs' memory, training gets the one with the shortest step by
``rlalloc.speed.training_step``, and serving the one with the smallest copies of the model.
"""

from typing import Final

import msgspec

from rlalloc.job import Allocation
from rlalloc.llm.facts import Facts
from rlalloc.llm.model_needs import makes_sense, needed_gib, training_on
from rlalloc.llm.parallel_layouts import ParallelPlan, layouts, with_plan
from rlalloc.llm.script_options import PLANNED
from rlalloc.speed.gpu_speeds import speed_of
from rlalloc.speed.training_step import step_s

_SAMPLES_A_GPU: Final = 8
"""Micro-batches of a step for each GPU where the script does not state its global batch: an assumption."""


def plan_for(facts: Facts, size: Allocation, memory_gib: float | None, gpu_type: str = "") -> ParallelPlan | None:
    """Return the plan of a job on ``size``; None where the script contradicts it or too little is known for one.

    Data parallelism alone where nothing is known of the model. ``memory_gib`` is that of one GPU: if it is not known,
    a known model has a plan only if its script leaves no choice. A script that does not take its pipeline from the
    plan has none: such launchers divide their processes by data and tensor parallelism.
    """
    if size.gpus < 1:
        return None
    free = facts
    if facts.tensor_parallel is None:
        free = msgspec.structs.replace(facts, tensor_parallel=PLANNED)
    possible = [
        plan
        for plan in layouts(free, size.gpus, size.gpus_per_node)
        if makes_sense(with_plan(facts, plan), size.gpus, size.gpus_per_node)
    ]
    if len(possible) <= 1 or facts.architecture is None:
        return possible[0] if possible else None
    if memory_gib is None:
        return None
    needed = {plan: needed_gib(with_plan(facts, plan), size.gpus, size.gpus_per_node) for plan in possible}
    fitting = [plan for plan in possible if needed[plan] <= memory_gib]
    if not fitting:
        return min(possible, key=lambda plan: (needed[plan], plan.tensor * plan.pipeline))
    if facts.purpose == "serve":
        return min(fitting, key=lambda plan: (plan.tensor * plan.pipeline, plan.pipeline))
    return min(fitting, key=lambda plan: (_sample_s(facts, plan, size, gpu_type), plan.tensor * plan.pipeline))


def _sample_s(facts: Facts, plan: ParallelPlan, size: Allocation, gpu_type: str) -> float:
    """Seconds for each sample of a step."""
    if facts.architecture is None:
        return 0.0
    training = training_on(with_plan(facts, plan), size.gpus, size.gpus_per_node)
    batch = facts.global_batch or size.gpus * _SAMPLES_A_GPU * training.micro_batch
    micro_batches = max(1, batch // (training.micro_batch * training.data_parallel))
    whole_step_s = step_s(
        facts.architecture, training, size.gpus_per_node, speed_of(gpu_type), micro_batches=micro_batches
    )
    return whole_step_s / (micro_batches * training.micro_batch * training.data_parallel)
