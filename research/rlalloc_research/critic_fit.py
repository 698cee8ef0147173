"""How well critics predict advantages that they never saw: the first thing to look at when a policy learns nothing.

Reads the advantages in the training folder of ``rlalloc train policy``, lets critics learn from seven workloads of
ten, with a fixed actor, and tests them on the others. It prints how much of the advantage in completion time (cut to
±5) they explain, compared with "no advantage", and what a decision wins with the best of the shares that were tried
there, or the heuristic's, by the critics' lower bound. Above 0 there is something to learn, and the critics have
learned it. Running whole workloads would cost a hundred times as much.
"""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch

from rlalloc.errors import PolicyError
from rlalloc.objective import TERM_NAMES
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS, PolicyInputs
from rlalloc_trainer.advantages.advantage_scale import cut, scaled
from rlalloc_trainer.advantages.counterfactual import Advantages
from rlalloc_trainer.advantages.weight_relabelling import relabelled_replay
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings, new_sac
from rlalloc_trainer.pipelines.training_folder import SETTINGS_FILE, TrainingFolder
from rlalloc_trainer.sac.conditioned_critics import WeightConditionedCritics
from rlalloc_trainer.sac.critics import lower_bound
from rlalloc_trainer.sac.soft_actor_critic import learn

HELD_OUT: Final = 0.3
JCT: Final = TERM_NAMES.index("jct")
URGENCY_COUNTS: Final = DEFAULT_INPUTS.index("urgency_counts")


def print_fit(path: Path, steps: int) -> None:
    """Let critics learn for so many steps, and print their fit. Raises PolicyError if ``path`` has no training."""
    kept = path / SETTINGS_FILE
    if not kept.exists():
        raise PolicyError(f"there is no {kept}: name the training folder of `rlalloc train policy --directory`")
    settings = msgspec.json.decode(kept.read_bytes(), type=PretrainSettings)
    folder = TrainingFolder(path, settings)
    advantages = [found for number in settings.numbers if (found := folder.advantages(number)) is not None]
    generator = np.random.default_rng(0)
    unseen = generator.random(len(advantages)) < HELD_OUT
    critics = learned([advantages[place] for place in np.nonzero(~unseen)[0]], settings, steps, generator)
    print(f"{'workloads':>22} {'their number':>13} {'advantages':>8} {'explained':>10} {'advantage a decision':>20}")
    for where, counts in (("queue's own order", False), ("smaller jobs first", True)):
        workloads = [
            advantages[place] for place in np.nonzero(unseen)[0] if urgency_counts(advantages[place]) == counts
        ]
        known = [judged(critics, workload, settings) for workload in workloads]
        missed, all_of_it, won, decisions = (np.array(column) for column in zip(*known, strict=True))
        advantage, error = won.sum() / decisions.sum(), won.std() * len(won) ** 0.5 / decisions.sum()
        print(
            f"{where:>22} {len(workloads):>13} {sum(len(workload.by_term) for workload in workloads):>8} "
            f"{1 - missed.sum() / all_of_it.sum():>10.3f} {advantage:>+11.4f} ± {error:.4f}",
            flush=True,
        )


def learned(
    advantages: list[Advantages], settings: PretrainSettings, steps: int, generator: np.random.Generator
) -> WeightConditionedCritics:
    """Return critics that learned from ``advantages`` for so many steps."""
    still = msgspec.structs.replace(settings.sac, actor_after=steps)
    sac = new_sac(msgspec.structs.replace(settings, sac=still), 0)
    learn(sac, relabelled_replay(advantages, PolicyInputs()), steps, generator)
    assert isinstance(sac.critics, WeightConditionedCritics)
    return sac.critics


def urgency_counts(workload: Advantages) -> bool:
    """Whether a workload's site lets smaller jobs go first."""
    return bool((workload.observation[:, URGENCY_COUNTS] > 0.5).any())


@torch.no_grad()
def judged(
    critics: WeightConditionedCritics, workload: Advantages, settings: PretrainSettings
) -> tuple[float, float, float, int]:
    """Return squared errors, squared targets, what the best of the tried shares win, and the number of decisions."""
    predicted = critics.advantage_by_term(torch.from_numpy(workload.observation), torch.from_numpy(workload.shares))[
        ..., JCT
    ]
    advantages = workload.by_term[:, : len(TERM_NAMES)].astype(np.float64)
    target = scaled(advantages)[:, JCT]
    lower = lower_bound(predicted, settings.sac.deviations).numpy().reshape(-1, settings.advantages.alternatives)
    best = lower.argmax(axis=1)[:, None]
    advantage = np.take_along_axis(cut(advantages)[:, JCT].reshape(lower.shape), best, axis=1)
    won = np.where(np.take_along_axis(lower, best, axis=1) > 0, advantage, 0.0).sum()
    missed = ((predicted.mean(dim=0).numpy() - target) ** 2).sum()
    return float(missed), float((target**2).sum()), float(won), len(lower)
