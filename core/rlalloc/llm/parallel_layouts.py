"""How GPUs can be divided into data-, tensor- and pipeline-parallel ranks. Pure functions.

What the script states stays. Tensor parallelism stays inside a node and divides the heads and the hidden size; the
pipeline divides the layers. If only the size of a model is known, tensor parallelism is a power of two and the
pipeline 1.
"""

from typing import Final

import msgspec

from rlalloc.llm.architecture import Architecture
from rlalloc.llm.facts import Facts
from rlalloc.llm.script_options import FOLLOWS_GPUS, PLANNED

_MOST_PIPELINE: Final = 128


class ParallelPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ranks; their product is the number of GPUs. Context-parallel ranks count as data-parallel ones."""

    data: int
    tensor: int = 1
    pipeline: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the whole job."""
        return self.data * self.tensor * self.pipeline

    def describe(self) -> str:
        """One line for people, such as ``DP 2 x TP 4 x PP 1``."""
        return f"DP {self.data} x TP {self.tensor} x PP {self.pipeline}"


def follows_a_plan(facts: Facts) -> bool:
    """Whether the script takes a parallel size from rlalloc's plan."""
    return PLANNED in (facts.tensor_parallel, facts.pipeline_parallel)


def with_plan(facts: Facts, plan: ParallelPlan) -> Facts:
    """The facts of a job that runs by ``plan``."""
    return msgspec.structs.replace(facts, tensor_parallel=plan.tensor, pipeline_parallel=plan.pipeline)


def layouts(facts: Facts, gpus: int, gpus_per_node: int) -> list[ParallelPlan]:
    """The layouts that model and script allow on nodes of the job with ``gpus_per_node`` GPUs; memory aside.

    Sizes that the script takes from the plan are free; others that it does not state are 1.
    """
    per_node = min(gpus, gpus_per_node)
    tensors = [count for count in _tensor_sizes(facts, per_node) if per_node % count == 0 and gpus % count == 0]
    return [
        ParallelPlan(gpus // (tensor * pipeline), tensor, pipeline)
        for tensor in tensors
        for pipeline in _pipeline_sizes(facts, gpus // tensor)
        if gpus % (tensor * pipeline) == 0
    ]


def _tensor_sizes(facts: Facts, per_node: int) -> list[int]:
    if facts.tensor_parallel == FOLLOWS_GPUS:
        return [per_node]
    if facts.tensor_parallel != PLANNED:
        return [facts.tensor_parallel or 1]
    return [count for count in range(1, per_node + 1) if _may_divide(facts, count)]


def _pipeline_sizes(facts: Facts, most: int) -> list[int]:
    if facts.pipeline_parallel == FOLLOWS_GPUS:
        return [most]
    if facts.pipeline_parallel != PLANNED:
        return [facts.pipeline_parallel or 1]
    model = facts.architecture
    if model is None or not model.exact:
        return [1]
    return [count for count in range(1, min(most, _MOST_PIPELINE) + 1) if model.layers % count == 0]


def _may_divide(facts: Facts, tensor: int) -> bool:
    return tensor == 1 if facts.architecture is None else divides_model(facts.architecture, tensor)


def divides_model(model: Architecture, tensor: int) -> bool:
    """Whether a model can be divided into so many tensor-parallel ranks.

    The number of ranks must divide the query heads and the hidden size. It must also divide the key-value heads or be
    a multiple of them: each is then copied to as many ranks. If only the model's size is known, the number must be a
    power of two.
    """
    if not model.exact:
        return tensor & (tensor - 1) == 0
    divides_keys = model.kv_heads % tensor == 0 or tensor % model.kv_heads == 0
    return divides_keys and model.heads % tensor == 0 and model.hidden % tensor == 0
