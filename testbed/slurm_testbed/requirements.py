"""Which programs a site needs, and which Debian package has each."""

from __future__ import annotations

import os
import re
import shutil

from .external_commands import run_command
from .testbed_errors import MissingSoftwareError, NotPermittedError

PACKAGE_OF_PROGRAM = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "sacctmgr": "slurm-client",
    "sinfo": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
    "mariadb": "mariadb-client-core",
    "setsid": "util-linux",
    "mount": "mount",
    "useradd": "passwd",
    "userdel": "passwd",
}
SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def search_path() -> str:
    """PATH of this process with the system's directories appended where it lacks them."""
    entries = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys([*entries, *SYSTEM_DIRECTORIES]))


def check_requirements(path: str | None = None) -> None:
    """Raise MissingSoftwareError or NotPermittedError when a site cannot work here, with programs from `path`."""
    path = path or search_path()
    missing = [name for name in PACKAGE_OF_PROGRAM if shutil.which(name, path=path) is None]
    if missing:
        packages = sorted({PACKAGE_OF_PROGRAM[name] for name in missing})
        raise MissingSoftwareError(
            f"not installed: {', '.join(missing)}. Install with:\n"
            f"  apt-get install --no-install-recommends {' '.join(packages)}"
        )
    if os.geteuid() != 0:
        raise NotPermittedError("a site needs root (several users, devices): run this with sudo")


def slurm_version(path: str) -> tuple[int, int]:
    """Major and minor version of the slurmctld in `path`, as (22, 5)."""
    text = run_command(["slurmctld", "-V"], timeout_s=10, environment={"PATH": path})
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None:
        raise MissingSoftwareError(f"slurmctld -V says {text.strip()!r}, which has no version in it")
    return int(found[1]), int(found[2])
