"""The compiled pass of late decisions decides as ``rlalloc.late_decisions`` does in plain Python, for the daemon."""

import functools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import smallest
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.late_decisions import LateRules, PoolNow, Waiting, decide_pass, shared_devices, while_it_waits
from rlalloc.pool import FloatArray, Pool, Stock, could_start
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.view import ClusterView
from rlalloc_simulator.engine import NodeFailure, NodeKind, PartitionKind, SimulatedSite, Simulator, SubmittedJob
from rlalloc_simulator.engine.batched_simulators import decide
from rlalloc_simulator.engine.engine_records import NOBODY, RUNNING, Flags
from rlalloc_simulator.engine.job_table import allocation_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view, nodes_view, usable_by
from rlalloc_simulator.engine.queue_priority import place_in_queue
from rlalloc_simulator.engine.view_arrays import expected_run_s
from rlalloc_simulator.late_driving import LateDecisions
from rlalloc_simulator.site_from_workload import with_late_decisions
from tests.simulator.engine.by_hand import SHAPE, job, simulator, size

RULES = LateRules(head=3, depth=12, min_gain=-0.5, max_updates=2)
Seen = list[tuple[list[list[float]], list[list[float]], int]]
# Two partitions that share a node; two types of GPUs, of which jobs may name one; a node fails for a while.
SITE = SimulatedSite(
    nodes=(
        NodeKind(count=2, shape=SHAPE, gpu_type="a", partitions=("gpu",)),
        NodeKind(count=1, shape=SHAPE, gpu_type="b", partitions=("gpu", "long")),
        NodeKind(count=1, shape=SHAPE, gpu_type="a", partitions=("long",)),
    ),
    partitions=(PartitionKind(name="gpu"), PartitionKind(name="long")),
    failures=(NodeFailure(node=1, time_s=250.0, repaired_s=500.0),),
)
WHERE = [(0, None), (0, "a"), (0, "b"), (1, None), (1, "a")]


def allocation(shares: Shares, one: SubmittedJob, view: ClusterView) -> Allocation:
    return allocation_for(
        shares, one.request, one.bounds, view.shape, functools.partial(slowdown_to_allow, one.request)
    )


class InPython:
    """One pass over all that wait, as the daemon makes it of Slurm's snapshot."""

    def __init__(self, made: Simulator, jobs: Sequence[SubmittedJob]) -> None:
        world = made.world
        self.made, self.jobs = made, jobs
        self.queue = world.queue[: world.clock[0]["queued"]].tolist()
        columns = [world.free_devices[:, 0], world.nodes["free_cpus"], world.nodes["free_mem_mib"]]
        self.free = np.stack(columns, axis=1).astype(np.float64)

    def nodes_of(self, number: int) -> Flags:
        return usable_by(self.made, number)

    def pool_of(self, number: int) -> Pool:
        return Pool(np.flatnonzero(self.nodes_of(number)))

    def size(self, number: int) -> Allocation:
        return allocation_of(self.made.world.sizes[number])

    def left_for(self, number: int) -> FloatArray:
        """What those ahead of a new job leave of the nodes that it may use."""
        stock, mine = Stock(self.free), self.nodes_of(number)
        ahead = [
            each
            for each in self.queue[: place_in_queue(self.made.world, number)]
            if (self.nodes_of(each) & mine).any()
        ]
        for other in ahead[: RULES.depth]:
            stock.take(self.pool_of(other), self.size(other))
        return stock.left(self.pool_of(number))

    def decided(self, policy: "Answers") -> dict[int, Allocation]:
        """New sizes by job; jobs whose nodes overlap, directly or through others, compete."""
        found: dict[int, Allocation] = {}
        left = [number for number in self.queue if self.nodes_of(number).any()]
        while left:
            nodes, reached = self.nodes_of(left[0]), None
            while reached is None or (nodes != reached).any():
                reached = nodes.copy()
                for number in left:
                    if (self.nodes_of(number) & nodes).any():
                        nodes |= self.nodes_of(number)
            found |= self._decided([number for number in left if (self.nodes_of(number) & nodes).any()], policy)
            left = [number for number in left if not (self.nodes_of(number) & nodes).any()]
        return found

    def _decided(self, numbers: list[int], policy: "Answers") -> dict[int, Allocation]:
        made, gpus = self.made, self.made.devices[:, 0].astype(np.float64)
        groups = list({self.nodes_of(number).tobytes(): number for number in numbers}.values())
        place_of = {self.nodes_of(number).tobytes(): place for place, number in enumerate(groups)}
        shared = shared_devices([gpus * self.nodes_of(number) for number in groups])
        views = [nodes_view(made, int(made.world.sizes[number]["pool"])) for number in groups]

        def waiting(number: int) -> Waiting:
            record, one = made.world.jobs[number], self.jobs[number]
            pool = place_of[self.nodes_of(number).tobytes()]
            never_ran = np.isnan(record["first_start_s"])
            may_change = one.managed and never_ran and record["decisions"] <= RULES.max_updates
            smallest_shares = smallest(job_view(made, number, one), views[pool])
            least = allocation(smallest_shares, one, views[pool]) if may_change else None
            run_s = expected_run_s(record, made.world.sizes[number])
            return Waiting(self.size(number), run_s, one.request, one.run_time, least, pool=pool)

        def ask(place: int, seen: ClusterView) -> Allocation:
            one = self.jobs[numbers[place]]
            return allocation(policy(job_view(made, numbers[place], one), seen), one, seen)

        all_wait = [waiting(number) for number in numbers]
        competing = [sum(shared[each.pool, pool] > 0.0 for each in all_wait) for pool in range(len(groups))]
        pools = [
            PoolNow(self.pool_of(number), view, self._limits(self.nodes_of(number)), count)
            for number, view, count in zip(groups, views, competing, strict=True)
        ]
        decided = decide_pass(all_wait[: RULES.depth], pools, shared, Stock(self.free), ask, RULES)
        return {numbers[place]: each.size for place, each in decided.items()}

    def _limits(self, mine: Flags) -> FloatArray:
        """Node by node, unlike the engine: seconds until the limit of each job there, and its GPUs on the node."""
        world, rows = self.made.world, []
        for number in np.flatnonzero(world.jobs["state"] == RUNNING).tolist():
            ends_s = world.jobs[number]["start_s"] + world.sizes[number]["limit_s"] - self.made.now_s
            link = world.jobs[number]["first_hold"]
            while link != NOBODY:
                if mine[world.holds[link]["node"]]:
                    rows.append((max(0.0, ends_s), world.sizes[number]["gpus_per_node"]))
                link = world.holds[link]["next"]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)


