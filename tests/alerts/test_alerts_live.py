"""What a failure makes fire: a real site, a real Prometheus of Debian's, the rules as shipped but for their patience.

The first test is in ``make test``; ``make test-alerts`` has every failure, and each query of the dashboard.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from rlalloc.policy.policies import PolicyStore
from rlalloc_testbed import Installation
from slurm_testbed import wait_until
from tests.daemon.conftest import MOLDABLE

from .conftest import Watch
from .test_rules import DASHBOARD

pytestmark = pytest.mark.slurm

RLALLOC = Path(sys.executable).with_name("rlalloc")
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
_WITHIN_S = 240.0


def rlalloc(installation: Installation, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RLALLOC, *words, "--config", str(installation.config_path)],
        env=installation.site.environment() | installation.environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_agent_that_dies_a_store_that_is_damaged_and_a_daemon_that_dies(
    installation: Installation, watch: Watch
) -> None:
    server = watch(installation)
    installation.stop("rlalloc-agent", signal.SIGKILL)
    server.wait_for("RlallocAgentDown")
    with closing(sqlite3.connect(installation.store_path)) as connection:
        connection.execute("ALTER TABLE applications RENAME TO gone")
        connection.commit()
    server.wait_for("RlallocStoreFailing", "RlallocErrorsLogged")
    installation.stop("rlallocd", signal.SIGKILL)
    server.wait_for("RlallocdDown")


@pytest.mark.alerts
def test_slurmctld_that_is_down(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.site.stop_daemon("slurmctld")
    try:
        server.wait_for("RlallocSlurmFailing", "RlallocdNoCycle", "RlallocInterceptExpired")
    finally:
        installation.site.start_daemon("slurmctld")
        installation.site.wait_for_nodes()


@pytest.mark.alerts
def test_slurmctld_that_is_down_at_the_daemons_start(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.site.stop_daemon("slurmctld")
    try:
        installation.stop("rlallocd")
        with (installation.site.log_directory / "rlallocd.log").open("ab") as log:
            installation.processes["rlallocd"] = subprocess.Popen(
                [RLALLOC.with_name("rlallocd"), "--config", str(installation.config_path)],
                env=installation.site.environment(),
                stdout=log,
                stderr=log,
            )
        server.wait_for("RlallocdNotConnected")
    finally:
        installation.site.start_daemon("slurmctld")
        installation.site.wait_for_nodes()


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


@pytest.mark.alerts
def test_a_disk_that_is_full(installation: Installation, watch: Watch) -> None:
    with small_disk(installation.site.directory / "small", 1200) as folder:
        installation.stop("rlallocd")
        installation.write_config(store={"url": f"sqlite:///{folder}/store.sqlite"})
        installation.start("rlallocd")
        server = watch(installation)
        room = os.statvfs(folder)
        with (folder / "ballast").open("wb") as ballast:
            os.posix_fallocate(ballast.fileno(), 0, room.f_bavail * room.f_frsize)
        installation.submit(MOLDABLE)
        server.wait_for("RlallocDiskFull", "RlallocStoreFailing")
        installation.stop("rlallocd", signal.SIGKILL)


@pytest.mark.alerts
def test_a_store_that_the_daemon_may_not_write(installation: Installation, watch: Watch) -> None:
    """As after a restore by root: without the capability to override modes, as another user is."""
    server = watch(installation)
    installation.stop("rlallocd")
    for path in installation.site.directory.glob("store.sqlite*"):
        path.chmod(0o400)
    with (installation.site.log_directory / "rlallocd.log").open("ab") as log:
        installation.processes["rlallocd"] = subprocess.Popen(
            [
                *("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", "--"),
                *(RLALLOC.with_name("rlallocd"), "--config", str(installation.config_path)),
            ],
            env=installation.site.environment(),
            stdout=log,
            stderr=log,
        )
    job_id = installation.submit(MOLDABLE)
    wait_until(
        lambda: {"RlallocStoreFailing", "RlallocdNotConnected"} & server.firing(),
        what="it is seen",
        timeout_s=_WITHIN_S,
    )
    server.wait_for()
    installation.site.wait_for_states([job_id], {"COMPLETED"})


@pytest.mark.alerts
def test_a_runtime_directory_that_cannot_be_written(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    aside = installation.runtime.with_name("aside")
    installation.runtime.rename(aside)
    try:
        server.wait_for("RlallocInterceptExpired")
    finally:
        shutil.rmtree(installation.runtime, ignore_errors=True)
        aside.rename(installation.runtime)


@pytest.mark.alerts
def test_a_training_that_fails(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    wrong = installation.site.etc / "wrong.yaml"
    wrong.write_text(yaml.safe_dump(installation.settings | {"store": {"url": "sqlite:////nowhere/store.sqlite"}}))
    done = subprocess.run([RLALLOC, "train", "run", "--config", str(wrong)], capture_output=True, check=False)
    assert done.returncode == 1
    server.wait_for("RlallocTrainingFailed")


@pytest.mark.alerts
def test_no_training_that_ever_succeeded_and_none_for_days(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    last = installation.site.directory / "policies" / "last_training.json"
    told = json.loads(last.read_text())
    last.unlink()
    server.wait_for("RlallocTrainingNeverSucceeded")
    last.write_text(json.dumps(told | {"ended_s": told["ended_s"] - 4 * 86_400}))
    server.wait_for("RlallocTrainingOverdue")


@pytest.mark.alerts
def test_an_agent_that_hangs_while_jobs_come(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.send("rlalloc-agent", signal.SIGSTOP)
    for _ in range(5):
        installation.decision(installation.submit(MOLDABLE))
    server.wait_for("RlallocAgentDown", "RlallocAgentFailing")


@pytest.mark.alerts
def test_a_policy_that_is_damaged_and_one_that_is_rolled_back(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    policies = PolicyStore(installation.site.directory / "policies")
    (policies.directory / "v000001").mkdir()
    (policies.directory / "v000001" / "manifest.json").write_text("{}")
    with policies.locked():
        policies.put_in_use("v000001", by="test", reason="")
    server.wait_for("RlallocPolicyUnusable")
    done = rlalloc(installation, "policy", "rollback", "--reason", "damaged")
    assert done.returncode == 0, done.stderr
    server.wait_for("RlallocPolicyRolledBack")


@pytest.mark.alerts
def test_a_file_that_nobody_reloads_and_a_table_that_is_stale(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.send("rlallocd", signal.SIGSTOP)
    installation.write_config(grace_s=60, commands={"train": ["torchrun", "another-word"]})
    installation.submit(MOLDABLE.replace(": torchrun", "torchrun --nnodes=$SLURM_NNODES || :"))
    installation.write_config(scripts={"memory": ["--mem", "--another-option"]})
    installation.send("rlallocd", signal.SIGCONT)
    server.wait_for("RlallocConfigurationNotInForce")
    installation.send("rlallocd", signal.SIGSTOP)
    installation.submit(MOLDABLE.replace(": torchrun", "torchrun --nnodes=$SLURM_NNODES || :"))
    installation.send("rlallocd", signal.SIGHUP)
    installation.send("rlallocd", signal.SIGCONT)
    server.wait_for("RlallocPluginTableStale")


@pytest.mark.alerts
def test_a_job_that_waits_long_for_the_daemon(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.send("rlallocd", signal.SIGSTOP)
    job_id = installation.submit(MOLDABLE)
    begins_s = time.time() + 6  # more than half of its grace
    wait_until(lambda: time.time() > begins_s, what="it waits", timeout_s=60)
    installation.send("rlallocd", signal.SIGCONT)
    installation.decision(job_id)
    server.wait_for("RlallocJobsWaitTooLong")


@pytest.mark.alerts
def test_a_clock_that_is_wrong(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.stop("rlallocd")
    installation.environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": "-30s"}
    with (installation.site.log_directory / "rlallocd.log").open("ab") as log:
        installation.processes["rlallocd"] = subprocess.Popen(
            [RLALLOC.with_name("rlallocd"), "--config", str(installation.config_path)],
            env=installation.site.environment() | installation.environment,
            stdout=log,
            stderr=log,
        )
    server.wait_for("RlallocClockWrong")


@pytest.mark.alerts
def test_every_query_of_the_dashboard_has_an_answer(installation: Installation, watch: Watch) -> None:
    """After a job. The tables of alerts and checks have what always fires here, as rlallocd runs as root."""
    server = watch(installation)
    job_id = installation.submit(MOLDABLE)
    installation.site.wait_for_states([job_id], {"COMPLETED"})
    wait_until(lambda: server.query("rlallocd_outcomes_total"), what="its outcome is counted", timeout_s=_WITHIN_S)
    wait_until(lambda: server.query("rate(rlallocd_outcomes_total[20s])"), what="it has a rate", timeout_s=60)
    targets = [
        target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", ())
    ]
    assert len(targets) > 30
    for expression in targets:
        asked = expression.replace("$instance", ".*").replace("$__rate_interval", "20s")
        assert "$" not in asked
        found = server.query(asked)
        none_while_all_is_well = "slurm_errors" in asked
        assert bool(found) != none_while_all_is_well, asked
