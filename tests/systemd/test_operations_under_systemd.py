"""What an administrator types, on a site as installed: doctor, status, reload and check, with faults provoked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.systemd import debian_slurm
from tests.systemd.systemd_container import Container
from tests.systemd.test_rlalloc_under_systemd import INTERCEPTS, MOLDABLE, _explain, run_as_trainer
from tests.systemd.week_site import READS_METRICS

pytestmark = pytest.mark.systemd

CONFIGURATION = "/etc/rlalloc/rlalloc.yaml"
SLURM_CONF = "/etc/slurm/slurm.conf"
STORE = "/var/lib/rlalloc/store.sqlite"
METRICS = """
import urllib.request
page = urllib.request.urlopen("http://127.0.0.1:9373/metrics", timeout=30).read().decode()
print(page)
"""
TRAINS = """
import time
from pathlib import Path
from rlalloc.policy.last_training import running_training
with running_training(Path("/var/lib/rlalloc/policies")):
    time.sleep(600)
"""
CHANGES_THE_JOURNAL = """
import sqlite3
with sqlite3.connect("/var/lib/rlalloc/store.sqlite") as store:
    store.execute("UPDATE applications SET own_nice = -2000")
"""
ADDS_A_REFUSED_VERSION = """
from pathlib import Path
import msgspec
from rlalloc.policy.policies import PolicyStore, read_manifest
from rlalloc_agent.served_policy import shipped_folder
with shipped_folder() as folder:
    evaluation = {"promote": False, "reason": "it is [/worse]"}
    manifest = msgspec.structs.replace(read_manifest(folder), evaluation=evaluation)
    files = {name: (folder / name).read_bytes() for name in manifest.files}
    print(PolicyStore(Path("/var/lib/rlalloc/policies")).add(files, manifest))
