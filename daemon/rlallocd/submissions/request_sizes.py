"""Between Slurm's record of a pending job and a size in absolute terms. Pure functions."""

import functools
import math
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from rlalloc.bounds import NodeShape
from rlalloc.constraint import is_simple
from rlalloc.errors import RlallocError
from rlalloc.job import Allocation
from rlalloc.tres import MOST
from rlallocd.slurm import JobRecord

_MOST_NODES_TRIED: Final = 1024
_TYPED_GPU: Final = re.compile(r"(?:gpu|shard)[:/]([^:=]*[^:=0-9][^:=]*)")


class Skipped(RlallocError):
    """A job that rlalloc leaves as submitted; the text says why.

    ``name`` is short and stable (kebab case), for counting: docs/reference/messages.md lists them all.
    """

    def __init__(self, text: str, name: str = "other") -> None:
        super().__init__(text)
        self.name = name


def size_of(job: JobRecord, nodes: int | None = None) -> Allocation:
    """The size that a job requests now, on ``nodes`` nodes or else the fewest that it accepts.

    Raises Skipped if it is not the same on all its nodes.
    """
    asked = job.fields
    if not asked.reported:
        return _size_of_totals(job)
    nodes = nodes or asked.min_nodes
    gpus_per_node = _gpus_per_node(job, nodes)
    tasks_per_node = _even(job.tasks, nodes, "tasks")
    cpus_per_task = _cpus_per_task(job, gpus_per_node, tasks_per_node)
    mem_mib_per_node = _mem_mib_per_node(job, gpus_per_node, tasks_per_node * cpus_per_task)
    if max(gpus_per_node, tasks_per_node, cpus_per_task, mem_mib_per_node) >= MOST:
        raise Skipped("no node has as much as it asks for", "too-large")
    return Allocation(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        tasks_per_node=tasks_per_node,
        cpus_per_task=cpus_per_task,
        mem_mib_per_node=mem_mib_per_node,
        time_limit_s=job.time_limit_s,
    )


def size_on(job: JobRecord, shape: NodeShape) -> Allocation:
    """The size that a job asks for, on the fewest nodes of ``shape`` that hold it.

    Raises Skipped if no number of nodes that the job accepts holds it, or its nodes would differ.
    """
    asked = job.fields
    first = size_of_smallest = None
    least = asked.min_nodes or job.nodes
    for nodes in range(least, min(asked.max_nodes or job.fields.gpus_per_job or least, _MOST_NODES_TRIED) + 1):
        try:
            size = size_of(job, nodes)
        except Skipped as err:
            first = first or err
            continue
        if fits_on(size, shape):
            return size
        size_of_smallest = size_of_smallest or size
    if size_of_smallest is not None:
        nodes_for_it = f"no node of its partition{job.needs.which_nodes}"
        raise Skipped(f"{nodes_for_it} holds {size_of_smallest.describe()}", "too-large")
    raise first or Skipped("no number of nodes fits its request", "too-large")


FORMS_SKIPPED: Final[Mapping[str, str]] = {
    "request-unread": "a job of which scontrol does not show what it asks for",
    "heterogeneous": "a heterogeneous job: a half-updated one stalls its partition",
    "interactive": "a job without a script: its srun or salloc keeps its own idea of the size",
    "scrontab": "a scrontab job: Slurm lets nobody update it",
    "federation": "a job that other clusters of its federation may run, too",
    "multi-cluster": "a job submitted with --clusters: this cluster was chosen for it in the size that it asks for",
    "reservation": "a job in a reservation, which fixes size and time by itself",
    "deadline": "a job with a deadline: waiting could cost it",
    "time-min": "a job whose time limit Slurm may shorten (--time-min)",
    "closed-partition": "a job that names a partition closed to its user: this Slurm may refuse all updates of it",
    "exclusive-force": "an exclusive job in a partition with OverSubscribe=FORCE: Slurm does not show that it is one",
    "arbitrary": "a job whose tasks follow a list of nodes (--distribution=arbitrary)",
    "ntasks-per-gpu": "a job with --ntasks-per-gpu: any update leaves it with one task in this version of Slurm",
    "split-array": "an array of which some tasks are queued as jobs of their own",
    "no-gpus": "a job without GPUs",
    "no-time-limit": "a job without a time limit",
    "overcommit": "a job with more tasks than CPUs (--overcommit)",
    "tasks-per-socket": "a job whose tasks are bound to sockets, cores or boards (--ntasks-per-socket, or "
    "CR_ONE_TASK_PER_CORE in slurm.conf)",
    "other-gres": "a job that asks for other GRES beside its GPUs",
    "burst-buffer": "a job with a burst buffer (--bb, #BB, #DW), which is set up for the size that it asks for",
    "core-spec": "a job that leaves cores of its nodes to the system (--core-spec, --thread-spec)",
    "several-gpu-types": "a job that asks for several types of GPUs",
    "typed-shards": "a job that asks for shards of a type of GPU (--gres=shard:a100:2)",
    "mixed-devices": "a job that names no type of GPU, where Slurm may give it slices (MIG) or GPUs of several types",
    "several-gpu-options": "a job that states its GPUs in more than one way, such as --gpus with --gpus-per-node",
    "nodes-unknown": "a job whose number of nodes is left to Slurm, which only guesses it so far",
    "gpu-defaults": "a job whose CPUs or memory follow from its GPUs (DefCpuPerGPU, DefMemPerGPU)",
    "cpus-per-gpu": "a job with --cpus-per-gpu and without --cpus-per-task where DefCpuPerGPU is set: after an "
    "update to one CPU per task, Slurm would use that default",
    "whole-nodes": "a job with --exclusive; or, in a partition that gives whole nodes, a job with memory per CPU, or "
    "with memory per GPU and fewer GPUs per node than nodes have",
    "memory-per-cpu": "a job with memory per CPU that gets more CPUs from Slurm than it asks for, and so also more "
    "memory",
    "uneven": "a job whose nodes or tasks are not alike",
    "constraint": "a job whose constraint counts or groups features, as in 'a*2' or '[a|b]'",
    "off": "a job that was to be left alone (rlalloc off)",
    "too-large": "a job that no node of its partition holds",
}
"""Forms of submission that are not resized, by name. docs/reference/messages.md has the same list."""


