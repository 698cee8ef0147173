"""Requests that Slurm itself changes or hides: such a job keeps its size, so that it is as without rlalloc."""

import os
from collections.abc import Iterator

import pytest

from rlalloc.config import SlurmSection
from rlalloc.job import Shares
from rlalloc_testbed import USER, Installation, install, start_site
from rlallocd.slurm import connect
from slurm_testbed import Partition

from .scripted_agent import agent_that_answers

pytestmark = pytest.mark.slurm

LLM = "#!/bin/sh\n#SBATCH --time=10\n#RLALLOC gpus=1-8\n: torchrun train.py\n"
CAPPED = Partition("capped", default=False, options={"MaxMemPerCPU": "2000"})
FORCED = Partition("forced", default=False, options={"OverSubscribe": "FORCE:2"})


@pytest.fixture(scope="module")
def smallest() -> Iterator[Installation]:
    """A site where each job is to have its fewest GPUs, CPUs and MiB."""
    name = f"odd-requests-{os.getpid()}"
    with start_site(name, nodes=2, partitions=(Partition(), CAPPED, FORCED)) as site:
        installation = install(site, redecision={"max_updates": 0})
        with agent_that_answers(Shares(0.0, 0.0, 0.0), installation.runtime / "smallest.sock") as endpoint:
            installation.write_config(agent={"endpoint": endpoint, "deadline_s": 2.0})
            installation.start("rlallocd")
            yield installation
            installation.stop_all()


def test_a_job_that_gets_more_cpus_for_its_memory_keeps_its_size(smallest: Installation) -> None:
    """With MaxMemPerCPU. Of the first, 22.05 would give 6 CPUs back for its 4; of the next two, all give 8 for 4."""
    asked = (
        "-n2 --gres=gpu:2 -c2 --mem=9000",
        "-N1 --gpus=2 --cpus-per-gpu=2 --mem-per-gpu=8000",
        "--gpus=2 --mem-per-gpu=8000",
        "-n2 --gpus=2 -c2 --mem-per-cpu=5000",
    )
    there = "--partition=capped"
    job_ids = [smallest.submit(LLM, there, *options.split()) for options in asked]
    twins = [smallest.submit(LLM.replace("gpus=1-8", "off"), there, *options.split()) for options in asked]
    within = smallest.submit(LLM, there, "-n2", "--gres=gpu:2", "-c2", "--mem=8000")
    for job_id in job_ids:
        decision = smallest.decision(job_id)
        assert decision.skip_code == "limit"
        assert "MaxMemPerCPU of partition capped, 2000 MiB" in decision.reason
    assert smallest.decision(within).allocation is not None
    smallest.site.wait_for_states([*job_ids, *twins, within], {"COMPLETED"})
    given = [(smallest.job(job_id)["NumCPUs"], smallest.job(job_id)["TRES"]) for job_id in (*job_ids, *twins)]
    assert given[: len(asked)] == given[len(asked) :]


def test_an_exclusive_job_among_jobs_that_share_by_force_keeps_its_size(smallest: Installation) -> None:
    """Its record has OverSubscribe=YES: it was decided as one GPU, and held the node.

    rlalloc.lua does not defer it, so it may have ended before rlallocd looks.
    """
    size = ("--partition=forced", "-N1", "--gres=gpu:2", "-c2", "--mem=4000")
    exclusive, shares = smallest.submit(LLM, *size, "--exclusive"), smallest.submit(LLM, *size)
    assert ";skip=exclusive-force;" in smallest.job(exclusive)["AdminComment"]
    decided = smallest.decision(shares).allocation
    assert decided is not None
    assert decided.gpus == 1
    smallest.site.wait_for_states([exclusive, shares], {"COMPLETED"})
    assert "gres/gpu=8" in smallest.job(exclusive)["TRES"]
    assert "gres/gpu=1" in smallest.job(shares)["TRES"]


def test_a_job_with_a_burst_buffer_keeps_its_size(smallest: Installation) -> None:
    """Slurm takes --bb on a site without burst buffers, too."""
    job_id = smallest.submit(LLM, "-N1", "--gres=gpu:2", "-c2", "--mem=4000", "--bb=capacity=1G")
    assert smallest.decision(job_id).skip_code == "burst-buffer"
    smallest.site.wait_for_states([job_id], {"COMPLETED"})
    assert "gres/gpu=2" in smallest.job(job_id)["TRES"]


@pytest.mark.parametrize(
    ("option", "why"), [("--x11=batch", "unrecognized option"), ("--reboot", "only allowed for")]
)
def test_what_no_user_can_submit_as_a_batch_job(smallest: Installation, option: str, why: str) -> None:
    """22.05: X11 is for srun and salloc, which are never resized, and only administrators let nodes boot."""
    words = ("sbatch", "--time=5", "--gres=gpu:1", option, "--wrap=true")
    assert why in smallest.site.try_run(words, user=USER).error_output


def test_memory_that_nodes_keep_for_themselves_is_not_theirs_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """MemSpecLimit, which the JSON of 22.05 does not have."""
    with start_site(f"kept-memory-{os.getpid()}", nodes=1) as site:
        conf = site.etc / "slurm.conf"
        conf.write_text(conf.read_text().replace("RealMemory=512000", "RealMemory=512000 MemSpecLimit=12000"))
        for daemon in ("slurmctld", "slurmd-n1"):
            site.restart_daemon(daemon)
        site.wait_for_nodes()
        for name, value in site.environment().items():
            monkeypatch.setenv(name, value)
        (node,) = connect(SlurmSection()).nodes()
        assert node.mem_mib == 500_000
