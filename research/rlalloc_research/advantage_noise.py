"""How much counterfactual advantages cost, how noisy they are, and how fixing the later jobs biases them.

Takes the same decisions of training workloads again in several futures, and prints how well one half of the futures
agrees with the other (correlation over decisions and shares), for advantages as they are and cut to ±5 as rewards
are. Then it lets the baseline heuristic decide all later jobs again instead of giving each what it was given, and
prints rows a second with both, and how well they agree.
"""

import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import BASELINE
from rlalloc.reward import LARGEST_REWARD
from rlalloc_simulator.training_workloads import TRAINING, training_workload
from rlalloc_trainer.advantages.counterfactual import AdvantageSettings, counterfactual_advantages

ONE_TERM: Final = ("jct",)


def print_noise(workloads: int, futures: int) -> None:
    """Print the agreement between futures by horizon, and what deciding later jobs again changes."""
    advantages(AdvantageSettings(decisions=1, alternatives=1, terms=ONE_TERM), 1)  # compiled before anything is timed
    print(f"{'horizon':>8} {'rows':>5} {'noise':>7} {'halves agree':>13} {'cut first':>10} {'one and the rest':>17}")
    for horizon in (0.5, 2.0):
        settings = AdvantageSettings(decisions=10, alternatives=3, futures=futures, horizon=horizon, terms=ONE_TERM)
        found, _ = advantages(settings, workloads)
        rows = found.reshape(-1, futures)
        rows = rows[(rows != 0).any(axis=1)]
        cut = rows.clip(-LARGEST_REWARD, LARGEST_REWARD)
        print(
            f"{horizon:>8} {len(rows):>5} {rows.std(axis=1).mean():>7.1f} {agreement(*halves(rows)):>13.2f} "
            f"{agreement(*halves(cut)):>10.2f} {agreement(cut[:, 0], cut[:, 1:].mean(axis=1)):>17.2f}",
            flush=True,
        )
    fixed, fixed_s = advantages(AdvantageSettings(terms=ONE_TERM), workloads)
    again, again_s = advantages(AdvantageSettings(redecide=True, terms=ONE_TERM), workloads)
    print(f"later jobs in the sizes that they were given: {len(fixed) / fixed_s:.0f} advantages/s")
    print(f"later jobs decided again: {len(again) / again_s:.0f} advantages/s")
    fixed, again = (each.clip(-LARGEST_REWARD, LARGEST_REWARD) for each in (fixed, again))
    print(f"both, cut: correlation {agreement(fixed, again):.3f}, means {fixed.mean():.3f} and {again.mean():.3f}")


def advantages(settings: AdvantageSettings, workloads: int) -> tuple[NDArray[np.float64], float]:
    """Return advantages in JCT (rows,), and the seconds of this process that they took."""
    start = time.process_time()
    found = [
        counterfactual_advantages(
            training_workload(TRAINING + number), BASELINE, settings, np.random.default_rng(number)
        ).by_term[:, 0]
        for number in range(workloads)
    ]
    return np.concatenate(found).astype(np.float64), time.process_time() - start


def halves(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each row's mean over one half of the futures and over the other."""
    middle = rows.shape[1] // 2
    return rows[:, :middle].mean(axis=1), rows[:, middle:].mean(axis=1)


def agreement(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the correlation."""
    return float(np.corrcoef(one, other)[0, 1])
