"""What a plan costs: an analytic model of training a transformer on a shared cluster.

Nodes have 4 GPUs (A100 80 GB: 312 TFLOP/s in bf16, 300 GB/s each way by NVLink) and one link of 200 Gb/s; all jobs
share the CPUs, the host memory and the links. Assumptions, each with its source:

- 6 floating-point operations a parameter and token (Kaplan et al. 2020), at half of the peak; a transformer of
  12·layers·width² parameters whose width is 128 times its layers.
- Replicas exchange gradients, 2 bytes a parameter, by ring all-reduce; the parts of a split model exchange
  activations in 4 all-reduces a layer (Megatron-LM, Shoeybi et al. 2019). Nothing overlaps with computing.
- A GPU holds 16 bytes a parameter of its part (ZeRO, Rajbhandari et al. 2020) and the activations of one sequence,
  34 bytes a token and width in each layer (Korthikanti et al. 2022).
- A GPU wants 2 CPUs and a replica 4 more for its input, and 48 GiB of host memory a GPU; with less the job slows
  down, by CPUs in proportion, by memory half so (Synergy, Mohan et al. 2022, measured 1 to 3 CPUs a GPU and more).
- A GPU draws 400 W computing and 100 W waiting (A100 data sheet: 400 W; waiting for others is not idling).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rlalloc_research.parallelism.plans import PLANS

FloatArray = NDArray[np.float64]

SITUATION: Final = ("cpus in use", "host memory in use", "links in use", "model size")
"""The columns of a situation, each in [0, 1]; the size goes from 0.3 to 18 billion parameters on a log scale."""
COSTS: Final = ("cpu", "memory", "latency", "energy", "bandwidth")

_LEAST_PARAMETERS: Final = 0.3e9
_PARAMETERS_RANGE: Final = 60.0
_TOKENS: Final = 1e8
_TOKENS_A_STEP: Final = 2.0**18
_SEQUENCE: Final = 2048.0
_FLOPS: Final = 0.5 * 312e12
_GPUS_A_NODE: Final = 4
_NVLINK: Final = 300e9
_LINK: Final = 25e9
_GPU_BYTES: Final = 80e9
_CPUS: Final = 128.0
_HOST_GIB: Final = 2048.0
_LEAST_FREE: Final = 0.05
_BUSY_W: Final = 400.0
_WAITING_W: Final = 100.0

_REPLICAS: Final = np.array([plan.replicas for plan in PLANS], dtype=np.float64)
_PARTS: Final = np.array([plan.parts for plan in PLANS], dtype=np.float64)
_GPUS: Final = _REPLICAS * _PARTS


@dataclass(frozen=True, eq=False)
class Consequences:
    """What becomes of each plan in each situation; the last axis but one is ``PLANS`` where there are two.

    costs      (..., plans, 5)  from 0, the best that could be, to 1, for each of COSTS
    run_s      (..., plans)     how long the job runs; infinite where a GPU's memory does not suffice
    energy_j   (..., plans)     what its GPUs draw; infinite likewise
    taken      (..., plans, 3)  part of the CPUs, host memory and links that it holds while it runs
    """

    costs: FloatArray
    run_s: FloatArray
    energy_j: FloatArray
    taken: FloatArray


def consequences(situations: FloatArray) -> Consequences:
    """Return what each of ``PLANS`` leads to in ``situations`` (..., 4). A plan that does not fit costs 1 in all."""
    free = np.maximum(1.0 - situations[..., :3], _LEAST_FREE)[..., None, :]
    parameters = _LEAST_PARAMETERS * _PARAMETERS_RANGE ** situations[..., 3, None]
    layers = (parameters / (12.0 * 128.0**2)) ** (1.0 / 3.0)
    width = 128.0 * layers

    activations = 34.0 * _SEQUENCE * width * layers
    fits = (16.0 * parameters + activations) / _PARTS <= _GPU_BYTES
    cpus = (2.0 * _GPUS + 4.0 * _REPLICAS) / _CPUS
    memory = 48.0 * _GPUS / _HOST_GIB
    starved = np.maximum(1.0, cpus / free[..., 0]) * (1.0 + 0.5 * np.maximum(0.0, memory / free[..., 1] - 1.0))

    computing_s = 6.0 * parameters * _TOKENS_A_STEP / (_GPUS * _FLOPS)
    gradients = 2.0 * (_REPLICAS - 1.0) / _REPLICAS * 2.0 * parameters / _PARTS
    exchanged = 8.0 * (_PARTS - 1.0) / _PARTS * _TOKENS_A_STEP / _REPLICAS * width * layers * 2.0
    link = _LINK * free[..., 2]
    rings = np.minimum(_PARTS, _GPUS_A_NODE)
    replicas_apart = (_GPUS > _GPUS_A_NODE) & (_REPLICAS > 1)
    parts_apart = _PARTS > _GPUS_A_NODE
    talking_s = gradients / np.where(replicas_apart, link / rings, _NVLINK)
    talking_s = talking_s + exchanged / np.where(parts_apart, link, _NVLINK)
    step_s = computing_s * starved + talking_s

    run_s = np.where(fits, _TOKENS / _TOKENS_A_STEP * step_s, np.inf)
    busy = computing_s / step_s
    energy_j = run_s * _GPUS * (_WAITING_W + (_BUSY_W - _WAITING_W) * busy)
    through_links = gradients * rings * replicas_apart + exchanged * parts_apart
    linked = through_links / step_s / _LINK

    alone_s = 6.0 * parameters * _TOKENS / _FLOPS
    costs = np.stack(
        np.broadcast_arrays(
            cpus / free[..., 0],
            memory / free[..., 1],
            np.log2(run_s / (alone_s / _GPUS.max())) / 5.0,
            np.log2(energy_j / (alone_s * _BUSY_W)) / 3.0,
            linked / free[..., 2],
        ),
        axis=-1,
    )
    costs = np.where(fits[..., None], np.clip(costs, 0.0, 1.0), 1.0)
    taken = np.stack(np.broadcast_arrays(cpus, memory, linked), axis=-1) * fits[..., None]
    return Consequences(costs, run_s, energy_j, taken)
