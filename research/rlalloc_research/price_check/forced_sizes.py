"""Takes decisions of a workload again: one job is forced into each size, everything else is decided as before.

A decision is sampled with the view that the policy saw. Then the simulation goes on from that moment once for each
workable size of that one job, to the end of the workload. The policy decides all other jobs, in the changed cluster.
What came of a size is the job's own wait and run time, and the sum of the others' JCTs less that with the request.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from rlalloc.allocation import size_for
from rlalloc.heuristics import Heuristic, known_costs_s
from rlalloc.heuristics.order import Ordered
from rlalloc.heuristics.workable_sizes import memory_share, sizes_of
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.speed.longer_limits import median_slowdown, slowdown_to_allow
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.view import ClusterView, mean_as_requested_s
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, SubmittedJob, table_of
from rlalloc_simulator.engine.batched_simulators import answer_of, decide
from rlalloc_simulator.engine.engine_records import Records
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlalloc_simulator.known_answers import same_whatever_is_free
from rlalloc_simulator.late_driving import LateDecisions
from rlalloc_simulator.site_from_workload import Workload


class Parts(NamedTuple):
    """What a size costs [s]: the job's own wait from the decision on, its run time, and what the others wait.

    ``others_s`` is less that of the request.
    """

    wait_s: float
    run_s: float
    others_s: float

    @property
    def jct_s(self) -> float:
        """The job's own time from the decision to its end."""
        return self.wait_s + self.run_s

    @property
    def total_s(self) -> float:
        """Its own time, and what the others wait."""
        return self.jct_s + self.others_s


class ForcedSize(NamedTuple):
    """One size of one decision.

    ``taken_s`` is share times run time, less that of the request: seconds of the whole cluster.
    ``fits`` says whether it had room at the decision.
    """

    gpus: int
    fits: bool
    taken_s: float
    predicted: Parts
    came: Parts


class RetakenDecision(NamedTuple):
    """A decision with all its sizes, the request first, and what known-gain charges that for the others' wait."""

    job: JobView
    view: ClusterView
    on_arrival: bool
    sizes: list[ForcedSize]
    request_others_s: float

    @property
    def crowd(self) -> int:
        """How many other jobs waited."""
        return self.view.crowd


class _Moment(NamedTuple):
    """A simulation just before a decision; ``others`` are the next jobs of the same batch, None in a late pass."""

    before: Simulator
    number: int
    job: JobView
    view: ClusterView
    others: list[int] | None


def retaken_decisions(workload: Workload, policy: Heuristic, decisions: int, seed: int) -> list[RetakenDecision]:
    """Run a workload under ``policy`` and take so many of its decisions again, drawn uniformly. Deterministic.

    Only decisions that leave a choice of GPU counts count. A size that no nodes could hold is left out.
    """
    # A request of its own for each job tells which one the policy is asked about.
    jobs = tuple(msgspec.structs.replace(job, request=msgspec.structs.replace(job.request)) for job in workload.jobs)
    found = (_retaken(moment, jobs, policy) for moment in _sampled(workload, jobs, policy, decisions, seed))
    return [each for each in found if len(each.sizes) > 1]


def _sampled(
    workload: Workload, jobs: Sequence[SubmittedJob], policy: Heuristic, decisions: int, seed: int
) -> list[_Moment]:
    """Moments by reservoir sampling (Vitter 1985), in the order in which they were drawn."""
    simulator = Simulator(workload.site, table_of(jobs, workload.site))
    generator = np.random.default_rng((seed, 61))
    number_of = {id(job.request): number for number, job in enumerate(jobs)}
    batch: list[int] = []
    kept: list[_Moment] = []
    asked = 0

    def asks(waiting: list[int]) -> None:
        batch[:] = waiting

    def watched(job: JobView, view: ClusterView) -> Shares:
        nonlocal asked
        number = number_of[id(job.request)]
        if jobs[number].managed and len(job.bounds.gpu_counts) > 1:
            asked += 1
            place = len(kept) if len(kept) < decisions else int(generator.integers(asked))
            if place < decisions:
                others = batch[1:] if batch and batch[0] == number else None
                kept[place : place + 1] = [_Moment(simulator.clone(), number, job, view, others)]
        batch.clear()
        return policy(job, view)

    drive(simulator, jobs, watched, before=asks)
    return kept


