"""slurmctld with a backup: an rlallocd beside each, and one of both killed at each step of a change.

The other finishes what was begun. No job is decided twice, and none is left. ``-rP`` shows the seconds from
slurmctld's takeover until the other rlallocd acted.
"""

import logging
import os
import re
import signal
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from rlalloc.store import OPEN_STATES, Store
from rlalloc.store.journal_seal import JournalKey
from rlalloc.user_messages import AskSwitch, UserServiceError, ask_daemon
from rlalloc_testbed import USER, install, install_on_backup, start_site
from rlalloc_testbed.installation import PROGRAMS
from slurm_testbed import DEFAULT_ROOT, Site, wait_until
from tests.postgresql_server import PostgresqlServer

from .fault_injection import FaultyScontrol

pytestmark = pytest.mark.slurm
_log = logging.getLogger(__name__)

SCRIPT: Final = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=2 --cpus-per-task=4 --mem=8G --time=10
#RLALLOC gpus=1-1 cpus-per-gpu=1-1 mem-per-gpu=1G-1G
: torchrun train.py
"""
REQUEST, DECIDED = "cpu=4,", "cpu=1,"
"""Not its GPUs: a job that 22.05 starts in the first seconds after a takeover gets none, with and without rlalloc."""
WITHIN_S = 200
STEPS: Final = {
    "after journal": {"update1": "slurmctld_ends KILL; kill_daemon"},
    "after update": {"update1": 'real "$@"; slurmctld_ends KILL; kill_daemon'},
    "before begin": {"begin1": "slurmctld_ends KILL; exit 1"},
}
"""Where slurmctld is killed; rlallocd is killed with it, but for the last, in which it lives on without slurmctld."""
STORES: Final = ("sqlite", "postgresql", "mariadb")
ALL: Final = bool(os.environ.get("RLALLOC_TEST_TAKEOVERS"))
"""Each step with each store; else each step once and each store once."""
SHARED_DIRECTORY: Final = os.environ.get("RLALLOC_TEST_SHARED_DIRECTORY", "")
"""A directory of a network file system for SQLite's file, by its path on the primary's machine and on the backup's.

``/mnt/a:/mnt/b`` are two mounts of one export, with caches of their own (``nosharecache``). Without it, the file lies
in the site's directory, and only ``?shared=yes`` says that several machines use it.
"""


@pytest.fixture(scope="module")
def two_controllers() -> Iterator[Site]:
    """The site, and an agent for both: it has nothing to do with who asks."""
    name = f"two-{os.getpid()}"
    with start_site(
        name,
        nodes=4,
        backup_environment={"RLALLOC_RUNTIME_DIRECTORY": f"{DEFAULT_ROOT}/{name}/run/rlalloc-backup"},
        extra_slurm_conf={"SlurmctldTimeout": "8", "MinJobAge": "3600"},
    ) as site:
        # 25.11 does not start again if it was killed before it saved the usage of associations. It saves all that it
        # has every five minutes, and when a partition is deleted.
        for word in ("create", "delete"):
            site.run(["scontrol", word, "PartitionName=passing"])
        agent = install(site)
        agent.start("rlalloc-agent")
        yield site
        agent.stop_all()


@pytest.fixture
def url(request: pytest.FixtureRequest, two_controllers: Site) -> str:
    """A store that both machines can use."""
    kind = request.param
    if kind == "sqlite":
        name = f"{uuid.uuid4().hex}.sqlite"
        if SHARED_DIRECTORY:
            return f"sqlite:///{SHARED_DIRECTORY.partition(':')[0]}/{name}"
        return f"sqlite:///{two_controllers.directory}/{name}?shared=yes"
    if kind == "mariadb":
        return two_controllers.database_url(f"store_{uuid.uuid4().hex[:12]}")
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.database_url()


class Pair:
    """The two installations of a site."""

    def __init__(self, site: Site, url: str) -> None:
        self.site = site
        self.url = url
        self.faulty = FaultyScontrol(site)
        settings: dict[str, Any] = {
            "grace_s": 150,
            "store": {"url": url, "key_file": f"{site.directory}/journal.key"},
            "slurm": {"command_timeout_s": 5.0},
            "redecision": {"max_updates": 0},
            "daemon": {"poll_s": 1.0, "outcomes_every_s": 3600.0, "heartbeat_s": 20.0},
            "agent": {"endpoint": f"ipc://{site.run_directory}/rlalloc/agent.sock", "deadline_s": 5.0},
        }
        self.primary = install(site, **settings)
        here, _, there = SHARED_DIRECTORY.partition(":")
        on_backup = {"url": url.replace(f"{here}/", f"{there or here}/"), "key_file": settings["store"]["key_file"]}
        self.backup = install_on_backup(site, **settings | {"store": on_backup})
        self.primary.environment = self.faulty.environment

    def wait_until_the_other_acts(self) -> float:
        """Return the seconds from slurmctld's takeover until the rlallocd beside the backup acts."""
        wait_until(self.backup.intercepting, what="the other one acts", timeout_s=WITHIN_S)
        took_over = re.findall(
            r"^\[(\S+)\] Running as primary", self.site.log_tail("slurmctld-backup", 300), re.MULTILINE
        )
        return (datetime.now() - datetime.fromisoformat(took_over[-1])).total_seconds()  # noqa: DTZ005 - as in the log

    @contextmanager
    def store(self) -> Iterator[Store]:
        key = JournalKey(Path(f"{self.site.directory}/journal.key"))
        with closing(Store(self.url, read_only=True, seal=key.seal)) as store:
            yield store

    def assert_whole(self, job_ids: list[int]) -> None:
        """Each job is decided once, its change has come to one end, and it runs as that says."""
        for job_id in job_ids:
            self.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=WITHIN_S)
            with self.store() as store:
                (decision,) = store.decisions_of(job_id)
                (change,) = store.applications(decision.id)
            assert change.state not in OPEN_STATES
            assert change.state in ("begun", "left", "restored")
            expected = DECIDED if change.state == "begun" else REQUEST
            assert expected in self.primary.job(job_id)["TRES"], change


