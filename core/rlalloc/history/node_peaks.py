"""How much memory a job held at once on one node, bounded from above by what sacct says of its steps. Pure functions.

sacct's MaxRSS is the largest peak of one task of a step, and TRESUsageInTot's ``mem`` the sum of the peaks of all
its tasks (``man sacct``). A node held at most the smaller of that sum and of MaxRSS times the most tasks that the
step can have had on one node. Steps that ran at the same time may share a node: theirs are added.
"""

from collections.abc import Iterable
from typing import NamedTuple


class StepPeak(NamedTuple):
    """What sacct says of one step; times in seconds since the epoch, memory in MiB, None where it is not known."""

    started_s: float
    ended_s: float
    max_rss_mib: float | None
    all_tasks_mib: float | None
    tasks: int | None
    nodes: int | None

    @property
    def node_mib(self) -> float | None:
        """The most that its tasks can have held on one node; None where that is not known."""
        bounds = [] if self.all_tasks_mib is None else [self.all_tasks_mib]
        if self.max_rss_mib is not None and self.tasks is not None:
            bounds.append(self.max_rss_mib * most_tasks_on_a_node(self.tasks, self.nodes or 1))
        return min(bounds, default=None)


def most_tasks_on_a_node(tasks: int, nodes: int) -> int:
    """An even part where there is one; else all but one for each other node, for Slurm may fill a node first."""
    return tasks // nodes if tasks % nodes == 0 else max(1, tasks - nodes + 1)


def node_peak_mib(steps: Iterable[StepPeak]) -> float | None:
    """Bound what a job's steps held together on one node [MiB]; None where no step says it."""
    changes: list[tuple[float, int, float]] = []
    for step in steps:
        if (held := step.node_mib) is not None:
            # One that ends in the second in which another starts has left its memory: ends come first.
            changes += [(step.started_s, 1, held), (max(step.ended_s, step.started_s + 0.5), 0, -held)]
    most = now = 0.0
    for _, _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most if changes else None
