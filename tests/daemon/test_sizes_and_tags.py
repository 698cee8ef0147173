"""Pure parts of the daemon: sizes of Slurm's records, tags, candidates, and the update's words."""

import msgspec
import pytest

from rlalloc.config import Config, parse_config
from rlalloc.job import Allocation
from rlallocd.candidates import find_candidates
from rlallocd.sizes import Declined, check_form, differences, size_of
from rlallocd.slurm import JobRecord, UpdatePlan
from rlallocd.slurm.control import update_fields
from rlallocd.tag import read_tag

TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=2000;user_begin=0;ask=gpus=1-8"
JOB = JobRecord(
    job_id=7,
    name="a",
    user="alice",
    account="llm",
    partition="gpu",
    state="PENDING",
    reason="BeginTime",
    submitted_s=1000,
    begin_s=2000,
    started_s=0,
    expected_end_s=0,
    time_limit_s=600,
    priority=1,
    admin_comment=f"JS1:x {TAG}",
    nodes=2,
    tasks=4,
    cpus=64,
    gpus=8,
    mem_mib=200_000,
    gpu_type="a100",
    is_batch=True,
    is_array=False,
    is_heterogeneous=False,
    is_exclusive=False,
    has_deadline=False,
    nodes_certain=True,
    required_nodes="",
)
SIZE = Allocation(
    nodes=2, gpus_per_node=4, tasks_per_node=2, cpus_per_task=16, mem_mib_per_node=100_000, time_limit_s=600
)
ENFORCE = parse_config("mode: enforce\nrules: [{name: llm, mode: enforce}]", "test")


def _with(**changes: object) -> JobRecord:
    return msgspec.structs.replace(JOB, **changes)


def test_a_record_is_a_size() -> None:
    assert size_of(JOB) == SIZE
    assert differences(JOB, SIZE) == ()


@pytest.mark.parametrize("changes", [{"gpus": 7}, {"tasks": 3}, {"cpus": 63}, {"cpus": 6, "tasks": 4}])
def test_unequal_nodes_or_tasks_are_declined(changes: dict[str, object]) -> None:
    with pytest.raises(Declined, match="only jobs with equal"):
        size_of(_with(**changes))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"is_array": True}, "a job array"),
        ({"is_heterogeneous": True}, "a heterogeneous job"),
        ({"is_batch": False}, "not a batch job"),
        ({"required_nodes": "n1"}, "names its nodes"),
        ({"nodes_certain": False}, "left to Slurm"),
        ({"has_deadline": True}, "with a deadline"),
        ({"mem_mib": 0}, "all memory"),
        ({"time_limit_s": 0}, "without a time limit"),
    ],
)
def test_forms_are_declined_by_name(changes: dict[str, object], name: str) -> None:
    check_form(JOB)
    with pytest.raises(Declined, match=name):
        check_form(_with(**changes))


def test_differences_are_told_field_by_field() -> None:
    found = differences(_with(gpus=4, mem_mib=100_000), SIZE)
    assert found == ("gpus_per_node: 2 instead of 4", "mem_mib_per_node: 50000 instead of 100000")
    assert differences(_with(mem_mib=200_400), SIZE) == ()  # Slurm prints memory with three digits


def test_tags_are_read_beside_what_the_site_keeps_there() -> None:
    tag = read_tag(JOB.admin_comment)
    assert tag is not None
    assert (tag.mode, tag.begin, tag.directives) == ("enforce", 2000, "gpus=1-8")


@pytest.mark.parametrize(
    "comment", ["", "JS1:x", "rlalloc:v=2;mode=enforce", "rlalloc:v=1;mode=root;rule=llm", "xrlalloc:v=1;mode=off"]
)
def test_what_is_no_tag_of_ours_is_none(comment: str) -> None:
    assert read_tag(comment) is None


def test_candidates_are_pending_tagged_and_undecided() -> None:
    (found,) = find_candidates([JOB, _with(job_id=8, admin_comment="")], ENFORCE, set())
    assert found.mode == "enforce"
    assert found.deferred_by_us
    assert found.begin_s == 0
    assert find_candidates([JOB], ENFORCE, {(7, 1000)}) == ()
    assert find_candidates([_with(state="RUNNING")], ENFORCE, set()) == ()


def test_the_configuration_caps_the_mode_of_the_tag() -> None:
    (shadowed,) = find_candidates(
        [JOB], parse_config("mode: shadow\nrules: [{name: llm, mode: enforce}]", "t"), set()
    )
    assert shadowed.mode == "shadow"
    assert not shadowed.deferred_by_us
    assert find_candidates([JOB], parse_config("mode: off", "t"), set()) == ()
    assert find_candidates([JOB], Config(rules=()), set()) == ()


def test_a_job_that_started_at_once_is_still_a_shadow_decision() -> None:
    tag = TAG.replace("enforce", "shadow")
    assert len(find_candidates([_with(state="RUNNING", admin_comment=tag)], Config(), set())) == 1


def test_a_users_own_later_begin_is_kept() -> None:
    tag = TAG.replace("user_begin=0", "user_begin=2000")
    (found,) = find_candidates([_with(admin_comment=tag)], ENFORCE, set())
    assert found.begin_s == 2000


def test_an_update_sets_every_field_and_clears_the_other_requests() -> None:
    plan = UpdatePlan(job_id=7, allocation=SIZE, gpu_type="a100", clear_exclusive=True, admin_comment="x")
    fields = dict(word.split("=", 1) for word in update_fields(plan))
    assert fields == {
        "NumNodes": "2-2",
        "NumTasks": "4",
        "TasksPerNode": "2",
        "CPUsPerTask": "16",
        "NumCPUs": "64",
        "MinCPUsNode": "32",
        "MinMemoryNode": "100000",
        "TresPerNode": "gres:gpu:a100:4",
        "TresPerJob": "",
        "TresPerTask": "",
        "TresPerSocket": "",
        "CpusPerTres": "",
        "MemPerTres": "",
        "OverSubscribe": "YES",
        "TimeLimit": "10",
        "AdminComment": "x",
    }
