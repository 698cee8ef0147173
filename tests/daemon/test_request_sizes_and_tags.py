"""Pure parts of the daemon: sizes of Slurm's records, tags, candidates, and the update's words."""

import msgspec
import pytest

from rlalloc.bounds import NodeShape
from rlalloc.config import Config, parse_config
from rlalloc.job import Allocation
from rlalloc.llm.parallel_layouts import ParallelPlan
from rlallocd.slurm import JobRecord, RequestFields
from rlallocd.slurm.json_reader import job_record
from rlallocd.submissions.candidates import find_candidates, find_deferred, is_left_to_decide
from rlallocd.submissions.job_tag import (
    fits_slurmdbd,
    has_note,
    read_tag,
    was_resized,
    with_note,
    with_plan_note,
    with_reading,
    with_skip,
)
from rlallocd.submissions.request_sizes import Skipped, check_form, differences, size_of, size_on
from rlallocd.transactions.update_plans import (
    plan_restoration,
    plan_update,
    without_empty_memory,
    without_same_nodes,
)

TAG = "rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=2000;user_begin=0;ask=gpus=1-8"
PLAN = ParallelPlan(data=1, tensor=2, pipeline=2)
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
ONE_TASK = msgspec.structs.replace(SIZE, nodes=1, tasks_per_node=1)
ENFORCE = parse_config("mode: enforce\nrules: [{name: llm, mode: enforce}]", "test")


def _with(**changes: object) -> JobRecord:
    return msgspec.structs.replace(JOB, **changes)


def test_a_record_is_a_size() -> None:
    assert size_of(JOB) == SIZE
    assert differences(JOB, SIZE) == ()


@pytest.mark.parametrize(
    "asks",
    [
        {"tres_per_task": "gres:gpu:9999999999999999999"},
        {"tres_per_task": f"gres:gpu:{'9' * 5000}"},
        {"tres_per_node": "gres:gpu:a100:4294967297"},
        {"tres_per_job": "gres:gpu:4", "memory_per_tres": "gres:gpu:18446744073709551616"},
        {"tres_per_job": "gres:gpu:4", "cpus_per_tres": "gres:gpu:99999999999"},
    ],
)
def test_no_number_of_a_request_has_more_than_64_bits_or_is_read_as_a_smaller_one(asks: dict[str, str]) -> None:
    """Slurm accepts them, but answers to users hold 64 bits."""
    job = job_record({"job_id": 7, "tasks": 2, "cpus": 2, "node_count": 2, "tres_req_str": "cpu=2,node=2", **asks})
    with pytest.raises(Skipped) as skipped:
        size_of(job)
    assert skipped.value.name == "too-large"
    assert msgspec.msgpack.encode(job)
    assert max(job.gpus, job.cpus) >= 2**31 - 1 or "memory_per_tres" in asks


@pytest.mark.parametrize("changes", [{"gpus": 7}, {"tasks": 3}, {"cpus": 63}, {"cpus": 6, "tasks": 4}])
def test_unequal_nodes_or_tasks_are_skipped(changes: dict[str, object]) -> None:
    with pytest.raises(Skipped, match="do not divide evenly"):
        size_of(_with(**changes))


