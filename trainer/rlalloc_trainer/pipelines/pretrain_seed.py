"""One seed of the training from nothing: SAC learns from decisions that were taken again."""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch

from rlalloc.errors import PolicyError
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc_agent.actor import HIDDEN, Actor
from rlalloc_simulator.training_workloads import TRAINING
from rlalloc_trainer.advantages.counterfactual import Advantages, AdvantageSettings
from rlalloc_trainer.advantages.weight_relabelling import relabelled_replay
from rlalloc_trainer.pipelines.training_folder import Curve, Curves, TrainingFolder
from rlalloc_trainer.sac.conditioned_critics import weight_conditioned_sac
from rlalloc_trainer.sac.soft_actor_critic import Losses, Sac, SacSettings, learn

WORKLOADS_A_SEED: Final = 10_000
"""Numbers of training workloads that a command's seed has for itself."""
CURVES: Final = ("critic", "actor", "entropy", "temperature")
CURVE_STEPS: Final = 25


class PretrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Workloads to learn from, ``seeds`` networks that take SAC's ``steps``, workloads to choose and to report on.

    The chosen network and the baseline heuristic run all ``test_workloads``. Other heuristics run the first
    ``comparison_workloads`` of them: they lose by more.
    """

    seed: int = 0
    seeds: int = 5
    workloads: int = 1800
    steps: int = 6000
    validation_workloads: int = 120
    test_workloads: int = 720
    comparison_workloads: int = 120
    confidence: float = 0.9
    advantages: AdvantageSettings = AdvantageSettings(decisions=50)
    sac: SacSettings = SacSettings(actor_after=2000)

    def scaled(self, budget: float) -> "PretrainSettings":
        """Return settings for ``budget`` times the work; never below two workloads and one step."""
        return msgspec.structs.replace(
            self,
            workloads=max(2, round(self.workloads * budget)),
            steps=max(1, round(self.steps * budget)),
            validation_workloads=max(2, round(self.validation_workloads * budget)),
            test_workloads=max(2, round(self.test_workloads * budget)),
            comparison_workloads=max(2, round(self.comparison_workloads * budget)),
        )

    @property
    def numbers(self) -> range:
        """Of the training workloads."""
        first = TRAINING + WORKLOADS_A_SEED * self.seed
        return range(first, first + self.workloads)


def learn_seed(task: tuple[PretrainSettings, Path, int]) -> None:
    """Take a seed's gradient steps on what is in the training's folder, and keep there what it learned."""
    settings, path, seed = task
    folder = TrainingFolder(path, settings)
    generator = np.random.default_rng((settings.seed, seed))
    sac = new_sac(settings, seed)
    folder.keep_learned(seed, sac, _learn(sac, settings, folder, generator))


def new_sac(settings: PretrainSettings, seed: int) -> Sac[Actor]:
    """Return SAC as that seed begins with it."""
    torch.manual_seed(1_000 * settings.seed + seed)
    return weight_conditioned_sac(
        Actor(settings.advantages.inputs, HIDDEN), settings.sac, 1_000 * settings.seed + seed
    )


def _learn(
    sac: Sac[Actor], settings: PretrainSettings, folder: TrainingFolder, generator: np.random.Generator
) -> Curves:
    """Take SAC's steps; return its figures on the way, averaged over CURVE_STEPS steps each."""
    replay = relabelled_replay(
        [_advantages(number, folder) for number in settings.numbers], PolicyInputs(settings.advantages.inputs)
    )
    losses: list[Losses] = []
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in CURVES}

    def each_step(step: Losses) -> None:
        losses.append(step)
        if sac.steps % CURVE_STEPS == 0:
            for name in CURVES:
                known = [value for each in losses if (value := getattr(each, name)) is not None]
                if known:
                    points[name].append((sac.steps, float(np.mean(known))))
            losses.clear()

    learn(sac, replay, settings.steps, generator, each_step)
    return {
        name: Curve(tuple(step for step, _ in found), tuple(value for _, value in found))
        for name, found in points.items()
    }


def _advantages(number: int, folder: TrainingFolder) -> Advantages:
    advantages = folder.advantages(number)
    if advantages is None:
        raise PolicyError(f"{folder.path} has lost the advantages of workload {number}: start in another folder")
    return advantages
