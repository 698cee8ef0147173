"""The units' sandboxes and users, on a site as installed: what they may not do, and that their work goes on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest

from rlallocd.slurm import control
from rlallocd.transactions import update_plans
from tests.systemd import debian_slurm
from tests.systemd.conftest import PROJECT_INSIDE
from tests.systemd.systemd_container import Container
from tests.systemd.test_operations_under_systemd import findings
from tests.systemd.test_rlalloc_under_systemd import INTERCEPTS

pytestmark = pytest.mark.systemd

SERVICES = ("rlallocd", "rlalloc-agent", "rlalloc-train")
NODE_UNIT = PROJECT_INSIDE / "systemd/rlalloc-node.service"  # of compute nodes: install-site.sh does not install it
MOST_EXPOSED = 2.0
DAEMON = "rlallocd"
DROP_IN = "/etc/systemd/system/rlallocd.service.d/user.conf"
FIELD = re.compile(r"\b([A-Z]\w+)=\{|\"([A-Z]\w+)\"(?:: |\] =)")
FIELDS = (
    ("NumNodes", "1-1"),
    ("NumTasks", "1"),
    ("TasksPerNode", "1"),
    ("CPUsPerTask", "2"),
    ("NumCPUs", "2"),
    ("MinCPUsNode", "2"),
    ("MinMemoryCPU", "1000"),
    ("MinMemoryNode", "16000"),
    ("TresPerNode", "gres:gpu:2"),
    ("TresPerJob", ""),
    ("TresPerTask", ""),
    ("TresPerSocket", ""),
    ("CpusPerTres", ""),
    ("MemPerTres", ""),
    ("OverSubscribe", "YES"),
    ("ReqNodeList", "n1"),
    ("ExcNodeList", ""),
    ("TimeLimit", "30"),
    ("TimeLimit", "120"),
    ("Nice", "100"),
    ("Nice", "-100"),
    ("StartTime", "now"),
    ("AdminComment", "x"),
)
TOO_LARGE = """\
#!/bin/bash
#SBATCH --job-name=finetune --gpus-per-node=4 --cpus-per-task=8 --mem=32G --time=60
#RLALLOC gpus=1-2
exec torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py
"""
"""Asks for more than its own maximum, so that every policy has to change it."""


@pytest.fixture
def site(rlalloc_container: Container) -> Iterator[Container]:
    """A running site."""
    container = rlalloc_container
    start(container)
    yield container
    container.run("rm", "-f", DROP_IN)
    container.run("systemctl", "daemon-reload")
    container.run("sacctmgr", "-i", "modify", "user", DAEMON, "set", "adminlevel=Admin", check=False)


def start(container: Container) -> None:
    """Start daemon and agent anew; return when jobs are intercepted."""
    container.run("systemctl", "reset-failed", "rlalloc-agent", "rlallocd", check=False)
    container.start("slurmctld", "rlalloc-agent")
    container.run("systemctl", "restart", "rlallocd")
    debian_slurm.wait_for(container, "sh", "-c", INTERCEPTS)


def resized(container: Container) -> int:
    """Submit a job that has to be resized, wait until it is, and return its id."""
    job = debian_slurm.submit(container, TOO_LARGE, "--begin=now+1hour")
    debian_slurm.wait_for(container, "scontrol", "show", "job", str(job), expect="gres/gpu=2")
    return job


def main_process(container: Container, service: str, file: str) -> str:
    """A file below /proc of a service's main process."""
    pid = container.run("systemctl", "show", "-P", "MainPID", service).stdout.strip()
    return container.run("cat", f"/proc/{pid}/{file}").stdout


@pytest.mark.parametrize("service", [*SERVICES, "rlalloc-node"])
def test_units_are_exposed_little(rlalloc_container: Container, service: str) -> None:
    """By systemd's own measure, from 0 (safe) to 10."""
    unit = ("--offline=true", str(NODE_UNIT)) if service == NODE_UNIT.stem else (f"{service}.service",)
    told = rlalloc_container.run("systemd-analyze", "security", "--no-pager", *unit).stdout
    exposure = re.search(rf"Overall exposure level for {service}\.service: ([0-9.]+)", told)
    assert exposure is not None, told
    assert float(exposure[1]) <= MOST_EXPOSED, told


def test_a_job_is_resized_and_explained_in_the_sandboxes(site: Container) -> None:
    """Both services run without capabilities and new privileges, under a filter of system calls."""
    for service in ("rlallocd", "rlalloc-agent"):
        status = dict(line.split(":\t", 1) for line in main_process(site, service, "status").splitlines())
        assert (status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]) == ("0" * 16, "1", "2")
    job = resized(site)
    shown = debian_slurm.wait_for(site, "rlalloc", "explain", str(job), expect="in force")
    assert site.run("rlalloc", "explain", str(job), user=debian_slurm.USER).stdout == shown
    site.run("scancel", str(job))


def test_the_agent_has_no_network(site: Container) -> None:
    """Only a loopback of its own; the daemon's is the machine's, where slurmctld is."""
    agent, daemon = (main_process(site, service, "net/fib_trie") for service in ("rlalloc-agent", "rlallocd"))
    assert "192.0.2.1" in daemon
    assert "192.0.2.1" not in agent


