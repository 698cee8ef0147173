"""Jobs whose CPUs or memory Slurm works out from their GPUs (DefCpuPerGPU, DefMemPerGPU) run as submitted."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rlalloc.store import Decision
from rlalloc_cli.explain import as_asked
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.slurm import GpuDefaults, JobRecord, PartitionRecord, RequestFields
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag

from .slurm_in_memory import NODE
from .test_redecision_rules import pending_job
from .test_request_sizes_and_tags import ENFORCE, TAG

TAKEN_S = 1900.0
"""Before the end of the job's grace."""


@pytest.fixture
def agent() -> Iterator[AgentClient]:
    agent = AgentClient("ipc:///nowhere", 0.01)
    yield agent
    agent.close()


def decided(agent: AgentClient, job: JobRecord, *gpu_defaults: GpuDefaults) -> Decision:
    """``gpu_defaults`` are the site's, and those of partitions."""
    tag = read_tag(job.admin_comment)
    assert tag is not None
    of_site, *others = gpu_defaults
    partitions = {
        name: partition(name, gpu_defaults=each) for name, each in zip(("gpu", "all"), others, strict=False)
    }
    snapshot = Snapshot(TAKEN_S, (job,), (NODE,), partitions, None, gpu_defaults=of_site)
    ((_, decision),) = decide([Candidate(job, tag, "enforce")], snapshot, ENFORCE, agent)
    return decision


def partition(name: str, **changes: Any) -> PartitionRecord:
    return PartitionRecord(name=name, max_time_s=None, max_nodes=None, **changes)


@pytest.mark.parametrize(
    ("key", "gpu_defaults", "skipped"),
    [
        (";unset=", GpuDefaults(2, 3000), False),
        (";unset=mem", GpuDefaults(cpus=2), False),
        (";unset=of-a-later-version", GpuDefaults(2, 3000), False),
        (";unset=mem", GpuDefaults(2, 3000), True),
        ("", GpuDefaults(cpus=2), True),
        ("", GpuDefaults(mem_mib=3000), True),
        ("", GpuDefaults(), False),
    ],
)
def test_what_a_tag_does_not_tell_may_have_been_left_to_slurm(
    agent: AgentClient, key: str, gpu_defaults: GpuDefaults, *, skipped: bool
) -> None:
    """A job that is pending at an upgrade has the tag of the rlalloc.lua of before."""
    job = pending_job(7, begin_s=2000, admin_comment=TAG + key)
    assert (decided(agent, job, gpu_defaults).skip_code == "gpu-defaults") is skipped


def test_the_reason_names_what_slurm_will_add(agent: AgentClient) -> None:
    """Of each of the job's partitions, whose own defaults come before those of slurm.conf."""
    job = pending_job(7, begin_s=2000, partition="gpu,all", admin_comment=f"{TAG};unset=cpus+mem")
    site, own = GpuDefaults(2, 3000), GpuDefaults(cpus=8)
    decision = decided(agent, job, site)
    assert "DefCpuPerGPU=2, DefMemPerGPU=3000;" in decision.reason
    assert as_asked(decision) == f"{decision.request.describe()}, before Slurm's defaults for each GPU (below)"
    assert "DefCpuPerGPU=2 or 8, DefMemPerGPU=3000;" in decided(agent, job, site, GpuDefaults(), own).reason
    only_mem = msgspec.structs.replace(job, admin_comment=f"{TAG};unset=mem")
    assert ": DefMemPerGPU=3000;" in decided(agent, only_mem, site, own).reason


def test_a_job_that_names_its_cpus_per_gpu_is_told_what_slurm_would_do(agent: AgentClient) -> None:
    """Seen on 22.05: it has the CPUs that it names, until an update sets one CPU per task."""
    named = RequestFields(min_cpus=1, min_nodes=1, cpus_per_gpu=2, gpus_per_node=8)
    job = pending_job(7, begin_s=2000, fields=named, tasks=1, admin_comment=f"{TAG};unset=cpus")
    decision = decided(agent, job, GpuDefaults(2, 3000))
    assert decision.skip_code == "cpus-per-gpu"
    assert "a job with --cpus-per-gpu and without --cpus-per-task" in decision.reason
