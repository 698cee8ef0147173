"""What ``rlalloc doctor`` and ``rlalloc config check`` say of a site: each fault is a line with its remedy."""

import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlalloc import __version__
from rlalloc.config import Config, NodesSection, Rule, parse_config
from rlalloc.messages import AgentState
from rlalloc.policy.last_training import FILE, LastTraining, TrainingRuns, note_training, running_training
from rlalloc.store import Store
from rlalloc.store.database import without_secrets
from rlalloc_cli.doctor.node_checks import WrongNodes, named_nodes, node_findings
from rlallocd.checks.configuration_check import file_findings
from rlallocd.checks.controller_checks import controller_findings
from rlallocd.checks.directory_checks import directory_findings
from rlallocd.checks.finding import Finding, worst
from rlallocd.checks.machine_checks import (
    agent_findings,
    daemon_findings,
    heartbeat_findings,
    plugin_findings,
    training_findings,
    wake_findings,
)
from rlallocd.checks.slurm_checks import (
    TaskScripts,
    checked_finding,
    chooses_types,
    gpu_types_finding,
    slurm_findings,
)
from rlallocd.checks.store_checks import disk_findings, store_findings
from rlallocd.checks.units import UnitState
from rlallocd.process.daemon_state import DaemonState
from rlallocd.slurm import Commands, NodeRecord, SlurmError, SlurmUnavailable, UpdateRefused
from rlallocd.slurm.node_probe import NodeAnswer, NodeProbe
from rlallocd.slurm.site_settings import SiteSettings, settings_of
from tests.cli.rlalloc_command import run_rlalloc
from tests.daemon.slurm_in_memory import NODE, gpus

FIXTURES = Path(__file__).parents[1] / "daemon" / "fixtures"
NOW_S = 1_800_000_000.0
SITE = SiteSettings(
    slurm_version="22.05.8",
    cluster="c",
    slurm_user="slurm",
    task_prolog="/usr/lib/rlalloc/task_prolog",
    task_epilog="/usr/lib/rlalloc/task_epilog",
    accounting_flags=frozenset({"job_comment", "job_script"}),
    job_submit_plugins=frozenset({"lua"}),
    accounting_tres=frozenset({"cpu", "gres/gpu"}),
    accounting_storage="accounting_storage/slurmdbd",
    gathers="jobacct_gather/cgroup",
    slurm_conf="/etc/slurm/slurm.conf",
    booted_s=NOW_S - 3600,
    clock_s=NOW_S,
    partitions=frozenset({"gpu", "debug"}),
    accounts=frozenset({"root", "nlp"}),
    daemon_user="rlallocd",
    admin_level="admin",
)
ENFORCING = Config(mode="enforce")
OURS = TaskScripts("# TaskProlog of rlalloc", "# TaskEpilog of rlalloc")
NONE_HERE = TaskScripts(None, None)
STATE = DaemonState(pid=1, started_s=0.0, written_s=0.0, mode="shadow", wanted="shadow")


def of(findings: list[Finding], what: str) -> Finding:
    return next(finding for finding in findings if finding.what == what)


def test_a_site_that_is_right_is_ok() -> None:
    findings = slurm_findings(ENFORCING, SITE, OURS, NOW_S)
    assert {finding.level for finding in findings} == {"OK"}