"""


@pytest.fixture
def site(rlalloc_container: Container) -> Iterator[Container]:
    """A running site; its two configuration files are as before afterwards; what reads a changed one is restarted.

    A test that changes anything else puts it right itself: a restart of all takes longer than most of the tests.
    """
    container = rlalloc_container
    for path in (CONFIGURATION, SLURM_CONF):
        container.run("cp", "-p", path, f"{path}.kept")
    # These tests start the units more often than their StartLimitBurst allows.
    container.run("systemctl", "reset-failed", "rlalloc-agent", "rlallocd", check=False)
    container.start("slurmctld", "rlalloc-agent", "rlallocd")
    debian_slurm.wait_for(container, "sh", "-c", INTERCEPTS)
    yield container
    changed = [
        path
        for path in (CONFIGURATION, SLURM_CONF)
        if container.run("cmp", "--silent", path, f"{path}.kept", check=False).returncode != 0
    ]
    for path in (CONFIGURATION, SLURM_CONF):
        container.run("mv", f"{path}.kept", path)
    if changed:
        container.run("systemctl", "reset-failed", "rlalloc-agent", "rlallocd", check=False)
        restarted = ("rlalloc-agent", "rlallocd", *(("slurmctld",) if SLURM_CONF in changed else ()))
        container.run("systemctl", "restart", *restarted)
        debian_slurm.wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle")


def findings(container: Container) -> dict[str, tuple[str, str]]:
    """What the doctor finds: level and text by what was checked; the worst level is its exit status."""
    done = container.run("rlalloc", "doctor", "--json", check=False)
    told = json.loads(done.stdout)
    assert done.returncode == {"OK": 0, "WARN": 3, "FAIL": 1}[told["worst"]]
    assert all(each["remedy"] for each in told["findings"] if each["level"] != "OK")
    return {each["what"]: (each["level"], each["found"]) for each in told["findings"]}


def test_a_site_that_works_has_no_failure(site: Container) -> None:
    """Only what a new site lacks: a timer that runs, a training that has ended."""
    debian_slurm.wait_for(site, "rlalloc", "status", expect="last cycle 0:00:0")
    found = findings(site)
    assert {what for what, (level, _) in found.items() if level == "FAIL"} == set(), found
    assert {what for what, (level, _) in found.items() if level == "WARN"} <= {"timer", "training"}, found
    assert {"store for rlallocd", "store for rlalloc", "plugin", "rlallocd", "rlalloc-agent"} <= set(found)
    screen = site.run("env", "COLUMNS=80", "rlalloc", "status").stdout.splitlines()
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 80


@pytest.mark.parametrize("service", ["rlalloc-agent", "rlallocd", "slurmctld"])
def test_each_stopped_service_is_told(site: Container, service: str) -> None:
    """By doctor and status, whose exit status is 1; both change nothing."""
    site.run("systemctl", "stop", service)
    assert findings(site)[service][0] == "FAIL"
    if service != "slurmctld":
        assert site.run("rlalloc", "status", check=False).returncode == 1
    site.start(service)


def test_reading_commands_make_nothing_before_the_first_start(site: Container) -> None:
    """Root looks before the daemon ever ran: afterwards the daemon starts, and writes."""
    site.run("systemctl", "stop", "rlallocd")
    site.run("sh", "-c", f"rm -f {STORE}*")
    for words in (
        ("status",),
        ("doctor",),
        ("explain", "1"),
        ("policy", "list"),
        ("config", "check"),
        ("history", "show"),
    ):
        site.run("rlalloc", *words, check=False)
    assert site.run("find", "/var/lib/rlalloc", "-name", "store*").stdout == ""
    assert site.run("find", "/var/lib/rlalloc", "/run/rlalloc", "-user", "root").stdout == ""
    site.start("rlallocd")
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    assert site.run("stat", "-c", "%a %U %G", STORE).stdout == "660 rlallocd rlalloc\n"


def test_a_store_that_root_restored_is_the_daemons_again(site: Container) -> None:
    """`cp` by root leaves a file that the daemon could only read; its next start mends it."""
    site.run("systemctl", "stop", "rlallocd")
    site.run("sh", "-c", f"cp {STORE} /root/backup; rm {STORE}*; install -m 644 -o root -g root /root/backup {STORE}")
    found = findings(site)
    assert {found["store for rlallocd"][0], found["store for rlalloc"][0]} == {"FAIL"}
    site.start("rlallocd")
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    assert site.run("stat", "-c", "%a %U %G", STORE).stdout == "660 rlallocd rlalloc\n"
    assert findings(site)["store for rlalloc"][0] == "OK"


def test_enforcing_waits_for_a_task_prolog(site: Container) -> None:
    """The rest of the site stays as it was; no job is changed, and status says why."""
    assert findings(site)["TaskEpilog"][0] == "OK"
    site.run("sed", "-i", "/^TaskProlog=/d; s/^AccountingStoreFlags=.*/AccountingStoreFlags=job_script/", SLURM_CONF)
    site.run("systemctl", "restart", "slurmctld", "rlallocd")
    debian_slurm.wait_for(site, "systemctl", "show", "-P", "StatusText", "rlallocd", expect="mode shadow: slurm.conf")
    debian_slurm.wait_for(site, "grep", "rule llm shadow", "/run/rlalloc/intercept")
    found = findings(site)
    assert (found["TaskProlog"][0], found["mode"][0]) == ("FAIL", "FAIL")
    assert found["TaskEpilog"][0] == "WARN"
    assert "AccountingStoreFlags lacks job_comment" in found["TaskEpilog"][1]
    assert "slurm.conf names no TaskProlog" in " ".join(site.run("rlalloc", "status", check=False).stdout.split())


def test_a_file_that_does_not_fit_the_site_can_still_be_switched_off(site: Container) -> None:
    """`config check` is exit 1 for a partition that is not there; a reload is about the file alone."""
    site.run("sed", "-i", 's/partitions: \\["\\*"\\]/partitions: [gpuu]/; s/^mode: .*/mode: off/', CONFIGURATION)
    done = site.run("rlalloc", "config", "check", check=False)
    assert done.returncode == 1
    assert "the site has no gpuu" in done.stdout
    site.run("systemctl", "reload", "rlallocd")
    debian_slurm.wait_for(site, "systemctl", "show", "-P", "StatusText", "rlallocd", expect="mode off")


def test_passwords_are_not_shown(site: Container) -> None:
    """`config show` goes into bug reports."""
    site.run(
        "sed", "-i", "s#url: sqlite:[^ ]*#url: mysql+pymysql://rlalloc:hunter2@localhost/rlalloc#", CONFIGURATION
    )
    assert "hunter2" not in site.run("rlalloc", "config", "show").stdout
    assert "hunter2" in site.run("rlalloc", "config", "show", "--secrets").stdout
    shown = site.run("rlalloc", "doctor", check=False)
    assert "hunter2" not in shown.stdout + shown.stderr


def _without_lines(table: str) -> str:
    """The text of a table's cells, wherever its lines were broken."""
    return " ".join(table.replace("│", " ").split())


