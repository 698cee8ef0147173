"""What policies know of run times in the simulator.

limits      time limits only
history     estimates of rlalloc's predictor without a model, each made at a job's submission (``past_of_workload``)
model       likewise with a model (LightGBM), learned from the past before the workload and again as it goes on
factor-1.8  the true run time, wrong by a log-normal factor of 1.8; the quantiles say so
truth       the true run time as requested; how it changes with the size is still only expected
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec
import numpy as np

from rlalloc.past_job import PastJob
from rlalloc.run_time import RunTimeEstimate
from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.past_of_workload import Estimates, estimates_by_model, estimates_from_past
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
    """Return the jobs of a workload with what policies know of their run times. Deterministic.

    ``past`` is what accounting has kept from before the first submission, in the order of submission. Raises
    PolicyError where a model is wanted, and LightGBM is missing or there is too little past to learn from.
    """
    estimates = _ESTIMATES[knowledge](site, jobs, past)
    return tuple(
        msgspec.structs.replace(job, run_time=estimate) for job, estimate in zip(jobs, estimates, strict=True)
    )


def _limits_only(_site: SimulatedSite, jobs: Sequence[SubmittedJob], _past: Sequence[PastJob]) -> Estimates:
    return [None] * len(jobs)


def _true(_site: SimulatedSite, jobs: Sequence[SubmittedJob], _past: Sequence[PastJob]) -> Estimates:
    run_s = [max(1.0, alone_s(job)) for job in jobs]
    return [RunTimeEstimate(each, each, each, "truth") for each in run_s]


def _to_a_factor(_site: SimulatedSite, jobs: Sequence[SubmittedJob], _past: Sequence[PastJob]) -> Estimates:
    errors = math.log(FACTOR) * np.random.default_rng((len(jobs), 43)).standard_normal(len(jobs))
    spread = FACTOR**_NORMAL_90
    medians_s = [max(1.0, alone_s(job)) * math.exp(error) for job, error in zip(jobs, errors.tolist(), strict=True)]
    return [RunTimeEstimate(each / spread, each, each * spread, "truth to a factor") for each in medians_s]


_ESTIMATES: Final[
    Mapping[Knowledge, Callable[[SimulatedSite, Sequence[SubmittedJob], Sequence[PastJob]], Estimates]]
] = {
    "limits": _limits_only,
    "history": estimates_from_past,
    "model": estimates_by_model,
    "factor-1.8": _to_a_factor,
    "truth": _true,
}
