"""The bar that whatever ships has to pass: on no workload worse off than as requested in the same order."""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Side
from rlalloc_trainer.evaluation.scenario_runs import AGAIN, Condition, Setting

MOST: Final = 1.0
"""Mean JCT and its 95th percentile, over as requested in the same order."""
MOST_OF_INTERVAL: Final = 1.02
MOST_KILLED: Final = 0.002
"""Part of the jobs that are killed for what the policy gave them."""
WORST_USER: Final = 1.25
Failure = Literal["JCT", "p95", "killed", "worst user"]


class SameOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A policy over as requested in the same order of the queue: ratios of mean JCT and of its 95th percentile.

    ``killed`` is the part of the jobs that were killed for what the policy gave them. ``worst_user`` is None where no
    user has enough jobs.
    """

    jct: Interval
    p95: Interval
    killed: float
    worst_user: float | None

    def failures(self, most: float = MOST + 1e-9) -> tuple[Failure, ...]:
        """Say what is beyond the bar: an estimate above ``most``, or an interval that reaches too far above it.

        Without an interval (a single week), only the estimate counts.
        """
        return self._failures(lambda ratio: ratio.estimate > most or ratio.high > MOST_OF_INTERVAL)

    def shown_failures(self, most: float) -> tuple[Failure, ...]:
        """Say what is shown to be beyond the bar: a ratio by its whole interval, killed jobs or the worst user."""
        return self._failures(lambda ratio: ratio.low > most)

    def _failures(self, is_beyond: Callable[[Interval], bool]) -> tuple[Failure, ...]:
        beyond: dict[Failure, bool] = {
            "JCT": is_beyond(self.jct),
            "p95": is_beyond(self.p95),
            "killed": self.killed > MOST_KILLED,
            "worst user": self.worst_user is not None and self.worst_user > WORST_USER,
        }
        return tuple(name for name, fails in beyond.items() if fails)


class ConditionVerdict(msgspec.Struct, frozen=True):
    """How a policy fares under one condition; ``failures`` names what is beyond the bar.

    ``worst_user`` is the mean over the workloads (``WorstUsers``), ``by_chance`` that of as requested over itself.
    """

    condition: Condition
    setting: Setting
    jct: Interval
    p95: Interval
    killed: float
    worst_user: float | None
    by_chance: float | None
    failures: tuple[Failure, ...]

    @property
    def passed(self) -> bool:
        """Whether it is never worse here."""
        return not self.failures


def verdicts(comparison: Comparison, policy: str) -> list[ConditionVerdict]:
    """Return the verdict on ``policy`` under each condition in each setting."""
    settings = [setting for name, setting in comparison.sides if name == policy]
    return [
        _verdict(comparison.under(condition), policy, condition, setting)
        for condition in comparison.conditions
        for setting in settings
    ]


def _verdict(comparison: Comparison, policy: str, condition: Condition, setting: Setting) -> ConditionVerdict:
    side: Side = (policy, setting)
    against: Side = (REFERENCE, setting)
    jct = comparison.ratio(side, against)
    p95 = comparison.ratio(side, against, "jct_p95_s")
    killed = comparison.killed_part(side)
    worst = comparison.worst_user(side, against)
    again: Side = (AGAIN, setting)
    chance = comparison.worst_user(again, against) if again in comparison.sides else None
    worst_user = None if worst is None else worst.usual
    failures = SameOrder(jct=jct, p95=p95, killed=killed, worst_user=worst_user).failures()
    return ConditionVerdict(
        condition, setting, jct, p95, killed, worst_user, None if chance is None else chance.usual, failures
    )
