"""A policy that looks ahead before it answers.

VM2RL's risk-seeking evaluation samples several continuations and takes the best. The maximum of noisy estimates
misleads, so here the answer of the base policy stands unless the lower bound of another answer's mean advantage over
the same futures is above 0. Rollouts that follow a base policy, and what they win over it: Bertsekas and Castañon,
1999 (Rollout Algorithms for Stochastic Scheduling Problems).
"""

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from rlalloc.allocation import share_in
from rlalloc.heuristics import Heuristic, Ordered
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.objective.consequences import SCALE_FLOOR_S
from rlalloc.reward import LARGEST_REWARD
from rlalloc.view import ClusterView, expected_run_time_s
from rlalloc_research.planning.cluster_now import present_of
from rlalloc_research.planning.futures import FutureSettings, Outlook
from rlalloc_research.planning.latency_budget import Rollouts, rollouts_within
from rlalloc_research.planning.recent_jobs import Recent
from rlalloc_simulator.engine.batched_simulators import answer_of
from rlalloc_simulator.engine.engine_records import Reals

Positive = Annotated[float, msgspec.Meta(gt=0)]
Answer = tuple[Allocation, tuple[int, float]]


class PlanningSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How far a decision is thought through.

    latency_budget   seconds for a decision: as many futures as fit, by what rollouts are taken to cost, so that the
                     same input gets the same answer on any machine ...
    futures          ... from the least, below which the baseline's answer is given, to the most
    reach            workable GPU counts above and below the baseline's that are tried
    standard_errors  an answer's mean advantage has to be above 0 by so many
    recent           jobs that are remembered, from which later ones are drawn
    """

    latency_budget: Positive = 0.5
    futures: tuple[int, int] = (8, 32)
    reach: Annotated[int, msgspec.Meta(ge=1)] = 3
    standard_errors: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    recent: Annotated[int, msgspec.Meta(ge=1)] = 50
    seed: int = 0
    future: FutureSettings = FutureSettings()


class Planned:
    """``base``, its answers tried against their neighbours in sampled futures.

    It sees what any policy sees, and remembers the jobs that it was asked about; a new one is as good as new.

    decisions   its answers so far
    planned     those that rollouts were made for
    changed     those that are other than the baseline's
    last        the rollouts for the last one; None without
    """

    def __init__(self, base: Heuristic, settings: PlanningSettings | None = None) -> None:
        self.base, self.settings = base, settings or PlanningSettings()
        self.decisions = self.planned = self.changed = 0
        self.last: Rollouts | None = None
        self._recent = Recent(self.settings.recent)

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return the base policy's shares, or those of a neighbour that is better with some certainty."""
        shares = self.base(job, view)
        chosen = self._best(self._candidates(shares, job, view), job, view)
        self.decisions += 1
        self.planned += self.last is not None
        self.changed += chosen != shares
        self._recent.add(job, self._answer(chosen, job, view)[0], view.time_s)
        return chosen

    def _best(self, candidates: Sequence[Shares], job: JobView, view: ClusterView) -> Shares:
        """Return the first candidate, the baseline's, unless the lower bound of another's advantage is above 0."""
        self.last = None
        if len(candidates) == 1:
            return candidates[0]
        present = present_of(view)
        answers = {shares: self._answer(shares, job, view) for shares in candidates}
        tried = [shares for shares in candidates if present.holds(answers[shares][0])]
        if len(tried) == 1 or tried[0] != candidates[0] or not present.holds(job.request):
            return candidates[0]
        outlook = Outlook(job, view, present, self._recent, self.settings.future)
        within = rollouts_within(
            self.settings.latency_budget, self.settings.futures, len(present.capacity), outlook.jobs, len(tried)
        )
        if within.futures == 0:
            return candidates[0]
        self.last = within
        advantages = self._advantages(outlook, within.futures, [answers[shares] for shares in tried], job, view)
        bounds = lower_bounds(advantages, self.settings.standard_errors)
        best = int(bounds.argmax())
        return tried[1 + best] if bounds[best] > 0 else candidates[0]

    def _candidates(self, shares: Shares, job: JobView, view: ClusterView) -> list[Shares]:
        """Return the base policy's answer, its neighbouring counts and, where urgency counts, full urgency."""
        counts = job.bounds.gpu_counts
        own = counts.index(self._answer(shares, job, view)[0].gpus)
        near = counts[max(0, own - self.settings.reach) : own + self.settings.reach + 1]
        candidates = [shares]
        for count in near:
            if count != counts[own]:
                resized = msgspec.structs.replace(shares, gpu=share_in(count, job.bounds.gpus))
                if isinstance(self.base, Ordered):
                    size = self._answer(resized, job, view)[0]
                    urgency = self.base.urgency_of(expected_run_time_s(job, size), size.gpus)
                    resized = msgspec.structs.replace(resized, urgency=urgency)
                candidates.append(resized)
        if self.settings.future.urgency.nice_band > 0 and shares.urgency < 1.0:
            candidates.append(msgspec.structs.replace(shares, urgency=1.0))
        return candidates

    def _answer(self, shares: Shares, job: JobView, view: ClusterView) -> Answer:
        return answer_of(self.settings.future.urgency, job, view, shares)

    def _advantages(
        self, outlook: Outlook, futures: int, answers: Sequence[Answer], job: JobView, view: ClusterView
    ) -> Reals:
        """Advantage of each other answer over the first, (futures, answers - 1).

        The unit is what a decision of this job can change, and advantages are cut as in training
        (``rlalloc_trainer.advantages.advantage_scale``): else one job more or less in front of a long one would
        outweigh all other futures.
        """
        generator = np.random.default_rng((self.settings.seed, self.decisions))
        costs_s = np.empty((futures, len(answers)))
        for row in costs_s:
            future = outlook.future(generator)
            row[:] = [future.cost_s(allocation, nice) for allocation, nice in answers]
        scale_s = SCALE_FLOOR_S + expected_run_time_s(job, job.request)
        advantages = (costs_s[:, :1] - costs_s[:, 1:]) / (scale_s * math.sqrt(1 + view.crowd))
        return np.clip(advantages, -LARGEST_REWARD, LARGEST_REWARD)


def lower_bounds(advantages: Reals, standard_errors: float) -> Reals:
    """Mean less so many standard errors, of each column of ``advantages`` (futures, answers)."""
    errors = advantages.std(axis=0, ddof=1) / math.sqrt(len(advantages))
    return np.asarray(advantages.mean(axis=0) - standard_errors * errors)
