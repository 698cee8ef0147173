"""``rlalloc train …`` as a person types it."""

import json
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlalloc.config import load_config
from rlalloc.policy.policies import verify
from rlalloc.store import Store
from rlalloc_agent.actor import load_actor
from rlalloc_simulator import parallel
from rlalloc_simulator.training_workloads import TrainingWorkload, training_workload
from rlalloc_trainer.commands.train_commands import app
from rlalloc_trainer.pipelines import pretrain, retrain
from tests.trainer.sites import experience_of, site_workload, stored


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "rlalloc.yaml"
    path.write_text(
        f"store: {{url: 'sqlite:///{tmp_path}/store.sqlite'}}\n"
        f"policy: {{directory: {tmp_path}/policies}}\n"
        "trainer: {steps: 20}\n"
    )
    return path


def test_too_little_experience_is_no_failure(config: Path) -> None:
    Store(load_config(config).store.url).close()  # as rlallocd creates it
    result = CliRunner().invoke(app, ["run", "--config", str(config)])
    assert result.exit_code == 0
    assert "0 jobs with an outcome to learn from" in result.output
    assert "run times: 0 past jobs, 1,000 are needed" in result.output


def test_a_run_prints_its_verdict_as_json(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TRAIN_WORKLOADS": 2, "CHOICE_WORKLOADS": 2, "HELD_OUT_WORKLOADS": 3, "WORKERS": 1}.items():
        monkeypatch.setattr(retrain, name, value)
    monkeypatch.setattr(retrain, "workload_jobs", lambda _: 25)
    stored(experience_of(site_workload(2))[:30], config.parent / "store.sqlite").close()
    result = CliRunner().invoke(app, ["run", "--config", str(config), "--json"])
    assert result.exit_code == 0
    verdict = json.loads(result.stdout)
    assert verdict["version"] == "v000001"
    assert verdict["verdict"]["reason"] == verdict["reason"]
    assert verdict["run_times"]["folder"] is None
    store = Store(load_config(config).store.url)
    assert [row.version for row in store.policies()] == ["v000001"]
    store.close()


def test_a_wrong_configuration_is_wrong_use(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["run", "--config", str(tmp_path / "missing.yaml")])
    assert result.exit_code == 2
    assert "missing.yaml" in result.stderr


@pytest.mark.slow
def test_a_policy_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousandth of the work: what counts here is that a version comes out."""
    monkeypatch.setattr(pretrain, "processes", lambda _count: parallel.processes(1))
    monkeypatch.setattr(pretrain, "training_workload", lambda number: training_workload(number, 8))
    monkeypatch.setattr(pretrain, "TrainingWorkload", partial(TrainingWorkload, jobs=8))
    folder = tmp_path / "made"
    result = CliRunner().invoke(app, ["policy", "--directory", str(folder), "--seed", "3", "--budget", "0.001"])
    assert result.exit_code == 0, result.output
    assert "price-ef" in result.output
    manifest = verify(folder)
    trained_by = manifest.training["settings"]
    assert isinstance(trained_by, dict)
    assert trained_by["seed"] == 3
    actor, _ = load_actor(folder)
    assert sum(parameter.numel() for parameter in actor.parameters()) > 1000
    again = CliRunner().invoke(app, ["policy", "--directory", str(folder)])
    assert again.exit_code == 1
    assert "not empty" in again.stderr