@pytest.mark.parametrize(
    ("changes", "what", "level"),
    [
        ({"job_submit_plugins": frozenset({"all_partitions"})}, "submit plugin", "FAIL"),
        ({"select_type": "select/linear"}, "SelectType", "FAIL"),
        ({"select_parameters": frozenset({"cr_socket_memory"})}, "SelectType", "WARN"),
        ({"slurm_version": "24.11.5", "select_parameters": frozenset({"cr_socket"})}, "SelectType", "WARN"),
        ({"select_parameters": frozenset({"cr_core", "cr_one_task_per_core"})}, "SelectType", "WARN"),
        ({"select_type": "select/cons_res", "select_parameters": frozenset({"cr_socket"})}, "SelectType", "FAIL"),
        ({"accounting_tres": frozenset({"cpu"})}, "GPU counts", "FAIL"),
        ({"accounting_tres": frozenset({"gres/gpu:a100"})}, "GPU counts", "OK"),
        ({"accounting_storage": "accounting_storage/none"}, "accounting", "FAIL"),
        ({"accounting_storage": "accounting_storage/none", "accounts": None}, "accounting", "FAIL"),
        ({"accounting_storage": "accounting_storage/none", "accounts": None}, "accounts of rules", "OK"),
        ({"accounts": None}, "accounting", "WARN"),
        ({"gathers": "jobacct_gather/none"}, "memory use", "WARN"),
        ({"task_prolog": ""}, "TaskProlog", "FAIL"),
        ({"task_epilog": ""}, "TaskEpilog", "WARN"),
        ({"accounting_flags": frozenset({"job_script"})}, "TaskEpilog", "WARN"),
        ({"clock_s": NOW_S - 60}, "clock", "FAIL"),
        ({"admin_level": "none"}, "AdminLevel", "FAIL"),
        ({"admin_level": "operator"}, "AdminLevel", "FAIL"),
        ({"admin_level": "slurm"}, "AdminLevel", "WARN"),
        ({"admin_level": "slurm", "accounts": None}, "AdminLevel", "OK"),
    ],
)
def test_each_fault_of_a_site_is_found(changes: dict[str, object], what: str, level: str) -> None:
    site = msgspec.structs.replace(SITE, **changes)
    found = of(slurm_findings(ENFORCING, site, OURS, NOW_S), what)
    assert found.level == level
    assert bool(found.remedy) == (level != "OK")


def test_a_slurmctld_that_missed_the_admin_level_is_to_be_restarted() -> None:
    """A slurmctld that starts while sacctmgr adds the user never hears of it, nor of later changes of the level."""
    found = of(
        slurm_findings(ENFORCING, msgspec.structs.replace(SITE, admin_level="none"), OURS, NOW_S), "AdminLevel"
    )
    assert "systemctl restart slurmctld" in found.remedy


@pytest.mark.parametrize(
    ("storage", "first"), [("slurmdbd", "add AccountingStorageTRES"), ("none", "set up slurmdbd")]
)
def test_no_remedy_keeps_slurmctld_from_starting(storage: str, first: str) -> None:
    """Without slurmdbd, AccountingStorageTRES=gres/gpu is fatal to slurmctld."""
    site = msgspec.structs.replace(
        SITE, accounting_storage=f"accounting_storage/{storage}", accounting_tres=frozenset({"cpu"})
    )
    assert of(slurm_findings(ENFORCING, site, OURS, NOW_S), "GPU counts").remedy.startswith(first)


def test_shadow_mode_needs_no_task_prolog() -> None:
    site = msgspec.structs.replace(SITE, task_prolog="")
    assert of(slurm_findings(Config(), site, NONE_HERE, NOW_S), "TaskProlog").level == "OK"


@pytest.mark.parametrize(("text", "level"), [(None, "WARN"), ("echo export X=1", "FAIL"), ("exec rlalloc/t", "OK")])
def test_a_task_prolog_of_the_site_has_to_call_ours(text: str | None, level: str) -> None:
    assert of(slurm_findings(ENFORCING, SITE, OURS._replace(prolog=text), NOW_S), "TaskProlog").level == level


@pytest.mark.parametrize(("text", "level"), [(None, "WARN"), ("logger done", "WARN"), ("exec rlalloc/t", "OK")])
def test_a_task_epilog_of_the_site_has_to_call_ours_where_jobs_change(text: str | None, level: str) -> None:
    scripts = OURS._replace(epilog=text)
    assert of(slurm_findings(ENFORCING, SITE, scripts, NOW_S), "TaskEpilog").level == level
    assert of(slurm_findings(Config(), SITE, scripts, NOW_S), "TaskEpilog").level == "OK"


def test_partitions_accounts_and_capped_modes_of_rules_are_checked() -> None:
    config = parse_config(
        "mode: shadow\nrules:\n"
        "  - {name: a, mode: enforce, partitions: [gpu, gpuu], accounts: [NLP]}\n"
        "  - {name: b, accounts: [vision, '*']}",
        "x",
    )
    findings = slurm_findings(config, SITE, NONE_HERE, NOW_S)
    assert of(findings, "partitions of rules").found == "the site has no gpuu"
    assert of(findings, "accounts of rules").found == "the site has no vision"
    assert of(findings, "rule a").found == "its mode is enforce, the file's is shadow: shadow is in force"
    assert not [finding for finding in findings if finding.what == "rule b"]


