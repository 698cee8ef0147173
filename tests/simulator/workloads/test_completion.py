"""From a trace's jobs to a workload's: what is known is kept, what is not is drawn from the seed."""

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import NodeShape, parse_directives
from rlalloc_simulator.workloads import Dependency, End, WorkloadJob
from rlalloc_simulator.workloads.assumptions import Assumptions, EndRates
from rlalloc_simulator.workloads.completion import complete, modelled, nodes_for, word
from rlalloc_simulator.workloads.directives import written_directives
from rlalloc_simulator.workloads.trace_job import TraceJob

KNOWN = TraceJob(
    key="a",
    submit_s=1000.0,
    gpus=16,
    elapsed_s=3600.0,
    state="COMPLETED",
    user="ada",
    account="nlp",
    partition="llm",
    qos="high",
    name="llama",
    job_class="serve",
    nodes=2,
    tasks=16,
    cpus=64.0,
    mem_mib=800_000.0,
    gpu_type="a100",
    time_limit_s=7200.0,
    cpus_used=16.0,
    max_rss_mib=400_000.0,
)
replace = msgspec.structs.replace


def completed(*trace: TraceJob, seed: int = 0, assumptions: Assumptions | None = None) -> list[WorkloadJob]:
    return list(complete(trace, assumptions or Assumptions(), seed)[1])


def bare(number: int, **changes: object) -> TraceJob:
    return replace(TraceJob(key=str(number), submit_s=float(number), gpus=4, elapsed_s=600.0), **changes)


def test_what_is_known_is_kept() -> None:
    (job,) = completed(KNOWN)
    request = job.request
    assert (request.nodes, request.gpus_per_node, request.tasks_per_node, request.cpus_per_task) == (2, 8, 8, 4)
    assert (request.mem_mib_per_node, request.time_limit_s, request.gpu_type) == (400_000, 7200, "a100")
    assert (job.user, job.account, job.partition, job.qos, job.name) == ("ada", "nlp", "llm", "high", "llama")
    assert (job.needs.run_time_s, job.needs.cpu_fraction, job.needs.max_rss_mib) == (3600.0, 0.25, 200_000.0)
    assert (job.end, job.job_class, job.submit_s) == (End(), "serve", 0.0)


def test_only_what_is_not_known_is_named_as_modelled() -> None:
    assert modelled([KNOWN]) == ("needs.speed", "directives", "checkpoint")
    assert {"user", "request.cpus", "request.time_limit_s", "end"} <= set(modelled([KNOWN, bare(1)]))


def test_jobs_are_put_in_order_and_dependencies_look_back() -> None:
    """A dependency on a job that the trace does not hold, or that came later, is dropped."""
    trace = [bare(3, after=("1", "99")), bare(1, after=("3",)), bare(2)]
    zero_s, jobs = complete(trace, Assumptions(), 0)
    first, second, third = jobs
    assert zero_s == 1.0
    assert [job.submit_s for job in (first, second, third)] == [0.0, 1.0, 2.0]
    assert first.dependency == second.dependency == ()
    assert third.dependency == (Dependency("afterany", 1),)


def test_the_seed_decides_all() -> None:
    trace = [bare(number) for number in range(50)]
    assert completed(*trace, seed=1) == completed(*trace, seed=1)
    assert completed(*trace, seed=1) != completed(*trace, seed=2)


def test_what_one_job_knows_does_not_change_another() -> None:
    other = bare(2)
    assert completed(bare(1), other)[1] == completed(replace(KNOWN, submit_s=1.0), other)[1]


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("FAILED", End("FAILED", 600.0)),
        ("CANCELLED", End("CANCELLED", 600.0)),
        ("NODE_FAIL", End()),
        ("TIMEOUT", End()),
        ("OUT_OF_MEMORY", End()),
    ],
)
def test_how_it_ended(state: str, end: End) -> None:
    """What was stopped would have run longer; limits and memory stop it again at the same size."""
    for seed in range(20):
        (job,) = completed(bare(1, state=state), seed=seed)
        assert job.end == end
        assert job.needs.run_time_s >= 600.0
        over_limit = job.needs.run_time_s > job.request.time_limit_s
        over_memory = job.needs.max_rss_mib > job.request.mem_mib_per_node
        assert over_limit == (state == "TIMEOUT")
        assert over_memory == (state == "OUT_OF_MEMORY")


