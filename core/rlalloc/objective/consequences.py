"""What became of jobs, as the terms of an objective need it: the same for real outcomes and for simulated ones."""

from dataclasses import dataclass, fields
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

Watts = Annotated[float, msgspec.Meta(gt=0, le=10_000)]
SCALE_FLOOR_S: Final = 60.0


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """GPUs, CPUs and memory [MiB] of a partition in all; at least one GPU."""

    gpus: float
    cpus: float
    mem_mib: float


class PowerModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Power of one GPU that a job holds [W]: at work, and while it waits for data, for other GPUs or for its CPUs.

    Linear in utilisation, as Fan, Weber and Barroso, ISCA 2007, found for servers. The defaults are an A100 SXM's: at
    work its thermal design power (NVIDIA A100 data sheet); idle, about 60 W and what a CUDA context adds, 26 to 50 W
    (arXiv:2605.23918, measured). GPUs that spin while they wait for each other take more than that.
    """

    gpu_busy_w: Watts = 400.0
    gpu_idle_w: Watts = 100.0

    def energy_j(self, gpu_s: FloatArray, gpu_s_used: FloatArray) -> FloatArray:
        """Joules of GPUs held for ``gpu_s`` GPU-seconds, ``gpu_s_used`` of them at work."""
        used = np.minimum(gpu_s_used, gpu_s)
        return self.gpu_busy_w * used + self.gpu_idle_w * (gpu_s - used)


DEFAULT_POWER: Final = PowerModel()


@dataclass(frozen=True, eq=False)
class Consequences:
    """What became of some jobs: arrays of shape (jobs,); NaN where it is not known.

    serving         1 for a job that answers requests, else 0
    jct_s           from the decision (of a real job) or the submission (of a simulated one) to the end
    wait_s          likewise, to the first start
    others_s        what the other jobs are estimated to wait for it; 0 where they are among these jobs themselves
    reference_s     run time as submitted, as it was expected before the decision
    run_time_s      of all its runs
    slowdown        run time in the size that it got over that in the size that was asked for
    nodes, gpus     that it got
    gpu_s, cpu_s, mem_mib_s   what it held, times seconds
    gpu_s_used, cpu_s_used, mem_mib_s_used   what it made use of; of GPUs, the time that one GPU takes for the work
    user_gpus       other GPUs that its user held meanwhile
    energy_j        as accounted
    out_of_memory, timeout   1 for a job that was killed for that, else 0
    """

    serving: FloatArray
    jct_s: FloatArray
    wait_s: FloatArray
    others_s: FloatArray
    reference_s: FloatArray
    run_time_s: FloatArray
    slowdown: FloatArray
    nodes: FloatArray
    gpus: FloatArray
    gpu_s: FloatArray
    cpu_s: FloatArray
    mem_mib_s: FloatArray
    gpu_s_used: FloatArray
    cpu_s_used: FloatArray
    mem_mib_s_used: FloatArray
    user_gpus: FloatArray
    energy_j: FloatArray
    out_of_memory: FloatArray
    timeout: FloatArray

    @classmethod
    def of_one(cls, **values: float) -> "Consequences":
        """What became of one job, by the names of the fields. Raises TypeError if one is missing or unknown."""
        return cls(**{name: np.array([value], dtype=np.float64) for name, value in values.items()})

    def __len__(self) -> int:
        return len(self.jct_s)

    @property
    def scale_s(self) -> FloatArray:
        """What costs of a job's decision are divided by, known before it: a longer job has more to gain and lose."""
        return SCALE_FLOOR_S + self.reference_s

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> "Consequences":
        """Those of some of the jobs."""
        return Consequences(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})
