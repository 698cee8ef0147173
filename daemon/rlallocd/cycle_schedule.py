"""When the next cycle comes. No I/O: times are seconds of one monotonic clock."""

from typing import Final

import msgspec

from rlalloc.config import Config
from rlallocd.slurm import BackOff, Budget

AFTER_A_WAKE_S: Final = (0.1, 0.3, 0.6, 1.2)
"""The plugin wakes us before slurmctld has stored the job: these pauses precede the cycles until it is seen. The
first pause lets one cycle find the job together with others that come with it."""
SHARE_OF_TIME: Final = 1 / 2
"""The largest fraction of our time that readings may take: a slow slurmctld is asked less often."""
_USUAL_COST_S: Final = 0.25
"""Processor time of a cycle for which ``daemon.poll_s`` is meant: 5% of a core by default. If an idle cycle needs
more, for example because 10,000 jobs wait, the interval grows in proportion, up to the heartbeat."""
_LONGEST_BACK_OFF_S: Final = 30.0
"""At most, and never more than a quarter of the grace, so that deferred jobs are still decided in time."""


class CycleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle reports to the schedule.

    ``calls`` are those for the snapshot and the outcomes, ``reading_s`` is what slurmctld took for the snapshot.
    ``processor_s`` is the processor time of the cycle and of the commands that it ran.
    """

    began_s: float
    decided: int
    calls: int
    reading_s: float
    processor_s: float
    failed: bool
    jobs_of_ours: bool


class CycleSchedule:
    """Cycles after each call of the plugin and otherwise every ``poll_s``; fewer where slurmctld is slow or fails."""

    def __init__(self, config: Config, now_s: float) -> None:
        self._budget = Budget(config.slurm.calls_per_minute, now_s)
        self._back_off = BackOff(min(_LONGEST_BACK_OFF_S, config.grace_s / 4))
        self._looks: list[float] = []
        self._woken_s = now_s
        self._due_s = now_s
        self._not_before_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds from now until the next cycle is due."""
        return max(0.0, self._due_s - now_s, self._not_before_s - now_s)

    def woken(self, now_s: float) -> None:
        """The plugin has called."""
        self._looks = list(AFTER_A_WAKE_S)
        self._woken_s = now_s
        self._due_s = min(self._due_s, now_s + self._looks.pop(0))

    def stood_by(self, config: Config, now_s: float) -> None:
        """Another rlallocd is to act: look again after a poll."""
        self._looks = []
        self._due_s = now_s + config.daemon.poll_s

    def cycled(self, report: CycleReport, config: Config, now_s: float) -> None:
        """A cycle has ended: plan the next one."""
        self._budget.spend(report.calls, now_s)
        back_off_s = 0.0
        if report.failed:
            back_off_s = self._back_off.failed()
        else:
            self._back_off.succeeded()
        rested_s = report.began_s + report.reading_s / SHARE_OF_TIME  # deciding and updating is rest from reading
        self._not_before_s = max(rested_s, now_s + back_off_s, self._budget.free_at_s())
        if report.decided and report.began_s - self._woken_s >= AFTER_A_WAKE_S[0]:
            self._looks = []  # of a call that came later than that, the job may not have been stored yet
        if report.failed:
            self._due_s = self._not_before_s
        else:
            self._due_s = now_s + (self._looks.pop(0) if self._looks else _idle_s(report, config))


def _idle_s(report: CycleReport, config: Config) -> float:
    """Seconds until the next cycle without a call: with no job of ours in the queue, only the heartbeat needs one."""
    heartbeat_s = config.daemon.heartbeat_s
    if not report.jobs_of_ours:
        return heartbeat_s
    stretch = 1.0 if report.decided else max(1.0, report.processor_s / _USUAL_COST_S)
    return min(config.daemon.poll_s * stretch, heartbeat_s, max(config.daemon.poll_s, config.grace_s / 4))
