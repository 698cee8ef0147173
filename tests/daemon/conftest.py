"""A site with rlalloc on it, one for each module of this folder that asks for it."""

import json
import os
from collections.abc import Iterator

import pytest

from rlalloc.config import load_config
from rlalloc.site_switch import FILE as SWITCH
from rlalloc_testbed import USER, Installation, install, start_site
from rlalloc_testbed.installation import PROGRAMS
from slurm_testbed import Site

MOLDABLE = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10
#RLALLOC gpus=1-2 cpus-per-gpu=2-8
#RLALLOC mem-per-gpu=8G-64G
: torchrun train.py
env
srun sh -c 'echo step-task $SLURM_PROCID of $SLURM_NTASKS gpus $CUDA_VISIBLE_DEVICES'
"""


@pytest.fixture(scope="module")  # it starts in seconds, and the modules run in parallel
def daemon_site() -> Iterator[Site]:
    conf = {"AccountingStoreFlags": "job_comment"}  # sacct has the comment of a job that ran out of GPU memory
    with start_site(f"daemon-{os.getpid()}", extra_slurm_conf=conf) as site:
        yield site


@pytest.fixture
def installed(daemon_site: Site) -> Iterator[Installation]:
    """A fresh installation of which nothing runs yet; the cluster is idle before and after."""
    installation = install(daemon_site)
    for path in daemon_site.directory.glob("store.sqlite*"):
        path.unlink()
    yield installation
    installation.stop_all()
    (installation.runtime / "intercept").unlink(missing_ok=True)
    (load_config(installation.config_path).policy.directory / SWITCH).unlink(missing_ok=True)
    daemon_site.run(["scancel", "--user", USER])


@pytest.fixture
def rlalloc(installed: Installation) -> Installation:
    """The same with agent and daemon running."""
    installed.start("rlalloc-agent")
    installed.start("rlallocd")
    return installed


def doctor(rlalloc: Installation, nodes: str) -> dict[str, str]:
    """The levels of what doctor finds."""
    words = ["doctor", "--json", "--nodes", nodes, "--config", str(rlalloc.config_path)]
    told = json.loads(rlalloc.site.try_run([PROGRAMS / "rlalloc", *words]).output)
    return {each["what"]: each["level"] for each in told["findings"]}
