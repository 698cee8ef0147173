"""The user who fares worst with a policy: one rule for the evaluation and for the gate. Pure functions.

A user's jobs are taken together over all runs of what is the same site: runs with moved submissions, or workloads
that were drawn from the same jobs. In a single run the largest of many ratios is mostly chance.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple, TypeVar

from rlalloc_simulator.comparison.workload_result import WorkloadResult

LEAST_JOBS: Final = 20
"""A user with fewer jobs a run is nobody's worst user: the mean JCT of a few jobs is chance."""

Place = TypeVar("Place", bound=Hashable)


class WorstUser(NamedTuple):
    """Mean JCT over that with the other policy, and whose: of which site, by which name."""

    ratio: float
    place: object
    name: str


class _Sums:
    """A user's jobs and JCTs [s] with a policy and with the other one, and the runs that have some."""

    def __init__(self) -> None:
        self.jobs = [0, 0]
        self.jct_s = [0.0, 0.0]
        self.runs = 0


def worst_user(pairs: Iterable[tuple[Place, WorkloadResult, WorkloadResult]]) -> WorstUser | None:
    """Return who fares worst with the first result of each pair instead of the second; None where nobody counts.

    Pairs of one place are of the same users. Both results of a pair have as many runs.
    """
    users: dict[tuple[Place, str], _Sums] = defaultdict(_Sums)
    for place, *both in pairs:
        for name in both[0].users.keys() & both[1].users.keys():
            sums = users[place, name]
            sums.runs += both[0].replicates
            for side, result in enumerate(both):
                sums.jobs[side] += result.users[name].jobs
                sums.jct_s[side] += result.users[name].jct_s
    found = [
        WorstUser((sums.jct_s[0] / sums.jobs[0]) / (sums.jct_s[1] / sums.jobs[1]), place, name)
        for (place, name), sums in users.items()
        if sums.jobs[0] >= LEAST_JOBS * sums.runs
    ]
    return max(found, key=lambda each: (each.ratio, each.name), default=None)
