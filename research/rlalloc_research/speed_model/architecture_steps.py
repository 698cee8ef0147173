"""Steps of LLMs predicted from their architecture alone: the fit of ``training_step`` to MPT, and what it predicts.

Nothing with tensor or pipeline parallelism takes part in the fit: MPT was trained with FSDP. Megatron-LM's published
throughputs of such layouts are predicted by what was fitted to MPT.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from scipy.optimize import least_squares

from rlalloc.errors import ConfigError
from rlalloc.llm.architecture import Architecture
from rlalloc.llm.model_needs import training_on
from rlalloc.llm.training_setup import Training
from rlalloc.speed.gpu_speeds import speed_of
from rlalloc.speed.training_step import CONSTANTS, StepConstants, operations_per_token, step_s
from rlalloc_research.llm_memory import MPT_SHAPES, facts_of_mpt_run
from rlalloc_research.llm_memory_cases import gpt

_GPUS_A_NODE: Final = 8
_START: Final = np.array([6.0, 1.0, 0.0, -0.5, -0.8])
_PULL: Final = np.array([0.05, 0.1, 0.1, 0.0, 0.0])
"""Weak pulls towards the start, for what a table of one kind of cluster hardly tells: overlap and link."""
_MICRO_BATCHES: Final = (1, 2, 4, 8)

MEGATRON_LAYOUTS: Final = (
    (24, 2304, 24, 1, 1, 32, 512, 137.0),
    (30, 3072, 32, 2, 1, 64, 512, 138.0),
    (36, 4096, 32, 4, 1, 128, 512, 142.0),
    (40, 6144, 48, 8, 1, 256, 1024, 135.0),
    (48, 8192, 64, 8, 2, 512, 1536, 138.0),
    (60, 10240, 80, 8, 4, 1024, 1792, 140.0),
    (80, 12288, 96, 8, 8, 1536, 2304, 148.0),
    (96, 16384, 128, 8, 16, 1920, 2160, 155.0),
    (105, 20480, 128, 8, 35, 2520, 2520, 163.0),
    (128, 25600, 160, 8, 64, 3072, 3072, 163.0),
)
"""Narayanan et al., SC 2021, table 1: layers, hidden size, heads, tensor- and pipeline-parallel size, A100 GPUs,
global batch, and the TFLOP/s that a GPU achieved. The paper does not state the micro-batches."""


class Run(NamedTuple):
    """One run of MPT: ``log_speed`` of measured tokens a second."""

    model: str
    architecture: Architecture
    training: Training
    micro_batches: int
    gpu_type: str
    log_speed: float


class Predicted(NamedTuple):
    """A layout of Megatron-LM's paper: billions of parameters, sizes, published and predicted TFLOP/s of a GPU."""

    billions: float
    tensor: int
    pipeline: int
    gpus: int
    published: float
    predicted: float


def mpt_runs(data: Path) -> list[Run]:
    """The table's runs in 16 bits, of models whose shape is known. Raises ConfigError."""
    path = data / "llm-scaling" / "mpt-throughput.csv"
    runs = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                facts = (
                    facts_of_mpt_run(row) if row["model"] in MPT_SHAPES and "fp8" not in row["precision"] else None
                )
                if facts is None or facts.architecture is None:
                    continue
                training = training_on(facts, int(row["gpus"]), _GPUS_A_NODE)
                batches = int(row["gradaccum"])
                speed = float(np.log(float(row["throughput_t_s"])))
                runs.append(Run(row["model"], facts.architecture, training, batches, row["gpu"][:4], speed))
    except (OSError, KeyError, ValueError) as err:
        raise ConfigError(f"cannot read {path}: {err!r}") from err
    return runs


def fitted_constants(runs: Sequence[Run]) -> tuple[StepConstants, dict[str, float]]:
    """The constants of steps, and the efficiency by type of GPU."""
    types = sorted({run.gpu_type for run in runs})

    def residuals(parameters: np.ndarray) -> np.ndarray:
        constants = StepConstants(*map(float, parameters[:3]))
        efficiency = dict(zip(types, np.exp(parameters[3:]), strict=True))
        gaps = [predicted_log_speed(run, constants, efficiency) - run.log_speed for run in runs]
        return np.array([*gaps, *(_PULL[:3] * (parameters[:3] - _START[:3]))])

    start = np.concatenate([_START[:3], np.full(len(types), -0.6)])
    found = least_squares(residuals, start, loss="soft_l1").x
    return StepConstants(*map(float, found[:3])), dict(zip(types, np.exp(found[3:]).tolist(), strict=True))


def predicted_log_speed(run: Run, constants: StepConstants, efficiency: dict[str, float]) -> float:
    """Logarithm of tokens a second."""
    gpu = msgspec.structs.replace(speed_of(run.gpu_type), efficiency=efficiency[run.gpu_type])
    whole_step_s = step_s(
        run.architecture,
        run.training,
        _GPUS_A_NODE,
        gpu,
        micro_batches=run.micro_batches,
        constants=constants,
    )
    samples = run.training.data_parallel * run.training.micro_batch * run.micro_batches
    return float(np.log(samples * run.training.sequence / whole_step_s))


def held_out_models(runs: Sequence[Run]) -> list[tuple[float, float]]:
    """Predicted and measured log speeds of each model by constants that know only the other models."""
    pairs = []
    for model in dict.fromkeys(run.model for run in runs):
        constants, efficiency = fitted_constants([run for run in runs if run.model != model])
        pairs += [
            (predicted_log_speed(run, constants, efficiency), run.log_speed) for run in runs if run.model == model
        ]
    return pairs


def megatron_layouts(constants: StepConstants = CONSTANTS) -> list[Predicted]:
    """The table of Megatron-LM's paper, each row with the best of a few micro-batches."""
    rows = []
    for layers, hidden, heads, tensor, pipeline, gpus, batch, published in MEGATRON_LAYOUTS:
        model, copies = gpt(layers, hidden, heads), gpus // (tensor * pipeline)
        best = 0.0
        for micro in _MICRO_BATCHES:
            if batch % (micro * copies):
                continue
            training = Training(
                data_parallel=copies,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                micro_batch=micro,
                sequence=2048,
                precision="megatron",
                checkpointing="full",
            )
            whole_step_s = step_s(
                model,
                training,
                _GPUS_A_NODE,
                speed_of("a100"),
                micro_batches=batch // (micro * copies),
                constants=constants,
            )
            operations = batch * training.sequence * operations_per_token(model, training)
            best = max(best, operations / whole_step_s / gpus / 1e12)
        rows.append(Predicted(model.parameters / 1e9, tensor, pipeline, gpus, published, best))
    return rows
