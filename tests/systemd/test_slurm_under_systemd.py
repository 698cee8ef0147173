"""Debian's Slurm under systemd in the container: what the other tests of this folder stand on."""

from __future__ import annotations

import os
from pathlib import Path

import debian_slurm
import pytest
from systemd_container import Container

pytestmark = pytest.mark.systemd


def test_an_ordinary_users_job_runs_with_its_gpus_and_is_accounted(slurm_container: Container) -> None:
    """An ordinary user runs sbatch: the job gets its GPUs, srun works in it, sacct has its allocation."""
    job = debian_slurm.submit(
        slurm_container,
        "#!/bin/bash\necho $SLURM_GPUS_ON_NODE >out\nsrun hostname >>out\n",
        "--gpus-per-node=2",
        "--cpus-per-task=4",
    )
    query = ("sacct", "-n", "-X", "-P", "-o", "State,User,AllocTRES", "-j", str(job))
    row = debian_slurm.wait_for(slurm_container, *query, expect="COMPLETED")
    assert debian_slurm.USER in row
    assert "gres/gpu=2" in row
    assert slurm_container.run("cat", f"/home/{debian_slurm.USER}/out").stdout == "2\nrlalloc-test\n"


def test_the_container_has_a_network_of_its_own(slurm_container: Container) -> None:
    """Only a loopback: its Slurm's default ports cannot meet those of another site on this machine."""
    devices = slurm_container.run("cat", "/proc/net/dev").stdout.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]


def test_a_closed_container_leaves_nothing_behind() -> None:
    """No folder, mount, process or cgroup is left once a container is closed."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with Container(hostname="short-lived") as container:
        container.boot()
        name = container.folder.name
        assert container.run("cat", "/proc/1/comm").stdout == "systemd\n"
    assert not container.folder.exists()
    assert name not in Path("/proc/mounts").read_text()
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in command_lines if name.encode() in line]
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))
