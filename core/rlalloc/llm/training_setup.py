"""How a model is trained or served, as far as it decides what one GPU has to hold."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from rlalloc.llm.architecture import Architecture

PrecisionName = Literal["fp32", "amp", "mixed", "deepspeed", "fsdp", "megatron", "bf16"]
OptimizerName = Literal[
    "adamw", "adamw-fused", "adamw-8bit", "adamw-paged", "adafactor", "lion", "sgd-momentum", "sgd"
]
Checkpointing = Literal["none", "selective", "full"]


class Precision(msgspec.Struct, frozen=True):
    """Bytes for each trained parameter. ``update`` is what the optimizer keeps beside its moments, in 32 bits.

    ``copy`` is a second copy of the weights. ``gradients_stay``: they stay whole in ZeRO stages
    below 3 and are gone in stage 3. ``activation`` is bytes of an activation.
    """

    weights: float
    gradients: float
    update: float
    moment: float
    copy: float = 0.0
    gradients_stay: bool = False
    activation: int = 2


PRECISIONS: Final[Mapping[PrecisionName, Precision]] = {
    "fp32": Precision(4, 4, 0, 4, activation=4),
    # torch.autocast keeps 32-bit weights and caches their 16-bit copies: 18 bytes with Adam (LLaMA-Factory's README).
    "amp": Precision(4, 4, 0, 4, copy=2),
    # ZeRO, Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12 bytes with Adam.
    "mixed": Precision(2, 2, 4, 4),
    # DeepSpeed's documentation, "Memory Requirements": the 16-bit gradients stay whole below stage 3, and the step
    # makes 32-bit ones: 4 + 16/N bytes in stage 2, 18/N in stage 3.
    "deepspeed": Precision(2, 2, 8, 4, gradients_stay=True),
    # FSDP's mixed precision: 32-bit shards, gathered in 16 bits.
    "fsdp": Precision(4, 4, 0, 4),
    # Megatron-LM's distributed optimizer: 18 bytes, or 6 + 12/d sharded (its manual, Distributed Optimizer).
    "megatron": Precision(2, 4, 4, 4),
    # Everything in 16 bits: torchtune, LLaMA-Factory's pure_bf16.
    "bf16": Precision(2, 2, 0, 2),
}
_MOMENTS: Final[Mapping[OptimizerName, float]] = {
    "adamw": 2,
    "adamw-fused": 2,
    "adamw-paged": 0,  # QLoRA: its moments go to the host's memory when the GPU's is short
    "adafactor": 0,  # a row and a column for each matrix
    "lion": 1,
    "sgd-momentum": 1,
    "sgd": 0,
}
_BYTES_8BIT_STATE: Final = 1 + 4 / 256
"""Dettmers et al. 2022 (8-bit optimizers), as bitsandbytes has it: a byte and a 32-bit scale for each 256 values."""

BYTES_PER_WEIGHT: Final[Mapping[str, float]] = {
    "fp32": 4.0,
    "16-bit": 2.0,
    "8-bit": 1.0,
    # 4 bits, and a 16-bit scale with a 4-bit zero for each 128 weights (GPTQ and AWQ's usual group).
    "4-bit": 0.5 + 20 / 8 / 128,
    # OCP microscaling: 4 bits, and 8 for each 32 weights.
    "mxfp4": 0.5 + 1 / 32,
    # QLoRA, Dettmers et al. 2023, section 3: 0.127 bits a weight for constants with double quantisation.
    "nf4": 0.5 + 0.127 / 8,
}
"""Bytes of a weight in a layer's matrices. Embeddings and head stay in 16 bits when matrices have fewer."""

LORA_TARGETS: Final = ("q", "k", "v", "o", "gate", "up", "down")
"""All matrices of a layer. Some models have ``qkv`` for the first three."""


class Lora(msgspec.Struct, frozen=True):
    """Low-rank adapters (Hu et al. 2021) on some matrices of each layer, over a base in ``base_weights``."""

    rank: int
    targets: tuple[str, ...] = ("q", "v")
    base_weights: str = "16-bit"

    def parameters(self, model: Architecture) -> int:
        """Parameters of the adapters: rank x (inputs + outputs) of each matrix. Experts have adapters each."""
        query, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
        width, copies = model.intermediate, 1
        if model.experts is not None:
            width, copies = model.experts.intermediate, model.experts.count
        sides = {
            "q": model.hidden + query,
            "k": model.hidden + kv,
            "v": model.hidden + kv,
            "qkv": model.hidden + query + 2 * kv,
            "o": query + model.hidden,
            "gate": (model.hidden + width) * copies * model.family.gated,
            "up": (model.hidden + width) * copies,
            "down": (width + model.hidden) * copies,
        }
        return self.rank * model.layers * sum(sides[target] for target in self.targets)


class Training(msgspec.Struct, frozen=True):
    """A training run. Batch sizes count sequences; ``sequence`` counts tokens.

    ``gradient_buckets``: PyTorch's DistributedDataParallel copies the gradients into buckets for its all-reduce.
    ``accumulates``: gradients of an earlier micro-batch are there while the next one is computed; where they are not,
    they come as activations go. ``transformers``: the model's code is Hugging Face's, with norms and GPT-2's GELU in
    single operations, each of which keeps its own values.
    """

    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    sequence_parallel: bool = False
    zero_stage: int = 0
    offload_optimizer: bool = False
    offload_weights: bool = False
    gradient_buckets: bool = False
    accumulates: bool = True
    transformers: bool = False
    micro_batch: int = 1
    sequence: int = 2048
    precision: PrecisionName = "mixed"
    optimizer: OptimizerName = "adamw"
    checkpointing: Checkpointing = "none"
    flash_attention: bool = True
    fused_loss: bool = False
    lora: Lora | None = None


def optimizer_bytes(training: Training) -> float:
    """Bytes that the optimizer keeps for each trained parameter, its 32-bit copies included."""
    precision = PRECISIONS[training.precision]
    if training.optimizer == "adamw-8bit":
        return precision.update + 2 * _BYTES_8BIT_STATE
    return precision.update + _MOMENTS[training.optimizer] * precision.moment
