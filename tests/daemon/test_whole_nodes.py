"""Jobs that have their nodes alone: no update makes one smaller and keeps it exclusive."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rlalloc_cli.explain import as_asked
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.slurm import NodeNeeds, PartitionRecord, RequestFields, SchedulingRules
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag

from .slurm_in_memory import NODE
from .test_redecision_rules import pending_job
from .test_request_sizes_and_tags import ENFORCE, TAG


@pytest.fixture
def agent() -> Iterator[AgentClient]:
    agent = AgentClient("ipc:///nowhere", 0.01)
    yield agent
    agent.close()


@pytest.mark.parametrize(
    ("exclusive", "partition", "memory", "skipped"),
    [
        (True, False, {"mem_mib_per_cpu": 3000}, True),
        (True, False, {"mem_mib_per_node": 3000}, True),
        (True, True, {"mem_mib_per_cpu": 3000}, True),
        (True, True, {"mem_mib_per_node": 3000}, False),
        (False, True, {"mem_mib_per_cpu": 3000}, True),
        (False, True, {"mem_mib_per_node": 3000}, False),
        (False, False, {"mem_mib_per_cpu": 3000}, False),
        (True, True, {"mem_mib_per_gpu": 3000, "gpus_per_node": 4}, True),
        (True, True, {"mem_mib_per_gpu": 3000}, False),
        (False, False, {"mem_mib_per_gpu": 3000}, False),
    ],
)
def test_a_job_that_asked_for_nodes_of_its_own_keeps_them(
    agent: AgentClient, memory: dict[str, Any], *, exclusive: bool, partition: bool, skipped: bool
) -> None:
    """Seen on 24.11: resized and then restored, such a job had 5 CPUs and 2 GPUs instead of 64 and 8.

    And on 22.05: ``--exclusive --gres=gpu:4`` has 40 CPUs at its start; resized to 2 GPUs, it had one. Where the
    partition gives whole nodes, ``--gpus=4 --mem-per-gpu=4000`` has 32000 MiB; with other CPUs, it had 16000.
    """
    fields = RequestFields(**({"min_cpus": 1, "min_nodes": 1, "gpus_per_node": 8} | memory))
    job = pending_job(7, begin_s=2000, tasks=1, fields=fields, is_exclusive=exclusive, admin_comment=TAG)
    tag = read_tag(job.admin_comment)
    assert tag is not None
    gpu = PartitionRecord(name="gpu", max_time_s=None, max_nodes=None, whole_nodes=partition)
    snapshot = Snapshot(1900.0, (job,), (NODE,), {"gpu": gpu}, None)
    ((_, decision),) = decide([Candidate(job, tag, "enforce")], snapshot, ENFORCE, agent)
    assert (decision.skip_code == "whole-nodes") is skipped
    # Its record says 1 CPU while it waits.
    assert as_asked(decision).endswith("; Slurm gives it all CPUs and GPUs of its nodes") is skipped


def test_what_a_resized_job_asked_for_first_counts(agent: AgentClient) -> None:
    """An earlier version may have resized a job with memory per CPU; it then has memory per node."""
    asked = RequestFields(min_cpus=1, min_nodes=1, gpus_per_node=8, mem_mib_per_cpu=3000)
    fields = msgspec.structs.replace(asked, mem_mib_per_cpu=0, mem_mib_per_node=3000)
    job = pending_job(7, begin_s=2000, tasks=1, fields=fields, is_exclusive=True, admin_comment=TAG)
    tag = read_tag(job.admin_comment)
    assert tag is not None
    gpu = PartitionRecord(name="gpu", max_time_s=None, max_nodes=None, whole_nodes=True)
    snapshot = Snapshot(1900.0, (job,), (NODE,), {"gpu": gpu}, None)
    ((_, decision),) = decide([Candidate(job, tag, "enforce", asked=asked)], snapshot, ENFORCE, agent)
    assert decision.skip_code == "whole-nodes"


def test_an_exclusive_job_that_may_also_run_where_jobs_share_nodes_keeps_its_request(agent: AgentClient) -> None:
    fields = RequestFields(min_cpus=1, min_nodes=1, gpus_per_node=8, mem_mib_per_node=3000)
    job = pending_job(7, begin_s=2000, partition="whole,gpu", fields=fields, is_exclusive=True, admin_comment=TAG)
    tag = read_tag(job.admin_comment)
    assert tag is not None
    partitions = {
        name: PartitionRecord(name=name, max_time_s=None, max_nodes=None, whole_nodes=name == "whole")
        for name in ("whole", "gpu")
    }
    node = msgspec.structs.replace(NODE, partitions=("whole", "gpu"))
    snapshot = Snapshot(1900.0, (job,), (node,), partitions, None)
    ((_, decision),) = decide([Candidate(job, tag, "enforce")], snapshot, ENFORCE, agent)
    assert decision.skip_code == "whole-nodes"


@pytest.mark.parametrize(
    ("sockets_of", "cpus_per_core", "cpus", "threads", "memory", "skipped"),
    [
        ((True, None), 1, 8, 0, {"mem_mib_per_cpu": 2000}, True),
        ((True, None), 1, 8, 0, {"mem_mib_per_node": 2000}, False),
        ((True, None), 1, 8, 0, {"mem_mib_per_gpu": 2000}, False),
        ((False, True), 1, 8, 0, {"mem_mib_per_cpu": 2000}, True),
        ((True, False), 1, 8, 0, {"mem_mib_per_cpu": 2000}, False),
        ((False, None), 1, 7, 0, {"mem_mib_per_cpu": 2000}, False),
        ((False, None), 2, 7, 0, {"mem_mib_per_cpu": 2000}, True),
        ((False, None), 2, 7, 0, {"mem_mib_per_node": 2000}, False),
        ((False, None), 2, 8, 0, {"mem_mib_per_cpu": 2000}, False),
        ((False, None), 2, 8, 1, {"mem_mib_per_cpu": 2000}, True),
        ((False, None), 1, 8, 1, {"mem_mib_per_cpu": 2000}, False),
    ],
)
def test_memory_per_cpu_is_unknown_where_slurm_gives_more_cpus(
    agent: AgentClient,
    cpus_per_core: int,
    cpus: int,
    threads: int,
    memory: dict[str, Any],
    sockets_of: tuple[bool, bool | None],
    *,
    skipped: bool,
) -> None:
    """Seen on 22.05: ``--gpus=4``, resized to two, had 1000 MiB instead of 32000 with CR_Socket_Memory.

    And 500 MiB instead of 2000 with two threads per core.
    """
    fields = RequestFields(min_cpus=cpus, min_nodes=1, gpus_per_node=4, **memory)
    needs = NodeNeeds(threads=threads)
    job = pending_job(7, begin_s=2000, tasks=1, fields=fields, admin_comment=TAG, needs=needs)
    tag = read_tag(job.admin_comment)
    assert tag is not None
    of_site, of_partition = sockets_of
    gpu = PartitionRecord(name="gpu", max_time_s=None, max_nodes=None, gives_sockets=of_partition)
    scheduling = SchedulingRules(gives_sockets=of_site)
    node = msgspec.structs.replace(NODE, sockets=2, cores=32, threads=2, cpus_per_core=cpus_per_core)
    without_gpus = msgspec.structs.replace(node, name="cpu1", devices=(), cpus_per_core=2)
    snapshot = Snapshot(1900.0, (job,), (node, without_gpus), {"gpu": gpu}, None, scheduling=scheduling)
    ((_, decision),) = decide([Candidate(job, tag, "enforce")], snapshot, ENFORCE, agent)
    assert (decision.skip_code == "memory-per-cpu") is skipped