def check_form(job: JobRecord, skipped_at_submission: str = "") -> None:
    """Raise Skipped, by name, for a form of submission that is not resized.

    ``skipped_at_submission`` is the name that rlalloc.lua left in the tag, which saw more than the record shows.
    """
    asked = job.fields
    requests = asked.tres_per_node, asked.tres_per_job, asked.tres_per_task, asked.tres_per_socket
    tres = _requested_tres("shard" if job.is_shard else "gpu", *requests)
    applies = {
        "request-unread": job.unread,
        "heterogeneous": job.is_heterogeneous,
        "interactive": not job.is_batch,
        "scrontab": job.is_scrontab,
        "federation": job.is_federated,
        "reservation": bool(job.reservation),
        "deadline": job.has_deadline,
        "time-min": job.time_min_s > 0,
        "no-gpus": job.gpus == 0,
        "no-time-limit": job.time_limit_s == 0,
        "overcommit": asked.reported and not asked.cpus_per_tres and asked.min_cpus < job.tasks,
        "tasks-per-socket": asked.tasks_per_part > 0,
        "other-gres": tres.has_other_gres,
        "burst-buffer": job.needs.burst_buffer,
        "core-spec": job.needs.spares_cores,
        "several-gpu-types": tres.has_several_types,
        "typed-shards": job.is_shard and bool(job.gpu_type),
        "several-gpu-options": tres.states_gpus_twice,
        "constraint": not is_simple(job.features),
        "nodes-unknown": not asked.reported and not job.nodes_certain,
    }
    name = skipped_at_submission or next((name for name, holds in applies.items() if holds), "")
    if name:
        raise Skipped(f"{FORMS_SKIPPED.get(name, 'skipped at submission')}; it runs as submitted", name)


def check_whole_nodes(job: JobRecord, *, may_share: bool, has_nodes_alone: bool, leaves_gpus: bool) -> None:
    """Raise Skipped for a job with --exclusive, which gets all CPUs and GPUs of its nodes, whatever it asks for.

    Only an update that removes --exclusive makes it smaller, and from 24.11 on scontrol cannot set it again.
    Slurm shows the jobs of a partition that gives whole nodes as exclusive, too, and they stay so. There, only memory
    per CPU or per GPU is in the way: the job has it for each CPU or GPU of its nodes, and its request shows less.
    ``may_share``: one of its partitions lets jobs share nodes. ``has_nodes_alone``: one gives whole nodes.
    ``leaves_gpus``: its nodes may have more GPUs than it asks for.
    """
    asked = job.fields
    gets_more_memory = asked.mem_mib_per_cpu > 0 or (asked.mem_mib_per_gpu > 0 and leaves_gpus)
    if (has_nodes_alone and gets_more_memory) or (job.is_exclusive and may_share):
        raise Skipped(f"{FORMS_SKIPPED['whole-nodes']}; it runs as submitted", "whole-nodes")


def check_memory_per_cpu(job: JobRecord, request: Allocation, *, gives_sockets: bool, cpus_per_core: int) -> None:
    """Raise Skipped for a job with memory per CPU whose ``request`` shows only a part of this memory.

    Slurm gives it whole cores, and with ``gives_sockets`` whole sockets. It has this memory for each of their CPUs.
    """
    if job.fields.mem_mib_per_cpu == 0:
        return
    leaves_threads = 0 < job.needs.threads < cpus_per_core
    if gives_sockets or leaves_threads or request.cpus_per_node % cpus_per_core:
        raise Skipped(f"{FORMS_SKIPPED['memory-per-cpu']}; it runs as submitted", "memory-per-cpu")


