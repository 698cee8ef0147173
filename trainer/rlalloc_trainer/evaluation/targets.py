"""What is to be reached: mean JCT over as requested in the queue's own order, on three kinds of workloads.

Those of Pollux are seconds of another simulator (as requested 9,003 in the queue's own order, 5,983 smallest area
first), here as parts of what as requested takes in the same order.
"""

from typing import Final, NamedTuple

import msgspec

from rlalloc_simulator.comparison.compared_policy import REFERENCE
from rlalloc_simulator.knowledge import Knowledge
from rlalloc_trainer.evaluation.paired_comparison import Comparison, Side
from rlalloc_trainer.evaluation.scenario_runs import Condition, Setting
from rlalloc_trainer.evaluation.scenarios import LOADS, MODEST_SITE

REPAIRED: Final = "repaired"


class _Wanted(NamedTuple):
    scenario: str
    knowledge: Knowledge
    setting: Setting
    most: float
    against: Setting
    """Whose order the reference has: ``sizes`` is the queue's own."""


_WANTED: Final = (
    _Wanted(MODEST_SITE, "history", "sizes", 0.90, "sizes"),
    _Wanted(MODEST_SITE, "history", "urgency", 0.62, "sizes"),
    _Wanted("80% resizable", "history", "sizes", 0.65, "sizes"),
    _Wanted("80% resizable", "history", "urgency", 0.42, "sizes"),
    _Wanted("Pollux, ranges 1 to all", "history", "sizes", 0.911, "sizes"),
    _Wanted("Pollux, ranges 1 to all", "history", "urgency", 0.886, "urgency"),
    _Wanted("Pollux, ranges 1 to all", "truth", "urgency", 0.836, "urgency"),
)


class Target(msgspec.Struct, frozen=True):
    """A target, the figure, and whether it is met: also ``repaired`` is to be beaten."""

    wanted: str
    figure: str
    met: bool


def targets(comparison: Comparison, policy: str) -> list[Target]:
    """Return the targets that the comparison has figures for."""
    return [
        _target(comparison.under(condition), policy, wanted, condition)
        for wanted in _WANTED
        for condition in comparison.conditions
        if condition[:2] == (wanted.scenario, wanted.knowledge)
        and condition.load in (0.0, *LOADS)
        and {(policy, wanted.setting), (REFERENCE, wanted.against)} <= set(comparison.sides)
    ]


def _target(comparison: Comparison, policy: str, wanted: _Wanted, condition: Condition) -> Target:
    side: Side = (policy, wanted.setting)
    ratio = comparison.ratio(side, (REFERENCE, wanted.against))
    met, figure = ratio.estimate <= wanted.most, str(ratio)
    repaired: Side = (REPAIRED, wanted.setting)
    if repaired in comparison.sides:
        over = comparison.ratio(side, repaired)
        met, figure = met and over.estimate < 1.0, f"{figure}; over {REPAIRED} {over}"
    order = "the queue's own order" if wanted.against == "sizes" else "the same order"
    words = f"{condition}, {wanted.setting}: at most {wanted.most:g} of as requested in {order}"
    return Target(words, figure, met)
