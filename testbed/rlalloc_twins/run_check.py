"""Whether scripts and their steps saw what is documented, and srun launched what it had to."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from rlalloc_twins.environment_check import unexplained
from rlalloc_twins.environment_differences import Whose
from rlalloc_twins.environment_values import Changed, Outer, says_memory
from rlalloc_twins.event_check import has_refused_move, set_by_user
from rlalloc_twins.size_check import given_to, is_left_to_slurm, last_begun
from rlalloc_twins.twin_plan import Submission
from rlalloc_twins.twin_record import Run, TwinJob

_PARTITION: Final = "SLURM_JOB_PARTITION"
"""In a step on 22.05, all that the job named."""
_NAME: Final = "SLURM_JOB_NAME"
_PARTITIONS: Final = re.compile(r"--partition=(\w+(?:,\w+)*)")
_TAG: Final = "rlalloc:v=1"
_UNREAD: Final = ";words=too-long"
"""In the tag of a job whose script the plugin stopped reading, for example on a busy machine."""


def whose(job: TwinJob) -> Whose:
    """Which differences there may be in a job's environment."""
    comment = _comment(job)
    if _TAG not in comment or ";skip=" in comment:
        return "every job"
    return "jobs of rlalloc" if last_begun(job) is None else "resized jobs"


def _comment(job: TwinJob) -> str:
    return next((record["AdminComment"] for record in job.records if record.get("AdminComment")), "")


def problems_of_runs(
    planned: Submission | None, twin: TwinJob, job: TwinJob, outer: Outer | None, counts: Counter[str]
) -> Iterator[str]:
    """Compare each run of the job that there is on both sites, the script's environment and the step's."""
    by_user = set_by_user(planned, job)
    completed = all({task.state for task in each.tasks.values()} == {"COMPLETED"} for each in (twin, job))
    if completed and _last_runs(twin) != _last_runs(job):
        yield f"it ran as {sorted(job.runs)}, without rlalloc {sorted(twin.runs)}"
    for name in sorted(twin.runs.keys() & job.runs.keys()):
        if not (twin.runs[name].batch and job.runs[name].batch):
            if completed and name == _last_of_its_task(name, job):
                yield f"its run {name} wrote no environment"
            continue  # requeued or cancelled before its script wrote it
        if last_begun(job) is None and is_left_to_slurm(planned) and name != _last_of_its_task(name, job):
            continue  # accounting has what the last run was given, perhaps on other nodes
        counts["environments compared"] += 1
        runs: tuple[Run, ...] = (twin.runs[name], job.runs[name])
        if _may_differ_in_partition(planned, job, runs):
            if others := _values_of(_PARTITION, job.runs[name]) - _named_partitions(planned, twin, job):
                yield f"its environment names {sorted(others)}, which are no partitions of the job"
            runs = tuple(_without(_PARTITION, run) for run in runs)
        if names := _new_names(planned):  # slurmd may have had the job already, or not
            if others := _values_of(_NAME, job.runs[name]) - _values_of(_NAME, twin.runs[name]) - names:
                yield f"its environment has {sorted(others)} as names of the job"
            runs = tuple(_without(_NAME, run) for run in runs)
        yield from _problems(name, runs, twin, job, outer, by_user)


def _last_runs(job: TwinJob) -> set[str]:
    """The last run of each task; one before may have been requeued before its script wrote anything."""
    return {_last_of_its_task(name, job) for name in job.runs}


def _problems(
    name: str, runs: tuple[Run, ...], twin: TwinJob, job: TwinJob, outer: Outer | None, by_user: frozenset[str]
) -> Iterator[str]:
    before, after = runs
    task = f"_{name.partition('.')[0]}" if "" not in job.tasks else ""
    ended, twin_ended = job.tasks.get(task) or job.tasks.get("+0"), twin.tasks.get(task) or twin.tasks.get("+0")
    if ended is None or twin_ended is None:
        return
    own = before.batch if outer is None else after.batch  # what is inherited says nothing of a job inside a job
    asks = "SLURM_NTASKS" in own or "SLURM_NTASKS_PER_NODE" in own
    given = given_to(ended, job, task, after.batch, by_user, asks_for_tasks=asks)
    if given is None:
        return
    of = whose(job)
    resized = of == "resized jobs"
    same = ended.tres == twin_ended.tres and _layout(before) == _layout(after)
    job_id = after.batch.get("SLURM_JOB_ID", "")
    batch = Changed(
        before.batch,
        given,
        job_id,
        asks,
        says_memory(own),
        resized,
        outer=outer,
        may_name_model=_UNREAD in _comment(job),
    )
    yield from unexplained(batch, after.batch, "batch", of, same_size=same)
    last = name == _last_of_its_task(name, job) and {ended.state, twin_ended.state} <= {"COMPLETED", "FAILED"}
    if before.status and after.status and (last or before.status == after.status == "0"):
        # Else it was ended, or requeued, before its step was through.
        yield from _problems_of_step(before, after, batch, of, same_size=same)


