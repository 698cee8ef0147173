"""Verification of an update: whether a job that was read back is as decided, as submitted, or neither.

Pure functions. A field is compared with three values: what was decided, what the size as submitted is in absolute
terms, and what slurmctld's record held before the update. Any other value was set by somebody else. Totals alone are
not enough: an update that is refused half-way changes single fields and leaves the totals as they were (seen on
22.05: MinCPUsNode 32 → 100 and tres_req_str still of 64 CPUs).
"""

import math
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from rlalloc.job import Allocation
from rlalloc.urgency import is_left_of
from rlallocd.cluster.node_demands import names_in
from rlallocd.slurm import JobRecord, RequestFields
from rlallocd.submissions.request_sizes import same_memory, same_minutes
from rlallocd.transactions.update_plans import NODES_WITHOUT_END

_IMPOSSIBLE: Final = "BadConstraints"

Verdict = Literal["as decided", "as submitted", "neither"]


class AddedNice(msgspec.Struct, frozen=True):
    """What an update adds to a job's own nice for its urgency; it decays by steps while the job waits."""

    own: int
    added: int

    def is_in(self, job: JobRecord) -> bool:
        """Whether a job has it, whole or decayed by some steps. Any other nice is its own, or somebody else's."""
        return is_left_of(job.nice - self.own, self.added)


class Verification(msgspec.Struct, frozen=True):
    """What a job was found to be, and in words what differs from the decision (empty if nothing does)."""

    verdict: Verdict
    text: str


def verify_pending(
    job: JobRecord,
    original: Allocation,
    intended: Allocation,
    before: JobRecord | None,
    nice: AddedNice | None = None,
) -> Verification:
    """What a pending job would start with. ``before`` is its record before the update, if the journal has it.

    A missing ``nice`` makes no difference: Slurm ignores nice where an operator has set the job's priority, and
    somebody else may have set another. The added nice without the decided size is neither.
    """
    if intended == original:
        return _verify_nice(job, original, before, nice)
    impossible = job.reason == _IMPOSSIBLE and (before is None or before.reason != _IMPOSSIBLE)
    wrong = contradictions(job, intended)
    of_its_type = has_type(job, intended)
    if not wrong and of_its_type and not impossible and same_minutes(job.time_limit_s, intended.time_limit_s):
        return Verification("as decided", "")
    text = _in_words(job, wrong, _Was(original, before), intended)
    if not of_its_type:
        text = "; ".join(part for part in (text, f"leaves out the nodes {job.excluded_nodes or 'none'}") if part)
    if impossible:
        text = "; ".join(part for part in (text, f"no node can hold it ({_IMPOSSIBLE})") if part)
    nice_stays = nice is not None and nice.is_in(job)
    if nice_stays:
        text = "; ".join(part for part in (text, f"nice {job.nice}") if part)
    as_submitted = (
        not impossible
        and not nice_stays
        and not _not_as_before(job, original, before)
        and not limit_is_ours(job, original, intended)
        and not _type_stays(job, intended, before)
    )
    return Verification("as submitted" if as_submitted else "neither", text)


def has_type(job: JobRecord, size: Allocation) -> bool:
    """Whether a job leaves out the nodes that it is to leave out for the type that was chosen, if one was."""
    return size.gpu_type is None or names_in(job.excluded_nodes) == names_in(size.gpu_type.excluded_nodes)


def _type_stays(job: JobRecord, intended: Allocation, before: JobRecord | None) -> bool:
    """Whether a job still leaves out other nodes than it did before a type was chosen for it."""
    if intended.gpu_type is None:
        return False
    own = intended.gpu_type.own_excluded_nodes if before is None else before.excluded_nodes
    return names_in(job.excluded_nodes) != names_in(own)


def _verify_nice(job: JobRecord, size: Allocation, before: JobRecord | None, nice: AddedNice | None) -> Verification:
    """The result of an update that leaves the size as it is."""
    ours = nice is not None and nice.is_in(job)
    if changed := _not_as_before(job, size, before):
        return Verification("neither" if ours else "as submitted", f"changed by someone else: {', '.join(changed)}")
    return Verification("as decided", "") if ours else Verification("as submitted", f"its nice is {job.nice}")


