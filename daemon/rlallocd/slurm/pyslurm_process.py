"""Jobs and nodes through pyslurm 25.11, read in a process of its own: ``python -m rlallocd.slurm.pyslurm_process``.

pyslurm holds the interpreter's lock during a call and takes no time limit: while slurmctld is down, a call lasts as
long as slurm.conf's MessageTimeout. So pyslurm_reader.py starts this process, waits for its answers no longer than
for a command's, and ends it where one is late. This module alone imports pyslurm.

Its records are complete but for some jobs, of which one call of the commands has to read the rest:

- ``Job.tres_per_job`` and ``tres_per_socket`` want ``name=count``, but Slurm writes ``gres/gpu:a100:4`` there, so the
  GPU type of ``--gpus`` and ``--gpus-per-socket`` is lost;
- a pending job with our tag is one to decide, and ``Job`` has no attributes for the single fields of its request
  (``JobRecord.fields``: least and most nodes, CPUs of a node, GPUs per job or socket);
- ``Job`` has what a running job requested, and not what it got: an exclusive one has all of its nodes;
- ``Job.state_reason`` is Slurm's sentence for people where there is one, and then hides the name of the reason.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pyslurm

from rlalloc.devices import node_devices
from rlalloc.tres import gpu_type_of, gpus_of
from rlallocd.slurm.json_reader import waiting_tasks, whole_list
from rlallocd.slurm.pyslurm_answers import PyslurmAnswer, encode
from rlallocd.slurm.slurm_records import JobRecord, NodeNeeds, NodeRecord, cpus_per_core
from rlallocd.slurm.states import is_asleep, is_awaited, is_usable

_PROTOCOL_ERRORS = (1000, 1005)  # slurm_errno.h: SLURM_UNEXPECTED_MSG_ERROR, SLURM_PROTOCOL_VERSION_ERROR


def main() -> None:
    """Answer ``jobs`` and ``nodes``, a line each, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; whoever started this process ends it
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what libslurm prints is no answer
        for line in sys.stdin:
            answers.write(encode(_read(_jobs if line.strip() == "jobs" else _nodes)))
            answers.flush()


def _read(read: Callable[[], PyslurmAnswer]) -> PyslurmAnswer:
    try:
        return read()
    except pyslurm.RPCError as err:
        if err.errno in _PROTOCOL_ERRORS:
            return PyslurmAnswer(unreadable=f"pyslurm: {err}")
        return PyslurmAnswer(unavailable=f"pyslurm: {err}; is Slurm up?")
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as err:
        return PyslurmAnswer(unreadable=f"pyslurm cannot read Slurm's answer ({err!r})")


def _jobs() -> PyslurmAnswer:
    pairs = [_job(job) for job in pyslurm.Jobs.load().values()]
    return PyslurmAnswer(jobs=tuple(job for job, _ in pairs), complete=tuple(complete for _, complete in pairs))


def _nodes() -> PyslurmAnswer:
    return PyslurmAnswer(nodes=tuple(_node_record(node) for node in pyslurm.Nodes.load().values()))


