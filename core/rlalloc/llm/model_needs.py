"""From facts to GPUs: what each holds with a given count, which counts make sense, and which fit. Pure functions."""

import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc.llm.architecture import Architecture
from rlalloc.llm.facts import Facts
from rlalloc.llm.parallel_layouts import divides_model, follows_a_plan, layouts, with_plan
from rlalloc.llm.script_options import FOLLOWS_GPUS, PLANNED, SERVERS
from rlalloc.llm.serving_memory import Serving, serving_memory
from rlalloc.llm.training_memory import GIB, training_memory
from rlalloc.llm.training_setup import LORA_TARGETS, Lora, PrecisionName, Training

RESERVE_GIB: Final = 1.0
"""CUDA's context with its kernels and NCCL's buffers: what no program can give to the model."""
FRAGMENTATION: Final = 0.1
"""What PyTorch's allocator loses between blocks, as a part of what it has given out. An engine manages its own.

In 60 trainings on an H100, the median was 8%, and 58 were within 30% (docs/results/llm-memory.md). The GPU was not
full there: where memory is short, PyTorch gives back blocks that are wholly free.
"""
_DEFAULT_SEQUENCE: Final = 2048
_DEFAULT_MAX_LENGTH: Final = 2048
_DEFAULT_FRACTION: Final = 0.9
_MOST_COUNTS: Final = 256
_OWN_MODELS: Final = ("megatron", "torchtitan", "torchtune")
"""Frameworks with models of their own; others train Hugging Face's."""
_MATRICES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("query_key_value", "qkv_proj", "wqkv", "c_attn", "w_pack"), ("qkv",)),
    **dict.fromkeys(("out_proj", "output_proj", "dense"), ("o",)),
    **dict.fromkeys(("fc1", "c_fc", "fc_in", "dense_h_to_4h"), ("up",)),
    **dict.fromkeys(("fc2", "fc_out", "dense_4h_to_h"), ("down",)),
    **dict.fromkeys(("w1", "w2", "w3"), ("gate", "up", "down")),  # which is which differs
    "wo": ("o",),
    "gate_up_proj": ("gate", "up"),
    "c_proj": ("o", "down"),
}
"""Other names of matrices in Hugging Face's and torchtune's models, and the targets that they stand for."""
_GROUP: Final = 128
"""Weights that share a scale in AWQ and GPTQ as models are published, and the block of FP8 in DeepSeek and Qwen3."""


class MemoryPart(msgspec.Struct, frozen=True):
    """GiB of one kind on the fullest GPU."""

    name: str
    gib: float


class GpuMemory(msgspec.Struct, frozen=True):
    """What the fullest of ``gpus`` GPUs holds. ``fraction`` of its memory is for the program."""

    gpus: int
    parts: tuple[MemoryPart, ...]
    fraction: float

    @property
    def needed_gib(self) -> float:
        """The memory that the GPU must have."""
        used = sum(part.gib for part in self.parts)
        return used / self.fraction if self.fraction < 1 else used


def parallel_unit(facts: Facts) -> int:
    """GPUs of one copy of the model: TP x PP x CP as far as they are fixed. A count is a multiple of it."""
    unit = 1
    for size in (facts.tensor_parallel, facts.pipeline_parallel, facts.context_parallel):
        unit *= fixed_size(size)
    return unit


def fixed_size(size: int | None) -> int:
    """A parallel size that the script states, else 1."""
    return size if size is not None and size > 0 else 1


def makes_sense(facts: Facts, gpus: int, gpus_per_node: int) -> bool:
    """Whether the program can run on so many GPUs at all, memory aside."""
    if follows_a_plan(facts):
        return any(
            makes_sense(with_plan(facts, plan), gpus, gpus_per_node) for plan in layouts(facts, gpus, gpus_per_node)
        )
    unit = parallel_unit(facts)
    if gpus % unit:
        return False
    tensor = _tensor_parallel(facts, gpus, gpus_per_node)
    model, follows = facts.architecture, facts.tensor_parallel == FOLLOWS_GPUS
    if model is not None and (model.exact or follows) and not divides_model(model, tensor):
        return False
    if follows and tensor != min(gpus, gpus_per_node):
        return False
    if facts.purpose == "serve":
        return _uses_all(facts, gpus, gpus_per_node) and _divides_weights(facts, tensor)
    copies = gpus // unit
    batch, micro = facts.global_batch, facts.micro_batch or 1
    return (batch is None or batch % (micro * copies) == 0) and _divides_experts(facts, gpus)


def _uses_all(facts: Facts, gpus: int, gpus_per_node: int) -> bool:
    """Whether an engine uses all GPUs: as many as its ranks and copies. Another program may start several engines."""
    if facts.framework not in SERVERS.values() or facts.data_parallel_attention:
        return True
    ranks = _tensor_parallel(facts, gpus, gpus_per_node) * _serving_pipeline(facts, gpus, gpus_per_node)
    if facts.data_parallel in (FOLLOWS_GPUS, PLANNED):
        return gpus % ranks == 0
    return gpus == ranks * fixed_size(facts.data_parallel)


