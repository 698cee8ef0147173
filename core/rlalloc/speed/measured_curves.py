"""How fast a job runs on a number of GPUs, relative to one GPU: priors from published measurements.

GPU scaling: best throughput at a fixed global batch by number of GPUs, from the step times that Pollux
measured (Qiao et al., OSDI 2021; petuum/adaptdl, Apache-2.0), nodes of four GPUs. CPU sensitivity: Synergy
(Mohan et al., OSDI 2022; msr-fiddle/synergy, MIT): language models keep full speed from 1 CPU a GPU on,
models fed from decoded images or audio need 3 or more.
"""

import bisect
import math
from collections.abc import Mapping
from typing import Final

import msgspec

from rlalloc.job import Allocation


class SpeedCurve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measured speed-ups (ascending GPU counts, the first is 1) and the CPUs a GPU needs for full speed."""

    gpus: tuple[int, ...]
    speedup: tuple[float, ...]
    cpus_per_gpu_needed: float

    def at(self, gpus: int, cpus_per_gpu: float) -> float:
        """Speed on ``gpus`` GPUs with ``cpus_per_gpu`` CPUs each, in multiples of one well-fed GPU.

        Between measured counts the curve is linear in log-log; beyond the last it stays flat. Fewer CPUs than
        needed slow it down in proportion.
        """
        return self._gpu_speedup(gpus) * min(1.0, cpus_per_gpu / self.cpus_per_gpu_needed)

    def at_size(self, size: Allocation) -> float:
        """Likewise in a size; without GPUs as on one."""
        return self.at(max(1, size.gpus), size.cpus_per_gpu)

    def _gpu_speedup(self, gpus: int) -> float:
        if gpus >= self.gpus[-1]:
            return self.speedup[-1]
        if gpus < self.gpus[0]:
            return self.speedup[0]
        point = max(1, bisect.bisect_left(self.gpus, gpus))
        low, high = self.gpus[point - 1], self.gpus[point]
        weight = math.log(gpus / low) / math.log(high / low)
        low_speed = self.speedup[point - 1]
        return float(low_speed * (self.speedup[point] / low_speed) ** weight)


CURVES: Final[Mapping[str, SpeedCurve]] = {
    "bert": SpeedCurve((1, 2, 4, 8, 16, 32, 48), (1.0, 2.0, 3.9, 6.95, 11.8, 19.6, 18.7), 1.0),
    "imagenet": SpeedCurve((1, 2, 4, 8, 16, 32, 48), (1.0, 1.96, 3.85, 7.5, 13.5, 14.3, 16.4), 3.0),
    "deepspeech2": SpeedCurve((1, 2, 4, 8, 16, 32), (1.0, 1.9, 3.7, 6.6, 7.5, 8.1), 3.0),
    "cifar10": SpeedCurve((1, 2, 4, 8, 16, 32, 48), (1.0, 1.85, 3.65, 6.1, 8.2, 8.2, 7.0), 3.0),
    "yolov3": SpeedCurve((1, 2, 4, 8, 16, 32), (1.0, 1.8, 2.9, 3.4, 4.1, 3.5), 3.0),
    # As measured up to 32 GPUs, then on with the power of its last doubling there (0.73): a larger global batch.
    "bert-rising": SpeedCurve((1, 2, 4, 8, 16, 32, 16384), (1.0, 2.0, 3.9, 6.95, 11.8, 19.6, 1886.0), 1.0),
    # MLPerf Training v4.0 (mlcommons/training_results_v4.0, Apache-2.0), llama2_70b_lora on H100: times to train at
    # a global batch of 8 (NVIDIA: 8 and 64 GPUs, HPE: 16 over its own 8), of 128 on 1024 GPUs; below 8 in proportion.
    "llama2-lora": SpeedCurve((1, 8, 16, 64, 1024), (1.0, 8.0, 11.7, 42.7, 147.8), 1.0),
    # mosaicml/llm-foundry (Apache-2.0), MPT of 7 billion parameters on H100, sequences of 2048 tokens: tokens a
    # second where the global batch grows with the GPUs; below 8 in proportion.
    "mpt-7b": SpeedCurve((1, 8, 128, 256, 512), (1.0, 8.0, 126.0, 243.4, 465.2), 1.0),
}
PRIOR: Final = CURVES["bert-rising"]
"""What is assumed of an LLM job of which nothing is known yet: whoever asks for many GPUs has work for them."""
