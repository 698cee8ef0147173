"""What a read-back means, field by field; and that the document of transactions tells of every fault."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from rlalloc.job import Allocation
from rlallocd.slurm import JobRecord, RequestFields
from rlallocd.slurm.json_reader import job_record
from rlallocd.submissions.request_sizes import size_of
from rlallocd.transactions.verification import (
    AddedNice,
    changed_meanwhile,
    limit_is_ours,
    verify_pending,
    verify_started,
)

from .fault_cases import FAULTS
from .recordings import FIXTURES
from .test_request_sizes_and_tags import JOB

DOCUMENT = Path(__file__).parents[2] / "docs" / "explanation" / "transactions.md"
FIELDS = RequestFields(
    min_nodes=2,
    max_nodes=2,
    tasks_per_node=2,
    cpus_per_task=16,
    min_cpus=64,
    min_cpus_per_node=32,
    mem_mib_per_node=100_000,
    gpus_per_node=4,
)
ORIGINAL = Allocation(
    nodes=2, gpus_per_node=4, tasks_per_node=2, cpus_per_task=16, mem_mib_per_node=100_000, time_limit_s=600
)
INTENDED = Allocation(
    nodes=1, gpus_per_node=2, tasks_per_node=1, cpus_per_task=8, mem_mib_per_node=50_000, time_limit_s=1200
)
SUBMITTED = msgspec.structs.replace(JOB, fields=FIELDS)
UPDATED = msgspec.structs.replace(
    JOB,
    nodes=1,
    tasks=1,
    cpus=8,
    gpus=2,
    mem_mib=50_000,
    time_limit_s=1200,
    fields=RequestFields(
        min_nodes=1,
        max_nodes=1,
        tasks_per_node=1,
        cpus_per_task=8,
        min_cpus=8,
        min_cpus_per_node=8,
        mem_mib_per_node=50_000,
        gpus_per_node=2,
    ),
)


def _verdict(job: JobRecord, before: JobRecord | None = SUBMITTED) -> str:
    return verify_pending(job, ORIGINAL, INTENDED, before).verdict


def _fields(job: JobRecord, **changes: int) -> JobRecord:
    return msgspec.structs.replace(job, fields=msgspec.structs.replace(job.fields, **changes))


def test_the_two_ends() -> None:
    assert verify_pending(UPDATED, ORIGINAL, INTENDED, SUBMITTED).text == ""
    assert _verdict(UPDATED) == "as decided"
    assert _verdict(SUBMITTED) == "as submitted"
    assert _verdict(SUBMITTED, None) == "as submitted"


@pytest.mark.parametrize(
    "field",
    [
        "min_nodes",
        "max_nodes",
        "tasks_per_node",
        "cpus_per_task",
        "min_cpus",
        "min_cpus_per_node",
        "mem_mib_per_node",
        "gpus_per_node",
    ],
)
def test_a_single_field_left_behind_is_neither_though_all_totals_are_right(field: str) -> None:
    behind = _fields(UPDATED, **{field: getattr(SUBMITTED.fields, field)})
    finding = verify_pending(behind, ORIGINAL, INTENDED, SUBMITTED)
    assert finding.verdict == "neither"
    assert "someone else" not in finding.text
    ahead = _fields(SUBMITTED, **{field: getattr(UPDATED.fields, field)})
    assert _verdict(ahead) == "neither"


@pytest.mark.parametrize("field", ["tasks", "cpus", "gpus", "mem_mib"])
def test_a_total_left_behind_is_neither(field: str) -> None:
    assert _verdict(msgspec.structs.replace(UPDATED, **{field: getattr(SUBMITTED, field)})) == "neither"
    assert _verdict(msgspec.structs.replace(SUBMITTED, **{field: getattr(UPDATED, field)})) == "neither"


@pytest.mark.parametrize(
    "field", ["gpus_per_job", "gpus_per_task", "gpus_per_socket", "cpus_per_gpu", "mem_mib_per_gpu"]
)
def test_another_kind_of_request_that_was_not_cleared_is_neither(field: str) -> None:
    assert _verdict(_fields(UPDATED, **{field: 7})) == "neither"


def test_what_a_user_asked_for_in_other_terms_is_still_as_submitted() -> None:
    per_job = _fields(SUBMITTED, gpus_per_node=0, gpus_per_job=8, tasks_per_node=0, min_cpus_per_node=16)
    assert _verdict(per_job, per_job) == "as submitted"
    assert _verdict(SUBMITTED, per_job) == "as submitted"  # restored in absolute terms


def test_a_value_that_is_nobodys_of_ours_is_told() -> None:
    by_an_admin = _fields(UPDATED, min_cpus_per_node=20)
    finding = verify_pending(by_an_admin, ORIGINAL, INTENDED, SUBMITTED)
    assert finding.verdict == "neither"
    assert finding.text == "CPUs per node 20 instead of 8, changed by someone else"


def test_a_time_limit_is_ours_or_somebody_elses() -> None:
    lowered = msgspec.structs.replace(UPDATED, time_limit_s=300)
    finding = verify_pending(lowered, ORIGINAL, INTENDED, SUBMITTED)
    assert (finding.verdict, finding.text) == (
        "neither",
        "time limit 300 s instead of 1200 s, changed by someone else",
    )
    assert _verdict(msgspec.structs.replace(SUBMITTED, time_limit_s=300)) == "as submitted"
    assert _verdict(msgspec.structs.replace(SUBMITTED, time_limit_s=1200)) == "neither"
    assert limit_is_ours(UPDATED, ORIGINAL, INTENDED)
    assert not limit_is_ours(lowered, ORIGINAL, INTENDED)
    assert not limit_is_ours(UPDATED, ORIGINAL, msgspec.structs.replace(INTENDED, time_limit_s=600))


def test_a_job_that_no_node_can_hold_is_never_as_decided() -> None:
    impossible = msgspec.structs.replace(UPDATED, reason="BadConstraints", priority=0)
    finding = verify_pending(impossible, ORIGINAL, INTENDED, SUBMITTED)
    assert finding.verdict == "neither"
    assert "BadConstraints" in finding.text
    assert _verdict(msgspec.structs.replace(SUBMITTED, reason="BadConstraints")) == "neither"
    submitted_so = msgspec.structs.replace(SUBMITTED, reason="BadConstraints")
    assert _verdict(submitted_so, submitted_so) == "as submitted"


@pytest.mark.parametrize(
    ("nice", "with_size", "without_size"),
    [
        (47, "as decided", "neither"),  # all of it
        (26, "as decided", "neither"),  # what a step left of it
        (5, "as decided", "as submitted"),  # its own: Slurm ignored ours, or never got it
        (9, "as decided", "as submitted"),  # somebody else's, and no business of ours
    ],
)
def test_a_nice_of_ours_goes_with_the_size_of_ours(nice: int, with_size: str, without_size: str) -> None:
    added = AddedNice(own=5, added=42)
    before = msgspec.structs.replace(SUBMITTED, nice=5)
    for job, verdict in ((UPDATED, with_size), (SUBMITTED, without_size)):
        found = verify_pending(msgspec.structs.replace(job, nice=nice), ORIGINAL, INTENDED, before, added)
        assert found.verdict == verdict
        assert ("nice" in found.text) == (verdict == "neither")


def test_where_only_the_nice_changes_it_alone_decides() -> None:
    added = AddedNice(own=0, added=42)

    def verdict(job: JobRecord, nice: int) -> str:
        return verify_pending(msgspec.structs.replace(job, nice=nice), ORIGINAL, ORIGINAL, SUBMITTED, added).verdict

    assert [verdict(SUBMITTED, nice) for nice in (0, 42, 7)] == ["as submitted", "as decided", "as submitted"]
    by_others = _fields(SUBMITTED, min_cpus_per_node=20)
    assert [verdict(by_others, nice) for nice in (0, 42)] == ["as submitted", "neither"]


def test_what_started_is_judged_by_its_totals() -> None:
    started = msgspec.structs.replace(UPDATED, state="RUNNING", time_limit_s=60, fields=RequestFields())
    assert verify_started(started, ORIGINAL, INTENDED, SUBMITTED).verdict == "as decided"
    assert verify_started(SUBMITTED, ORIGINAL, INTENDED, None).verdict == "as submitted"
    assert (
        verify_started(msgspec.structs.replace(started, gpus=3), ORIGINAL, INTENDED, SUBMITTED).verdict == "neither"
    )
    # Slurm chose the number of nodes by itself.
    spread = msgspec.structs.replace(SUBMITTED, nodes=4)
    assert verify_started(spread, ORIGINAL, INTENDED, None).verdict == "neither"
    assert verify_started(spread, ORIGINAL, INTENDED, SUBMITTED).verdict == "as submitted"
    memory = SUBMITTED.mem_mib / SUBMITTED.nodes
    each_its_own = msgspec.structs.replace(spread, mem_mib=4 * memory)
    assert verify_started(each_its_own, ORIGINAL, INTENDED, SUBMITTED).verdict == "as submitted"
    with_more = msgspec.structs.replace(each_its_own, mem_mib=5 * memory)
    assert verify_started(with_more, ORIGINAL, INTENDED, SUBMITTED).verdict == "neither"


def test_a_restored_job_may_have_as_many_nodes_at_most_as_gpus() -> None:
    """``--gpus=2`` without ``--nodes``: of NumNodes=1-65533, slurmctld makes a maximum of 2 (seen on 22.05)."""
    asked = _fields(SUBMITTED, min_nodes=1, max_nodes=0, gpus_per_node=0, gpus_per_job=8, tasks_per_node=0)
    for most, verdict in ((0, "as submitted"), (65_533, "as submitted"), (8, "as submitted"), (7, "neither")):
        restored = _fields(asked, max_nodes=most)
        assert verify_pending(restored, ORIGINAL, INTENDED, asked).verdict == verdict, most


def test_a_started_job_may_have_more_cpus_than_it_asked_for() -> None:
    """Slurm gives whole cores and, with CR_Socket, whole sockets: 32 CPUs instead of 2, for instance."""
    as_decided = msgspec.structs.replace(UPDATED, state="RUNNING", cpus=16, fields=RequestFields())
    assert verify_started(as_decided, ORIGINAL, INTENDED, SUBMITTED).verdict == "as decided"
    assert verify_started(as_decided, ORIGINAL, INTENDED, None).verdict == "as decided"
    fewer = msgspec.structs.replace(as_decided, cpus=4)
    assert verify_started(fewer, ORIGINAL, INTENDED, SUBMITTED).verdict == "neither"
    per_cpu = _fields(SUBMITTED, mem_mib_per_node=0, mem_mib_per_cpu=3125)
    as_submitted = msgspec.structs.replace(per_cpu, state="RUNNING", cpus=128, mem_mib=128 * 3125)
    assert verify_started(as_submitted, ORIGINAL, INTENDED, per_cpu).verdict == "as submitted"
    assert verify_started(as_submitted, ORIGINAL, INTENDED, SUBMITTED).verdict == "neither"


def test_where_only_the_cpus_differ_a_started_job_has_the_most_that_it_can_have_asked_for() -> None:
    fewer = msgspec.structs.replace(ORIGINAL, cpus_per_task=8)

    def verdict(cpus: int) -> str:
        started = msgspec.structs.replace(SUBMITTED, state="RUNNING", cpus=cpus, fields=RequestFields())
        return verify_started(started, ORIGINAL, fewer, SUBMITTED).verdict

    assert [verdict(cpus) for cpus in (32, 48, 64, 128)] == [
        "as decided",
        "as decided",
        "as submitted",
        "as submitted",
    ]


def test_an_exclusive_job_that_was_not_updated_started_as_submitted_on_whole_nodes() -> None:
    """As squeue tells it: the nodes, CPUs, memory and GPUs are those of its nodes, the rest is its request."""
    asked = msgspec.structs.replace(SUBMITTED, is_exclusive=True)
    whole_nodes = msgspec.structs.replace(asked, state="RUNNING", cpus=256, gpus=16, mem_mib=1_000_000, nodes=4)
    started = _fields(whole_nodes, min_nodes=4, max_nodes=0, min_cpus=256)
    assert verify_started(started, ORIGINAL, INTENDED, asked).verdict == "as submitted"
    in_own_terms = _fields(asked, gpus_per_node=0, gpus_per_job=8, tasks_per_node=0, min_cpus_per_node=16)
    own_terms = _fields(started, gpus_per_node=0, gpus_per_job=8, tasks_per_node=0, min_cpus_per_node=16)
    assert verify_started(own_terms, ORIGINAL, INTENDED, in_own_terms).verdict == "as submitted"
    for half_way in (
        _fields(started, mem_mib_per_node=50_000),
        _fields(started, gpus_per_node=2),
        msgspec.structs.replace(started, is_exclusive=False),
        msgspec.structs.replace(started, fields=RequestFields()),
    ):
        assert verify_started(half_way, ORIGINAL, INTENDED, asked).verdict == "neither"
    assert verify_started(started, ORIGINAL, INTENDED, SUBMITTED).verdict == "neither"
    assert verify_started(started, ORIGINAL, INTENDED, None).verdict == "neither"


@pytest.mark.parametrize("version", ["22.05", "24.11", "26.05"])
def test_an_exclusive_job_that_runs_is_recorded_with_its_request(version: str) -> None:
    recorded = json.loads((FIXTURES / f"slurm-{version}" / "squeue.json").read_text())
    job = next(each for each in recorded["jobs"] if each["name"] == "whole-node")
    started, before = job_record(job), job_record(job | {"tres_alloc_str": "", "job_state": "PENDING", "cpus": 1})
    assert (started.gpus, before.gpus) == (8, 1)
    intended = Allocation(
        nodes=1, gpus_per_node=2, tasks_per_node=1, cpus_per_task=2, mem_mib_per_node=1024, time_limit_s=60
    )
    assert verify_started(started, size_of(before), intended, before).verdict == "as submitted"


def test_what_others_changed_since_the_decision_is_told() -> None:
    assert changed_meanwhile(SUBMITTED, SUBMITTED) == ""
    assert changed_meanwhile(SUBMITTED, msgspec.structs.replace(SUBMITTED, time_limit_s=300)) == (
        "time limit (s) 600 → 300"
    )
    assert changed_meanwhile(SUBMITTED, _fields(SUBMITTED, min_cpus_per_node=20)) == "CPUs per node 32 → 20"
    assert changed_meanwhile(SUBMITTED, msgspec.structs.replace(SUBMITTED, nice=-3)) == "nice 0 → -3"
    assert changed_meanwhile(SUBMITTED, msgspec.structs.replace(SUBMITTED, qos="other")).endswith("→ other")
    assert changed_meanwhile(SUBMITTED, msgspec.structs.replace(SUBMITTED, account="other")).endswith("→ other")
    several = msgspec.structs.replace(SUBMITTED, partition="a,b")
    assert changed_meanwhile(SUBMITTED, several).endswith("→ a,b")
    assert changed_meanwhile(several, msgspec.structs.replace(several, partition="b,a")) == ""
    # One reader tells no single fields, and only the reading back tells the CPUs per task on every version.
    assert changed_meanwhile(JOB, SUBMITTED) == ""
    assert changed_meanwhile(_fields(SUBMITTED, cpus_per_task=0), SUBMITTED) == ""


def test_the_document_has_a_row_for_each_fault_that_is_injected() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([a-z ]+) \|$", DOCUMENT.read_text().split("## Faults")[1], re.MULTILINE)
    assert dict(rows[1:]) == {fault.name: " or ".join(fault.ends) for fault in FAULTS}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