def test_the_daemon_is_not_slurm_user(site: Container) -> None:
    """It cannot read slurmdbd's password, and neither it nor the agent can write what belongs to the other."""
    assert main_process(site, "rlallocd", "status").count(site.run("id", "-u", DAEMON).stdout.strip()) >= 1
    for user, readable in (("slurm", True), (DAEMON, False), ("rlalloc", False)):
        done = site.run("cat", "/etc/slurm/slurmdbd.conf", user=user, check=False)
        assert (done.returncode == 0) is readable
    assert site.run("touch", "/var/lib/rlalloc/policies/x", user=debian_slurm.USER, check=False).returncode
    assert site.run("touch", "/run/rlalloc/intercept", user="rlalloc", check=False).returncode


def test_without_an_admin_level_nothing_is_enforced(site: Container) -> None:
    """Shadow mode is in force, and status and doctor say what to do; with the level it is enforced again."""
    modify = ("sacctmgr", "-i", "modify", "user", DAEMON, "set")
    site.run(*modify, "adminlevel=None")
    shown = ("scontrol", "show", "assoc_mgr", f"users={DAEMON}", "flags=users")
    debian_slurm.wait_for(site, *shown, expect="AdminLevel=None")
    site.run("systemctl", "restart", "rlallocd")
    status = ("systemctl", "show", "-P", "StatusText", "rlallocd")
    debian_slurm.wait_for(site, *status, expect="mode shadow: slurmctld does not let this user change jobs")
    assert findings(site)["AdminLevel"][0] == "FAIL"
    site.run(*modify, "adminlevel=Admin")
    debian_slurm.wait_for(site, *shown, expect="AdminLevel=Administrator")
    start(site)
    assert findings(site)["AdminLevel"] == ("OK", f"{DAEMON} is an administrator of slurmdbd, and may change jobs")
    site.run("scancel", str(resized(site)))


def test_an_operator_is_refused_the_admin_comment_alone(site: Container) -> None:
    """Why the daemon is an administrator: each field of its updates, tried one by one on a job that waits."""
    user = "deputy"
    site.run("useradd", "--system", user, check=False)
    site.run("sacctmgr", "-i", "add", "user", user, "account=root", "adminlevel=Operator", check=False)
    shown = ("scontrol", "show", "assoc_mgr", f"users={user}", "flags=users")
    debian_slurm.wait_for(site, *shown, expect="AdminLevel=Operator")
    job = debian_slurm.submit(site, "#!/bin/sh\n", "--hold", "--gpus-per-node=4", "--time=60", "--mem=32G")
    refused = {
        name
        for name, value in FIELDS
        if site.run("scontrol", "update", f"JobId={job}", f"{name}={value}", user=user, check=False).returncode
    }
    assert refused == {"AdminComment"}
    changed = site.run("scontrol", "show", "job", str(job)).stdout
    for part in ("Nice=-100", "TimeLimit=02:00:00", "gres:gpu:2", "MinMemoryNode=16000M", "CPUs/Task=2"):
        assert part in changed
    site.run("scancel", str(job))


def test_the_test_tries_each_field_that_is_sent() -> None:
    sources = (update_plans, control)
    texts = [inspect.getsource(source) for source in sources]
    sent = {left or right for text in texts for left, right in FIELD.findall(text)} - {"JobId"}
    assert len(sent) > 15
    assert sent <= {name for name, _ in FIELDS}


def test_the_daemons_user_can_change_and_nothing_is_lost(site: Container) -> None:
    """As SlurmUser by a drop-in, which sites without slurmdbd need, and as sites had it before; and back again."""
    before = resized(site)
    site.run("install", "-d", DROP_IN.rpartition("/")[0])
    site.run("tee", DROP_IN, text="[Service]\nUser=slurm\n")
    site.run("systemctl", "daemon-reload")
    start(site)
    as_slurm = resized(site)
    assert findings(site)["AdminLevel"][0] == "WARN"
    site.run("rm", DROP_IN)
    site.run("systemctl", "daemon-reload")
    start(site)
    after = resized(site)
    for job in (before, as_slurm, after):
        assert f"job {job} " in debian_slurm.wait_for(site, "rlalloc", "explain", str(job))
        site.run("scancel", str(job))
    found = site.run("find", "/run/rlalloc", "/var/lib/rlalloc", "-user", "slurm").stdout
    assert found == "/run/rlalloc/wake\n"


def test_readers_read_and_do_no_more(site: Container) -> None:
    """Members of rlalloc-readers may ask about everybody's jobs, and reach neither agent nor store."""
    job = resized(site)
    site.run("useradd", "--system", "--groups", "rlalloc-readers", "auditor", check=False)
    explain = ("rlalloc", "explain", str(job))
    shown = debian_slurm.wait_for(site, *explain, expect="in force")
    assert site.run(*explain, user="auditor").stdout == shown
    assert site.run(*explain, user="daemon", check=False).returncode == 1
    assert "last cycle" in site.run("rlalloc", "status", user="auditor").stdout
    assert "only root and members" in site.run("rlalloc", "status", user="daemon", check=False).stderr
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('/run/rlalloc/agent.sock')"
    assert "PermissionError" in site.run("python3", "-c", connect, user="auditor", check=False).stderr
    for path in ("/var/lib/rlalloc/store.sqlite", "/etc/rlalloc/rlalloc.yaml", "/run/rlalloc/state.json"):
        assert site.run("cat", path, user="auditor", check=False).returncode != 0, path
    site.run("scancel", str(job))
