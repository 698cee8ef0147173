"""The decision process: jobs come one after another, and each plan takes from the CPUs, memory and links of the next.

Between two jobs pass 5, 21 or 54 minutes (the middles of three equally likely parts of an exponential distribution
of mean
30 minutes). What a job takes is given back exponentially, over its own run time. Every other time a neighbour's job
of one of four kinds comes as well; what was in use before is given back over 2 h.
"""

from typing import Any, Final, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlalloc_trainer.parallelism.performance import COSTS, SITUATION, Consequences, FloatArray, consequences
from rlalloc_trainer.parallelism.plans import GPU_COUNTS, KINDS, PLANS, plan_of

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

Situation = NDArray[np.float32]
SHARES: Final = 1 + len(KINDS)


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
    """Begin the jobs of ``situations`` (n, 4) by ``plans`` (n,), each in its own world, and wait for the next."""
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


class PlanEnvironment(gymnasium.Env[Situation, np.int64]):
    """One decision a step, an action the number of a plan in ``PLANS``; an episode is cut off after 40 jobs.

    Observations are the four of SITUATION. ``info`` of a step has ``run_s`` and ``energy_j`` of the job.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(SITUATION),), np.float32)
        self.action_space = gymnasium.spaces.Discrete(len(PLANS))

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 - gymnasium's
    ) -> tuple[Situation, dict[str, Any]]:
        """Begin an episode; there are no ``options``."""
        super().reset(seed=seed)
        self._decided = 0
        self._situation = first_situations(1, self.np_random)
        return self._situation[0].astype(np.float32), {}

    def step(self, action: np.int64) -> tuple[Situation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Begin the job by plan number ``action``, and go on to the next."""
        reward, run_s, energy_j, self._situation = begin(self._situation, np.array([action]), self.np_random)
        self._decided += 1
        info = {"run_s": float(run_s[0]), "energy_j": float(energy_j[0])}
        return self._situation[0].astype(np.float32), float(reward[0]), False, self._decided == DECISIONS, info


class ByShares(gymnasium.ActionWrapper[Situation, NDArray[np.float32], np.int64]):
    """The same for continuous actions: a share of the GPU counts on a log scale, then a preference for each kind.

    The kind preferred most is taken.
    """

    def __init__(self, environment: PlanEnvironment) -> None:
        super().__init__(environment)
        self.action_space = gymnasium.spaces.Box(0.0, 1.0, (SHARES,), np.float32)

    def action(self, action: NDArray[np.float32]) -> np.int64:
        """Return the number of the plan that the shares stand for."""
        return plan_number(action)


def plan_number(shares: NDArray[np.floating[Any]]) -> np.int64:
    """Return the number in PLANS of the plan that ``shares`` (4,) stand for."""
    count = GPU_COUNTS[round(float(np.clip(shares[0], 0.0, 1.0)) * (len(GPU_COUNTS) - 1))]
    return np.int64(PLANS.index(plan_of(count, KINDS[int(np.argmax(shares[1:]))])))
