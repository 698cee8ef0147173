from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd import debian_slurm
from tests.systemd.systemd_container import Container

PROJECT = Path(__file__).resolve().parents[2]
# Bound to where ProtectHome does not hide them, wherever the checkout lies.
PROJECT_INSIDE = Path("/srv/rlalloc/project")
VENV_INSIDE = Path("/srv/rlalloc/venv")


def skip_unless_bootable() -> None:
    """Skip the test where no container with Slurm can be booted."""
    missing = [program for program in ("systemd-nspawn", "slurmctld", "mariadbd") if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")


def container_binds() -> dict[Path, Path]:
    """What containers see of this checkout and of its virtual environment."""
    return {PROJECT: PROJECT_INSIDE, Path(sys.prefix).resolve(): VENV_INSIDE}


@pytest.fixture(scope="session")
def slurm_container() -> Iterator[Container]:
    """A booted container in which Debian's Slurm runs, accounting and all."""
    skip_unless_bootable()
    with Container(binds=container_binds()) as container:
        debian_slurm.write_configuration(container)
        container.boot()
        debian_slurm.start(container)
        yield container


@pytest.fixture(scope="session")
def rlalloc_container(slurm_container: Container) -> Container:
    """The same, with rlalloc installed as on a site, and slurm.conf changed as the installation says."""
    container = slurm_container
    install = str(PROJECT_INSIDE / "scripts/install-site.sh")
    container.run(install, "--dependencies-from", str(VENV_INSIDE), limit_s=240)
    # The shipped file but for one word: what is shipped only watches.
    container.run("sed", "-i", "s/mode: shadow/mode: enforce/", "/etc/rlalloc/rlalloc.yaml")
    lines = (
        "JobSubmitPlugins=lua\nTaskProlog=/usr/lib/rlalloc/task_prolog\n"
        "TaskEpilog=/usr/lib/rlalloc/task_epilog\nAccountingStoreFlags=job_comment\n"
    )
    container.run("tee", "-a", "/etc/slurm/slurm.conf", text=lines)
    container.run("sacctmgr", "-i", "add", "user", "rlallocd", "account=root", "adminlevel=Admin")
    container.run("systemctl", "restart", "slurmctld", "slurmd")
    debian_slurm.wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle")
    container.run("rlalloc", "doctor", "--nodes", "all", check=False)  # from now on rlallocd resizes jobs there
    return container
