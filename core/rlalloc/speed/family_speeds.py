"""How each family of jobs scales: what its own runs in different sizes say, on top of profiles and the prior.

A family is a user's jobs of one name (digits apart) and one requested size: their work is taken to be alike. Only
runs that completed count. Their times differ for many reasons, so a family needs several of them to move far from
what was believed before: a profile (``rlalloc.speed.profiled_speeds``) where one applies, else the prior. A family
that had a run killed at its time limit in a smaller size goes back to the prior.
"""

import functools
import math
import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from rlalloc.job import Allocation
from rlalloc.speed.measured_scaling import MeasuredScaling
from rlalloc.speed.profile_file import Profile
from rlalloc.speed.profiled_speeds import belief_of_named, belief_of_others, named_for, on_gpus_like
from rlalloc.speed.speed_belief import Measurements, SpeedBelief
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.speed.step_time import Layouts

RUN_NOISE: Final = 0.5
"""Standard deviation of the logarithm of the run times of like jobs in one size; an assumption, on the wide side."""
_LEAST_NOISE: Final = 0.15
"""Of the median of many runs: jobs of one name differ a little in what they do."""
FAMILIES: Final = 10_000
RUNS: Final = 64
"""Families that are remembered, the latest seen, and of each the latest runs."""


class SizedRun(NamedTuple):
    """A run that ended: of which job (id and submit second) and family, in which size, how long [s], how it ended."""

    job: tuple[int, int]
    user: str
    job_name: str
    request: Allocation
    gpus: int
    nodes: int
    run_s: float
    timed_out: bool = False


_Key = tuple[str, str, int, int]


class FamilySpeed(NamedTuple):
    """What is believed of a family's speed, and in a few words what it rests on."""

    belief: SpeedBelief
    source: str


_UNKNOWN: Final = FamilySpeed(PRIOR_BELIEF, "published measurements of other models")
_KILLED: Final = FamilySpeed(PRIOR_BELIEF, "published measurements only: a smaller run reached its time limit")


class FamilySpeeds:
    """What is believed of each family; bounded in families and runs."""

    def __init__(self, profiles: Sequence[Profile] = ()) -> None:
        self._runs: OrderedDict[_Key, deque[SizedRun]] = OrderedDict()
        self._known: OrderedDict[tuple[_Key, str, tuple[str, ...]], FamilySpeed] = OrderedDict()
        self._by_profile: dict[tuple[int, int], FamilySpeed] = {}
        self._profiles: tuple[Profile, ...] = tuple(profiles)

    @property
    def profiles(self) -> Sequence[Profile]:
        """Those in use."""
        return self._profiles

    def use(self, profiles: Sequence[Profile]) -> None:
        """Take up these profiles in place of those of before."""
        self._profiles = tuple(profiles)
        self._known.clear()
        self._by_profile.clear()

    def add(self, run: SizedRun) -> None:
        """Remember a run, once; one without GPUs or without a duration says nothing."""
        if run.gpus < 1 or run.nodes < 1 or run.run_s <= 0 or run.request.gpus < 1:
            return
        key = _key(run.user, run.job_name, run.request)
        runs = self._runs.setdefault(key, deque(maxlen=RUNS))
        self._runs.move_to_end(key)
        if any(known.job == run.job for known in runs):
            return
        runs.append(run)
        self._forget(key)
        if len(self._runs) > FAMILIES:
            self._forget(self._runs.popitem(last=False)[0])

    def of(self, user: str, job_name: str, request: Allocation, gpu_types: Sequence[str] = ()) -> FamilySpeed:
        """What is believed of a job on GPUs of these types; the prior where neither runs nor profiles say more."""
        key = _key(user, job_name, request), job_name, tuple(gpu_types)
        if key not in self._known:
            self._known[key] = self._find(*key, request)
            if len(self._known) > FAMILIES:
                self._known.popitem(last=False)
        return self._known[key]

    def _forget(self, key: _Key) -> None:
        for known in [known for known in self._known if known[0] == key]:
            del self._known[known]

    def _find(self, key: _Key, job_name: str, gpu_types: Sequence[str], request: Allocation) -> FamilySpeed:
        runs = self._runs.get(key, ())
        if any(run.timed_out and run.gpus < request.gpus for run in runs):
            return _KILLED
        before = self._profiled(key[0], job_name, gpu_types, request)
        measured = _measurements(runs, request)
        if measured is None:
            return before
        completed = sum(not run.timed_out for run in runs)
        source = f"{completed} of its own runs, on top of {before.source}"
        return FamilySpeed(_with_own_scaling(before.belief.updated(measured), measured), source)

    def _profiled(self, user: str, job_name: str, gpu_types: Sequence[str], request: Allocation) -> FamilySpeed:
        """What profiles say; each says the same of all jobs of one size."""
        named = named_for(self._profiles, user, job_name)
        profile = named or on_gpus_like(self._profiles, gpu_types)
        if profile is None:
            return _UNKNOWN
        key = self._profiles.index(profile), request.gpus if named else 0
        if key not in self._by_profile:
            if named:
                found = FamilySpeed(belief_of_named(profile, request.gpus), f"profile {profile.name}, which names it")
            else:
                found = FamilySpeed(belief_of_others(profile), f"profile {profile.name}, another model on such GPUs")
            self._by_profile[key] = found
        return self._by_profile[key]


def _key(user: str, job_name: str, request: Allocation) -> _Key:
    return user, _without_digits(job_name), request.gpus, request.nodes


@functools.lru_cache(maxsize=8192)
def _without_digits(job_name: str) -> str:
    return re.sub(r"\d+", "", job_name)


def _with_own_scaling(belief: SpeedBelief, measured: Measurements) -> SpeedBelief:
    """Where a profile names the family, its own runs have a say even if they contradict the profile."""
    own = MeasuredScaling.of(
        dict(zip(measured.layouts.gpus.astype(int).tolist(), measured.log_speed.tolist(), strict=True)),
        math.sqrt(2.0) * float(measured.noise.max()),
    )
    return replace(belief, scaling=(*belief.scaling, own)) if belief.scaling and own is not None else belief


def _measurements(runs: Iterable[SizedRun], request: Allocation) -> Measurements | None:
    """The median times of the runs by size; None where there are fewer than two sizes."""
    by_size: dict[tuple[int, int], list[float]] = {}
    for run in runs:
        if not run.timed_out:
            by_size.setdefault((run.gpus, run.nodes), []).append(run.run_s)
    if len({gpus for gpus, _ in by_size}) < 2:
        return None
    gpus = [count for count, _ in by_size]
    speeds = np.array([-np.median(np.log(times)) for times in by_size.values()])
    noise = np.array([max(_LEAST_NOISE, RUN_NOISE / len(times) ** 0.5) for times in by_size.values()])
    layouts = Layouts.at_fixed_global_batch(gpus, [min(pair) for pair in by_size], request.gpus)
    return Measurements(layouts, speeds, np.zeros(len(gpus), dtype=np.int64), noise)
