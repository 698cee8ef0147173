"""What policies know of run times in the simulator.

limits    time limits only
history   estimates of rlalloc's predictor, each made at a job's submission (``past_of_workload``)
truth     the true run time as requested; how it changes with the size is still only expected
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

import msgspec

from rlalloc.run_time import RunTimeEstimate
from rlalloc_simulator.engine import SimulatedSite, SubmittedJob
from rlalloc_simulator.past_of_workload import Estimates, estimates_from_past
from rlalloc_simulator.report.recording import alone_s
from rlalloc_simulator.workloads.workload_errors import WorkloadError

Knowledge = Literal["limits", "history", "truth"]


def knowledge_named(text: str) -> Knowledge:
    """Return the word of an option. Raises WorkloadError."""
    for level in _ESTIMATES:
        if text == level:
            return level
    raise WorkloadError(f"--knowledge {text}: write one of {', '.join(get_args(Knowledge))}")


def with_knowledge(
    site: SimulatedSite, jobs: Sequence[SubmittedJob], knowledge: Knowledge
) -> tuple[SubmittedJob, ...]:
    """Return the jobs of a workload with what policies know of their run times. Deterministic."""
    estimates = _ESTIMATES[knowledge](site, jobs)
    return tuple(
        msgspec.structs.replace(job, run_time=estimate) for job, estimate in zip(jobs, estimates, strict=True)
    )


def _limits_only(_site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> Estimates:
    return [None] * len(jobs)


def _true(_site: SimulatedSite, jobs: Sequence[SubmittedJob]) -> Estimates:
    run_s = [max(1.0, alone_s(job)) for job in jobs]
    return [RunTimeEstimate(each, each, each, "truth") for each in run_s]


_ESTIMATES: Final[Mapping[Knowledge, Callable[[SimulatedSite, Sequence[SubmittedJob]], Estimates]]] = {
    "limits": _limits_only,
    "history": estimates_from_past,
    "truth": _true,
}
