"""What is compared of a job's environment: each documented difference, and that nothing else may differ."""

import re
from pathlib import Path

import pytest

from rlalloc.job import Allocation
from rlalloc_twins.environment_check import unexplained
from rlalloc_twins.environment_differences import DIFFERENCES, Difference, Where, Whose
from rlalloc_twins.environment_values import GPU_LISTS, Changed, Given, Outer, says_memory

from .example_records import REQUEST, SMALLER, batch_of, in_step, ours

ROOT = Path(__file__).parents[3]
SET_IN_ALL = {
    "SLURM_NTASKS": "8",
    "SLURM_NPROCS": "8",
    "SLURM_NTASKS_PER_NODE": "8",
    "SLURM_GPUS": "a100:4",
    "SLURM_GPUS_PER_NODE": "4",
    "SLURM_GPUS_PER_TASK": "1",
    "SLURM_NTASKS_PER_GPU": "2",
    "SLURM_CPUS_PER_GPU": "1",
    "SLURM_TRES_PER_TASK": "cpu=4,gres/gpu:a100=1",
    "SLURM_TRES_BIND": "gres/gpu:per_task:1",
    "SLURM_JOB_EXCLUSIVE": "NODE",
    "SLURM_MEM_PER_CPU": "2000",
    "SLURM_MEM_PER_GPU": "2000",
    "SLURM_GPUS_PER_SOCKET": "2",
    "SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0": "4",
    "SLURM_NTASKS_PER_TRES": "2",
    "SLURM_DISTRIBUTION": "block",
    "SLURMD_TRES_BIND": "gres/gpu:per_task:1",
    **dict.fromkeys(GPU_LISTS, "0,1,2,3"),
}


def given(size: Allocation) -> Given:
    return Given(
        size.nodes,
        size.gpus,
        size.gpus_per_node,
        size.cpus_per_node,
        size.tasks_per_node,
        size.cpus_per_task,
        size.mem_mib_per_node,
    )


def found(
    before: dict[str, str],
    after: dict[str, str],
    whose: Whose,
    size: Allocation,
    where: Where = "batch",
    outer: Outer | None = None,
) -> list[str]:
    resized = whose == "resized jobs"
    job = Changed(before, given(size), "21", False, says_memory(before), resized, where == "step", outer)
    return list(unexplained(job, after, where, whose, same_size=size == REQUEST))


def test_a_resized_job_sees_its_size() -> None:
    before, after = batch_of(REQUEST, 11), batch_of(SMALLER, 21, **ours(SMALLER, 21))
    assert found(before, after, "resized jobs", SMALLER) == []
    assert found(in_step(before), in_step(after), "resized jobs", SMALLER, "step") == []


def test_a_job_that_was_not_resized_sees_what_rlalloc_adds() -> None:
    before, after = batch_of(REQUEST, 11), batch_of(REQUEST, 21, **ours(REQUEST, 21))
    assert found(before, after, "jobs of rlalloc", REQUEST) == []
    assert found(before, after, "every job", REQUEST) != []


def test_any_other_job_sees_nothing_of_rlalloc() -> None:
    before = batch_of(REQUEST, 11)
    assert found(before, batch_of(REQUEST, 21, SLURM_SCRIPT_CONTEXT="prolog_task"), "every job", REQUEST) == []
    stray = batch_of(REQUEST, 21, SLURM_SCRIPT_CONTEXT="prolog_task", RLALLOC_GPUS="4")
    assert found(before, stray, "every job", REQUEST) == [
        "batch: RLALLOC_GPUS is '4', expected not there; without rlalloc not there"
    ]


@pytest.mark.parametrize("where", ["batch", "step"])
@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.names[0])
def test_each_row_is_told_if_it_does_not_hold(row: Difference, where: Where) -> None:
    """Its variable is told with another value, and where it is missing or ought to be."""
    if where not in row.where:
        return
    size = Allocation(1, 8, 4, 2, 16000, 600)
    before = {**batch_of(REQUEST, 11), **SET_IN_ALL}
    before = in_step(before) if where == "step" else before
    job = Changed(before, given(size), "21", True, says_memory(before), resized=True, in_step=where == "step")
    for name in row.names:
        wanted = row.expected(job, name)
        if wanted == "*":
            continue
        for wrong in ("7,7,7,7,7", None) if wanted is not None else ("7",):
            after = {**before, name: wrong} if wrong is not None else {k: v for k, v in before.items() if k != name}
            told = [
                text
                for text in unexplained(job, after, where, "resized jobs", same_size=False)
                if f" {name} is" in text
            ]
            assert len(told) == 1, (name, wrong, wanted)


@pytest.mark.parametrize("name", ["PATH", "SLURM_JOB_PARTITION", "OMP_NUM_THREADS"])
def test_what_the_table_does_not_name_has_to_be_the_same(name: str) -> None:
    before, after = batch_of(REQUEST, 11), batch_of(SMALLER, 21, **ours(SMALLER, 21), **{name: "other"})
    assert [text.split()[1] for text in found(before, after, "resized jobs", SMALLER)] == [name]


