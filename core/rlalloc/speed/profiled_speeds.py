"""What profiles say of a job: of one that trains the profiled model, and of others on the same type of GPU.

A job that a profile names (``applies_to.jobs``) is taken to train the profiled model with the profiled global batch:
the points narrow its belief like measurements of its own, and say how many CPUs a GPU needs. Its slowdown is never
expected to be less than the one that was measured (``rlalloc.speed.measured_scaling``).

Another job on GPUs of the profile's type runs on the same kind of machine, but trains another model. ``SHARED`` is
the part of the variance between families that families on one kind of machine have in common. For Gaussians, a
profile that moves the profiled model from mean m to m', with covariance C', moves such a job by SHARED (m' - m), and
leaves it the covariance (1 - SHARED²) C + SHARED² C'. The CPUs that a GPU needs are the model's own. What was
measured on CPUs says nothing of other jobs.
"""

import fnmatch
import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from rlalloc.speed.measured_scaling import MeasuredScaling
from rlalloc.speed.profile_file import Measured, Profile, Size
from rlalloc.speed.speed_belief import Measurements, SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.step_time import Layouts

SHARED: Final = 0.5
"""Of 0, 0.25, 0.5, 0.75 and 0.9 the one whose 95% quantiles hold best where published tables measured other models on
the same GPUs; its mean error is within 0.2 points of the smallest. ``make research RESEARCH_ARGS="shared-speeds
--data DIR"`` prints them all."""
LEAST_NOISE: Final = 0.1
"""Of a point's logarithm: the job is not quite the profiled model, nor the node of today that of then."""


_Point = tuple[Size, Measured]


def named_for(profiles: Sequence[Profile], user: str, job_name: str) -> Profile | None:
    """The newest profile that names this job."""
    return _newest(
        profile
        for profile in profiles
        if _matches(job_name, profile.applies_to.jobs) and _matches(user, profile.applies_to.users)
    )


def on_gpus_like(profiles: Sequence[Profile], gpu_types: Sequence[str]) -> Profile | None:
    """The newest profile that was measured on GPUs of a type that all of ``gpu_types`` are of."""
    return _newest(
        profile
        for profile in profiles
        if profile.conditions.device == "cuda"
        and gpu_types
        and all(_matches(gpu_type, profile.applies_to.gpu_types) for gpu_type in gpu_types)
    )


def belief_of_named(profile: Profile, requested_gpus: int) -> SpeedBelief:
    """What is believed of a job that trains the profiled model and asked for ``requested_gpus``."""
    points = _measured(profile)
    layouts = [(size.gpus, size.nodes, size.mem_mib_per_gpu) for size, _ in points]
    cpus = PRIOR_BELIEF.cpus.updated(
        [float(size.cpus_per_gpu) for size, _ in points],
        [math.log(measured.tokens_per_s) for _, measured in points],
        [layouts.index(layout) for layout in layouts],
    )
    after = _after(points, requested_gpus)
    return SpeedBelief(after.mean, after.covariance, cpus, _scaling(points))


def belief_of_others(profile: Profile) -> SpeedBelief:
    """What is believed of other jobs on the same type of GPU; the prior where the profile has one size only."""
    points = _measured(profile)
    most_gpus = max((size.gpus for size, _ in points), default=1)
    after = _after(points, most_gpus)
    return PRIOR_BELIEF if after is PRIOR_BELIEF else shared_belief(PRIOR_BELIEF, after)


def shared_belief(prior: SpeedBelief, after: SpeedBelief, shared: float = SHARED) -> SpeedBelief:
    """Return what ``after``, the belief of one family, says of others on the same kind of machine."""
    mean = prior.mean + shared * (after.mean - prior.mean)
    return SpeedBelief(mean, (1.0 - shared**2) * prior.covariance + shared**2 * after.covariance, prior.cpus)


def _after(points: Sequence[_Point], requested_gpus: int) -> SpeedBelief:
    """The belief after the fastest point of each layout: more CPUs and memory would not improve on it."""
    best: dict[tuple[int, int], Measured] = {}
    for size, measured in points:
        key = size.gpus, size.nodes
        if key not in best or measured.tokens_per_s > best[key].tokens_per_s:
            best[key] = measured
    if len(best) < 2:
        return PRIOR_BELIEF
    gpus, nodes = zip(*best, strict=True)
    return PRIOR_BELIEF.updated(
        Measurements(
            Layouts.at_fixed_global_batch(gpus, nodes, requested_gpus),
            np.log([measured.tokens_per_s for measured in best.values()]),
            np.zeros(len(best), dtype=np.int64),
            np.maximum(LEAST_NOISE, [measured.noise for measured in best.values()]),
        )
    )


def _scaling(points: Sequence[_Point]) -> tuple[MeasuredScaling, ...]:
    """The fastest point of each number of GPUs; a slowdown has the noise of two."""
    best: dict[int, float] = {}
    for size, measured in points:
        best[size.gpus] = max(best.get(size.gpus, -math.inf), math.log(measured.tokens_per_s))
    found = MeasuredScaling.of(best, LEAST_NOISE * math.sqrt(2.0))
    return () if found is None else (found,)


def _measured(profile: Profile) -> list[_Point]:
    return [(point.size, point.measured) for point in profile.points if point.measured is not None]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _newest(profiles: Iterable[Profile]) -> Profile | None:
    return max(profiles, key=lambda profile: profile.created_s, default=None)
