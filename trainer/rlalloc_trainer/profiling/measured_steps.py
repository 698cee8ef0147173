"""What torchrun starts for each process of a point: trains for a few steps and measures. Run by ``point_launch``."""

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Conditions
from rlalloc_trainer.profiling.point_files import PointTask, Speeds, read_task, write_gpu_full, write_speeds
from rlalloc_trainer.profiling.profiled_gpt import ProfiledGpt
from rlalloc_trainer.profiling.token_windows import TokenWindows

_BLOCKS: Final = 5
"""The scatter of a point's speed is estimated from so many parts of it: neighbouring steps are alike."""
_LEARNING_RATE: Final = 1e-4
_MIB: Final = 1 << 20
_GPU_IS_FULL: Final = re.compile(r"(?i)out of memory|CUBLAS_STATUS_ALLOC_FAILED")
"""PyTorch's allocator raises OutOfMemoryError; CUDA, cuBLAS and NCCL have their own words in other errors."""
_BESIDE_PYTORCH_MIB: Final = 4096
"""A process's CUDA context, kernels and NCCL buffers took 1.2 GiB on an H100: what goes beyond this is others'."""


def main(folder: Path) -> int:
    """Measure; returns the exit status."""
    task = read_task(folder)
    on_gpu = task.conditions.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    try:
        if on_gpu:
            torch.cuda.set_device(device)
        dist.init_process_group(task.conditions.backend)
        speeds = measure(task, device)
    except RuntimeError as err:
        if not _GPU_IS_FULL.search(str(err)):
            raise
        _check_that_it_was_free(device)
        write_gpu_full(folder, str(err).splitlines()[0])
        return 1
    if dist.get_rank() == 0:
        write_speeds(folder, speeds)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def _check_that_it_was_free(device: torch.device) -> None:
    """Raise ProfileError if others hold the GPU's memory: the point then says nothing, and is worth another try."""
    if device.type != "cuda":
        return
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError as err:
        raise ProfileError("CUDA cannot start: other processes hold the GPU's memory; use a free GPU") from err
    others_mib = (total - free - torch.cuda.memory_reserved(device)) // _MIB
    if others_mib > _BESIDE_PYTORCH_MIB:
        raise ProfileError(f"other processes hold {others_mib} MiB of the GPU's memory; use a free GPU")


def measure(task: PointTask, device: torch.device) -> Speeds:
    """Train as the task says and return the speeds, which all processes know."""
    conditions, world = task.conditions, dist.get_world_size()
    micro_batch, micro_steps = batch_of_process(conditions, world)
    torch.manual_seed(dist.get_rank())
    with device:  # in the host's memory, a large model takes a minute to begin, and host_mem_mib would be its weights
        gpt = ProfiledGpt(conditions.model, conditions.sequence)
    model = DistributedDataParallel(gpt, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE)
    batches = _batches(task, micro_batch, micro_steps)
    took, waited = [], []
    for _ in range(conditions.warmup_steps + conditions.steps):
        began = time.perf_counter()
        waited.append(_train_step(model, optimizer, batches, micro_steps, device, conditions))
        took.append(time.perf_counter() - began)
    return _speeds(
        conditions, np.array(took[conditions.warmup_steps :]), np.array(waited[conditions.warmup_steps :]), device
    )


def batch_of_process(conditions: Conditions, world: int) -> tuple[int, int]:
    """Sequences of one pass, and passes of one step, for each of ``world`` processes: the global batch stays."""
    local = conditions.global_batch // world
    micro = max(size for size in range(1, min(local, conditions.micro_batch) + 1) if local % size == 0)
    return micro, local // micro


def _batches(task: PointTask, micro_batch: int, micro_steps: int) -> Iterator[Tensor]:
    conditions, size = task.conditions, task.size
    passes = (conditions.warmup_steps + conditions.steps) * micro_steps + 1
    windows = TokenWindows(
        Path(task.text),
        conditions.sequence,
        conditions.model.vocabulary,
        passes * micro_batch * dist.get_world_size(),
    )
    mine = range(dist.get_rank(), len(windows), dist.get_world_size())
    return iter(
        DataLoader(
            torch.utils.data.Subset(windows, mine),
            batch_size=micro_batch,
            num_workers=conditions.loader_workers or size.cpus_per_gpu,
            pin_memory=conditions.device == "cuda",
        )
    )


def _train_step(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Tensor],
    micro_steps: int,
    device: torch.device,
    conditions: Conditions,
) -> float:
    """Forward, backward, AdamW; returns the seconds in which nothing was computed because of the data loader."""
    stalls = Stalls(device)
    for number in range(micro_steps):
        batch = stalls.next(batches)
        gradients_stay_here = model.no_sync() if number < micro_steps - 1 else contextlib.nullcontext()
        in_16_bits = torch.autocast(device.type, torch.bfloat16, enabled=conditions.precision == "bfloat16")
        with gradients_stay_here:
            with in_16_bits:
                loss = model(batch.to(device, non_blocking=True))
            torch.autograd.backward(loss / micro_steps)
    optimizer.step()
    optimizer.zero_grad()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return stalls.seconds()


class Stalls:
    """Counts the seconds of a step in which the device had nothing to do because the next batch was not there.

    A GPU still computes while its process waits for a batch. Two events in its queue tell when it had done all that
    was queued, and when the batch was there.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._waited = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def next(self, batches: Iterator[Tensor]) -> Tensor:
        """The next batch."""
        if not self._on_gpu:
            began = time.perf_counter()
            batch = next(batches)
            self._waited += time.perf_counter() - began
            return batch
        idle, ready = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        idle.record()
        batch = next(batches)
        ready.record()
        self._events.append((idle, ready))
        return batch

    def seconds(self) -> float:
        """All of them; the device must have done all that was queued."""
        return self._waited + sum(float(idle.elapsed_time(ready)) for idle, ready in self._events) / 1e3


def _speeds(conditions: Conditions, took: np.ndarray, waited: np.ndarray, device: torch.device) -> Speeds:
    """The longest stall and the fullest GPU count; steps take equally long everywhere."""
    on_gpu = device.type == "cuda"
    reserved = torch.cuda.max_memory_reserved(device) if on_gpu else 0
    worst = torch.tensor([waited.sum() / took.sum(), reserved / _MIB], dtype=torch.float64, device=device)
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    blocks = np.array([part.mean() for part in np.array_split(took, min(_BLOCKS, len(took)))])
    scatter = float(blocks.std(ddof=1) / blocks.mean() / len(blocks) ** 0.5) if len(blocks) > 1 else 0.0
    return Speeds(
        tokens_per_s=conditions.global_batch * conditions.sequence * len(took) / float(took.sum()),
        step_s=float(np.median(took)),
        step_p90_s=float(np.quantile(took, 0.9)),
        noise=min(10.0, scatter),
        stalled=min(1.0, float(worst[0])),
        gpu_mem_mib=round(float(worst[1])),
        accelerator=torch.cuda.get_device_name(device) if on_gpu else _cpu_model(),
    )


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "CPU"


if __name__ == "__main__":
    status = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo's threads outlive the process group. One that still drops a tensor while the interpreter ends aborts the
    # process (pytorch/pytorch#190489), and a point that was measured fails: end without the interpreter's clean-up.
    os._exit(status)
