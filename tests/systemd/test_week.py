"""A week of a site: installed by the documented steps, used, broken, upgraded and removed, and no job is harmed.

`make week` runs the whole of it with Debian packages that it builds, and writes build/week/week.md. `make test` runs
the days up to the reboot with install-site.sh, with one training. What is compared is in week_harm.py (jobs) and
week_truth.py (what rlalloc says).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from slurm_testbed.waiting import stretched, wait_until
from tests.systemd import debian_slurm, week_truth
from tests.systemd.built_packages import NEXT
from tests.systemd.conftest import PROJECT, skip_unless_bootable
from tests.systemd.documented_steps import follow, steps
from tests.systemd.systemd_container import MASKED_UNITS, Container
from tests.systemd.week_harm import harmed, latest_release_s
from tests.systemd.week_jobs import (
    KINDS,
    LASTING,
    OVERDUE,
    TIGHT,
    Ended,
    Kind,
    assert_queued,
    let_go,
    prepare_users,
    queue_behind_a_running_job,
    submit,
    wait_for_ends,
    waiting,
)
from tests.systemd.week_site import ADDRESS_UNIT, CONFIGURATION, SITE_UNITS, SLURM_CONF, STATE, UNITS, Week
from tests.systemd.week_software import FromPackages, FromTheScript

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE: Final = os.environ.get("RLALLOC_WEEK") == "whole"
pytestmark = [pytest.mark.systemd, pytest.mark.timeout(7200 if WHOLE else 1200)]

PAGE: Final = PROJECT / "build" / "week" / "week.md"
NIGHTS: Final = 4 if WHOLE else 1
MORE: Final = 5 if WHOLE else 0
"""Further jobs of each day from which training learns."""
FOR_ENFORCING: Final = (
    "TaskProlog=/usr/lib/rlalloc/task_prolog\n"
    "TaskEpilog=/usr/lib/rlalloc/task_epilog\nAccountingStoreFlags=job_comment\n"
)
FOUND_WITHOUT_DISK: Final = {"store for rlallocd", "store for rlalloc", "disk"}


@pytest.fixture
def software(tmp_path: Path) -> FromPackages | FromTheScript:
    """How rlalloc is installed: by packages in the whole form, whose building takes minutes."""
    skip_unless_bootable()
    return FromPackages(tmp_path) if WHOLE else FromTheScript()


@pytest.fixture
def week(software: FromPackages | FromTheScript) -> Iterator[Week]:
    """A site that starts at each boot what Debian's packages have enabled, and no rlalloc yet."""
    skip_unless_bootable()
    wanted = ("multi-user.target.wants", "timers.target.wants")
    others = [unit.name for name in wanted for unit in Path("/etc/systemd/system", name).glob("*")]
    masked = [unit for unit in (*MASKED_UNITS, *others) if unit not in ("timers.target", "remote-fs.target")]
    container = Container(binds=software.binds, target="multi-user.target", masked=dict.fromkeys(masked))
    with container:
        container.write("/etc/systemd/system/site-address.service", ADDRESS_UNIT)
        container.write("/etc/systemd/system/sysinit.target.d/site.conf", "[Unit]\nWants=site-address.service\n")
        debian_slurm.write_configuration(container)
        container.boot()
        debian_slurm.start(container)
        container.run("systemctl", "enable", *SITE_UNITS)
        prepare_users(container, work_ms=1000)
        week = Week(container)
        try:
            yield week
        finally:
            PAGE.parent.mkdir(parents=True, exist_ok=True)
            PAGE.write_text("\n".join(week.lines) + "\n")


@pytest.mark.flaky(reruns=0 if WHOLE else 1)
def test_a_week(week: Week, software: FromPackages | FromTheScript) -> None:
    """Each day's jobs end as they did before rlalloc came; doctor, status and metrics say what really is."""
    Days(week, software).all()


