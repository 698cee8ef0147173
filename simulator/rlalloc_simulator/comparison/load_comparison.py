"""Policies by load on generated workloads: every policy runs the same workloads, and ratios are paired."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from rlalloc.progress import ProgressCallback
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.comparison.compared_policy import REFERENCE, HeuristicPolicy
from rlalloc_simulator.comparison.paired_statistics import Interval, paired_ratio
from rlalloc_simulator.comparison.runner import Run, RunSettings, run_all
from rlalloc_simulator.jct_lower_bound import mean_jct_bound_s
from rlalloc_simulator.knowledge import Knowledge
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, Workload, site_of, submitted_from, with_urgency
from rlalloc_simulator.workloads.chosen_limits import Limits, with_limits
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_job import NodeGroup
from rlalloc_simulator.workloads.workload_model import load_model

LOWER_BOUND: Final = "lower bound"


class ComparisonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For each of ``loads``, so many ``workloads`` of ``hours`` from a model, on ``nodes`` alike nodes.

    ``urgency`` is what the site lets policies do to the order of its queue, ``knowledge`` what they know of run
    times, ``limits`` how users choose time limits. ``late_after_s`` as in ``RunSettings``.
    """

    model: str = "philly"
    loads: tuple[float, ...] = (0.6, 1.0, 1.5)
    workloads: int = 10
    hours: float = 24.0
    nodes: int = 8
    gpus_per_node: int = 8
    cpus_per_node: int = 96
    mem_mib_per_node: int = 768_000
    seed: int = 0
    urgency: UrgencyRules = SIMULATED_URGENCY
    knowledge: Knowledge = "limits"
    limits: Limits = "recorded"
    late_after_s: float | None = None


class PolicyAtLoad(msgspec.Struct, frozen=True):
    """One policy at one load: mean JCT [s], and over that of REFERENCE on the same workloads (geometric mean)."""

    jct_s: float
    ratio: Interval


class LoadWorkload(msgspec.Struct, frozen=True):
    """A generated workload of one load and seed, as a source for comparisons."""

    settings: ComparisonSettings
    load: float
    seed: int

    @property
    def digest(self) -> str:
        """All numbers that it follows from."""
        return f"generated workload {msgspec.json.encode(self).decode()}"

    @property
    def origin(self) -> str:
        """Of its own."""
        return self.digest

    def workload(self) -> Workload:
        """Return the workload."""
        of = self.settings
        nodes = NodeGroup("node", of.nodes, of.gpus_per_node, of.cpus_per_node, of.mem_mib_per_node)
        made = GeneratorSettings(cluster=nodes, hours=of.hours, load=self.load, seed=self.seed)
        jobs = list(with_limits(generate(load_model(of.model), made), of.limits, self.seed))
        site = with_urgency(site_of(made.description, jobs), of.urgency)
        return Workload(site, tuple(submitted_from(jobs, site)))


def compare(
    policies: Sequence[str], settings: ComparisonSettings, parallel_map: ParallelMap, report: ProgressCallback
) -> dict[str, list[PolicyAtLoad]]:
    """Return each policy's figures, by name and in the order of loads; REFERENCE first, the lower bound last.

    Deterministic for a seed. Raises PolicyError for a name that is not known, WorkloadError for a model.
    """
    load_model(settings.model)
    rules = RunSettings(knowledge=settings.knowledge, late_after_s=settings.late_after_s)
    runs = {name: Run(HeuristicPolicy(name), rules) for name in (REFERENCE, *policies)}
    for run in runs.values():
        run.policy.policy(settings.urgency)
    seeds = range(settings.seed, settings.seed + settings.workloads)
    sources = [LoadWorkload(settings, load, seed) for load in settings.loads for seed in seeds]
    results = run_all(runs, sources, parallel_map, report)
    means_s = {name: [result.jct_s for result in found] for name, found in results.items()}
    means_s[LOWER_BOUND] = list(parallel_map(lower_bound_s, sources))
    by_load = {name: np.array(means).reshape(len(settings.loads), -1) for name, means in means_s.items()}
    return {
        name: [
            PolicyAtLoad(float(row.mean()), paired_ratio(row, reference))
            for row, reference in zip(rows, by_load[REFERENCE], strict=True)
        ]
        for name, rows in by_load.items()
    }


def lower_bound_s(source: LoadWorkload) -> float:
    """Return what no policy's mean JCT [s] on this workload comes below."""
    return mean_jct_bound_s(*source.workload())
