"""Speed-up curves drawn from what was fitted to measurements of five sources; none is what a policy assumes.

Four sources are tables. To each measured curve S(k) = k (1 + (k/knee)^2)^(-(1 - exponent)/2) was fitted: in
proportion up to the knee, beyond it with the power ``exponent``, so that it rises past any measured count. The knee
moves with the global batch and so with what a user asks for; the exponent is drawn from those fitted to the source
(``make research RESEARCH_ARGS="truths --data DIR"`` prints the quantiles that stand below):

pollux   35 curves: six models at fixed global batches on 1 to 64 T4 (Qiao et al., OSDI 2021; petuum/adaptdl)
gavel    56 curves: 20 kinds of jobs on 1 to 8 V100, P100 or K80 (Narayanan et al., OSDI 2020;
         stanford-futuredata/gavel)
mlperf   11 curves: time to train on 4 to 11,616 NVIDIA GPUs, with what large batches cost in convergence (MLPerf
         Training v4.0; mlcommons/training_results_v4.0)
mpt      15 curves: tokens a second of MPT of 125 million to 70 billion parameters on 8 to 512 GPUs, the global batch
         growing with the GPUs (mosaicml/llm-foundry)
analytic a transformer's step: its compute in proportion, plus an all-reduce over slower links once it spans nodes, a
         drawn part of which is hidden behind the compute
"""

import math
from collections.abc import Mapping
from typing import Final, Literal, get_args

import numpy as np

from rlalloc_simulator.workloads.workload_job import Speed

Source = Literal["pollux", "gavel", "mlperf", "mpt", "analytic"]
SOURCES: Final = get_args(Source)
_WEIGHTS: Final = {"pollux": 0.25, "gavel": 0.2, "mlperf": 0.2, "mpt": 0.15, "analytic": 0.2}
"""How often each is drawn: an assumption. Workloads with one source alone show what it matters."""
_PARTS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_EXPONENTS: Final[Mapping[str, tuple[float, ...]]] = {
    "pollux": (0.05, 0.05, 0.05, 0.05, 0.05, 0.15, 0.96),
    "gavel": (0.05, 0.43, 0.57, 0.76, 0.86, 0.96, 0.98),
    "mlperf": (0.36, 0.38, 0.44, 0.54, 0.76, 0.9, 0.92),
    "mpt": (0.86, 0.91, 0.96, 0.98, 0.98, 0.98, 0.98),
}
"""Exponents below 0.05 are taken as 0.05: a curve rises."""
_EFFICIENCY: Final = (0.5, 0.95)
"""Of a job in the size that suits it: speed-up over GPUs, uniform. Pollux's authors let users choose sizes of 0.5 to
0.8 with the best batch; with the batches of its workloads that comes to 0.65 to 0.94."""
_ONE_GPU_KNEES: Final = (0.25, 4.0)
"""Knees of jobs that one GPU suits: log-uniform. With two GPUs they take 0.59 of the time in the median, 0.93 at the
95% quantile; Gavel's jobs 0.55 to 0.60 in the median by GPU type, those that ask for one GPU in Pollux 0.9."""
_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096, 16384)
_NODE: Final = 8
_LINKS_WITHIN: Final = (0.05, 0.3)
"""The cost of an all-reduce within a node over that between nodes, uniform: NVLink against InfiniBand or Ethernet."""


def drawn_speed(generator: np.random.Generator, suited_gpus: int, source: Source | None = None) -> Speed:
    """Return the curve of a job that ``suited_gpus`` GPUs suit; of any source unless one is named."""
    if source is None:
        source = SOURCES[int(generator.choice(len(SOURCES), p=[_WEIGHTS[name] for name in SOURCES]))]
    efficiency = float(generator.uniform(*_EFFICIENCY))
    if source == "analytic":
        speeds = _analytic(generator, max(2, suited_gpus), efficiency)
    else:
        exponent = float(np.interp(generator.random(), _PARTS, _EXPONENTS[source]))
        knee = _knee(generator, suited_gpus, efficiency, exponent)
        speeds = [bent(gpus, knee, exponent) for gpus in _COUNTS]
    return Speed(
        points=tuple((gpus, round(speed / speeds[0], 6)) for gpus, speed in zip(_COUNTS, speeds, strict=True))
    )


def bent(gpus: float, knee: float, exponent: float) -> float:
    """Return the speed of the fitted form, not yet in multiples of one GPU."""
    return float(gpus * (1.0 + (gpus / knee) ** 2) ** (-(1.0 - exponent) / 2.0))


def _knee(generator: np.random.Generator, gpus: int, efficiency: float, exponent: float) -> float:
    """The knee with which so many GPUs run at that efficiency, 0.5 at least: some exponents never fall so low."""
    if gpus == 1:
        low, high = map(math.log, _ONE_GPU_KNEES)
        return math.exp(generator.uniform(low, high))
    bend = efficiency ** (-2.0 / (1.0 - exponent)) - 1.0
    return max(0.5, gpus / math.sqrt(bend))


def _analytic(generator: np.random.Generator, gpus: int, efficiency: float) -> list[float]:
    """Speeds of 1 / (compute + exposed all-reduce); where it begins to span nodes, speed can fall."""
    within = float(generator.uniform(*_LINKS_WITHIN))

    def reduce_s(count: int) -> float:
        return (count - 1) / count * (1.0 if count > _NODE else within)

    exposed = (1.0 / efficiency - 1.0) / gpus / reduce_s(gpus)
    return [1.0 / (1.0 / count + exposed * reduce_s(count)) for count in _COUNTS]
