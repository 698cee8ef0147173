"""What policies know of jobs in the simulator: of run times, and with a past of needs.

limits      time limits only
history     estimates of rlalloc's predictor without a model, each made at a job's submission (``past_of_workload``);
            CPUs and memory may be cut to what like jobs used, by the same functions as in the daemon
model       likewise with a model (LightGBM), learned from the past before the workload and again as it goes on
factor-1.8  the true run time, wrong by a log-normal factor of 1.8; the quantiles say so
truth       the true run time as requested; how it changes with the size is still only expected, and of needs
            nothing is known
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from rlalloc.job import Bounds
from rlalloc.past_job import PastJob
from rlalloc.run_time import RunTimeEstimate
from rlalloc.scripts.consent import NO_CONSENT
from rlalloc.usage.past_bounds import KnownNeeds, with_past_needs
from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.past_of_workload import (
    Estimates,
    Remembered,
    estimates_by_model,
    estimates_from_past,
    needs_from_past,
    remembered,
)
from rlalloc_simulator.report.recording import alone_s
from rlalloc_simulator.workloads.workload_errors import WorkloadError

Knowledge = Literal["limits", "history", "model", "factor-1.8", "truth"]
LEVELS: Final[tuple[Knowledge, ...]] = get_args(Knowledge)
FACTOR: Final = 1.8
_NORMAL_90: Final = 1.2816
"""The 90% quantile of the normal distribution."""


def knowledge_named(text: str) -> Knowledge:
    """Return the word of an option. Raises WorkloadError."""
    for level in LEVELS:
        if text == level:
            return level
    raise WorkloadError(f"--knowledge {text}: write one of {', '.join(LEVELS)}")


def with_knowledge(
    site: SimulatedSite, jobs: Sequence[SubmittedJob], knowledge: Knowledge, past: Sequence[PastJob] = ()
) -> tuple[SubmittedJob, ...]:
    """Return the jobs of a workload with what policies know of their run times and needs. Deterministic.

    ``past`` is what accounting has kept from before the first submission, in the order of submission. Raises
    PolicyError where a model is wanted, and LightGBM is missing or there is too little past to learn from.
    """
    if knowledge in _FROM_PAST:
        known = remembered(site, jobs, past)
        return tuple(
            msgspec.structs.replace(job, run_time=estimate, bounds=_bounds(job, needs))
            for job, estimate, needs in zip(jobs, _FROM_PAST[knowledge](known), needs_from_past(known), strict=True)
        )
    estimates = _TOLD[knowledge](jobs)
    return tuple(
        msgspec.structs.replace(job, run_time=estimate) for job, estimate in zip(jobs, estimates, strict=True)
    )


def _bounds(job: SubmittedJob, needs: KnownNeeds) -> Bounds:
    """Its bounds with what like jobs used, as in ``rlallocd.submissions.candidates``; no script fixes a need."""
    return with_past_needs(job.bounds, job.request, job.directives, NO_CONSENT, needs)


def _limits_only(jobs: Sequence[SubmittedJob]) -> Estimates:
    return [None] * len(jobs)


def _true(jobs: Sequence[SubmittedJob]) -> Estimates:
    run_s = [max(1.0, alone_s(job)) for job in jobs]
    return [RunTimeEstimate(each, each, each, "truth") for each in run_s]


def _to_a_factor(jobs: Sequence[SubmittedJob]) -> Estimates:
    errors = math.log(FACTOR) * np.random.default_rng((len(jobs), 43)).standard_normal(len(jobs))
    spread = FACTOR**_NORMAL_90
    medians_s = [max(1.0, alone_s(job)) * math.exp(error) for job, error in zip(jobs, errors.tolist(), strict=True)]
    return [RunTimeEstimate(each / spread, each, each * spread, "truth to a factor") for each in medians_s]


_FROM_PAST: Final[Mapping[Knowledge, Callable[[Remembered], Estimates]]] = {
    "history": estimates_from_past,
    "model": estimates_by_model,
}
_TOLD: Final[Mapping[Knowledge, Callable[[Sequence[SubmittedJob]], Estimates]]] = {
    "limits": _limits_only,
    "factor-1.8": _to_a_factor,
    "truth": _true,
}
