"""Whether each job got the size that rlalloc decided, or else that of its request; never more than its bounds."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from rlalloc.job import Allocation
from rlalloc.tres import gpus_of
from rlalloc_twins.environment_values import Given
from rlalloc_twins.event_check import set_by_user
from rlalloc_twins.twin_plan import Submission
from rlalloc_twins.twin_record import Ended, TwinJob, Update

_MEMORY_TOLERANCE: Final = 0.005
_LEFT_TO_SLURM: Final = re.compile(
    r"--(gpus|ntasks-per-gpu|gpus-per-task|gpus-per-socket|exclusive|mem=0|mincpus)|-n\d|-N\d-\d"
)
"""Options of which ``is_left_to_slurm`` is true."""
_GPUS: Final = re.compile(r"\bgpus=(\d+)-(\d+)")
_CPUS: Final = frozenset({"MinCPUsNode", "CPUsPerTask", "NumNodes"})
"""Fields from which a job's CPUs follow: with NumNodes, Slurm multiplies all of its CPUs."""


def problems_of_size(planned: Submission | None, twin: TwinJob, job: TwinJob, counts: Counter[str]) -> Iterator[str]:
    """Say what is not as decided, or without a decision not as on the other site."""
    last = last_begun(job)
    counts["decided"] += any(each.allocation is not None for each in job.decisions)
    counts["resized"] += last is not None
    counts["resized in GPUs"] += last is not None and last.intended.gpus != request_of(job).gpus
    for each in job.decisions:
        size, bounds = each.allocation, each.bounds
        if size is not None and bounds is not None and size.gpus not in (*bounds.gpu_counts, each.request.gpus):
            yield f"{size.gpus} GPUs were decided, allowed are {bounds.gpu_counts}"
        if size is not None and (named := _named_by(planned)) and size.gpus not in (*named, each.request.gpus):
            yield f"{size.gpus} GPUs were decided, its user allows {named.start} to {named.stop - 1}"
    by_user = set_by_user(planned, job)
    for name, ended in job.tasks.items():
        if ended.started_s is None or not ended.tres:
            continue
        if last is not None:
            yield from _unlike(ended, last.intended, by_user)
            if "TimeLimit" not in by_user and int(ended.limit_min) != last.intended.time_limit_s // 60:
                yield f"its limit is {ended.limit_min} min, decided were {last.intended.time_limit_s // 60}"
        elif (before := twin.tasks.get(name)) is not None and not _began_before_restoring(name, ended, job):
            yield from _unlike_twin(planned, before, ended, job)


def _named_by(planned: Submission | None) -> range | None:
    """The GPU counts that the user's own words allow."""
    words = " ".join((planned.directive, *planned.options, *planned.lines)) if planned is not None else ""
    found = _GPUS.search(words)
    return range(int(found[1]), int(found[2]) + 1) if found else None


def _unlike_twin(planned: Submission | None, before: Ended, ended: Ended, job: TwinJob) -> Iterator[str]:
    if not before.tres or is_left_to_slurm(planned):
        return
    if before.tres != ended.tres and not _has_cpus_of_its_tasks(planned, before, ended, job):
        yield f"it was given {ended.tres}, without rlalloc {before.tres}"
    if before.limit_min != ended.limit_min and not _is_shortened(planned):
        yield f"its limit is {ended.limit_min} min, without rlalloc {before.limit_min}"


def _has_cpus_of_its_tasks(planned: Submission | None, before: Ended, ended: Ended, job: TwinJob) -> bool:
    """Whether a job whose user has set MinCPUsNode differs from its twin only in that it has the CPUs of its request.

    If MinCPUsNode is below the CPUs that a node's tasks ask for, Slurm gives the twin too few. A job that got its
    request back has the CPUs that its tasks ask for.
    """
    words = [word for event in planned.events for word in event.words] if planned is not None else []
    differ = {name for name, _ in before.tres.items() ^ ended.tres.items()}
    updates = [update for each in job.decisions for update in each.updates if update.state == "restored"]
    return (
        any(word.startswith("MinCPUsNode=") for word in words)
        and differ <= {"cpu", "billing"}
        and any(before.tres["cpu"] < update.original.cpus == ended.tres["cpu"] for update in updates)
    )


