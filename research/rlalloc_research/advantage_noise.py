"""What a counterfactual label costs, how noisy it is, and what fixing the jobs that come after does to it.

    python -m rlalloc_research.advantage_noise [--workloads 6] [--futures 8]

Takes the same decisions of training workloads again in several futures, and prints how well one half of the futures
agrees with the other (correlation over decisions and shares): of gains as they are, and of gains that were cut to ±5
as rewards are. Then it lets the base heuristic decide all later jobs again instead of giving each what it was given,
and prints labels a second of either, and how well they agree. docs/results/shipped-policy.md has figures.
"""

import argparse
import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import BASELINE
from rlalloc.reward import LARGEST_REWARD
from rlalloc_simulator.training_workloads import TRAINING, training_workload
from rlalloc_trainer.advantages.counterfactual import LabelSettings, label

ONE_TERM: Final = ("jct",)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Cost, noise and bias of counterfactual labels.")
    parser.add_argument("--workloads", type=int, default=6)
    parser.add_argument("--futures", type=int, default=8)
    arguments = parser.parse_args()
    gains(LabelSettings(decisions=1, alternatives=1, terms=ONE_TERM), 1)  # compiled before anything is timed
    print(f"{'horizon':>8} {'rows':>5} {'noise':>7} {'halves agree':>13} {'cut first':>10} {'one and the rest':>17}")
    for horizon in (0.5, 2.0):
        settings = LabelSettings(
            decisions=10, alternatives=3, futures=arguments.futures, horizon=horizon, terms=ONE_TERM
        )
        found, _ = gains(settings, arguments.workloads)
        rows = found.reshape(-1, arguments.futures)
        rows = rows[(rows != 0).any(axis=1)]
        cut = rows.clip(-LARGEST_REWARD, LARGEST_REWARD)
        print(
            f"{horizon:>8} {len(rows):>5} {rows.std(axis=1).mean():>7.1f} {agreement(*halves(rows)):>13.2f} "
            f"{agreement(*halves(cut)):>10.2f} {agreement(cut[:, 0], cut[:, 1:].mean(axis=1)):>17.2f}",
            flush=True,
        )
    fixed, fixed_s = gains(LabelSettings(terms=ONE_TERM), arguments.workloads)
    again, again_s = gains(LabelSettings(redecide=True, terms=ONE_TERM), arguments.workloads)
    print(f"later jobs in the sizes that they were given: {len(fixed) / fixed_s:.0f} labels/s")
    print(f"later jobs decided again: {len(again) / again_s:.0f} labels/s")
    fixed, again = (each.clip(-LARGEST_REWARD, LARGEST_REWARD) for each in (fixed, again))
    print(f"both, cut: correlation {agreement(fixed, again):.3f}, means {fixed.mean():.3f} and {again.mean():.3f}")


def gains(settings: LabelSettings, workloads: int) -> tuple[NDArray[np.float64], float]:
    """Return gains in JCT (rows,), and the seconds of this process that they took."""
    start = time.process_time()
    found = [
        label(training_workload(TRAINING + number), BASELINE, settings, np.random.default_rng(number)).gain[:, 0]
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


if __name__ == "__main__":
    main()
