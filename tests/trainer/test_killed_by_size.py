"""Jobs that ended by rlalloc's doing, in the calibrated simulator and before the gate."""

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import NodeShape
from rlalloc.job import Allocation, Bounds, Range, Shares
from rlalloc.policy.policies import EVERYWHERE
from rlalloc.speed import PRIOR
from rlalloc.store import Experience
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.runner import Run, run_all
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import NodeKind, SimulatedSite, Simulator, SubmittedJob, UserKind, table_of
from rlalloc_simulator.engine.engine_records import STATE_NAMES
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_trainer.pipelines.calibrated_simulator import calibrated_site, resampled
from rlalloc_trainer.promotion.gate import Verdict
from rlalloc_trainer.promotion.held_out_evidence import CANDIDATE, GATE_HEURISTICS, SAME_ORDER, HeldOut, decide
from tests.trainer.sites import changed, experience_of

NODE = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
REQUEST = Allocation(
    nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=32, mem_mib_per_node=400_000, time_limit_s=7200
)
BOUNDS = Bounds(
    gpus=Range(1, 4, "user", "request"),
    cpus_per_gpu=Range(1.0, 8.0, "user", "request"),
    mem_mib_per_gpu=Range(10_000.0, 100_000.0, "user", "request"),
    gpu_counts=(1, 2, 4),
    task_per_gpu=False,
)
FIXED_GPUS = msgspec.structs.replace(BOUNDS, gpus=Range(4, 4, "request", "request"), gpu_counts=(4,))


def crowded_site(bounds: Bounds) -> Workload:
    """Jobs that ask for more than half of a node's memory, and come faster than they end."""
    site = SimulatedSite(nodes=(NodeKind(count=4, shape=NODE),), users=(UserKind(name="ann"), UserKind(name="bob")))
    work_s = 3600.0 * PRIOR.at(4, 8.0)
    jobs = (
        SubmittedJob(
            submit_s=600.0 * number,
            user=number % 2,
            request=REQUEST,
            bounds=bounds,
            work_s=work_s * (0.5 + number % 3 / 2.0),
            curve=PRIOR,
            mem_mib_per_gpu_needed=9_500.0,
            managed=True,
        )
        for number in range(60)
    )
    return Workload(site, tuple(jobs))


def in_size(one: Experience, cause: str, state: str, **size: int) -> Experience:
    """The same job, ended by ``cause`` in another size; run times as they were."""
    got = msgspec.structs.replace(REQUEST, **size)
    decision = msgspec.structs.replace(one.decision, allocation=got)
    ended = changed(
        one, state=state, our_doing=cause, gpus=got.gpus, cpus=got.cpus, mem_mib=float(got.mem_mib), started_s=0.0
    )
    ran = msgspec.structs.replace(ended.outcome, ended_s=float(got.time_limit_s) if state == "TIMEOUT" else 60.0)
    return Experience(decision=decision, outcome=ran)


@pytest.fixture(scope="module")
def experiences() -> list[Experience]:
    return experience_of(crowded_site(BOUNDS))


def end_in(workload: Workload, shares: Shares) -> tuple[str, str]:
    """How the workload's only job ends at first, and at last, where a policy answers these shares."""
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    (outcome,) = drive(simulator, workload.jobs, lambda _job, _view: shares).outcomes
    return STATE_NAMES[outcome["first_state"]], STATE_NAMES[outcome["state"]]


ALL = Shares(1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("cause", "state", "size", "as_then", "first"),
    [
        ("out-of-memory", "OUT_OF_MEMORY", {"mem_mib_per_node": 40_960}, Shares(1.0, 1.0, 0.0), "OUT_OF_MEMORY"),
        (
            "out-of-memory",
            "OUT_OF_MEMORY",
            {"gpus_per_node": 2, "mem_mib_per_node": 200_000},
            Shares(0.5, 1.0, 1.0),
            "OUT_OF_MEMORY",
        ),
        ("gpu-out-of-memory", "FAILED", {"gpus_per_node": 2}, Shares(0.5, 1.0, 1.0), "OUT_OF_MEMORY"),
        ("timeout", "TIMEOUT", {"gpus_per_node": 1, "time_limit_s": 30_000}, Shares(0.0, 1.0, 1.0), "TIMEOUT"),
        ("timeout", "TIMEOUT", {"cpus_per_task": 4}, Shares(1.0, 0.0, 1.0), "TIMEOUT"),
        ("timeout", "TIMEOUT", {"mem_mib_per_node": 40_960}, Shares(1.0, 1.0, 0.0), "OUT_OF_MEMORY"),
    ],
    ids=[
        "memory",
        "memory of a node",
        "a GPU's memory",
        "time on fewer GPUs",
        "time on fewer CPUs",
        "time for memory",
    ],
)
def test_what_ended_a_job_ends_it_in_the_calibrated_simulator_and_its_request_does_not(
    experiences: list[Experience], cause: str, state: str, size: dict[str, int], as_then: Shares, first: str
) -> None:
    killed = in_size(experiences[0], cause, state, **size)
    workload = calibrated_site([killed], [*experiences[1:], killed])
    assert end_in(workload, as_then) == (first, "COMPLETED")
    assert end_in(workload, ALL) == ("COMPLETED", "COMPLETED")


def test_a_job_that_was_killed_early_is_taken_to_run_as_long_as_others_of_its_name(
    experiences: list[Experience],
) -> None:
    killed = in_size(experiences[0], "gpu-out-of-memory", "FAILED", gpus_per_node=2)
    alike = msgspec.structs.replace(
        experiences[1],
        decision=msgspec.structs.replace(
            experiences[1].decision, user=killed.decision.user, job_name=killed.decision.job_name
        ),
        outcome=msgspec.structs.replace(
            experiences[1].outcome, state="COMPLETED", gpus=4, cpus=32, started_s=0.0, ended_s=1234.0
        ),
    )
    (job,) = calibrated_site([killed], [alike]).jobs
    assert job.work_s / job.curve.at(4, 8.0) == pytest.approx(1234.0)
    (unknown,) = calibrated_site([killed], []).jobs
    assert unknown.work_s / unknown.curve.at(4, 8.0) == pytest.approx(0.44 * 7200)


def judged(experiences: list[Experience]) -> Verdict:
    """The gate's verdict on `repaired`, which trims memory to the lower bound, where requests are served now."""
    workloads = resampled(calibrated_site(experiences, experiences), 6, 60, np.random.default_rng(0))
    requested, trims = Run(HeuristicPolicy(REFERENCE)), Run(HeuristicPolicy("repaired"))
    runs = {name: Run(HeuristicPolicy(name)) for name in GATE_HEURISTICS}
    results = run_all({**runs, CANDIDATE: trims, "v1": requested, SAME_ORDER: requested}, workloads, map)
    return decide(HeldOut(results, "v1", len(experiences), 0.9), EVERYWHERE, heuristics=False)[1]


def test_the_gate_refuses_a_candidate_that_kills_a_family_again() -> None:
    """Memory that is trimmed lets two jobs share a node, so the candidate gains; but one job in six needs more."""
    lived = experience_of(crowded_site(FIXED_GPUS))
    killed = [
        in_size(one, "out-of-memory", "OUT_OF_MEMORY", mem_mib_per_node=40_960) if number % 6 == 1 else one
        for number, one in enumerate(lived)
    ]
    without = judged([one for one in killed if one.outcome.our_doing is None])
    assert without.promote, without.reason
    verdict = judged(killed)
    assert not verdict.promote
    assert "more jobs run out of memory or time than with v1" in verdict.reason
    assert verdict.evidence.killed_current == 0
