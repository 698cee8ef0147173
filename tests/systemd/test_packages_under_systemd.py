"""The Debian packages on a booted site without a network: install, upgrade, downgrade, removal with jobs queued.

The tests run in their order, each on what the one before has left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd import built_packages, debian_slurm
from tests.systemd.conftest import PROJECT_INSIDE, VENV_INSIDE, container_binds
from tests.systemd.documented_steps import follow, steps
from tests.systemd.systemd_container import Container
from tests.systemd.test_rlalloc_under_systemd import INTERCEPTS, MOLDABLE, _explain

pytestmark = [pytest.mark.systemd, pytest.mark.xdist_group("packages")]

PACKAGES = Path("/srv/packages")
NEXT_PACKAGES = Path("/srv/next-packages")
NEXT_LIBRARIES = Path("/srv/next-libraries")
UNPACKABLE = Path("/srv/unpackable")
SCRIPT = str(PROJECT_INSIDE / "scripts/install-site.sh")
UNITS = ("rlallocd.service", "rlalloc-agent.service", "rlalloc-train.timer")
SLURM_CONF = "/etc/slurm/slurm.conf"
PROLOG = "/usr/lib/rlalloc/task_prolog"
CHECKSUMS = "find /opt/rlalloc /usr/lib/rlalloc /etc/rlalloc -type f -exec sha256sum {} + | sort | sha256sum"
LASTING = "#!/bin/bash\n#SBATCH --job-name=lasting --gpus-per-node=4\nwhile [ ! -e end ]; do sleep 0.2; done\n"
WAITING = MOLDABLE.replace("exec torchrun", ": torchrun") + "srun hostname >out.$SLURM_JOB_ID\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """Folders of packages, and where the container has them."""
    if not os.environ.get("RLALLOC_TEST_PACKAGES"):
        pytest.skip("builds packages twice: make test-packages")
    missing = [name for name in ("dpkg-buildpackage", "dh", "systemd-nspawn", "slurmctld") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}")
    folder = tmp_path_factory.mktemp("packages")
    these, following, wheels = folder / "these", folder / "following", folder / "wheels"
    built_packages.fill_wheels(wheels)
    built_packages.build(built_packages.PROJECT, wheels, these)
    built_packages.copy_as_next_version(folder / "next-project")
    built_packages.build(folder / "next-project", wheels, following)
    built_packages.add_libraries(VENV_INSIDE, folder, these)
    raised, unpackable = folder / "raised-package", folder / "unpackable-package"
    (library,) = these.glob("rlalloc-libs_*.deb")
    built_packages.raise_version(library, "99.2", folder, raised)
    built_packages.make_unpackable(folder, unpackable)
    return {these: PACKAGES, following: NEXT_PACKAGES, raised: NEXT_LIBRARIES, unpackable: UNPACKABLE}


@pytest.fixture(scope="module")
def site(built: dict[Path, Path]) -> Iterator[Container]:
    """A booted site without rlalloc."""
    binds = {**built, **container_binds()}
    with Container(hostname="packages-test", binds=binds) as container:
        debian_slurm.write_configuration(container)
        container.boot()
        debian_slurm.start(container)
        yield container


def install(container: Container, folder: Path, *options: str, check: bool = True) -> str:
    """`apt-get install` as the guide has it; what it said."""
    command = f"DEBIAN_FRONTEND=noninteractive apt-get install -y {' '.join(options)} {folder}/*.deb 2>&1"
    return container.run("sh", "-c", command, limit_s=400, check=check).stdout


def field(container: Container, job: int, name: str) -> str:
    """One field of `scontrol show job`."""
    words = container.run("scontrol", "show", "job", str(job)).stdout.split()
    return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


def now(container: Container) -> str:
    """The time there, as Slurm writes it."""
    return container.run("date", "+%Y-%m-%dT%H:%M:%S").stdout.strip()


def version(container: Container) -> str:
    """What `rlalloc --version` and the running daemon say, which must be the same."""
    said = container.run("rlalloc", "--version").stdout.split()[1]
    debian_slurm.wait_for(container, "rlalloc", "status", expect=f"version {said}")
    return said


def test_an_installation_by_the_script_is_refused_and_works_on(site: Container) -> None:
    """Until the script has removed it; its configuration stays, as docs/admin/upgrade.md says."""
    site.run(SCRIPT, "--dependencies-from", str(VENV_INSIDE), limit_s=240)
    site.run("sh", "-c", "echo '# of the script' >>/etc/rlalloc/rlalloc.yaml")
    before = site.run("sh", "-c", CHECKSUMS).stdout
    said = install(site, PACKAGES, check=False)
    assert "Run scripts/install-site.sh --uninstall first" in said
    assert "Nothing was changed" in said
    assert site.run("sh", "-c", CHECKSUMS).stdout == before
    known = site.run("dpkg-query", "-W", "-f", "${db:Status-Status}\n", "rlalloc*", check=False).stdout.split()
    assert set(known) <= {"not-installed"}
    assert steps("upgrade.md", "From the script to packages", "apt-get")[0] == "scripts/install-site.sh --uninstall"
    site.run(SCRIPT, "--uninstall")


def test_packages_start_nothing_and_need_no_network(site: Container) -> None:
    devices = site.run("cat", "/proc/net/dev").stdout.splitlines()[2:]
    assert [line.split(":")[0].strip() for line in devices] == ["lo"]
    before = site.run("sha256sum", SLURM_CONF).stdout
    said = install(site, PACKAGES, "-o Dpkg::Options::=--force-confold")
    assert "Nothing was started, and slurm.conf was not changed" in said
    assert site.run("sha256sum", SLURM_CONF).stdout == before
    for unit in UNITS:
        assert site.run("systemctl", "is-active", unit, check=False).stdout == "inactive\n"
        assert site.run("systemctl", "is-enabled", unit, check=False).stdout != "enabled\n"
    modes = ("stat", "-c", "%a %U %G", "/etc/rlalloc", "/etc/rlalloc/rlalloc.yaml", "/var/lib/rlalloc")
    assert site.run(*modes).stdout.splitlines() == ["750 root rlalloc", "640 root rlalloc", "2770 rlallocd rlalloc"]
    assert site.run("grep", "-c", "^mode: shadow", "/etc/rlalloc/rlalloc.yaml").stdout == "1\n"
    assert site.run("tail", "-n1", "/etc/rlalloc/rlalloc.yaml").stdout == "# of the script\n"
    verified = site.run("systemd-analyze", "verify", *UNITS, "rlalloc-train.service", check=False)
    assert [line for line in (verified.stdout + verified.stderr).splitlines() if "rlalloc" in line] == []
    program = "import rlalloc, rlallocd, rlalloc_agent, rlalloc_trainer; print(rlalloc.__file__)"
    assert site.run("/opt/rlalloc/bin/python", "-c", program).stdout.startswith("/opt/rlalloc/lib/")


def test_man_finds_the_pages_and_bash_completes(site: Container) -> None:
    for section, page in (("1", "rlalloc"), ("5", "rlalloc.yaml"), ("8", "rlallocd"), ("8", "rlalloc-agent")):
        place = f"/usr/share/man/man{section}/{page}.{section}.gz"
        assert site.run("man", "-w", section, page).stdout == f"{place}\n"
    script = """
    . /usr/share/bash-completion/completions/rlalloc
    COMP_WORDS=(rlalloc pol); COMP_CWORD=1; _rlalloc_completion rlalloc; echo "${COMPREPLY[*]}"
    """
    assert site.run("bash", "-ec", script).stdout == "policy\n"
    for place in ("zsh/vendor-completions/_rlalloc", "fish/vendor_completions.d/rlalloc.fish"):
        site.run("test", "-s", f"/usr/share/{place}")


def test_the_packaged_programs_decide_a_job(site: Container) -> None:
    """Slurm connected as the guide says; the file's mode set to enforce."""
    site.run("tee", "-a", SLURM_CONF, text=f"JobSubmitPlugins=lua\nTaskProlog={PROLOG}\n")
    follow(site, steps("install.md", "2. Connect Slurm", "sacctmgr"))
    site.run("sed", "-i", "s/^mode: .*/mode: enforce/", "/etc/rlalloc/rlalloc.yaml")
    site.run("systemctl", "restart", "slurmctld", "slurmd")
    debian_slurm.wait_for(site, "sinfo", "-h", "-o", "%T", expect="idle")
    # rlalloc-node.service has started with slurmd.
    debian_slurm.wait_for(site, "scontrol", "show", "node", "n1", expect="rlalloc-task-prolog@")
    follow(site, steps("upgrade.md", "From the script to packages", "apt-get")[2:])  # config check, and the start
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    job = debian_slurm.submit(site, WAITING)
    assert _explain(site, job)["decision"]["policy_version"]
    debian_slurm.wait_for(site, "sacct", "-nXP", "-o", "State", "-j", str(job), expect="COMPLETED")
    assert site.run("cat", f"/home/ada/out.{job}").stdout.split() == ["packages-test"]


