"""The bar that whatever ships has to pass: on no workload worse off than as requested in the same order."""

from typing import Final

import msgspec

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Side
from rlalloc_trainer.evaluation.scenario_runs import Condition, Setting

MOST: Final = 1.0
"""Mean JCT and its 95th percentile, over as requested in the same order."""
MOST_OF_INTERVAL: Final = 1.02
MOST_KILLED: Final = 0.002
"""Part of the jobs that are killed for what the policy gave them."""
WORST_USER: Final = 1.25


class Verdict(msgspec.Struct, frozen=True):
    """How a policy fares under one condition; ``failures`` names what is beyond the bar."""

    condition: Condition
    setting: Setting
    jct: Interval
    p95: Interval
    killed: float
    worst_user: float | None
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether it is never worse here."""
        return not self.failures


def verdicts(comparison: Comparison, policy: str) -> list[Verdict]:
    """Return the verdict on ``policy`` under each condition in each setting."""
    settings = [setting for name, setting in comparison.sides if name == policy]
    return [
        _verdict(comparison, policy, condition, setting)
        for condition in comparison.conditions
        for setting in settings
    ]


def _verdict(comparison: Comparison, policy: str, condition: Condition, setting: Setting) -> Verdict:
    side: Side = (policy, setting)
    against: Side = (REFERENCE, setting)
    jct = comparison.ratio(side, against, conditions=[condition])
    p95 = comparison.ratio(side, against, "jct_p95_s", conditions=[condition])
    killed = comparison.killed_part(side, conditions=[condition])
    worst = comparison.worst_user(side, against, conditions=[condition])
    beyond = {
        "JCT": _is_beyond(jct),
        "p95": _is_beyond(p95),
        "killed": killed > MOST_KILLED,
        "worst user": worst is not None and worst[0] > WORST_USER,
    }
    failures = tuple(name for name, is_beyond in beyond.items() if is_beyond)
    return Verdict(condition, setting, jct, p95, killed, None if worst is None else worst[0], failures)


def _is_beyond(ratio: Interval) -> bool:
    # Without an interval (a single week) only the estimate counts.
    return ratio.estimate > MOST + 1e-9 or ratio.high > MOST_OF_INTERVAL
