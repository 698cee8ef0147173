"""rlalloc installed as on a site: its units start, and a job is decided."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from slurm_testbed.waiting import stretched
from tests.systemd import debian_slurm
from tests.systemd.systemd_container import Container

pytestmark = pytest.mark.systemd

INTERCEPTS = 'test "$(sed -n "s/^expires //p" /run/rlalloc/intercept)" -gt "$(date +%s)"'
"""A shell test: the intercept file is valid, so that the next job is deferred."""
UNITS = ("rlallocd.service", "rlalloc-agent.service", "rlalloc-train.service", "rlalloc-train.timer")
MOLDABLE = """\
#!/bin/bash
#SBATCH --job-name=finetune --gpus-per-node=4 --cpus-per-task=8 --mem=32G --time=60
#RLALLOC gpus=1-4
exec torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py
"""

WRITES_A_VERSION = """
import time
from rlalloc.store import PolicyRow, Store
store = Store("sqlite:////var/lib/rlalloc/store.sqlite")
version = f"v{len(store.policies()) + 9:06}"
store.add_policy(PolicyRow(version=version, parent=None, created_s=1.0, promoted=False, verdict={}))
time.sleep(600)
"""

PROMOTES_AND_IS_KILLED = """
import os, signal
from pathlib import Path
import msgspec
from rlalloc.policy.policies import PolicyStore, read_manifest
from rlalloc.store import PolicyRow, Store
from rlalloc_agent.served_policy import shipped_folder
policies, store = PolicyStore(Path("/var/lib/rlalloc/policies")), Store("sqlite:////var/lib/rlalloc/store.sqlite")
with policies.locked(), shipped_folder() as folder:
    manifest = msgspec.structs.replace(read_manifest(folder), evaluation={"promote": True, "reason": "better"})
    files = {name: (folder / name).read_bytes() for name in manifest.files}
    version = policies.add(files, manifest)
    row = PolicyRow(version=version, parent=None, created_s=1.0, promoted=True, verdict=manifest.evaluation)
    with store.adding_policy(row):
        policies.put_in_use(version, by="rlalloc train run", reason="better")
        os.kill(os.getpid(), signal.SIGKILL)
"""
"""As the end of a training, up to the moment between the version's coming into use and the commit of its row."""
LISTS_ROWS = """
from rlalloc.store import Store
print([row.version for row in Store("sqlite:////var/lib/rlalloc/store.sqlite", read_only=True).policies()])
"""


def _explain(container: Container, job: int, *, limit_s: float = 60) -> dict[str, Any]:
    """Ask until the job's decision is there."""
    began = time.monotonic()
    while True:
        done = container.run("rlalloc", "explain", str(job), "--json", check=False)
        if done.returncode == 0:
            story: dict[str, Any] = json.loads(done.stdout)[-1]
            return story
        if time.monotonic() - began > stretched(limit_s):
            journal = container.journal("rlallocd", "rlalloc-agent", "slurmctld")
            pytest.fail(f"job {job} has no decision: {done.stdout}{done.stderr}\n{journal}")
        time.sleep(0.5)


def run_as_trainer(container: Container, unit: str, code: str) -> None:
    """Run Python code in a transient unit: same user, group and umask as the training's own.

    One of that name that an earlier attempt left is ended first, and systemd forgets a unit that has failed.
    """
    container.run("systemctl", "stop", unit, check=False)
    as_trainer = ("-p", "User=rlalloc", "-p", "Group=rlalloc", "-p", "UMask=0007")
    container.run("systemd-run", "--collect", f"--unit={unit}", *as_trainer, "/opt/rlalloc/bin/python", "-c", code)


def test_systemd_analyze_finds_nothing_in_the_units(rlalloc_container: Container) -> None:
    """`systemd-analyze verify` says nothing of any installed unit."""
    done = rlalloc_container.run("systemd-analyze", "verify", *UNITS, check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "rlalloc" in line]
    assert (done.returncode, said) == (0, [])


def test_folders_let_each_part_do_its_work_and_no_more(rlalloc_container: Container) -> None:
    """Slurmctld can touch wake; the agent can make its socket, and not replace what slurmctld reads."""
    container = rlalloc_container
    container.start("rlallocd")
    container.run("touch", "/run/rlalloc/wake", user="slurm")
    assert container.run("stat", "-c", "%a %U", "/run/rlalloc/intercept").stdout == "644 rlallocd\n"
    container.run("touch", "/run/rlalloc/intercept", user="rlallocd")
    container.run("cat", "/run/rlalloc/intercept", user="slurm")
    container.run("touch", "/run/rlalloc/probe.sock", user="rlalloc")
    container.run("rm", "/run/rlalloc/probe.sock", user="rlalloc")
    assert container.run("rm", "-f", "/run/rlalloc/intercept", user="rlalloc", check=False).returncode != 0
    assert container.run("ls", "/var/lib/rlalloc", user=debian_slurm.USER, check=False).returncode != 0
    container.run("touch", "/var/lib/rlalloc/policies/probe", user="rlalloc")
    assert container.run("stat", "-c", "%G", "/var/lib/rlalloc/policies/probe").stdout == "rlalloc\n"
    container.run("systemctl", "stop", "rlallocd")
    container.run("rm", "/run/rlalloc/intercept", "/var/lib/rlalloc/policies/probe")


