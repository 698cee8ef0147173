"""Costs of simulated decisions as a site would record them: each job's own, and an estimate of the others'."""

from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rlalloc.heuristics import DEFAULT_PRICE, Heuristic
from rlalloc.job import JobView, Shares
from rlalloc.objective import TERM_NAMES, costs_of
from rlalloc.objective.consequences import FloatArray
from rlalloc.observation import encode
from rlalloc.policy.policy_inputs import PolicyInputs
from rlalloc.view import ClusterView
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.engine.engine_records import COMPLETED, OUT_OF_MEMORY, TIMEOUT
from rlalloc_simulator.objective_costs import KnownBefore, consequences_of, setting_of
from rlalloc_simulator.site_from_workload import Workload

INFORMATIVE: Final = (COMPLETED, TIMEOUT, OUT_OF_MEMORY)
"""Ends of a run that say something about its size, unlike a cancelled job or a failed program."""


class Observed(msgspec.Struct, frozen=True):
    """Decisions as a site would store them.

    ``observation`` (decisions, inputs), and ``cost`` (decisions, terms) over each job's scale.
    """

    observation: NDArray[np.float32]
    cost: FloatArray


def observed(
    workload: Workload, policy: Heuristic, inputs: PolicyInputs, terms: tuple[str, ...] = TERM_NAMES
) -> Observed:
    """Run a workload under ``policy`` and return the decisions whose outcomes are informative.

    The first run of a job counts. Raises PluginError where a plug-in's term cannot be computed.
    """
    observations = np.full((len(workload.jobs), len(inputs)), np.nan, dtype=np.float32)
    totals = np.ones((len(workload.jobs), 3))
    asked = [-1]

    def observing(job: JobView, view: ClusterView) -> Shares:
        observations[asked[0]], totals[asked[0]] = inputs.row(encode(job, view)), view.totals
        return policy(job, view)

    def remember(waiting: list[int]) -> None:
        asked[0] = waiting[0]

    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    driven = drive(simulator, workload.jobs, observing, before=remember)
    outcomes = driven.outcomes
    said = np.isin(outcomes["first_state"], INFORMATIVE) & np.isfinite(outcomes["first_end_s"])
    numbers = np.flatnonzero(said & np.isfinite(observations[:, 0]))
    first = outcomes[numbers]
    run_s = first["first_end_s"] - first["first_start_s"]
    held = driven.sizes[numbers, :1] * driven.sizes[numbers, 1:4]
    shares = (held / np.maximum(totals[numbers], 1.0)).max(axis=1)
    others_s = [
        DEFAULT_PRICE.price_s(share, seconds, queued)
        for share, seconds, queued in zip(shares.tolist(), run_s.tolist(), first["queued"].tolist(), strict=True)
    ]
    became = consequences_of(simulator, KnownBefore.of(workload.jobs)).rows(numbers)
    became = replace(
        became, jct_s=became.wait_s + run_s, run_time_s=run_s, others_s=np.array(others_s, dtype=np.float64)
    )
    cost = costs_of(became, setting_of(workload.site), terms) / became.scale_s[:, None]
    return Observed(observations[numbers], cost)
