"""The evaluation of the speed model, on tables of a world that the model describes."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.step_time import Layouts, log_speed
from rlalloc.view import slowdown
from rlalloc_research.__main__ import app
from rlalloc_research.speed_model.fitted_prior import fitted_prior, priors_without
from rlalloc_research.speed_model.held_out_speeds import cpu_errors, held_out, limits_held
from rlalloc_research.speed_model.measured_tables import all_families, cpu_sensitivities
from rlalloc_research.speed_model.shared_speeds import SHARED, shared_speeds

MODELS = ("ant", "bee", "cat", "dog")
FASTER = 2.5
"""An H100 of this world over its A100; it computes and communicates faster alike."""


def truth_of(model: str) -> np.ndarray:
    """Parameters of a model, as the prior spreads them, but less."""
    draws = np.random.default_rng(MODELS.index(model)).standard_normal(6)
    return np.asarray(PRIOR_BELIEF.mean + 0.4 * np.sqrt(np.diag(PRIOR_BELIEF.covariance)) * draws)


def speed(truth: np.ndarray, gpus: int, nodes: int, batch: float, whole: float = 0.0) -> float:
    layouts = Layouts(*(np.array([value], dtype=np.float64) for value in (gpus, nodes, batch, whole)))
    return float(np.exp(log_speed(truth, layouts)[0]))


def write_csv(path: Path, rows: Iterator[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, content[0])
        writer.writeheader()
        writer.writerows(content)


def pollux(model: str) -> Iterator[dict[str, object]]:
    for placement in ("1", "2", "4", "11", "22", "44", "444", "4444"):
        gpus = sum(map(int, placement))
        for batch in (4.0, 8.0, 16.0):
            per_s = 80.0 * speed(truth_of(model), gpus, len(placement), batch / 8.0)
            yield {"placement": placement, "local_bsz": batch, "step_time": gpus * batch / per_s, "sync_time": 0.0}


def mpt() -> Iterator[dict[str, object]]:
    for model in MODELS:
        for gpu, faster in (("a100", 1.0), ("h100", FASTER)):
            for gpus in (8, 16, 64, 256):
                yield {
                    "model": model,
                    "gpu": gpu,
                    "gpus": gpus,
                    "seqlen_t": 2048,
                    "microbatchsize": 8,
                    "activation_checkpointing": "True",
                    "precision": "bf16",
                    "throughput_t_s": 1e3 * faster * speed(truth_of(model), gpus, gpus // 8, 1.0),
                }


def mlperf() -> Iterator[dict[str, object]]:
    for model in MODELS:
        for gpus in (8, 16, 64, 512):
            yield {
                "benchmark": model,
                "accelerator": "NVIDIA H100-SXM5-80GB",
                "nodes": gpus // 8,
                "accelerators": gpus,
                "global_batch_size": 512,
                "time_to_train_s_median": 9e4 / speed(truth_of(model), gpus, gpus // 8, 64 / gpus, 1.0),
            }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for model in MODELS:
        write_csv(folder / "pollux" / model / "placements.csv", pollux(model))
        (folder / "pollux" / model / "scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time\n")
    write_csv(folder / "llm-scaling" / "mpt-throughput.csv", mpt())
    write_csv(folder / "llm-scaling" / "mlperf-training-4.0.csv", mlperf())
    steps = {
        f"('{model} (batch size 8)', {gpus})": {"null": speed(truth_of(model), gpus, -(-gpus // 4), 1.0)}
        for model in MODELS
        for gpus in (1, 2, 4, 8)
    }
    for name, content in {
        "gavel/simulation_throughputs.json": {"v100": steps},
        "synergy/cpu_mem_sensitivity_extracted.json": {
            "models": {"server": {"vision": {"tput_cpu_x_mem": [[0.1, c / 4] for c in (1, 2, 3, 4, 4)]}}}
        },
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def test_a_world_that_the_model_describes_is_predicted(data: Path) -> None:
    families = all_families(data)
    assert {family.table for family in families} == {"pollux", "gavel", "mpt", "mlperf"}
    rows = {(row.row, row.known): row for row in held_out(families, priors_without(families))}
    assert rows["other GPU counts", "all other counts"].median_error() < 0.05
    assert rows["other models", "prior and two points"].median_error() < 0.15
    assert rows["another GPU type", "other type; all faster alike"].median_error() < 0.05
    assert rows["another GPU type", "other type; only sync as long"].median_error() > 0.05


def test_the_prior_finds_the_world_and_knows_no_model_that_it_leaves_out(data: Path) -> None:
    families = all_families(data)
    prior, others = fitted_prior(families), priors_without(families)
    truths = np.mean([truth_of(model) for model in MODELS], axis=0)
    assert np.abs(prior.mean - truths)[:3].max() < 1.0
    assert set(others) == {family.model for family in families}
    assert not np.allclose(others["ant"].mean, prior.mean)


def test_allowed_slowdowns_hold(data: Path) -> None:
    families = all_families(data)
    for allowed in limits_held(families, priors_without(families), slowdown):
        assert allowed.pairs > 0
        assert allowed.held > 0.9


def test_cpus_in_proportion_up_to_what_is_needed(data: Path) -> None:
    assert max(cpu_errors(cpu_sensitivities(data))) < 1e-9


def test_the_command_prints_the_tables_and_draws_the_figure(data: Path, tmp_path: Path) -> None:
    png = tmp_path / "speed.png"
    done = CliRunner().invoke(app, ["speed-model", "--data", str(data), "--png", str(png)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for expected in ("other GPU counts", "prior and two points", "another GPU type", "Prior of "):
        assert expected in done.output
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["speed-model", "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert f"cannot read the table pollux in {tmp_path}" in done.output.replace("\n", " ")


def test_what_models_on_the_same_gpus_share_is_measured_without_either_of_them(data: Path) -> None:
    rows = shared_speeds(data)
    assert [row.shared for row in rows] == list(SHARED)
    assert {row.families for row in rows} == {len([each for each in all_families(data) if each.tells_scaling])}
    assert all(0.0 < row.error < 2.0 for row in rows)
    assert all(0.3 < row.coverage <= 1.0 for row in rows)
    done = CliRunner().invoke(app, ["shared-speeds", "--data", str(data)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "0.25" in done.stdout
