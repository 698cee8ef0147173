"""The RPMs on a booted machine, by Debian's rpm: what their scripts do when they are installed, upgraded and removed.

No machine of the RHEL family: the libraries are those of a virtual environment, and rpm checks no dependencies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd import built_packages
from tests.systemd.conftest import VENV_INSIDE, container_binds
from tests.systemd.systemd_container import Container

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("packages")]

RPMS, NEXT_RPMS, LIBRARIES = Path("/srv/rpms"), Path("/srv/next-rpms"), Path("/srv/libraries")
NAMES = ("rlalloc", "rlalloc-agent", "rlalloc-trainer", "rlalloc-node")
UNITS = ("rlallocd.service", "rlalloc-agent.service", "rlalloc-train.timer")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Folders of RPMs, and where the container has them."""
    if not os.environ.get("RLALLOC_TEST_PACKAGES"):
        pytest.skip("builds packages twice: make test-packages")
    missing = [name for name in ("rpm", "rpmbuild", "systemd-nspawn") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")
    folder = tmp_path_factory.mktemp("rpms")
    these, following, libraries, wheels = (folder / name for name in ("these", "following", "libraries", "wheels"))
    built_packages.fill_wheels(wheels)
    built_packages.build(built_packages.PROJECT, wheels, these, "rpm")
    built_packages.copy_as_next_version(folder / "next-project")
    built_packages.build(folder / "next-project", wheels, following, "rpm")
    libraries.mkdir()
    built_packages.borrow_libraries(VENV_INSIDE, folder, libraries)
    return {these: RPMS, following: NEXT_RPMS, libraries: LIBRARIES}


@pytest.fixture(scope="module")
def machine(built: dict[Path, Path]) -> Iterator[Container]:
    """A booted machine with the libraries and a slurm.conf, and without rlalloc."""
    with Container(hostname="rpm-test", binds={**built, **container_binds()}) as container:
        container.boot()
        container.run("sh", "-c", f"dpkg -i {LIBRARIES}/*.deb", limit_s=100)
        container.run("sh", "-c", "mkdir -p /etc/slurm; rm -f /etc/slurm/job_submit.lua; echo >/etc/slurm/slurm.conf")
        yield container


def rpm(container: Container, *words: str, check: bool = True) -> str:
    """What rpm says; Debian's wants to be told that it is meant."""
    command = f"rpm --force-debian {' '.join(words)} 2>&1"
    return container.run("sh", "-c", command, limit_s=200, check=check).stdout


def test_an_installation_by_the_script_is_refused(machine: Container) -> None:
    machine.run("touch", "/opt/rlalloc/bin/pip")
    said = rpm(machine, "-i", "--nodeps", f"{RPMS}/*.rpm", check=False)
    assert said.count("Run scripts/install-site.sh --uninstall first") == len(NAMES)
    assert rpm(machine, "-qa", "'rlalloc*'") == ""
    machine.run("rm", "/opt/rlalloc/bin/pip")


def test_rpms_start_nothing(machine: Container) -> None:
    said = rpm(machine, "-i", "--nodeps", f"{RPMS}/*.rpm")
    assert "Nothing was started, and slurm.conf was not changed" in said
    assert "copied job_submit.lua to /etc/slurm" in said
    assert sorted(rpm(machine, "-qa", "--qf", "'%{NAME}\\n'", "'rlalloc*'").split()) == sorted(NAMES)
    for unit in UNITS:
        assert machine.run("systemctl", "is-active", unit, check=False).stdout == "inactive\n"
    modes = ("stat", "-c", "%a %U %G", "/etc/rlalloc", "/etc/rlalloc/rlalloc.yaml", "/var/lib/rlalloc")
    assert machine.run(*modes).stdout.splitlines() == [
        "750 root rlalloc",
        "640 root rlalloc",
        "2770 rlallocd rlalloc",
    ]
    for section, page in (("1", "rlalloc"), ("5", "rlalloc.yaml"), ("8", "rlallocd"), ("8", "rlalloc-agent")):
        place = f"/usr/share/man/man{section}/{page}.{section}.gz"
        assert machine.run("man", "-w", section, page).stdout == f"{place}\n"
    for place in ("bash-completion/completions/rlalloc", "zsh/site-functions/_rlalloc"):
        machine.run("test", "-s", f"/usr/share/{place}")
    assert machine.run("rlalloc", "--version").stdout.split()[1] != built_packages.NEXT


def test_an_upgrade_restarts_what_ran_and_says_so(machine: Container) -> None:
    machine.run("sh", "-c", "echo '# ours' >>/etc/rlalloc/rlalloc.yaml")
    machine.run("systemctl", "enable", "--now", *UNITS, limit_s=200)
    said = rpm(machine, "-U", "--nodeps", f"{NEXT_RPMS}/*.rpm")
    for unit in UNITS:
        assert f"stopped {unit} for the upgrade" in said
        assert f"started {unit} again" in said
        assert machine.run("systemctl", "is-active", unit).stdout == "active\n"
        assert machine.run("systemctl", "is-enabled", unit).stdout == "enabled\n"
    assert "touched /etc/slurm/job_submit.lua" in said
    assert '"On upgrade" in /usr/share/doc/rlalloc/CHANGELOG.md' in said
    assert machine.run("rlalloc", "--version").stdout.split()[1] == built_packages.NEXT
    assert machine.run("tail", "-n1", "/etc/rlalloc/rlalloc.yaml").stdout == "# ours\n"
    modes = ("stat", "-c", "%a %U %G", "/etc/rlalloc", "/etc/rlalloc/rlalloc.yaml")
    assert machine.run(*modes).stdout.splitlines() == ["750 root rlalloc", "640 root rlalloc"]


def test_a_removal_keeps_the_configuration_and_the_store(machine: Container) -> None:
    said = rpm(machine, "-e", *NAMES)
    assert "stopped rlallocd.service: jobs that waited for it start as submitted" in said
    assert rpm(machine, "-qa", "'rlalloc*'") == ""
    for unit in UNITS:
        assert machine.run("systemctl", "cat", unit, check=False).returncode != 0
    for gone in ("/usr/lib/rlalloc", "/usr/share/doc/rlalloc", "/usr/bin/rlalloc"):
        assert machine.run("find", gone, "!", "-type", "d", check=False).stdout == ""
    ours = "find /opt/rlalloc -type f ! -name '*.pth' ! -name pyvenv.cfg"
    assert machine.run("sh", "-c", ours).stdout == ""
    for kept in ("/etc/rlalloc/rlalloc.yaml.rpmsave", "/var/lib/rlalloc/store.sqlite"):
        machine.run("test", "-e", kept)
