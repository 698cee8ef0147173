"""A script's model on a real Slurm: from sbatch through rlalloc.lua's words to the bounds that ``explain`` shows."""

import os
from collections.abc import Iterator

import pytest

from rlalloc_cli.site_nodes import SiteSlurm, node_gpus
from rlalloc_testbed import Installation, install, start_site

pytestmark = pytest.mark.slurm

OPTIONS = ("--nodes=1", "--gpus-per-node=8", "--ntasks-per-node=1", "--cpus-per-task=32", "--mem=200G", "--time=10")
SEVEN_BILLION = """#!/bin/sh
#RLALLOC gpus=1-8
MODEL=meta-llama/Llama-2-7b-hf
: torchrun --standalone --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --model_name_or_path $MODEL --bf16 \\
    --fsdp "full_shard auto_wrap" --gradient_checkpointing True --max_seq_length 2048
sleep 30  # a job that ends before the next cycle is not decided
"""
SERVER = """#!/bin/sh
#RLALLOC gpus=1-8
: vllm serve Qwen/Qwen2.5-72B-Instruct --tensor-parallel-size $SLURM_GPUS_ON_NODE --max-model-len 32768
sleep 30
"""


@pytest.fixture(scope="module")
def shadow() -> Iterator[Installation]:
    with start_site(f"needs-{os.getpid()}") as site:
        installation = install(site, mode="shadow")
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


@pytest.mark.parametrize(("script", "counts"), [(SEVEN_BILLION, (2, 4, 8)), (SERVER, (4, 8))])
def test_the_model_raises_the_least_count(shadow: Installation, script: str, counts: tuple[int, ...]) -> None:
    """The site's nodes have ``gpu:a100:8``: 80 GiB each."""
    decision = shadow.decision(shadow.submit(script, *OPTIONS))
    assert decision.bounds is not None, decision.reason
    assert decision.bounds.gpu_counts == counts
    assert decision.bounds.gpus.minimum_from == "model"


def test_check_asks_slurm_for_the_nodes(shadow: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the commands that every user may run."""
    for name, value in shadow.site.environment().items():
        monkeypatch.setenv(name, value)
    site = SiteSlurm()
    assert node_gpus(site, "", None)[:2] == (8, "the largest of the site")
    unknown = node_gpus(site, "--partition=none", None)
    assert unknown.source.startswith("assumed, since partition none has no such node")
