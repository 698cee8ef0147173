"""Time of a training step of an LLM from its architecture and its parallel layout, without any measurement of it.

Computing: 6 floating point operations for each parameter and token, and attention's 12 x layers x hidden x sequence;
4 where the weights are frozen; a third more with full recomputation (Narayanan et al., SC 2021, section 5.1).
Tensor parallelism: two all-reduces of a layer's output in the forward pass, two in the backward pass, and two more
where layers are recomputed (Megatron-LM, Shoeybi et al. 2019), as rings. Pipelines: (stages - 1) idle micro-batches
(1F1B) and what stages hand over. Data parallelism: an all-reduce of the gradients a step, or for ZeRO-3 and FSDP two
all-gathers and a reduce-scatter a micro-batch; it overlaps with computing as in ``step_time``.
"""

import math
from typing import Final, NamedTuple

from rlalloc.llm.architecture import Architecture
from rlalloc.llm.training_setup import Training
from rlalloc.speed.gpu_speeds import GpuSpeed


class StepConstants(NamedTuple):
    """Fitted to MPT's throughput of 125 million to 70 billion parameters on 8 to 512 GPUs, natural logarithms.

    width    hidden size per tensor-parallel rank at which a layer reaches half of its efficiency
    overlap  g - 1: 1 + exp(overlap) is the power by which computing and data-parallel communication add up
    link     communication's time over that at the data sheets' bandwidth
    """

    width: float = 6.37
    overlap: float = 0.51
    link: float = -0.84


CONSTANTS: Final = StepConstants()
_BYTES: Final = 2.0
"""Activations, weights and gradients travel in 16 bits."""
_GIGA: Final = 1e9


def step_s(
    model: Architecture,
    training: Training,
    gpus_per_node: int,
    gpu: GpuSpeed,
    *,
    micro_batches: int,
    constants: StepConstants = CONSTANTS,
) -> float:
    """Seconds of one optimizer step, in which each copy of the model works on ``micro_batches`` micro-batches."""
    ranks, stages, copies = training.tensor_parallel, training.pipeline_parallel, training.data_parallel
    tokens = training.micro_batch * training.sequence / training.context_parallel
    in_node, between = (_GIGA * each / math.exp(constants.link) for each in (gpu.in_node, gpu.between))
    recomputed = training.checkpointing == "full"
    efficiency = gpu.efficiency / (1.0 + math.exp(constants.width) * ranks / model.hidden)
    operations = tokens * operations_per_token(model, training) / (ranks * stages)
    computing = operations / (gpu.tflops * 1e12 * efficiency)
    layer_bytes = tokens * model.hidden * _BYTES
    per_layer = (6 if recomputed else 4) * layer_bytes * 2 * (ranks - 1) / ranks
    tensor = model.layers / stages * per_layer / (in_node if ranks <= gpus_per_node else between)
    handed_over = 0.0
    if stages > 1:
        handed_over = 2 * layer_bytes / ranks / (in_node if ranks * stages <= gpus_per_node else between)
    micro_batch = computing + tensor + handed_over
    trained = model.parameters / (ranks * stages) * _BYTES
    if training.lora is not None and training.zero_stage < 3:
        trained = training.lora.parameters(model) / (ranks * stages) * _BYTES
    data = trained * (copies - 1) / copies / (in_node if copies * ranks * stages <= gpus_per_node else between)
    rounds = micro_batches + stages - 1
    power = 1.0 + math.exp(constants.overlap)
    if training.zero_stage >= 3:
        return float(rounds * (micro_batch**power + (3 * data) ** power) ** (1 / power))
    return float(((rounds * micro_batch) ** power + (2 * data) ** power) ** (1 / power))


def operations_per_token(model: Architecture, training: Training) -> float:
    """Floating point operations of one token's forward and backward pass."""
    per_parameter = 6 if training.lora is None else 4
    forward_and_backward = (
        per_parameter * model.active_parameters + 12 * model.layers * model.hidden * training.sequence
    )
    return forward_and_backward * (4 / 3 if training.checkpointing == "full" else 1.0)