def _divides_weights(facts: Facts, tensor: int) -> bool:
    """Whether each rank's part of a quantised matrix has whole groups of weights, which engines ask for."""
    model = facts.architecture
    if model is None or not model.exact:
        return True
    if facts.weights == "4-bit":
        return all(width % (tensor * _GROUP) == 0 for width in (model.intermediate, model.heads * model.head_dim))
    if facts.weights == "8-bit" and model.experts is not None:
        return model.experts.intermediate % (tensor * _GROUP) == 0
    return True


def _divides_experts(facts: Facts, gpus: int) -> bool:
    """Whether the experts' ranks divide the experts, and the GPUs of one pipeline stage of them (Megatron-LM)."""
    ranks = fixed_size(facts.expert_parallel)
    count = facts.architecture.experts.count if facts.architecture and facts.architecture.experts else facts.experts
    if count is not None and count % ranks:
        return False
    return gpus % (ranks * fixed_size(facts.tensor_parallel) * fixed_size(facts.pipeline_parallel)) == 0


def memory_on(facts: Facts, gpus: int, gpus_per_node: int) -> GpuMemory | None:
    """Return what each of ``gpus`` GPUs has to hold; None where the model is unknown or the count makes no sense.

    A script that follows rlalloc's plan gets one that fits if any does: the least that a plan needs.
    """
    if follows_a_plan(facts):
        plans = layouts(facts, gpus, gpus_per_node)
        needs = [memory_on(with_plan(facts, plan), gpus, gpus_per_node) for plan in plans]
        return min((each for each in needs if each is not None), key=lambda each: each.needed_gib, default=None)
    model = facts.architecture
    if model is None or not makes_sense(facts, gpus, gpus_per_node):
        return None
    if facts.purpose == "serve":
        return _serving(facts, model, gpus, gpus_per_node)
    return _training(facts, model, gpus, gpus_per_node)


def needed_gib(facts: Facts, gpus: int, gpus_per_node: int) -> float:
    """The memory that a GPU has to have, in GiB; infinite where ``memory_on`` is None."""
    memory = memory_on(facts, gpus, gpus_per_node)
    return math.inf if memory is None else memory.needed_gib


def counts_that_fit(facts: Facts, memory_gib: float, gpus_per_node: int, most: int) -> tuple[int, ...]:
    """GPU counts up to ``most`` with enough memory: all within a node, then whole nodes; ascending."""
    whole_nodes = range(2 * gpus_per_node, most + 1, gpus_per_node)[:_MOST_COUNTS]
    counts = (*range(1, min(most, gpus_per_node) + 1), *whole_nodes)
    return tuple(gpus for gpus in counts if needed_gib(facts, gpus, gpus_per_node) <= memory_gib)


def _tensor_parallel(facts: Facts, gpus: int, gpus_per_node: int) -> int:
    if facts.tensor_parallel != FOLLOWS_GPUS:
        return fixed_size(facts.tensor_parallel)
    return min(gpus, gpus_per_node)


