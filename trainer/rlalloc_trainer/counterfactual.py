"""What a decision was worth, found by taking it again: common random numbers (LEARNING.md).

At a job's arrival the simulation is copied; in the copy the job gets other shares, and everything else happens as it
did before: the same jobs arrive, each with the allocation that it was given. The difference in the summed JCT of all
jobs is what these shares cost everybody, without the noise of other futures. That later decisions would have
answered to a fuller or emptier cluster is left out, which also keeps a label cheap.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.allocation import allocation_for
from rlalloc.heuristics import Heuristic
from rlalloc.job import SHARES, Allocation, JobView, Shares
from rlalloc.observation import FEATURES, Observation, encode, heuristic_shares
from rlalloc.view import ClusterView, expected_run_time_s, slowdown
from rlalloc_trainer.replay import Transitions, single_decisions
from rlalloc_trainer.simulator import Cluster, SimulatedJob, Simulation, by_policy, fixed

LARGEST_REWARD: Final = 5.0
_SCALE_FLOOR_S: Final = 60.0  # as in rlalloc.reward


class LabelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``decisions`` of a stream are taken again, each with ``alternatives`` shares.

    ``horizon`` more jobs arrive after one, then the cluster drains: too few flatter large sizes, and more add noise
    (a deviation of 2.0 with 100 jobs, 1.75 with 40, 1.2 with 5).

    The alternatives' GPU shares are drawn uniformly from [0, 1], and so is the ``explored`` part of their CPU and
    memory shares; the rest is the heuristic's, and so is the urgency, which this simulator knows nothing of.
    """

    decisions: int = 25
    alternatives: int = 3
    horizon: int = 30
    explored_cpu: float = 0.4
    explored_mem: float = 0.15

    @property
    def rows(self) -> int:
        """The most transitions that a stream gives."""
        return self.decisions * self.alternatives


class Labels(msgspec.Struct, frozen=True):
    """Decisions taken again, and what all decisions of the stream were worth as they were taken.

    The reward of ``retaken`` is the gain over the heuristic's shares. ``observation`` (jobs, features) and ``reward``
    (jobs,), by rlalloc.reward, are of the stream as it went.
    """

    retaken: Transitions
    observation: NDArray[np.float32]
    reward: NDArray[np.float32]


def label(
    cluster: Cluster,
    jobs: Sequence[SimulatedJob],
    policy: Heuristic,
    settings: LabelSettings,
    generator: np.random.Generator,
) -> Labels:
    """Run a stream under ``policy``, and take some of its decisions again."""
    chosen = np.sort(generator.choice(len(jobs), size=min(settings.decisions, len(jobs)), replace=False)).tolist()
    observations: list[Observation] = []
    base = Simulation(cluster, jobs, by_policy(_recording(policy, observations)))
    before: dict[int, Simulation] = {}
    for number in chosen:
        base.run_until(number)
        before[number] = base.clone(fixed(()))
    base.run_until()
    rows: list[tuple[Observation, Shares, float]] = []
    for number in chosen:
        retake = _Retake(before[number], number, base.allocations, number + 1 + settings.horizon)
        reference_s = retake.total_jct_s(heuristic_shares(observations[number]))
        scale_s = retake.scale_s()
        for shares in _alternatives(observations[number], settings, generator):
            gain = (reference_s - retake.total_jct_s(shares)) / scale_s
            rows.append((observations[number], shares, float(np.clip(gain, -LARGEST_REWARD, LARGEST_REWARD))))
    rewards = np.array([record.reward() for record in base.records()], dtype=np.float32)
    return Labels(_transitions(rows), np.array(observations, dtype=np.float32), rewards)


class _Retake:
    """One decision of a stream, to be taken again with other shares."""

    def __init__(self, before: Simulation, number: int, allocations: Sequence[Allocation], arrivals: int) -> None:
        self._before = before
        self._arrivals = arrivals
        self._number = number
        self._allocations = allocations
        self._known: dict[Allocation, float] = {}

    def scale_s(self) -> float:
        """What gains are measured in: a longer job and a longer queue have more to gain (LEARNING.md)."""
        request = self._before.jobs[self._number].request
        queued = len(self._before.queue)
        return (_SCALE_FLOOR_S + expected_run_time_s(request, request)) * math.sqrt(1 + queued)

    def total_jct_s(self, shares: Shares) -> float:
        """Summed JCT of the stream's jobs if this one gets ``shares`` and all others what they got."""
        job = self._before.jobs[self._number]
        allocation = allocation_for(
            shares, job.request, job.bounds, self._before.cluster.shape, lambda size: slowdown(job.request, size)
        )
        if allocation not in self._known:
            allocations = [*self._allocations[: self._number], allocation, *self._allocations[self._number + 1 :]]
            simulation = self._before.clone(fixed(allocations), self._arrivals)
            simulation.run_until()
            self._known[allocation] = simulation.total_jct_s()
        return self._known[allocation]


def _recording(policy: Heuristic, observations: list[Observation]) -> Heuristic:
    def decide(job: JobView, view: ClusterView) -> Shares:
        observations.append(encode(job, view))
        return policy(job, view)

    return decide


def _alternatives(observation: Observation, settings: LabelSettings, generator: np.random.Generator) -> list[Shares]:
    heuristic = heuristic_shares(observation)
    return [
        Shares(
            gpu=float(generator.random()),
            cpu=float(generator.random()) if generator.random() < settings.explored_cpu else heuristic.cpu,
            mem=float(generator.random()) if generator.random() < settings.explored_mem else heuristic.mem,
            urgency=heuristic.urgency,
        )
        for _ in range(settings.alternatives)
    ]


def _transitions(rows: Sequence[tuple[Observation, Shares, float]]) -> Transitions:
    observations: NDArray[np.float32] = np.array([row[0] for row in rows], dtype=np.float32)
    return single_decisions(
        observations.reshape(-1, len(FEATURES)),
        np.array([msgspec.structs.astuple(row[1]) for row in rows], dtype=np.float32).reshape(-1, SHARES),
        np.array([row[2] for row in rows], dtype=np.float32),
    )
