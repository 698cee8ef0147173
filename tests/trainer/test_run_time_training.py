"""The nightly training of run times."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rlalloc.errors import StoreMissing
from rlalloc.past_job import PastJob
from rlalloc.progress import silent
from rlalloc.run_time import REMAINING_PARTS
from rlalloc.run_times.model_files import load_model, read_run_time_manifest
from rlalloc.run_times.predictor import RunTimePredictor
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.run_times.run_time_model import Offsets
from rlalloc.run_times.training import LearningSettings
from rlalloc.store import Store
from rlalloc_trainer.commands import train_wiring
from rlalloc_trainer.pipelines import run_time_training
from rlalloc_trainer.pipelines.run_time_training import LEAST_PAST_JOBS, learn_run_times
from tests.core.run_times.synthetic_site import synthetic_jobs

pytest.importorskip("lightgbm")
QUICK = LearningSettings(trees=60)


def test_a_model_that_beats_the_baselines_is_stored(tmp_path: Path) -> None:
    jobs = synthetic_jobs(2500)
    learned = learn_run_times(sorted(jobs, key=lambda job: job.ended_s), tmp_path, silent, QUICK)
    assert learned.reason.startswith("run times: stored v000001 (mean |log2 error|")
    (folder,) = tmp_path.iterdir()
    assert learned.folder == str(folder)
    manifest = read_run_time_manifest(folder)
    assert manifest.jobs == 2500
    assert manifest.offsets != Offsets()
    assert manifest.offsets.remaining_parts != REMAINING_PARTS
    recent = RecentRuns()
    for job in sorted(jobs, key=lambda job: job.ended_s):
        recent.add(job)
    estimates = RunTimePredictor(recent, load_model(folder)).estimate(jobs, 1.8e9)
    inside = [estimate.low_s <= job.run_s <= estimate.high_s for estimate, job in zip(estimates, jobs, strict=True)]
    assert 0.7 <= np.mean(inside) <= 0.95


def test_where_the_simple_rules_are_as_good_nothing_is_stored(tmp_path: Path) -> None:
    def at_the_limit(job: PastJob) -> PastJob:
        return msgspec.structs.replace(job, ended_s=job.started_s + (job.limit_s or 0.0), state="TIMEOUT")

    learned = learn_run_times(map(at_the_limit, synthetic_jobs(1200)), tmp_path, silent, QUICK)
    assert learned.folder is None
    assert "the simple rules are as good" in learned.reason
    assert not list(tmp_path.iterdir())


def test_few_past_jobs_teach_nothing(tmp_path: Path) -> None:
    learned = learn_run_times(synthetic_jobs(LEAST_PAST_JOBS - 1), tmp_path, silent, QUICK)
    assert learned.folder is None
    assert "`rlalloc history import`" in learned.reason


def test_only_the_last_jobs_are_learned_from(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(QUICK, most_jobs=1100)
    assert learn_run_times(synthetic_jobs(1300), tmp_path, silent, settings).jobs == 1100


def test_a_night_begins_no_store_where_none_is_mounted(tmp_path: Path) -> None:
    config = tmp_path / "rlalloc.yaml"
    config.write_text(
        f"store: {{url: 'sqlite:///{tmp_path}/store.sqlite'}}\npolicy: {{directory: {tmp_path}/policies}}\n"
    )
    for night in (train_wiring.learn_site_run_times, train_wiring.train_on_site):
        with pytest.raises(StoreMissing, match="if it lies on a shared file system, mount that"):
            night(config, silent)
    assert [path.name for path in tmp_path.iterdir()] == ["rlalloc.yaml"]


def test_a_night_without_lightgbm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    config = tmp_path / "rlalloc.yaml"
    config.write_text(
        f"store: {{url: 'sqlite:///{tmp_path}/store.sqlite'}}\npolicy: {{directory: {tmp_path}/policies}}\n"
    )
    monkeypatch.setattr(run_time_training, "LEAST_PAST_JOBS", 100)
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.history.add(synthetic_jobs(200))
    store.close()
    learned = train_wiring.learn_site_run_times(config, silent)
    assert learned.folder is None
    assert "lightgbm" in learned.reason
