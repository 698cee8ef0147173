"""What critics know of labels that they never saw: the first thing to look at when a policy learns nothing.

    python -m rlalloc_research.critic_fit policy/training [--steps 6000]

takes the labels that ``rlalloc train policy --directory policy`` left there, lets critics learn from those of seven
workloads of ten, the actor standing still, and asks them about the others. It prints how much of the gains in
completion time (cut to ±5) they explain more than "nothing is gained", and what is gained a decision by the best of
the shares that were tried there, or the heuristic's, by the critics' lower bound: above nothing, there is something
to learn, and they have learned it. Whole workloads cost a hundred times as much to ask.
docs/results/shipped-policy.md has figures.
"""

import argparse
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch

from rlalloc.objective import TERM_NAMES
from rlalloc.policy_inputs import DEFAULT_INPUTS, PolicyInputs
from rlalloc_trainer.advantages.advantage_scale import cut, scaled
from rlalloc_trainer.advantages.counterfactual import Labels
from rlalloc_trainer.advantages.weight_relabelling import remembered
from rlalloc_trainer.pipelines.pretrain_seed import PretrainSettings, new_sac
from rlalloc_trainer.pipelines.training_folder import SETTINGS_FILE, TrainingFolder
from rlalloc_trainer.sac.conditioned_critics import WeighedCritics
from rlalloc_trainer.sac.critics import lower_bound
from rlalloc_trainer.sac.soft_actor_critic import learn

HELD_OUT: Final = 0.3
JCT: Final = TERM_NAMES.index("jct")
URGENCY_COUNTS: Final = DEFAULT_INPUTS.index("urgency_counts")


def main() -> None:
    """Learn and print."""
    parser = argparse.ArgumentParser(description="What critics know of labels that they never saw.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6000)
    arguments = parser.parse_args()
    kept: Path = arguments.folder / SETTINGS_FILE
    if not kept.exists():
        parser.error(f"there is no {kept}: name the training folder of `rlalloc train policy --directory`")
    settings = msgspec.json.decode(kept.read_bytes(), type=PretrainSettings)
    folder = TrainingFolder(arguments.folder, settings)
    labels = [found for number in settings.numbers if (found := folder.labels(number)) is not None]
    generator = np.random.default_rng(0)
    unseen = generator.random(len(labels)) < HELD_OUT
    critics = learned([labels[place] for place in np.nonzero(~unseen)[0]], settings, arguments.steps, generator)
    print(f"{'workloads':>22} {'their number':>13} {'labels':>8} {'explained':>10} {'gain a decision':>20}")
    for where, told in (("queue's own order", False), ("smaller jobs first", True)):
        workloads = [labels[place] for place in np.nonzero(unseen)[0] if urgency_counts(labels[place]) == told]
        known = [judged(critics, workload, settings) for workload in workloads]
        missed, all_of_it, won, decisions = (np.array(column) for column in zip(*known, strict=True))
        gain, error = won.sum() / decisions.sum(), won.std() * len(won) ** 0.5 / decisions.sum()
        print(
            f"{where:>22} {len(workloads):>13} {sum(len(workload.gain) for workload in workloads):>8} "
            f"{1 - missed.sum() / all_of_it.sum():>10.3f} {gain:>+11.4f} ± {error:.4f}",
            flush=True,
        )


def learned(
    labels: list[Labels], settings: PretrainSettings, steps: int, generator: np.random.Generator
) -> WeighedCritics:
    """Return critics that learned from ``labels`` for so many steps."""
    still = msgspec.structs.replace(settings.sac, actor_after=steps)
    sac = new_sac(msgspec.structs.replace(settings, sac=still), 0)
    learn(sac, remembered(labels, PolicyInputs()), steps, generator)
    assert isinstance(sac.critics, WeighedCritics)
    return sac.critics


def urgency_counts(workload: Labels) -> bool:
    """Whether a workload's site lets smaller jobs go first."""
    return bool((workload.observation[:, URGENCY_COUNTS] > 0.5).any())


@torch.no_grad()
def judged(critics: WeighedCritics, workload: Labels, settings: PretrainSettings) -> tuple[float, float, float, int]:
    """Squares of what is missed and of all there is to know, what the best of the tried shares gains, decisions."""
    told = critics.gain_by_term(torch.from_numpy(workload.observation), torch.from_numpy(workload.shares))[..., JCT]
    gains = workload.gain[:, : len(TERM_NAMES)].astype(np.float64)
    target = scaled(gains)[:, JCT]
    lower = lower_bound(told, settings.sac.deviations).numpy().reshape(-1, settings.labels.alternatives)
    best = lower.argmax(axis=1)[:, None]
    gain = np.take_along_axis(cut(gains)[:, JCT].reshape(lower.shape), best, axis=1)
    won = np.where(np.take_along_axis(lower, best, axis=1) > 0, gain, 0.0).sum()
    return float(((told.mean(dim=0).numpy() - target) ** 2).sum()), float((target**2).sum()), float(won), len(lower)


if __name__ == "__main__":
    main()
