"""Steps predicted from an architecture: the fit finds what made a table, and published layouts are near."""

import csv
from pathlib import Path

import numpy as np
import pytest

from rlalloc.llm.training_setup import Training
from rlalloc.speed.gpu_speeds import GPU_SPEEDS, speed_of
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.training_step import CONSTANTS, step_s
from rlalloc_research.llm_memory import MPT_SHAPES
from rlalloc_research.llm_memory_cases import gpt
from rlalloc_research.speed_model.architecture_steps import (
    fitted_constants,
    held_out_models,
    megatron_layouts,
    mpt_runs,
    predicted_log_speed,
)
from rlalloc_research.speed_model.layout_scaling import layout_errors
from rlalloc_research.speed_model.measured_tables import Family, Point

pytestmark = pytest.mark.research
EFFICIENCY = {"a100": 0.75, "h100": 0.53}


def made_table(data: Path) -> None:
    """Throughputs by the constants that ship, with an error of 2%."""
    path = data / "llm-scaling" / "mpt-throughput.csv"
    path.parent.mkdir(parents=True)
    generator = np.random.default_rng(0)
    rows: list[dict[str, object]] = [
        {"model": model, "gpu": f"{gpu}_80gb", "gpus": gpus, "seqlen_t": 2048, "microbatchsize": 4, "gradaccum": 2,
         "sharding_strategy": "FULL_SHARD", "activation_checkpointing": "True", "precision": "amp_bf16",
         "throughput_t_s": 1.0}
        for model in MPT_SHAPES for gpu in EFFICIENCY for gpus in (8, 64, 256)
    ]  # fmt: skip
    write(path, rows)
    for row, run in zip(rows, mpt_runs(data), strict=True):
        row["throughput_t_s"] = np.exp(predicted_log_speed(run, CONSTANTS, EFFICIENCY) + 0.02 * generator.normal())
    write(path, rows)


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_the_fit_finds_what_made_the_table(tmp_path: Path) -> None:
    made_table(tmp_path)
    runs = mpt_runs(tmp_path)
    constants, efficiency = fitted_constants(runs)
    assert efficiency == pytest.approx(EFFICIENCY, rel=0.03)
    assert constants.width == pytest.approx(CONSTANTS.width, abs=0.1)
    assert constants.link == pytest.approx(CONSTANTS.link, abs=0.6)  # large micro-batches hide communication
    pairs = held_out_models(runs)
    assert len(pairs) == len(runs)
    assert np.median([abs(predicted - measured) for predicted, measured in pairs]) < 0.04


def test_megatrons_layouts_are_near_what_was_published() -> None:
    """No layout of tensor or pipeline parallelism took part in the fit. The two smallest models are the worst."""
    errors = [abs(row.predicted / row.published - 1) for row in megatron_layouts()]
    assert np.median(errors) < 0.07
    assert max(errors[2:]) < 0.10
    assert max(errors) < 0.45


def test_how_a_model_with_tensor_and_pipeline_parallelism_scales_is_predicted_from_its_smallest_count() -> None:
    """Of a table made by TP 8 x PP 8 that layout has no error; a model of another name is left alone."""

    def seconds_of_a_batch(gpus: int) -> float:
        training = Training(
            tensor_parallel=8, pipeline_parallel=8, data_parallel=gpus // 64, sequence=2048, zero_stage=1
        )
        batches = 2048 // (gpus // 64)
        return step_s(gpt(96, 12288, 96), training, 8, speed_of("h100"), micro_batches=batches)

    points = tuple(
        Point(gpus, gpus // 8, 2048 / gpus, 2048.0, 1.0 / seconds_of_a_batch(gpus)) for gpus in (512, 2048, 8192)
    )
    family = Family("mlperf", "gpt3", "", "H100-SXM-80GB", points)
    belief, *rows = layout_errors([family, family._replace(model="bert")], {"gpt3": PRIOR_BELIEF})
    assert set(belief.errors) == {2048, 8192}
    exact = next(row for row in rows if row.how == "TP 8 x PP 8, micro-batch 1")
    assert exact.errors == pytest.approx({2048: 0.0, 8192: 0.0}, abs=1e-9)
    others = [abs(row.errors[8192]) for row in rows if row is not exact]
    assert min(others) > 0.01


def test_tensor_parallelism_beyond_a_node_is_slow() -> None:
    """The paper's takeaway 1 (section 5.4.1): 162 billion parameters on 64 GPUs are fastest with TP 8 x PP 8."""
    model = gpt(32, 20480, 128)

    def whole_step_s(tensor: int, pipeline: int) -> float:
        training = Training(
            tensor_parallel=tensor, pipeline_parallel=pipeline, sequence=2048, checkpointing="full",
            precision="megatron",
        )  # fmt: skip
        return step_s(model, training, 8, speed_of("a100"), micro_batches=32)

    times = {tensor: whole_step_s(tensor, 64 // tensor) for tensor in (2, 4, 8, 16, 32)}
    assert min(times, key=lambda tensor: times[tensor]) == 8


def test_a_faster_type_takes_less_time_and_an_unknown_one_that_of_an_a100() -> None:
    training = Training(data_parallel=8, zero_stage=3, sequence=2048, checkpointing="full")
    times = {name: step_s(gpt(32, 4096, 32), training, 8, gpu, micro_batches=4) for name, gpu in GPU_SPEEDS.items()}
    assert times["b200"] < times["h100"] < times["a100"] < times["v100"]
    assert speed_of("nvidia_h100_80gb_hbm3") == GPU_SPEEDS["h100"]
    assert speed_of("abacus") == GPU_SPEEDS["a100"]