def _job(job: Any) -> tuple[JobRecord, bool]:
    """One pyslurm.Job as a record, and whether the record is complete."""
    tres = _tres(job.requested_tres)
    per_task = _tres(job.tres_per_task)
    per_node: Mapping[str, int] = job.gres_per_node  # {"gres/gpu:a100": 4}
    gpus = gpus_of(tres)
    reason = (job.state_reason or "").partition(":")[0]  # "RaisedSignal:9(Killed)"
    nodes = min(job.num_nodes or 1, job.max_nodes or sys.maxsize)
    record = JobRecord(
        job_id=job.id,
        name=job.name or "",
        user=job.user_name or str(job.user_id),
        account=job.account or "",
        partition=job.partition or "",
        state=job.state,
        reason=reason,
        submitted_s=job.submit_time or 0,
        begin_s=job.eligible_time or 0,
        started_s=job.start_time or 0,
        time_limit_s=(job.time_limit or 0) * 60,
        priority=job.priority or 0,
        admin_comment=job.admin_comment or "",
        nodes=nodes,
        tasks=job.ntasks or 1,
        cpus=int(tres.get("cpu", 0)) or job.cpus,
        gpus=gpus,
        mem_mib=tres.get("mem", 0.0),
        gpu_type=gpu_type_of(*per_node, *per_task),
        is_batch=job.is_batch_job,
        is_array=bool(job.array_id),
        is_heterogeneous=bool(job.heterogeneous_id),
        is_exclusive=job.resource_sharing == "NO",
        has_deadline=bool(job.deadline),
        features=",".join(job.constraints or ()),
        excluded_nodes=job.excluded_nodes or "",
        nodes_certain=nodes == int(tres.get("node", nodes)),
        required_nodes=job.required_nodes or "",
        licenses=",".join(job.licenses or ()),
        qos=job.qos or "",
        array_job_id=job.array_id or 0,
        reservation=job.reservation or "",
        time_min_s=(job.time_limit_min or 0) * 60,
        restarts=job.requeue_count or 0,
        is_scrontab=bool(job.is_cronjob),
        is_federated=bool(job.federation_origin),
        has_run=bool(job.allocated_nodes),
        held_nodes=job.allocated_nodes or "",
        needs=NodeNeeds(
            sockets=job.sockets_per_node or 0,
            cores=job.cores_per_socket or 0,
            threads=job.threads_per_core or 0,
            tmp_disk_mib=job.temporary_disk_per_node or 0,
            contiguous=bool(job.requires_contiguous_nodes),
            near_gpus=job.gres_binding == "enforce-binding",
            spares_cores=bool(job.cores_reserved_for_system or job.threads_reserved_for_system),
        ),
        array_tasks=whole_list(job.array_tasks_waiting or ""),
        waiting_tasks=waiting_tasks(job.array_tasks_waiting or "", job.array_tasks_parallel or 0),
    )
    # pyslurm takes a type of digits only (gres/gpu:1080:2) for a count, which then exceeds the total.
    type_known = 0 < nodes * gpus_of(per_node) <= gpus or gpus_of(per_task) > 0 or not gpus
    to_decide = record.pending and "rlalloc:" in record.admin_comment
    got_more = record.is_exclusive and not record.pending
    return record, type_known and " " not in reason and not to_decide and not got_more


def _node_record(node: Any) -> NodeRecord:
    sockets, cores, threads = node.sockets or 0, node.cores_per_socket or 0, node.threads_per_core or 0
    return NodeRecord(
        name=node.name,
        partitions=tuple(node.partitions),
        usable=is_usable(node.state.split("+")),
        awaited=is_awaited(node.state.split("+"), node.boot_time or 0),
        asleep=is_asleep(node.state.split("+")),
        owner=node.owner or "",
        cpus=node.effective_cpus or node.total_cpus,
        cpus_used=node.allocated_cpus,
        mem_mib=(node.real_memory or 0) - (node.memory_reserved_for_system or 0),
        mem_mib_used=node.allocated_memory,
        devices=node_devices(_gres(node.configured_gres), _gres(node.allocated_gres) or _gres(node.allocated_tres)),
        features=frozenset(node.active_features),
        extra=node.extra or "",
        booted_s=node.boot_time or 0,
        sockets=sockets,
        cores=cores,
        threads=threads,
        cpus_per_core=cpus_per_core(node.total_cpus, sockets * cores, threads),
        tmp_disk_mib=node.temporary_disk or 0,
    )


def _gres(counts: Mapping[str, Any]) -> str:
    """Counts by name as Slurm writes them; where a node's devices have numbers, a count stands beside these."""
    plain = {name: found["count"] if isinstance(found, Mapping) else found for name, found in counts.items()}
    return ",".join(f"{name}:{count}" for name, count in plain.items())


def _tres(resources: Any) -> dict[str, float]:
    """Resources as pyslurm has them, or None, as counts by Slurm's names; memory in MiB."""
    if resources is None:
        return {}
    counts = {f"gres/{name}": float(resource.count) for name, resource in resources.gres.items()}
    for name in ("cpu", "mem", "node"):
        resource = getattr(resources, name)
        if resource is not None:
            counts[name] = float(resource.count)
    return counts


if __name__ == "__main__":
    main()