@pytest.mark.parametrize("version", ["22.05", "24.11", "25.11", "26.05"])
def test_what_real_slurmctlds_print_is_read(version: str) -> None:
    """Recorded sites, without plugin and TaskProlog."""
    text = (FIXTURES / f"slurm-{version}" / "config.txt").read_text()
    site = settings_of(text, frozenset({"gpu"}), None)
    assert site.slurm_version.startswith(version)
    assert "gres/gpu" in site.accounting_tres
    assert (site.task_prolog, site.task_epilog, site.job_submit_plugins) == ("", "", frozenset())
    printed = re.search(r"^AccountingStoreFlags +(.*)$", text, re.MULTILINE)
    assert printed is not None
    assert site.accounting_flags == frozenset()
    named = text.replace(printed[0], "AccountingStoreFlags    = job_comment,job_env")
    assert "job_comment" in settings_of(named, frozenset({"gpu"}), None).accounting_flags
    assert site.slurm_conf.endswith("/slurm.conf")


def unit(active: str, **more: Any) -> UnitState:
    return msgspec.structs.replace(UnitState("rlallocd.service", active, "", "success", "Mon"), **more)


@pytest.mark.parametrize(
    ("changes", "unit_state", "level", "words"),
    [
        ({}, unit("active"), "OK", "up for"),
        ({}, None, "OK", "up for"),
        ({}, unit("inactive"), "FAIL", "stopped since"),
        ({"stopped": True}, None, "FAIL", "stopped since"),
        ({"stopped": True, "problem": "newer store", "problem_s": 0}, None, "FAIL", "stopped since .*: newer store"),
        ({"stopped": True, "problem": "solved", "problem_s": -60}, None, "FAIL", r"stopped since \S+ \S+$"),
        ({"written_s": -600}, unit("active"), "FAIL", "no sign of life since"),
        ({"waiting": "the store failed"}, unit("active"), "FAIL", "waiting: the store failed"),
        (
            {"cycle_s": -600, "problem": "disk full", "problem_s": -60},
            unit("active"),
            "FAIL",
            "no successful cycle since .*disk full",
        ),
        ({"started_s": -5, "cycle_s": None}, None, "WARN", "started 5 s ago, no cycle yet"),
        ({"started_s": -500, "cycle_s": None}, None, "FAIL", "no successful cycle since its start"),
        ({"stopped": True}, unit("active", up_s=5.2), "WARN", "started 5 s ago, no cycle yet"),
        ({"stopped": True}, unit("inactive"), "FAIL", "stopped since"),
        ({"mode_reason": "no TaskProlog", "wanted": "enforce"}, unit("active"), "FAIL", "no TaskProlog"),
        ({"version": "0.1.0"}, unit("active"), "WARN", "rlallocd is 0.1.0"),
        (
            {"standby": "slurmctld on a is in control", "cycle_s": None},
            unit("active"),
            "OK",
            "STANDBY: slurmctld on a",
        ),
        ({"standby": "store.key_file is another one"}, unit("active"), "WARN", "STANDBY: store.key_file is another"),
        ({"standby": "slurmctld on a is in control", "stopped": True}, unit("inactive"), "FAIL", "stopped since"),
    ],
)
def test_how_the_daemon_is(changes: dict[str, object], unit_state: UnitState | None, level: str, words: str) -> None:
    now_s = time.time()
    times = {"started_s": now_s - 9000, "written_s": now_s, "cycle_s": now_s, "problem_s": now_s}
    relative = {name: now_s + value for name, value in changes.items() if isinstance(value, int) and name in times}
    state = msgspec.structs.replace(STATE, **(times | changes | relative))
    findings = daemon_findings(Config(), state, unit_state)
    assert worst(findings) == level
    assert any(re.search(words, finding.found) for finding in findings)


def test_a_daemon_that_never_ran() -> None:
    (found,) = daemon_findings(Config(), None, None)
    assert (found.level, found.found) == ("FAIL", "it has never run here")


def test_a_daemon_that_has_just_started_is_not_to_be_started_again() -> None:
    (found,) = daemon_findings(Config(), None, unit("active"))
    assert (found.level, found.found) == ("FAIL", "it runs, but has not reported yet")
    assert "wait" in found.remedy
    assert "systemctl enable" not in found.remedy
    (found,) = daemon_findings(Config(), None, unit("active", up_s=5.0))
    assert (found.level, found.found) == ("WARN", "started 5 s ago, no cycle yet")