def _serving_pipeline(facts: Facts, gpus: int, gpus_per_node: int) -> int:
    """Ranks of an engine's pipeline: what is left of the GPUs where its size follows them, or tensor's does alone."""
    tensor_follows = facts.tensor_parallel == FOLLOWS_GPUS and facts.pipeline_parallel is None
    if tensor_follows or facts.pipeline_parallel == FOLLOWS_GPUS:
        return max(1, gpus // _tensor_parallel(facts, gpus, gpus_per_node))
    return fixed_size(facts.pipeline_parallel)


def _serving(facts: Facts, model: Architecture, gpus: int, gpus_per_node: int) -> GpuMemory:
    """An engine starts if one sequence of the greatest length fits; more at a time are served as memory lasts."""
    tensor = _tensor_parallel(facts, gpus, gpus_per_node)
    pipeline = _serving_pipeline(facts, gpus, gpus_per_node)
    memory = serving_memory(
        model,
        Serving(
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            weights=facts.weights or "16-bit",
            kv_bytes=1.0 if "fp8" in (facts.kv_cache or "") else 2.0,
            max_length=facts.max_length or _DEFAULT_MAX_LENGTH,
        ),
    )
    parts = (
        MemoryPart("weights", max(0.0, memory.weights / GIB - (facts.offload_gib or 0.0))),
        MemoryPart("KV cache of one sequence", memory.kv_cache / GIB),
        MemoryPart("activations", memory.activations / GIB),
        MemoryPart("CUDA", RESERVE_GIB),
    )
    return GpuMemory(gpus, parts, facts.memory_fraction or _DEFAULT_FRACTION)


def _training(facts: Facts, model: Architecture, gpus: int, gpus_per_node: int) -> GpuMemory:
    memory = training_memory(model, training_on(facts, gpus, gpus_per_node))
    parts = (
        MemoryPart("weights", memory.weights / GIB),
        MemoryPart("gradients", memory.gradients / GIB),
        MemoryPart("optimizer", memory.optimizer / GIB),
        MemoryPart("gathered layers", memory.gathered / GIB),
        MemoryPart("activations", memory.activations / GIB),
        MemoryPart("logits and loss", memory.loss / GIB),
        MemoryPart("fragmentation", FRAGMENTATION * memory.total / GIB),
        MemoryPart("CUDA", RESERVE_GIB),
    )
    return GpuMemory(gpus, parts, 1.0)


def training_on(facts: Facts, gpus: int, gpus_per_node: int) -> Training:
    """The training run that facts describe, on ``gpus`` GPUs; what they leave open is as frameworks have it."""
    tensor = _tensor_parallel(facts, gpus, gpus_per_node)
    pipeline, context = fixed_size(facts.pipeline_parallel), fixed_size(facts.context_parallel)
    stage = facts.zero_stage
    if stage is None and facts.framework == "torchtitan":
        stage = 3
    if stage is None:
        stage = 1 if facts.distributed_optimizer else (2 if facts.framework == "deepspeed" else 0)
    copies = max(1, gpus // (tensor * pipeline * context))
    hugging_face = facts.framework not in _OWN_MODELS
    plain = hugging_face and facts.framework != "deepspeed" and stage == 0
    lora = None
    if facts.lora_rank is not None:
        lora = Lora(facts.lora_rank, _targets(facts.lora_targets), facts.weights or facts.dtype or "16-bit")
    return Training(
        data_parallel=copies,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=max(1, facts.expert_parallel or 1),
        sequence_parallel=bool(facts.sequence_parallel),
        zero_stage=stage,
        offload_optimizer=bool(facts.offload_optimizer),
        offload_weights=bool(facts.offload_weights),
        gradient_buckets=plain and copies > 1,
        accumulates=not plain or _accumulates(facts, copies),
        transformers=hugging_face,
        micro_batch=facts.micro_batch or 1,
        sequence=facts.sequence or _DEFAULT_SEQUENCE,
        precision=precision_of(facts),
        optimizer=facts.optimizer or "adamw",  # type: ignore[arg-type]  # the reader made it one of these
        checkpointing=facts.checkpointing or "none",  # type: ignore[arg-type]
        flash_attention=_fuses_attention(facts, transformers=hugging_face),
        fused_loss=bool(facts.fused_loss),
        lora=lora,
    )


def _fuses_attention(facts: Facts, *, transformers: bool) -> bool:
    """Whether no layer keeps its attention's scores: what the script says, else what the model's code can do."""
    if facts.flash_attention is not None:
        return facts.flash_attention
    return not (transformers and facts.architecture is not None and facts.architecture.family.eager_attention)


def _accumulates(facts: Facts, copies: int) -> bool:
    """Whether a step has several micro-batches; Hugging Face's Trainer has one where nothing is said."""
    if facts.global_batch is not None:
        return facts.global_batch > (facts.micro_batch or 1) * copies
    return (facts.accumulation or 1) > 1


def precision_of(facts: Facts) -> PrecisionName:
    """How the framework stores weights and states for the arithmetic that the script asks for.

    Hugging Face's ``--bf16`` names the arithmetic and ``--dtype`` the weights: AdamW keeps its moments in the dtype
    of the weights. DeepSpeed and FSDP's mixed precision keep 32-bit weights whatever the model was loaded in, and
    PEFT keeps adapters in 32 bits.
    """
    arithmetic, loaded = facts.precision, facts.dtype
    if facts.framework == "megatron":
        return "fp32" if arithmetic in (None, "fp32") else "megatron"
    if loaded == "16-bit" and arithmetic == "fp32":
        arithmetic = None  # nothing is mixed: all is in the dtype of the weights
    if arithmetic == "fp32" or (arithmetic is None and loaded == "fp32"):
        return "fp32"
    keeps_32_bits = facts.framework == "deepspeed" or facts.lora_rank is not None or (facts.zero_stage and arithmetic)
    in_16_bits = arithmetic == "pure-16-bit" or facts.framework in ("torchtune", "axolotl")
    if in_16_bits or (loaded == "16-bit" and not keeps_32_bits):
        return "bf16"
    if facts.framework == "deepspeed":
        return "deepspeed"
    if facts.zero_stage:
        return "fsdp"
    return "mixed" if arithmetic is None else "amp"


def _targets(text: str | None) -> tuple[str, ...]:
    """Matrices by the names that models give them; PEFT's default is q and v. If no name is known, all count."""
    if text is None:
        return ("q", "v")
    words = re.findall(r"\w+", text.lower())
    found = {target for word in words for target in _MATRICES.get(word, (word.removesuffix("_proj"),))}
    return tuple(target for target in (*LORA_TARGETS, "qkv") if target in found) or LORA_TARGETS
