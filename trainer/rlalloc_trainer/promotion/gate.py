"""Whether a candidate earns its place. Pure functions of what was measured (invariant 5).

A candidate is promoted only if, on data that it was not trained on, its mean JCT is below that of the policy in place
with the whole interval, it is not behind the best heuristic, also not with the whole interval where the site is calm
or where it is busy, and no more jobs were killed for their size.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc_simulator.comparison.paired_statistics import Interval

BEHIND: Final = 1.001
"""A heuristic that is served as a policy goes through single precision, which may cost it some bytes of memory."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on held-out data. Ratios are of mean JCT, candidate over the other; below 1 is better.

    ``killed_*`` count jobs that ran out of memory or time on these workloads. ``held_out_jobs`` are the real jobs
    that the workloads were drawn from. ``by_third`` has the ratios to heuristics in the workloads where jobs wait
    least, usual and most (``thirds_by_wait``), by the name of the third and the heuristic's.
    """

    candidate: str
    current: str
    against_current: Interval
    against_heuristics: dict[str, Interval]
    by_third: dict[str, dict[str, Interval]] = {}
    killed_candidate: int
    killed_current: int
    held_out_jobs: int
    workloads: int
    confidence: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's word on a candidate, why in one sentence, and the evidence."""

    promote: bool
    reason: str
    evidence: Evidence


def judge(evidence: Evidence) -> Verdict:
    """Say whether the candidate is promoted, and why."""
    refusal = _refusal(evidence)
    if refusal is not None:
        return Verdict(promote=False, reason=f"{evidence.candidate} is not promoted: {refusal}", evidence=evidence)
    name, best = hardest_heuristic(evidence.against_heuristics)
    return Verdict(
        promote=True,
        reason=(
            f"{evidence.candidate} is promoted: mean JCT {evidence.against_current} of {evidence.current}'s and "
            f"{best} of {name}'s on {_what(evidence)}"
        ),
        evidence=evidence,
    )


def hardest_heuristic(against: Mapping[str, Interval]) -> tuple[str, Interval]:
    """Return the heuristic that a candidate looks worst against: the best one."""
    return max(against.items(), key=lambda item: item[1].estimate)


def _refusal(evidence: Evidence) -> str | None:
    ratio = evidence.against_current
    if not ratio.high < 1.0:
        how = "it is no better than" if ratio.low <= 1.0 else "it is worse than"
        return f"{how} {evidence.current}, mean JCT {ratio} of its on {_what(evidence)}"
    name, best = hardest_heuristic(evidence.against_heuristics)
    if best.estimate > BEHIND:
        return f"it beats {evidence.current} ({ratio}) but not {name}, mean JCT {best} of its on {_what(evidence)}"
    for third, against in evidence.by_third.items():
        name, best = hardest_heuristic(against)
        if best.low > 1.0:
            return (
                f"it is behind {name} where the site is {third}, mean JCT {best} of its on a third of "
                f"{_what(evidence)}"
            )
    if evidence.killed_candidate > evidence.killed_current:
        return (
            f"it lets more jobs run out of memory or time than {evidence.current}, {evidence.killed_candidate} "
            f"instead of {evidence.killed_current} on {_what(evidence)}"
        )
    return None


def _what(evidence: Evidence) -> str:
    return (
        f"{evidence.workloads} workloads drawn from {evidence.held_out_jobs} held-out jobs "
        f"({evidence.confidence:.0%} interval)"
    )
