"""What scripts/install-site.sh says before it installs: on this machine, with parts hidden and nothing writable."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "scripts" / "install-site.sh"
pytestmark = [
    pytest.mark.systemd,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None or ctypes.util.find_library("gomp") is None,
        reason="needs root, unshare and libgomp1",
    ),
]


def installed_without(hidden: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run it in a mount namespace in which files are hidden and the root directory is read-only."""
    script = """
    set -e
    mount --make-rprivate /
    for file in $HIDDEN; do mount --bind /dev/null "$file"; done
    mount --bind / / && mount -o remount,bind,ro /
    mount -t tmpfs -o ro,mode=1777 none /tmp
    exec "$@"
    """
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(INSTALL), *options]
    environment = {**os.environ, "HIDDEN": " ".join(hidden), "RLALLOC_PYTHON": "/usr/bin/python3"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def library(name: str) -> list[str]:
    """The files that the loader takes for a library."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = [Path(line.rpartition(" => ")[2]).resolve() for line in cache.splitlines() if line.split()[:1] == [name]]
    return [str(path) for path in dict.fromkeys(found)]


def test_every_missing_prerequisite_is_named_and_nothing_is_changed() -> None:
    sysusers = shutil.which("systemd-sysusers")
    hidden = [*library("libgomp.so.1"), *([sysusers] if sysusers else [])]
    done = installed_without(hidden, "--slurm-user", "nobody-of-that-name")
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert any("libgomp.so.1" in line and "apt-get install libgomp1" in line for line in lines)
    assert any("the command systemd-sysusers" in line for line in lines)
    assert any("a user nobody-of-that-name" in line for line in lines)
    assert "nothing was changed" in lines[-1]
    assert "Read-only file system" not in done.stderr


def test_a_virtual_environment_of_another_python_is_named(tmp_path: Path) -> None:
    done = installed_without([], "--slurm-user", "root", "--dependencies-from", str(tmp_path))
    assert done.returncode == 1
    assert f"a virtual environment of the same version of Python in {tmp_path}" in done.stderr


def test_nothing_is_named_where_nothing_is_missing() -> None:
    """Then it goes on to its first change, which fails here."""
    done = installed_without([], "--slurm-user", "root")
    assert done.returncode != 0
    assert "missing:" not in done.stderr
    assert "Read-only file system" in done.stderr
