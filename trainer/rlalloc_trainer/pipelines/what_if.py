"""What a policy would have changed, had it been enforced: simulated on a site's own jobs of a span of time.

The jobs that rlalloc decided are those of the calibrated simulator, which the promotion gate uses, too. Jobs that it
did not decide take their GPUs besides, as they ran. Each workload draws anew how jobs scale, from measurements of
others (``rlalloc_simulator.truths.scaling_mixture``): what the policy expects of scaling is not taken for the truth.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from rlalloc.bounds import rigid_bounds
from rlalloc.counted import counted
from rlalloc.job import Allocation
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.past_job import PastJob
from rlalloc.progress import silent
from rlalloc.speed import PRIOR, SpeedCurve
from rlalloc.store import Experience
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval, jct_ratio, paired_ratio
from rlalloc_simulator.comparison.runner import Run, run_all
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.engine import NodeKind, SubmittedJob, UserKind
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import Workload
from rlalloc_simulator.truths.scaling_mixture import drawn_speed
from rlalloc_trainer.evaluation.never_worse import Failure
from rlalloc_trainer.pipelines.calibrated_simulator import (
    LEAST_JOBS,
    NO_URGENCY,
    calibrated_site,
    resampled,
    workload_jobs,
)
from rlalloc_trainer.promotion.held_out_evidence import SAME_ORDER, same_order
from rlalloc_trainer.promotion.policy_versions import Learned

WORKLOADS: Final = 30
CONFIDENCE: Final = 0.9
LEAST_MOLDABLE: Final = 20
"""Jobs that may change their size: with fewer, nothing can be said."""
_POLICY: Final = "policy"
Advice = Literal["enforce", "pilot", "stay", "bounds", "unknown"]
"""enforce: better, and never worse · pilot: never worse, and little to gain · stay: worse by the bar · bounds: hardly
a job may change its size · unknown: too few jobs."""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What came out. Ratios are the policy's over as requested in the same order of the queue; below 1 is better.

    ``jobs`` of ``partition`` were decided by rlalloc, ``moldable`` of them may change their size; ``others`` were not
    decided. ``killed`` is the part of the jobs that were killed for the size that the policy gave them. Where too
    little is known to simulate, all figures are None and ``recommendation`` says why.
    """

    policy: str
    partition: str | None = None
    jobs: int
    moldable: int
    others: int = 0
    workloads: int = 0
    confidence: float = CONFIDENCE
    jct: Interval | None = None
    p95: Interval | None = None
    wait: Interval | None = None
    gpu_hours: Interval | None = None
    killed: float | None = None
    worst_user: float | None = None
    failures: tuple[Failure, ...] = ()
    advice: Advice
    recommendation: str
    assumptions: tuple[str, ...] = ()


class Effort(NamedTuple):
    """How much is simulated, and from which seed."""

    workloads: int = WORKLOADS
    jobs: int | None = None
    seed: int = 0


