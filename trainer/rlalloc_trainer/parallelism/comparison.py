"""The table of Dadizadeh Dargiry: the fixed policy, SARSA, Q-learning and SAC against the oracle's choices."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.parallelism.environment import DECISIONS, Step, begin, first_situations
from rlalloc_trainer.parallelism.oracle import Chooser
from rlalloc_trainer.parallelism.performance import FloatArray
from rlalloc_trainer.parallelism.plans import PLANS

EPISODES: Final = 40
JUDGED_BY: Final = 900_000
"""The seed of the episodes for judging; nothing learns on them."""
JOULES_A_KWH: Final = 3.6e6


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One policy, over the same episodes as all others.

    ``accuracy``, ``precision`` and ``f1`` (both averaged over the plans that the oracle takes, each counting alike)
    are of its choices where the oracle's own run leads; ``within`` is the part of these choices that cost less than
    1% of what the best is worth. ``reward`` is of an episode of 40 jobs; ``energy_kwh`` and ``latency_s`` (run time)
    of a job. Jobs that do not fit a GPU's memory are ``failed`` (a part of all) and in neither of the last two.
    """

    accuracy: float
    precision: float
    f1: float
    within: float
    reward: float
    energy_kwh: float
    latency_s: float
    failed: float


class Examination(msgspec.Struct, frozen=True):
    """What policies are asked: situations (n, 4) on the oracle's way, its choices (n,), all plans' worth (n, plans)."""

    situations: FloatArray
    best: NDArray[np.int64]
    worth: FloatArray


def examine(choose: Chooser, examination: Examination) -> Figures:
    """Return the figures of a policy. Deterministic."""
    chosen = choose(examination.situations)
    rows = np.arange(len(chosen))
    lost = 1.0 - examination.worth[rows, chosen] / examination.worth.max(axis=-1)
    precision, f1 = macro_scores(examination.best, chosen)
    played, _ = play(choose)
    fits = np.isfinite(played.run_s)
    return Figures(
        accuracy=float((chosen == examination.best).mean()),
        precision=precision,
        f1=f1,
        within=float((lost < 0.01).mean()),
        reward=float(played.reward.sum()) / EPISODES,
        energy_kwh=float(played.energy_j[fits].mean()) / JOULES_A_KWH,
        latency_s=float(played.run_s[fits].mean()),
        failed=float(1.0 - fits.mean()),
    )


def play(choose: Chooser) -> tuple[Step, FloatArray]:
    """Return what became of the jobs of 40 episodes (1,600,), and the situations met (1600, 4)."""
    generator = np.random.default_rng(JUDGED_BY)
    situations = first_situations(EPISODES, generator)
    steps, met = [], []
    for _ in range(DECISIONS):
        met.append(situations)
        steps.append(begin(situations, choose(situations), generator))
        situations = steps[-1].following
    return Step(*(np.concatenate(column) for column in zip(*steps, strict=True))), np.concatenate(met)


def macro_scores(truth: NDArray[np.int64], chosen: NDArray[np.int64]) -> tuple[float, float]:
    """Return precision and F1, each the mean over the plans in ``truth``; a plan never chosen has a precision of 0."""
    precisions, scores = [], []
    for plan in np.unique(truth):
        right = float(((truth == plan) & (chosen == plan)).sum())
        precisions.append(right / max(1.0, float((chosen == plan).sum())))
        scores.append(2.0 * right / float((truth == plan).sum() + (chosen == plan).sum()))
    return float(np.mean(precisions)), float(np.mean(scores))
