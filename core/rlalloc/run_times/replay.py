"""A site's past in strict time order: at each submission, only what had happened by then is known."""

import heapq
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rlalloc.past_job import PastJob
from rlalloc.progress import ProgressCallback
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.recent_runs import FEATURES, RecentRuns


def submissions(
    jobs: Sequence[PastJob],
    ended: Callable[[PastJob], None],
    started: Callable[[str, JobFacts, float], None] | None = None,
) -> Iterator[tuple[int, JobFacts]]:
    """Yield each job's number and facts, after telling what has happened since the last submission.

    ``jobs`` are in the order of their submission. ``started`` is told of each start (id, facts, seconds) of a job
    that runs on, ``ended`` of each end. What happened at the very second of a submission counts as before it.
    """
    starts: list[tuple[float, int]] = []
    ends: list[tuple[float, int]] = []
    for number, job in enumerate(jobs):
        now_s = job.submitted_s
        while starts and starts[0][0] <= now_s:
            started_s, other = heapq.heappop(starts)
            if started is not None and jobs[other].ended_s > now_s:
                started(jobs[other].job_id, jobs[other], started_s)
        while ends and ends[0][0] <= now_s:
            ended(jobs[heapq.heappop(ends)[1]])
        yield number, job
        heapq.heappush(starts, (job.started_s, number))
        heapq.heappush(ends, (job.ended_s, number))


def features_at_submission(
    jobs: Sequence[PastJob], recent: RecentRuns, report: ProgressCallback
) -> NDArray[np.float32]:
    """Return FEATURES of each job when it was submitted, a row each."""
    rows = np.empty((len(jobs), len(FEATURES)), np.float32)
    for number, facts in submissions(jobs, recent.add, recent.started):
        rows[number] = recent.features([facts], facts.submitted_s)[0]
        if number % 1000 == 0:
            report("reading like jobs", number / len(jobs))
    return rows
