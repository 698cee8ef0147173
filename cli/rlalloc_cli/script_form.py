"""Whether rlallocd leaves a script's job as submitted for its form, as far as its ``#SBATCH`` lines show.

The lines become a record such as Slurm has of the job, which rlallocd's own functions judge.
"""

import re
from collections.abc import Mapping
from typing import Final

from rlalloc.job import Allocation
from rlalloc.tres import asks_for_shards, gpu_type_of, gpus_of_request
from rlalloc_cli.sbatch_request import count_of, gpus_per_task_of, gres_of
from rlalloc_cli.site_nodes import SiteSlurm
from rlallocd.slurm import JobRecord, NodeNeeds, PartitionRecord, RequestFields
from rlallocd.submissions.request_sizes import Skipped, check_form, check_whole_nodes, size_of

_COMPONENT: Final = re.compile(r"^\s*(?:hetjob|packjob)\b", re.MULTILINE)
_BURST_BUFFER: Final = re.compile(r"^#(?:BB|DW)\b", re.MULTILINE)
_NO_LIMIT: Final = re.compile(r"[0:-]+|-1|infinite|unlimited", re.IGNORECASE)
_PARTS: Final = ("ntasks-per-socket", "ntasks-per-core", "ntasks-per-board")
_SHARES_BY: Final = ("user", "mcs", "topo")
"""Values of --exclusive with which a job does not get whole nodes."""


def why_skipped(
    site: SiteSlurm, lines: str, header: str, options: Mapping[str, str], size: Allocation, node_gpus: int | None
) -> str:
    """Name and text of the reason for which rlallocd would skip the job, as ``rlalloc explain`` has them; else "".

    ``lines`` are the ``#SBATCH`` options and ``header`` all that precedes the first command. If Slurm answers, the
    site's partitions and version of Slurm count, too. ``node_gpus`` are the most GPUs of a node, if they
    are known.
    """
    job = _record_of(lines, header, options, size)
    try:
        check_form(job, _skipped_at_submission(site, options))
        if job.is_exclusive or job.fields.mem_mib_per_cpu or job.fields.mem_mib_per_gpu:
            whole = [each.whole_nodes for each in _partitions(site, job.partition)]
            check_whole_nodes(
                job,
                may_share=not (whole and all(whole)),
                has_nodes_alone=any(whole),
                leaves_gpus=node_gpus is not None and size.gpus_per_node < node_gpus,
            )
        if "-" not in options.get("nodes", ""):  # else Slurm may choose a number that divides the rest
            size_of(job)
    except Skipped as err:
        return f"{err.name}: {err}"
    return ""


def needs_of(options: Mapping[str, str], header: str = "") -> NodeNeeds:
    """What the options ask of the nodes, as far as it decides on the form or the counts."""
    return NodeNeeds(
        near_gpus="enforce-binding" in options.get("gres-flags", ""),
        spares_cores=any(options.get(name, "0") != "0" for name in ("core-spec", "thread-spec")),
        few_switches=re.match("[1-9]", options.get("switches", "")) is not None,
        burst_buffer="bb" in options or "bbf" in options or _BURST_BUFFER.search(header) is not None,
    )


def _skipped_at_submission(site: SiteSlurm, options: Mapping[str, str]) -> str:
    """What rlalloc.lua sees at submission and Slurm's record does not show."""
    if "clusters" in options:
        return "multi-cluster"
    if "arbitrary" in options.get("distribution", "").lower():
        return "arbitrary"
    if "ntasks-per-gpu" in options and "ntasks-per-gpu" in site.skipped_forms():
        return "ntasks-per-gpu"
    return ""


def _partitions(site: SiteSlurm, named: str) -> tuple[PartitionRecord, ...]:
    """Those that the script names, or the default one; none if Slurm does not answer."""
    names = named.split(",")
    known = site.partitions().items()
    return tuple(each for name, each in known if (name in names if named else each.is_default))


def _record_of(lines: str, header: str, options: Mapping[str, str], size: Allocation) -> JobRecord:
    fields = _fields_of(options, size)
    asked = fields.tres_per_node, fields.tres_per_job, fields.tres_per_task, fields.tres_per_socket
    return JobRecord(
        job_id=0,
        name="",
        user="",
        account="",
        partition=options.get("partition", ""),
        state="PENDING",
        reason="",
        submitted_s=0,
        begin_s=0,
        started_s=0,
        time_limit_s=0 if _NO_LIMIT.fullmatch(options.get("time", "")) else size.time_limit_s,
        priority=0,
        admin_comment="",
        nodes=size.nodes,
        tasks=count_of(options, "ntasks") or size.nodes * size.tasks_per_node,
        cpus=fields.min_cpus,
        gpus=size.gpus,
        mem_mib=size.nodes * size.mem_mib_per_node,
        gpu_type=gpu_type_of(*asked),
        is_batch=True,
        is_array="array" in options,
        is_heterogeneous=_COMPONENT.search(lines) is not None,
        is_exclusive="exclusive" in options and options["exclusive"] not in _SHARES_BY,
        has_deadline="deadline" in options,
        nodes_certain=True,
        required_nodes="",
        reservation=options.get("reservation", ""),
        time_min_s=int("time-min" in options),
        features=options.get("constraint", ""),
        needs=needs_of(options, header),
        is_shard=asks_for_shards(*asked),
        fields=fields,
    )


def _fields_of(options: Mapping[str, str], size: Allocation) -> RequestFields:
    def gpus(option: str) -> str:
        return ",".join(f"gres:gpu:{item}" for item in options.get(option, "").split(",") if item)

    per_node = ",".join(filter(None, (gres_of(options), gpus("gpus-per-node"))))
    per_task = ",".join(filter(None, (options.get("tres-per-task", ""), gpus("gpus-per-task"))))
    tasks = count_of(options, "ntasks") or size.nodes * size.tasks_per_node
    return RequestFields(
        min_nodes=size.nodes,
        max_nodes=size.nodes,
        tasks_per_part=max(count_of(options, name) or 0 for name in _PARTS),
        # so sbatch asks for them, too
        min_cpus=size.nodes if "overcommit" in options else tasks * size.cpus_per_task,
        mem_mib_per_node=size.mem_mib_per_node,
        mem_mib_per_cpu=int("mem-per-cpu" in options),
        mem_mib_per_gpu=int("mem-per-gpu" in options),
        gpus_per_node=gpus_of_request(per_node) or gpus_of_request(per_node, "shard"),
        gpus_per_job=count_of(options, "gpus") or 0,
        gpus_per_task=gpus_per_task_of(options),
        tres_per_node=per_node,
        tres_per_job=gpus("gpus"),
        tres_per_task=per_task,
        tres_per_socket=gpus("gpus-per-socket"),
    )