def what_if(
    experiences: Sequence[Experience],
    others: Iterable[PastJob],
    learned: Learned,
    parallel_map: ParallelMap,
    *,
    urgency: UrgencyRules = NO_URGENCY,
    objective: Weights = DEFAULT_WEIGHTS,
    effort: Effort = Effort(),  # noqa: B008 (immutable)
) -> WhatIf:
    """Simulate ``learned`` and as requested on workloads drawn from usable ``experiences`` and from ``others``.

    Raises PolicyError or PluginError for the policy.
    """
    partitions = Counter(one.decision.partition for one in experiences)
    moldable = sum(_is_moldable(one) for one in experiences)
    if not experiences or moldable < LEAST_MOLDABLE:
        return _too_little(learned.version, len(experiences), moldable)
    ours = calibrated_site(experiences, experiences, urgency)
    partition = partitions.most_common(1)[0][0]
    site = _with_others(ours, [job for job in others if job.partition == partition and job.gpus > 0])
    if len(ours.jobs) < LEAST_MOLDABLE:
        return _too_little(learned.version, len(ours.jobs), moldable)
    generator = np.random.default_rng(effort.seed)
    length = effort.jobs or max(LEAST_JOBS, workload_jobs(site))
    workloads = [_rescaled(each, generator) for each in resampled(site, effort.workloads, length, generator)]
    runs = {
        _POLICY: Run(msgspec.structs.replace(learned.policy, objective=objective)),
        SAME_ORDER: Run(HeuristicPolicy(REFERENCE, smallest_first=True)),
    }
    results = run_all(runs, workloads, parallel_map, silent)
    found = _judged(results[_POLICY], results[SAME_ORDER])
    return msgspec.structs.replace(
        found,
        policy=learned.version,
        partition=partition,
        jobs=len(ours.jobs),
        moldable=moldable,
        others=len(site.jobs) - len(ours.jobs),
        assumptions=_assumptions(ours, len(experiences), partitions[partition]),
    )


def _judged(policy: Sequence[WorkloadResult], requested: Sequence[WorkloadResult]) -> WhatIf:
    """The ratios, the verdict by the bar, and what follows from it."""
    same = same_order(policy, requested, CONFIDENCE)
    failures = same.failures()
    advice: Advice = "stay" if failures else "enforce" if same.jct.high < 1.0 else "pilot"
    return WhatIf(
        policy="",
        jobs=0,
        moldable=0,
        workloads=len(policy),
        jct=jct_ratio(policy, requested, CONFIDENCE),
        p95=same.p95,
        wait=paired_ratio((one.wait_s + 1.0 for one in policy), (one.wait_s + 1.0 for one in requested), CONFIDENCE),
        gpu_hours=paired_ratio((one.gpu_hours for one in policy), (one.gpu_hours for one in requested), CONFIDENCE),
        killed=same.killed,
        worst_user=same.worst_user,
        failures=failures,
        advice=advice,
        recommendation=_recommendation(advice, same.jct, failures),
    )


def _recommendation(advice: Advice, jct: Interval, failures: Sequence[Failure]) -> str:
    less = f"{(1.0 - jct.estimate) * 100:.1f}% ({(1.0 - jct.high) * 100:.1f} to {(1.0 - jct.low) * 100:.1f}%)"
    if advice == "enforce":
        return f"Enforce, one rule first: mean JCT would have been {less} shorter, and the bar of never worse is met."
    if advice == "pilot":
        return (
            f"Enforcing would have changed little: mean JCT {less} shorter. The bar of never worse is met. Enforce a "
            "pilot rule, or give more jobs a range first."
        )
    beyond = ", ".join(failures)
    return f"Stay in shadow mode: the bar of never worse is not met ({beyond}). Train on more jobs, then look again."


def _too_little(policy: str, jobs: int, moldable: int) -> WhatIf:
    if jobs < LEAST_MOLDABLE:
        advice: Advice = "unknown"
        text = (
            f"Too few jobs to say: {jobs} of this span were decided by a policy and have ended, {LEAST_MOLDABLE} are "
            "needed. Stay in shadow mode and take a longer span."
        )
    else:
        advice = "bounds"
        text = (
            f"Only {moldable} of {jobs} jobs may change their size, {LEAST_MOLDABLE} are needed: enforcing would "
            "change next to nothing. Give rules bounds, or ask users for ranges, first."
        )
    return WhatIf(policy=policy, jobs=jobs, moldable=moldable, advice=advice, recommendation=text)


def _assumptions(ours: Workload, usable: int, in_partition: int) -> tuple[str, ...]:
    (nodes,) = ours.site.nodes
    site = (
        f"The site is one partition of {nodes.count} equal nodes with {counted(nodes.shape.gpus, 'GPU')}, scheduled "
        f"by Slurm's backfill without limits, reservations and failures; {usable - in_partition} decided jobs of "
        "other partitions are left out."
    )
    return (site, *_OF_ANY_SITE)


