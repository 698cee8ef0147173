"""SenseTime's Helios and Shanghai AI Lab's Acme clusters: tables of the same family.

Helios (Hu et al., SC 2021; github.com/S-Lab-System-Group/HeliosData, CC-BY-4.0): cluster_log.csv of Earth, Saturn,
Uranus and Venus. Acme (Hu et al., NSDI 2024; github.com/InternLM/AcmeTrace, CC-BY-4.0): trace_seren.csv and
trace_kalos.csv, the latter with memory. A fork of AcmeTrace converted Kalos' completed jobs for another simulator:
``read_acme_converted``.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rlalloc.job import JobClass
from rlalloc_simulator.workloads.readers.trace_table import Row, read_table
from rlalloc_simulator.workloads.trace_job import TraceJob, TraceState

_COMMON: Final = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "state", "submit_time", "duration")
_STATES: Final[dict[str, TraceState]] = {
    "COMPLETED": "COMPLETED",
    "CANCELLED": "CANCELLED",
    "FAILED": "FAILED",
    "TIMEOUT": "TIMEOUT",
    "NODE_FAIL": "NODE_FAIL",
}
_CLASSES: Final[dict[str, JobClass]] = {"Pretrain": "train", "MLLM": "train", "SFT": "finetune"}
"""Acme's ``type``; Debug, Eval and Other fit none of ours and are drawn."""
_SECONDS_PER_ITERATION: Final = 0.5
_UTC_PLUS_8_S: Final = 8 * 3600.0
"""Both are in China. Seren's times carry this offset, Kalos' none (UTC), Helios' are the wall clock's already."""


def read_helios(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read cluster_log.csv; ``vc``, a virtual cluster, becomes the account. Raises WorkloadError."""
    for path in paths:
        for row in read_table(path, (*_COMMON, "vc")):
            if row.text("state") != "SUSPENDED":  # one job in Uranus, which the authors ignore too
                yield _job(row, account=row.text("vc"))


def read_acme(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read trace_seren.csv or trace_kalos.csv. Raises WorkloadError."""
    for path in paths:
        for row in read_table(path, (*_COMMON, "type")):
            mem_gib = row.optional("mem_per_pod_GB")
            yield _job(
                row,
                name=row.text("type"),
                job_class=_CLASSES.get(row.text("type")),
                mem_mib=mem_gib * 1024 * max(1, row.count("node_num")) if mem_gib else None,
            )


def read_acme_converted(paths: Sequence[Path]) -> Iterator[TraceJob]:
    """Read converted_kalos_trace.csv: arrival [s], iterations of 0.5 s, workers and GPUs and CPUs of each.

    A worker is a pod, and pods are whole nodes or parts of one: it is read as a node. Raises WorkloadError.
    """
    needed = ("job_id", "arrival_time", "num_iteration", "gpu_workers", "gpu_per_worker", "cpu_per_gpu_worker")
    for path in paths:
        for row in read_table(path, needed):
            workers, per_worker = row.count("gpu_workers"), row.count("gpu_per_worker")
            yield TraceJob(
                key=row.text("job_id"),
                submit_s=row.number("arrival_time"),
                gpus=workers * per_worker,
                nodes=workers,
                cpus=row.number("cpu_per_gpu_worker") * workers * per_worker,
                elapsed_s=row.number("num_iteration") * _SECONDS_PER_ITERATION,
            )


def _job(
    row: Row,
    *,
    account: str = "",
    name: str = "",
    job_class: JobClass | None = None,
    mem_mib: float | None = None,
) -> TraceJob:
    state = _STATES.get(row.text("state"))
    if state is None:
        raise row.error("state", ", ".join(_STATES))
    # A job that was cancelled in the queue has no start.
    never_ran = state == "CANCELLED" and "start_time" in row and not row.text("start_time")
    submit_s = row.time("submit_time", _UTC_PLUS_8_S)
    end_s = row.optional_time("end_time", _UTC_PLUS_8_S)
    return TraceJob(
        key=row.text("job_id"),
        submit_s=submit_s,
        gpus=row.count("gpu_num"),
        elapsed_s=0.0 if never_ran else row.number("duration"),
        state=state,
        ended_pending_s=max(0.0, (end_s or submit_s) - submit_s) if never_ran else None,
        user=row.text("user"),
        account=account,
        name=name,
        job_class=job_class,
        nodes=max(1, row.count("node_num")),
        cpus=row.optional("cpu_num") or None,
        mem_mib=mem_mib,
    )
