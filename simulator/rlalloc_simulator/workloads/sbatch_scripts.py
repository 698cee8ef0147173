"""A workload as sbatch scripts for a real site: jobs that sleep as long as they would run, time compressed.

A script looks at the size that it got (SLURM_JOB_NUM_NODES, SLURM_GPUS_ON_NODE, SLURM_CPUS_ON_NODE are those of the
allocation, also after rlalloc changed it) and sleeps as its speed model says for that size. What sleeping cannot
show: memory is not used, so that nothing runs out of it; a job that is requeued starts from nothing; Slurm counts
time limits in whole minutes, at least one.
"""

import math
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import Header, WorkloadJob

KEPT: Final = ("account", "partition", "qos")
"""Names that the other site need not know: left out unless asked for."""


class ScriptSettings(msgspec.Struct, frozen=True):
    """``compression`` seconds of the workload become one; ``keep`` lists which of KEPT go into the scripts."""

    compression: float = 60.0
    keep: tuple[str, ...] = ()


def write_scripts(folder: Path, header: Header, jobs: Iterable[WorkloadJob], settings: ScriptSettings) -> int:
    """Write ``job-N.sh`` for each job, ``submissions`` and ``submit.sh``; return the number of jobs.

    Raises WorkloadError if the folder is in use or ``keep`` names something else.
    """
    unknown = set(settings.keep) - set(KEPT)
    if unknown:
        raise WorkloadError(f"--keep {min(unknown)}: write one of {', '.join(KEPT)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise WorkloadError(f"{folder} is not empty: name a new folder")
        count = 0
        with (folder / "submissions").open("w") as submissions:
            for job in jobs:
                count += 1
                (folder / f"job-{job.id}.sh").write_text(script_of(job, node_shape(header, job), settings))
                submissions.write(submission_of(job, settings) + "\n")
        submit = folder / "submit.sh"
        submit.write_bytes((resources.files("rlalloc_simulator.workloads") / "submit.sh").read_bytes())
        submit.chmod(0o755)
    except OSError as err:
        raise WorkloadError(f"{folder}: {err.strerror}; name a folder that you may write to") from err
    return count


def node_shape(header: Header, job: WorkloadJob) -> NodeShape:
    """The largest kind of node that the header describes; else what the job itself asks for."""
    if header.cluster is not None:
        return max((group.shape for group in header.cluster.nodes), key=lambda shape: shape.gpus)
    request = job.request
    return NodeShape(gpus=request.gpus_per_node, cpus=request.cpus_per_node, mem_mib=request.mem_mib_per_node)


def submission_of(job: WorkloadJob, settings: ScriptSettings) -> str:
    """One line of ``submissions``; submit.sh says what stands in it."""
    dependency = ",".join(f"{one.kind}:{one.job}" for one in job.dependency) or "-"
    cancel = _milliseconds(job.end.after_s, settings) if job.end.while_pending else "-"
    return f"{_milliseconds(job.submit_s, settings)} {job.id} {dependency} {cancel}"


def script_of(job: WorkloadJob, shape: NodeShape, settings: ScriptSettings) -> str:
    """The batch script of one job."""
    return "\n".join(
        (
            "#!/bin/sh",
            *(f"#SBATCH --{option}" for option in _options(job, settings)),
            *((f"#RLALLOC {job.directives}",) if job.directives else ()),
            *_size_cases(job, shape, settings),
            *_ending(job, settings),
            "",
        )
    )


def _options(job: WorkloadJob, settings: ScriptSettings) -> Iterable[str]:
    request = job.request
    yield f"job-name={job.name or f'workload-{job.id}'}"
    yield f"nodes={request.nodes}"
    yield f"ntasks-per-node={request.tasks_per_node}"
    yield f"cpus-per-task={request.cpus_per_task}"
    yield f"mem={request.mem_mib_per_node}M"
    if request.gpus_per_node:
        count = f"{f'{request.gpu_type}:' if request.gpu_type else ''}{request.gpus_per_node}"
        yield f"gres=shard:{count}" if request.shards else f"gpus-per-node={count}"
    if request.constraint:
        yield f"constraint={request.constraint}"
    if request.sockets_per_node:
        yield f"sockets-per-node={request.sockets_per_node}"
    if request.cores_per_socket:
        yield f"cores-per-socket={request.cores_per_socket}"
    if request.near_gpus:
        yield "gres-flags=enforce-binding"
    yield f"time={max(1, math.ceil(request.time_limit_s / settings.compression / 60))}"
    yield "output=/dev/null"
    for name in KEPT:
        value = getattr(job, name)
        if value and name in settings.keep:
            yield f"{name}={value}"
    if job.nice:
        yield f"nice={job.nice}"


def _size_cases(job: WorkloadJob, shape: NodeShape, settings: ScriptSettings) -> Iterable[str]:
    """Set ``run_ms``: by the GPUs of all nodes, longer in proportion where CPUs are fewer than needed."""
    curve = job.speed_curve
    request = job.request.allocation
    fed = curve.cpus_per_gpu_needed
    work_s = job.needs.run_time_s * curve.at_size(request)
    counts = job.bounds(shape).gpu_counts if request.gpus else ()
    as_requested = _milliseconds(work_s / curve.at(max(1, request.gpus), fed), settings)
    yield "gpus_on_node=${SLURM_GPUS_ON_NODE:-0}"
    yield "case $((SLURM_JOB_NUM_NODES * gpus_on_node)) in"
    for count in counts:
        yield f"{count}) run_ms={_milliseconds(work_s / curve.at(count, fed), settings)} ;;"
    yield f"*) run_ms={as_requested} ;;"
    yield "esac"
    yield 'if [ "$gpus_on_node" -eq 0 ]; then gpus_on_node=1; fi'
    yield "milli_cpus_per_gpu=$((SLURM_CPUS_ON_NODE * 1000 / gpus_on_node))"
    needed = max(1, round(1000 * fed))
    yield f'if [ "$milli_cpus_per_gpu" -lt {needed} ]; then'
    yield f"    run_ms=$((run_ms * {needed} / milli_cpus_per_gpu))"
    yield "fi"


def _ending(job: WorkloadJob, settings: ScriptSettings) -> Iterable[str]:
    """Sleep, then end as the workload says."""
    sleep = 'sleep "$(printf "%d.%03d" $((run_ms / 1000)) $((run_ms % 1000)))"'
    if job.end.state == "FAILED" and job.end.after_s is not None:
        done = min(1.0, job.end.after_s / job.needs.run_time_s)
        yield f"run_ms=$((run_ms * {round(done * 1_000_000)} / 1000000))"
        yield sleep
        yield "exit 1"
    elif job.end.state == "CANCELLED" and not job.end.while_pending:
        cancel_ms = _milliseconds(job.end.after_s, settings)
        yield f'if [ "$run_ms" -le {cancel_ms} ]; then'
        yield f"    {sleep}"
        yield "    exit 0"
        yield "fi"
        yield f"run_ms={cancel_ms}"
        yield sleep
        yield 'scancel "$SLURM_JOB_ID"'
        yield "sleep 60"
    else:
        yield sleep


def _milliseconds(seconds: float | None, settings: ScriptSettings) -> int:
    return max(0, round((seconds or 0.0) * 1000 / settings.compression))
