"""A site with nodes of two kinds: what rlalloc gives to a job can start where the job may run."""

import os
from collections.abc import Iterator

import pytest

from rlalloc_testbed import Installation, install, start_site
from slurm_testbed import NodeKind

pytestmark = pytest.mark.slurm

LLM = "#!/bin/sh\n#SBATCH --time=10\n#RLALLOC {words}\n: torchrun train.py\n"
V100 = NodeKind(4, gpus=4, gpu_type="v100", cpus=32, mem_mib=96_000, features=("feat",))
ENDED = {"COMPLETED"}


@pytest.fixture(scope="module")
def mixed() -> Iterator[Installation]:
    with start_site(f"mixed-{os.getpid()}", nodes=1, other_nodes=(V100,)) as site:
        installation = install(site)
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("gpus=1-8 mem-per-gpu=64G-64G", ("-N1", "--gres=gpu:v100:1", "-c8", "--mem=64G")),
        ("gpus=8-16", ("-N4", "--gpus-per-node=v100:4", "-c8", "--mem=8G")),
        ("gpus=1-4 mem-per-gpu=40G-80G", ("-N1", "--gpus-per-node=2", "-C", "feat", "-c8", "--mem=80G")),
        ("gpus=1-8", ("-N2", "--gpus-per-node=4", "-x", "n[1-3]", "-c8", "--mem=8G")),
    ],
)
def test_no_job_gets_a_size_that_no_node_for_it_has(
    mixed: Installation, words: str, options: tuple[str, ...]
) -> None:
    job_id = mixed.submit(LLM.format(words=words), *options)
    decision = mixed.decision(job_id)
    assert decision.reason == "" or "nodes for it" in decision.reason
    mixed.site.wait_for_states([job_id], ENDED)


def test_a_constraint_that_counts_is_left_alone(mixed: Installation) -> None:
    job_id = mixed.submit(LLM.format(words="gpus=1-8"), "-N2", "--gpus-per-node=4", "-C", "feat*2", "-c8", "--mem=8G")
    assert mixed.decision(job_id).skip_code == "constraint"
    mixed.site.wait_for_states([job_id], ENDED)
    assert mixed.job(job_id)["NumNodes"] == "2"
