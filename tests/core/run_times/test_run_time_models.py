"""Models on disk, and what is answered with and without one."""

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.errors import MissingInputsError, PolicyError
from rlalloc.run_time import PAST_THE_LIMIT_S, REMAINING_PARTS
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.model_files import (
    KEPT,
    RunTimeManifest,
    load_model,
    newest_model,
    read_run_time_manifest,
    save_model,
)
from rlalloc.run_times.predictor import RunTimePredictor
from rlalloc.run_times.recent_runs import FEATURES, RecentRuns
from rlalloc.run_times.run_time_model import Offsets, RunTimeModel
from rlalloc.run_times.training import LearningSettings, RunTimes, learn
from tests.core.run_times.synthetic_site import synthetic_jobs

pytest.importorskip("lightgbm")
JOBS = synthetic_jobs(500)
NOW_S = JOBS[-1].submitted_s + 1e6
MANIFEST = RunTimeManifest(
    created_s=1.0, jobs=500, until_s=2.0, inputs=(), offsets=Offsets(), files={}, evaluation={"error_ratio": 0.8}
)


def silent(_what: str, _done: float) -> None:
    pass


def all_ended() -> RecentRuns:
    recent = RecentRuns()
    for job in sorted(JOBS, key=lambda job: job.ended_s):
        recent.add(job)
    return recent


ENDED = all_ended()


@pytest.fixture(scope="module")
def model() -> RunTimeModel:
    runs = RunTimes.of(JOBS, RecentRuns(), silent)
    boosters = learn(runs, np.arange(len(JOBS)), NOW_S, LearningSettings(trees=20))
    return RunTimeModel(boosters, Offsets(low=-0.25, high=0.5, remaining_parts=(0.08, 0.95)))


def test_a_stored_model_answers_the_same(model: RunTimeModel, tmp_path: Path) -> None:
    folder = save_model(tmp_path, model, MANIFEST)
    found = load_model(folder)
    assert found.offsets == model.offsets
    features = ENDED.features(JOBS, NOW_S)
    np.testing.assert_array_equal(found.raw(features), model.raw(features))
    manifest = read_run_time_manifest(folder)
    assert (manifest.inputs, manifest.evaluation) == (FEATURES, MANIFEST.evaluation)


def test_only_the_last_versions_stay(model: RunTimeModel, tmp_path: Path) -> None:
    folders = [save_model(tmp_path, model, MANIFEST) for _ in range(KEPT + 2)]
    assert sorted(path for path in tmp_path.iterdir()) == folders[2:]


@pytest.mark.parametrize("name", ["low.txt", "median.txt", "high.txt", "relative.txt", "manifest.json"])
def test_a_damaged_file_is_refused(model: RunTimeModel, tmp_path: Path, name: str) -> None:
    folder = save_model(tmp_path, model, MANIFEST)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(PolicyError, match=r"SHA-256|damaged"):
        load_model(folder)
    assert newest_model(tmp_path) is None
    (folder / name).unlink()
    with pytest.raises(PolicyError):
        load_model(folder)


def test_text_that_is_no_booster_is_refused(model: RunTimeModel, tmp_path: Path) -> None:
    folder = save_model(tmp_path, model, MANIFEST)
    manifest = read_run_time_manifest(folder)
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of nothing
    (folder / "low.txt").write_bytes(b"")
    broken = msgspec.structs.replace(manifest, files={**manifest.files, "low.txt": digest})
    (folder / "manifest.json").write_bytes(msgspec.json.encode(broken))
    with pytest.raises(PolicyError, match="cannot read"):
        load_model(folder)


def test_the_newest_model_that_can_be_used_is_used(model: RunTimeModel, tmp_path: Path) -> None:
    save_model(tmp_path, model, MANIFEST)
    newest = save_model(tmp_path, RunTimeModel(model.boosters, Offsets()), MANIFEST)
    manifest = json.loads((newest / "manifest.json").read_text())
    (newest / "manifest.json").write_text(json.dumps({**manifest, "inputs": ["limit"]}))
    with pytest.raises(MissingInputsError, match="train run"):
        load_model(newest)
    found = newest_model(tmp_path)
    assert found is not None
    assert found.offsets == model.offsets
    assert newest_model(tmp_path / "none") is None