def _last_of_its_task(name: str, job: TwinJob) -> str:
    task = name.partition(".")[0]
    runs = (each for each in job.runs if each.partition(".")[0] == task)
    return max(runs, key=lambda each: int(each.partition(".")[2]))


def _may_differ_in_partition(planned: Submission | None, job: TwinJob, runs: tuple[Run, ...]) -> bool:
    """Whether the moment decides in which of several partitions a job starts, or its move was refused as documented.

    A run that was requeued early may have no step.
    """
    if any("," in run.steps.get(0, run.batch).get(_PARTITION, "") for run in runs):
        return True
    if planned is None:
        return False
    return len(_asked_partitions(planned)) > 1 or has_refused_move(planned, job)


def _asked_partitions(planned: Submission) -> set[str]:
    asked = _PARTITIONS.findall(" ".join((*planned.options, *planned.lines)))
    return {name for names in asked for name in names.split(",")}


def _new_names(planned: Submission | None) -> set[str]:
    """The names that a job's user gives it after its submission."""
    words = (word.partition("=") for event in (planned.events if planned else ()) for word in event.words)
    return {each for field, _, value in words if field == "JobName" for each in value.split(",")}


def _values_of(variable: str, run: Run) -> set[str]:
    variables = (run.batch, *run.steps.values())
    return {value for each in variables if variable in each for value in each[variable].split(",")}


def _named_partitions(planned: Submission | None, twin: TwinJob, job: TwinJob) -> set[str]:
    """All that the job asked for, or had on either site."""
    had = {name for each in (twin, job) for record in each.records for name in record.get("Partition", "").split(",")}
    return had | (_asked_partitions(planned) if planned is not None else set())


def _without(variable: str, run: Run) -> Run:
    def left(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name != variable}

    steps = {number: left(step) for number, step in run.steps.items()}
    return msgspec.structs.replace(run, batch=left(run.batch), steps=steps)


def _problems_of_step(before: Run, after: Run, batch: Changed, of: Whose, *, same_size: bool) -> Iterator[str]:
    if after.status not in (before.status, "0") and (batch.resized or same_size):  # else Slurm laid it out otherwise
        yield f"srun ended with {after.status} ({after.errors[:200]}), without rlalloc with {before.status}"
    if batch.outer is not None and batch.outer.size & before.batch.keys():
        return  # without rlalloc, its srun takes another job's size for its own
    launched = batch.step_tasks if batch.resized else len(before.steps) if same_size else len(after.steps)
    if len(after.steps) != launched and before.status == "0":
        yield f"srun launched {len(after.steps)} tasks, expected {launched}"
    if 0 in before.steps and 0 in after.steps:
        step = batch._replace(before=before.steps[0], in_step=True)
        yield from unexplained(step, after.steps[0], "step", of, same_size=same_size)
    if batch.resized:
        yield from _problems_of_tasks(after, batch)


def _problems_of_tasks(after: Run, batch: Changed) -> Iterator[str]:
    for number, step in after.steps.items():
        gpus = len([each for each in step.get("CUDA_VISIBLE_DEVICES", "").split(",") if each])
        if gpus not in (batch.gpus_of_task, batch.given.gpus_per_node):
            yield f"task {number} sees {gpus} GPUs"


def _layout(run: Run) -> tuple[str | None, ...]:
    names = ("SLURM_JOB_CPUS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_GPUS_ON_NODE")
    return tuple(run.batch.get(name) for name in names)
