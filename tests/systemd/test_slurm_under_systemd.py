"""Debian's Slurm under systemd in the container: what the other tests of this folder stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.systemd import debian_slurm
from tests.systemd.systemd_container import Container

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
    assert _processes_in_cgroup(name) == []
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


def test_a_killed_owner_takes_the_container_with_it() -> None:
    """After SIGKILL of its maker a container has no process left, and the next one removes what it left on disk."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program = (
        "import time; from tests.systemd.systemd_container import Container\n"
        "container = Container(hostname='orphan'); container.boot()\n"
        "print(container.folder, flush=True); time.sleep(60)"
    )
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert folder.is_dir()
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while (alive := _processes_in_cgroup(folder.name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive == []
    Container().close()
    assert not folder.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{folder.name}"))


def _processes_in_cgroup(name: str) -> list[str]:
    """Return the command lines of the processes whose cgroup's path has `name` in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if name in (process / "cgroup").read_text():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return found
