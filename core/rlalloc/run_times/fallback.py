"""Run times without a model: what the user, the account, the class, the partition or the site's jobs did lately."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.recent_runs import RecentRuns

OF_USER: Final = {
    "user_name_limit_size": "runs of this user with this name, limit and size",
    "user_limit_size": "runs of this user with this limit and size",
    "user": "runs of this user",
}
OF_OTHERS: Final = {
    "account": "runs of this account",
    "job_class": "runs of this class",
    "partition_qos": "runs in this partition and QOS",
    "site": "runs on this site",
}
ENOUGH_OF_USER: Final = 3
ENOUGH_OF_OTHERS: Final = 10
SHARE_OF_LIMIT: Final = (0.02, 0.44, 1.0)
"""Of the limit, where no job has ended yet; .44 is the median on the traces that the shipped workloads come from."""
WITHOUT_ANYTHING_S: Final = (60.0, 3600.0, 86400.0)


def estimate_without_model(recent: RecentRuns, facts: JobFacts) -> RunTimeEstimate:
    """Return quantiles of the nearest like jobs of which enough ended; a share of the limit where there are none."""
    for kind, words in OF_USER.items():
        group = recent.group(kind, facts)
        if group is not None and len(group.log_runs) >= ENOUGH_OF_USER:
            return _estimate(_quantiles(group.log_runs), f"{len(group.log_runs)} {words}")
    for kind, words in OF_OTHERS.items():
        group = recent.group(kind, facts)
        if group is None:
            continue
        if facts.limit is not None and len(group.log_uses) >= ENOUGH_OF_OTHERS:
            log_limit = math.log2(max(facts.limit, 1.0))
            quantiles = [log_limit + use for use in _quantiles(group.log_uses)]
            return _estimate(quantiles, f"share of the limit in {len(group.log_uses)} {words}")
        if len(group.log_runs) >= ENOUGH_OF_OTHERS:
            return _estimate(_quantiles(group.log_runs), f"{len(group.log_runs)} {words}")
    if facts.limit is not None:
        low, median, high = (share * facts.limit for share in SHARE_OF_LIMIT)
        return RunTimeEstimate(max(1.0, low), max(1.0, median), max(1.0, high), "share of the limit")
    return RunTimeEstimate(*WITHOUT_ANYTHING_S, "nothing is known: a guess")


def _quantiles(values: Iterable[float]) -> tuple[float, float, float]:
    """Return 10, 50 and 90 %; of so few that 10 % is below the least, the least."""
    ordered = sorted(values)

    def at(part: float) -> float:
        position = min(max(part * (len(ordered) + 1) - 1.0, 0.0), len(ordered) - 1.0)
        index = int(position)
        above = ordered[min(index + 1, len(ordered) - 1)]
        return ordered[index] + (position - index) * (above - ordered[index])

    return at(0.1), at(0.5), at(0.9)


def _estimate(log2_s: Sequence[float], source: str) -> RunTimeEstimate:
    low, median, high = (max(1.0, 2.0**value) for value in log2_s)
    return RunTimeEstimate(low, median, high, source)
