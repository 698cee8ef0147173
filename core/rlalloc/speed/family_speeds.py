"""How each family of jobs scales: what its own runs in different sizes say, on top of the prior.

A family is a user's jobs of one name (digits apart) and one requested size: their work is taken to be alike. Only
runs that completed count. Their times differ for many reasons, so a family needs several of them to move far from
the prior. A family that had a run killed at its time limit in a smaller size goes back to the prior.
"""

import re
from collections import OrderedDict, deque
from typing import Final, NamedTuple

import numpy as np

from rlalloc.job import Allocation
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


class FamilySpeeds:
    """What is believed of each family; bounded in families and runs."""

    def __init__(self) -> None:
        self._runs: OrderedDict[_Key, deque[SizedRun]] = OrderedDict()
        self._beliefs: dict[_Key, SpeedBelief] = {}

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
        self._beliefs.pop(key, None)
        if len(self._runs) > FAMILIES:
            oldest, _ = self._runs.popitem(last=False)
            self._beliefs.pop(oldest, None)

    def belief(self, user: str, job_name: str, request: Allocation) -> SpeedBelief:
        """What is believed of this family; the prior where its runs say nothing."""
        key = _key(user, job_name, request)
        if key not in self._runs:
            return PRIOR_BELIEF
        if key not in self._beliefs:
            self._beliefs[key] = _belief_after(list(self._runs[key]), request)
        return self._beliefs[key]


def _key(user: str, job_name: str, request: Allocation) -> _Key:
    return user, re.sub(r"\d+", "", job_name), request.gpus, request.nodes


def _belief_after(runs: list[SizedRun], request: Allocation) -> SpeedBelief:
    if any(run.timed_out and run.gpus < request.gpus for run in runs):
        return PRIOR_BELIEF
    by_size: dict[tuple[int, int], list[float]] = {}
    for run in runs:
        if not run.timed_out:
            by_size.setdefault((run.gpus, run.nodes), []).append(run.run_s)
    if len({gpus for gpus, _ in by_size}) < 2:
        return PRIOR_BELIEF
    gpus = [count for count, _ in by_size]
    speeds = np.array([-np.median(np.log(times)) for times in by_size.values()])
    noise = np.array([max(_LEAST_NOISE, RUN_NOISE / len(times) ** 0.5) for times in by_size.values()])
    layouts = Layouts.at_fixed_global_batch(gpus, [min(pair) for pair in by_size], request.gpus)
    return PRIOR_BELIEF.updated(Measurements(layouts, speeds, np.zeros(len(gpus), dtype=np.int64), noise))