def test_a_backup_needs_what_both_machines_have(tmp_path: Path) -> None:
    """One slurmctld needs nothing of it."""
    store = f"sqlite:///{tmp_path}/store.sqlite"
    config = parse_config(f"{{store: {{url: '{store}'}}, policy: {{directory: {tmp_path}}}}}", "x")
    assert controller_findings(config, msgspec.structs.replace(SITE, controllers=("a",))) == []
    here = socket.gethostname()
    two = msgspec.structs.replace(SITE, controllers=(here, "b"))
    (found,) = controller_findings(config, two)
    assert (found.level, found.what) == ("WARN", "controllers")
    assert "is a file of this machine alone: the rlallocd of a backup cannot take over" in found.found
    shared = parse_config(f"{{store: {{url: '{store}?shared=yes'}}, policy: {{directory: {tmp_path}}}}}", "x")
    (found,) = controller_findings(shared, two)
    assert f"{tmp_path} is no network file system: is it the same on {here}, b?" in found.found
    (found,) = controller_findings(shared, msgspec.structs.replace(SITE, controllers=("a", "b")))
    assert f"{here} is none of those in slurm.conf: a, b" in found.found
    assert worst(heartbeat_findings(parse_config(f"runtime_directory: {tmp_path}", "x"), standby=True)) == "OK"


def test_right_after_the_start_nothing_fails(tmp_path: Path) -> None:
    config = parse_config(f"runtime_directory: {tmp_path}", "x")
    assert worst(heartbeat_findings(config)) == "FAIL"
    assert worst(heartbeat_findings(config, starting=True)) == "WARN"
    (agent,) = agent_findings("cannot reach the agent", unit("active", up_s=5.0))
    assert (agent.level, agent.found) == ("WARN", "started 5 s ago, does not answer yet")
    assert worst(agent_findings("cannot reach the agent", unit("active", up_s=500.0))) == "FAIL"


def test_before_the_first_night_no_training_is_missed(tmp_path: Path) -> None:
    config = parse_config(f"policy: {{directory: {tmp_path}}}", "x")
    timer, service = unit("active", next_run="Tue 2026-11-24 03:41:10 UTC"), unit("inactive")
    (found,) = training_findings(config, timer, service)
    assert (found.level, found.found) == ("OK", "none yet; first training at Tue 2026-11-24 03:41:10 UTC")
    assert worst(training_findings(config, timer, unit("activating", has_run=True))) == "OK"
    assert worst(training_findings(config, timer, unit("inactive", has_run=True))) == "WARN"
    assert worst(training_findings(config, timer, unit("failed", result="exit-code"))) == "FAIL"


def test_an_agent_that_does_not_answer_or_serves_another_policy() -> None:
    assert worst(agent_findings("cannot reach the agent", unit("inactive"))) == "FAIL"
    never = msgspec.structs.replace(unit("inactive"), since="")
    assert "since" not in agent_findings("cannot reach the agent", never)[0].found
    state = AgentState(
        request_id="",
        policy_version="shipped-10",
        started_s=0.0,
        counters={},
        problem="v000003 is gone",
        version=__version__,
    )
    assert "v000003 is gone" in agent_findings(state, None)[0].found
    assert worst(agent_findings(msgspec.structs.replace(state, problem=""), None)) == "OK"
    old = agent_findings(msgspec.structs.replace(state, problem="", version="0.1.9"), None)
    assert (worst(old), old[0].remedy) == ("WARN", "systemctl restart rlalloc-agent")


def test_trainings_that_failed_keep_when_one_last_succeeded(tmp_path: Path) -> None:
    config = parse_config(f"policy: {{directory: {tmp_path}}}", "x")
    assert worst(training_findings(config, None, None)) == "WARN"
    note_training(tmp_path, "the store failed", failed=True)
    assert "none has succeeded yet" in of(training_findings(config, None, None), "training").found
    note_training(tmp_path, "v000001 is promoted", failed=False, promoted=True)
    assert worst(training_findings(config, None, None)) == "OK"
    note_training(tmp_path, "the store failed", failed=True)
    assert "the store failed; the last success was 20" in of(training_findings(config, None, None), "training").found


TRAINS = """
import sys; from pathlib import Path; from rlalloc.policy.last_training import note_training, running_training
with running_training(Path(sys.argv[1])):
    print("runs", flush=True)
    if sys.stdin.readline():
        note_training(Path(sys.argv[1]), "kept the policy in use", failed=False)
        print("noted", flush=True)
        sys.stdin.readline()
"""


