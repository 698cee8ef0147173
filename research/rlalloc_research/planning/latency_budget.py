"""A latency budget, counted in rollouts: a decision must not depend on how fast the machine happens to be."""

from typing import Final, NamedTuple

# Together about twice the longest decisions that rlalloc_research.planning_latency measured.
DECISION_S: Final = 0.005
NODE_S: Final = 0.00003
FUTURE_S: Final = 0.0015
ROLLOUT_S: Final = 0.0004
ROLLOUT_JOB_S: Final = 0.00002


class Rollouts(NamedTuple):
    """What a decision is thought through with: ``futures``, in each of which every one of ``answers`` is tried.

    A rollout has ``jobs`` jobs on ``nodes`` nodes.
    """

    nodes: int
    jobs: int
    answers: int
    futures: int

    @property
    def counted_s(self) -> float:
        """The seconds that they are taken to need."""
        return DECISION_S + self.nodes * NODE_S + self.futures * _future_s(self.jobs, self.answers)


def rollouts_within(budget_s: float, limits: tuple[int, int], nodes: int, jobs: int, answers: int) -> Rollouts:
    """Return as many futures as are counted within a budget, up to the higher of ``limits``.

    None at all if they would be fewer than the lower one.
    """
    least, most = limits
    left_s = budget_s - Rollouts(nodes, jobs, answers, 0).counted_s
    futures = min(most, int(left_s / _future_s(jobs, answers)))
    return Rollouts(nodes, jobs, answers, futures if futures >= least else 0)


def _future_s(jobs: int, answers: int) -> float:
    return FUTURE_S + answers * (ROLLOUT_S + jobs * ROLLOUT_JOB_S)