def test_a_job_that_never_ran() -> None:
    (job,) = completed(bare(1, state="CANCELLED", elapsed_s=0.0, ended_pending_s=90.0))
    assert job.end == End("CANCELLED", 90.0, while_pending=True)
    assert job.held_s == 0.0


def test_ends_are_drawn_where_the_trace_is_silent() -> None:
    """At the rates given, and stretched by their factors."""
    rates = EndRates(failed=0.3, cancelled=0.1, failed_time_factor=0.5, cancelled_time_factor=2.0)
    jobs = completed(*map(bare, range(3000)), assumptions=Assumptions(ends=rates))
    states = [job.end.state for job in jobs]
    assert states.count("FAILED") / 3000 == pytest.approx(0.3, abs=0.03)
    assert states.count("CANCELLED") / 3000 == pytest.approx(0.1, abs=0.02)
    assert {job.end.after_s for job in jobs} == {None, 300.0, 1200.0}


def test_the_assumptions_hold() -> None:
    jobs = completed(*map(bare, range(3000)))
    fractions = np.array([job.needs.run_time_s / job.request.time_limit_s for job in jobs])
    assert np.median(fractions) == pytest.approx(0.42, abs=0.04)  # 0.44, the limits rounded up to minutes
    assert fractions.max() < 1
    ranges = [parse_directives(job.directives).gpus for job in jobs]
    assert sum(found is not None for found in ranges) / 3000 == pytest.approx(0.8, abs=0.03)
    assert {found for found in ranges if found} == {(low, high) for low in (1, 2, 4) for high in (4, 8, 16)}
    users = [job.user for job in jobs]
    busiest = max(users.count(name) for name in set(users)) / 3000
    assert busiest == pytest.approx(1 / sum(1 / rank for rank in range(1, 21)), abs=0.03)
    for job in jobs:
        assert job.request.cpus_per_node <= 96
        assert job.needs.max_rss_mib <= job.request.mem_mib_per_node <= 768_000
        declared = parse_directives(job.directives).mem_mib_per_gpu
        assert declared is None or 4 * declared[0] >= job.needs.max_rss_mib


@pytest.mark.parametrize(
    ("gpus", "nodes"), [(0, (1, 0)), (1, (1, 1)), (8, (1, 8)), (12, (2, 6)), (13, (2, 8)), (64, (8, 8))]
)
def test_nodes_for_gpus(gpus: int, nodes: tuple[int, int]) -> None:
    assert nodes_for(gpus, NodeShape(gpus=8, cpus=64, mem_mib=1000)) == nodes


def test_a_job_without_gpus_is_none_of_rlallocs_business() -> None:
    (job,) = completed(bare(1, gpus=0, cpus=200.0))
    assert (job.job_class, job.directives, job.checkpoint) == (None, "", None)
    assert (job.request.nodes, job.request.gpus_per_node, job.request.cpus_per_node) == (3, 0, 67)


def test_names_fit_command_lines() -> None:
    assert word("Ada Lovelace; rm -rf '*'") == "Ada_Lovelace__rm_-rf____"


def test_directives_say_what_was_meant() -> None:
    text = written_directives(
        gpus=(1, 16), cpus_per_gpu=(1.5, 8.0), mem_mib_per_gpu=(1000.2, 8000.9), task_per_gpu=True
    )
    said = parse_directives(text)
    assert (said.gpus, said.cpus_per_gpu, said.mem_mib_per_gpu, said.task_per_gpu) == (
        (1, 16),
        (1.5, 8.0),
        (1001.0, 8000.0),
        True,
    )
    assert written_directives(task_per_gpu=True) == ""
