"""Time of one training step by GPUs, nodes and local batch, from few parameters.

As Pollux (Qiao et al., OSDI 2021): T = (T_grad^g + T_sync^g)^(1/g), where g = 1 is no overlap of computing and
communicating and a large g is full overlap. T_grad is a fixed part and a part that grows with the local batch.
T_sync is the all-reduce of the gradients: a ring inside the node and one between nodes (2(n-1)/n of the data over
each link; Patarasuk and Yuan, JPDC 2009), the latter slower the more nodes take part (retrogression).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

PARAMETERS: Final = ("overhead", "sync_in_node", "sync_between_nodes", "retrogression", "overlap", "critical_batch")
"""Columns of a parameter array; natural logarithms.

overhead            fixed part of the gradient's time over the part that grows with the batch, at a local batch of 1
sync_in_node        all-reduce within a node over the same
sync_between_nodes  all-reduce between nodes over the same
retrogression       growth of the latter with each doubling of the nodes
overlap             g - 1
critical_batch      global batch from which on twice the batch needs nearly twice the samples (McCandlish et al. 2018)
"""


@dataclass(frozen=True, eq=False)
class Layouts:
    """Sizes to compute the speed in, one place each: arrays of the same length.

    gpus, nodes   of the whole job
    local_batch   samples a GPU works on between two synchronisations, in multiples of the family's usual one
    global_batch  likewise of the whole job, where more samples a step slow convergence; 0 where that does not matter
    """

    gpus: FloatArray
    nodes: FloatArray
    local_batch: FloatArray
    global_batch: FloatArray

    @classmethod
    def at_fixed_global_batch(cls, gpus: Sequence[int], nodes: Sequence[int], requested_gpus: int) -> "Layouts":
        """Sizes of one job whose global batch stays: its local batch is the usual one at ``requested_gpus``."""
        counts = np.asarray(gpus, dtype=np.float64)
        return cls(counts, np.asarray(nodes, dtype=np.float64), requested_gpus / counts, np.zeros_like(counts))

    def chosen(self, places: NDArray[np.bool_]) -> "Layouts":
        """The places where ``places`` is true."""
        arrays = (self.gpus, self.nodes, self.local_batch, self.global_batch)
        return Layouts(*(each[places] for each in arrays))


def log_speed(parameters: FloatArray, layouts: Layouts) -> FloatArray:
    """Natural logarithm of samples a second, in multiples of one GPU without overhead.

    ``parameters`` has shape (..., 6), the result (..., layouts).
    """
    overhead, in_node, between, retrogression, overlap, critical = (
        parameters[..., place, None] for place in range(len(PARAMETERS))
    )
    per_node = layouts.gpus / layouts.nodes
    log_grad = np.log(np.exp(overhead) + layouts.local_batch)
    ring_in_node = 2.0 * (per_node - 1.0) / per_node
    ring_between = 2.0 * (layouts.nodes - 1.0) / layouts.nodes
    slower = 1.0 + np.exp(retrogression) * np.log2(layouts.nodes)
    sync = np.exp(in_node) * ring_in_node + np.exp(between) * ring_between * slower
    gamma = 1.0 + np.exp(overlap)
    with np.errstate(divide="ignore"):
        log_sync = np.log(sync)
    log_step = np.logaddexp(gamma * log_grad, gamma * log_sync) / gamma
    more_samples = np.log1p(layouts.global_batch * np.exp(-critical))
    return np.asarray(np.log(layouts.gpus * layouts.local_batch) - log_step - more_samples)