def test_the_installed_programs_are_the_sites_own(rlalloc_container: Container) -> None:
    """The programs run from /opt/rlalloc, with our package in it and not the checkout's."""
    where = "import rlalloc; print(rlalloc.__file__)"
    done = rlalloc_container.run("/opt/rlalloc/bin/python", "-c", where, user="rlallocd")
    assert done.stdout.startswith("/opt/rlalloc/lib/")


def test_a_second_installation_changes_nothing(rlalloc_container: Container) -> None:
    """Installing again keeps the site's configuration and its job_submit.lua, and prints the steps of an upgrade."""
    container = rlalloc_container
    container.run("sh", "-c", "echo '# ours' >>/etc/rlalloc/rlalloc.yaml; echo '-- ours' >>/etc/slurm/job_submit.lua")
    said = container.run(
        "/srv/rlalloc/project/scripts/install-site.sh", "--dependencies-from", "/srv/rlalloc/venv", limit_s=240
    ).stdout
    assert "What you have to do after an upgrade" in said
    assert "systemctl enable" not in said  # a step of the first installation
    assert container.run("tail", "-n1", "/etc/rlalloc/rlalloc.yaml").stdout == "# ours\n"
    assert container.run("tail", "-n1", "/etc/slurm/job_submit.lua").stdout == "-- ours\n"


def test_the_agent_serves_and_is_reloaded(rlalloc_container: Container) -> None:
    """`systemctl start rlalloc-agent` ends when it serves; the daemon's user, and no other, can reach its socket."""
    container = rlalloc_container
    container.start("rlalloc-agent")
    container.run("systemctl", "reload", "rlalloc-agent")
    assert container.run("systemctl", "is-active", "rlalloc-agent", check=False).stdout == "active\n"
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/rlalloc/agent.sock')"
    daemon = ("setpriv", "--reuid=rlallocd", "--regid=rlalloc", "--init-groups", "python3", "-c", connect)
    container.run(*daemon)
    assert container.run("python3", "-c", connect, user=debian_slurm.USER, check=False).returncode != 0


def test_a_job_is_decided(rlalloc_container: Container) -> None:
    """`systemctl start rlallocd`, then an ordinary user's job: the agent's decision on it can be explained."""
    container = rlalloc_container
    container.start("rlalloc-agent", "rlallocd")
    debian_slurm.wait_for(container, "test", "-s", "/run/rlalloc/intercept")
    job = debian_slurm.submit(container, MOLDABLE)
    story = _explain(container, job)
    assert story["decision"]["policy_version"]
    logged = container.run("journalctl", "--output=json", "SYSLOG_IDENTIFIER=rlallocd", f"JOB_ID={job}")
    assert json.loads(logged.stdout.splitlines()[0])["DECISION_ID"] == story["decision"]["id"]
    for unit in ("rlalloc-agent", "rlallocd"):
        assert container.run("systemctl", "is-active", unit, check=False).stdout == "active\n"


def test_a_killed_daemon_is_started_again(rlalloc_container: Container) -> None:
    """After SIGKILL systemd starts rlallocd anew, and it decides again."""
    container = rlalloc_container
    container.start("rlalloc-agent", "rlallocd")
    debian_slurm.wait_for(container, "test", "-s", "/run/rlalloc/intercept")
    container.run("systemctl", "kill", "--signal=KILL", "rlallocd")
    debian_slurm.wait_for(container, "systemctl", "show", "-P", "NRestarts", "rlallocd", expect="1")
    debian_slurm.wait_for(container, "systemctl", "is-active", "rlallocd", expect="active")
    assert _explain(container, debian_slurm.submit(container, MOLDABLE))


def test_it_starts_without_slurmctld_and_finds_it_later(rlalloc_container: Container) -> None:
    """`systemctl start rlallocd` ends at once and says what the daemon waits for, however long slurmctld is down."""
    container = rlalloc_container
    container.run("systemctl", "stop", "rlallocd", "slurmctld")
    container.start("rlallocd")
    debian_slurm.wait_for(container, "systemctl", "show", "-P", "StatusText", "rlallocd", expect="waiting: scontrol")
    assert container.run("systemctl", "is-active", "rlallocd", check=False).stdout == "active\n"
    container.start("slurmctld")
    debian_slurm.wait_for(container, "systemctl", "show", "-P", "StatusText", "rlallocd", expect="mode enforce")
    debian_slurm.wait_for(container, "sh", "-c", INTERCEPTS)
    assert _explain(container, debian_slurm.submit(container, MOLDABLE))


