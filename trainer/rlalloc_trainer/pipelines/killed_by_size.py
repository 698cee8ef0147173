"""What a job needed that ended by rlalloc's doing: just more than it got, and no more than its user asked for.

Nobody knows what it needed. This is the least that explains its end, so that a policy which gives it as little again
kills it in the calibrated simulator, too, and one that leaves it as requested does not.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec

from rlalloc.allocation import longer_limit_s
from rlalloc.job import Allocation
from rlalloc.run_times.job_facts import family_name
from rlalloc.speed import SpeedCurve
from rlalloc.speed.longer_limits import slowdown_to_allow
from rlalloc.store import Decision, Experience
from rlalloc_trainer.pipelines.site_experience import run_time_s

_WITHIN: Final = 0.98
"""Of its requested limit: so long a job is taken to run that timed out in a smaller size."""
_BEYOND: Final = 1.02
"""Over the time limit that it had there."""
_UNKNOWN: Final = 0.44
"""Of its time limit a job is taken to run of whose kind none has completed."""


class TrueNeed(NamedTuple):
    """What the simulator hides from policies: work [s on one GPU], how it scales, memory [MiB a GPU] and GPUs."""

    work_s: float
    curve: SpeedCurve
    mem_mib_per_gpu: float = 0.0
    gpus: int = 0


class RunTimesAsRequested:
    """Median run times [s] at the requested size, of the jobs that completed: by user and name, then of all."""

    def __init__(self, experiences: Sequence[Experience], curve_of: Callable[[Decision], SpeedCurve]) -> None:
        by_family: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        for one in experiences:
            if one.outcome.state == "COMPLETED" and one.outcome.gpus > 0:
                decision, curve = one.decision, curve_of(one.decision)
                speed = curve.at(one.outcome.gpus, one.outcome.cpus / one.outcome.gpus)
                by_family[_family(decision)].append(run_time_s(one) * speed / curve.at_size(decision.request))
        self._of_family = {family: median(times_s) for family, times_s in by_family.items()}
        self._of_all = median(self._of_family.values()) if self._of_family else None

    def of(self, decision: Decision) -> float:
        """The run time to expect, always within the requested limit."""
        limit_s = decision.request.time_limit_s
        expected_s = self._of_family.get(_family(decision), self._of_all)
        return max(1.0, min(_WITHIN * limit_s, _UNKNOWN * limit_s if expected_s is None else expected_s))


def need_of_killed(experience: Experience, curve: SpeedCurve, expected_s: float) -> TrueNeed | None:
    """What a job needed that was killed in a size of ours; None where that size is not known or is not smaller.

    ``curve`` is how jobs of its class scale, ``expected_s`` the run time [s] as requested of one that was killed
    before it could show its own.
    """
    got, asked = experience.decision.allocation, experience.decision.request
    if got is None:
        return None
    if experience.outcome.our_doing == "timeout" and (got.gpus < asked.gpus or got.cpus_per_gpu < asked.cpus_per_gpu):
        slower = _too_slow_as_got(experience, got, curve)
        return TrueNeed(_WITHIN * asked.time_limit_s * slower.at_size(asked), slower)
    work_s = expected_s * curve.at_size(asked)
    less_a_gpu = got.mem_mib_per_gpu < asked.mem_mib_per_gpu
    if less_a_gpu and experience.outcome.our_doing != "gpu-out-of-memory":
        return TrueNeed(work_s, curve, mem_mib_per_gpu=min(asked.mem_mib_per_gpu, got.mem_mib_per_gpu + 1.0))
    if got.gpus < asked.gpus:
        return TrueNeed(work_s, curve, gpus=got.gpus + 1)
    return None


def _too_slow_as_got(experience: Experience, got: Allocation, curve: SpeedCurve) -> SpeedCurve:
    """A curve by which the job takes longer than its limit as it was, and as it would be today, in the size it got.

    Above the requested GPUs it stays that of the class: a kill in a smaller size promises nothing for a larger one.
    """
    asked = experience.decision.request
    if got.gpus >= asked.gpus:
        return msgspec.structs.replace(curve, cpus_per_gpu_needed=max(1.0, asked.cpus_per_gpu))
    limit_s = max(run_time_s(experience), longer_limit_s(asked.time_limit_s, slowdown_to_allow(asked, got)))
    slowdown = _BEYOND * limit_s / (_WITHIN * asked.time_limit_s)
    power = math.log(slowdown) / math.log(asked.gpus / got.gpus)
    counts = sorted({1, got.gpus, asked.gpus})
    larger = [count for count in curve.gpus if count > asked.gpus]
    speeds = [count**power for count in counts]
    per_class = speeds[-1] / _speed(curve, asked.gpus)
    return SpeedCurve(
        (*counts, *larger),
        (*speeds, *(per_class * _speed(curve, count) for count in larger)),
        curve.cpus_per_gpu_needed,
    )


def _speed(curve: SpeedCurve, gpus: int) -> float:
    return curve.at(gpus, curve.cpus_per_gpu_needed)


def _family(decision: Decision) -> tuple[str, str]:
    return decision.user, family_name(decision.job_name)