def _retaken(moment: _Moment, jobs: Sequence[SubmittedJob], policy: Heuristic) -> RetakenDecision:
    job, view = moment.job, moment.view
    sizes, memory = sizes_of(job.request, job.bounds, view.shape), memory_share(job.request, job.bounds, view.shape)
    order = sorted(range(len(sizes.counts)), key=lambda place: (sizes.counts[place] != job.request.gpus, place))
    answers = [msgspec.structs.replace(sizes.shares[place], mem=memory) for place in order]
    allocations = [size_for(each, job.request, job.bounds, view.shape) for each in answers]
    predicted = predicted_parts(job, allocations, view)
    taken_s = [view.dominant_share(each) * parts.run_s for each, parts in zip(allocations, predicted, strict=True)]
    fixed = list(jobs)
    fixed[moment.number] = msgspec.structs.replace(jobs[moment.number], managed=False)  # nobody decides it again
    reference: Records | None = None
    found: list[ForcedSize] = []
    for place, fits in enumerate(view.fit_now(allocations)):
        ended = _forced(moment, answers[place], fixed, policy)
        if ended is None:
            continue
        reference = ended if reference is None else reference
        expected = predicted[place]._replace(others_s=predicted[place].others_s - predicted[0].others_s)
        came = _came(ended, reference, moment)
        found.append(ForcedSize(allocations[place].gpus, fits, taken_s[place] - taken_s[0], expected, came))
    return RetakenDecision(job, view, moment.others is not None, found, predicted[0].others_s)


def predicted_parts(job: JobView, allocations: Sequence[Allocation], view: ClusterView) -> list[Parts]:
    """What known-gain charges for each size, by part."""
    as_requested_s = mean_as_requested_s(job)
    found = []
    costs_s = known_costs_s(job, allocations, view, job.speed)
    for allocation, cost_s, wait_s in zip(allocations, costs_s, view.freed_after_s(allocations), strict=True):
        slower = slowdown_to_allow if allocation.gpus > job.request.gpus else median_slowdown
        is_request = allocation.gpus == job.request.gpus
        run_s = as_requested_s * (1.0 if is_request else slower(job.request, allocation, job.speed or PRIOR_BELIEF))
        found.append(Parts(wait_s, run_s, cost_s - wait_s - run_s))
    return found


def _forced(moment: _Moment, answer: Shares, jobs: Sequence[SubmittedJob], policy: Heuristic) -> Records | None:
    """What became of all jobs with one of them in a size; None where no nodes could hold that.

    A job that comes gets the urgency that its size has; one that waits keeps what it has.
    """
    simulator = moment.before.clone()
    ordered = Ordered(lambda _job, _view: answer, policy.urgency_of) if isinstance(policy, Ordered) else None
    shares = answer if ordered is None else ordered(moment.job, moment.view)
    rules = simulator.site.interception.urgency
    allocation, nice = answer_of(rules, jobs[moment.number], moment.view, shares)
    if moment.others is None:
        there = simulator.world.jobs[moment.number]
        nice = int(there["added_nice"]), float(there["patience_s"]) if math.isfinite(there["patience_s"]) else 0.0
    try:
        simulator.resize({moment.number: allocation}, nice={moment.number: nice})
    except ValueError:
        return None
    if moment.others is not None:
        _answer(simulator, moment.others, jobs, policy)
    elif not same_whatever_is_free(policy):
        LateDecisions(simulator, jobs, policy).look()
    return drive(simulator, jobs, policy).outcomes


def _answer(simulator: Simulator, numbers: Sequence[int], jobs: Sequence[SubmittedJob], policy: Heuristic) -> None:
    """Answer the other questions of a batch, as ``drive`` does."""
    late = LateDecisions(simulator, jobs, policy) if simulator.site.interception.late else None
    for number in numbers:
        view = cluster_view(simulator, number)
        shares = policy(job_view(simulator, number, jobs[number]), view)
        if late is not None:
            shares = late.first_answer(number, view, shares)
        decide(simulator, number, jobs[number], view, shares)


def _came(ended: Records, reference: Records, moment: _Moment) -> Parts:
    """What came of a size; jobs that never ended in one of both runs are left out."""
    mine = ended[moment.number]
    start_s, finish_s = float(mine["first_start_s"]), float(mine["finished_s"])
    later_s = ended["finished_s"] - reference["finished_s"]
    later_s[moment.number] = 0.0
    return Parts(start_s - moment.before.now_s, finish_s - start_s, float(np.nansum(later_s)))
