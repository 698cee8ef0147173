"""Whether what users did to their jobs had the same effect on both sites: a user's own update wins."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from rlalloc_twins.twin_plan import GRACE_S, Submission, UserEvent
from rlalloc_twins.twin_record import Happened, TwinJob

_OF_SOME_TASKS: Final = re.compile(r"^\d+_\S+: No error$", re.MULTILINE)
"""What scontrol prints for the tasks of an array that it has changed, where it has not changed all of them."""
_OF_ENDED_TASKS: Final = re.compile(r"^\d+_\S+: Job has already finished$")
"""What it prints for those tasks of an array that have ended: 24.11 prints nothing then for those it has changed."""
_OF_TASKS: Final = re.compile(r"^\d+_(\S+): (.+ pending execution)$", re.MULTILINE)
"""What scontrol prints for those tasks of an array whose state does not allow the command."""
SIZES: Final = frozenset({"NumNodes", "TresPerNode", "MinMemoryNode", "MinCPUsNode", "CPUsPerTask", "TimeLimit"})
"""Fields that rlalloc changes. One that its user has set since the last decision stays; one that was set before was
part of the request."""
CPUS: Final = frozenset({"MinCPUsNode", "CPUsPerTask"})
PLACES: Final = frozenset({"Features", "ExcNodeList", "ReqNodeList", "Partition"})
"""Fields that say where a job may run."""
_RECORDED_AS: Final = {"CPUsPerTask": "CPUs/Task"}
_OF_OTHER_LIMITS: Final = frozenset({"Account", "Partition", "QOS"})
"""rlalloc.lua refuses these to users for a resized job, in the words below (docs/explanation/limits.md)."""
_LIMITS: Final = "Job violates accounting/QOS policy"
_LETTING_GO_S: Final = 1.0
_BUSY: Final = "Resource temporarily unavailable"
_BUSY_S: Final = 6.0
"""How long rlalloc.lua may refuse a size while rlallocd changes the job (docs/explanation/transactions.md: 5 s)."""
_PASSES: Final = frozenset({"StartTime"})
"""Fields whose value is a moment, and not the same on two sites."""


def are_comparable(planned: Submission, twin: TwinJob, job: TwinJob) -> bool:
    """Whether all events met the job in the same states on both sites, and before its end."""
    if not all(_is_comparable(number, twin, job) for number in range(len(planned.events))):
        return False
    ended = [{task.state for task in each.tasks.values()} for each in (twin, job)]
    cancelled = any(event.doing == "cancel" for event in planned.events)
    return not cancelled or ended[0] == ended[1] or not all(ended)


def _is_comparable(number: int, twin: TwinJob, job: TwinJob) -> bool:
    """Whether an event met the job in the same state on both sites, or on neither."""
    before, after = twin.events.get(number), job.events.get(number)
    if before is None or after is None:
        return before is after
    looks = (
        _kinds,
        _is_late,
        _tasks_in_other_states,
        _is_too_late_for_nodes,
        _is_held_by_slurm,
        _has_cpus_of_a_refused_update,
        _met_rlallocd_at_work,
    )
    if not all(look(before, twin) == look(after, job) for look in looks):
        return False
    begun = any(update.state == "begun" for each in job.decisions for update in each.updates)
    return not (begun and _has_cpus_of_a_refused_update(after, job))  # it started with twice the decided CPUs


def is_updated_here_only(planned: Submission, twin: TwinJob, job: TwinJob, fields: Collection[str]) -> bool:
    """Whether Slurm accepted an update of one of these fields in the grace, and refused it to the started twin."""
    return any(
        any(word.partition("=")[0] in fields for word in event.words)
        and (done := job.events.get(number)) is not None
        and (before := twin.events.get(number)) is not None
        and done.status == 0
        and _kinds(done, job) == {"PENDING"}
        and all(done.at_s <= task.submitted_s + GRACE_S for task in job.tasks.values())
        and before.status != 0
        and "PENDING" not in _kinds(before, twin)
        for number, event in enumerate(planned.events)
    )


def problems_of_events(planned: Submission, twin: TwinJob, job: TwinJob) -> Iterator[str]:
    """Say which events were refused on one site only, or came to nothing."""
    for number, event in enumerate(planned.events):
        before, after = twin.events.get(number), job.events.get(number)
        if before is None or after is None:
            continue
        what = f"{event.doing} {' '.join(event.words)}".strip()
        if _is_a_refused_move(event, after, job):
            continue
        if (before.status == 0) != (after.status == 0):
            yield f"{what}: {after.said or 'accepted'!r}, without rlalloc {before.said or 'accepted'!r}"
        elif before.status == 0 and "PENDING" in _kinds(after, job):
            yield from _lost(event, after, twin, job, what)


def _is_a_refused_move(event: UserEvent, done: Happened, job: TwinJob) -> bool:
    """Whether the event would have moved a job to other limits that rlalloc had resized, as documented.

    The journal's time of an update is when the job was let go, a moment after the update itself.
    """
    resized = any(update.at_s <= done.at_s + _LETTING_GO_S for each in job.decisions for update in each.updates)
    moves = any(word.partition("=")[0] in _OF_OTHER_LIMITS for word in event.words)
    return resized and moves and done.status != 0 and _LIMITS in done.said


def has_refused_move(planned: Submission, job: TwinJob) -> bool:
    """Whether rlalloc.lua refused to move the job, as documented: it stays in its partition."""
    return any(_is_a_refused_move(planned.events[number], done, job) for number, done in job.events.items())


def set_by_user(planned: Submission | None, job: TwinJob) -> frozenset[str]:
    """Fields of its size that its user has set since rlalloc's last update of the job.

    The journal dates an update by when the job was let go, a moment after it was verified: a change that came in
    between is there at the end.
    """
    if planned is None:
        return frozenset()
    updated_s = max((update.at_s for each in job.decisions for update in each.updates), default=0.0)
    return frozenset(
        field
        for number, event in enumerate(planned.events)
        if (done := job.events.get(number)) is not None and _had_effect(done)
        for word in event.words
        if (field := word.partition("=")[0]) in SIZES
        if done.at_s > updated_s or (done.at_s > updated_s - _LETTING_GO_S and _is_there(word, job))
    )


def _is_there(word: str, job: TwinJob) -> bool:
    """Whether the job has at the end what the word set."""
    field, _, value = word.partition("=")
    if field == "TimeLimit":  # in minutes
        return any(record.get(field) == f"00:{int(value):02}:00" for record in job.records)
    shown = (record.get(_RECORDED_AS.get(field, field), "") for record in job.records)
    return any(re.split("[:=]", each)[-1].rstrip("M") == value.rpartition(":")[2] for each in shown)


def _had_effect(done: Happened) -> bool:
    """Whether the event changed the job, or some tasks of an array."""
    if done.status == 0 or _OF_SOME_TASKS.search(done.said) is not None:
        return True
    others_had_ended = bool(done.said) and all(map(_OF_ENDED_TASKS.match, done.said.splitlines()))
    return others_had_ended and any("PENDING" in state for state in done.states)


def _lost(event: UserEvent, done: Happened, twin: TwinJob, job: TwinJob, what: str) -> Iterator[str]:
    for word in event.words:
        field = word.partition("=")[0]
        decided_later = any(each.at_s >= done.at_s - 1.0 for each in job.decisions)
        if field in _PASSES or (field in SIZES and (decided_later or _shows_nothing(word, done, job))):
            continue
        name = _RECORDED_AS.get(field, field)
        values = [{_value(record, name) for record in each.records} for each in (twin, job)]
        if values[0] != values[1]:
            yield f"{what}: {name} is {sorted(values[1])}, without rlalloc {sorted(values[0])}"


def _shows_nothing(word: str, done: Happened, job: TwinJob) -> bool:
    """Whether the user set what the job had anyway, before an update of rlalloc: slurmctld shows no trace of it."""
    field, _, value = word.partition("=")
    for each in (update for decided in job.decisions for update in decided.updates if update.at_s >= done.at_s):
        had = {
            "NumNodes": each.original.nodes,
            "TresPerNode": each.original.gpus_per_node,
            "MinMemoryNode": each.original.mem_mib_per_node,
            "CPUsPerTask": each.original.cpus_per_task,
            "TimeLimit": each.original.time_limit_s // 60,
        }
        if str(had.get(field)) == value.rpartition(":")[2]:
            return True
    return False


def _value(record: Mapping[str, str], name: str) -> str:
    return record.get(name, "")


def _is_late(happened: Happened, job: TwinJob) -> bool:
    """Whether the job started or ended between the look at its state and the user's command."""
    if any(text in happened.said for text in ("already finished", "completing", "no longer pending")):
        return True
    accepted = happened.status == 0 and _kinds(happened, job) == {"PENDING"}
    return accepted and _had_started(happened, job)