@pytest.mark.parametrize(
    ("changes", "fields", "name"),
    [
        ({"is_heterogeneous": True}, {}, "heterogeneous"),
        ({"is_batch": False}, {}, "interactive"),
        ({"is_scrontab": True}, {}, "scrontab"),
        ({"is_federated": True}, {}, "federation"),
        ({"reservation": "maintenance"}, {}, "reservation"),
        ({"unread": True}, {}, "request-unread"),
        ({"has_deadline": True}, {}, "deadline"),
        ({"time_min_s": 60}, {}, "time-min"),
        ({"gpus": 0}, {}, "no-gpus"),
        ({"time_limit_s": 0}, {}, "no-time-limit"),
        ({}, {"min_cpus": 1}, "overcommit"),
        ({}, {"tasks_per_part": 2}, "tasks-per-socket"),
        ({}, {"tres_per_node": "gres/gpu:4,gres/nvme:1"}, "other-gres"),
        ({}, {"tres_per_node": "gres:gpu:a100:2,gres:gpu:h100:2"}, "several-gpu-types"),
        ({}, {"tres_per_node": "gres:gpu:a100:2", "tres_per_job": "gres/gpu:h100=4"}, "several-gpu-types"),
        ({"gpu_type": "a100", "is_shard": True}, {"tres_per_node": "gres:shard:a100:2"}, "typed-shards"),
        ({"is_shard": True}, {"tres_per_node": "gres:shard:2,gres:nvme:1"}, "other-gres"),
        ({}, {"tres_per_node": "gres:gpu:2", "tres_per_job": "gres:gpu:4"}, "several-gpu-options"),
        ({}, {"tres_per_node": "gres:gpu:a100:2", "tres_per_job": "gres/gpu=4"}, "several-gpu-options"),
        ({"nodes_certain": False, "fields": RequestFields()}, None, "nodes-unknown"),
    ],
)
def test_forms_are_skipped_by_name(changes: dict[str, object], fields: dict[str, object] | None, name: str) -> None:
    told = msgspec.structs.replace(
        JOB, fields=RequestFields(min_cpus=64, min_nodes=2, max_nodes=2, tres_per_node="gres:gpu:4", gpus_per_node=4)
    )
    check_form(told)
    if fields is not None:
        changes = changes | {"fields": msgspec.structs.replace(told.fields, **fields)}
    with pytest.raises(Skipped) as skipped:
        check_form(msgspec.structs.replace(told, **changes))
    assert skipped.value.name == name


def test_gpus_of_a_task_that_name_cpus_too_are_no_other_gres() -> None:
    """24.11 writes --cpus-per-task there, too."""
    fields = RequestFields(min_cpus=64, min_nodes=2, tres_per_task="cpu:16,gres/gpu:2", gpus_per_task=2)
    check_form(_with(fields=fields))


@pytest.mark.parametrize(
    ("changes", "fields", "nodes", "gpus_per_node"),
    [
        ({"tasks": 4}, {"gpus_per_job": 4}, 1, 4),
        ({"tasks": 16}, {"gpus_per_job": 16}, 2, 8),  # Slurm says one node, which has 8
        ({"tasks": 16}, {"gpus_per_job": 16, "min_nodes": 4}, 4, 4),
        ({"tasks": 4}, {"gpus_per_task": 2}, 1, 8),
        ({"tasks": 6}, {"gpus_per_job": 12, "max_nodes": 8}, 2, 6),
        ({"tasks": 4}, {"gpus_per_node": 2, "max_nodes": 4}, 1, 2),
    ],
)
def test_a_job_without_a_number_of_nodes_is_read_on_the_fewest_that_hold_it(
    changes: dict[str, int], fields: dict[str, int], nodes: int, gpus_per_node: int
) -> None:
    shape = NodeShape(gpus=8, cpus=64, mem_mib=512_000)
    asked = RequestFields(min_nodes=1, min_cpus=2 * changes["tasks"], mem_mib_per_cpu=1000)
    asked = msgspec.structs.replace(asked, **fields)
    size = size_on(_with(**changes, fields=asked, gpus=0), shape)
    assert (size.nodes, size.gpus_per_node) == (nodes, gpus_per_node)
    assert size.mem_mib_per_node == 1000 * size.cpus_per_node


def test_a_job_that_no_node_holds_is_skipped() -> None:
    asked = RequestFields(min_nodes=1, max_nodes=1, min_cpus=8, gpus_per_job=16)
    with pytest.raises(Skipped) as skipped:
        size_on(_with(tasks=1, fields=asked), NodeShape(gpus=8, cpus=64, mem_mib=512_000))
    assert skipped.value.name == "too-large"


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


@pytest.mark.parametrize("word", ["skip", "decline"])
def test_a_tag_says_why_the_plugin_skipped_a_job(word: str) -> None:
    """Jobs in the queue keep the tag that an earlier plugin wrote."""
    tag = read_tag(f"rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=0;ask=;{word}=deadline")
    assert tag is not None
    assert tag.skip == "deadline"


