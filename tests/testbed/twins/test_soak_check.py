"""What make soak tells of looks at a queue: waits that only a job's size explains."""

import msgspec
import pytest

from rlalloc_twins.node_fit import fits
from rlalloc_twins.soak_check import INTERVAL_S, Soak, compare
from rlalloc_twins.twin_record import Look, TwinJob

from .example_records import LARGER, PLAN, REQUEST, SMALLER, ended, job_with, job_without, looks_of, record

TIMED_OUT = ended(SMALLER, "TIMEOUT")
LONGER = msgspec.structs.replace(LARGER, time_limit_s=1200)
SMALLER_IN_ALL = msgspec.structs.replace(SMALLER, time_limit_s=600)
LONG_S = int(INTERVAL_S) + 5


def soak(job: TwinJob, reason: str, seconds: int = LONG_S, free_gpus: int = 4, ahead: int = 0) -> Soak:
    looks = looks_of(21, reason, seconds, free_gpus=free_gpus, ahead=ahead)
    return compare(PLAN, record("off", job_without()), record("random", job, looks=looks))


@pytest.mark.parametrize(
    "reason",
    [
        "BadConstraints",
        "AssocMaxGRESPerJob",
        "ReqNodeNotAvail, Reserved for maintenance",
        "PartitionTimeLimit",
        "Resources",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
    ],
)
def test_a_larger_job_that_waits_for_its_size_is_told(reason: str) -> None:
    found = soak(job_with(LONGER), reason)
    assert [problem.key for problem in found.problems] == ["j1"]
    assert f"waited {LONG_S} s" in found.problems[0].text


def test_within_an_interval_it_is_counted_and_not_told() -> None:
    found = soak(job_with(LARGER), "BadConstraints", 5)
    assert found.problems == ()
    assert [(wait.reason, wait.in_our_size_s) for wait in found.waits] == [("BadConstraints", 5.0)]


def test_waits_that_its_size_does_not_explain_are_not_told() -> None:
    assert soak(job_with(LARGER), "Dependency").waits == ()
    assert soak(job_with(SMALLER_IN_ALL), "AssocMaxGRESPerJob").waits == ()  # it asks for less
    assert soak(job_with(LARGER), "Resources", free_gpus=2).waits == ()  # its request would not fit, either
    assert soak(job_with(LARGER), "Resources", free_gpus=8).waits == ()  # it fits: slurmctld is about to start it
    assert soak(job_with(LARGER), "ReqNodeNotAvail, May be reserved", free_gpus=2).waits == ()  # likewise
    assert soak(job_with(LARGER), "Resources", ahead=1).waits == ()  # another job is ahead of it
    assert soak(job_with(LARGER, at_s=1000.0), "BadConstraints").waits == ()  # it had its request then


def on_nodes(looks: tuple[Look, ...], **changes: str) -> tuple[Look, ...]:
    return tuple(
        msgspec.structs.replace(look, nodes=tuple(msgspec.structs.replace(node, **changes) for node in look.nodes))
        for look in looks
    )


def test_a_longer_job_waits_for_its_size_unless_the_nodes_take_no_jobs() -> None:
    """Where its nodes are full, shorter jobs may have passed it; its twin's wait for drained nodes is no excuse."""
    reason = "ReqNodeNotAvail, Reserved for maintenance"
    looks = looks_of(21, reason, LONG_S, free_gpus=0)
    of_twin = on_nodes(looks_of(11, reason, LONG_S), state="IDLE+DRAIN")
    without, job = record("off", job_without(), looks=of_twin), job_with(LONGER)
    for state, told in (
        ("ALLOCATED", ["j1"]),
        ("MIXED+PLANNED", ["j1"]),
        ("MIXED+DRAIN", []),
        ("IDLE+MAINTENANCE+RESERVED", []),
    ):
        found = compare(PLAN, without, record("random", job, looks=on_nodes(looks, state=state)))
        assert [problem.key for problem in found.problems] == told, state


def test_a_reserved_node_is_for_the_jobs_of_its_reservation_only() -> None:
    (look,) = looks_of(21, "Resources", 0)
    (on_8,) = on_nodes((look,), name="n8", state="IDLE+RESERVED")
    for record_of, fit in (({}, {"n1"}), ({"Reservation": "twins"}, {"n8"})):
        job = job_with(records=({"Partition": "gpu", **record_of},))
        assert {each.nodes[0].name for each in (look, on_8) if fits(job, REQUEST, each)} == fit


def test_a_job_that_was_made_longer_waits_for_its_size_too() -> None:
    assert [wait.reason for wait in soak(job_with(SMALLER), "Reservation").waits] == ["Reservation"]


def test_a_job_that_backfill_passes_over_for_its_longer_limit_is_told() -> None:
    """Unless its twin waits in the queue as long."""
    longer = job_with(msgspec.structs.replace(REQUEST, time_limit_s=1200))
    assert [problem.key for problem in soak(longer, "Priority", ahead=1).problems] == ["j1"]
    assert soak(job_with(LARGER), "Priority", ahead=1).waits == ()
    without = record("off", job_without(), looks=looks_of(11, "Resources", LONG_S))
    with_it = record("random", longer, looks=looks_of(21, "Priority", LONG_S, ahead=1))
    assert compare(PLAN, without, with_it).problems == ()


def test_what_its_twin_waits_for_as_long_is_not_told() -> None:
    looks = looks_of(11, "BadConstraints", LONG_S)
    without = record("off", job_without(), looks=looks)
    job = record("random", job_with(LARGER), looks=looks_of(21, "BadConstraints", LONG_S))
    assert compare(PLAN, without, job).problems == ()


def test_a_job_that_is_missing_or_killed_is_told() -> None:
    assert [each.text for each in compare(PLAN, record("off", job_without()), record("random")).problems] == [
        "it is on one site only"
    ]
    killed = job_with(tasks={"": TIMED_OUT})
    assert "TIMEOUT" in compare(PLAN, record("off", job_without()), record("random", killed)).problems[0].text