def _had_started(happened: Happened, job: TwinJob) -> bool:
    """Whether a task had started at least a second before the command; accounting has whole seconds only."""
    return any(task.started_s is not None and task.started_s + 1 <= happened.at_s for task in job.tasks.values())


def _tasks_in_other_states(happened: Happened, _: TwinJob) -> frozenset[str]:
    """The tasks of an array whose state did not allow the command."""
    return frozenset(tasks for tasks, _ in _OF_TASKS.findall(happened.said))


def _is_too_late_for_nodes(happened: Happened, job: TwinJob) -> bool:
    """Whether the event names nodes for a job that had started: slurmctld then refuses all but the job's own."""
    started = any(task.started_s is not None and task.started_s <= happened.at_s for task in job.tasks.values())
    return started and "Invalid node name" in happened.said


def _is_held_by_slurm(happened: Happened, job: TwinJob) -> bool:
    """Whether slurmctld has turned the user's hold into an administrator's.

    Once a minute it sets the reason of jobs whose dependency has failed, held ones too, and takes any reason other
    than JobHeldUser for an administrator's hold. A job that rlalloc has changed does not count.
    """
    failed = any("(failed)" in fields.get("Dependency", "") for fields in job.records)
    changed = any(each.updates for each in job.decisions)
    return failed and not changed and any("JobHeldAdmin" in state for state in happened.states)


def _has_cpus_of_a_refused_update(happened: Happened, job: TwinJob) -> bool:
    """Whether the job is left with the CPUs of an update that slurmctld refused.

    22.05 refuses NumNodes=2 for a waiting job of one task, but doubles its NumCPUs all the same. With
    --hint=nomultithread, the job then waits for ever (seen without rlalloc). Where rlalloc gives a job its request
    back later, its CPUs are those of the request again.
    """
    restored = any(
        update.state == "restored" and update.at_s > happened.at_s
        for each in job.decisions
        for update in each.updates
    )
    return "Node count specification invalid" in happened.said and not restored


def _met_rlallocd_at_work(happened: Happened, job: TwinJob) -> bool:
    """Whether rlalloc.lua refused the event because rlallocd was changing the job, as documented."""
    updates = (update.at_s for each in job.decisions for update in each.updates)
    return _BUSY in happened.said and any(abs(happened.at_s - at_s) <= _BUSY_S for at_s in updates)


def _kinds(happened: Happened, _: TwinJob) -> frozenset[str]:
    """The states, without their reasons."""
    return frozenset(state.split()[0].replace("REQUEUED", "PENDING") for state in happened.states)
