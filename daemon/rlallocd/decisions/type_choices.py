"""Jobs that name no type of GPU, as they are on the nodes of each type that they may get."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rlalloc.devices import ANY_GPU
from rlalloc.job import Allocation
from rlallocd.cluster.node_demands import names_in, open_to
from rlallocd.slurm import JobRecord, NodeRecord
from rlallocd.submissions.candidates import Candidate

_LONGEST_HOST_LIST: Final = 8192
"""Characters: no update of a job is to be much longer than the others."""


def may_get_a_type(candidate: Candidate, now_s: float) -> bool:
    """Whether a job may get one type: it names none and no nodes, and may start as soon as it is let go.

    Tasks of an array start one after the other, each on the GPUs that are free then.
    """
    job = candidate.job
    names_nothing = job.device == ANY_GPU and not job.required_nodes
    return names_nothing and not job.is_array and not candidate.cannot_start_yet(now_s)


def on_each_type(candidate: Candidate, types: Sequence[str], nodes: Sequence[NodeRecord]) -> Mapping[str, Candidate]:
    """The job by type, each time with the nodes left out that have GPUs of other types, up or not."""
    job = candidate.job
    own = names_in(job.excluded_nodes)
    if own is None:
        return {}
    usable = [node for node in open_to(job, nodes) if node.gpus]
    found = {}
    for gpu_type in types:
        others = [node.name for node in usable if node.gpu_types != {gpu_type}]
        excluded = ",".join(sorted({*own, *others}))  # Slurm does not read each folded form
        if len(excluded) <= _LONGEST_HOST_LIST:
            typed = msgspec.structs.replace(job, excluded_nodes=excluded)
            found[gpu_type] = msgspec.structs.replace(candidate, job=typed)
    return found


def as_submitted(job: JobRecord, applied: Allocation) -> JobRecord:
    """The record of a job with a size of ours, without the nodes that it leaves out for a type that we chose."""
    if applied.gpu_type is None:
        return job
    return msgspec.structs.replace(job, excluded_nodes=applied.gpu_type.own_excluded_nodes)