def test_daemon_and_trainer_both_write_the_store(rlalloc_container: Container) -> None:
    """No "attempt to write a readonly database" for the trainer, nor for a daemon that is restarted meanwhile.

    What writes stands in for the end of a training, which takes a night's work to reach: same user, group and umask.
    """
    container = rlalloc_container
    container.start("rlalloc-agent", "rlallocd")
    debian_slurm.wait_for(container, "sh", "-c", INTERCEPTS)
    assert container.run("stat", "-c", "%a %G", "/var/lib/rlalloc/store.sqlite").stdout == "660 rlalloc\n"
    container.start("rlalloc-train.service")
    assert container.run("systemctl", "show", "-P", "Result", "rlalloc-train.service").stdout == "success\n"
    run_as_trainer(container, "writes-a-version", WRITES_A_VERSION)
    debian_slurm.wait_for(container, "rlalloc", "status", expect="trained policies")
    container.run("systemctl", "restart", "rlallocd")
    debian_slurm.wait_for(container, "sh", "-c", INTERCEPTS)
    assert _explain(container, debian_slurm.submit(container, MOLDABLE))
    assert container.run("systemctl", "is-active", "writes-a-version", check=False).stdout == "active\n"
    container.run("systemctl", "stop", "writes-a-version")


def test_a_promotion_that_was_killed_is_recorded_at_the_next_start(rlalloc_container: Container) -> None:
    """The version is in use, its row was lost with the process: the daemon adds it, and says so."""
    container = rlalloc_container
    container.start("rlalloc-agent", "rlallocd")
    as_trainer = ("setpriv", "--reuid=rlalloc", "--regid=rlalloc", "--clear-groups", "--")
    python = "/opt/rlalloc/bin/python"
    assert container.run(*as_trainer, python, "-c", PROMOTES_AND_IS_KILLED, check=False).returncode == -signal.SIGKILL
    version = container.run("readlink", "/var/lib/rlalloc/policies/current").stdout.strip()
    assert version not in container.run(python, "-c", LISTS_ROWS).stdout
    container.run("systemctl", "restart", "rlallocd")
    debian_slurm.wait_for(container, "sh", "-c", INTERCEPTS)
    assert version in container.run(python, "-c", LISTS_ROWS).stdout
    assert f"{version} (in use) was not in the store" in container.journal("rlallocd")
    assert "shipped is in use instead" in container.run("rlalloc", "policy", "rollback").stdout
    container.run("rm", "-r", f"/var/lib/rlalloc/policies/{version}")


def test_a_reload_of_a_wrong_file_fails_and_says_why(rlalloc_container: Container) -> None:
    """`systemctl reload rlallocd` exits with 1, and the daemon goes on with what it had."""
    container = rlalloc_container
    container.start("rlallocd")
    container.run("cp", "-p", "/etc/rlalloc/rlalloc.yaml", "/etc/rlalloc/right.yaml")
    container.run("sh", "-c", "echo 'grace: 7' >>/etc/rlalloc/rlalloc.yaml")
    refused = container.run("systemctl", "reload", "rlallocd", check=False)
    assert refused.returncode == 1
    assert "grace: unknown key; did you mean 'grace_s'?" in container.journal("rlallocd")
    assert container.run("systemctl", "is-active", "rlallocd", check=False).stdout == "active\n"
    container.run("mv", "/etc/rlalloc/right.yaml", "/etc/rlalloc/rlalloc.yaml")
    container.run("systemctl", "reload", "rlallocd")


def test_uninstalling_never_breaks_slurm(rlalloc_container: Container) -> None:
    """Last, as it takes rlalloc away: what slurm.conf names stays until it does not; data and configuration stay."""
    container = rlalloc_container
    uninstall = ("/srv/rlalloc/project/scripts/install-site.sh", "--uninstall")
    container.run("cp", "/usr/lib/rlalloc/job_submit.lua", "/etc/slurm/job_submit.lua")
    container.run(
        "sed", "-Ei", r's/^(JobSubmitPlugins|TaskProlog|TaskEpilog)=(.*)/\1 = "\2"/', "/etc/slurm/slurm.conf"
    )
    refused = container.run(*uninstall, check=False)
    assert refused.returncode == 1
    for named in ("/usr/lib/rlalloc/task_prolog", "/usr/lib/rlalloc/task_epilog", "/etc/slurm/job_submit.lua"):
        container.run("test", "-e", named)
    container.run("sed", "-Ei", "/^JobSubmitPlugins /d; /^Task(Pro|Epi)log /d", "/etc/slurm/slurm.conf")
    container.run(*uninstall)
    for gone in (
        "/usr/lib/rlalloc",
        "/opt/rlalloc",
        "/etc/slurm/job_submit.lua",
        "/etc/systemd/system/rlallocd.service",
    ):
        assert container.run("test", "-e", gone, check=False).returncode == 1, gone
    for kept in ("/etc/rlalloc/rlalloc.yaml", "/var/lib/rlalloc/policies"):
        container.run("test", "-e", kept)
    assert container.run("systemctl", "is-active", "rlallocd", check=False).stdout != "active\n"
