"""GPU memory of an inference engine: weights, KV cache, and what one pass needs. Pure functions."""

from typing import Final

import msgspec

from rlalloc.llm.architecture import Architecture
from rlalloc.llm.training_memory import weight_bytes

_LARGEST_PASS_TOKENS: Final = 8192
"""Tokens of one pass of prefill: engines cut longer prompts into chunks (vLLM: max_num_batched_tokens)."""


class Serving(msgspec.Struct, frozen=True):
    """An engine such as vLLM. ``fraction`` is the part of GPU memory that it takes (``--gpu-memory-utilization``).

    ``max_length`` counts tokens of a sequence with its answer, ``sequences`` how many are held at the same time.
    ``prefill`` counts the tokens of the largest pass; None: the longest sequence, in chunks.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    weights: str = "16-bit"
    kv_bytes: float = 2.0
    max_length: int = 4096
    sequences: int = 1
    fraction: float = 0.9
    prefill: int | None = None


class ServingMemory(msgspec.Struct, frozen=True):
    """Bytes on one GPU. ``activations`` is what the largest pass needs."""

    weights: float
    kv_cache: float
    activations: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.kv_cache + self.activations


def serving_memory(model: Architecture, serving: Serving) -> ServingMemory:
    """Bytes on one GPU for the weights, ``sequences`` sequences of ``max_length`` tokens and one pass of prefill."""
    ranks = serving.tensor_parallel * serving.pipeline_parallel
    prefill = min(serving.max_length, _LARGEST_PASS_TOKENS) if serving.prefill is None else serving.prefill
    return ServingMemory(
        weights=weight_bytes(model, serving.weights) / ranks,
        kv_cache=serving.sequences * serving.max_length * kv_bytes_per_token(model, serving) / ranks,
        activations=prefill * _pass_bytes_per_token(model) / serving.tensor_parallel,
    )


def kv_bytes_per_token(model: Architecture, serving: Serving) -> float:
    """Bytes of keys and values of one token in all layers, on all GPUs together.

    Tensor parallelism beyond the number of key-value heads copies them; a latent is copied to every rank.
    """
    copies = 1.0
    if model.latent is not None:
        copies = serving.tensor_parallel
    elif serving.tensor_parallel > model.kv_heads:
        copies = serving.tensor_parallel / model.kv_heads
    return model.kv_values_per_token * serving.kv_bytes * copies


def _pass_bytes_per_token(model: Architecture) -> float:
    """16-bit values of the widest layer that are alive together: two residual streams, and the MLP's three or two."""
    width = model.intermediate
    if model.experts is not None:
        width = model.experts.per_token * model.experts.intermediate + model.experts.shared_intermediate
    return 2.0 * (2 * model.hidden + (3 if model.family.gated else 2) * width)
