"""A policy from nothing: the same seed gives the same bytes, also if the training was killed on the way."""

from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import PolicyError
from rlalloc.heuristics import BASELINE_NAME
from rlalloc.policies import verify
from rlalloc_simulator.progress import silent
from rlalloc_simulator.training_workloads import training_workload
from rlalloc_trainer.advantages.counterfactual import AdvantageSettings
from rlalloc_trainer.pipelines import pretrain as module
from rlalloc_trainer.pipelines.pretrain import pretrain
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings
from rlalloc_trainer.promotion.held_out_evidence import RIVALS
from rlalloc_trainer.sac.soft_actor_critic import SacSettings

SMALL = PretrainSettings(
    seeds=2,
    workloads=2,
    steps=50,
    validation_workloads=2,
    test_workloads=3,
    rival_workloads=2,
    advantages=AdvantageSettings(decisions=3, alternatives=2),
    sac=SacSettings(actor_after=10),
)


class Killed(BaseException):
    """As by a signal."""


@pytest.fixture(autouse=True)
def short_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "training_workload", lambda number: training_workload(number, 15))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "training_workload", lambda number: training_workload(number, 15))
        pretrain(SMALL, folder, silent, workers=1)
    return folder


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
    before = verify(whole)
    pretrain(SMALL, whole, silent, workers=1)
    assert verify(whole).files == before.files


def test_rivals_are_compared_on_the_workloads_that_they_ran(whole: Path) -> None:
    kept = {path.stem: len(msgspec.json.decode(path.read_bytes())) for path in whole.glob("training/results-test-*")}
    assert kept.pop(f"results-test-{BASELINE_NAME}") == 3
    assert sorted(kept.values(), reverse=True)[:2] in ([3, 2], [2, 2])  # what was chosen may be the base itself
    ratios = verify(whole).evaluation["jct_ratio"]
    assert isinstance(ratios, dict)
    assert set(ratios) == set(RIVALS)


def test_other_settings_do_not_go_on_in_the_same_folder(whole: Path) -> None:
    with pytest.raises(PolicyError, match="other settings"):
        pretrain(msgspec.structs.replace(SMALL, steps=51), whole, silent, workers=1)


def test_progress_is_told_in_order(tmp_path: Path) -> None:
    parts: list[float] = []
    pretrain(SMALL, tmp_path, lambda _, part: parts.append(part), workers=1)
    assert parts == sorted(parts)
    assert parts[-1] == 1.0


def test_curves_are_there_for_people_and_tensorboard(whole: Path) -> None:
    assert (whole / "training" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((whole / "training" / "tensorboard").glob("seed-*/events*"))) == 2


def test_a_seed_at_least(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="one seed"):
        pretrain(msgspec.structs.replace(SMALL, seeds=0), tmp_path, silent)