class Days:
    """The days, in order; each ends with a comparison."""

    def __init__(self, week: Week, software: FromPackages | FromTheScript) -> None:
        self.week = week
        self.container = week.container
        self.software = software
        self.usual: list[Ended] = []
        self.trimmed: set[str] = set()
        """Kinds of which a job held fewer CPUs or less memory for a GPU."""

    def all(self) -> None:
        """The whole week."""
        self.before()
        self.install()
        self.shadow()
        self.enforce()
        self.reboot()
        if isinstance(self.software, FromPackages):
            self.full_disk()
            self.upgrade(self.software)
            self.downgrade(self.software)
            self.remove(self.software)
        assert self.trimmed == {"many-cpus", "roomy"}

    # ---- the days

    def before(self) -> None:
        """What jobs do without rlalloc: what all later ones are compared with."""
        self.week.day("Before: the site without rlalloc")
        jobs = self._submit(more=0) | submit(self.container, (LASTING, *((OVERDUE, TIGHT) if WHOLE else ())))
        let_go(self.container)
        self.usual = wait_for_ends(self.container, jobs)
        assert harmed(self.container, self.usual, self.usual, resizing=False) == []
        self.week.note(f"- {len(self.usual)} jobs and tasks of {len(KINDS)} kinds ran: " + _ends_in_words(self.usual))

    def install(self) -> None:
        """docs/admin/install.md."""
        self.week.day("Monday: installed, shadow mode")
        if isinstance(self.software, FromPackages):
            self.week.note(f"- packages that were built from this checkout; libraries: {self.software.libraries}")
        self.software.install(self.container)
        self.container.run("tee", "-a", SLURM_CONF, text="JobSubmitPlugins=lua\n")
        follow(self.container, steps("install.md", "2. Connect Slurm", "sacctmgr"))
        self.container.run("systemctl", "restart", "slurmctld")
        debian_slurm.wait_for(self.container, "sinfo", "-h", "-o", "%T", expect="idle")
        check, *start, doctor, status = steps("install.md", "3. Check and start", "rlalloc-agent rlallocd")
        follow(self.container, [check])
        if WHOLE:
            week_truth.something_is_wrong(self.week, {"rlallocd"})  # it does not run yet
        follow(self.container, [*start, doctor])
        self.week.until_mode("shadow")
        follow(self.container, [status])

    def shadow(self) -> None:
        """docs/admin/shadow.md: it decides and touches nothing."""
        ended = self._usual_jobs("shadow", more=MORE)
        week_truth.stories_are_true(self.week, ended, "shadow")
        week_truth.train_at_night(self.week)

    def enforce(self) -> None:
        """docs/admin/enforce.md; slurmctld restarts while jobs wait."""
        week, container = self.week, self.container
        week.day("Tuesday: enforcing, and slurmctld restarts")
        container.run("tee", "-a", SLURM_CONF, text=FOR_ENFORCING)
        container.run("systemctl", "restart", "slurmctld", "slurmd")
        debian_slurm.wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle")
        week.switch_to("enforce")
        told = container.run("rlalloc", "doctor", "--nodes", "all", check=False, limit_s=120)
        assert "FAIL" not in told.stdout, told.stdout
        before = week_truth.decided(week)
        jobs = self._submit_behind_a_running_job()
        container.run("systemctl", "stop", "slurmctld")
        if WHOLE:
            week_truth.slurmctld_is_down(week)
        container.run("systemctl", "start", "slurmctld")
        debian_slurm.wait_for(container, "scontrol", "ping", expect="UP")
        ended = self._ended_after_waiting(jobs)
        assert week_truth.decided(week) - before >= week_truth.to_decide(jobs.values())
        week_truth.stories_are_true(week, ended, "enforce")
        week_truth.all_is_well(week, "enforce")
        if WHOLE:
            self._usual_jobs("enforce", more=MORE)
            week_truth.train_at_night(week)

    def reboot(self) -> None:
        """The machine goes down with jobs in the queue, and comes back without anybody's hand."""
        week, container = self.week, self.container
        week.day("Wednesday: the machine reboots with jobs in the queue")
        # Each waits for its begin time, from the first submission until the machine is down.
        begin_s = round(stretched(45 if WHOLE else 25))
        jobs = submit(container, [kind._replace(begin_s=begin_s) for kind in KINDS if not kind.cancelled])
        begun = set(jobs) - waiting(container)
        assert not begun, f"{begun} did not wait until all were submitted: {begin_s} s are not enough here"
        container.reboot()
        week_truth.just_booted(week)
        debian_slurm.wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle", limit_s=120)
        week.until_mode("enforce")
        self._compare(wait_for_ends(container, jobs), resizing=True)
        assert week.is_active("rlalloc-train.timer") == "active"
        if WHOLE:
            self._usual_jobs("enforce")
            week_truth.train_at_night(week)
        else:
            self._compare(wait_for_ends(container, submit(container, KINDS[:3])), resizing=True)
            week_truth.all_is_well(week, "enforce")

    def full_disk(self) -> None:
        """The store's file system is full: jobs run as submitted, doctor says so, nobody has to start anything."""
        week, container = self.week, self.container
        week.day("Thursday: the disk of the store is full")
        container.run("systemctl", "stop", *UNITS)
        container.run("sh", "-c", f"cp -a {STATE} /srv/kept && mount -t tmpfs -o size=200M,mode=2770 tmpfs {STATE}")
        container.run("sh", "-c", f"chown --reference=/srv/kept {STATE} && cp -a /srv/kept/. {STATE}/")
        container.run("systemctl", "start", *UNITS, limit_s=120)
        week.until_mode("enforce")
        container.run("sh", "-c", f"dd if=/dev/zero of={STATE}/filler bs=4k 2>/dev/null; true")
        ended = wait_for_ends(container, self._submit())
        self._compare(ended, resizing=True)
        week_truth.report_is_true(week, ended)
        week_truth.something_is_wrong(week, FOUND_WITHOUT_DISK)
        metrics = week.metrics()
        assert metrics['rlallocd_filesystem_available_bytes{directory="store"}'] < 1_000_000
        errors = metrics["rlallocd_store_errors_total"]
        assert errors > 0
        week.note(f"- metrics: no free space, {errors:.0f} cycles that the store ended early")
        container.run("rm", f"{STATE}/filler")
        debian_slurm.wait_for(container, "rlalloc", "status", expect="enforce", limit_s=120)
        self._usual_jobs("enforce", warned=frozenset({"disk"}))  # it is a small one
        container.run("systemctl", "stop", *UNITS)
        container.run("sh", "-c", f"rm -rf /srv/kept && cp -a {STATE} /srv/kept && umount {STATE}")
        container.run("sh", "-c", f"cp -a /srv/kept/. {STATE}/")
        container.run("systemctl", "start", *UNITS, limit_s=120)
        week.until_mode("enforce")
        week_truth.train_at_night(week)

    def upgrade(self, software: FromPackages) -> None:
        """docs/admin/upgrade.md, with a job that runs and jobs in the queue."""
        self.week.day("Friday: an upgrade with jobs in the queue")
        jobs = self._submit_behind_a_running_job()
        self.week.note(f"- what the packages said: {software.upgrade(self.container)}")
        self._after_another_version(jobs, NEXT)

    def downgrade(self, software: FromPackages) -> None:
        """The same, back; meanwhile rlallocd refuses the newer store."""
        self.week.day("Saturday: a downgrade with jobs in the queue")
        jobs = self._submit_behind_a_running_job()
        self.week.note(f"- what the packages said: {software.downgrade(self.container)}")
        week_truth.something_is_wrong(self.week, {"rlallocd"})
        jobs |= submit(self.container, KINDS)
        software.put_back_the_store(self.container)
        self._after_another_version(jobs, software.version)

    def remove(self, software: FromPackages) -> None:
        """docs/admin/upgrade.md, Uninstall: jobs in the queue end as ever, and so do later ones."""
        self.week.day("Sunday: removed with jobs in the queue")
        # Some are resized and wait for their begin time; then a job holds all GPUs, and all others wait behind it.
        begin_s = round(stretched(45))
        jobs = submit(self.container, [kind._replace(begin_s=begin_s) for kind in KINDS if kind.gpus])
        sized = self._queued_in_another_size(jobs, wanted=1)
        jobs |= self._submit_behind_a_running_job()
        software.remove(self.container)
        assert self.week.is_active("rlallocd") != "active"
        assert_queued(self.container, jobs)
        queued = len(waiting(self.container))
        self.week.note(
            f"- {queued} jobs were in the queue when the packages were gone, at least {sized} in another GPU count"
        )
        let_go(self.container)
        self._compare(wait_for_ends(self.container, jobs), resizing=True)
        self._compare(wait_for_ends(self.container, self._submit()), resizing=False)
        self._disconnect_slurm()
        self._compare(wait_for_ends(self.container, self._submit()), resizing=False)
        self.container.run("test", "-e", CONFIGURATION)

    # ---- parts of a day

    def _usual_jobs(self, mode: str, *, warned: frozenset[str] = frozenset(), more: int = 0) -> list[Ended]:
        """Nothing happens: each job is decided, and what rlalloc says is true."""
        before = week_truth.decided(self.week)
        jobs = self._submit(more)
        ended = wait_for_ends(self.container, jobs)
        self._compare(ended, resizing=mode == "enforce")
        week_truth.report_is_true(self.week, ended)
        week_truth.all_is_well(self.week, mode, warned=warned)
        sure, number = week_truth.to_decide(jobs.values()), week_truth.decided(self.week) - before
        cancelled = sum(kind.covered and kind.cancelled for kind in jobs.values())
        assert sure <= number <= sure + cancelled, (sure, number)
        return ended

    def _submit_behind_a_running_job(self) -> dict[int, Kind]:
        return queue_behind_a_running_job(self.container, (*KINDS, *((OVERDUE, TIGHT) if WHOLE else ())))

    def _ended_after_waiting(self, jobs: dict[int, Kind], *, forgotten: bool = False) -> list[Ended]:
        """The queue is as it was; then the job that all others wait for ends, and they do."""
        assert_queued(self.container, jobs)
        let_go(self.container)
        ended = wait_for_ends(self.container, jobs)
        self._compare(ended, resizing=True)
        week_truth.report_is_true(self.week, ended, forgotten=forgotten)
        return ended

    def _after_another_version(self, jobs: dict[int, Kind], version: str) -> None:
        self.week.until_mode("enforce")
        week_truth.version_in_all_places(self.week, version)
        self._ended_after_waiting(jobs, forgotten=version != NEXT)
        self._usual_jobs("enforce")

    def _queued_in_another_size(self, jobs: dict[int, Kind], *, wanted: int) -> int:
        """Wait until so many of the queued jobs ask for another GPU count than their users did; return how many."""

        def found() -> int:
            shown = self.container.run("squeue", "-h", "--states=PENDING", "-o", "%F %b").stdout
            asked = [line.split() for line in shown.splitlines() if "gpu" in line]
            return sum(int(tres.rpartition(":")[2]) != jobs[int(job)].request for job, tres in asked)

        return wait_until(lambda: number if (number := found()) >= wanted else None, what="resized jobs in the queue")

    def _disconnect_slurm(self) -> None:
        """Take rlalloc's lines out of slurm.conf."""
        for name in ("JobSubmitPlugins", "TaskProlog", "TaskEpilog", "AccountingStoreFlags"):
            self.container.run("sed", "-i", f"/^{name}=/d", SLURM_CONF)
        self.container.run("systemctl", "restart", "slurmctld", "slurmd")
        debian_slurm.wait_for(self.container, "sinfo", "-h", "-o", "%T", expect="idle")

    def _submit(self, more: int = 0) -> dict[int, Kind]:
        further = [kind for kind in KINDS if kind.name in ("range", "follows", "counted")] * more
        return submit(self.container, (*KINDS, *((OVERDUE, TIGHT) if more else ()), *further))

    def _compare(self, ended: Sequence[Ended], *, resizing: bool) -> None:
        """No job fares worse than without rlalloc; it holds a size that its user allows, and sees that size."""
        problems = harmed(self.container, ended, self.usual, resizing=resizing)
        assert problems == []
        resized = sum(each.another_size for each in ended)
        trimmed = {each.kind.name for each in ended if each.trimmed}
        self.trimmed |= trimmed
        of_them = f" (fewer CPUs or less memory a GPU: {', '.join(sorted(trimmed))})" if trimmed else ""
        self.week.note(
            f"- {len(ended)} jobs and tasks ended as without rlalloc, {resized} in another size{of_them}; "
            f"the longest wait was {max(each.waited_s for each in ended)} s, "
            f"{latest_release_s(ended)} s of them for rlalloc at most"
        )


def _ends_in_words(ended: Sequence[Ended]) -> str:
    found: dict[str, int] = {}
    for each in ended:
        found[each.state] = found.get(each.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in sorted(found.items()))