def test_a_resized_job_that_asked_for_whole_nodes_sees_that_it_shares_them() -> None:
    """Slurm 26.05 has variables for that, and one more for which job it is."""
    of_26_05 = {"SLURM_JOB_EXCLUSIVE": "NO", "SLURM_JOB_OVERSUBSCRIBE": "YES", "SLURM_JOB_SLUID": "s2"}
    after = batch_of(SMALLER, 21, **ours(SMALLER, 21), **of_26_05)
    whole = batch_of(REQUEST, 11, SLURM_JOB_EXCLUSIVE="NODE", SLURM_JOB_OVERSUBSCRIBE="NO", SLURM_JOB_SLUID="s1")
    assert found(whole, after, "resized jobs", SMALLER) == []
    (told,) = found({**whole, "SLURM_JOB_EXCLUSIVE": "NO"}, after, "resized jobs", SMALLER)
    assert told == "batch: SLURM_JOB_OVERSUBSCRIBE is 'YES', expected 'NO'; without rlalloc 'NO'"


def test_only_how_many_gpus_a_list_names_counts() -> None:
    before = batch_of(REQUEST, 11)
    after = batch_of(REQUEST, 21, SLURM_SCRIPT_CONTEXT="prolog_task", CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert found(before, after, "every job", REQUEST) == []
    assert found(before, {**after, "CUDA_VISIBLE_DEVICES": "4,5,6"}, "every job", REQUEST) != []


@pytest.mark.parametrize(("gpus", "tasks", "seen"), [(1, 2, 1), (2, 4, 1), (2, 2, 1), (4, 2, 4)])
def test_tasks_that_shared_gpus_see_all_where_there_are_more_gpus_than_tasks(
    gpus: int, tasks: int, seen: int
) -> None:
    given = Given(1, gpus, gpus, 8, tasks, 8 // tasks, 8000)
    before = {"SLURM_NTASKS_PER_GPU": "2"}
    job = Changed(before, given, "21", asks_for_tasks=True, says_memory=True, resized=True, in_step=True)
    assert job.gpus_of_task == seen


@pytest.mark.parametrize(("binding", "seen"), [("gres/gpu:per_task:1", 1), ("gres/gpu:closest", 2)])
def test_tasks_that_are_bound_to_gpus_see_their_own(binding: str, seen: int) -> None:
    given = Given(1, 2, 2, 2, 2, 1, 2000)
    before = {"SLURM_GPUS": "2", "SLURM_TRES_BIND": binding}
    job = Changed(before, given, "21", asks_for_tasks=True, says_memory=True, resized=True, in_step=True)
    assert job.gpus_of_task == seen


def test_a_job_inside_a_job_inherits_nothing_of_its_size() -> None:
    """Gone is as well as its own; another job's new size is not."""
    outer = Outer({"SLURM_GPUS": "4", "SLURM_MEM_PER_GPU": "9"}, {"SLURM_GPUS": "2"}, frozenset({"SLURM_GPUS"}))
    before = batch_of(REQUEST, 11, SLURM_GPUS="4", SLURM_MEM_PER_GPU="9")
    right = batch_of(REQUEST, 21, SLURM_SCRIPT_CONTEXT="prolog_task")
    assert found(before, right, "every job", REQUEST, outer=outer) == []
    assert found(before, {**right, "SLURM_GPUS": "4"}, "every job", REQUEST, outer=outer) == []
    assert found(before, {**right, "SLURM_GPUS": "2"}, "every job", REQUEST, outer=outer) != []


def test_a_job_inside_a_job_may_have_asked_for_the_outer_jobs_new_size() -> None:
    outer = Outer({"SLURM_GPUS": "8"}, {"SLURM_GPUS": "4"}, frozenset({"SLURM_GPUS"}))
    before = batch_of(REQUEST, 11, SLURM_GPUS="8")
    after = batch_of(REQUEST, 21, SLURM_SCRIPT_CONTEXT="prolog_task", SLURM_GPUS="4")
    assert found(before, after, "every job", REQUEST, outer=outer) == []
    assert found(before, {**after, "SLURM_GPUS": "2"}, "every job", REQUEST, outer=outer) != []


def test_the_plugin_sets_nothing_that_the_table_does_not_name() -> None:
    """Every variable that the TaskProlog may export or unset."""
    text = (ROOT / "slurm_plugin" / "task_prolog").read_text()
    written = set(re.findall(r"echo \"export (\w+)=", text)) | set(re.findall(r"echo 'unset (\w+)'", text))
    written |= set(re.findall(r"export_(?:gpus|quotient) (\w+) ", text))
    documented = {name for each in DIFFERENCES for name in each.names}
    assert written - documented == {"RLALLOC_JOB", "RLALLOC_NO_TASKS", "RLALLOC_PLAN"}
