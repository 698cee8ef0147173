"""Between Slurm's record of a pending job and a size in absolute terms."""

import msgspec

from rlalloc.errors import RlallocError
from rlalloc.job import Allocation
from rlallocd.slurm import JobRecord


class Declined(RlallocError):
    """A job that rlalloc leaves as it was submitted; the text says why.

    ``name`` is short and stable (kebab case), for counting: docs/submission-forms.md lists them all.
    """

    def __init__(self, text: str, name: str = "other") -> None:
        super().__init__(text)
        self.name = name


def size_of(job: JobRecord) -> Allocation:
    """The size that a job asks for at this moment. Raises Declined if it is not the same on all its nodes."""
    for what, total in (("tasks", job.tasks), ("GPUs", job.gpus), ("CPUs", job.cpus)):
        if total % job.nodes:
            raise Declined(f"{total} {what} on {job.nodes} nodes: only jobs with equal nodes are resized")
    if job.cpus % job.tasks:
        raise Declined(f"{job.cpus} CPUs for {job.tasks} tasks: only jobs with equal tasks are resized")
    return Allocation(
        nodes=job.nodes,
        gpus_per_node=job.gpus // job.nodes,
        tasks_per_node=job.tasks // job.nodes,
        cpus_per_task=job.cpus // job.tasks,
        mem_mib_per_node=round(job.mem_mib / job.nodes),
        time_limit_s=job.time_limit_s,
    )


def check_form(job: JobRecord) -> None:
    """Raise Declined, by name, for a form of submission that is not resized."""
    reasons = (
        (job.is_array, "a job array"),
        (job.is_heterogeneous, "a heterogeneous job"),
        (not job.is_batch, "not a batch job"),
        (bool(job.required_nodes), "a job that names its nodes"),
        (not job.nodes_certain, "a job whose number of nodes is left to Slurm (say --nodes)"),
        (job.has_deadline, "a job with a deadline"),
        (job.gpus == 0, "a job without GPUs"),
        (job.mem_mib == 0, "a job that asks for all memory of its nodes"),
        (job.time_limit_s == 0, "a job without a time limit"),
    )
    for applies, what in reasons:
        if applies:
            raise Declined(f"{what} runs as submitted")


def differences(job: JobRecord, intended: Allocation) -> tuple[str, ...]:
    """Field by field, where a job read back is not as intended; empty if it is."""
    try:
        actual = size_of(job)
    except Declined as err:
        return (str(err),)
    # Slurm counts time limits in minutes and prints memory with three digits (tres_req_str).
    return tuple(
        f"{field}: {found} instead of {wanted}"
        for field, wanted in msgspec.structs.asdict(intended).items()
        if not _alike(field, found := getattr(actual, field), wanted)
    )


def _alike(field: str, found: int, wanted: int) -> bool:
    if field == "mem_mib_per_node":
        return abs(found - wanted) <= 0.005 * wanted + 1
    if field == "time_limit_s":
        return found // 60 == wanted // 60
    return found == wanted
