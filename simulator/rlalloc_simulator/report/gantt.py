"""Where each run stood on its nodes: bars in lanes, a lane a GPU. Pure functions; ``pictures`` draws them."""

from collections import defaultdict
from typing import NamedTuple

from rlalloc_simulator.report.history import History, Run


class Bar(NamedTuple):
    """``lanes`` neighbouring lanes from ``lane`` on, taken by one run on one node; lanes count over all nodes."""

    run: int
    lane: int
    lanes: int


def lanes_of(history: History) -> list[int]:
    """How many lanes each node has: its GPUs, or its CPUs on a cluster without GPUs."""
    if any(node.gpus for node in history.nodes):
        return [node.gpus for node in history.nodes]
    return [node.cpus for node in history.nodes]


def bars(history: History) -> list[Bar]:
    """Give each run on each of its nodes the lowest lanes that are free there.

    Which GPU of a node Slurm hands out is not simulated: the lanes show how many, not which. On a cluster with GPUs
    runs without any have no bar.
    """
    lanes = lanes_of(history)
    with_gpus = any(node.gpus for node in history.nodes)
    first = [sum(lanes[:node]) for node in range(len(lanes))]
    free_at_s = [[-float("inf")] * count for count in lanes]
    made = []
    for number in sorted(range(len(history.runs)), key=lambda number: history.runs[number].start_s):
        run = history.runs[number]
        wanted = run.gpus_per_node if with_gpus else run.cpus_per_node
        for node in run.nodes:
            taken = _take(free_at_s[node], run, wanted)
            made += [Bar(number, first[node] + lane, count) for lane, count in _neighbours(taken)]
    return made


def _take(free_at_s: list[float], run: Run, wanted: int) -> list[int]:
    taken = [lane for lane, free_s in enumerate(free_at_s) if free_s <= run.start_s][:wanted]
    for lane in taken:
        free_at_s[lane] = run.end_s
    return taken


def _neighbours(lanes: list[int]) -> list[tuple[int, int]]:
    """Group ascending lanes into runs of neighbours: (first, count)."""
    groups: dict[int, list[int]] = defaultdict(list)
    for place, lane in enumerate(lanes):
        groups[lane - place].append(lane)
    return [(group[0], len(group)) for group in groups.values()]