def differences(job: JobRecord, intended: Allocation) -> tuple[str, ...]:
    """Field by field, where a job read back is not as intended; empty if it is."""
    try:
        actual = size_of(job)
    except Skipped as err:
        return (str(err),)
    wanted_counts = msgspec.structs.asdict(msgspec.structs.replace(intended, gpu_type=None))
    return tuple(
        f"{field}: {found} instead of {wanted}"
        for field, wanted in wanted_counts.items()
        if not _alike(field, found := getattr(actual, field), wanted)
    )


def same_memory(found: float, wanted: float) -> bool:
    """Slurm prints memory in totals with three digits (tres_req_str)."""
    return abs(found - wanted) <= 0.005 * wanted + 1


def same_minutes(one_s: int, other_s: int) -> bool:
    """Slurm counts time limits in minutes."""
    return one_s // 60 == other_s // 60


def _size_of_totals(job: JobRecord) -> Allocation:
    """The size from the totals alone, where a reader does not report single fields."""
    tasks_per_node = _even(job.tasks, job.nodes, "tasks")
    return Allocation(
        nodes=job.nodes,
        gpus_per_node=_even(job.gpus, job.nodes, "GPUs"),
        tasks_per_node=tasks_per_node,
        cpus_per_task=_even(_even(job.cpus, job.nodes, "CPUs"), tasks_per_node, "CPUs", of="tasks"),
        mem_mib_per_node=round(job.mem_mib / job.nodes),
        time_limit_s=job.time_limit_s,
    )


def _gpus_per_node(job: JobRecord, nodes: int) -> int:
    asked = job.fields
    if asked.gpus_per_node:
        return asked.gpus_per_node
    if asked.gpus_per_job:
        return _even(asked.gpus_per_job, nodes, "GPUs")
    if asked.gpus_per_task:
        return _even(asked.gpus_per_task * job.tasks, nodes, "GPUs")
    # --gpus-per-socket, and --ntasks-per-gpu alone: only the total is known.
    return _even(job.gpus, nodes, "GPUs")


def _cpus_per_task(job: JobRecord, gpus_per_node: int, tasks_per_node: int) -> int:
    """CPUs per task; if the job set a minimum per node (--mincpus), at least the task's part of it."""
    asked = job.fields
    if asked.cpus_per_gpu:
        return _even(asked.cpus_per_gpu * gpus_per_node, tasks_per_node, "CPUs", of="tasks")
    by_total = _even(asked.min_cpus, job.tasks, "CPUs", of="tasks")
    return max(by_total, math.ceil(asked.min_cpus_per_node / tasks_per_node))


def _mem_mib_per_node(job: JobRecord, gpus_per_node: int, cpus_per_node: int) -> int:
    asked = job.fields
    if asked.mem_mib_per_gpu:
        return asked.mem_mib_per_gpu * gpus_per_node
    if asked.mem_mib_per_cpu:
        return asked.mem_mib_per_cpu * cpus_per_node
    return asked.mem_mib_per_node or round(job.mem_mib / asked.min_nodes)


def fits_on(size: Allocation, shape: NodeShape) -> bool:
    """Whether a node of ``shape`` holds each node's part of a size."""
    return (
        size.gpus_per_node <= shape.gpus
        and size.cpus_per_node <= shape.cpus
        and size.mem_mib_per_node <= shape.mem_mib
    )


def _even(total: int, parts: int, what: str, of: str = "nodes") -> int:
    if total % parts:
        raise Skipped(f"{total} {what} do not divide evenly among {parts} {of}", "uneven")
    return total // parts


class _Tres(NamedTuple):
    """What the TRES requests of a job are.

    ``has_other_gres``: they name GRES beside GPUs. ``has_several_types``: one names several kinds of GPUs, or several
    differ in the type that they name. ``states_gpus_twice``: several ask for GPUs.
    """

    has_other_gres: bool
    has_several_types: bool
    states_gpus_twice: bool


@functools.lru_cache(maxsize=4096)
def _requested_tres(name: str, *requests: str) -> _Tres:
    """Read TRES requests such as ``gres:gpu:a100:2``; ``name`` is what the job counts as GPUs: those, or shards.

    Kept: most jobs of a site have the same.
    """
    parts = [[part for part in request.split(",") if part] for request in requests]
    gpus = [found for each in parts if (found := [part for part in each if _is(name, part)])]
    types = {match[1] for each in gpus for part in each if (match := _TYPED_GPU.search(part))}
    return _Tres(
        has_other_gres=any(not part.startswith("cpu") and not _is(name, part) for each in parts for part in each),
        has_several_types=len(types) > 1 or any(len(each) > 1 for each in gpus),
        states_gpus_twice=len(gpus) > 1,
    )


def _is(name: str, part: str) -> bool:
    """Whether a part of a request is for GRES of this name."""
    return part.replace("/", ":").replace("=", ":").removeprefix("gres:").partition(":")[0] == name


def _alike(field: str, found: int, wanted: int) -> bool:
    if field == "mem_mib_per_node":
        return same_memory(found, wanted)
    if field == "time_limit_s":
        return same_minutes(found, wanted)
    return found == wanted
