"""A job's whole way on Slurm of another Debian release: plugin, update, TaskProlog, outcome.

These sites authenticate by auth/slurm, without munge; those of the submission forms have munge on the same release.
"""

import os
import re
from collections.abc import Iterator

import pytest

from rlalloc_testbed import Installation, install, start_site
from rlalloc_testbed.required_release import require
from slurm_testbed import wait_until

from .conftest import MOLDABLE, doctor

pytestmark = pytest.mark.slurm

RELEASES = ("trixie", *os.environ.get("RLALLOC_TEST_RELEASES", "").split())


KEPT = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-socket=1 --sockets-per-node=2 --ntasks=2 --mem=4000 --time=10 --export=NONE
#RLALLOC gpus=2
: torchrun train.py
echo $SLURM_GPUS_PER_SOCKET
"""
"""It keeps its size. Its PATH is a login's, with this machine's own Slurm, and the TaskProlog asks slurmctld."""


@pytest.fixture(params=RELEASES)
def elsewhere(request: pytest.FixtureRequest) -> Iterator[Installation]:
    """An installation at work on a site that runs that release's Slurm."""
    require(request.param)
    with start_site(f"way-{request.param}-{os.getpid()}", release=request.param, authentication="slurm") as site:
        installation = install(site, grace_s=60)
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


def test_a_job_is_decided_resized_and_run_and_its_outcome_kept(elsewhere: Installation) -> None:
    """Two nodes asked for, one given: the update, the script's environment, its steps and sacct all agree."""
    script = MOLDABLE.replace("--nodes=1 --gpus-per-node=4", "--nodes=2 --gpus-per-node=2")
    kept = elsewhere.submit(KEPT)
    job_id = elsewhere.submit(script)
    decision = elsewhere.decision(job_id)
    assert decision.reason == ""
    assert decision.allocation is not None
    size = decision.allocation
    assert decision.request is not None
    assert decision.request.gpus == 4
    assert size.gpus in (1, 2)
    elsewhere.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=120)

    application = elsewhere.application(decision)
    assert application is not None
    assert application.state == "begun", application.detail
    allocated = dict(word.split("=", 1) for word in elsewhere.job(job_id)["AllocTRES"].split(",") if "=" in word)
    wanted = {"node": size.nodes, "cpu": size.cpus, "gres/gpu": size.gpus}
    assert {name: int(allocated[name]) for name in wanted} == wanted
    output = elsewhere.output(job_id)
    for line in (
        f"SLURM_GPUS_PER_NODE={size.gpus_per_node}",
        f"SLURM_NTASKS={size.nodes * size.tasks_per_node}",
        f"SLURM_NNODES={size.nodes}",
        f"SLURM_CPUS_PER_TASK={size.cpus_per_task}",
        f"RLALLOC_GPUS={size.gpus}",
    ):
        assert f"\n{line}\n" in f"\n{output}"
    steps = re.findall(r"step-task \d+ of (\d+) gpus (\S+)", output)
    assert [(int(tasks), len(devices.split(","))) for tasks, devices in steps] == [
        (size.nodes * size.tasks_per_node, size.gpus_per_node)
    ] * (size.nodes * size.tasks_per_node)

    elsewhere.site.wait_for_states([kept], {"COMPLETED"}, timeout_s=120)
    assert elsewhere.output(kept) == "1\n"

    story = wait_until(
        lambda: (told := elsewhere.explain(job_id)) and told[0]["outcome"] and told,
        what="the outcome is kept",
        timeout_s=120,
    )
    assert story[0]["outcome"]["state"] == "COMPLETED"
    assert story[0]["outcome"]["gpus"] == size.gpus
    assert "auth/slurm" in elsewhere.site.run(["scontrol", "show", "config"])
    assert "munged" not in elsewhere.site.daemon_names
    found = doctor(elsewhere, "all")
    assert {found[what] for what in ("slurmctld", "accounting", "clock", "plugin", "node n1", "node n2")} == {"OK"}