def test_users_see_their_own_jobs_and_no_others(site: Container) -> None:
    """Before a job starts, too: an ordinary user can read neither the store nor rlalloc.yaml."""
    assert site.run("cat", CONFIGURATION, user=debian_slurm.USER, check=False).returncode != 0
    job = debian_slurm.submit(site, MOLDABLE, "--hold")
    explain = ("rlalloc", "explain", str(job))
    debian_slurm.wait_for(site, *explain)
    shown = site.run(*explain, user=debian_slurm.USER).stdout
    assert f"job {job} 'finetune' of {debian_slurm.USER}" in shown
    refused = site.run(*explain, user="daemon", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "it is not yours" in refused.stderr
    site.run("sh", "-c", "cat >/home/ada/job.sh", text=MOLDABLE, user=debian_slurm.USER)
    checked = site.run("rlalloc", "check", "/home/ada/job.sh", user=debian_slurm.USER).stdout
    assert "workable: 1, 2, 4" in _without_lines(checked)
    site.run("scancel", str(job))


def test_users_have_their_own_jobs_left_alone(site: Container) -> None:
    """A resized job gets its request back, whoever may ask for it; it keeps it over a restart, and runs with it.

    Before that, the trainer's user changes the journal: doctor says so, until its remedy is applied.
    """
    job = debian_slurm.submit(site, MOLDABLE.replace("gpus=1-4", "gpus=1-2"), "--hold")
    asks_for = ("squeue", "-h", "-j", str(job), "-o", "%b %l")
    debian_slurm.wait_for(site, "sh", "-c", f"rlalloc explain {job} | grep 'in force since'")
    assert site.run(*asks_for).stdout != "gres:gpu:4 1:00:00\n"
    assert findings(site)["journal"][0] == "OK"
    site.run("python3", "-c", CHANGES_THE_JOURNAL, user="rlalloc")
    assert findings(site)["journal"][0] == "FAIL"
    site.run("rm", "/var/lib/rlallocd/journal.key")
    site.run("systemctl", "restart", "rlallocd")
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    assert findings(site)["journal"][0] == "OK"
    off = ("rlalloc", "off", str(job), "--reason", "it measures speed")
    refused = site.run(*off, user="daemon", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"no job {job} of yours" in refused.stderr
    assert "it has its request back" in site.run(*off, user=debian_slurm.USER).stdout
    assert site.run(*asks_for).stdout == "gres:gpu:4 1:00:00\n"
    assert "asked to leave it alone: it measures speed" in site.journal("rlallocd")
    told = site.run("rlalloc", "explain", str(job), user=debian_slurm.USER).stdout
    assert f"{debian_slurm.USER} (uid " in " ".join(told.split())
    site.run("systemctl", "restart", "rlallocd")
    debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
    site.run("scontrol", "release", str(job))
    query = ("sacct", "-n", "-X", "-P", "-o", "State,AllocTRES", "-j", str(job))
    assert "gres/gpu=4" in debian_slurm.wait_for(site, *query, expect="gres/gpu")


def test_rlallocd_serves_what_doctor_finds(site: Container) -> None:
    """As its own user, in its sandbox: a timer that does not run, and a wake file that slurmctld cannot write."""
    site.run("systemctl", "stop", "rlalloc-train.timer")
    site.run("chown", "root:root", "/run/rlalloc/wake")
    site.run("systemctl", "reload", "rlallocd")
    metrics = ("python3", "-c", READS_METRICS)
    debian_slurm.wait_for(site, *metrics, expect='rlallocd_check_level{check="wake file"} 2.0')
    served = dict(re.findall(r'^rlallocd_check_level{check="(.*)"} (.*)$', site.run(*metrics).stdout, re.MULTILINE))
    by_itself = ("heartbeat", "rlallocd", "rlalloc-agent")  # these have metrics of their own
    told = {what: level for what, (level, _) in findings(site).items() if what not in by_itself}
    assert {what: ("OK", "WARN", "FAIL")[int(float(level))] for what, level in served.items()} == told
    assert served["timer"] == "1.0"
    site.run("systemctl", "restart", "rlallocd")
    assert findings(site)["wake file"][0] == "OK"


def test_each_node_is_tested_for_the_task_prolog(site: Container) -> None:
    """By a job there: before slurm.conf names it, and when a node that lacks it fails every job."""
    prolog = "/usr/lib/rlalloc/task_prolog"

    def doctor_on_nodes() -> tuple[str, str]:
        told = json.loads(site.run("rlalloc", "doctor", "--json", "--nodes", "all", check=False).stdout)
        return next((each["level"], each["found"]) for each in told["findings"] if each["what"] == "node n1")

    debian_slurm.wait_for(site, "sinfo", "-h", "-o", "%T", expect="idle")
    assert doctor_on_nodes() == ("OK", "Slurm calls the TaskProlog")
    site.run("sed", "-i", "/^TaskProlog=/d", SLURM_CONF)
    site.run("systemctl", "restart", "slurmctld", "slurmd")
    debian_slurm.wait_for(site, "sinfo", "-h", "-o", "%T", expect="idle")
    site.run("chmod", "a-x", prolog)
    try:
        assert doctor_on_nodes() == ("FAIL", "no TaskProlog of rlalloc")
        site.run("sh", "-c", f"echo TaskProlog={prolog} >>{SLURM_CONF}")
        site.run("systemctl", "restart", "slurmctld", "slurmd")
        debian_slurm.wait_for(site, "sinfo", "-h", "-o", "%T", expect="idle")
        level, found = doctor_on_nodes()
        assert level == "FAIL"
        assert "a test job fails there" in found
        assert "stay as submitted" in findings(site)["checked nodes"][1]
    finally:
        site.run("chmod", "755", prolog)
    assert doctor_on_nodes()[0] == "OK"
    assert findings(site)["checked nodes"][0] == "OK"


def test_switching_off_lets_go_at_once_what_was_deferred(site: Container) -> None:
    """A job that was submitted before the plugin could know: it does not wait for the end of its grace."""
    pid = site.run("systemctl", "show", "-P", "MainPID", "rlallocd").stdout.strip()
    site.run("kill", "-STOP", pid)
    job = debian_slurm.submit(site, MOLDABLE)
    query = ("squeue", "-h", "-j", str(job), "-t", "all", "-o", "%T %r")
    assert site.run(*query).stdout == "PENDING BeginTime\n"
    site.run("sed", "-i", "s/^mode: .*/mode: off/", CONFIGURATION)
    site.run("kill", "-HUP", pid)  # as a reload does, which would wait for the stopped daemon
    site.run("kill", "-CONT", pid)
    debian_slurm.wait_for(site, "sh", "-c", f"squeue -h -j {job} -t all -o %T | grep -v PENDING")
    assert "let 1 deferred jobs go as they are" in site.journal("rlallocd")


def test_what_lies_where_policies_are_leads_root_nowhere_and_stops_nothing(site: Container) -> None:
    """Whoever controls agent or trainer can put links and pipes there; root and the daemon read and write it."""
    folder, evil = "/var/lib/rlalloc/policies", "/etc/cron.d/evil"
    site.run("rlalloc", "policy", "promote", "shipped", "--reason", "as before")
    assert site.run("stat", "-c", "%U %a", f"{folder}/promotions.jsonl").stdout == "rlalloc 660\n"
    assert "by root" in " ".join(site.run("rlalloc", "policy", "list").stdout.replace("│", " ").split())
    for name in ("promotions.jsonl", ".lock"):
        site.run("sh", "-c", f"rm -f {folder}/{name}; ln -s {evil} {folder}/{name}", user="rlalloc")
        refused = site.run("rlalloc", "policy", "promote", "shipped", "--reason", "* * * * * root id", check=False)
        assert refused.returncode == 1, refused
        site.run("rm", f"{folder}/{name}")
    assert site.run("test", "-e", evil, check=False).returncode == 1
    pipes = " ".join(f"{folder}/{name}" for name in ("promotions.jsonl", "last_training.json", "training.lock"))
    site.run("sh", "-c", f"rm -f {pipes}; mkfifo {pipes}", user="rlalloc")
    try:
        site.run("systemctl", "restart", "rlallocd")
        debian_slurm.wait_for(site, "sh", "-c", INTERCEPTS)
        for words in (("rlalloc", "status"), ("rlalloc", "doctor"), ("python3", "-c", METRICS)):
            assert site.run("timeout", "120", *words, check=False, limit_s=180).returncode not in {124, 137}, words
    finally:
        site.run("sh", "-c", f"rm -f {pipes}")
        site.run("systemctl", "restart", "rlallocd")


def test_a_training_that_is_killed_is_told_everywhere(site: Container) -> None:
    """As the kernel does for want of memory: the verdict of the night before says nothing of it."""
    run_as_trainer(site, "killed-training", TRAINS)
    debian_slurm.wait_for(site, "test", "-s", "/var/lib/rlalloc/policies/training.lock")
    assert findings(site)["training"][0] != "FAIL"
    assert "another training runs" in site.run("rlalloc", "train", "run", check=False).stderr
    site.run("systemctl", "kill", "--signal=KILL", "killed-training")
    debian_slurm.wait_for(site, "sh", "-c", "systemctl is-active killed-training | grep -v ^active")
    level, found = findings(site)["training"]
    assert (level, "it was killed before it ended" in found) == ("FAIL", True)
    assert site.run("rlalloc", "status", check=False).returncode == 1
    debian_slurm.wait_for(site, "python3", "-c", METRICS, expect='rlallocd_training_last_result{result="failed"} 1.0')
    site.run("rm", "/var/lib/rlalloc/policies/training.lock")


def test_slurmctld_can_wake_the_daemon_whoever_slurm_user_is(site: Container) -> None:
    assert findings(site)["wake file"] == ("OK", "slurmctld can write /run/rlalloc/wake")
    for spoilt in ("rm {0}", "chown root:root {0}", "rm {0}; mkfifo {0}", "rm {0}; ln -s /etc/evil {0}"):
        site.run("sh", "-c", spoilt.format("/run/rlalloc/wake"))
        if "rm" not in spoilt:
            assert findings(site)["wake file"][0] == "FAIL"
        site.run("systemctl", "restart", "rlallocd")
        assert site.run("stat", "-c", "%U %G %a", "/run/rlalloc/wake").stdout == "slurm rlalloc 664\n"
    site.run("useradd", "--system", "slurmadm", check=False)
    site.run("sed", "-i", "s/^SlurmUser=.*/SlurmUser=slurmadm/", SLURM_CONF)
    site.run("systemctl", "restart", "rlallocd")
    assert site.run("stat", "-c", "%U", "/run/rlalloc/wake").stdout == "slurmadm\n"
    assert site.run("test", "-e", "/etc/evil", check=False).returncode == 1
    site.run("chmod", "0777", "/run/rlalloc")
    assert findings(site)["runtime directory"][0] == "FAIL"
    site.run("systemd-tmpfiles", "--create", "rlalloc.conf")


def test_what_users_name_their_jobs_and_what_they_declare(site: Container) -> None:
    """Names that are markup, an array by the id that squeue prints, and a megabyte of memory a GPU."""
    named = debian_slurm.submit(site, MOLDABLE, "--hold", "--job-name=[/nonsense]", "--array=1-3")
    debian_slurm.wait_for(site, "rlalloc", "explain", f"{named}_2", expect="[/nonsense]")
    for words in (("explain", f"{named}_2", "--verbose"), ("status",), ("report",)):
        assert "Traceback" not in site.run("rlalloc", *words, check=False).stderr
    small = MOLDABLE.replace("gpus=1-4", "gpus=1-4 mem-per-gpu=1M-8G")
    greedy = debian_slurm.submit(site, small, "--hold")
    story = _explain(site, greedy)["decision"]
    assert story["bounds"]["mem_mib_per_gpu"]["minimum"] >= 1024
    assert story["allocation"] is None or story["allocation"]["mem_mib_per_node"] >= 1024
    site.run("sh", "-c", "cat >/home/ada/wrong.sh", text=MOLDABLE.replace("gpus=1-4", "gpus=1-4 tp=x"), user="ada")
    checked = site.run("rlalloc", "check", "/home/ada/wrong.sh", user="ada", check=False)
    assert (checked.returncode, "workable: 1, 2, 4" in _without_lines(checked.stdout)) == (1, True)
    site.run("scancel", str(named), str(greedy))


def test_a_store_that_fails_is_told_once_and_without_users_data(site: Container) -> None:
    rename = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('ALTER TABLE {} RENAME TO {}')"
    since = site.run("date", "+%Y-%m-%d %H:%M:%S").stdout.strip()
    site.run("python3", "-c", rename.format("applications", "gone"), STORE, user="rlallocd")
    try:
        job = debian_slurm.submit(site, MOLDABLE.replace("finetune", "merger-with-acme"))
        for failures in ("2", "4"):
            counted = r"re.search(r'rlallocd_store_errors_total ([0-9.]+)', page)[1]"
            wait = f"import re, sys; sys.exit(float({counted}) < {failures})"
            debian_slurm.wait_for(site, "python3", "-c", METRICS.replace("print(page)", wait), limit_s=120)
    finally:
        site.run("python3", "-c", rename.format("gone", "applications"), STORE, user="rlallocd")
    journal = site.run("journalctl", "--no-pager", "-u", "rlallocd", "--since", since).stdout
    assert journal.count("the store failed, jobs run as submitted") == 1, journal
    assert not [word for word in ("SELECT", "INSERT", "merger-with-acme") if word in journal]
    site.run("scancel", str(job))


def test_a_refused_policy_and_an_open_port_need_more_than_a_word(site: Container) -> None:
    version = site.run("/opt/rlalloc/bin/python", "-c", ADDS_A_REFUSED_VERSION, user="rlalloc").stdout.strip()
    promote = ("rlalloc", "policy", "promote", version)
    assert "the gate refused" in site.run(*promote, check=False).stderr
    assert site.run(*promote, "--force", check=False).returncode == 2
    assert f"{version} is in use" in site.run(*promote, "--force", "--reason", "a [/test]").stdout
    assert "forced: a [/test]" in " ".join(site.run("rlalloc", "policy", "list").stdout.replace("│", " ").split())
    assert "shipped is in use" in site.run("rlalloc", "policy", "rollback").stdout
    site.run("rm", "-r", f"/var/lib/rlalloc/policies/{version}")
    site.run("sed", "-i", "s#ipc:///run/rlalloc/agent.sock#tcp://0.0.0.0:5999#", CONFIGURATION)
    assert site.run("rlalloc", "config", "check", "--offline", check=False).returncode == 2
    site.run("sed", "-i", "s#tcp://0.0.0.0:5999#tcp://192.0.2.1:5999#", CONFIGURATION)
    assert "keys" in site.run("rlalloc", "config", "check", "--offline", check=False).stderr
    assert site.run("systemctl", "restart", "rlalloc-agent", check=False).returncode != 0
    assert "TCP needs keys" in site.journal("rlalloc-agent")


def test_switched_off_for_the_whole_site_also_on_a_full_disk(site: Container) -> None:
    off = ("rlalloc", "off", "--all", "--why", "maintenance")
    assert "run as submitted" in site.run(*off).stdout
    assert "rlalloc:" not in site.run("scontrol", "show", "job", str(debian_slurm.submit(site, MOLDABLE))).stdout
    site.run("systemctl", "restart", "rlallocd")
    assert "switched off" in site.run("rlalloc", "status", check=False).stdout
    assert "switched on" in site.run("rlalloc", "on").stdout
    options = "size=16k,mode=2770,uid=rlalloc,gid=rlalloc"
    site.run("mount", "-t", "tmpfs", "-o", options, "none", "/var/lib/rlalloc/policies")
    try:
        site.run("sh", "-c", "dd if=/dev/zero of=/var/lib/rlalloc/policies/fills || true")
        said = " ".join(site.run(*off).stdout.split())
        assert "until rlallocd is restarted" in said
        assert "no job is deferred or changed any more" in said
        site.run("rm", "/var/lib/rlalloc/policies/fills")
        debian_slurm.wait_for(site, "cat", "/var/lib/rlalloc/policies/switch.json", expect="maintenance")
        site.run("rlalloc", "on")
    finally:
        site.run("umount", "/var/lib/rlalloc/policies")