def verify_started(
    job: JobRecord, original: Allocation, intended: Allocation, before: JobRecord | None
) -> Verification:
    """What a job started with: the totals, which are final then. Anybody may still change its time limit.

    A job that is still exclusive has all of its nodes, whatever it asked for: then its request decides. Any other may
    have more CPUs than it asked for, since Slurm gives whole cores, and with CR_Socket whole sockets.
    """
    found = {"nodes": float(job.nodes)} | _totals(job)
    wrong = _unlike(found, _allowed(intended))
    if not wrong:
        return Verification("as decided", "")
    was: dict[str, tuple[float, ...]] = {}
    if before is not None:
        # Where a job left the number of nodes to Slurm, no earlier record shows how many it got. Each has its memory.
        was = {name: (value,) for name, value in _totals(before).items()}
        was["MiB in total"] += (before.mem_mib / max(1, before.nodes) * job.nodes,)
    as_submitted = (
        not _unlike(_totals(job), was)
        or not _unlike(found, _allowed(original))
        or _has_its_whole_nodes(job, original, before)
    )
    of_original = not as_submitted and _has_more_cpus(job, original, before)
    if not as_submitted and _has_more_cpus(job, intended) and not (of_original and original.cpus > intended.cpus):
        return Verification("as decided", "")
    as_submitted = as_submitted or of_original
    text = "; ".join(f"{name} {value:g} instead of {wanted:g}" for name, (value, wanted) in wrong.items())
    return Verification("as submitted" if as_submitted else "neither", text)


def _has_more_cpus(job: JobRecord, size: Allocation, before: JobRecord | None = None) -> bool:
    """Whether a started job has a size, but with more CPUs. Memory per CPU in ``before`` counts for each of them."""
    per_cpu = before.fields.mem_mib_per_cpu if before is not None else 0
    found = {"nodes": float(job.nodes)} | _totals(job)
    wanted = _allowed(size) | {"CPUs in total": (job.cpus,)}
    if per_cpu:
        wanted["MiB in total"] = (per_cpu * job.cpus,)
    return job.cpus > size.cpus and not _unlike(found, wanted)


def _has_its_whole_nodes(job: JobRecord, original: Allocation, before: JobRecord | None) -> bool:
    """Whether a job that started was submitted as exclusive, is it still, and asks for what it asked for.

    An update to a decided size ends that (OverSubscribe=YES). The nodes and CPUs of a job that runs are those it has.
    """
    if before is None or not (before.is_exclusive and job.is_exclusive and job.fields.reported):
        return False
    of_the_nodes = _totals(job).keys() | {"nodes", "most nodes", "CPUs"}
    return of_the_nodes.issuperset(_not_as_before(job, original, before))


def has_size(job: JobRecord, size: Allocation) -> bool:
    """Whether a pending job asks for a size, whatever its time limit and the reason for which it waits."""
    return not contradictions(job, size) and has_type(job, size)


def has_part_of(job: JobRecord, original: Allocation, intended: Allocation) -> bool:
    """Whether a single field of a pending job is as decided, and not as submitted: others have changed the rest."""
    asked, ours, values = _allowed(original), _allowed(intended), _values(job)
    return any(
        _alike(field, values[field], max(ours[field]))
        and not any(_alike(field, values[field], each) for each in asked[field])
        for field in values.keys() - _totals(job).keys()
        if values[field]
    )


def lacks_cpus(job: JobRecord) -> bool:
    """Whether a node's tasks ask for fewer CPUs than the job's minimum for a node.

    No node can hold that if the job has a number of tasks.
    """
    return 0 < _cpus_of_tasks(job) < job.fields.min_cpus_per_node


def has_conflicting_cpus(job: JobRecord) -> bool:
    """Whether a node's tasks ask for other CPUs than the job's minimum for a node: in our sizes, they agree.

    So do NumCPUs of a job on one node; an update of NumNodes that Slurm refuses leaves a multiple (22.05).
    """
    asked, of_node = job.fields, job.fields.min_cpus_per_node
    if not of_node:
        return False
    is_multiple = asked.min_cpus > of_node and asked.min_cpus % of_node == 0
    return 0 < _cpus_of_tasks(job) != of_node or (is_multiple and asked.min_nodes == 1 and not any(job.needs.parts))


