"""Jobs whose CPUs or memory Slurm works out from their GPUs (DefCpuPerGPU, DefMemPerGPU) run as submitted."""

from collections.abc import Iterator

import pytest

from rlalloc.store import Decision
from rlallocd.agent_client import AgentClient
from rlallocd.candidates import Candidate
from rlallocd.decisions import Snapshot, decide
from rlallocd.job_tag import read_tag
from rlallocd.slurm import JobRecord, RequestFields

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


def decided(agent: AgentClient, job: JobRecord, gpu_defaults: frozenset[str]) -> Decision:
    tag = read_tag(job.admin_comment)
    assert tag is not None
    snapshot = Snapshot(TAKEN_S, (job,), (NODE,), {}, None, gpu_defaults=gpu_defaults)
    ((_, decision),) = decide([Candidate(job, tag, "enforce")], snapshot, ENFORCE, agent)
    return decision


@pytest.mark.parametrize(
    ("key", "gpu_defaults", "skipped"),
    [
        (";unset=", {"cpus", "mem"}, False),
        (";unset=mem", {"cpus"}, False),
        (";unset=mem", {"cpus", "mem"}, True),
        ("", {"cpus"}, True),
        ("", {"mem"}, True),
        ("", set(), False),
    ],
)
def test_what_a_tag_does_not_tell_may_have_been_left_to_slurm(
    agent: AgentClient, key: str, gpu_defaults: set[str], *, skipped: bool
) -> None:
    """A job that is pending at an upgrade has the tag of the rlalloc.lua of before."""
    job = pending_job(7, begin_s=2000, admin_comment=TAG + key)
    assert (decided(agent, job, frozenset(gpu_defaults)).skip_code == "gpu-defaults") is skipped


def test_a_job_that_names_its_cpus_per_gpu_is_told_what_slurm_would_do(agent: AgentClient) -> None:
    """Seen on 22.05: it has the CPUs that it names, until an update sets one CPU per task."""
    named = RequestFields(min_cpus=1, min_nodes=1, cpus_per_gpu=2, gpus_per_node=8)
    job = pending_job(7, begin_s=2000, fields=named, tasks=1, admin_comment=f"{TAG};unset=cpus")
    decision = decided(agent, job, frozenset({"cpus"}))
    assert decision.skip_code == "gpu-defaults"
    assert "a job with --cpus-per-gpu and without --cpus-per-task" in decision.reason
