"""The compiled pass of late decisions decides as ``rlalloc.late_decisions`` does in plain Python, for the daemon."""

import functools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import smallest
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.late_decisions import LateRules, PoolNow, Waiting, decide_pass, first_shares
from rlalloc.pool import Pool, Stock
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.view import ClusterView
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.batched_simulators import decide
from rlalloc_simulator.engine.engine_records import RUNNING
from rlalloc_simulator.engine.job_table import allocation_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view, partition_view
from rlalloc_simulator.engine.view_arrays import expected_run_s
from rlalloc_simulator.late_driving import LatePasses, first_answer
from rlalloc_simulator.site_from_workload import with_late_decisions
from tests.simulator.engine.by_hand import job, simulator, site, size

RULES = LateRules(head=3, depth=12, min_gain=-0.5, max_updates=2)
Seen = list[tuple[list[list[float]], list[list[float]], int]]


def allocation(shares: Shares, one: SubmittedJob, view: ClusterView) -> Allocation:
    return allocation_for(
        shares, one.request, one.bounds, view.shape, functools.partial(slowdown_to_allow, one.request)
    )


def decide_in_python(made: Simulator, jobs: Sequence[SubmittedJob], policy: "Answers") -> dict[int, Allocation]:
    """One pass, as the daemon makes it of Slurm's snapshot."""
    world, view = made.world, partition_view(made, 0)
    numbers = world.queue[: world.clock[0]["queued"]].tolist()

    def waiting(number: int) -> Waiting:
        record, one = world.jobs[number], jobs[number]
        run_s = expected_run_s(record, world.sizes[number])
        may_change = one.managed and np.isnan(record["first_start_s"]) and record["decisions"] <= RULES.max_updates
        least = allocation(smallest(job_view(made, number, one), view), one, view) if may_change else None
        return Waiting(allocation_of(world.sizes[number]), run_s, one.request, one.run_time, least)

    def ask(place: int, seen: ClusterView) -> Allocation:
        one = jobs[numbers[place]]
        return allocation(policy(job_view(made, numbers[place], one), seen), one, seen)

    running = np.flatnonzero(world.jobs["state"] == RUNNING)
    held = world.sizes[running]
    ends_s = world.jobs["start_s"][running] + held["limit_s"] - made.now_s
    limits = np.stack([np.maximum(0.0, ends_s), (held["nodes"] * held["gpus_per_node"]).astype(float)], axis=1)
    decided = decide_pass(
        [waiting(number) for number in numbers[: RULES.depth]],
        [PoolNow(Pool(np.arange(len(view.free))), view, limits, len(numbers))],
        np.ones((1, 1)),
        Stock(view.free),
        ask,
        RULES,
    )
    return {numbers[place]: each.size for place, each in decided.items()}


class Answers:
    """A policy whose answers look random, but are the same each time; it notes what it is shown."""

    def __init__(self) -> None:
        self.seen: Seen = []

    def __call__(self, one: JobView, view: ClusterView) -> Shares:
        self.seen.append((view.free.tolist(), view.queued.tolist(), view.behind))
        mixed = hash((one.request.gpus, len(view.queued), float(view.free[:, 0].sum()), view.behind))
        return Shares((mixed % 5) / 4, 1.0, 1.0)


a_job = st.tuples(
    st.integers(0, 400),
    st.sampled_from([(1, 1), (1, 2), (1, 4), (1, 8), (2, 8)]),
    st.integers(60, 900),
    st.integers(1, 10),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(a_job, min_size=3, max_size=25), st.integers(2, 3), st.sampled_from([0.0, 5.0]))
def test_a_compiled_pass_shows_and_decides_what_one_in_python_does(
    drawn: list[tuple[int, tuple[int, int], int, int, bool]], nodes: int, after_s: float
) -> None:
    jobs = [
        job(submit_s, size(gpus, limit_s, nodes=on), limit_s * part / 11, managed=managed)
        for submit_s, (on, gpus), limit_s, part, managed in sorted(drawn)
    ]
    made = simulator(jobs, with_late_decisions(site(nodes), after_s, RULES))
    answers = Answers()
    while not made.finished:
        asked = made.run()
        if made.freed:
            expected, compiled = Answers(), Answers()
            decided = decide_in_python(made, jobs, expected)
            assert LatePasses(made, jobs, compiled).look() == list(decided)
            assert compiled.seen == expected.seen
            for number, given_size in decided.items():
                taken = allocation_of(made.world.sizes[number])
                assert (taken.gpus, taken.time_limit_s) == (given_size.gpus, given_size.time_limit_s)
        for number in asked.tolist():
            one, view = jobs[number], cluster_view(made, number)
            answer = answers(job_view(made, number, one), view)
            ahead = made.world.queue[: made.world.clock[0]["queued"]][: RULES.depth]
            stock, pool = Stock(view.free), Pool(np.arange(len(view.free)))
            for waits in ahead.tolist():
                stock.take(pool, allocation_of(made.world.sizes[waits]))
            meant = functools.partial(allocation, one=one, view=view)
            left = stock.left(pool)
            shares = first_shares(answer, meant(answer), one.request, one.bounds, left, meant)
            assert first_answer(made, one, view, answer) == shares
            decide(made, number, one, view, shares)
