"""The jobs that a policy was asked about lately: what it takes later ones to be like, and how often they come."""

from collections import deque
from typing import Final, NamedTuple

from rlalloc.job import Allocation, JobView
from rlalloc.view import expected_run_time_s

_SAME_S: Final = 0.001  # arrivals are differences of times


class RecentJob(NamedTuple):
    """A job that came: when [s], what for, what it was given, how long it is expected to run with that [s]."""

    arrived_s: float
    request: Allocation
    given: Allocation
    run_s: float


class Recent:
    """The last ``most`` jobs. A time before the last one is another workload: then all are forgotten."""

    def __init__(self, most: int) -> None:
        self.jobs: deque[RecentJob] = deque(maxlen=most)
        self._now_s = float("-inf")

    def add(self, job: JobView, given: Allocation, time_s: float) -> None:
        """Keep a job that was given ``given``; one that is asked about again counts once, as it was given last."""
        if time_s < self._now_s:
            self.jobs.clear()
        self._now_s = time_s
        came = RecentJob(time_s - job.waited_s, job.request, given, expected_run_time_s(job, given))
        for place, known in enumerate(self.jobs):
            if abs(known.arrived_s - came.arrived_s) < _SAME_S and known.request == came.request and job.waited_s > 0:
                self.jobs[place] = came
                return
        self.jobs.append(came)

    @property
    def mean_gap_s(self) -> float:
        """Seconds from one arrival to the next; infinite while fewer than two are known, or all came at once."""
        arrivals = [job.arrived_s for job in self.jobs]
        over_s = max(arrivals) - min(arrivals) if arrivals else 0.0
        return over_s / (len(arrivals) - 1) if over_s > 0 else float("inf")
