"""What critics know of labels that they never saw: the first thing to look at when a policy learns nothing.

    python bench/critic_fit.py policy/training [--steps 6000]

takes the labels that ``rlalloc train policy --directory policy`` left there, lets critics learn from those of seven
streams of ten, the actor standing still, and asks them about the others. It prints how much of the gains in
completion time (cut to ±5) they explain more than "nothing is gained", and what is gained a decision by the best of
the shares that were tried there, or the heuristic's, by the critics' lower bound: above nothing, there is something
to learn, and they have learned it. A network of streams is tested at a hundredth of the cost of running them.
docs/learning.md has figures.
"""

import argparse
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from rlalloc.job import SHARES
from rlalloc.objective import TERM_NAMES
from rlalloc.observation import FEATURES
from rlalloc_trainer.counterfactual import Labels
from rlalloc_trainer.critic import lower_bound
from rlalloc_trainer.gain_scale import TYPICAL_GAINS, cut, scaled
from rlalloc_trainer.hindsight import Hindsight
from rlalloc_trainer.one_seed import PretrainSettings, new_sac
from rlalloc_trainer.sac import learn
from rlalloc_trainer.training_folder import SETTINGS_FILE, TrainingFolder
from rlalloc_trainer.weighed_critic import WeighedCritics

HELD_OUT: Final = 0.3
JCT: Final = TERM_NAMES.index("jct")
URGENCY_COUNTS: Final = FEATURES.index("urgency_counts")


def main() -> None:
    """Learn and print."""
    parser = argparse.ArgumentParser(description="What critics know of labels that they never saw.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6000)
    arguments = parser.parse_args()
    kept = (arguments.folder / SETTINGS_FILE).read_bytes()
    settings = msgspec.json.decode(kept, type=PretrainSettings)
    folder = TrainingFolder(arguments.folder, settings)
    labels = [found for number in settings.numbers if (found := folder.labels(number)) is not None]
    generator = np.random.default_rng(0)
    unseen = generator.random(len(labels)) < HELD_OUT
    critics = learned([labels[place] for place in np.nonzero(~unseen)[0]], settings, arguments.steps, generator)
    print(f"{'streams':>22} {'their number':>13} {'labels':>8} {'explained':>10} {'gain a decision':>20}")
    for where, told in (("queue's own order", False), ("smaller jobs first", True)):
        streams = [labels[place] for place in np.nonzero(unseen)[0] if urgency_counts(labels[place]) == told]
        known = [judged(critics, stream, settings.labels.alternatives) for stream in streams]
        missed, all_of_it, won, decisions = (np.array(column) for column in zip(*known, strict=True))
        gain, error = won.sum() / decisions.sum(), won.std() * len(won) ** 0.5 / decisions.sum()
        print(
            f"{where:>22} {len(streams):>13} {sum(len(stream.gain) for stream in streams):>8} "
            f"{1 - missed.sum() / all_of_it.sum():>10.3f} {gain:>+11.4f} ± {error:.4f}",
            flush=True,
        )


def learned(
    labels: list[Labels], settings: PretrainSettings, steps: int, generator: np.random.Generator
) -> WeighedCritics:
    """Return critics that learned from ``labels`` for so many steps."""
    replay = Hindsight(sum(len(stream.gain) for stream in labels), len(FEATURES), SHARES)
    for stream in labels:
        replay.add(stream.observation, stream.shares, stream.gain)
    still = msgspec.structs.replace(settings.sac, actor_after=steps)
    sac = new_sac(msgspec.structs.replace(settings, sac=still), 0)
    learn(sac, replay, steps, generator)
    assert isinstance(sac.critics, WeighedCritics)
    return sac.critics


def urgency_counts(stream: Labels) -> bool:
    """Whether a stream's site lets smaller jobs go first."""
    return bool((stream.observation[:, URGENCY_COUNTS] > 0.5).any())


@torch.no_grad()
def judged(critics: WeighedCritics, stream: Labels, alternatives: int) -> tuple[float, float, float, int]:
    """Squares of what is missed and of all there is to know, what the best of the tried shares gains, decisions."""
    by_term = critics.gain_by_term(torch.from_numpy(stream.observation), torch.from_numpy(stream.shares))
    told: NDArray[np.float64] = by_term[..., JCT].numpy() / unit()
    gain = cut(stream.gain[:, JCT].astype(np.float64))
    lower = lower_bound(torch.from_numpy(told), 1.0).numpy().reshape(-1, alternatives)
    best = lower.argmax(axis=1)[:, None]
    taken = np.take_along_axis(lower, best, axis=1) > 0
    won = np.where(taken, np.take_along_axis(gain.reshape(-1, alternatives), best, axis=1), 0.0).sum()
    return float(((told.mean(axis=0) - gain) ** 2).sum()), float((gain**2).sum()), float(won), len(lower)


def unit() -> float:
    """What a gain in completion time of 1 is to critics (``gain_scale.scaled``)."""
    one = np.zeros((1, len(TYPICAL_GAINS)))
    one[0, JCT] = 1.0
    return float(scaled(one)[0, JCT])


if __name__ == "__main__":
    main()
