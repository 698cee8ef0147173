"""The costs of a finished run by each term of the site's objective, and its reward. Pure functions."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from rlalloc.config import ObjectiveSection
from rlalloc.errors import PluginError
from rlalloc.objective import TERM_NAMES, Consequences, Resources, costs_of
from rlalloc.objective.terms import Setting
from rlalloc.reward import rewards
from rlalloc.speed import PRIOR
from rlalloc.store import Circumstances, Decision
from rlalloc.usage.family_kills import Cause
from rlalloc.view import slowdown
from rlallocd.slurm import AccountingRecord

_UNKNOWN: Final = Resources(gpus=math.nan, cpus=math.nan, mem_mib=math.nan)
Costs = dict[str, float | None]
"""Costs by name of term, divided by the job's scale; None where a cost is unknown."""


def costs_of_run(
    decision: Decision,
    record: AccountingRecord,
    objective: ObjectiveSection,
    plugin_failed: Callable[[PluginError], None],
    ours: Cause | None = None,
    *,
    applied: bool,
) -> Costs | None:
    """Return the costs of a finished run, or None if it never started or its decision lacks what they need.

    ``ours`` says what ended it, where that was our doing: a run out of any memory costs as much.
    """
    found = _consequences(decision, record, objective, ours, applied=applied)
    if found is None:
        return None
    cluster = decision.circumstances.cluster if decision.circumstances is not None else _UNKNOWN
    setting = Setting(cluster, objective.power)
    costs = dict(zip(TERM_NAMES, (costs_of(found, setting) / found.scale_s[:, None])[0].tolist(), strict=True))
    for name in objective.plugin_weights:
        try:
            costs[name] = float(costs_of(found, setting, (name,))[0, 0] / found.scale_s[0])
        except PluginError as err:
            plugin_failed(err)
            costs[name] = math.nan
    return {name: None if math.isnan(cost) else cost for name, cost in costs.items()}


def mean_costs(parts: Sequence[Costs]) -> Costs | None:
    """Return the means over an array's tasks, None if it has none; a term must be known for all tasks."""
    if not parts:
        return None
    means: Costs = {}
    for name in parts[0]:
        known = [cost for part in parts if (cost := part[name]) is not None]
        means[name] = sum(known) / len(known) if len(known) == len(parts) else None
    return means


def reward_of(costs: Mapping[str, float | None], objective: ObjectiveSection) -> float | None:
    """Return the reward under the site's weights, or None if a term with a weight is unknown."""
    weights = np.array([*objective.weights.array, *objective.plugin_weights.values()])
    values = [costs.get(name) for name in (*TERM_NAMES, *objective.plugin_weights)]
    known = np.array([math.nan if value is None else value for value in values])
    reward = float(rewards(-known[None, :], weights)[0])
    return None if math.isnan(reward) else reward


def _consequences(
    decision: Decision, record: AccountingRecord, objective: ObjectiveSection, ours: Cause | None, *, applied: bool
) -> Consequences | None:
    share = decision.dominant_share_allocated if applied else decision.dominant_share_requested
    allocation = decision.allocation if applied and decision.allocation is not None else decision.request
    started_s, ended_s = record.started_s, record.ended_s
    if (
        started_s is None
        or ended_s is None
        or share is None
        or decision.queued is None
        or decision.reference_s is None
    ):
        return None
    wait_s, run_s = max(0.0, started_s - decision.decided_s), float(ended_s - started_s)
    circumstances = decision.circumstances
    return Consequences.of_one(
        serving=float(decision.job_class == "serve"),
        jct_s=wait_s + run_s,
        wait_s=wait_s,
        others_s=objective.price.price_s(share, run_s, decision.queued),
        reference_s=decision.reference_s,
        run_time_s=run_s,
        slowdown=slowdown(decision.request, allocation),
        nodes=record.nodes,
        gpus=record.gpus,
        gpu_s=record.gpus * run_s,
        cpu_s=record.cpus * run_s,
        mem_mib_s=record.mem_mib * run_s,
        # Slurm seldom knows the use of GPUs (gres/gpuutil): assume what a job of this size usually achieves.
        gpu_s_used=PRIOR.at(max(1, record.gpus), record.cpus / max(1, record.gpus)) * run_s,
        cpu_s_used=_or_nan(record.cpu_s_used),
        mem_mib_s_used=_or_nan(record.mem_mib_used) * run_s,
        user_gpus=math.nan if circumstances is None else circumstances.user_running_gpus,
        energy_j=_energy_j(record, circumstances),
        out_of_memory=float(record.state == "OUT_OF_MEMORY" or ours in ("out-of-memory", "gpu-out-of-memory")),
        timeout=float(record.state == "TIMEOUT"),
    )


def _energy_j(record: AccountingRecord, circumstances: Circumstances | None) -> float:
    """Accounted energy; NaN if other jobs may have run on the same nodes, because Slurm counts whole nodes."""
    if circumstances is None or record.gpus < record.nodes * circumstances.node_gpus:
        return math.nan
    return _or_nan(record.consumed_energy_j)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
