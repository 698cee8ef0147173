"""What scripts/install-site.sh says before it installs: on this machine, with parts hidden and nothing writable."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_torch_for_cpus import make_wheel

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
    done = installed_without(hidden)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert any("libgomp.so.1" in line and "apt-get install libgomp1" in line for line in lines)
    assert any("the command systemd-sysusers" in line for line in lines)
    assert "nothing was changed" in lines[-1]
    assert "Read-only file system" not in done.stderr


def test_a_virtual_environment_of_another_python_is_named(tmp_path: Path) -> None:
    done = installed_without([], "--dependencies-from", str(tmp_path))
    assert done.returncode == 1
    assert f"a virtual environment of the same version of Python in {tmp_path}" in done.stderr


def test_nothing_is_named_where_nothing_is_missing() -> None:
    """Then it goes on to its first change, which fails here."""
    done = installed_without([])
    assert done.returncode != 0
    assert "missing:" not in done.stderr
    assert "Read-only file system" in done.stderr


def changed_by(*shell: str, environment: dict[str, str] | None = None) -> tuple[int, str, list[str]]:
    """Run the script in a mount namespace, with /opt, /usr/lib/rlalloc, /etc and /var/tmp on overlays or in memory.

    Its status, what it said, and what it has changed there.
    """
    script = """
    set -e
    mount --make-rprivate /
    work=$(mktemp -d)
    mount -t tmpfs none "$work"
    for folder in /opt /etc /usr/lib; do
        mkdir -p "$work$folder/upper" "$work$folder/work"
        mount -t overlay -o "lowerdir=$folder,upperdir=$work$folder/upper,workdir=$work$folder/work" none $folder
    done
    mount -t tmpfs -o size=${SIZE:-2g} none /var/tmp
    before=$(find "$work"/opt/upper "$work"/etc/upper "$work"/usr/lib/upper | sort)
    eval "$PREPARE"
    prepared=$(find "$work"/opt/upper "$work"/etc/upper "$work"/usr/lib/upper -printf '%p %s\\n' | sort)
    status=0
    "$@" 2>&1 || status=$?
    after=$(find "$work"/opt/upper "$work"/etc/upper "$work"/usr/lib/upper -printf '%p %s\\n' | sort)
    echo "CHANGED"
    [ "$prepared" = "$after" ] || echo "$after"
    find /var/tmp -mindepth 1
    umount -l /var/tmp /usr/lib /etc /opt
    umount -l "$work"
    rmdir "$work"
    exit $status
    """
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(INSTALL), *shell]
    variables = {"RLALLOC_PYTHON": "/usr/bin/python3", "PREPARE": "true", **(environment or {})}
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, check=False
    )
    said, _, changed = done.stdout.partition("CHANGED\n")
    return done.returncode, said + done.stderr, changed.splitlines()


@pytest.mark.parametrize("options", [(), ("--uninstall",)])
def test_packages_are_left_alone(options: tuple[str, ...]) -> None:
    prepare = (
        "mkdir -p /usr/lib/rlalloc /opt/rlalloc/bin; touch /usr/lib/rlalloc/package_steps /opt/rlalloc/bin/python"
    )
    status, said, changed = changed_by(*options, environment={"PREPARE": prepare})
    assert (status, changed) == (1, []), said
    assert "rlalloc is installed by packages here" in said
    assert "Nothing was changed" in said


@pytest.mark.parametrize("missing", ["index", "room", "torch"])
def test_without_an_index_or_room_nothing_is_changed(tmp_path: Path, missing: str) -> None:
    """Neither is anything left aside."""
    environment = {"PREPARE": "mkdir -p /opt/rlalloc; echo old >/opt/rlalloc/program"}
    match missing:
        case "index":
            # pip finds what it builds with, and no more: PyTorch is not there.
            environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
            environment |= {"PIP_FIND_LINKS": str(tmp_path), "RLALLOC_TORCH": "torch==99"}
        case "room":
            environment |= {"SIZE": "20m"}
        case "torch":
            make_wheel(tmp_path, "2.13.0", "nvidia-cublas")
            environment |= {"RLALLOC_TORCH": str(tmp_path / "torch-2.13.0-py3-none-any.whl")}
            environment |= {"PIP_CONSTRAINT": os.devnull}
    status, said, changed = changed_by(environment=environment)
    assert (status, changed) == (1, []), said
    if missing == "room":
        assert "MB of disk space" in said
        assert "nothing was changed" in said
    if missing == "torch":
        assert "RLALLOC_TORCH_INDEX=URL" in said
