"""How full the cluster was, as functions of time that only change at events."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlalloc_simulator.report.history import History

Reals = NDArray[np.float64]


class Steps(NamedTuple):
    """A function of time that is ``levels[k]`` from ``times_s[k]`` to ``times_s[k + 1]`` (and to the end)."""

    times_s: Reals
    levels: Reals

    def means(self, edges_s: Reals) -> Reals:
        """Mean levels between successive ``edges_s`` (bins + 1,); before the first time the level is 0."""
        lengths = np.diff(self.times_s)
        filled = np.concatenate(([0.0], np.cumsum(self.levels[:-1] * lengths)))
        last_s = max(float(edges_s[-1]), float(self.times_s[-1]))
        times_s = np.append(self.times_s, last_s)
        filled = np.append(filled, filled[-1] + self.levels[-1] * (last_s - self.times_s[-1]))
        means: Reals = np.diff(np.interp(edges_s, times_s, filled)) / np.diff(edges_s)
        return means


def steps_of(spans: Iterable[tuple[float, float, float]], begin_s: float) -> Steps:
    """Add up spans: each is (begin [s], end [s], amount)."""
    rows = np.array([*spans], dtype=np.float64).reshape(-1, 3)
    times_s = np.concatenate(([begin_s], rows[:, 0], rows[:, 1]))
    changes = np.concatenate(([0.0], rows[:, 2], -rows[:, 2]))
    unique_s, place = np.unique(times_s, return_inverse=True)
    levels: Reals = np.cumsum(np.bincount(place, weights=changes, minlength=len(unique_s)).astype(np.float64))
    return Steps(unique_s, levels)


def queue_steps(history: History) -> Steps:
    """Jobs in the queue that may start."""
    return steps_of(((wait.begin_s, wait.end_s, 1.0) for wait in history.waits), history.begin_s)


def use_steps(history: History) -> tuple[Steps, Steps, Steps]:
    """GPUs, CPUs and memory [MiB] that running jobs hold."""
    held = [
        (
            run.start_s,
            run.end_s,
            *(len(run.nodes) * each for each in (run.gpus_per_node, run.cpus_per_node, run.mem_mib_per_node)),
        )
        for run in history.runs
    ]
    gpus, cpus, mem_mib = (
        steps_of(((row[0], row[1], float(row[2 + which])) for row in held), history.begin_s) for which in range(3)
    )
    return gpus, cpus, mem_mib


def capacity(history: History) -> tuple[float, float, float]:
    """GPUs, CPUs and memory [MiB] of all nodes; a node that is down counts too."""
    return (
        float(sum(node.gpus for node in history.nodes)),
        float(sum(node.cpus for node in history.nodes)),
        float(sum(node.mem_mib for node in history.nodes)),
    )


def fragmented_gpu_s(history: History) -> float:
    """GPU-seconds that were idle while a job waited that needed no more than what was free in all.

    At every moment: the free GPUs of those partitions in whose queue stands a job with GPUs that asks for no more
    GPUs, CPUs and memory than are free on all nodes of the partition together. It is the loss of capacity of Zhang,
    Franke, Moreira and Sivasubramaniam ("An Integrated Approach to Parallel Scheduling Using Gang-Scheduling,
    Backfilling, and Migration", JSSPP 2001: nodes are empty and jobs wait, and still these cannot run), for GPUs and
    with CPUs and memory. What is free may lie on too many nodes, or backfill keeps it for others: both count.
    """
    free = np.array([(node.gpus, node.cpus, node.mem_mib) for node in history.nodes], dtype=np.float64)
    members = np.array(
        [[node in nodes for node in range(len(history.nodes))] for nodes in map(set, history.partitions)]
    )
    waiting: dict[int, tuple[int, int, int, int]] = {}
    lost_gpu_s, before_s, stranded = 0.0, 0.0, 0.0
    for time_s, is_wait, begins, number in _events(history):
        if time_s > before_s:
            if stranded < 0:
                stranded = _stranded_gpus(free, members, waiting)
            lost_gpu_s += stranded * (time_s - before_s)
            before_s = time_s
        stranded = -1.0  # to be found anew if any time passes
        if is_wait:
            wait = history.waits[number]
            if not begins:
                waiting.pop(number, None)
            elif wait.gpus:
                waiting[number] = (wait.partition, wait.gpus, wait.cpus, wait.mem_mib)
        else:
            run = history.runs[number]
            held = np.array((run.gpus_per_node, run.cpus_per_node, run.mem_mib_per_node), dtype=np.float64)
            free[[*run.nodes]] += -held if begins else held
    return lost_gpu_s


def _events(history: History) -> list[tuple[float, bool, bool, int]]:
    """Begins and ends of runs and waits in time: (time [s], of a wait, begins, number); ends before begins."""
    events = []
    for number, run in enumerate(history.runs):
        events += [(run.start_s, False, True, number), (run.end_s, False, False, number)]
    for number, wait in enumerate(history.waits):
        if wait.end_s > wait.begin_s:
            events += [(wait.begin_s, True, True, number), (wait.end_s, True, False, number)]
    return sorted(events, key=lambda event: (event[0], event[2]))


def _stranded_gpus(free: Reals, members: NDArray[np.bool_], waiting: dict[int, tuple[int, int, int, int]]) -> float:
    if not waiting:
        return 0.0
    in_all = members.astype(np.float64) @ free
    needs = np.array([*waiting.values()], dtype=np.float64)
    partitions = needs[:, 0].astype(np.intp)
    fitting = np.unique(partitions[(needs[:, 1:] <= in_all[partitions]).all(axis=1)])
    return float(free[members[fitting].any(axis=0), 0].sum())
