"""Users who submit the same jobs again: families of jobs whose run times are alike.

How alike follows the logs of two real sites in the Parallel Workloads Archive: LLNL Atlas 2006 (Slurm, 31,221 jobs
with a user, a limit and a run time) and KTH SP2 1996 (28,481). On normal scores of run times, a job's user explains
0.29 and 0.37 of the variance, its family (user, size and limit) another 0.23 and 0.25; the next job of a user is of
the same family in 0.68 and 0.47 of the cases; there are 0.07 and 0.19 families a job; the busiest user has 0.11 and
0.08 of the jobs. ``make research RESEARCH_ARGS="truths --data DIR"`` prints these figures.

Sizes, run times and ends stay those of the source, only whose they are is drawn anew: within a size, run times are
handed out in the order of a drawn score. Whatever a source says of its users (Philly's table says nothing) is lost.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc_simulator.workloads.workload_job import WorkloadJob

OF_USER: Final = 0.33
OF_FAMILY: Final = 0.24
OF_SERIES: Final = 0.18
"""Parts of the variance of run times; the rest, 0.25, is each job's own. A series is jobs of a family that come one
after the other: half the mean squared difference of such two is 0.21 and 0.28."""
REPEATS: Final = 0.55
FAMILIES_A_JOB: Final = 0.12
FAMILIES_A_USER: Final = 20
"""Atlas 17, KTH 25."""
LEAST_USERS: Final = 8
FAMILY_POWER: Final = 0.6
USER_POWER: Final = 0.6
"""The k-th family of a size is as busy as 1/k^0.6, and the k-th user has as many families: so the busiest user has
about a tenth of the jobs, as in the logs (11 and 8%)."""
ACCOUNTS: Final = 4


class Family(NamedTuple):
    """Jobs of one user that are alike."""

    number: int
    user: int
    gpus: int

    @property
    def name(self) -> str:
        """The name of its jobs: letters only, since digits do not tell families apart."""
        return "job-" + _letters(self.number)

    @property
    def user_name(self) -> str:
        """The name of its user."""
        return f"u{self.user}"

    @property
    def account(self) -> str:
        """The account of its user."""
        return f"account{self.user % ACCOUNTS}"


def with_families(jobs: Sequence[WorkloadJob], generator: np.random.Generator) -> list[tuple[WorkloadJob, Family]]:
    """Return the jobs in their order, each with its family, as jobs of its user; see above for what changes."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        places[job.request.gpus].append(place)
    counts = {gpus: max(1, math.ceil(FAMILIES_A_JOB * len(each))) for gpus, each in places.items()}
    users = max(LEAST_USERS, sum(counts.values()) // FAMILIES_A_USER)
    user_shares = _by_rank(users, USER_POWER)
    user_scores = math.sqrt(OF_USER) * generator.standard_normal(users)
    found: dict[int, tuple[WorkloadJob, Family]] = {}
    number = 0
    for gpus, of_size in sorted(places.items()):
        owners = generator.choice(users, size=counts[gpus], p=user_shares).tolist()
        families = [Family(number + rank, user, gpus) for rank, user in enumerate(owners)]
        number += len(families)
        scores = user_scores[owners] + math.sqrt(OF_FAMILY) * generator.standard_normal(len(families))
        members, series = _members(len(of_size), len(families), generator)
        of_series = math.sqrt(OF_SERIES) * generator.standard_normal(len(of_size))[series]
        own = math.sqrt(1.0 - OF_USER - OF_FAMILY - OF_SERIES) * generator.standard_normal(len(of_size))
        by_score = np.argsort(scores[members] + of_series + own, kind="stable").tolist()
        by_run = sorted(of_size, key=lambda place: jobs[place].held_s)
        for member, source in zip(by_score, by_run, strict=True):
            place, family = of_size[member], families[members[member]]
            found[place] = (_as_of(jobs[place], jobs[source], family), family)
    return [found[place] for place in range(len(jobs))]


def _members(jobs: int, families: int, generator: np.random.Generator) -> tuple[list[int], list[int]]:
    """Which family and which series each of ``jobs`` is of, in their order: that before it again, or a drawn one."""
    drawn = generator.choice(families, size=jobs, p=_by_rank(families, FAMILY_POWER)).tolist()
    again = (generator.random(jobs) < REPEATS).tolist()
    series = list(range(jobs))
    for place in range(1, jobs):
        if again[place]:
            drawn[place], series[place] = drawn[place - 1], series[place - 1]
    return drawn, series


def _as_of(job: WorkloadJob, source: WorkloadJob, family: Family) -> WorkloadJob:
    """The job at its place with the run time and end of another one of its size."""
    return msgspec.structs.replace(
        job,
        user=family.user_name,
        account=family.account,
        name=family.name,
        needs=msgspec.structs.replace(job.needs, run_time_s=source.needs.run_time_s),
        end=source.end,
    )


def _by_rank(count: int, power: float) -> NDArray[np.float64]:
    weights = np.arange(1, count + 1, dtype=np.float64) ** -power
    return np.asarray(weights / weights.sum())


def _letters(number: int) -> str:
    text = ""
    while True:
        number, digit = divmod(number, 26)
        text = chr(ord("a") + digit) + text
        if number == 0:
            return text
        number -= 1
