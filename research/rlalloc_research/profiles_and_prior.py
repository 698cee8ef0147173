"""What profiles measured on one GPU, beside what rlalloc computes from the architecture alone: speed and memory."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from rlalloc.llm.training_memory import training_memory
from rlalloc.speed.gpu_speeds import speed_of
from rlalloc.speed.profile_file import Profile, ProfilePoint, read_profile
from rlalloc.speed.training_step import step_s
from rlalloc_trainer.profiling.gpt_shapes import architecture_of, training_of
from rlalloc_trainer.profiling.measured_steps import batch_of_process

_MIB = 1 << 20


class Compared(msgspec.Struct, frozen=True):
    """Tokens per second and MiB of GPU memory of one point, measured and computed."""

    model: str
    micro_batch: int
    point: ProfilePoint
    tokens_per_s: float
    gpu_mib: float


def compared(profile: Profile) -> list[Compared]:
    """The points that one GPU measured."""
    conditions = profile.conditions
    model = architecture_of(conditions.model, conditions.sequence)
    micro_batch, passes = batch_of_process(conditions, 1)
    training = training_of(conditions.sequence, micro_batch, conditions.precision)
    seconds = step_s(model, training, 1, speed_of(_type_of(conditions.accelerator)), micro_batches=passes)
    tokens_per_s = conditions.global_batch * conditions.sequence / seconds
    gpu_mib = training_memory(model, training).total / _MIB
    return [
        Compared(conditions.model.name, micro_batch, point, tokens_per_s, gpu_mib)
        for point in profile.points
        if point.measured is not None and point.size.gpus == 1
    ]


def table_of(files: Sequence[Path]) -> Table:
    """One row for each point of the files. Raises ProfileError."""
    table = Table(title="Measured on one GPU, and computed from the architecture")
    columns = ("model", "CPUs", "micro-batch", "tokens/s", "computed", "error", "GPU MiB", "computed", "error")
    for column in (*columns, "node MiB", "stalled"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in (each for file in files for each in compared(read_profile(file))):
        measured = row.point.measured
        if measured is None:
            continue
        table.add_row(
            row.model,
            str(row.point.size.cpus_per_gpu),
            str(row.micro_batch),
            f"{measured.tokens_per_s:,.0f}",
            f"{row.tokens_per_s:,.0f}",
            f"{row.tokens_per_s / measured.tokens_per_s - 1:+.0%}",
            f"{measured.gpu_mem_mib:,}",
            f"{row.gpu_mib:,.0f}",
            f"{row.gpu_mib / measured.gpu_mem_mib - 1:+.0%}" if measured.gpu_mem_mib else "-",
            f"{measured.host_mem_mib:,}",
            f"{measured.stalled:.1%}",
        )
    return table


def _type_of(accelerator: str) -> str:
    """``NVIDIA H100 80GB HBM3`` as Slurm's GRES has it: ``nvidia_h100_80gb_hbm3``."""
    return accelerator.lower().replace(" ", "_")
