"""What a new job gets of the policy's answer: all of it if it can start, else it waits as requested.

The rules are those of ``rlalloc.late_decisions``; a pass decides the job again when it could start. No pass decides
an array, and none may come for a job that is held or waits for another job or its begin time: Slurm may start it as
soon as that is over. Both also get an answer that takes no more of anything than the request, time included: nobody
waits longer for such an answer. An array counts as able to start if all its tasks that may run at once can start.
"""

from collections import Counter
from functools import partial

import msgspec

from rlalloc.allocation import allocation_for
from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.late_decisions import DEPTH, asks_for_more, while_it_waits
from rlalloc.pool import Stock
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlallocd.cluster.cluster_views import ClusterViews
from rlallocd.cluster.node_access import Access
from rlallocd.cluster.node_pools import NodePool
from rlallocd.slurm import JobRecord
from rlallocd.submissions.candidates import WAITS_FOR_RESOURCES, Candidate
from rlallocd.submissions.request_sizes import Skipped, size_of


class FirstSizes:
    """Gives what is free to the new jobs of one cycle, after those that wait ahead of each and could start.

    To be asked in the order of the queue (``ClusterViews.rank``).
    """

    def __init__(self, views: ClusterViews, *, late: bool) -> None:
        """Unless ``late``, each new job gets the whole answer."""
        self._views = views
        self._late = late
        self._stock = Stock(views.pools.free)
        self._placed: set[int] = set()
        self._reached: Counter[NodePool] = Counter()

    def shares(
        self, candidate: Candidate, job: JobView, access: Access, allocation: Allocation, answer: Shares
    ) -> Shares:
        """The shares that a job gets of an ``answer``, which means ``allocation``."""
        record = candidate.job
        if not self._late or candidate.mode != "enforce":
            return answer
        cannot_start_yet = candidate.cannot_start_yet(self._views.now_s)
        self._place_those_ahead_of(record, access)
        pool = self._views.pool(access)
        is_tried = not cannot_start_yet and self._views.backfill.reaches(record)
        tasks_known = record.waiting_tasks == 1 or bool(record.array_tasks)  # else Slurm has cut their list
        stands = is_tried and tasks_known and self._stock.has_room(pool, allocation, record.waiting_tasks)
        no_pass_is_sure = cannot_start_yet or record.is_array
        stands = stands or (no_pass_is_sure and not asks_for_more(job.request, allocation))
        allocate = partial(_allocate, job, access.pool.shape)
        shares = answer if stands else while_it_waits(answer, job.request, job.bounds, allocate)
        waits_as_answered = shares == msgspec.structs.replace(answer, gpu=shares.gpu)
        as_answered = shares == answer or (waits_as_answered and allocation.gpus == job.request.gpus)
        taken = allocation if as_answered else job.request
        if is_tried:
            self._stock.take_tasks(pool, taken, record.waiting_tasks)
        return answer if taken is allocation else shares

    def starts(self, candidate: Candidate, access: Access, allocation: Allocation) -> bool:
        """Whether a size has room on the nodes of ``access``, which it then takes."""
        self._place_those_ahead_of(candidate.job, access)
        pool = self._views.pool(access)
        is_tried = self._views.backfill.reaches(candidate.job)
        if not is_tried or not self._stock.has_room(pool, allocation):
            return False
        self._stock.take(pool, allocation)
        return True

    def _place_those_ahead_of(self, job: JobRecord, access: Access) -> None:
        """Let each job start that waits ahead for the same nodes and has room, once."""
        waiting = self._views.waiting
        ahead = waiting.competing_for(access.pool).places[:DEPTH]
        first = self._reached[access.pool]
        if first == len(ahead):
            return
        place, _ = waiting.place_of(job)
        end = int(ahead.searchsorted(place))
        for other in ahead[first:end].tolist():
            if other not in self._placed:
                self._placed.add(other)
                self._place(waiting.jobs[other])
        self._reached[access.pool] = max(first, end)

    def _place(self, job: JobRecord) -> None:
        if job.reason not in WAITS_FOR_RESOURCES or not self._views.backfill.reaches(job):
            return
        try:
            pool = self._views.pool(self._views.access_in_queue(job))
            self._stock.take_tasks(pool, size_of(job), job.waiting_tasks)
        except Skipped:
            return


def _allocate(job: JobView, shape: NodeShape, shares: Shares) -> Allocation:
    to_allow = partial(slowdown_to_allow, job.request, belief=job.speed or PRIOR_BELIEF)
    return allocation_for(shares, job.request, job.bounds, shape, to_allow)
