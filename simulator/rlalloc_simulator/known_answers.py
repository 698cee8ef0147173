"""Policies whose answers are known before a run: the engine gives them by itself, and never stops to ask."""

from collections.abc import Sequence

import numpy as np

from rlalloc.heuristics import Heuristic, Ordered, as_requested, repaired
from rlalloc_simulator.engine import Simulator, SubmittedJob
from rlalloc_simulator.engine.batched_simulators import answer_of
from rlalloc_simulator.engine.engine_records import Numbers
from rlalloc_simulator.engine.job_table import size_of
from rlalloc_simulator.engine.policy_views import cluster_view, job_view


def same_whatever_is_free(policy: Heuristic) -> bool:
    """Whether the answer for a job is always the same: late decisions and a look at the cluster change nothing."""
    return (policy.policy if isinstance(policy, Ordered) else policy) in (as_requested, repaired)


def known_answers(simulator: Simulator, jobs: Sequence[SubmittedJob], policy: Heuristic) -> Numbers | None:
    """What ``policy`` gives each managed job, (jobs, 7) with the columns SIZE_FIELDS; other rows count for nothing.

    None where that is not known yet: the answer follows the cluster, or jobs are asked about again, or the shape of
    the nodes may change, or an answer may be more than all nodes hold, or another class of simulator takes part.
    """
    site = simulator.site
    is_plain = type(simulator) is Simulator and not site.failures and site.interception.review_interval <= 0
    if not is_plain or not same_whatever_is_free(policy):
        return None
    rows = np.ones((len(jobs), 7), dtype=np.int64)
    views = {}
    for number, job in enumerate(jobs):
        pool = int(simulator.world.sizes[number]["pool"])
        if pool not in views:
            views[pool] = cluster_view(simulator, number)
        answer = job.request, (0, 0.0)
        if job.managed:
            shares = policy(job_view(simulator, number, job), views[pool])
            answer = answer_of(site.interception.urgency, job, views[pool], shares)
        rows[number] = (*size_of(answer[0]).values(), *answer[1])
    return rows if simulator.could_hold(rows) else None
