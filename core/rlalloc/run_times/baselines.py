"""Simple predictors that a learned one has to beat; all from what had ended when a job was submitted."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Hashable
from statistics import median
from typing import Final

import numpy as np

from rlalloc.past_job import PastJob
from rlalloc.run_times.job_facts import JobFacts

LIMIT: Final = "limit x median use"
LAST_TWO: Final = "mean of the user's last two"
ALIKE: Final = "median of the last five alike"
BASELINES: Final = (LIMIT, LAST_TWO, ALIKE)
MIX: Final = "plain mix of the three"
USES: Final = 2000
"""So many of the site's last jobs with a limit tell its median use."""
WITHOUT_LIMIT_S: Final = 3600.0


class SimplePredictors:
    """What the baselines know: the site's last uses of limits, each user's and each kind's last runs [s]."""

    def __init__(self) -> None:
        self._uses: deque[float] = deque()
        self._sorted_uses: list[float] = []
        self._of_user: dict[str, deque[float]] = {}
        self._alike: dict[Hashable, deque[float]] = {}

    def add(self, job: PastJob) -> None:
        """Note that a job ended; jobs are to be added in the order of their ends."""
        self._of_user.setdefault(job.user, deque(maxlen=5)).append(job.run_s)
        self._alike.setdefault(_kind(job), deque(maxlen=5)).append(job.run_s)
        if job.limit is not None:
            use = job.run_s / job.limit
            self._uses.append(use)
            insort(self._sorted_uses, use)
            if len(self._uses) > USES:
                del self._sorted_uses[bisect_left(self._sorted_uses, self._uses.popleft())]

    def predict(self, facts: JobFacts) -> tuple[float, float, float, float]:
        """Return log2 of the run time [s] by each of BASELINES, then by MIX.

        A user without runs is predicted by the limit, and jobs without like ones by the user. The last two are
        Tsafrir, Etsion and Feitelson's (IEEE TPDS 18(6), 2007), at most the limit. MIX is the mean of three
        logarithms: the limit's prediction and the medians of the user's and of the like jobs' last five.
        """
        use = self._sorted_uses[len(self._sorted_uses) // 2] if self._sorted_uses else 0.5
        by_limit = WITHOUT_LIMIT_S if facts.limit is None else facts.limit * use
        of_user = self._of_user.get(facts.user)
        alike = self._alike.get(_kind(facts))
        last_two = by_limit if of_user is None else sum(list(of_user)[-2:]) / min(len(of_user), 2)
        if facts.limit is not None:
            last_two = min(last_two, facts.limit)
        by_alike = last_two if alike is None else median(alike)
        median_of_user = by_limit if of_user is None else median(of_user)
        logs = np.log2(np.maximum([by_limit, last_two, by_alike, median_of_user], 1.0))
        return float(logs[0]), float(logs[1]), float(logs[2]), float((logs[0] + logs[2] + logs[3]) / 3.0)


def _kind(facts: JobFacts) -> Hashable:
    return facts.user, facts.limit, facts.nodes, facts.cpus, facts.gpus
