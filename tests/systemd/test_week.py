"""A week of a site: installed by the documented steps, used, broken, upgraded and removed, and no job is harmed.

`make week` runs the whole of it with Debian packages that it builds, and writes build/week/week.md. `make test` runs
the days up to the reboot with install-site.sh, with one training.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.systemd import debian_slurm
from tests.systemd.conftest import PROJECT, container_binds, skip_unless_bootable
from tests.systemd.short_training import short_training
from tests.systemd.systemd_container import MASKED_UNITS, Container
from tests.systemd.week_jobs import KINDS, OVERDUE, Ended, Kind, harmed, prepare_users, submit, wait_for_ends
from tests.systemd.week_site import (
    ADDRESS_UNIT,
    CONFIGURATION,
    SITE_UNITS,
    SLURM_CONF,
    STATE,
    UNITS,
    Week,
    decided,
)
from tests.systemd.week_software import FromPackages, FromTheScript

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE: Final = os.environ.get("RLALLOC_WEEK") == "whole"
pytestmark = [pytest.mark.systemd, pytest.mark.timeout(7200 if WHOLE else 1200)]

PAGE: Final = PROJECT / "build" / "week" / "week.md"
NIGHTS: Final = 4 if WHOLE else 1
MORE: Final = 5 if WHOLE else 0
"""Further jobs of each day from which training learns."""
EXPECTED_WARNINGS: Final = {"timer", "training"}
FOUND_WITHOUT_DISK: Final = {"store for rlallocd", "store for rlalloc", "disk", "rlallocd"}


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
    container = Container(
        binds=container_binds() | software.binds, target="multi-user.target", masked=dict.fromkeys(masked)
    )
    with container:
        container.write("/etc/systemd/system/site-address.service", ADDRESS_UNIT)
        container.write("/etc/systemd/system/sysinit.target.d/site.conf", "[Unit]\nWants=site-address.service\n")
        debian_slurm.write_configuration(container)
        container.boot()
        debian_slurm.start(container)
        container.run("systemctl", "enable", *SITE_UNITS)
        prepare_users(container)
        week = Week(container)
        try:
            yield week
        finally:
            PAGE.parent.mkdir(parents=True, exist_ok=True)
            PAGE.write_text("\n".join(week.lines) + "\n")


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

    def all(self) -> None:
        """The whole week."""
        self.before()
        self.install()
        self.shadow()
        self.enforce()
        self.reboot()
        if isinstance(self.software, FromPackages):
            self.full_disk()
            self.another_version("Friday: an upgrade with jobs in the queue", self.software.upgrade)
            self.another_version("Saturday: a downgrade with jobs in the queue", self.software.downgrade)
            self.remove(self.software)

    # ---- the days

    def before(self) -> None:
        """What jobs do without rlalloc: what all later ends are compared with."""
        self.week.day("Before: the site without rlalloc")
        self.usual = self._ended(self._submit())
        assert {each.end for each in self.usual} >= {("range", "COMPLETED", "0:0"), ("fails", "FAILED", "3:0")}
        self.week.note(f"- {len(self.usual)} jobs and tasks of {len(KINDS)} kinds ran: " + _ends_in_words(self.usual))

    def install(self) -> None:
        """docs/admin/install.md."""
        self.week.day("Monday: installed, shadow mode")
        self.software.install(self.container)
        self.container.run("tee", "-a", SLURM_CONF, text="JobSubmitPlugins=lua\n")
        self.container.run("sacctmgr", "-i", "add", "user", "rlallocd", "account=root", "adminlevel=Admin")
        self.container.run("systemctl", "restart", "slurmctld")
        debian_slurm.wait_for(self.container, "sinfo", "-h", "-o", "%T", expect="idle")
        self.container.run("rlalloc", "config", "check")
        self.container.run("systemctl", "enable", "--now", *UNITS, limit_s=120)
        self.container.run("systemctl", "enable", "--now", "rlalloc-train.timer")
        self.week.until_mode("shadow")

    def shadow(self) -> None:
        """docs/admin/shadow.md: it decides and touches nothing."""
        jobs = self._submit()
        ended = self._ended(jobs)
        self._compare(ended, resizing=False)
        self._truth("shadow", jobs_since_start=jobs)
        self._decisions(ended, "shadow")
        self._night()

    def enforce(self) -> None:
        """docs/admin/enforce.md; slurmctld restarts while jobs wait."""
        week, container = self.week, self.container
        week.day("Tuesday: enforcing, and slurmctld restarts")
        container.run("tee", "-a", SLURM_CONF, text="TaskProlog=/usr/lib/rlalloc/task_prolog\n")
        container.run("systemctl", "restart", "slurmctld", "slurmd")
        debian_slurm.wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle")
        week.switch_to("enforce")
        told = container.run("rlalloc", "doctor", "--nodes", "all", check=False, limit_s=120)
        assert "FAIL" not in told.stdout, told.stdout
        before = decided(week.metrics())
        jobs = self._submit()
        container.run("systemctl", "restart", "slurmctld")
        ended = self._ended(jobs)
        self._compare(ended, resizing=True)
        self._truth("enforce")
        assert decided(week.metrics()) - before >= sum(kind.covered and not kind.cancelled for kind in jobs.values())
        self._decisions(ended, "enforce")
        self.week.note(f"- report: states, sizes and requests of {len(ended)} jobs and tasks as sacct has them")
        if NIGHTS > 1:
            self._night()

    def reboot(self) -> None:
        """The machine goes down with jobs in the queue, and comes back without anybody's hand."""
        week, container = self.week, self.container
        week.day("Wednesday: the machine reboots with jobs in the queue")
        held = [kind._replace(begin_s=30) for kind in KINDS if not kind.cancelled]
        jobs = submit(container, held)
        container.reboot()
        debian_slurm.wait_for(container, "sinfo", "-h", "-o", "%T", expect="idle", limit_s=120)
        week.until_mode("enforce")
        ended = self._ended(jobs)
        self._compare(ended, resizing=True)
        more = submit(container, KINDS if WHOLE else KINDS[:3])
        self._compare(self._ended(more), resizing=True)
        self._truth("enforce")
        assert week.is_active("rlalloc-train.timer") == "active"
        if NIGHTS > 2:
            self._night()

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
        jobs = self._submit(more=0)
        ended = self._ended(jobs)
        self._compare(ended, resizing=True)
        failed, (status, _) = week.failures(), week.status()
        found = ", ".join(sorted(failed)) or "nothing"
        week.note(f"- while it was full, doctor failed {found}; status ended with {status}")
        assert failed & FOUND_WITHOUT_DISK
        assert status == 1
        container.run("rm", f"{STATE}/filler")
        debian_slurm.wait_for(container, "rlalloc", "status", expect="enforce", limit_s=120)
        self._compare(self._ended(self._submit(more=0)), resizing=True)
        self._truth("enforce")
        container.run("systemctl", "stop", *UNITS)
        container.run("sh", "-c", f"rm -rf /srv/kept && cp -a {STATE} /srv/kept && umount {STATE}")
        container.run("sh", "-c", f"cp -a /srv/kept/. {STATE}/")
        container.run("systemctl", "start", *UNITS, limit_s=120)
        week.until_mode("enforce")
        if NIGHTS > 3:
            self._night()

    def another_version(self, title: str, change: Callable[[Container], str]) -> None:
        """docs/admin/upgrade.md, with jobs in the queue."""
        self.week.day(title)
        jobs = self._submit(more=0)
        self.week.note(f"- what the packages said: {change(self.container)}")
        self.week.until_mode("enforce")
        self._compare(self._ended(jobs), resizing=True)
        self._compare(self._ended(self._submit(more=0)), resizing=True)
        self._truth("enforce")

    def remove(self, software: FromPackages) -> None:
        """docs/admin/upgrade.md, Uninstall: jobs in the queue end as ever, and so do later ones."""
        self.week.day("Sunday: removed with jobs in the queue")
        jobs = self._submit(more=0)
        software.remove(self.container)
        self._compare(self._ended(jobs), resizing=True)
        self._compare(self._ended(self._submit(more=0)), resizing=False)
        self._disconnect_slurm()
        self._compare(self._ended(self._submit(more=0)), resizing=False)
        assert self.week.is_active("rlallocd") != "active"
        self.container.run("test", "-e", CONFIGURATION)

    # ---- parts of a day

    def _disconnect_slurm(self) -> None:
        """Take rlalloc's lines out of slurm.conf."""
        self.container.run("sed", "-i", "/^JobSubmitPlugins=/d; /^TaskProlog=/d", SLURM_CONF)
        self.container.run("systemctl", "restart", "slurmctld", "slurmd")
        debian_slurm.wait_for(self.container, "sinfo", "-h", "-o", "%T", expect="idle")

    def _submit(self, more: int = MORE) -> dict[int, Kind]:
        further = [kind for kind in KINDS if kind.name in ("range", "follows", "counted")] * more
        return submit(self.container, (*KINDS, *((OVERDUE,) if more else ()), *further))

    def _ended(self, jobs: dict[int, Kind]) -> list[Ended]:
        return wait_for_ends(self.container, jobs)

    def _compare(self, ended: Sequence[Ended], *, resizing: bool) -> None:
        """Every job has ended as without rlalloc, in a size that its user allows, and saw that size."""
        problems = harmed(self.container, ended, self.usual, resizing=resizing)
        assert problems == []
        resized = sum(each.tres.get("gres/gpu", each.kind.request) != each.kind.request for each in ended)
        longest = max(each.waited_s for each in ended)
        self.week.note(
            f"- {len(ended)} jobs and tasks ended as without rlalloc, {resized} in another size; the longest wait "
            f"was {longest:.0f} s"
        )

    def _truth(self, mode: str, jobs_since_start: dict[int, Kind] | None = None) -> None:
        """Doctor, status and metrics agree with what the test did."""
        week = self.week
        debian_slurm.wait_for(self.container, "rlalloc", "status", expect="last cycle 0:00:0")
        levels = week.doctor()
        assert {what for what, level in levels.items() if level == "FAIL"} == set(), levels
        warned = {what for what, level in levels.items() if level == "WARN"}
        status, screen = week.status()
        assert status == 0, screen
        assert screen.startswith(f"mode    {mode}"), screen
        metrics = week.metrics()
        assert [name for name in ("off", "shadow", "enforce") if metrics[f'rlallocd_mode{{mode="{name}"}}']] == [mode]
        assert metrics["rlallocd_open_applications"] == 0
        if jobs_since_start is not None:
            covered = sum(kind.covered and not kind.cancelled for kind in jobs_since_start.values())
            held = sum(kind.covered and kind.cancelled for kind in jobs_since_start.values())
            assert covered <= decided(metrics) <= covered + held
        week.note(
            f"- doctor: no failure, warnings: {', '.join(sorted(warned)) or 'none'}; status: exit 0, mode {mode}; "
            f"metrics: {decided(metrics)} jobs decided since the daemon's start"
        )

    def _decisions(self, ended: Sequence[Ended], mode: str) -> None:
        """What rlalloc tells of jobs, to their users and in its report, is what sacct says."""
        runs = self.week.report()
        for each in ended:
            if not each.tres:
                continue  # never eligible: sacct shows it only to those who know its id
            run = runs[each.job_id]
            assert (run["state"], run["exit_code"]) == (each.state, each.exit_code), run
            gpus, asked = each.tres.get("gres/gpu", 0), run["asked"]["gpus"]
            assert (run["held"]["gpus"], asked) == (gpus, each.kind.request), run
            assert (run["result"] == "changed") == (run["applied"] is not None), run
            assert gpus == asked or run["result"] == "changed", run
            if each.kind.name not in ("range", "follows", "counted", "off", "no-llm"):
                continue
            story = self.week.explain(each.job_id, each.kind.user)
            assert bool(story) == each.kind.covered, (each, story)
            for chapter in story:
                assert chapter["decision"]["mode"] == mode
        others = next(each for each in ended if each.kind.user == "ada" and each.kind.covered)
        assert self.week.explain(others.job_id, "bob") == []

    def _night(self) -> None:
        """The timer trains, and the verdict is what doctor says."""
        with short_training(self.container):
            came_to = self.week.train_by_the_timer(limit_s=600)
        assert not came_to["failed"], came_to
        assert self.week.doctor()["training"] == "OK"
        assert self.week.is_active("rlalloc-agent") == "active"
        promoted = "promoted" if came_to.get("promoted") else "not promoted"
        self.week.note(f"- the night's training, by its timer: {promoted}; {came_to['verdict']}")


def _ends_in_words(ended: Sequence[Ended]) -> str:
    found: dict[str, int] = {}
    for each in ended:
        found[each.state] = found.get(each.state, 0) + 1
    return ", ".join(f"{number} {state}" for state, number in sorted(found.items()))
