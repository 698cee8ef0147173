"""The models that can be profiled: GPTs of the shapes of GPT-2 and GPT-3, and smaller ones for trying out."""

from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc.errors import ProfileError
from rlalloc.llm.architecture import FAMILIES, Architecture
from rlalloc.llm.training_memory import GIB, training_memory
from rlalloc.llm.training_setup import Training
from rlalloc.speed.profile_file import ProfiledModel

LARGEST: Final = "largest"
_USABLE: Final = 0.9
"""Part of a GPU's memory that a model may need: the rest goes to the CUDA context, NCCL and fragmentation."""
_SMALL_VOCABULARY: Final = 2048
_GPT2_VOCABULARY: Final = 50304

_SHAPES: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "gpt-1m": (4, 128, 4, _SMALL_VOCABULARY),
    "gpt-4m": (4, 256, 4, _SMALL_VOCABULARY),
    "gpt-25m": (8, 512, 8, _SMALL_VOCABULARY),
    # GPT-2's smallest, then table 2.1 of GPT-3 (Brown et al., 2020).
    "gpt-125m": (12, 768, 12, _GPT2_VOCABULARY),
    "gpt-350m": (24, 1024, 16, _GPT2_VOCABULARY),
    "gpt-760m": (24, 1536, 16, _GPT2_VOCABULARY),
    "gpt-1.3b": (24, 2048, 16, _GPT2_VOCABULARY),
    "gpt-2.7b": (32, 2560, 32, _GPT2_VOCABULARY),
    "gpt-6.7b": (32, 4096, 32, _GPT2_VOCABULARY),
}
"""Layers, width, heads and vocabulary."""
NAMES: Final = tuple(_SHAPES)


def model_named(name: str, sequence: int) -> ProfiledModel:
    """The model of that name for sequences of ``sequence`` tokens. Raises ProfileError."""
    if name not in _SHAPES:
        raise ProfileError(f"--model {name}: unknown; write one of {', '.join((*NAMES, LARGEST))}")
    layers, width, heads, vocabulary = _SHAPES[name]
    shape = ProfiledModel(name=name, parameters=1, layers=layers, width=width, heads=heads, vocabulary=vocabulary)
    return msgspec.structs.replace(shape, parameters=architecture_of(shape, sequence).parameters)


def largest_that_fits(gpu_memory_gib: float, sequence: int, micro_batch: int, precision: str) -> str:
    """The name of the largest model that one GPU can train. Raises ProfileError if none can."""
    training = training_of(sequence, micro_batch, precision)
    for name in reversed(NAMES):
        model = architecture_of(model_named(name, sequence), sequence)
        if training_memory(model, training).total <= _USABLE * gpu_memory_gib * GIB:
            return name
    raise ProfileError(
        f"no model fits {gpu_memory_gib:g} GiB of GPU memory with {micro_batch} sequences of {sequence} tokens: "
        "choose a smaller --micro-batch or --sequence"
    )


def training_of(sequence: int, micro_batch: int, precision: str) -> Training:
    """How a point trains: under DistributedDataParallel, on one GPU too, and without checkpoints."""
    return Training(
        micro_batch=micro_batch,
        sequence=sequence,
        precision="amp" if precision == "bfloat16" else "fp32",
        gradient_buckets=True,
    )


def architecture_of(shape: ProfiledModel, sequence: int) -> Architecture:
    """A profiled model as ``rlalloc.llm`` sees it."""
    return Architecture(
        family=FAMILIES["gpt2"],
        layers=shape.layers,
        hidden=shape.width,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        intermediate=4 * shape.width,
        vocabulary=shape.vocabulary,
        tied=True,
        positions=sequence,
    )
