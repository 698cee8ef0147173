"""Why a job started earlier or later in the engine than on the real site. Pure functions.

Two runs alone show these reasons: the job itself had another size; jobs passed it in one run and not in the other; or
its node became free at another time, because one of these happened to a job before it. The rest is the pace of the
schedulers: another cycle of backfill, another round of slurmctld's main loop.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from rlalloc_validation.job_comparison import Pair
from rlalloc_validation.recorded_run import RanJob

Reason = Literal["size", "limit", "backfilled", "passed", "follows", "pace"]
WORDS: Final[dict[Reason, str]] = {
    "size": "rlalloc gave it another size",
    "limit": "it waited for a job that ran into its time limit, which slurmctld looks at every 30 s",
    "passed": "other jobs were backfilled before it",
    "backfilled": "it was itself backfilled in one of both",
    "follows": "it waited for a job that itself came earlier or later",
    "pace": "another cycle of a scheduler",
}
HANDED_OVER_S: Final = 8.0
"""A job that starts on a node so soon after another's end there had waited for it."""


class Explained(msgspec.Struct, frozen=True):
    """One job's difference, and what it comes from; ``detail`` names the jobs that it comes from."""

    pair: Pair
    reason: Reason
    detail: str


def explain(pairs: Sequence[Pair], over_s: float) -> list[Explained]:
    """Every job whose waits differ by more than ``over_s`` seconds, the largest difference first."""
    late = [pair for pair in pairs if abs(pair.wait_error_s) > over_s]
    by_number = {pair.real.number: pair for pair in pairs}
    return [
        _explained(pair, pairs, by_number, over_s) for pair in sorted(late, key=lambda pair: -abs(pair.wait_error_s))
    ]


def counts(explained: Sequence[Explained]) -> Counter[Reason]:
    """How many jobs differ for which reason."""
    return Counter(each.reason for each in explained)


def _explained(pair: Pair, pairs: Sequence[Pair], by_number: Mapping[int, Pair], over_s: float) -> Explained:
    if not pair.same_size:
        sizes = f"{pair.real.size.describe()}; in the engine {pair.simulated.size.describe()}"
        return Explained(pair, "size", sizes)
    slower, other = ("engine's", "real") if pair.wait_error_s > 0 else ("real", "engine's")
    passing, passed = _passed_in_one(pair, pairs), _passes_in_one(pair, pairs)
    before = _waited_for(pair, pairs)
    if before is not None:
        first = by_number[before]
        if "TIMEOUT" in (first.real.state, first.simulated.state):
            return Explained(pair, "limit", f"job {before}")
        moved_s = first.simulated.ended_s - first.real.ended_s
        if abs(moved_s) > over_s / 2 and (moved_s > 0) == (pair.wait_error_s > 0):
            return Explained(pair, "follows", f"job {before} ended {abs(moved_s):.0f} s later in the {slower} run")
    if passing:
        return Explained(pair, "passed", f"{_some(passing)} started first in the {slower} run alone")
    if passed:
        return Explained(pair, "backfilled", f"it passed {_some(passed)} in the {other} run alone")
    return Explained(pair, "pace", "")


def _passed_in_one(pair: Pair, pairs: Sequence[Pair]) -> list[int]:
    """Jobs submitted later that started before this one only where it started later."""
    later = [other for other in pairs if other.real.submitted_s > pair.real.submitted_s]
    slow, fast = ("simulated", "real") if pair.wait_error_s > 0 else ("real", "simulated")
    return [
        other.real.number
        for other in later
        if _start(getattr(other, slow)) < _start(getattr(pair, slow))
        and _start(getattr(other, fast)) >= _start(getattr(pair, fast))
    ]


def _passes_in_one(pair: Pair, pairs: Sequence[Pair]) -> list[int]:
    """Jobs submitted before this one that it passed only where it started earlier."""
    earlier = [other for other in pairs if other.real.submitted_s < pair.real.submitted_s]
    slow, fast = ("simulated", "real") if pair.wait_error_s > 0 else ("real", "simulated")
    return [
        other.real.number
        for other in earlier
        if _start(getattr(other, fast)) > _start(getattr(pair, fast))
        and _start(getattr(other, slow)) <= _start(getattr(pair, slow))
    ]


def _some(numbers: Sequence[int]) -> str:
    return f"job{'s' if len(numbers) > 1 else ''} " + ", ".join(map(str, numbers[:4])) + " …" * (len(numbers) > 4)


def _waited_for(pair: Pair, pairs: Sequence[Pair]) -> int | None:
    """The job whose end let this one start where it started later; None where no end came just before."""
    slow = "simulated" if pair.wait_error_s > 0 else "real"
    mine: RanJob = getattr(pair, slow)
    ends = [
        (their.ended_s, their.number)
        for their in (getattr(other, slow) for other in pairs)
        if set(their.nodes) & set(mine.nodes) and 0 <= _start(mine) - their.ended_s <= HANDED_OVER_S
    ]
    return max(ends)[1] if ends else None


def _start(job: RanJob) -> float:
    return job.ended_s if job.started_s is None else job.started_s
