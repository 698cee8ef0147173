"""Readers of published traces and of sacct's output: files in, ``TraceJob``s out. One registry for the command."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc_simulator.workloads.assumptions import Assumptions, EndRates
from rlalloc_simulator.workloads.readers.alibaba import read_gpu2023, read_pai
from rlalloc_simulator.workloads.readers.helios import read_acme, read_acme_converted, read_helios
from rlalloc_simulator.workloads.readers.philly import read_philly, read_philly_csv
from rlalloc_simulator.workloads.readers.sacct_log import read_sacct, read_sacct_json
from rlalloc_simulator.workloads.readers.swf import read_swf
from rlalloc_simulator.workloads.trace_job import TraceJob


class TraceFormat(msgspec.Struct, frozen=True):
    """A format: how it is read, and what is assumed of its cluster.

    A trace that begins before ``clock_from_s`` counts its seconds from nobody knows when.
    """

    read: Callable[[Sequence[Path]], Iterator[TraceJob]]
    source: str
    assumptions: Assumptions = Assumptions()
    clock_from_s: float = 0.0

    def time_zero_s(self, first_s: float) -> float | None:
        """The workload's time zero, where the trace knows it."""
        return first_s if first_s >= self.clock_from_s else None


_NO_CLOCK: Final = float("inf")
_1980_S: Final = 315532800.0
"""SWF logs count from their own start, which only a header comment may give."""
_KALOS: Final = NodeShape(gpus=8, cpus=128, mem_mib=2_048_000)
FORMATS: Final[Mapping[str, TraceFormat]] = {
    "sacct": TraceFormat(read_sacct, "sacct --parsable2 of a Slurm site"),
    "sacct-json": TraceFormat(read_sacct_json, "sacct --json of a Slurm site"),
    "swf": TraceFormat(read_swf, "Standard Workload Format 2.2, Parallel Workloads Archive", clock_from_s=_1980_S),
    "philly": TraceFormat(read_philly, "Philly, cluster_job_log (msr-fiddle/philly-traces, CC-BY-4.0)"),
    "philly-csv": TraceFormat(
        read_philly_csv,
        "Philly as prepared in petuum/adaptdl (branch osdi21-artifact); Philly traces, CC-BY-4.0",
        # Shares of Philly's jobs that failed and were killed: AcmeTrace's cluster_summary.csv (NSDI 2024).
        Assumptions(ends=EndRates(failed=0.305, cancelled=0.090)),
    ),
    "helios": TraceFormat(
        read_helios,
        "Helios, cluster_log.csv (S-Lab-System-Group/HeliosData, CC-BY-4.0)",
        Assumptions(shape=NodeShape(gpus=8, cpus=64, mem_mib=256_000)),
    ),
    "acme": TraceFormat(read_acme, "Seren or Kalos (InternLM/AcmeTrace, CC-BY-4.0)", Assumptions(shape=_KALOS)),
    "acme-converted": TraceFormat(
        read_acme_converted,
        "completed jobs of Kalos as converted in a fork of InternLM/AcmeTrace, CC-BY-4.0",
        # All of its jobs completed. Kalos' own shares of jobs, and of GPU time for the factors: a cancelled job took
        # (0.607 / 0.062) / (0.313 / 0.541) = 17 times what a completed one did (AcmeTrace's cluster_summary.csv).
        Assumptions(
            shape=_KALOS,
            ends=EndRates(failed=0.397, cancelled=0.062, failed_time_factor=0.35, cancelled_time_factor=17.0),
        ),
        clock_from_s=_NO_CLOCK,
    ),
    "pai": TraceFormat(
        read_pai,
        "Alibaba PAI, cluster-trace-gpu-v2020 (alibaba/clusterdata)",
        Assumptions(shape=NodeShape(gpus=8, cpus=96, mem_mib=512_000)),
    ),
    "gpu-v2023": TraceFormat(
        read_gpu2023,
        "Alibaba openb, cluster-trace-gpu-v2023 (alibaba/clusterdata)",
        Assumptions(shape=NodeShape(gpus=8, cpus=96, mem_mib=786_432)),
        clock_from_s=_NO_CLOCK,
    ),
}

__all__ = ["FORMATS", "TraceFormat"]
