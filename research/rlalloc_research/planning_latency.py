"""How long a planned decision takes by the size of the cluster, and the estimate that limits its rollouts.

Runs workloads of the Philly model at a load of 1.5 under price-EF. Some of its decisions, evenly spread, are also
planned and timed on the process's clock. ``counted`` is the estimate of ``planning.latency_budget``, which turns the
latency budget into a number of futures: the longest decision must not exceed the budget.
"""

import time
from typing import Final

import numpy as np

from rlalloc.heuristics import price_ef
from rlalloc.job import JobView, Shares
from rlalloc.view import ClusterView
from rlalloc_research.planning import Planned, PlanningSettings
from rlalloc_research.planning.latency_budget import Rollouts
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.site_from_workload import site_of, submitted_from
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_job import NodeGroup
from rlalloc_simulator.workloads.workload_model import load_model

NODES: Final = (4, 16, 64, 256)
JOBS: Final = 2000
LOAD: Final = 1.5


class Timed:
    """Price-EF; every ``every``-th decision is planned too, and how long that took is kept."""

    def __init__(self, settings: PlanningSettings, every: int) -> None:
        self._planned, self._every, self._asked = Planned(price_ef, settings), every, 0
        self.took_s: list[float] = []
        self.rollouts: list[Rollouts] = []

    def __call__(self, job: JobView, view: ClusterView) -> Shares:
        """Return price-EF's shares."""
        self._asked += 1
        if self._asked % self._every == 0:
            begin_s = time.process_time()
            self._planned(job, view)
            took_s = time.process_time() - begin_s
            if self._planned.last is not None:
                self.took_s.append(took_s)
                self.rollouts.append(self._planned.last)
        return price_ef(job, view)


def print_latency(decisions: int, budget: float) -> None:
    """Print a row for each size of the cluster."""
    settings = PlanningSettings(latency_budget=budget)
    timed(4, settings, 5)  # compiled before anything is timed
    print(f"budget {budget:g} s; ms a decision")
    columns = ("decisions", "jobs", "futures", "counted", "p50", "p95", "longest")
    print(f"{'nodes':>6} " + " ".join(f"{name:>9}" for name in columns))
    for nodes in NODES:
        seen = timed(nodes, settings, decisions)
        took_ms = 1000 * np.array(seen.took_s)
        jobs, futures, counted_s = (
            float(np.mean([getattr(each, name) for each in seen.rollouts]))
            for name in ("jobs", "futures", "counted_s")
        )
        median, late = np.percentile(took_ms, (50, 95))
        figures = (len(took_ms), jobs, futures, 1000 * counted_s, median, late, took_ms.max())
        print(f"{nodes:>6} " + " ".join(f"{figure:>9.0f}" for figure in figures), flush=True)


def timed(nodes: int, settings: PlanningSettings, decisions: int) -> Timed:
    """Run a workload on so many nodes of eight GPUs."""
    group = NodeGroup("node", nodes, 8, 96, 768_000)
    made = GeneratorSettings(cluster=group, hours=24.0, load=LOAD, seed=1)
    jobs = list(generate(load_model("philly"), made))[:JOBS]
    site = site_of(made.description, jobs)
    submitted = submitted_from(jobs, site)
    policy = Timed(settings, max(1, len(submitted) // decisions))
    drive(Simulator(site, table_of(submitted, site)), submitted, policy)
    return policy
