"""Streams of jobs: one plain file that the simulator, the demo's real site and the benchmarks take.

``file`` reads and writes it, ``readers`` turn published traces and sacct's output into it, ``fit`` and ``generate``
learn a small model of a stream and draw new ones from it, ``sbatch`` makes scripts for a real site.
"""

from rlalloc_trainer.streams.errors import StreamError
from rlalloc_trainer.streams.file import open_stream, read_stream, write_stream
from rlalloc_trainer.streams.job import (
    Checkpoint,
    ClusterDescription,
    Dependency,
    End,
    Header,
    Needs,
    NodeGroup,
    Partition,
    Request,
    Speed,
    StreamJob,
)

__all__ = [
    "Checkpoint",
    "ClusterDescription",
    "Dependency",
    "End",
    "Header",
    "Needs",
    "NodeGroup",
    "Partition",
    "Request",
    "Speed",
    "StreamError",
    "StreamJob",
    "open_stream",
    "read_stream",
    "write_stream",
]