@pytest.fixture(scope="module")
def jobs(site: Container) -> tuple[int, int]:
    """One job that runs on all GPUs until it is told to end, one that waits for them."""
    lasting = debian_slurm.submit(site, LASTING)
    debian_slurm.wait_for(site, "squeue", "-h", "-j", str(lasting), "-o", "%T", expect="RUNNING")
    waiting = debian_slurm.submit(site, WAITING)
    _explain(site, waiting)
    return lasting, waiting


def unharmed(container: Container, jobs: tuple[int, int]) -> None:
    """Both are where they were: never requeued, cancelled or held."""
    for job, state in zip(jobs, ("RUNNING", "PENDING"), strict=True):
        assert field(container, job, "JobState") == state
        assert field(container, job, "Restarts") == "0"
    assert field(container, jobs[1], "Reason") not in {"JobHeldAdmin", "JobHeldUser"}
    assert field(container, jobs[1], "Priority") != "0"


def restarted(said: str, site: Container, units: tuple[str, ...] = UNITS) -> None:
    """These were stopped and started again, in the packages' words, and run."""
    for unit in units:
        assert f"stopped {unit} for the upgrade" in said
        assert f"started {unit} again" in said
        assert site.run("systemctl", "is-active", unit).stdout == "active\n"
        assert site.run("systemctl", "is-enabled", unit).stdout == "enabled\n"
    assert said.index("stopped rlallocd.service") < said.index("stopped rlalloc-agent.service")
    assert site.run("ls", "/run/rlalloc-packages", check=False).stdout == ""


