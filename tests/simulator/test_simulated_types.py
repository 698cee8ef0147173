"""A type of GPU for simulated jobs that name none: nodes of 8 v100, which Slurm takes first, and of 8 faster a100."""

import msgspec
import pytest

from rlalloc.heuristics import known_gain
from rlalloc.heuristics.type_choice import Offered
from rlalloc.late_decisions import LateRules
from rlalloc_simulator.driving import Driven, drive
from rlalloc_simulator.engine import NodeKind, SimulatedSite, SubmittedJob
from rlalloc_simulator.engine.batched_simulators import decide
from rlalloc_simulator.engine.policy_views import cluster_view, job_view
from rlalloc_simulator.late_driving import LateDecisions
from rlalloc_simulator.simulated_types import TypeChoices
from rlalloc_simulator.site_from_workload import with_late_decisions
from tests.simulator.engine.by_hand import SHAPE, job, simulator, site, size

V100 = NodeKind(count=2, shape=SHAPE, gpu_type="v100")
A100 = NodeKind(count=1, shape=SHAPE, gpu_type="a100", speed=2.0)


def mixed(*types: str) -> SimulatedSite:
    """The site, where rlalloc may choose these types."""
    there = with_late_decisions(site(nodes=1), 0.0, LateRules())
    may_choose = msgspec.structs.replace(there.interception, choose_gpu_types=types)
    return msgspec.structs.replace(there, nodes=(V100, A100), interception=may_choose)


def new(submit_s: float, **changes: object) -> SubmittedJob:
    """A job of four GPUs and no other number, which takes 1000 s on v100."""
    request = size(4, limit_s=2000)
    plain = job(submit_s, request, 1000.0, managed=True, **changes)
    counts = msgspec.structs.replace(plain.bounds, gpu_counts=(4,))
    return msgspec.structs.replace(plain, bounds=counts)


def driven(there: SimulatedSite, *jobs: SubmittedJob) -> Driven:
    return drive(simulator(jobs, there), jobs, known_gain)


def test_a_job_runs_on_the_faster_type_where_it_may_be_chosen() -> None:
    ends = [driven(mixed(*types), new(0.0)).outcomes["end_s"][0] for types in ((), ("a100",), ("h100",))]
    assert ends == pytest.approx([1000.0, 500.0, 1000.0])


def test_a_type_runs_jobs_where_the_site_states_its_speed() -> None:
    ends = []
    for stated in ((), (("mi300x", 4.0),)):
        there = mixed("mi300x")
        may_choose = msgspec.structs.replace(there.interception, gpu_speed=stated)
        nodes = (V100, msgspec.structs.replace(A100, gpu_type="mi300x"))
        there = msgspec.structs.replace(there, nodes=nodes, interception=may_choose)
        ends.append(driven(there, new(0.0)).outcomes["end_s"][0])
    assert ends == pytest.approx([1000.0, 500.0])


def test_jobs_share_the_type_and_then_take_what_there_is() -> None:
    outcomes = driven(mixed("a100"), *(new(float(number)) for number in range(3))).outcomes
    assert (outcomes["end_s"] - outcomes["submit_s"]).tolist() == pytest.approx([500.0, 500.0, 1000.0])
    assert outcomes["start_s"].tolist() == [0.0, 1.0, 2.0]


def test_jobs_that_wait_for_any_type_keep_nobody_from_one() -> None:
    """One of 24 GPUs waits ahead. Four of each type are free, and backfill gives them to the job behind."""
    held = [job(0.0, size(4, limit_s=20_000), 9000.0, gpu_type=gpu_type) for gpu_type in ("v100", "a100")]
    wide = job(1.0, size(8, limit_s=600, nodes=3), 100.0)
    outcomes = driven(mixed("a100"), *held, wide, new(2.0)).outcomes
    assert outcomes["end_s"][-1] - outcomes["start_s"][-1] == pytest.approx(500.0)
    assert outcomes["start_s"][-1] == 30.0


def test_a_job_that_waits_for_another_one_gets_no_type_on_arrival() -> None:
    """A job that comes before it may start takes the type's GPUs."""
    first = job(0.0, size(1), 20.0, gpu_type="v100")
    waits = new(0.0, dependencies=(("afterok", 0),))
    other = job(10.0, size(8, limit_s=9000), 5000.0, gpu_type="a100")
    outcomes = driven(mixed("a100"), first, waits, other).outcomes
    assert outcomes["start_s"].tolist() == [0.0, 20.0, 10.0]


def test_no_type_is_chosen_whose_gpus_a_job_ahead_takes() -> None:
    """One waits for all nodes. Backfill will start those behind it on the GPUs that the last one could have now."""
    held, wide = job(0.0, size(4, limit_s=20_000), 9000.0, gpu_type="v100"), job(1.0, size(8, nodes=3))
    for behind in (1, 2):
        jobs = [held, wide, *[job(1.0, size(8))] * behind, new(2.0)]
        last = len(jobs) - 1
        made = simulator(jobs, mixed("a100"))
        types = TypeChoices(made, jobs, LateDecisions(made, jobs, known_gain), known_gain)
        assert made.run().tolist() == [last]
        plain = Offered(job_view(made, last, jobs[last]), cluster_view(made, last))
        assert (types.choose(last, plain, known_gain(*plain)) is None) == (behind == 2)


def test_a_job_that_does_not_start_on_its_type_gets_its_request_back() -> None:
    jobs = [new(0.0)]
    made = simulator(jobs, mixed("a100"))
    types = TypeChoices(made, jobs, LateDecisions(made, jobs, known_gain), known_gain)
    assert made.run().tolist() == [0]
    plain = Offered(job_view(made, 0, jobs[0]), cluster_view(made, 0))
    typed = types.choose(0, plain, known_gain(*plain))
    assert typed is not None
    decide(made, 0, jobs[0], *typed)
    for now_s, gpu_types in ((30.0, ("a100",)), (31.0, ("a100", "v100"))):
        made.world.clock[0]["now_s"] = now_s  # nothing has started it
        types.look()
        assert cluster_view(made, 0).gpu_types == gpu_types
    made.run()
    assert made.outcomes()["end_s"][0] - made.outcomes()["start_s"][0] == pytest.approx(1000.0)


def test_a_job_that_waits_gets_the_type_with_a_size_that_starts_now() -> None:
    """At 100 s four GPUs of each type come free for a job of eight, which would take them on v100."""
    long, short = (size(4, limit_s=20_000), 9000.0), (size(4, limit_s=200), 100.0)
    held = [
        job(0.0, request, run_s, gpu_type=gpu_type)
        for gpu_type, sizes in (("v100", (long, long, long, short)), ("a100", (long, short)))
        for request, run_s in sizes
    ]
    ends = []
    for types in ((), ("a100",)):
        outcomes = driven(mixed(*types), *held, job(1.0, size(8, limit_s=2000), 1000.0, managed=True)).outcomes
        assert outcomes["start_s"][-1] == 100.0
        ends.append(outcomes["end_s"][-1] - 100.0)
    assert ends[1] == pytest.approx(0.5 * ends[0])
