"""Who runs where, as far as a view tells: it lists what each node has left and what each running job holds in all."""

from dataclasses import dataclass

import numpy as np

from rlalloc.job import Allocation
from rlalloc.view import ClusterView
from rlalloc_simulator.engine.engine_records import Numbers, Reals


@dataclass(frozen=True, eq=False)
class Present:
    """Nodes, and running jobs in parts of one node each: what a rollout wants of them is only when they give it back.

    capacity   (nodes, 3) GPUs, CPUs and MiB: what is free, and what the parts on a node hold
    held       (parts, 3) likewise
    nodes      (parts,) where each part runs
    owners     (parts,) whose it is: a row of the view's ``releases``
    """

    capacity: Numbers
    held: Numbers
    nodes: Numbers
    owners: Numbers

    @property
    def first_parts(self) -> Numbers:
        """Of each part, the first part of the same job; shape (parts,)."""
        _, first, whose = np.unique(self.owners, return_index=True, return_inverse=True)
        return np.asarray(first[whose], dtype=np.int64)

    def holds(self, allocation: Allocation) -> bool:
        """Whether the cluster could hold ``allocation`` if nothing ran."""
        return self.has_nodes(
            allocation.nodes, allocation.gpus_per_node, allocation.cpus_per_node, allocation.mem_mib_per_node
        )

    def has_nodes(self, nodes: int, *least: int) -> bool:
        """Whether so many nodes have at least so many GPUs, CPUs and MiB."""
        return nodes >= 1 and int((self.capacity >= least).all(axis=1).sum()) >= nodes


def present_of(view: ClusterView) -> Present:
    """Seat the running jobs of ``view`` where GPUs are taken, the largest first, on as few nodes as it takes.

    All nodes are taken to be as large as the largest one, so where there are several kinds a job may be seated on a
    wrong node. Exact are what is free on each node and what comes free when; what nobody listed holds never does.
    """
    shape = np.array([view.shape.gpus, view.shape.cpus, view.shape.mem_mib], dtype=np.float64)
    used = np.maximum(0.0, shape - view.free)
    capacity = view.free.copy()
    parts: list[tuple[int, int, Reals]] = []
    for owner in np.argsort(-view.releases[:, 1], kind="stable").tolist():
        whole = view.releases[owner, 1:]
        left = whole[0]
        while True:
            node = _tightest(used, left)
            taken = min(left, used[node, 0])
            if taken <= 0 < whole[0]:
                break
            part = np.maximum((0.0, 1.0, 0.0), np.round(whole * (taken / whole[0] if whole[0] > 0 else 1.0)))
            parts.append((owner, node, part))
            used[node] -= part
            capacity[node] += part
            left -= taken
            if left <= 0:
                break
    return Present(
        capacity.astype(np.int64),
        np.array([part for _, _, part in parts], dtype=np.int64).reshape(-1, 3),
        np.array([node for _, node, _ in parts], dtype=np.int64),
        np.array([owner for owner, _, _ in parts], dtype=np.int64),
    )


def _tightest(used: Reals, gpus: float) -> int:
    """The node on which as many GPUs are taken and the fewest more; else the most; without GPUs, the most CPUs."""
    if gpus <= 0:
        return int(used[:, 1].argmax())
    enough = used[:, 0] >= gpus
    return int(np.where(enough, used[:, 0], np.inf).argmin() if enough.any() else used[:, 0].argmax())
