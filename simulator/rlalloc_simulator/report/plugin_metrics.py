"""Further figures of a simulated workload; plug-ins register theirs in the same way."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from rlalloc.errors import PluginError
from rlalloc.objective import REWARDS, Consequences, Setting, costs_of
from rlalloc.objective.terms import energy, gpu_waste, network
from rlalloc.plugins import Registry

Metric = Callable[[Consequences, Setting], float | None]
"""A figure of a workload's jobs on a site; None where it is not defined."""


def energy_mwh(of: Consequences, at: Setting) -> float:
    """Energy of the GPUs that jobs held, by the power model."""
    return float(energy(of, at).sum()) * at.power.gpu_busy_w / 3.6e9


def gpu_efficiency(of: Consequences, at: Setting) -> float | None:
    """Part of the held GPU time that one GPU would have needed for the work."""
    held_s = float(of.gpu_s.sum())
    return 1.0 - float(gpu_waste(of, at).sum()) / held_s if held_s else None


def network_node_hours(of: Consequences, at: Setting) -> float:
    """Hours that nodes beyond the first were held by jobs over several nodes."""
    return float(network(of, at).sum()) / 3600


METRICS: Final = Registry(
    "rlalloc.metrics",
    {
        "GPU energy [MWh]": energy_mwh,
        "GPU efficiency": gpu_efficiency,
        "nodes beyond the first [h]": network_node_hours,
    },
)


def measure_further(of: Consequences, at: Setting) -> dict[str, float | None]:
    """Return all of them by name. Raises PluginError where one of a plug-in fails or gives no number."""
    found = {}
    for name in METRICS.names():
        with METRICS.errors_named(name):
            value = METRICS.get(name)(of, at)
        if value is not None and not (isinstance(value, int | float | np.number) and math.isfinite(value)):
            raise PluginError(f"{METRICS.describe(name)} gave {value!r}: it has to return a finite number, or None")
        found[name] = None if value is None else float(value)
    return found


def mean_costs(of: Consequences, at: Setting) -> dict[str, float | None]:
    """Return the mean cost of each of the objective's terms, plug-ins' included, by name. Raises PluginError.

    None where a term is not known of all jobs.
    """
    names = REWARDS.names()
    means = costs_of(of, at, names).mean(axis=0).tolist() if len(of) else [math.nan] * len(names)
    return {name: None if math.isnan(mean) else mean for name, mean in zip(names, means, strict=True)}
