"""What runs on each node of a point: starts torchrun and ends it where it takes too much memory or time.

``python -m rlalloc_trainer.profiling.point_launch FOLDER [RENDEZVOUS]``: the folder of the point, and where torchrun
meets the other nodes. Without Slurm's cgroups nothing else holds a point to its memory, so this program does, as
Slurm's OverMemoryKill does: it looks twice a second.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Final

from rlalloc_trainer.profiling.point_files import NodeEnd, PointTask, read_task, write_node_end

_LOOK_EVERY_S: Final = 0.5
_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // 1024
_TERMINATED: Final = 143


def main(folder: Path, rendezvous: str = "") -> int:
    """Run the point on this node; returns the exit status."""
    task = read_task(folder)
    node = int(os.environ.get("SLURM_NODEID", "0")) if rendezvous else 0
    _keep_to_cpus(task)
    torchrun = subprocess.Popen(_command(folder, task, rendezvous), env=_environment(task))
    try:
        end = _watch(torchrun.pid, torchrun, task)
    finally:
        if torchrun.poll() is None:
            _kill(_tree(torchrun.pid))
            torchrun.wait()
    write_node_end(folder, node, end)
    return end.status


def _command(folder: Path, task: PointTask, rendezvous: str) -> list[str]:
    """How torchrun is called. A point on one node looks no name up: not every machine can resolve "localhost"."""
    one_node = ["--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        f"--nnodes={task.size.nodes}",
        f"--nproc-per-node={task.size.gpus // task.size.nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-id={os.environ.get('SLURM_JOB_ID') or os.getpid()}",
        *([f"--rdzv-endpoint={rendezvous}"] if rendezvous else one_node),
        *("-m", "rlalloc_trainer.profiling.measured_steps", str(folder)),
    ]


def _environment(task: PointTask) -> dict[str, str]:
    """What torchrun's processes see: as many threads as a process has CPUs."""
    given = os.environ | {"OMP_NUM_THREADS": str(task.size.cpus_per_gpu), "PYTHONUNBUFFERED": "1"}
    return given | ({"GLOO_SOCKET_IFNAME": "lo"} if task.size.nodes == 1 else {})


def _keep_to_cpus(task: PointTask) -> None:
    """Use as many CPUs as the point has on a node, where this process may use more."""
    allowed = sorted(os.sched_getaffinity(0))
    wanted = task.size.cpus_per_gpu * task.size.gpus // task.size.nodes
    os.sched_setaffinity(0, allowed[: max(1, wanted)])


def _watch(pid: int, torchrun: "subprocess.Popen[bytes]", task: PointTask) -> NodeEnd:
    """Wait for torchrun, and say how it ended. Who started us may be killed: then nobody waits for the point."""
    parent = os.getppid()
    allowed_mib = task.size.mem_mib_per_gpu * task.size.gpus // task.size.nodes
    deadline = time.monotonic() + task.timeout_s
    peak_mib = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return NodeEnd(status=torchrun.wait(_LOOK_EVERY_S), host_mem_mib=peak_mib)
        peak_mib = max(peak_mib, _resident_mib(_tree(pid)))
        if allowed_mib and peak_mib > allowed_mib:
            return NodeEnd(status=1, host_mem_mib=peak_mib, too_much_memory=True)
        if os.getppid() != parent:
            raise SystemExit(_TERMINATED)
        if time.monotonic() > deadline:
            return NodeEnd(status=1, host_mem_mib=peak_mib, too_long=True)


def _tree(root: int) -> list[int]:
    """The ids of a process and of all that descend from it; torchrun's workers have sessions of their own."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name in brackets may hold blanks and brackets.
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _resident_mib(pids: Iterable[int]) -> int:
    """Resident memory; what several processes share counts once, where the kernel says it (PSS)."""
    return sum(map(_resident_kib, pids)) // 1024


def _resident_kib(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_KIB
    return 0


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _told_to_stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _told_to_stop)
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))