def test_replaced_libraries_restart_what_imports_them(site: Container, jobs: tuple[int, int]) -> None:
    """Rlallocd does not import modules of two versions: it stops before the first file is replaced."""
    said = install(site, NEXT_LIBRARIES)
    assert said.index("stopped rlallocd.service") < said.index("Unpacking rlalloc-libs")
    assert said.index("started rlallocd.service") > said.index("Setting up rlalloc-libs")
    restarted(said, site)
    unharmed(site, jobs)


def test_libraries_that_cannot_be_unpacked_leave_everything_running(site: Container, jobs: tuple[int, int]) -> None:
    said = site.run("sh", "-c", f"dpkg -i {UNPACKABLE}/*.deb 2>&1", limit_s=200, check=False).stdout
    assert "trying to overwrite '/usr/bin/env'" in said
    restarted(said, site)
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    unharmed(site, jobs)


def test_a_removal_that_fails_leaves_everything_running(site: Container, jobs: tuple[int, int]) -> None:
    """As where a script of ours, or of a trigger, fails after the daemon was stopped."""
    script = "/var/lib/dpkg/info/rlalloc.prerm"
    site.run("cp", "-p", script, "/root/prerm")
    site.run("sh", "-c", f"echo exit 1 >>{script}")
    done = site.run("sh", "-c", "dpkg --force-depends --remove rlalloc 2>&1", limit_s=200, check=False)
    site.run("cp", "-p", "/root/prerm", script)
    assert done.returncode != 0
    assert "stopped rlallocd.service" in done.stdout
    assert "started rlallocd.service again" in done.stdout
    assert site.run("systemctl", "is-enabled", "rlallocd").stdout == "enabled\n"
    assert site.run("dpkg-query", "-W", "-f", "${db:Status-Status}", "rlalloc").stdout == "installed"
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    unharmed(site, jobs)


def test_an_upgrade_restarts_what_ran_and_says_so(site: Container, jobs: tuple[int, int]) -> None:
    this = version(site)
    site.run("sh", "-c", "echo '# ours' >>/etc/rlalloc/rlalloc.yaml")
    follow(site, steps("upgrade.md", "Back up the store", "cp -a"))
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    said = follow(site, steps("upgrade.md", "Upgrade", "apt-get"), NEXT_PACKAGES)
    restarted(said, site)
    assert "touched /etc/slurm/job_submit.lua" in said
    assert '"On upgrade" in /usr/share/doc/rlalloc/CHANGELOG.md' in said
    assert version(site) == built_packages.NEXT != this
    assert site.run("tail", "-n1", "/etc/rlalloc/rlalloc.yaml").stdout == "# ours\n"
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    unharmed(site, jobs)
    assert _explain(site, jobs[1])["decision"]


