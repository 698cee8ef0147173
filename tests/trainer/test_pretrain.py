"""A policy from nothing: the same seed gives the same bytes, also if the training was killed on the way."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASELINE_NAME
from rlalloc.policy.policies import verify
from rlalloc.progress import silent
from rlalloc_simulator.comparison import runner
from rlalloc_simulator.comparison.runner import Run, run_all
from rlalloc_simulator.training_workloads import TEST, TrainingWorkload, training_workload
from rlalloc_trainer.advantages.counterfactual import AdvantageSettings
from rlalloc_trainer.pipelines import pretrain as module
from rlalloc_trainer.pipelines.pretrain import VERSION, pretrain
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings
from rlalloc_trainer.promotion.held_out_evidence import GATE_HEURISTICS
from rlalloc_trainer.sac.soft_actor_critic import SacSettings

SMALL = PretrainSettings(
    seeds=2,
    workloads=2,
    steps=50,
    validation_workloads=2,
    test_workloads=3,
    comparison_workloads=2,
    advantages=AdvantageSettings(decisions=3, alternatives=2),
    sac=SacSettings(actor_after=10),
)


class Killed(BaseException):
    """As by a signal."""


@pytest.fixture(autouse=True, scope="module")
def _short_workloads() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "training_workload", lambda number: training_workload(number, 15))
        patch.setattr(module, "TrainingWorkload", partial(TrainingWorkload, jobs=15))
        yield


@pytest.fixture(scope="module")
def told() -> list[float]:
    """What the whole training tells of its progress."""
    return []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, told: list[float]) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    pretrain(SMALL, folder, lambda _, part: told.append(part), workers=1)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["simulating", "learning", "validating", "testing"])
def test_a_training_that_was_killed_goes_on_to_the_same_bytes(stage: str, whole: Path, tmp_path: Path) -> None:
    def kill(what: str, _done: float) -> None:
        if what.startswith(stage):
            raise Killed

    with pytest.raises(Killed):
        pretrain(SMALL, tmp_path, kill, workers=1)
    assert not (tmp_path / "manifest.json").exists()
    pretrain(SMALL, tmp_path, silent, workers=1)
    assert verify(tmp_path).files == verify(whole).files
    assert verify(tmp_path).evaluation == verify(whole).evaluation


def test_what_is_done_is_not_done_again(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of it done nothing is simulated at all."""
    monkeypatch.setattr(module, "training_workload", None)
    monkeypatch.setattr(runner, "run_policy", None)
    before = verify(whole)
    pretrain(SMALL, whole, silent, workers=1)
    assert verify(whole).files == before.files


def test_heuristics_are_compared_on_the_workloads_that_they_ran(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline and what was chosen run all three test workloads, other heuristics the first two."""
    ran: dict[str, list[int]] = {}

    def noted(runs: Mapping[str, Run], sources: Sequence[TrainingWorkload], *rest: Any, **more: Any) -> Any:
        ran.update({name: [source.number - TEST for source in sources] for name in runs})
        return run_all(runs, sources, *rest, **more)

    monkeypatch.setattr(module, "run_all", noted)
    pretrain(SMALL, whole, silent, workers=1)
    assert ran[BASELINE_NAME] == ran[VERSION] == [0, 1, 2]
    assert [ran[name] for name in GATE_HEURISTICS if name != BASELINE_NAME] == [[0, 1]] * (len(GATE_HEURISTICS) - 1)
    ratios = verify(whole).evaluation["jct_ratio"]
    assert isinstance(ratios, dict)
    assert set(ratios) == set(GATE_HEURISTICS)


def test_other_settings_do_not_go_on_in_the_same_folder(whole: Path) -> None:
    with pytest.raises(PolicyError, match="other settings"):
        pretrain(msgspec.structs.replace(SMALL, steps=51), whole, silent, workers=1)


@pytest.mark.usefixtures("whole")
def test_progress_is_told_in_order(told: list[float]) -> None:
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_curves_are_there_for_people_and_tensorboard(whole: Path) -> None:
    assert (whole / "training" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((whole / "training" / "tensorboard").glob("seed-*/events*"))) == 2


def test_a_seed_at_least(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="one seed"):
        pretrain(msgspec.structs.replace(SMALL, seeds=0), tmp_path, silent)
