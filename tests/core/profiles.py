"""Profiles for tests, of a model that scales with a power of the GPUs."""

from collections.abc import Sequence

import msgspec

from rlalloc.speed.profile_file import (
    AppliesTo,
    Conditions,
    Measured,
    Profile,
    ProfiledModel,
    ProfilePoint,
    Size,
)

CONDITIONS = Conditions(
    model=ProfiledModel(name="gpt-25m", parameters=25_000_000, layers=8, width=512, heads=8, vocabulary=256),
    global_batch=32,
    micro_batch=4,
    sequence=512,
    precision="bfloat16",
    device="cuda",
    backend="nccl",
    loader_workers=2,
    warmup_steps=3,
    steps=20,
    accelerator="NVIDIA A100",
)


def conditions_on_cpus(model: ProfiledModel, *, global_batch: int, micro_batch: int, sequence: int) -> Conditions:
    """Of a short run without GPUs."""
    return msgspec.structs.replace(
        CONDITIONS,
        model=model,
        global_batch=global_batch,
        micro_batch=micro_batch,
        sequence=sequence,
        precision="float32",
        device="cpu",
        backend="gloo",
        loader_workers=1,
        warmup_steps=1,
        steps=5,
        accelerator="CPU",
    )


def measured(
    tokens_per_s: float, noise: float = 0.01, *, stalled: float = 0.01, host_mem_mib: int = 6000
) -> Measured:
    return Measured(
        tokens_per_s=tokens_per_s,
        step_s=0.5,
        step_p90_s=0.6,
        noise=noise,
        stalled=stalled,
        gpu_mem_mib=9000,
        host_mem_mib=host_mem_mib,
    )


def profile(
    exponent: float,
    applies_to: AppliesTo,
    *,
    counts: Sequence[int] = (1, 2, 4, 8, 16, 32),
    cpus_needed: float = 0.5,
    cpus: Sequence[int] = (1, 2, 4, 8),
    created_s: float = 1e9,
    name: str = "gpt-25m-a100",
) -> Profile:
    """Speeds as a power of the GPUs; fewer CPUs than ``cpus_needed`` a GPU slow it down in proportion."""
    points = tuple(
        ProfilePoint(
            size=Size(gpus=gpus, nodes=max(1, gpus // 8), cpus_per_gpu=each),
            outcome="measured",
            measured=measured(5e4 * gpus**exponent * min(1.0, each / cpus_needed)),
        )
        for gpus in counts
        for each in cpus
    )
    return Profile(name=name, created_s=created_s, applies_to=applies_to, conditions=CONDITIONS, points=points)


def on_cpus(of: Profile) -> Profile:
    """The same, as if measured without GPUs."""
    return msgspec.structs.replace(
        of, conditions=msgspec.structs.replace(of.conditions, device="cpu", backend="gloo")
    )