def test_candidates_are_pending_tagged_and_undecided() -> None:
    (found,) = find_candidates([JOB, _with(job_id=8, admin_comment="")], ENFORCE, set())
    assert found.mode == "enforce"
    assert found.deferred_by_us
    assert found.begin_s == 0
    assert find_candidates([JOB], ENFORCE, {(7, 1000)}) == ()
    assert find_candidates([_with(state="RUNNING")], ENFORCE, set()) == ()


def test_a_job_is_deferred_until_its_grace_is_over() -> None:
    assert find_deferred([JOB], JOB.begin_s - 1) == (JOB,)
    assert find_deferred([JOB], JOB.begin_s) == ()  # to let it go again would reset its age priority
    assert find_deferred([_with(begin_s=JOB.begin_s + 1)], 0) == ()
    assert find_deferred([_with(admin_comment="")], 0) == ()
    assert find_deferred([_with(state="RUNNING")], 0) == ()


@pytest.mark.parametrize(
    ("config", "decided", "left"),
    [
        (ENFORCE, set(), True),
        (ENFORCE, {(7, 1000)}, False),
        (parse_config("mode: off", "t"), set(), False),
        (parse_config("mode: shadow\nrules: [{name: llm, mode: enforce}]", "t"), set(), False),
        (Config(rules=()), set(), False),
    ],
)
def test_only_a_job_in_mode_enforce_is_left_to_decide(
    config: Config, decided: set[tuple[int, int]], *, left: bool
) -> None:
    assert is_left_to_decide(JOB, config, decided) is left


def test_the_configuration_caps_the_mode_of_the_tag() -> None:
    (shadowed,) = find_candidates(
        [JOB], parse_config("mode: shadow\nrules: [{name: llm, mode: enforce}]", "t"), set()
    )
    assert shadowed.mode == "shadow"
    assert not shadowed.deferred_by_us
    assert find_candidates([JOB], parse_config("mode: off", "t"), set()) == ()
    assert find_candidates([JOB], Config(rules=()), set()) == ()


@pytest.mark.parametrize(
    ("rule", "covered"),
    [
        ("partitions: [gpu, big]", True),
        ("partitions: [gpu]", False),
        ("accounts: [LLM]", True),
        ("accounts: [phys]", False),
    ],
)
def test_a_job_that_was_moved_out_of_its_rule_is_left_alone(rule: str, *, covered: bool) -> None:
    """By its user, an administrator, or a job_submit.lua that sets the partition after rlalloc's plugin."""
    config = parse_config(f"mode: enforce\nrules: [{{name: llm, {rule}}}]", "t")
    moved = _with(partition="gpu,big", account="llm")
    assert bool(find_candidates([moved], config, set())) == covered
    assert is_left_to_decide(moved, config, set()) == covered


def test_a_job_that_started_at_once_is_still_a_shadow_decision() -> None:
    tag = TAG.replace("enforce", "shadow")
    assert len(find_candidates([_with(state="RUNNING", admin_comment=tag)], Config(), set())) == 1


def test_a_users_own_later_begin_is_kept() -> None:
    tag = TAG.replace("user_begin=0", "user_begin=2000")
    (found,) = find_candidates([_with(admin_comment=tag)], ENFORCE, set())
    assert found.begin_s == 2000


