"""The site of the week: a machine that boots by itself, what its administrator types, and what rlalloc says of it."""

from __future__ import annotations

import datetime
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from slurm_testbed.waiting import stretched, wait_until
from tests.systemd import debian_slurm

if TYPE_CHECKING:
    from tests.systemd.systemd_container import Container

CONFIGURATION: Final = "/etc/rlalloc/rlalloc.yaml"
SLURM_CONF: Final = "/etc/slurm/slurm.conf"
STATE: Final = "/var/lib/rlalloc"
SITE_UNITS: Final = ("munge", "mariadb", "slurmdbd", "slurmctld", "slurmd")
UNITS: Final = ("rlalloc-agent", "rlallocd")
# Slurm resolves no name where there are only loopback addresses, so each boot needs one more, before Slurm starts.
ADDRESS_UNIT: Final = """\
[Unit]
DefaultDependencies=no
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip address replace 192.0.2.1/32 dev lo
"""
READS_METRICS: Final = (
    "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:9373/metrics', timeout=10).read().decode())"
)


class Week:
    """What is done to the site, and the page that tells what it showed."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        """Add a line to the page."""
        self.lines.append(text)
        sys.stderr.write(f"{text}\n")

    def day(self, title: str) -> None:
        """Begin a section of the page."""
        self.lines += ["", f"## {title}", ""]
        sys.stderr.write(f"{title}\n")

    # ---- what an administrator types, as in docs/admin

    def switch_to(self, mode: str) -> None:
        """Write the mode into the file, check it, reload (docs/admin/enforce.md)."""
        self.container.run("sed", "-i", f"s/^mode: .*/mode: {mode}/", CONFIGURATION)
        self.container.run("rlalloc", "config", "check")
        self.container.run("systemctl", "reload", "rlallocd")
        self.until_mode(mode)

    def until_mode(self, mode: str) -> None:
        """Wait until rlallocd has this mode in force, and tells the plugin so."""
        container = self.container
        debian_slurm.wait_for(
            container, "systemctl", "show", "-P", "StatusText", "rlallocd", expect=f"mode {mode}", limit_s=120
        )
        if mode != "off":
            debian_slurm.wait_for(container, "grep", f"^rule llm {mode} ", "/run/rlalloc/intercept", limit_s=120)

    def train_by_the_timer(self, limit_s: float) -> dict[str, Any]:
        """Let the timer elapse in some seconds; return what the training that it starts came to."""
        container = self.container
        before = self.last_training()
        at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=4)
        lines = (
            f"[Timer]\nOnCalendar=\nOnCalendar={at:%Y-%m-%d %H:%M:%S} UTC\nRandomizedDelaySec=0\nAccuracySec=1ms\n"
        )
        container.run("mkdir", "-p", "/etc/systemd/system/rlalloc-train.timer.d")
        container.run("tee", "/etc/systemd/system/rlalloc-train.timer.d/night.conf", text=lines)
        container.run("systemctl", "daemon-reload")
        container.run("systemctl", "restart", "rlalloc-train.timer")
        began = time.monotonic()
        while (after := self.last_training()) == before or self.is_active("rlalloc-train") != "inactive":
            if time.monotonic() - began > stretched(limit_s):
                raise TimeoutError(f"no training has ended: {container.journal('rlalloc-train')}")
            time.sleep(1)
        return after

    def last_training(self) -> dict[str, Any]:
        """What the last training came to; empty where there was none."""
        path = f"{STATE}/policies/last_training.json"
        found: dict[str, Any] = json.loads(self.container.run("cat", path, check=False).stdout or "{}")
        return found

    def is_active(self, unit: str) -> str:
        """A unit's state, in systemd's word."""
        return self.container.run("systemctl", "is-active", unit, check=False).stdout.strip()

    # ---- what rlalloc says

    def doctor(self) -> dict[str, str]:
        """The levels of what `rlalloc doctor` checks; of one name the worst. Its exit status is the worst, too."""
        done = self.container.run("rlalloc", "doctor", "--json", check=False, limit_s=120)
        told = json.loads(done.stdout)
        assert done.returncode == {"OK": 0, "WARN": 3, "FAIL": 1}[told["worst"]], told
        assert all(each["remedy"] for each in told["findings"] if each["level"] != "OK"), told
        by_level = sorted(told["findings"], key=lambda each: ("OK", "WARN", "FAIL").index(each["level"]))
        return {each["what"]: each["level"] for each in by_level}

    def failures(self) -> set[str]:
        """What the doctor says has failed."""
        return {what for what, level in self.doctor().items() if level == "FAIL"}

    def status(self) -> tuple[int, str]:
        """Exit status and screen of `rlalloc status`."""
        done = self.container.run("env", "COLUMNS=80", "rlalloc", "status", check=False)
        return done.returncode, done.stdout

    def metrics(self) -> dict[str, float]:
        """The daemon's metrics, by name with labels."""
        text = self.container.run("python3", "-c", READS_METRICS).stdout
        samples = re.findall(r"^(rlalloc\w+(?:{.*})?) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in samples}

    def metrics_of_now(self) -> dict[str, float]:
        """The same once the daemon has done its checks again, as it does after a reload."""
        done = "rlallocd_checks_timestamp_seconds"
        before = self.metrics().get(done, 0.0)
        self.container.run("systemctl", "reload", "rlallocd")
        return wait_until(
            lambda: found if (found := self.metrics()).get(done, 0.0) > before else None,
            what="new checks",
            timeout_s=90,
        )

    def report(self) -> dict[str, dict[str, Any]]:
        """The runs of `rlalloc report`, by job id."""
        done = self.container.run("rlalloc", "report", "--starttime", "now-2hours", "--json", limit_s=120)
        return {str(run["job_id_raw"]): run for run in json.loads(done.stdout)["runs"]}

    def explain(self, job_id: str, user: str) -> list[dict[str, Any]]:
        """What rlalloc tells the user of a job about it; empty where it has decided nothing."""
        done = self.container.run("rlalloc", "explain", job_id, "--json", user=user, check=False)
        story: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        return story