def test_a_downgrade_refuses_the_newer_store_and_says_what_to_do(site: Container, jobs: tuple[int, int]) -> None:
    """The daemon alone refuses: jobs pass as submitted. With the copy from before the upgrade, all is as it was."""
    said = follow(site, steps("upgrade.md", "Go back", "--allow-downgrades"), PACKAGES)
    unharmed(site, jobs)
    assert "rlallocd.service does not run; it last said" in said
    assert built_packages.NEXT in said.partition("it last said")[2]
    untouched = debian_slurm.submit(site, MOLDABLE)
    assert "rlalloc:" not in show(site, untouched)
    site.run("scancel", str(untouched))
    follow(site, steps("upgrade.md", "Go back", "store.sqlite"))
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    assert version(site) != built_packages.NEXT
    unharmed(site, jobs)
    assert _explain(site, jobs[1])["decision"]


def show(container: Container, job: int) -> str:
    """What `scontrol show job` prints."""
    return container.run("scontrol", "show", "job", str(job)).stdout


def test_a_removal_lets_jobs_go_and_leaves_slurm_as_it_works(site: Container, jobs: tuple[int, int]) -> None:
    """A job that is deferred for ten minutes is let go; the TaskProlog that slurm.conf names is there."""
    site.run("sed", "-i", "s/^grace_s: .*/grace_s: 600/", "/etc/rlalloc/rlalloc.yaml")
    site.run("systemctl", "reload", "rlallocd")
    debian_slurm.wait_for(site, "grep", "600", "/run/rlalloc/intercept")
    pid = site.run("systemctl", "show", "-P", "MainPID", "rlallocd").stdout.strip()
    site.run("kill", "-STOP", pid)
    deferred = debian_slurm.submit(site, WAITING)
    assert field(site, deferred, "EligibleTime") > now(site)
    said = follow(site, steps("upgrade.md", "Uninstall", "apt-get"))
    assert "stopped rlallocd.service: jobs that waited for it start as submitted" in said
    assert f"left {PROLOG}" in said
    assert field(site, deferred, "EligibleTime") <= now(site), site.journal("rlallocd")
    unharmed(site, jobs)
    site.run("systemctl", "restart", "slurmctld", "slurmd")
    debian_slurm.wait_for(site, "sinfo", "-h", "-o", "%T", expect="mixed")
    after = debian_slurm.submit(site, WAITING)
    assert "rlalloc:" not in show(site, after)
    site.run("touch", "/home/ada/end", user=debian_slurm.USER)
    for job in (*jobs, deferred, after):
        query = ("sacct", "-nXP", "-o", "State", "-j", str(job))
        debian_slurm.wait_for(site, *query, expect="COMPLETED")
    for job in (jobs[1], deferred, after):
        assert site.run("cat", f"/home/ada/out.{job}").stdout.split() == ["packages-test"]
    for kept in ("/etc/rlalloc/rlalloc.yaml", "/var/lib/rlalloc/store.sqlite"):
        site.run("test", "-e", kept)


def test_a_purge_leaves_what_is_the_sites_and_says_so(site: Container) -> None:
    site.run("sed", "-i", "/^JobSubmitPlugins=/d; /^TaskProlog=/d", SLURM_CONF)
    site.run("systemctl", "restart", "slurmctld", "slurmd")
    said = site.run("sh", "-c", "apt-get purge -y 'rlalloc*' 2>&1", limit_s=200).stdout
    assert "left /etc/slurm/job_submit.lua" in said
    assert "left the users rlallocd and rlalloc" in said
    places = (
        "/opt/rlalloc",
        "/usr/lib/rlalloc",
        "/etc/rlalloc",
        "/var/lib/rlalloc",
        "/run/rlalloc",
        "/run/rlalloc-packages",
        "/usr/bin/rlalloc",
        "/usr/share/man/man1/rlalloc.1.gz",
    )
    for gone in places:
        assert site.run("test", "-e", gone, check=False).returncode == 1, gone
    for unit in UNITS:
        assert site.run("systemctl", "cat", unit, check=False).returncode != 0


def test_on_a_node_alone_the_unit_starts_with_slurmd(site: Container) -> None:
    """Without a reload by hand: no other package of ours is there."""
    assert "rlalloc-node" not in site.run("systemctl", "show", "-P", "Wants", "slurmd").stdout
    site.run("sh", "-c", f"apt-get install -y {PACKAGES}/rlalloc-node_*.deb", limit_s=100)
    assert "rlalloc-node.service" in site.run("systemctl", "show", "-P", "Wants", "slurmd").stdout
    site.run("systemctl", "restart", "slurmd")
    site.run("sh", "-c", "apt-get purge -y rlalloc-node", limit_s=100)
    assert "rlalloc-node" not in site.run("systemctl", "show", "-P", "Wants", "slurmd").stdout