def test_an_update_sets_every_field_and_clears_the_other_requests() -> None:
    exclusive = _with(is_exclusive=True, required_nodes="n[1-3]", nodes=3)
    assert dict(plan_update(exclusive, SIZE, "x").fields) == {
        "ReqNodeList": "",
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


@pytest.mark.parametrize(
    ("nodes", "most_nodes", "array", "kept"),
    [(2, 2, 0, False), (2, 0, 0, True), (1, 2, 0, True), (3, 3, 0, True), (2, 2, 6, True)],
    ids=["as many", "no maximum", "a range", "more", "an array"],
)
def test_only_a_job_with_as_many_nodes_can_do_without_their_number(
    nodes: int, most_nodes: int, array: int, *, kept: bool
) -> None:
    asked = RequestFields(min_nodes=nodes, max_nodes=most_nodes, min_cpus=64)
    job = _with(nodes=nodes, array_job_id=array, fields=asked)
    fields = dict(without_same_nodes(plan_update(job, SIZE, "x"), job).fields)
    assert ("NumNodes" in fields) == kept
    assert fields["NumTasks"] == "4"


@pytest.mark.parametrize(
    ("changes", "size", "named"),
    [
        ({}, ONE_TASK, False),
        ({"tasks_per_node": 1}, ONE_TASK, True),
        ({"cpus_per_tres": "gres:gpu:2"}, ONE_TASK, True),
        ({}, msgspec.structs.replace(ONE_TASK, tasks_per_node=2), True),
        ({}, msgspec.structs.replace(ONE_TASK, nodes=2), True),
    ],
    ids=["stays one task", "tasks per node", "CPUs per GPU", "more tasks", "more nodes"],
)
def test_an_update_does_not_name_the_only_task_of_a_job_that_may_name_none(
    changes: dict[str, int | str], size: Allocation, *, named: bool
) -> None:
    """No update could take the number away again."""
    asked = RequestFields(min_nodes=1, max_nodes=1, min_cpus=8, tres_per_node="gres:gpu:4", **changes)  # type: ignore[arg-type]
    job = _with(tasks=1, nodes=1, fields=asked)
    fields = dict(plan_update(job, size, "x").fields)
    assert ("NumTasks" in fields, "TasksPerNode" in fields) == (named, named)


@pytest.mark.parametrize("has", ["", "gres/gpu:8G"])
def test_memory_per_gpu_is_cleared_only_where_a_job_has_it(has: str) -> None:
    """Beside an empty MemPerTres, Slurm shows no memory per node (seen on 24.11, 25.11 and 26.05)."""
    job = _with(fields=RequestFields(min_nodes=1, min_cpus=8, mem_per_tres=has, tres_per_node="gres/gpu:4"))
    updates = plan_update(job, SIZE, "x"), without_empty_memory(plan_restoration(job, SIZE, "x"), job)
    assert {dict(plan.fields).get("MemPerTres") for plan in updates} == ({""} if has else {None})


@pytest.mark.parametrize(("comment", "restored"), [(TAG, "0"), (with_note(TAG, "5"), "100000")])
def test_a_restoration_to_a_size_of_ours_has_its_memory_also_where_slurm_does_not_show_it(
    comment: str, restored: str
) -> None:
    """0 would be all that the node has; of a job that we have not resized, that is what it asks for (--mem=0)."""
    asked = RequestFields(min_nodes=2, min_cpus=64, tres_per_node="gres/gpu:4")
    fields = dict(plan_restoration(_with(fields=asked, admin_comment=comment), SIZE, comment).fields)
    assert fields["MinMemoryNode"] == restored


def test_an_update_of_shards_has_no_terms_of_gpus() -> None:
    """25.11 refuses both fields for such a job, even empty."""
    asked = RequestFields(min_nodes=1, tres_per_node="gres/shard:2")
    shards = _with(is_shard=True, gpu_type=None, fields=asked)
    resized = dict(plan_update(shards, SIZE, "").fields)
    assert resized["TresPerNode"] == "gres:shard:4"
    for fields in (resized, dict(plan_restoration(shards, SIZE, "").fields)):
        assert not fields.keys() & {"CpusPerTres", "MemPerTres"}


def test_named_nodes_stay_where_they_are_not_too_many() -> None:
    assert "ReqNodeList" not in dict(plan_update(_with(required_nodes="n[1-2]"), SIZE, "").fields)


def test_a_restoration_speaks_in_the_jobs_own_terms() -> None:
    asked = RequestFields(
        min_nodes=1, min_cpus=8, min_cpus_per_node=2, mem_mib_per_cpu=4000, gpus_per_job=4, tres_per_job="gres:gpu:4"
    )
    fields = dict(plan_restoration(_with(tasks=4, fields=asked, is_exclusive=True), SIZE, "x").fields)
    assert fields["NumNodes"] == "1-65533"
    assert (fields["NumTasks"], fields["TasksPerNode"], fields["CPUsPerTask"]) == ("4", "0", "2")
    assert fields["MinMemoryCPU"] == "4000"
    assert (fields["TresPerJob"], fields["TresPerNode"], fields["OverSubscribe"]) == ("gres:gpu:4", "", "NO")


def test_what_scontrol_cannot_say_is_restored_as_a_size() -> None:
    asked = RequestFields(min_nodes=1, max_nodes=1, min_cpus=4, mem_mib_per_node=4000)  # --ntasks-per-gpu
    before = _with(tasks=4, gpus=4, fields=asked)
    fields = dict(plan_restoration(before, size_of(before), "").fields)
    assert (fields["NumNodes"], fields["TresPerNode"]) == ("1-1", "gres:gpu:a100:4")
    assert (fields["MinMemoryNode"], fields.get("OverSubscribe")) == ("4000", None)
    exclusive = _with(tasks=4, gpus=4, fields=asked, is_exclusive=True)
    assert dict(plan_restoration(exclusive, size_of(exclusive), "").fields)["OverSubscribe"] == "NO"


def test_a_plan_can_leave_fields_alone() -> None:
    plan = plan_update(JOB, SIZE, "x")
    assert dict(plan.without("TimeLimit", "AdminComment").fields) == {
        name: value for name, value in plan.fields if name not in ("TimeLimit", "AdminComment")
    }


def test_notes_are_replaced_and_nothing_of_the_site_is() -> None:
    once = with_note(JOB.admin_comment, "1")
    assert not has_note(JOB.admin_comment)
    assert has_note(once)
    assert with_note(once, "2") == f"{JOB.admin_comment} rlalloc-decision:2"
    assert with_plan_note(with_plan_note(once, PLAN), None) == once


def test_notes_of_a_tag_alone_need_no_blank() -> None:
    """So one scontrol can carry many updates. The tag is read as before, with notes of either form."""
    noted = with_plan_note(with_note(TAG, "1"), PLAN)
    assert noted == f"{TAG};rlalloc-decision:1;rlalloc-plan:1x2x2"
    assert with_plan_note(with_note(noted, "2"), None) == f"{TAG};rlalloc-decision:2"
    assert with_note(f"{TAG} rlalloc-decision:1", "2") == f"{TAG};rlalloc-decision:2"
    assert has_note(noted)
    assert read_tag(noted) == read_tag(TAG)
    assert with_note(with_skip(noted, "off"), "2") == f"{TAG};rlalloc-plan:1x2x2;skip=off;rlalloc-decision:2"


def test_when_a_job_was_read_comes_last() -> None:
    """The plugin takes this note off. Where a site does not call it, the note stays, and goes with the next one."""
    noted = with_reading(with_note(TAG, "1"), 12_345.6)
    assert noted == f"{TAG};rlalloc-decision:1;rlalloc-read:12345.60"
    assert read_tag(noted) == read_tag(TAG)
    assert with_reading(noted, 2.0) == f"{TAG};rlalloc-decision:1;rlalloc-read:2.00"
    assert with_plan_note(noted, PLAN) == f"{TAG};rlalloc-decision:1;rlalloc-plan:1x2x2"
    assert with_reading(JOB.admin_comment, 2.0) == f"{JOB.admin_comment} rlalloc-read:2.00"


def test_a_note_of_the_nice_alone_does_not_say_that_the_job_was_resized() -> None:
    nice = with_note(TAG, "1", nice_alone=True)
    assert nice == f"{TAG};rlalloc-nice:1"
    assert has_note(nice)
    assert not was_resized(nice)
    assert read_tag(nice) == read_tag(TAG)
    resized = with_note(nice, "2")
    assert resized == with_note(TAG, "2")
    assert was_resized(resized)
    assert with_note(resized, "3", nice_alone=True) == with_note(TAG, "3")


def test_an_admin_comment_without_room_is_left_as_it_is() -> None:
    full = "x" * 65_530
    assert fits_slurmdbd(full)
    assert not fits_slurmdbd(with_note(full, "1"))
    assert with_reading(full, 5.0) == full
    assert "AdminComment" not in dict(plan_update(JOB, SIZE, with_note(full, "1")).fields)