def _began_before_restoring(name: str, ended: Ended, job: TwinJob) -> bool:
    """Whether this task of an array started in a decided size, before the waiting tasks got their request back."""
    updates = [update for each in job.decisions for update in each.updates if update.state == "restored"]
    return name != "" and any(not list(_unlike(ended, update.intended, frozenset())) for update in updates)


def last_begun(job: TwinJob) -> Update | None:
    """The update that made the job what it was, if one did."""
    updates = [update for each in job.decisions for update in each.updates]
    done = [update for update in updates if update.state in ("begun", "restored")]
    begun = [update for update in done if update.state == "begun" and update.intended != update.original]
    return begun[-1] if begun and done[-1].state == "begun" else None


def request_of(job: TwinJob) -> Allocation:
    """What rlalloc read as the request."""
    return job.decisions[0].request


def given_to(
    ended: Ended,
    job: TwinJob,
    task: str,
    batch: Mapping[str, str],
    by_user: frozenset[str],
    *,
    asks_for_tasks: bool,
) -> Given | None:
    """What a job or a task of an array was given in one run; None where it never started.

    Accounting has the totals, of the last run. The values of one node follow from the decision and from what the user
    has set since (``by_user``); without a decision they are what Slurm, and not rlalloc, wrote into the script's
    environment.
    """
    tres, last = ended.tres, last_begun(job)
    if not tres.get("node"):
        return None
    nodes, gpus, mem_mib = int(tres["node"]), gpus_of(tres), round(tres["mem"])
    if last is None:
        cpus, tasks = int(batch["SLURM_CPUS_ON_NODE"]), 1
        if asks_for_tasks:
            tasks = int(re.split(r"[(,]", batch.get("SLURM_TASKS_PER_NODE", "1"))[0])
        each = int(batch.get("SLURM_CPUS_PER_TASK", 0)) or max(1, cpus // tasks)
        on_node = int(batch.get("SLURM_GPUS_ON_NODE", 0))
        return Given(nodes, on_node if nodes == 1 else gpus, on_node, cpus, tasks, each, mem_mib // nodes)
    tasks, each = last.intended.tasks_per_node, last.intended.cpus_per_task
    cpus = int(tres["cpu"]) // nodes
    if cpus != tasks * each or "CPUsPerTask" in by_user:  # its user has changed it since
        record = next((each for each in job.records if task in ("", f"_{each.get('ArrayTaskId')}")), {})
        tasks, each = int(record.get("NumTasks", tasks)) // nodes, int(record.get("CPUs/Task", each))
        each = max(1, min(each, cpus // tasks))  # the TaskProlog sets no more than there are
    return Given(nodes, gpus, gpus // nodes, cpus, tasks, each, mem_mib // nodes)


def _is_shortened(planned: Submission | None) -> bool:
    """Whether Slurm may shorten its limit (--time-min), as backfill sees fit."""
    return planned is not None and planned.form == "--time-min"


def _unlike(ended: Ended, size: Allocation, by_user: frozenset[str]) -> Iterator[str]:
    """Compare what a job was given with its decided size, except for what its user has set since.

    The decided size is stated per node: an update of rlalloc leaves no CPUs or memory per GPU, and no memory per CPU.
    So with another number of nodes, all totals change, and nothing else follows from another field.
    """
    tres = ended.tres
    nodes, cpus, gpus = int(tres.get("node", 0)), int(tres.get("cpu", 0)), gpus_of(tres)
    mem_mib = nodes * size.mem_mib_per_node
    as_decided = (
        "NumNodes" in by_user or nodes == size.nodes,
        bool(by_user & _CPUS) or cpus == nodes * size.cpus_per_node,
        "TresPerNode" in by_user or gpus == nodes * size.gpus_per_node,
        "MinMemoryNode" in by_user or abs(tres.get("mem", 0.0) - mem_mib) <= _MEMORY_TOLERANCE * mem_mib + 1,
    )
    if not all(as_decided):
        found = nodes, cpus, gpus
        yield f"it was given nodes, CPUs, GPUs {found} and {tres.get('mem')} MiB instead of {size.describe()}"


def is_left_to_slurm(planned: Submission | None) -> bool:
    """Whether the same job may be given other nodes, and so other amounts, each time."""
    if planned is None:
        return True
    words = " ".join((*planned.options, *planned.lines))
    environment = planned.environment
    all_memory = environment.get("SBATCH_MEM_PER_NODE") == "0"
    return _LEFT_TO_SLURM.search(words) is not None or all_memory or any("GPUS" in name for name in environment)
