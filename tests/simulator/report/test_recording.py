"""What the recording simulator sees is what the engine did."""

from collections import defaultdict

import msgspec
import pytest

from rlalloc.heuristics import REFERENCE_POLICIES
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Interception, NodeFailure, Simulator, SubmittedJob, table_of
from rlalloc_simulator.report import RecordedSimulator, Run, Wait, measure
from rlalloc_simulator.training_workloads import training_workload
from tests.simulator.engine.by_hand import job, site, size


def recorded(jobs: list[SubmittedJob], nodes: int = 2, users: int = 1, **changes: object) -> RecordedSimulator:
    made = RecordedSimulator(site(nodes, users, **changes), jobs)
    assert len(made.run()) == 0
    return made


def test_runs_and_waits_of_three_jobs() -> None:
    """Two take a node each, the third both after them; it waits from its submission on."""
    seen = recorded([job(0, size(8), 100), job(5, size(4), 200), job(10, size(8, nodes=2), 50)]).history()
    assert seen.runs == (
        Run(0, 0.0, 100.0, (0,), 8, 8, 8000, "COMPLETED"),
        Run(1, 5.0, 205.0, (1,), 4, 4, 4000, "COMPLETED"),
        Run(2, 205.0, 255.0, (0, 1), 8, 8, 8000, "COMPLETED"),
    )
    assert seen.waits == (Wait(2, 10.0, 205.0, 0, 16, 16, 16000),)
    assert [each.alone_s for each in seen.jobs] == pytest.approx([100, 200, 50])
    assert (seen.begin_s, seen.end_s) == (0.0, 255.0)
    assert seen.node_names == ("node0", "node1")


def test_a_requeued_job_has_two_runs() -> None:
    """Its node fails at 50; after slurmctld's delay it starts again on the other."""
    seen = recorded([job(0, size(8), 100)], failures=(NodeFailure(node=0, time_s=50.0),)).history()
    assert [(each.start_s, each.end_s, each.nodes, each.state) for each in seen.runs] == [
        (0.0, 50.0, (0,), "REQUEUED"),
        (pytest.approx(180, abs=31), seen.jobs[0].end_s, (1,), "COMPLETED"),
    ]
    assert measure(seen).requeues == 1


def test_a_job_killed_for_its_size_has_two_runs_at_once() -> None:
    """In 2 GPUs it is killed at its limit, submitted again as requested, and starts at that moment."""
    wanted = size(4, 200)
    jobs = [job(0, wanted, 150, managed=True)]
    made = RecordedSimulator(site(), jobs)
    assert made.run().tolist() == [0]
    made.resize({0: msgspec.structs.replace(wanted, gpus_per_node=2, cpus_per_task=2, mem_mib_per_node=2000)})
    made.run()
    seen = made.history()
    assert [(each.start_s, each.end_s, each.gpus, each.state) for each in seen.runs] == [
        (0.0, 200.0, 2, "TIMEOUT"),
        (200.0, 350.0, 4, "COMPLETED"),
    ]
    assert measure(seen).timeouts == 1


def test_a_job_cancelled_while_it_waits_has_no_run() -> None:
    seen = recorded([job(0, size(8), 100), job(0, size(8), 100), job(1, size(8), 9, cancel_s=40.0)]).history()
    assert [each.job for each in seen.runs] == [0, 1]
    assert seen.jobs[2].first_start_s is None
    assert seen.jobs[2].end_s == 40.0
    assert measure(seen).cancelled_waiting == 1
    assert seen.waits[0].end_s == 40.0


@pytest.mark.parametrize("policy", [None, "price-ef", "smallest"])
def test_recording_changes_nothing_and_misses_nothing(policy: str | None) -> None:
    """Outcomes are the plain simulator's to the byte; what the engine counted agrees with the runs seen."""
    there, jobs = training_workload(7, 150)
    there = msgspec.structs.replace(there, interception=Interception(grace=30.0, decision_interval=5.0))
    heuristic = REFERENCE_POLICIES[policy] if policy else None
    plain, parts = Simulator(there, table_of(jobs, there)), list[float]()
    drive(plain, jobs, heuristic)
    made = RecordedSimulator(there, jobs, report=parts.append)
    drive(made, jobs, heuristic)
    assert made.digest() == plain.digest()
    assert parts == sorted(parts)
    assert parts[-1] > 0.9
    seen, outcomes = made.history(), made.outcomes()
    held_gpu_s: defaultdict[int, float] = defaultdict(float)
    for run in seen.runs:
        held_gpu_s[run.job] += run.gpus * run.duration_s
    for number in range(len(jobs)):
        assert held_gpu_s[number] == pytest.approx(outcomes[number]["held_gpu_s"])
    for place, shape in enumerate(seen.nodes):
        mine = [run for run in seen.runs if place in run.nodes]
        for run in mine:
            beside = [other for other in mine if other.start_s <= run.start_s < other.end_s]
            assert sum(other.gpus_per_node for other in beside) <= shape.gpus
            assert sum(other.cpus_per_node for other in beside) <= shape.cpus
            assert sum(other.mem_mib_per_node for other in beside) <= shape.mem_mib
    found = measure(seen)
    assert found.gpu_use is not None
    assert found.fragmentation is not None
    assert found.gpu_use + found.fragmentation <= 1.0 + 1e-9
    assert found.gpu_hours * 3600 == pytest.approx(outcomes["held_gpu_s"].sum())
