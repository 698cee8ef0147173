"""Runs points on this machine, one after another."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.counted import counted
from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Device, ProfilePoint, Size
from rlalloc_trainer.profiling.point_files import LOG, PointTask, point_of, write_task
from rlalloc_trainer.profiling.profile_session import DoesNotFit

_LOOK_EVERY_S: Final = 0.2
_END_WITHIN_S: Final = 10.0
_ASK_TORCH: Final = """
import torch
gpus = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
print(len(gpus), min((gpu.total_memory for gpu in gpus), default=0) / 2**30)
"""


class Machine(msgspec.Struct, frozen=True):
    """What this machine has: GPUs, GiB of memory of the smallest, CPUs that we may use, MiB of memory."""

    gpus: int
    gpu_memory_gib: float
    cpus: int
    mem_mib: int


def this_machine(*, with_gpus: bool) -> Machine:
    """Ask the system; with GPUs, also torch, which takes seconds in a process of its own. Raises ProfileError."""
    gpus, gpu_memory_gib = _gpus() if with_gpus else (0, 0.0)
    total = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    return Machine(gpus, gpu_memory_gib, len(os.sched_getaffinity(0)), int(total[1]) // 1024 if total else 1 << 40)


def _gpus() -> tuple[int, float]:
    """The number of GPUs, and the GiB of the smallest one. Raises ProfileError."""
    asked = subprocess.run([sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, check=False)
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["no word"])[-1]
        raise ProfileError(f"torch does not work in {sys.executable}: {said}; pip install 'rlalloc[trainer]'")
    gpus, gib = asked.stdout.split()
    return int(gpus), float(gib)


class LocalPoints:
    """Runs ``point_launch`` on this machine for each point."""

    at_once = 1

    def __init__(self, machine: Machine, device: Device) -> None:
        self._machine = machine
        self._device = device
        self._launched: subprocess.Popen[bytes] | None = None
        self._says = ""

    def start(self, folder: Path, task: PointTask) -> None:
        """Begin a point. Raises DoesNotFit, ProfileError."""
        self._check(task.size)
        write_task(folder, task)
        self._says = f"measures {task.size.describe()}"
        with (folder / LOG).open("wb") as log:
            self._launched = subprocess.Popen(
                [sys.executable, "-m", "rlalloc_trainer.profiling.point_launch", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end it
            )

    def ended(self, folder: Path, size: Size) -> ProfilePoint | None:
        """What came of the point; None as long as it runs."""
        if self._launched is None or self._launched.poll() is None:
            return None
        self._launched = None
        return point_of(folder, size)

    def describe(self) -> str:
        """The size that is measured."""
        return self._says

    def pause(self) -> None:
        """Wait a moment, or until the point has ended."""
        if self._launched is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._launched.wait(_LOOK_EVERY_S)

    def cancel(self) -> None:
        """End the point with all its processes."""
        launched, self._launched = self._launched, None
        if launched is None or launched.poll() is not None:
            return
        launched.send_signal(signal.SIGTERM)  # it ends what it has started
        try:
            launched.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(launched.pid, signal.SIGKILL)
            launched.wait()

    def _check(self, size: Size) -> None:
        machine = self._machine
        if size.nodes > 1:
            raise DoesNotFit(f"{size.nodes} nodes: this is one; use --slurm")
        if self._device == "cuda" and size.gpus > machine.gpus:
            raise DoesNotFit(f"{counted(size.gpus, 'GPU')}: this machine has {machine.gpus}")
        if size.gpus * size.cpus_per_gpu > machine.cpus:
            raise DoesNotFit(f"{size.gpus * size.cpus_per_gpu} CPUs: this process may use {machine.cpus}")
        if size.gpus * size.mem_mib_per_gpu > machine.mem_mib:
            raise DoesNotFit(f"{size.gpus * size.mem_mib_per_gpu} MiB: this machine has {machine.mem_mib}")