def training_in(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINS, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_training_that_is_told_to_stop_has_not_failed(tmp_path: Path, number: signal.Signals) -> None:
    """By systemctl stop, a removal of the packages, a reboot or Ctrl-C; what was known before stays."""
    config = parse_config(f"policy: {{directory: {tmp_path}}}", "x")
    for success in ("none has succeeded yet", "the last success was 20"):
        with training_in(tmp_path) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
            process.send_signal(number)
        assert process.returncode == -number
        found = of(training_findings(config, None, None), "training")
        assert (found.level, "stopped at 20" in found.found, success in found.found) == ("WARN", True, True)
        assert "systemctl start" in found.remedy
        note_training(tmp_path, "kept the policy in use", failed=False)
    note_training(tmp_path, "the store failed", failed=True)
    with training_in(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.terminate()
    found = of(training_findings(config, None, None), "training")
    assert (found.level, "the store failed" in found.found) == ("FAIL", True)


@pytest.mark.parametrize("at_s", [1e300, -1e300, 1e18, 1e13])
def test_a_note_of_a_training_with_an_impossible_time_is_shown(tmp_path: Path, at_s: float) -> None:
    """Anyone in the group rlalloc can write such a note."""
    config = parse_config(f"policy: {{directory: {tmp_path}}}", "x")
    note = LastTraining(ended_s=at_s, failed=True, promoted=False, verdict="", succeeded_s=at_s, stopped_s=at_s)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(note))
    assert f"failed at {at_s:g} s after 1970" in of(training_findings(config, None, None), "training").found


def test_a_training_that_is_told_to_stop_after_its_end_has_ended(tmp_path: Path) -> None:
    config = parse_config(f"policy: {{directory: {tmp_path}}}", "x")
    with training_in(tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert [process.stdout.readline(), process.stdout.readline()] == ["runs\n", "noted\n"]
        process.terminate()
    assert worst(training_findings(config, None, None)) == "OK"


def test_a_training_that_was_killed_has_failed(tmp_path: Path) -> None:
    """By the kernel, a time limit or with the machine: what last night's one came to says nothing of it."""
    config = parse_config(f"policy: {{directory: {tmp_path}}}", "x")
    note_training(tmp_path, "kept the policy in use", failed=False)
    with training_in(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        assert worst(training_findings(config, None, None)) == "OK"
        with pytest.raises(TrainingRuns), running_training(tmp_path):
            pass
        process.kill()
        process.wait()
    found = of(training_findings(config, None, None), "training")
    assert (found.level, "it was killed before it ended" in found.found) == ("FAIL", True)
    assert "the last success was 20" in found.found
    with running_training(tmp_path):
        note_training(tmp_path, "kept the policy in use", failed=False)
    assert worst(training_findings(config, None, None)) == "OK"
    failed = msgspec.structs.replace(unit("failed"), result="exit-code", ended_s=time.time() + 3600)
    assert "(exit-code)" in of(training_findings(config, None, failed), "training").found


def test_a_plugin_that_slurmctld_has_not_read_yet(tmp_path: Path) -> None:
    """A package sets the module's mtime to the time at which it was built, long ago."""
    module, caller = tmp_path / "rlalloc.lua", tmp_path / "job_submit.lua"
    assert of(plugin_findings(0.0, module, caller), "plugin").level == "FAIL"
    for path, text in ((module, f'local VERSION = "{__version__}" -- of rlalloc\n'), (caller, "rlalloc")):
        path.write_text(text)
        os.utime(path, (100, 100))
    assert of(plugin_findings(200.0, module, caller), "plugin").remedy == f"touch {caller}"
    assert "past limits" in of(plugin_findings(time.time() + 60, module, caller), "plugin").found
    caller.write_text((Path(__file__).parents[2] / "slurm_plugin" / "job_submit.lua").read_text())
    assert of(plugin_findings(time.time() + 60, module, caller), "plugin").level == "OK"
    module.write_text('local VERSION = "0.1.9"\n')
    assert "is of 0.1.9" in of(plugin_findings(time.time() + 60, module, caller), "plugin").found
    caller.write_text("return slurm.SUCCESS")
    assert of(plugin_findings(time.time() + 60, module, caller), "plugin").level == "FAIL"


def test_the_module_says_which_version_it_is() -> None:
    module = Path(__file__).parents[2] / "slurm_plugin" / "rlalloc.lua"
    assert f'local VERSION = "{__version__}"' in module.read_text()


def test_a_wake_file_that_slurmctld_cannot_write(tmp_path: Path) -> None:
    """The plugin touches it as SlurmUser, which is often root and often not."""
    config, path = parse_config(f"runtime_directory: {tmp_path}", "x"), tmp_path / "wake"
    assert "No such file" in of(wake_findings(config, "nobody"), "wake file").found
    path.touch(mode=0o640)
    told = of(wake_findings(config, "nobody"), "wake file")
    assert (told.level, told.checked, "SlurmUser" in told.remedy) == ("FAIL", True, True)
    assert of(wake_findings(config, "root"), "wake file").level == "OK"
    os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    assert of(wake_findings(config, "nobody"), "wake file").level == "OK"
    assert not of(wake_findings(config, "no-such-user"), "wake file").checked
    path.unlink()
    os.mkfifo(path)
    assert "is not a file" in of(wake_findings(config, "root"), "wake file").found


@pytest.mark.parametrize(
    ("mode", "users", "wrong"),
    [
        (0o3770, ("root", "root"), ""),
        (0o2770, ("root", "root"), "it is not sticky"),
        (0o1777, ("root", "root"), "everybody can write there"),
        (0o3775, ("root", "nobody"), "nobody cannot write there"),
    ],
)
def test_a_runtime_directory_with_other_rights(tmp_path: Path, mode: int, users: tuple[str, str], wrong: str) -> None:
    config = parse_config(f"runtime_directory: {tmp_path}\npolicy: {{directory: {tmp_path}}}", "x")
    tmp_path.chmod(mode)
    (finding,) = (each for each in directory_findings(config, *users) if each.what == "runtime directory")
    assert (finding.level, wrong in finding.found) == ("FAIL" if wrong else "OK", True)


def test_directories_of_a_user_that_is_not_there_are_not_checked(tmp_path: Path) -> None:
    config = parse_config(f"runtime_directory: {tmp_path}\npolicy: {{directory: {tmp_path}}}", "x")
    found = directory_findings(config, "root", "no-such-user")
    assert [(each.level, each.checked) for each in found] == [("WARN", False)] * 2


def test_a_file_system_of_each_directory_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"runtime_directory: {tmp_path}\npolicy: {{directory: /dev/shm}}\nstore: {{key_file: /proc/k}}"
    seen: list[Path] = []

    def usage(path: Path) -> shutil._ntuple_diskusage:
        seen.append(path)
        return shutil._ntuple_diskusage(1 << 40, 0, 1 << 20)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = disk_findings(parse_config(text, "x"))
    assert {tmp_path, Path("/dev/shm")} <= set(seen)
    assert {each.level for each in found} == {"FAIL"}


def test_a_store_that_one_of_its_users_cannot_write(tmp_path: Path) -> None:
    (unusable,) = store_findings(parse_config("store: {url: nonsense}", "x"), ())
    assert (unusable.level, unusable.what) == ("FAIL", "store")
    config = parse_config(f"store: {{url: 'sqlite:///{tmp_path}/s.sqlite'}}", "x")
    assert worst(store_findings(config, ())) == "FAIL"
    Store(config.store.url).close()
    found = store_findings(config, ("nobody-of-this-name",))
    assert [finding.level for finding in found if finding.what == "store"] == ["OK"]
    assert of(found, "store for nobody-of-this-name").level == "WARN"
    assert {finding.what for finding in disk_findings(config)} == {"disk"}


def node(name: str, *, usable: bool = True, count: int = 8) -> NodeRecord:
    return msgspec.structs.replace(NODE, name=name, usable=usable, devices=gpus("a100", count))


def test_each_node_is_asked_for_the_task_prolog(tmp_path: Path) -> None:
    ours = tmp_path / "task_prolog"
    ours.write_text("#!/bin/sh")
    digest = hashlib.sha256(b"#!/bin/sh").hexdigest()
    answers: dict[str, NodeAnswer | SlurmError] = {
        "right": NodeAnswer(called=True, digest=digest),
        "shared": NodeAnswer(called=True, digest=None),
        "old": NodeAnswer(called=True, digest="0" * 64),
        "older": NodeAnswer(called=True, digest="0" * 64, version=1),
        "uncalled": NodeAnswer(called=False, digest=digest),
        "without": NodeAnswer(called=False, digest=None),
        "failing": UpdateRefused("srun: error: failing: task 0: Exited with exit code 1"),
        "busy": UpdateRefused("srun -w busy: srun: error: Unable to allocate resources: Requested nodes are busy"),
        "closed": UpdateRefused("srun -w closed: srun: error: Unable to allocate resources: Invalid account"),
        "slow": SlurmUnavailable("srun gave no answer in 40 s"),
    }

    marks: dict[str, bool] = {}

    class Probe(NodeProbe):
        def ask(self, node: NodeRecord, path: str) -> NodeAnswer:
            answer = answers[node.name]
            if isinstance(answer, SlurmError):
                raise answer
            return answer

        def mark(self, node: NodeRecord, seen_s: float | None) -> None:
            marks[node.name] = seen_s is not None
            if node.name == "shared":
                raise UpdateRefused("slurm_update error: Invalid user id")

    probe = Probe(Commands(1.0))
    nodes = [*map(node, answers), node("down", usable=False)]
    found = node_findings(nodes, "/usr/lib/rlalloc/task_prolog", ours, probe)
    levels = {finding.what.removeprefix("node "): finding.level for finding in found}
    assert levels == {
        "right": "OK",
        "shared": "WARN",
        "old": "WARN",
        "older": "FAIL",
        "uncalled": "FAIL",
        "without": "FAIL",
        "failing": "FAIL",
        "busy": "WARN",
        "closed": "WARN",
        "slow": "WARN",
        "down": "WARN",
    }
    busy, closed = of(found, "node busy"), of(found, "node closed")
    refused = "srun: Unable to allocate resources: Requested nodes are busy"
    assert busy.found == f"not checked: its CPUs are all taken ({refused})"
    assert busy.remedy == "rlalloc doctor --nodes busy when a job there has ended"
    assert closed.found.startswith("not checked: Slurm lets this user run no job there (srun: Unable")
    assert "run rlalloc doctor --nodes as root" in of(found, "node shared").remedy
    assert marks == {
        "right": True,
        "shared": True,
        "old": True,
        "older": False,
        "uncalled": False,
        "without": False,
        "failing": False,
    }
    not_named = node_findings(nodes, "", tmp_path / "none", probe)
    assert (of(not_named, "node uncalled").level, of(not_named, "node without").level) == ("OK", "FAIL")


def test_nodes_that_were_not_checked_are_told() -> None:
    nodes = [node("n1"), msgspec.structs.replace(node("n2"), extra="")]
    assert checked_finding(nodes[:1], ENFORCING).level == "OK"
    assert "start on n2 stay" in checked_finding(nodes, ENFORCING).found
    trusted = Config(mode="enforce", nodes=NodesSection(task_prolog="trusted"))
    assert checked_finding(nodes, trusted).level == "OK"


@pytest.mark.parametrize(
    ("types", "level", "said"),
    [
        (("a100",), "OK", "all exist"),
        (("a100", "h100"), "FAIL", "the site has no GPUs of type h100"),
        (("a100", "mi300x"), "WARN", "rlalloc does not know the speed of mi300x"),
    ],
)
def test_types_to_choose_are_those_of_the_site(types: tuple[str, ...], level: str, said: str) -> None:
    there = ("a100", "a100_1g.10gb", *(name for name in types if name == "mi300x"))
    nodes = [msgspec.structs.replace(node(name), devices=gpus(name, 8)) for name in there]
    chosen = tuple(name for name in types if name != "mi300x")
    config = Config(rules=(Rule(name="llm", choose_gpu_types=chosen),))
    assert chooses_types(config)
    assert not chooses_types(Config())
    finding = gpu_types_finding(nodes, config)
    assert (finding.level, finding.found) == (level, said)


def test_a_stated_speed_is_known_and_is_of_a_type_of_the_site() -> None:
    nodes = [msgspec.structs.replace(node(name), devices=gpus(name, 8)) for name in ("a100", "mi300x")]
    rules = (Rule(name="llm", choose_gpu_types=("mi300x",)),)
    for stated, level, said in (
        ({"mi300x": 2.8}, "OK", "all exist"),
        ({"mi300x": 2.8, "h200": 3.1}, "WARN", "gpu_speed has types that the site lacks: h200"),
    ):
        finding = gpu_types_finding(nodes, Config(rules=rules, gpu_speed=stated))
        assert (finding.level, finding.found) == (level, said)


def test_nodes_are_named_by_a_host_list() -> None:
    nodes = [node("n1"), node("n2"), node("cpu", count=0)]
    assert [each.name for each in named_nodes("all", nodes)] == ["n1", "n2"]
    assert [each.name for each in named_nodes("n[1-2],cpu", nodes)] == ["n1", "n2", "cpu"]
    for wrong in ("n[1-", "n3"):
        with pytest.raises(WrongNodes):
            named_nodes(wrong, nodes)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql+pymysql://rlalloc:s3cret@db/rlalloc", "mysql+pymysql://rlalloc:***@db/rlalloc"),
        ("postgresql://db/rlalloc?user=a&password=s3cret&x=1", "postgresql://db/rlalloc?user=a&password=***&x=1"),
        ("sqlite:////var/lib/rlalloc/store.sqlite", "sqlite:////var/lib/rlalloc/store.sqlite"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


@pytest.fixture
def slurm_commands(tmp_path: Path) -> Callable[[str], None]:
    """A scontrol and a sacctmgr that print what a recorded site printed."""

    def write(partition: str) -> None:
        recorded = FIXTURES / "slurm-22.05"
        scontrol = f'case "$*" in *config*) cat {recorded}/config.txt;; *) echo PartitionName={partition};; esac'
        for name, text in (("scontrol", scontrol), ("sacctmgr", "echo root; echo nlp")):
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

    return write


def test_config_check_is_about_the_site_too(tmp_path: Path, slurm_commands: Callable[[str], None]) -> None:
    """And `--offline`, which a reload runs, is about the file alone: `mode: off` must always be possible."""
    path = tmp_path / "rlalloc.yaml"
    path.write_text("rules: [{name: a, partitions: [gpuu]}]\n")
    slurm_commands("gpu")

    def check(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "COLUMNS": "150"}
        return run_rlalloc(*words, "--config", str(path), environment=environment)

    done = check("config", "check")
    assert done.returncode == 1
    assert "the site has no gpuu" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("the file is right, but does not fit the site: see FAIL above")
    assert ": OK" not in done.stdout
    assert "JobSubmitPlugins lacks lua" in done.stdout
    assert check("config", "check", "--offline").returncode == 0
    path.write_text("store: {url: nonsense}\n")
    done = check("config", "check")
    assert (done.returncode, "store.url cannot be used" in done.stderr) == (2, True)
    assert check("config", "check", "--offline").returncode == 0
    path.write_text("rules: [{name: a, partitions: [gpuu]}]\n")
    told = json.loads(check("doctor", "--json").stdout)
    assert told["worst"] == "FAIL"
    assert {
        "level": "FAIL",
        "what": "partitions of rules",
        "found": "the site has no gpuu",
        "remedy": "it has gpu",
        "checked": True,
    } in (told["findings"])
    assert check("doctor").returncode == 1


def test_a_configuration_that_others_can_change_is_told(tmp_path: Path) -> None:
    """By its owner, its mode or its directory's; a group that root chose may write it."""
    path, me = tmp_path / "rlalloc.yaml", pwd.getpwuid(os.geteuid()).pw_name
    path.write_text("")

    def found() -> tuple[str, str]:
        (finding,) = file_findings(path, Config(), me)
        return finding.level, finding.found

    path.chmod(0o664)
    assert found()[0] == "OK"
    path.chmod(0o646)
    assert found() == ("FAIL", f"every user can change {path}, and so what rlallocd and root's commands do")
    path.chmod(0o640)
    tmp_path.chmod(0o777)
    assert found()[0] == "FAIL"
    tmp_path.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(path, pwd.getpwnam("daemon").pw_uid, -1)
        assert "the user daemon can change" in found()[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
@pytest.mark.parametrize(
    ("options", "said"), [("nr_inodes=1", "no inodes are left"), ("ro", "read-only file system")]
)
def test_what_a_free_disk_can_lack(tmp_path: Path, options: str, said: str) -> None:
    """There is room, and yet no file can be made."""
    look = """
import sys
from rlalloc.config import parse_config
from rlallocd.checks.store_checks import disk_findings
print(disk_findings(parse_config("policy: {directory: %s}" % sys.argv[1], "x")))
"""
    mount = f'mount -t tmpfs -o {options} none "$1" && exec "$3" -c "$2" "$1"'
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", str(tmp_path), look]
    found = subprocess.run([*inside, sys.executable], capture_output=True, text=True, check=True).stdout
    assert said in found.partition("level='FAIL'")[2].partition("level=")[0], found