class Answers:
    """A policy whose answers look random, but are the same each time; it notes what it is shown."""

    def __init__(self) -> None:
        self.seen: Seen = []

    def __call__(self, one: JobView, view: ClusterView) -> Shares:
        self.seen.append((view.free.tolist(), view.queued.tolist(), view.behind))
        mixed = hash((one.request.gpus, len(view.queued), float(view.free[:, 0].sum()), view.behind))
        return Shares((mixed % 5) / 4, 1.0, 1.0)


a_job = st.tuples(
    st.integers(0, 600),
    st.sampled_from([(1, 1), (1, 2), (1, 4), (1, 8), (2, 8)]),
    st.integers(60, 900),
    st.integers(1, 10),
    st.booleans(),
    st.sampled_from(WHERE),
)


@settings(deadline=None)
@given(st.lists(a_job, min_size=3, max_size=40), st.sampled_from([0.0, 5.0]))
def test_a_compiled_pass_shows_and_decides_what_one_in_python_does(
    drawn: list[tuple[int, tuple[int, int], int, int, bool, tuple[int, str | None]]], after_s: float
) -> None:
    jobs = [
        job(
            submit_s,
            size(gpus, limit_s, nodes=on if where == WHERE[0] else 1),
            limit_s * part / 11,
            managed=managed,
            partition=where[0],
            gpu_type=where[1],
        )
        for submit_s, (on, gpus), limit_s, part, managed, where in sorted(drawn, key=lambda each: each[0])
    ]
    made = simulator(jobs, with_late_decisions(SITE, after_s, RULES))
    answers = Answers()
    late = LateDecisions(made, jobs, answers)
    while not made.finished:
        asked = made.run()
        if made.freed:
            expected, compiled = Answers(), Answers()
            decided = InPython(made, jobs).decided(expected)
            assert sorted(LateDecisions(made, jobs, compiled).look()) == sorted(decided)
            assert sorted(compiled.seen) == sorted(expected.seen)
            for number, given_size in decided.items():
                taken = allocation_of(made.world.sizes[number])
                assert (taken.gpus, taken.time_limit_s) == (given_size.gpus, given_size.time_limit_s)
        for number in asked.tolist():
            one, view = jobs[number], cluster_view(made, number)
            answer = answers(job_view(made, number, one), view)
            left = InPython(made, jobs).left_for(number)
            meant = functools.partial(allocation, one=one, view=view)
            starts = could_start(meant(answer), left)
            shares = answer if starts else while_it_waits(answer, one.request, one.bounds, meant)
            assert late.first_answer(number, view, answer) == shares
            decide(made, number, one, view, shares)