def _cpus_of_tasks(job: JobRecord) -> int:
    """The CPUs that the tasks of a node ask for; 0 if that is not known."""
    asked = job.fields
    return asked.cpus_per_task * (asked.tasks_per_node or job.tasks // (asked.min_nodes or job.nodes or 1))


def limit_is_ours(job: JobRecord, original: Allocation, intended: Allocation) -> bool:
    """Whether the time limit is the decided and not the submitted one; somebody else set any other, and it stays."""
    return same_minutes(job.time_limit_s, intended.time_limit_s) and not same_minutes(
        intended.time_limit_s, original.time_limit_s
    )


def changed_meanwhile(decided_on: JobRecord, latest: JobRecord) -> str:
    """What others changed between the record that a decision is based on and a later one; empty if nothing."""
    values = _values if decided_on.fields.reported else _totals
    old, new = (
        values(job) | {"time limit (s)": job.time_limit_s, "begin (s)": job.begin_s, "nice": job.nice}
        for job in (decided_on, latest)
    )
    # Only the read-back has the CPUs per task in every version of Slurm.
    compared = [field for field in old if field != "CPUs per task" or (old[field] and new[field])]
    changed = [f"{field} {old[field]:g} → {new[field]:g}" for field in compared if old[field] != new[field]]
    changed += moves(decided_on, latest)
    if names_in(decided_on.excluded_nodes) != names_in(latest.excluded_nodes):
        changed.append(f"excluded nodes {decided_on.excluded_nodes or 'none'} → {latest.excluded_nodes or 'none'}")
    return "; ".join(changed)


def moves(earlier: JobRecord, later: JobRecord) -> list[str]:
    """Which of a job's account, QOS and partitions others changed between two records: these set its limits."""
    pairs = [(field, getattr(earlier, field), getattr(later, field)) for field in ("account", "qos", "partition")]
    return [
        f"{field} {was or 'none'} → {now or 'none'}"
        for field, was, now in pairs
        if set(was.split(",")) != set(now.split(","))  # the order of partitions says nothing
    ]


class _Was(msgspec.Struct, frozen=True):
    """The two forms in which Slurm's record may show a size as submitted."""

    size: Allocation
    record: JobRecord | None


CPUS_THAT_COME_BACK: Final = frozenset({"CPUs", "CPUs per task", "CPUs per node"})
"""Contradictions that do not keep a job from getting its request back (``changes_of_others.taking_back_kept``)."""


def contradictions(job: JobRecord, size: Allocation) -> dict[str, tuple[float, float]]:
    """Each field of a pending job that disagrees with a size: what was found, what was expected."""
    return _unlike(_values(job), _allowed(size))


def _unlike(found: Mapping[str, float], allowed: Mapping[str, tuple[float, ...]]) -> dict[str, tuple[float, float]]:
    """Fields with a value that is not allowed: the value found, and the first that is allowed."""
    return {
        field: (value, allowed[field][0] if field in allowed else math.nan)
        for field, value in found.items()
        if not any(_alike(field, value, good) for good in allowed.get(field, ()))
    }


def _not_as_before(job: JobRecord, original: Allocation, before: JobRecord | None) -> list[str]:
    """Fields that match neither the record of before nor the original size in absolute terms."""
    found = _values(job)
    was = _values(before) if before is not None else {}
    # Of a job without --nodes, a restoration sends a maximum without end. 22.05 then guesses one node too many (seen
    # with --gpus-per-node), and totals that are made of it say nothing; each single field still does.
    guessed = before is not None and job.fields.reported and not job.nodes_certain
    return [
        field
        for field in contradictions(job, original)
        if not (guessed and field in _totals(job))
        and (field not in was or not _alike(field, found[field], was[field]))
    ]


def changed_by_others(
    job: JobRecord, original: Allocation, intended: Allocation, before: JobRecord
) -> dict[str, tuple[float, tuple[float, ...]]]:
    """Each single field of a pending job that is neither as decided nor as before: its value, and those that we know.

    Those are of the original size, of the intended one, and of ``before`` if it has one.
    """
    others = set(_not_as_before(job, original, before)) - _totals(job).keys()
    values, ours = _values(before), [_allowed(size) for size in (original, intended)]
    return {
        field: (value, tuple(max(allowed[field]) for allowed in ours) + ((values[field],) if values[field] else ()))
        for field, (value, _) in contradictions(job, intended).items()
        if field in others
    }


def _in_words(job: JobRecord, wrong: dict[str, tuple[float, float]], was: _Was, intended: Allocation) -> str:
    """Field by field what was found instead of what was decided, and who changed it."""
    before = _values(was.record) if was.record is not None else {}
    allowed = _allowed(was.size)
    parts = []
    for field, (value, wanted) in wrong.items():
        ours = any(_alike(field, value, good) for good in (*allowed[field], *([before[field]] if before else ())))
        parts.append(f"{field} {value:g} instead of {wanted:g}" + ("" if ours else ", changed by someone else"))
    if not same_minutes(job.time_limit_s, intended.time_limit_s):
        other = not same_minutes(job.time_limit_s, was.size.time_limit_s)
        parts.append(
            f"time limit {job.time_limit_s} s instead of {intended.time_limit_s} s"
            + (", changed by someone else" if other else "")
        )
    return "; ".join(parts)


def _totals(job: JobRecord) -> dict[str, float]:
    """The totals that Slurm counts for a request, by names for people."""
    return {"CPUs in total": job.cpus, "GPUs in total": job.gpus, "MiB in total": job.mem_mib}


def _values(job: JobRecord) -> dict[str, float]:
    """The fields and totals of a request."""
    fields = job.fields
    return _totals(job) | {
        "nodes": fields.min_nodes or job.nodes,
        "most nodes": _most_nodes(fields),
        "tasks": job.tasks,
        "tasks per node": fields.tasks_per_node,
        "CPUs per task": fields.cpus_per_task,
        "CPUs": fields.min_cpus,
        "CPUs per node": fields.min_cpus_per_node,
        "MiB per node": fields.mem_mib_per_node,
        "MiB per CPU": fields.mem_mib_per_cpu,
        "MiB per GPU": fields.mem_mib_per_gpu,
        "GPUs per node": fields.gpus_per_node,
        "GPUs per job": fields.gpus_per_job,
        "GPUs per task": fields.gpus_per_task,
        "GPUs per socket": fields.gpus_per_socket,
        "CPUs per GPU": fields.cpus_per_gpu,
    }


def _most_nodes(fields: RequestFields) -> int:
    """A job's maximum of nodes; 0 where it has none that matters.

    It cannot get more nodes than the GPUs of --gpus. 22.05 lowers any maximum that an update names to that number.
    """
    has_no_end = fields.max_nodes >= NODES_WITHOUT_END
    return 0 if has_no_end or 0 < fields.gpus_per_job <= fields.max_nodes else fields.max_nodes


def _allowed(size: Allocation) -> dict[str, tuple[float, ...]]:
    """What the absolute message of a size leaves in each field; 0 where a field may be unset or not reported."""
    return {
        "CPUs in total": (size.cpus,),
        "GPUs in total": (size.gpus,),
        "MiB in total": (size.mem_mib,),
        "nodes": (size.nodes,),
        "most nodes": (size.nodes, 0),
        "tasks": (size.nodes * size.tasks_per_node,),
        "tasks per node": (size.tasks_per_node, *((0,) if size.nodes == 1 else ())),
        "CPUs per task": (size.cpus_per_task, 0),
        "CPUs": (size.cpus, 0),
        "CPUs per node": (size.cpus_per_node, 0),
        "MiB per node": (size.mem_mib_per_node, 0),
        "MiB per CPU": (0, size.mem_mib_per_node / size.cpus_per_node),
        "MiB per GPU": (0, size.mem_mib_per_gpu),
        "GPUs per node": (size.gpus_per_node, 0),
        "GPUs per job": (0, size.gpus),
        "GPUs per task": (0, size.gpus_per_node / size.tasks_per_node),
        "GPUs per socket": (0,),
        "CPUs per GPU": (0, size.cpus_per_gpu),
    }


def _alike(field: str, found: float, wanted: float) -> bool:
    if field.startswith("MiB") and wanted:
        return same_memory(found, wanted)
    return found == wanted
