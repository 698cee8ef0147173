"""Whether a candidate earns its place. Pure functions of what was measured (invariant 5).

A candidate is promoted only if, on data that it was not trained on,

- the whole interval of its mean JCT ratio versus the policy in use is below 1;
- the ratio versus the best heuristic is not above 1, and where the site is calm, usual or busy, the whole interval of
  it is not above 1;
- no more jobs were killed for their size than with the policy in use;
- it is never worse than as requested in the same order, by the bar of ``rlalloc_trainer.evaluation.never_worse``.

If nothing takes the place of the policy in use, it is held to the same bar: if it is shown to be worse than as
requested, jobs are served as requested instead.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.evaluation.never_worse import MOST, MOST_KILLED, WORST_USER, Failure, SameOrder

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
    same_order: SameOrder
    current_same_order: SameOrder
    by_third: dict[str, dict[str, Interval]] = {}
    killed_candidate: int
    killed_current: int
    held_out_jobs: int
    workloads: int
    confidence: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate decided on a candidate, why in one sentence, and the evidence."""

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
            f"{evidence.candidate} is promoted: mean JCT ratio {evidence.against_current} versus {evidence.current} "
            f"and {best} versus {name} on {_workloads(evidence)}"
        ),
        evidence=evidence,
    )


def judge_in_use(evidence: Evidence) -> Verdict | None:
    """Promote the candidate of ``evidence``, as requested, if the policy in use is shown to be worse; else None."""
    found = evidence.current_same_order
    failures = found.shown_failures(BEHIND * MOST)
    if not failures:
        return None
    return Verdict(
        promote=True,
        reason=(
            f"{evidence.candidate} is promoted, because {_said(failures[0], evidence.current, found)} on "
            f"{_workloads(evidence)}"
        ),
        evidence=evidence,
    )


def hardest_heuristic(against: Mapping[str, Interval]) -> tuple[str, Interval]:
    """Return the heuristic that the candidate's ratio is highest against: the best one."""
    return max(against.items(), key=lambda item: item[1].estimate)


def _refusal(evidence: Evidence) -> str | None:
    ratio = evidence.against_current
    if not ratio.high < 1.0:
        how = "it is not better than" if ratio.low <= 1.0 else "it is worse than"
        return f"{how} {evidence.current}: mean JCT ratio {ratio} on {_workloads(evidence)}"
    name, best = hardest_heuristic(evidence.against_heuristics)
    if best.estimate > BEHIND:
        return (
            f"it beats {evidence.current} (mean JCT ratio {ratio}) but not {name}: mean JCT ratio {best} on "
            f"{_workloads(evidence)}"
        )
    for third, against in evidence.by_third.items():
        name, best = hardest_heuristic(against)
        if best.low > 1.0:
            return (
                f"it is worse than {name} where the site is {third}: mean JCT ratio {best} on a third of "
                f"{_workloads(evidence)}"
            )
    if evidence.killed_candidate > evidence.killed_current:
        return (
            f"more jobs run out of memory or time than with {evidence.current}: {evidence.killed_candidate} instead "
            f"of {evidence.killed_current} on {_workloads(evidence)}"
        )
    return _worse_than_requested(evidence)


def _worse_than_requested(evidence: Evidence) -> str | None:
    found = evidence.same_order
    failures = found.failures(BEHIND * MOST)
    return f"{_said(failures[0], 'it', found)} on {_workloads(evidence)}" if failures else None


def _said(failure: Failure, policy: str, found: SameOrder) -> str:
    """Say by what ``policy`` fails the bar, with its figure."""
    said: dict[Failure, str] = {
        "JCT": f"{policy} is worse than as requested in the same order: mean JCT ratio {found.jct}",
        "p95": f"{policy} is worse than as requested in the same order: 95th percentile of JCT ratio {found.p95}",
        "killed": f"{policy} kills {found.killed:.1%} of the jobs by the sizes that it gives them, more than "
        f"{MOST_KILLED:.1%},",
        "worst user": f"with {policy} a user is worse off than as requested in the same order: mean JCT ratio "
        f"{found.worst_user or 0.0:.2f}, more than {WORST_USER:g},",
    }
    return said[failure]


def _workloads(evidence: Evidence) -> str:
    return (
        f"{evidence.workloads} workloads drawn from {evidence.held_out_jobs} held-out jobs "
        f"({evidence.confidence:.0%} interval)"
    )