_OF_ANY_SITE: Final = (
    (
        "The simulator is the one in which the promotion gate judges policies, calibrated from the same jobs. Where "
        "it is wrong, the gate is wrong in the same way: these figures are no second opinion on it."
    ),
    (
        "Workloads are drawn from the span: pieces of it in their own order and pace. Users would submit the same "
        "jobs at the same times."
    ),
    (
        "How jobs scale is not known: each workload draws it for each user and class from measurements of others "
        "(Pollux, Gavel, MLPerf, MPT, and an analytic model)."
    ),
    ("A job needs as much memory as its user's minimum says. In the size that it had, it runs as long as it ran."),
    (
        "The policy knows run times by time limits only; rlallocd also knows the site's history. Sizes are decided "
        "when jobs are submitted."
    ),
    "Jobs that rlalloc did not decide keep their sizes. Those without GPUs are left out.",
    "If the policy in use was trained on jobs of this span, these figures flatter it.",
)


def _is_moldable(experience: Experience) -> bool:
    bounds = experience.decision.bounds
    return bounds is not None and any(
        each.minimum < each.maximum for each in (bounds.gpus, bounds.cpus_per_gpu, bounds.mem_mib_per_gpu)
    )


def _with_others(ours: Workload, others: Sequence[PastJob]) -> Workload:
    """The same site with jobs that rlalloc does not decide; those that fit no nodes are left out."""
    (nodes,) = ours.site.nodes
    names = sorted({job.user for job in others} - {user.name for user in ours.site.users})
    users = (*ours.site.users, *(UserKind(name=name) for name in names))
    places = {user.name: place for place, user in enumerate(users)}
    found = [rigid for job in others if (rigid := _rigid_job(job, places[job.user], nodes)) is not None]
    site = msgspec.structs.replace(ours.site, users=users)
    return Workload(site, tuple(sorted((*ours.jobs, *found), key=lambda job: job.submit_s)))


def _rigid_job(job: PastJob, user: int, nodes: NodeKind) -> SubmittedJob | None:
    """A past job that runs as it did, or None if it cannot be had on these nodes."""
    count = max(1, job.nodes)
    if count > nodes.count or job.gpus % count or job.run_s <= 0:
        return None
    size = Allocation(
        nodes=count,
        gpus_per_node=job.gpus // count,
        tasks_per_node=1,
        cpus_per_task=max(1, job.cpus // count),
        mem_mib_per_node=int(job.mem_mib / count),
        time_limit_s=int(max(job.limit_s or 0.0, job.run_s + 60.0)),
    )
    if not nodes.shape.holds(size):
        return None
    return SubmittedJob(
        submit_s=job.submitted_s,
        user=user,
        request=size,
        bounds=rigid_bounds(size),
        work_s=job.run_s * PRIOR.at(size.gpus, size.cpus_per_gpu),
        curve=PRIOR,
        managed=False,
    )


def _rescaled(workload: Workload, generator: np.random.Generator) -> Workload:
    """The same jobs, which scale as measured elsewhere, and take as long as they took as requested."""
    curves: dict[tuple[int, str], SpeedCurve] = {}
    jobs = []
    for job in workload.jobs:
        if not job.managed:
            jobs.append(job)
            continue
        if (job.user, job.job_class) not in curves:
            needed = min(job.request.cpus_per_gpu, job.curve.cpus_per_gpu_needed)
            curves[job.user, job.job_class] = drawn_speed(generator, max(1, job.request.gpus)).at_full_supply(needed)
        curve = curves[job.user, job.job_class]
        work_s = job.work_s / job.curve.at_size(job.request) * curve.at_size(job.request)
        jobs.append(msgspec.structs.replace(job, work_s=work_s, curve=curve))
    return Workload(workload.site, tuple(jobs))
