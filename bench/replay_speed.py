"""Transitions a second of one core from a full prioritised replay buffer, in batches.

    python bench/replay_speed.py [--transitions 1000000] [--batch 256] [--seconds 4]

The buffer is full of random transitions of 40 features, a quarter of each batch from 50,000 demonstrations, and
priorities come from random errors. Each line is one kind of work in processor time of the process, so that other
programs disturb little, with the median of batches beside it. Only the last line is a whole training step: rows are
copied out of the buffer, and their new errors become priorities.
"""

import argparse
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from rlalloc.job import SHARES
from rlalloc.policy.policy_inputs import DEFAULT_INPUTS
from rlalloc_trainer.sac.prioritised_replay import PrioritisedReplay, PrioritySettings
from rlalloc_trainer.sac.replay_buffer import Replay, Transitions, single_decisions
from rlalloc_trainer.sac.sum_tree import SumTree

DEMONSTRATIONS: Final = 50_000


def main() -> None:
    """Print a line for each kind of work."""
    parser = argparse.ArgumentParser(description="Transitions a second from a full prioritised replay buffer.")
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each kind is repeated")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    count, batch = arguments.transitions, arguments.batch

    tree = SumTree(count)
    tree.set(np.arange(count), generator.exponential(1.0, count) + 1e-3)
    uniform = Replay(count, len(DEFAULT_INPUTS), SHARES)
    replay = PrioritisedReplay(
        count, len(DEFAULT_INPUTS), SHARES, PrioritySettings(), random_transitions(DEMONSTRATIONS, generator)
    )
    filled = 0
    while filled < count:
        some = random_transitions(min(50_000, count - filled), generator)
        replay.add(some)
        uniform.add(some)
        replay.prioritise(np.arange(filled, filled + len(some)), generator.exponential(1.0, len(some)))
        filled += len(some)
    errors = generator.exponential(1.0, (64, batch))
    print(f"{len(replay):,} transitions in {replay.nbytes / len(replay):.0f} bytes each; batches of {batch}")

    def find() -> None:
        tree.find((generator.random(batch) + np.arange(batch)) * (tree.total / batch))

    def find_and_set() -> None:
        rows = tree.find((generator.random(batch) + np.arange(batch)) * (tree.total / batch))
        tree.set(rows, errors[0])

    def sample_and_prioritise() -> None:
        replay.prioritise(replay.sample(batch, generator).rows, errors[generator.integers(64)])

    kinds: dict[str, Callable[[], object]] = {
        "tree: rows by priority": find,
        "tree: rows by priority, new priorities": find_and_set,
        "drawn with weights, not copied": lambda: replay.draw(batch, generator),
        "uniform buffer, copied (to compare)": lambda: uniform.sample(batch, generator),
        "drawn with weights, copied": lambda: replay.sample(batch, generator),
        "drawn with weights, copied, new priorities": sample_and_prioritise,
    }
    print(f"{'':45}{'per second':>12}{'µs a batch, median':>20}")
    for name, work in kinds.items():
        mean_s, median_s = timed(work, arguments.seconds)
        print(f"{name:45}{batch / mean_s:12,.0f}{median_s * 1e6:20.0f}")


def timed(work: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Return mean and median processor time of ``work``, in seconds, repeated for ``seconds``."""
    for _ in range(20):
        work()
    times = []
    until = time.process_time() + seconds
    while (before := time.process_time()) < until:
        work()
        times.append(time.process_time() - before)
    return float(np.mean(times)), float(np.median(times))


def random_transitions(count: int, generator: np.random.Generator) -> Transitions:
    """Transitions of as many features as rlalloc's observations have."""
    return single_decisions(
        generator.random((count, len(DEFAULT_INPUTS)), dtype=np.float32),
        generator.random((count, SHARES), dtype=np.float32),
        generator.random(count, dtype=np.float32),
    )


if __name__ == "__main__":
    main()
