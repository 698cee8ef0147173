"""The decision process: jobs come one after another, and each plan takes from the CPUs, memory and links of the next.

5, 21 or 54 minutes pass between two jobs (the middles of three equally likely parts of an exponential distribution of
mean 30 minutes). A job releases what it takes exponentially, over its own run time. Half of the time a neighbour's
job of one of four kinds comes, too; what was in use before is released over 2 h.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlalloc_research.parallelism.performance_model import COSTS, SITUATION, Consequences, FloatArray, consequences

WEIGHTS: Final = {"cpu": 0.1, "memory": 0.1, "latency": 0.4, "energy": 0.2, "bandwidth": 0.2}
"""The reward of a decision is 1 less the weighted costs: between 0 and 1."""
DECISIONS: Final = 40
"""Jobs in an episode."""
GAPS_S: Final = -1800.0 * np.log(1.0 - (np.arange(3) + 0.5) / 3.0)
NEIGHBOURS: Final = np.array(
    [(0.0, 0.0, 0.0)] * 4 + [(0.7, 0.1, 0.0), (0.1, 0.7, 0.0), (0.1, 0.1, 0.8), (0.4, 0.4, 0.5)]
)
"""CPUs, host memory and links that a neighbour's job takes; all equally likely."""
MOST_IN_USE: Final = 0.95
_OTHERS_S: Final = 2 * 3600.0
_MOST_AT_FIRST: Final = 0.7


def rewards(seen: Consequences) -> FloatArray:
    """Return the reward of each plan (..., plans)."""
    weights = np.array([WEIGHTS[name] for name in COSTS])
    reward: FloatArray = 1.0 - seen.costs @ weights
    return reward


def in_use_next(
    situations: FloatArray, seen: Consequences, gap_s: FloatArray | float, neighbour: FloatArray
) -> FloatArray:
    """Return what is in use (..., plans, 3) ``gap_s`` after each plan was begun in ``situations`` (..., 4)."""
    before = situations[..., None, :3] * np.exp(-np.asarray(gap_s)[..., None, None] / _OTHERS_S)
    stays = np.exp(-np.asarray(gap_s)[..., None] / np.maximum(seen.run_s, 1.0))
    return np.clip(before + seen.taken * stays[..., None] + neighbour[..., None, :], 0.0, MOST_IN_USE)


class Step(NamedTuple):
    """Rewards of decisions, run times [s] and energies [J] of their jobs, each (n,), and what comes next (n, 4)."""

    reward: FloatArray
    run_s: FloatArray
    energy_j: FloatArray
    following: FloatArray


def first_situations(count: int, generator: np.random.Generator) -> FloatArray:
    """Return situations (count, 4) with up to 70% of everything in use."""
    situations = generator.random((count, len(SITUATION)))
    situations[:, :-1] *= _MOST_AT_FIRST
    return situations


def begin(situations: FloatArray, plans: NDArray[np.int64], generator: np.random.Generator) -> Step:
    """Begin the jobs of ``situations`` (n, 4) by ``plans`` (n,), each on its own cluster, and wait for the next."""
    seen, rows = consequences(situations), np.arange(len(situations))
    gaps_s = generator.choice(GAPS_S, len(situations))
    neighbours = generator.choice(NEIGHBOURS, len(situations))
    in_use = in_use_next(situations, seen, gaps_s, neighbours)[rows, plans]
    return Step(
        rewards(seen)[rows, plans],
        seen.run_s[rows, plans],
        seen.energy_j[rows, plans],
        np.column_stack((in_use, generator.random(len(situations)))),
    )