@pytest.fixture
def pair(two_controllers: Site, url: str) -> Iterator[Pair]:
    """The one beside the primary acts, the other stands by.

    The backup slurmctld is a new one: that of 22.05 hangs now and then when the primary takes control back.
    """
    site = two_controllers
    if not site.is_running("slurmctld"):  # after a failure
        site.start_daemon("slurmctld")
    site.kill("slurmctld-backup")
    site.start_daemon("slurmctld-backup")
    made = Pair(site, url)
    made.primary.start("rlallocd")
    wait_until(made.primary.intercepting, what="the one beside the primary acts", timeout_s=WITHIN_S)
    made.backup.start("rlallocd")
    wait_until(lambda: "is in control" in made.backup.stands_by(), what="the other stands by", timeout_s=WITHIN_S)
    yield made
    made.primary.stop_all()
    made.backup.stop_all()
    site.run(["scancel", "--user", USER])
    for each in (made.primary, made.backup):
        for name in ("intercept", "state.json"):
            (each.runtime / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("url", "step"),
    [(store, step) for row, step in enumerate(STEPS) for column, store in enumerate(STORES) if ALL or row == column],
    indirect=["url"],
)
def test_the_other_one_goes_on_where_the_first_was_stopped(pair: Pair, step: str) -> None:
    """And the first one does again when its slurmctld is back."""
    primary, backup, site = pair.primary, pair.backup, pair.site
    primary.send("rlallocd", signal.SIGSTOP)  # so that all three jobs are of one batch
    names = [f"{step.replace(' ', '-')}-{number}" for number in range(3)]
    job_ids = [primary.submit(SCRIPT, f"--job-name={name}") for name in names]
    pair.faulty.inject(job_ids[1], STEPS[step])
    wait_until(  # what slurmctld has not written yet, it forgets with its death
        lambda: all(pair.faulty.is_kept(name) for name in names), what="slurmctld has kept the jobs"
    )
    primary.send("rlallocd", signal.SIGCONT)
    wait_until(lambda: not site.is_running("slurmctld"), what="slurmctld has ended", timeout_s=WITHIN_S)
    _log.warning("%s: %.1f s from slurmctld's takeover", step, pair.wait_until_the_other_acts())
    pair.assert_whole(job_ids)
    later = backup.submit(SCRIPT)
    pair.assert_whole([later])
    assert f"job {later}" in backup.log("rlallocd")

    if primary.processes["rlallocd"].poll() is not None:
        primary.start("rlallocd")
    wait_until(lambda: "does not answer" in primary.stands_by(), what="the first one stands by", timeout_s=WITHIN_S)
    assert not primary.intercepting()
    site.start_daemon("slurmctld")
    wait_until(primary.intercepting, what="the first one acts again", timeout_s=WITHIN_S)
    wait_until(backup.stands_by, what="the other one stands by", timeout_s=WITHIN_S)
    assert not backup.intercepting()
    last = primary.submit(SCRIPT)
    pair.assert_whole([last])
    assert f"job {last}" not in backup.log("rlallocd")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_takeover_before_the_other_one_acts_leaves_jobs_as_submitted(pair: Pair) -> None:
    """Its plugin defers no job that nobody would look at. Only who acts does what people ask for."""
    primary, backup, site = pair.primary, pair.backup, pair.site
    status = [str(PROGRAMS / "rlalloc"), "status", "--config", str(backup.config_path)]
    assert "STANDBY: slurmctld on" in site.run(status)
    with pytest.raises(UserServiceError, match=r"stands by \(slurmctld on .* run this on the other one"):
        ask_daemon(backup.runtime, AskSwitch(off=True))
    backup.send("rlallocd", signal.SIGSTOP)
    site.run(["scontrol", "takeover"])
    wait_until(
        lambda: "Running as primary controller" in site.log_tail("slurmctld-backup", 30),
        what="the backup slurmctld is in control",
        timeout_s=WITHIN_S,
    )
    job_id = backup.submit(SCRIPT)
    job = backup.job(job_id)
    assert job.get("AdminComment", "") == ""
    site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=WITHIN_S)
    assert REQUEST in backup.job(job_id)["TRES"]
    wait_until(lambda: "does not answer" in primary.stands_by(), what="the first one stands by", timeout_s=WITHIN_S)
    backup.send("rlallocd", signal.SIGCONT)
    wait_until(backup.intercepting, what="the other one acts", timeout_s=WITHIN_S)
    later = backup.submit(SCRIPT)
    pair.assert_whole([later])
    with pair.store() as store:
        assert store.decisions_of(job_id) == ()
