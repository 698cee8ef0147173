"""Policies by load on generated workloads: every policy runs the same workloads, and ratios are paired."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from rlalloc.heuristics.named import policy_named
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import SimulatedSite, Simulator, SubmittedJob, table_of
from rlalloc_simulator.jct_lower_bound import mean_jct_bound_s
from rlalloc_simulator.paired_statistics import Interval, ratio_of
from rlalloc_simulator.parallel import ParallelMap
from rlalloc_simulator.progress import ProgressCallback
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, site_of, submitted_from, with_urgency
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_job import NodeGroup
from rlalloc_simulator.workloads.workload_model import load_model

BASELINE: Final = "as-requested"
LOWER_BOUND: Final = "lower bound"
CONFIDENCE: Final = 0.9


class ComparisonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For each of ``loads``, so many ``workloads`` of ``hours`` from a model, on ``nodes`` alike nodes.

    ``urgency`` is what the site lets policies do to the order of its queue.
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


class Compared(msgspec.Struct, frozen=True):
    """One policy at one load: mean JCT [s], and over that as requested on the same workloads (geometric mean)."""

    jct_s: float
    ratio: Interval


class _Task(msgspec.Struct, frozen=True):
    policy: str
    settings: ComparisonSettings
    load: float
    seed: int


def compare(
    policies: Sequence[str], settings: ComparisonSettings, parallel_map: ParallelMap, report: ProgressCallback
) -> dict[str, list[Compared]]:
    """Return how each policy fares, by name and in the order of loads; the baseline first, the lower bound last.

    Deterministic for a seed. Raises PolicyError for a name that is not known, WorkloadError for a model.
    """
    load_model(settings.model)
    names = list(dict.fromkeys((BASELINE, *policies)))
    for name in names:
        policy_named(name)
    names.append(LOWER_BOUND)
    seeds = range(settings.seed, settings.seed + settings.workloads)
    # Workloads outside, policies inside: each workload is generated once.
    tasks = [
        _Task(policy=name, settings=settings, load=load, seed=seed)
        for load in settings.loads
        for seed in seeds
        for name in names
    ]
    means = []
    for mean_s in parallel_map(mean_jct_s, tasks):
        means.append(mean_s)
        report(f"load {tasks[len(means) - 1].load:g}", len(means) / len(tasks))
    table = np.array(means).reshape(len(settings.loads), settings.workloads, len(names))
    logarithms = np.log(table) - np.log(table[:, :, :1])
    return {
        name: [
            Compared(
                float(table[row, :, column].mean()),
                ratio_of([logarithms[row, :, column]], CONFIDENCE),
            )
            for row in range(len(settings.loads))
        ]
        for column, name in enumerate(names)
    }


def mean_jct_s(task: _Task) -> float:
    """Mean JCT of one workload under one policy [s], or what no policy comes below."""
    site, jobs = _workload(task.settings, task.load, task.seed)
    if task.policy == LOWER_BOUND:
        return mean_jct_bound_s(site, jobs)
    outcomes = drive(Simulator(site, table_of(jobs, site)), jobs, policy_named(task.policy)).outcomes
    return float((outcomes["finished_s"] - outcomes["submit_s"]).mean())


@lru_cache(maxsize=2)
def _workload(settings: ComparisonSettings, load: float, seed: int) -> tuple[SimulatedSite, list[SubmittedJob]]:
    nodes = NodeGroup(
        "node", settings.nodes, settings.gpus_per_node, settings.cpus_per_node, settings.mem_mib_per_node
    )
    made = GeneratorSettings(cluster=nodes, hours=settings.hours, load=load, seed=seed)
    jobs = list(generate(load_model(settings.model), made))
    site = with_urgency(site_of(made.description, jobs), settings.urgency)
    return site, submitted_from(jobs, site)