def test_a_model_of_a_version_without_the_relative_median_answers(model: RunTimeModel, tmp_path: Path) -> None:
    folder = save_model(tmp_path, model, MANIFEST)
    manifest = read_run_time_manifest(folder)
    files = {name: digest for name, digest in manifest.files.items() if name != "relative.txt"}
    (folder / "relative.txt").unlink()
    (folder / "manifest.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, files=files)))
    found = newest_model(tmp_path)
    assert found is not None
    features = ENDED.features(JOBS, NOW_S)
    alone, both = found.raw(features), model.raw(features)
    assert np.isfinite(alone).all()
    assert not np.array_equal(alone[:, 1], both[:, 1])


@pytest.mark.parametrize("parts", [None, [0.1, 0.9], [0.0, 0.9], [0.1, 1.0], [0.6, 0.9], [None, 0.9], ["NaN", 0.9]])
def test_offsets_of_an_older_build(model: RunTimeModel, tmp_path: Path, parts: list[object] | None) -> None:
    """It knew no parts of the remaining time, or wrote such as no estimate can have: the version before is used."""
    save_model(tmp_path, RunTimeModel(model.boosters, Offsets(low=-1.0)), MANIFEST)
    newest = save_model(tmp_path, model, MANIFEST)
    manifest = json.loads((newest / "manifest.json").read_text())
    del manifest["offsets"]["remaining_parts"]
    if parts is not None:
        manifest["offsets"]["remaining_parts"] = parts
    (newest / "manifest.json").write_text(json.dumps(manifest))
    found = newest_model(tmp_path)
    assert found is not None
    assert found.offsets.low == (-0.25 if parts in (None, [0.1, 0.9]) else -1.0)
    assert found.offsets.remaining_parts == REMAINING_PARTS
    assert RunTimePredictor(ENDED, found).estimate([JOBS[0]], NOW_S)


def test_a_model_answers_for_every_job(model: RunTimeModel) -> None:
    predictor = RunTimePredictor(ENDED, model)
    facts = JOBS[:50]
    estimates = predictor.estimate(facts, NOW_S)
    errors = [
        abs(math.log2(estimate.median_s / job.run_s)) for estimate, job in zip(estimates, JOBS[:50], strict=True)
    ]
    assert np.mean(errors) < 1.0
    assert "runs of this user" in estimates[0].source
    assert {estimate.remaining_parts for estimate in estimates} == {(0.08, 0.95)}
    assert predictor.estimate([], NOW_S) == []
    for estimate, job in zip(estimates, facts, strict=True):
        assert 1.0 <= estimate.low_s <= estimate.median_s <= estimate.high_s <= (job.limit or 0) + PAST_THE_LIMIT_S


def test_what_a_model_is_off_by_is_learned_from_its_own_answers_once(model: RunTimeModel) -> None:
    """A user's jobs begin to run eight times as long; tomorrow's predictor goes on where today's ends."""
    first, after = RunTimePredictor(all_ended(), model), RunTimePredictor(ENDED, model)
    job = msgspec.structs.replace(JOBS[0], limit_s=None)

    def median_s(predictor: RunTimePredictor, user: str = job.user) -> float:
        """Of a job in a fresh queue, so that only what was learned from answers differs."""
        predictor.recent = ENDED
        facts = msgspec.structs.replace(job, submitted_s=NOW_S - 1.0, user=user)
        return predictor.estimate([facts], NOW_S)[0].median_s

    others, before = median_s(first, "somebody"), median_s(first)
    ends = []
    for number in range(12):
        now_s = NOW_S + 1000.0 * number
        facts = msgspec.structs.replace(job, submitted_s=now_s)
        answered = first.estimate([facts], now_s)[0].median_s
        ends.append(msgspec.structs.replace(job, submitted_s=now_s, started_s=now_s, ended_s=now_s + 8 * before))
        first.recent = RecentRuns()
        first.ended(ends[-1])
        first.recent = ENDED
    assert answered > 1.5 * before
    learned = median_s(first)
    after.goes_on_for(first)
    assert median_s(after) == learned
    for each in ends[:-1]:
        after.recent = RecentRuns()
        after.ended(each)
    assert median_s(after) == learned
    assert median_s(first, "somebody") == others


@given(
    st.builds(
        JobFacts,
        user=st.text(max_size=20),
        submitted_s=st.floats(0, 1e11),
        nodes=st.integers(),
        cpus=st.integers(),
        gpus=st.integers(),
        limit_s=st.none() | st.floats(),
        name=st.text(),
    )
)
def test_there_is_an_answer_for_every_job_without_a_model(facts: JobFacts) -> None:
    for recent in (RecentRuns(), ENDED):
        (estimate,) = RunTimePredictor(recent).estimate([facts], NOW_S)
        assert 1.0 <= estimate.low_s <= estimate.median_s <= estimate.high_s < math.inf


def test_without_a_model_the_nearest_like_jobs_answer() -> None:
    predictor = RunTimePredictor(ENDED)
    known = next(
        facts
        for facts in JOBS
        if (group := predictor.recent.group("user_name_limit_size", facts)) is not None and group.runs >= 3
    )

    def source(**changes: object) -> str:
        return predictor.estimate([msgspec.structs.replace(known, **changes)], NOW_S)[0].source

    assert "this user with this name, limit and size" in source()
    assert "this user with this limit and size" in source(name="new")
    assert source(name="new", cpus=3).endswith("runs of this user")
    assert "this account" in source(user="new")
    assert "this partition" in source(user="new", account="new")
    assert "this partition" in source(user="new", account="new", job_class="serve")
    assert "this class" in source(user="new", account="new", job_class="train")
    assert "this site" in source(user="new", account="new", partition="new")
    fresh = RunTimePredictor(RecentRuns()).estimate([msgspec.structs.replace(known, limit_s=1000.0)], NOW_S)[0]
    assert fresh.median_s == 440.0
    nothing = RunTimePredictor(RecentRuns()).estimate([msgspec.structs.replace(known, limit_s=None)], NOW_S)[0]
    assert nothing.median_s == 3600.0


def test_a_history_of_which_hardly_a_job_had_ended_is_refused() -> None:
    """All of it may be one large array; LightGBM raises an error of its own there."""
    runs = RunTimes.of(JOBS, RecentRuns(), silent)
    with pytest.raises(PolicyError, match="only 1 jobs had ended"):
        learn(runs, np.arange(1), NOW_S, LearningSettings(trees=20))


def test_whatever_goes_wrong_with_a_model_leaves_it_out(
    model: RunTimeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path, model, MANIFEST)

    def broken() -> None:
        raise AttributeError("pandas of another numpy")

    monkeypatch.setattr("rlalloc.run_times.model_files.require_lightgbm", broken)
    assert newest_model(tmp_path) is None
