"""What must hold at every moment of any simulation, whatever happens in it."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlalloc.job import Allocation
from rlalloc_simulator.engine import (
    Interception,
    NodeFailure,
    PriorityParameters,
    SchedulerParameters,
    SimulatedSite,
    Simulator,
    SubmittedJob,
)
from rlalloc_simulator.engine.engine_records import (
    COMPLETED,
    DEFERRED,
    NO_REASON,
    NOBODY,
    PENDING,
    RUNNING,
)
from tests.simulator.engine.by_hand import SHAPE, job, simulator, site, size

NODES = 3


@st.composite
def sizes(draw: st.DrawFn) -> Allocation:
    nodes = draw(st.integers(1, NODES))
    gpus = draw(st.integers(0, 8))
    return size(
        gpus,
        60 * draw(st.integers(1, 60)),
        nodes,
        cpus_per_task=draw(st.integers(1, 8)),
        mem_mib_per_node=draw(st.integers(100, 8000)),
    )


@st.composite
def submitted(draw: st.DrawFn, number: int, submit_s: float) -> SubmittedJob:
    request = draw(sizes())
    plain = job(submit_s, msgspec.structs.replace(request, gpus_per_node=max(1, request.gpus_per_node)))
    return msgspec.structs.replace(
        plain,
        request=request,
        work_s=draw(st.floats(1, 20_000)),
        user=draw(st.integers(0, 2)),
        nice=draw(st.integers(-3, 3)),
        begin_s=draw(st.just(-np.inf) | st.floats(0, 3000)),
        cancel_s=draw(st.just(np.inf) | st.floats(0, 5000)),
        cancel_after_s=draw(st.just(np.inf) | st.floats(0, 2000)),
        stops_at=draw(st.just(1.0) | st.floats(0.1, 0.9)),
        stop_state="FAILED",
        mem_mib_per_gpu_needed=draw(st.floats(0, 1500)),
        managed=draw(st.booleans()),
        resumes=draw(st.booleans()),
        requeues=draw(st.booleans()),
        restart_cost_s=draw(st.floats(0, 60)),
        checkpoint_interval_s=draw(st.sampled_from([0.0, 100.0])),
        names_tasks=draw(st.booleans()),
        dependencies=draw(
            st.just(()) | st.tuples(st.tuples(st.sampled_from(["after", "afterany", "afterok"]), st.just(number - 1)))
        )
        if number
        else (),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[SimulatedSite, list[SubmittedJob]]:
    times = sorted(draw(st.lists(st.floats(0, 4000), min_size=1, max_size=25)))
    jobs = [draw(submitted(number, time_s)) for number, time_s in enumerate(times)]
    failed = draw(st.lists(st.tuples(st.integers(0, NODES - 1), st.floats(0, 4000), st.floats(1, 2000)), max_size=3))
    weights = PriorityParameters(
        type=draw(st.sampled_from(["basic", "multifactor"])),
        weight_age=100.0,
        weight_fairshare=1000.0,
        weight_job_size=draw(st.sampled_from([0.0, 500.0])),
    )
    scheduler = SchedulerParameters(
        bf_job_part_count_reserve=draw(st.integers(0, 2)),
        bf_max_job_test=draw(st.sampled_from([3, 500])),
        default_queue_depth=draw(st.sampled_from([1, 100])),
        sched_min_interval=draw(st.sampled_from([0.0, 7.0])),
        least_loaded_nodes=draw(st.booleans()),
    )
    there = site(
        NODES,
        users=3,
        failures=tuple(NodeFailure(node=node, time_s=at, repaired_s=at + lasts) for node, at, lasts in failed),
        priority=weights,
        scheduler=scheduler,
        interception=Interception(review_interval=draw(st.sampled_from([0.0, 100.0]))),
    )
    return there, jobs


def check(made: Simulator) -> None:
    """What is free and what is held make up each node; the queue is what pends; each chain is whole."""
    world = made.world
    clock = world.clock[0]
    jobs, given_sizes = world.jobs, world.sizes
    for kind, free, capacity in (
        ("units", world.free_devices[:, 0], SHAPE.gpus),
        ("cpus", world.nodes["free_cpus"], SHAPE.cpus),
        ("mem_mib", world.nodes["free_mem_mib"], SHAPE.mem_mib),
    ):
        held = [
            sum(int(world.slots[node, slot][kind]) for slot in range(world.nodes[node]["running"]))
            for node in range(NODES)
        ]
        assert (free >= 0).all()
        np.testing.assert_array_equal(free + np.array(held), capacity)
    running = np.flatnonzero(jobs["state"] == RUNNING).tolist()
    assert clock["running"] == len(running)
    for number in running:
        nodes = []
        link = int(jobs[number]["first_hold"])
        while link != NOBODY:
            nodes.append(int(world.holds[link]["node"]))
            link = int(world.holds[link]["next"])
        assert len(nodes) == len(set(nodes)) == given_sizes[number]["nodes"]
        assert all(world.nodes[node]["up"] for node in nodes)
        assert jobs[number]["end_s"] <= jobs[number]["start_s"] + given_sizes[number]["limit_s"]
    pending = set(np.flatnonzero(jobs["state"] == PENDING).tolist())
    queue = world.queue[: clock["queued"]].tolist()
    assert len(queue) == len(pending)
    assert set(queue) == pending
    priorities = jobs["priority"][queue]
    assert (np.diff(priorities) <= 0).all()
    added = jobs["nice"] - jobs["own_nice"]
    for number in pending:
        assert 0 <= added[number] <= jobs[number]["added_nice"]
        if clock["now_s"] - jobs[number]["accrue_s"] >= jobs[number]["patience_s"]:
            assert added[number] == 0
    waits = (jobs["state"] == PENDING) | (jobs["state"] == DEFERRED)
    assert (jobs["reason"][waits] != NO_REASON).all()


def drive(there: SimulatedSite, jobs: list[SubmittedJob], draw: st.DataObject) -> Simulator:
    """Answer every question, requeue now and then, and check in between."""
    made = simulator(jobs, there)
    for _ in range(500):
        asked = made.run()
        check(made)
        if made.finished:
            return made
        for number in asked.tolist():
            answer = draw.draw(st.sampled_from(["leave", "resize", "ignore"]))
            if answer == "resize":
                nice = draw.draw(st.tuples(st.integers(0, 50), st.just(0) | st.integers(60, 2000)))
                made.resize({number: draw.draw(sizes())}, {number: nice})
            elif answer == "leave":
                made.leave([number])
        running = np.flatnonzero(made.outcomes()["state"] == RUNNING)
        if len(running) and draw.draw(st.booleans()):
            made.requeue(int(running[0]))
        check(made)
    pytest.fail("the simulation does not come to an end")


@settings(max_examples=60)
@given(cases(), st.data())
def test_nothing_is_held_twice_and_everything_ends_or_says_why_not(
    case: tuple[SimulatedSite, list[SubmittedJob]], draw: st.DataObject
) -> None:
    made = drive(*case, draw)
    outcomes = made.outcomes()
    ended = outcomes["state"] >= COMPLETED
    assert made.world.clock[0]["ended"] == ended.sum()
    assert np.isfinite(outcomes["finished_s"][ended]).all()
    assert (outcomes["finished_s"][ended] >= outcomes["submit_s"][ended]).all()
    assert (outcomes["reason"][~ended] != NO_REASON).all()
    started = np.isfinite(outcomes["first_start_s"])
    assert (outcomes["first_start_s"][started] >= outcomes["submit_s"][started]).all()
    assert (outcomes["first_start_s"][started] >= outcomes["begin_s"][started]).all()


@settings(max_examples=30)
@given(cases(), st.data())
def test_work_is_neither_made_nor_lost(case: tuple[SimulatedSite, list[SubmittedJob]], draw: st.DataObject) -> None:
    outcomes = drive(*case, draw).outcomes()
    done = outcomes[outcomes["state"] == COMPLETED]
    np.testing.assert_allclose(done["useful_work_s"], done["work_s"] * done["stops_at"], rtol=1e-6)
    np.testing.assert_allclose(outcomes["useful_work_s"], outcomes["progress"] * outcomes["work_s"], rtol=1e-6)
    assert (outcomes["lost_work_s"] >= -1e-6).all()


@settings(max_examples=20)
@given(cases())
def test_the_same_input_gives_the_same_bytes(case: tuple[SimulatedSite, list[SubmittedJob]]) -> None:
    there, jobs = case
    digests = set()
    for _ in range(2):
        made = simulator(jobs, there)
        while not made.finished:
            made.leave(made.run())
        digests.add(made.digest())
    assert len(digests) == 1
