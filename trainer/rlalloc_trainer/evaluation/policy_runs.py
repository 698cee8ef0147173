"""Policies side by side on the same workloads, with paired bootstrap intervals."""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from rlalloc.heuristics import Heuristic
from rlalloc.heuristics.named import policy_named
from rlalloc.job import JobView, Shares
from rlalloc.objective import DEFAULT_WEIGHTS, Weights
from rlalloc.observation import EncodedBatch, encode
from rlalloc.policies import EVERYWHERE, Routing
from rlalloc.view import ClusterView
from rlalloc_agent.actor import Actor, actor_bytes, actor_from_bytes
from rlalloc_agent.policy_routing import RoutedPolicy
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import SimulatedSite, Simulator, table_of
from rlalloc_simulator.engine.engine_records import OUT_OF_MEMORY, TIMEOUT
from rlalloc_simulator.paired_statistics import Interval, ratio_of
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import Workload


class WorkloadResult(msgspec.Struct, frozen=True):
    """One policy on one workload: means over its jobs in seconds, GPU-seconds of all runs, and jobs that were killed.

    The wait is until the first start, of jobs that started. Killed are those whose first run hit its time limit or
    ran out of memory, also where their users had asked for too little.
    """

    jct_s: float
    wait_s: float
    gpu_s: float
    killed: int


class ActorWeights(msgspec.Struct, frozen=True):
    """An actor as plain bytes, to be sent to other processes, and the objective of the site that it decides for."""

    content: bytes
    hidden: tuple[int, ...]
    inputs: tuple[str, ...]
    routing: Routing = EVERYWHERE
    objective: Weights = DEFAULT_WEIGHTS

    @classmethod
    def of(cls, actor: Actor, routing: Routing = EVERYWHERE, objective: Weights = DEFAULT_WEIGHTS) -> "ActorWeights":
        """Take an actor's parameters as they are now; the base heuristic answers where ``routing`` does not."""
        return cls(actor_bytes(actor), actor.hidden, actor.inputs.names, routing, objective)


Contender = str | ActorWeights
"""A reference policy's name (``rlalloc.heuristics.named``), or an actor that takes its mean."""


def policy_of(contender: Contender) -> Heuristic:
    """Return the policy that a contender stands for."""
    if isinstance(contender, str):
        return policy_named(contender)
    policy = RoutedPolicy(actor_from_bytes(contender.content, contender.hidden, contender.inputs), contender.routing)

    def decide(job: JobView, view: ClusterView) -> Shares:
        shares, _ = policy.decide(EncodedBatch.of([encode(job, view, contender.objective)]), sample=False)
        return Shares(*shares[0].tolist())

    return decide


def run_workload(task: tuple[Contender, Workload]) -> WorkloadResult:
    """Run one policy on one workload."""
    contender, workload = task
    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    outcomes = drive(simulator, workload.jobs, policy_of(_who_answers(contender, workload.site))).outcomes
    return WorkloadResult(
        jct_s=float(np.mean(outcomes["finished_s"] - outcomes["submit_s"])),
        wait_s=float(np.nanmean(outcomes["first_start_s"] - outcomes["submit_s"])),
        gpu_s=float(outcomes["held_gpu_s"].sum()),
        killed=int(np.isin(outcomes["first_state"], (TIMEOUT, OUT_OF_MEMORY)).sum()),
    )


def _who_answers(contender: Contender, site: SimulatedSite) -> Contender:
    """Return the heuristic itself where an actor is never asked on a site: it need not be told of each job then."""
    if isinstance(contender, str) or contender.objective != DEFAULT_WEIGHTS:
        return contender
    urgency_counts = site.interception.urgency.nice_band > 0
    return contender if contender.routing.ever(urgency_counts=urgency_counts) else contender.routing.heuristic


def evaluate(
    contenders: Mapping[str, Contender], workloads: Sequence[Workload], parallel_map: ParallelMap
) -> dict[str, list[WorkloadResult]]:
    """Run every contender on every workload; results by name, in the workloads' order."""
    tasks = [(contender, workload) for contender in contenders.values() for workload in workloads]
    results = list(parallel_map(run_workload, tasks))
    return {name: results[row * len(workloads) : (row + 1) * len(workloads)] for row, name in enumerate(contenders)}


def jct_ratio(
    results: Sequence[WorkloadResult], against: Sequence[WorkloadResult], confidence: float, seed: int = 0
) -> Interval:
    """Geometric mean over workloads of mean JCT over that of another policy on the same workload; below 1 is better.

    The interval resamples workloads (percentile bootstrap of the paired log-ratios).
    """
    log_ratios = np.array([math.log(one.jct_s / other.jct_s) for one, other in zip(results, against, strict=True)])
    return ratio_of([log_ratios], confidence, seed)
