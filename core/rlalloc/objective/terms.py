"""The terms of an objective: what each job costs by each of them.

All are in one unit, **seconds of one job's time**, so that weights can be compared: a weight of 0.1 says that ten of
a term's seconds are worth one second of a job that somebody waits for. Terms of a resource count seconds of one GPU;
CPUs and memory as the part of a GPU that they come with on the cluster. Lower is better everywhere.

jct            job completion time, and what the other jobs wait for it
wait           until it starts, and what the other jobs wait for it
slowdown       bounded slowdown (Feitelson et al., JSSPP 1997), of at least 1, times POINT_S
gpu_held, cpu_held, mem_held     what it holds: utilisation is the part of it that is used
gpu_waste, cpu_waste, mem_waste  what it holds and makes no use of
energy         as accounted, else by the power model, in seconds of a GPU at work
latency        of serving jobs: what their users wait longer than with the size asked for
network        of jobs over several nodes: traffic between them
fairness       what it adds to the inequality of what users hold
out_of_memory, timeout   what killing it loses
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from rlalloc.objective.consequences import DEFAULT_POWER, Consequences, FloatArray, PowerModel, Resources
from rlalloc.plugins import PluginError, Registry

POINT_S: Final = 600.0
"""A point of bounded slowdown counts as ten minutes: as much as a job of ten minutes loses by it."""
BOUND_S: Final = 10.0
"""Shorter jobs count as that long in a slowdown."""
KILL_SCALES: Final = 5.0
"""What a killed job loses, in its own scales: more than waiting for all of it again."""


@dataclass(frozen=True)
class Setting:
    """What is the same for all jobs of a site: the cluster in all, and what its GPUs take."""

    cluster: Resources
    power: PowerModel = DEFAULT_POWER


Term = Callable[[Consequences, Setting], FloatArray]
"""Costs (jobs,) in seconds of one job's time, at least 0; NaN where what it needs is not known."""


def jct(of: Consequences, _: Setting) -> FloatArray:
    """Completion time, the others' included."""
    return of.jct_s + of.others_s


def wait(of: Consequences, _: Setting) -> FloatArray:
    """Time until the start, the others' included."""
    return of.wait_s + of.others_s


def slowdown(of: Consequences, _: Setting) -> FloatArray:
    """Completion time over that alone as submitted, as if the others were as long as this job."""
    return POINT_S * np.maximum(1.0, (of.jct_s + of.others_s) / np.maximum(of.reference_s, BOUND_S))


def gpu_held(of: Consequences, _: Setting) -> FloatArray:
    """GPU-seconds held."""
    return of.gpu_s


def cpu_held(of: Consequences, at: Setting) -> FloatArray:
    """CPU-seconds held, in GPU-seconds that come with as many."""
    return of.cpu_s * at.cluster.gpus / at.cluster.cpus


def mem_held(of: Consequences, at: Setting) -> FloatArray:
    """Memory held over time, in GPU-seconds that come with as much."""
    return of.mem_mib_s * at.cluster.gpus / at.cluster.mem_mib


def gpu_waste(of: Consequences, _: Setting) -> FloatArray:
    """GPU-seconds held beyond what one GPU would have needed for the work."""
    return np.maximum(0.0, of.gpu_s - of.gpu_s_used)


def cpu_waste(of: Consequences, at: Setting) -> FloatArray:
    """CPU-seconds held and not used, in GPU-seconds."""
    return np.maximum(0.0, of.cpu_s - of.cpu_s_used) * at.cluster.gpus / at.cluster.cpus


def mem_waste(of: Consequences, at: Setting) -> FloatArray:
    """Memory held above the peak of what was used, over time, in GPU-seconds."""
    return np.maximum(0.0, of.mem_mib_s - of.mem_mib_s_used) * at.cluster.gpus / at.cluster.mem_mib


def energy(of: Consequences, at: Setting) -> FloatArray:
    """Energy over the power of a GPU at work: seconds that one GPU could have worked for it."""
    modelled_j = at.power.energy_j(of.gpu_s, of.gpu_s_used)
    return np.where(np.isnan(of.energy_j), modelled_j, of.energy_j) / at.power.gpu_busy_w


def latency(of: Consequences, _: Setting) -> FloatArray:
    """Of a serving job: the time until it answers at all, and the time by which it answers later than as requested.

    A request is taken to last in inverse proportion to the job's speed, as where throughput bounds it.
    """
    later = np.maximum(0.0, 1.0 - 1.0 / np.maximum(of.slowdown, 1e-9))
    return of.serving * (of.wait_s + of.run_time_s * later)


def network(of: Consequences, _: Setting) -> FloatArray:
    """Seconds that links between nodes carry its traffic, but for a constant.

    A ring all-reduce of n nodes sends 2(n - 1) times the gradients over the network in a step (Patarasuk and Yuan,
    2009), none on a single node.
    """
    return np.maximum(0.0, of.nodes - 1.0) * of.run_time_s


def fairness(of: Consequences, at: Setting) -> FloatArray:
    """What the job adds to half the sum over users of the squares of what they hold, over all GPUs.

    For the same GPUs in all that sum is least where all users hold alike: it is the denominator of Jain's index.
    """
    return of.gpu_s * (of.user_gpus + of.gpus / 2.0) / at.cluster.gpus


def out_of_memory(of: Consequences, _: Setting) -> FloatArray:
    """A penalty for a job that ran out of memory."""
    return of.out_of_memory * KILL_SCALES * of.scale_s


def timeout(of: Consequences, _: Setting) -> FloatArray:
    """A penalty for a job that ran out of time."""
    return of.timeout * KILL_SCALES * of.scale_s


TERMS: Final[Mapping[str, Term]] = {
    term.__name__: term
    for term in (
        *(jct, wait, slowdown, gpu_held, cpu_held, mem_held, gpu_waste, cpu_waste, mem_waste),
        *(energy, latency, network, fairness, out_of_memory, timeout),
    )
}
"""Our own, in the order of the policy's inputs."""
REWARDS: Final = Registry("rlalloc.rewards", TERMS)
"""Those and what plug-ins bring."""


def costs_of(of: Consequences, at: Setting, names: tuple[str, ...] = tuple(TERMS)) -> FloatArray:
    """Costs (jobs, terms) by ``names``. Raises PluginError where a plug-in is not there or does not answer right."""
    return np.stack([_cost_of(of, at, name) for name in names], axis=1)


def _cost_of(of: Consequences, at: Setting, name: str) -> FloatArray:
    if name in TERMS:
        return TERMS[name](of, at)
    with REWARDS.errors_named(name):
        cost = np.asarray(REWARDS.get(name)(of, at), dtype=np.float64)
    if cost.shape != (len(of),) or np.isinf(cost).any() or (cost < 0).any():
        raise PluginError(f"{REWARDS.describe(name)}: it has to return ({len(of)},) costs that are not negative")
    return cost
