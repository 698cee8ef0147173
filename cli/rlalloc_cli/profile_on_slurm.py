"""Runs the points of a profile as Slurm jobs, one job a point."""

import re
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.errors import ProfileError
from rlalloc.speed.profile_file import Device, ProfilePoint, Size
from rlalloc_trainer.profiling.point_files import LOG, PointTask, has_ended, is_for, point_of, write_task
from rlalloc_trainer.profiling.profile_session import DoesNotFit
from rlallocd.slurm import ENDED, BatchJobs, BatchState, SlurmError, SlurmUnavailable, UpdateRefused

JOB_NAME: Final = "rlalloc-profile"
_JOB: Final = "job"
_SCRIPT: Final = "job.sh"
_LOOK_EVERY_S: Final = 2.0
_FILES_WITHIN_S: Final = 20.0
"""A shared file system may show a job's last files later than squeue shows its end."""
_TOO_LARGE: Final = (
    "Requested node configuration is not available",
    "CPU count per node can not be satisfied",
    "Memory specification can not be satisfied",
    "Node count specification invalid",
    "More processors requested than permitted",
    "Job violates accounting/QOS policy",
    "Requested time limit is invalid",
    "exceeds",
)
"""What sbatch says of a job that is too large for the site, rather than wrong."""
_NEVER: Final = re.compile(
    r"PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|BadConstraints|MaxMemPerLimit|(Assoc|QOS)Max\w+Per(Job|Node)\w*"
)
"""Reasons to wait that do not go away; sbatch itself refuses such jobs only where EnforcePartLimits says so."""


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs are submitted. ``sbatch`` are further options of sbatch, as they are typed."""

    device: Device
    gpu_type: str
    minutes: int
    at_once: int
    sbatch: tuple[str, ...]


class SlurmPoints:
    """Submits a job for each point, follows it, and reads what it left in the point's folder."""

    def __init__(self, jobs: BatchJobs, options: SlurmOptions) -> None:
        self.at_once = options.at_once
        self._jobs = jobs
        self._options = options
        self._ids: dict[Path, int] = {}
        self._states: dict[int, BatchState] = {}
        self._gone_since: dict[int, float] = {}
        self._away = ""

    def start(self, folder: Path, task: PointTask) -> None:
        """Submit a job, or follow that of an earlier call. Raises DoesNotFit, ProfileError, SlurmError."""
        earlier = _noted_job(folder)
        if earlier is not None and is_for(folder, task):
            states = self._jobs.states([earlier])
            if has_ended(folder, task.size) or (earlier in states and states[earlier].state not in ENDED):
                self._ids[folder] = earlier
                return
        write_task(folder, task)
        script = folder / _SCRIPT
        script.write_text(script_of(folder, task.size), encoding="utf-8")
        try:
            job_id = self._jobs.submit(script, sbatch_options(folder, task.size, self._options))
        except UpdateRefused as err:
            shutil.rmtree(folder, ignore_errors=True)
            if any(words in str(err) for words in _TOO_LARGE):
                raise DoesNotFit(str(err)) from err
            raise ProfileError(f"{err}; --sbatch passes options such as --partition=NAME to sbatch") from err
        self._ids[folder] = job_id
        (folder / _JOB).write_text(str(job_id), encoding="utf-8")

    def ended(self, folder: Path, size: Size) -> ProfilePoint | None:
        """What came of a point; None as long as its job waits or runs, or its files are on their way."""
        job_id = self._ids[folder]
        state = self._states.get(job_id)
        if state is None and not has_ended(folder, size):
            return None  # not looked at yet
        if state is not None and state.state == "PENDING" and _NEVER.fullmatch(state.reason):
            self._jobs.cancel([job_id])
            del self._ids[folder]
            return ProfilePoint(size=size, outcome="does-not-fit", why=f"Slurm does not start it: {state.reason}")
        if state is not None and state.state not in ENDED:
            return None
        ended = "" if state is None or state.state == "COMPLETED" else state.state
        since_s = self._gone_since.setdefault(job_id, time.monotonic())
        if not ended and not has_ended(folder, size) and time.monotonic() - since_s < _FILES_WITHIN_S:
            return None
        del self._ids[folder]
        return point_of(folder, size, ended)

    def describe(self) -> str:
        """How many jobs are in which state, and why those that wait do."""
        if self._away:
            return self._away
        states = [self._states.get(job_id, BatchState("PENDING", "")) for job_id in self._ids.values()]
        counted = Counter(
            f"{state.state.lower()} ({state.reason})" if state.reason not in ("", "None") else state.state.lower()
            for state in states
        )
        return f"Slurm jobs: {', '.join(f'{count} {name}' for name, count in sorted(counted.items())) or 'none'}"

    def pause(self) -> None:
        """Wait, then ask squeue once for all jobs. One that slurmctld no longer knows has ended."""
        time.sleep(_LOOK_EVERY_S)
        try:
            known = self._jobs.states(self._ids.values())
        except SlurmUnavailable as err:
            self._away = str(err)  # the jobs run on without slurmctld
            return
        self._away = ""
        self._states = {job_id: known.get(job_id, _COMPLETED) for job_id in self._ids.values()}

    def cancel(self) -> None:
        """Cancel the jobs that have not ended, and forget their folders."""
        try:
            self._jobs.cancel(self._ids.values())
        except SlurmError as err:
            raise ProfileError(
                f"cannot cancel the jobs {', '.join(map(str, self._ids.values()))}: {err}; run scancel"
            ) from err
        for folder in self._ids:
            shutil.rmtree(folder, ignore_errors=True)
        self._ids.clear()


_COMPLETED: Final = BatchState("COMPLETED", "None")


def script_of(folder: Path, size: Size) -> str:
    """The batch script of a point: a task a node, each of which starts torchrun. rlalloc is not to resize it."""
    cpus = size.cpus_per_gpu * size.gpus // size.nodes
    words = [
        *("srun", f"--ntasks={size.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}", "--kill-on-bad-exit=1"),
        *(sys.executable, "-m", "rlalloc_trainer.profiling.point_launch", str(folder)),
    ]
    first_node = 'first_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
    rendezvous = ' "$first_node:$((20000 + SLURM_JOB_ID % 20000))"'
    several = size.nodes > 1
    return (
        f"#!/bin/bash\n#RLALLOC off\n"
        f"{first_node if several else ''}exec {shlex.join(words)}{rendezvous if several else ''}\n"
    )


def sbatch_options(folder: Path, size: Size, options: SlurmOptions) -> Sequence[str]:
    """The options of sbatch for a point; those of the user come last and count."""
    per_node = size.gpus // size.nodes
    gpu = f"gpu:{options.gpu_type}" if options.gpu_type else "gpu"
    return [
        f"--job-name={JOB_NAME}",
        f"--nodes={size.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={size.cpus_per_gpu * per_node}",
        *([f"--gres={gpu}:{per_node}"] if options.device == "cuda" else []),
        *([f"--mem={size.mem_mib_per_gpu * per_node}M"] if size.mem_mib_per_gpu else []),
        f"--time={options.minutes + 2}",
        "--no-requeue",
        f"--output={str(folder / LOG).replace('%', '%%')}",
        *options.sbatch,
    ]


def _noted_job(folder: Path) -> int | None:
    try:
        text = (folder / _JOB).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
