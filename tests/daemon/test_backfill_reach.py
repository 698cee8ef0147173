"""Which waiting jobs Slurm may start although others wait ahead, by the rules of its backfill."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from rlallocd.cluster.backfill_reach import BackfillReach
from rlallocd.cluster.queue_order import QueueOrder
from rlallocd.slurm import JobRecord, PartitionRecord, SchedulingRules

from .test_cluster_views import NOW_S, job

A, B = "alice", "bob"


def waiting(job_id: int, user: str = A, partition: str = "gpu", **changes: Any) -> JobRecord:
    return job(job_id, "PENDING", reason="Priority", user=user, partition=partition, account="llm", **changes)


def reached(jobs: Sequence[JobRecord], asking: Sequence[JobRecord] | None = None, **rules: Any) -> list[int]:
    reach = BackfillReach(jobs, QueueOrder({}), SchedulingRules(**rules), NOW_S)
    return [each.job_id for each in (jobs if asking is None else asking) if reach.reaches(each)]


QUEUE = [
    waiting(1, B),
    waiting(2),
    waiting(3),
    waiting(4, partition="other"),
    waiting(5, B, partition="other"),
    waiting(6),
]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, [1, 2, 3, 4, 5, 6]),
        ({"bf_max_job_test": 3}, [1, 2, 3, 4]),  # the fourth is the first in its partition
        ({"bf_max_job_user": 1}, [1, 2, 4]),
        ({"bf_max_job_user": 2}, [1, 2, 3, 4, 5]),
        ({"bf_max_job_assoc": 2}, [1, 2, 3, 4, 5]),
        ({"bf_max_job_assoc": 2, "bf_max_job_user": 1}, [1, 2, 3, 4, 5]),  # slurmctld takes the association's
        ({"bf_max_job_part": 1}, [1, 4]),
        ({"bf_max_job_part": 2}, [1, 2, 4, 5]),
        ({"bf_max_job_user_part": 1}, [1, 2, 4, 5]),
        ({"bf_max_job_user_part": 1, "bf_max_job_test": 3}, [1, 2, 4]),  # those that are skipped do not count
        ({"bf_max_job_user": 2, "bf_max_job_part": 2}, [1, 2, 4, 5]),
    ],
)
def test_each_limit_of_backfill(rules: dict[str, Any], expected: list[int]) -> None:
    assert reached(QUEUE, **rules) == expected


def test_a_job_that_is_skipped_counts_for_no_other_limit() -> None:
    """Alice's second is one too many of hers, so the partition has room for one of Bob's."""
    queue = [waiting(1), waiting(2), waiting(3, B)]
    assert reached(queue, bf_max_job_user=1, bf_max_job_part=2) == [1, 3]


def test_who_waits_for_something_else_is_not_counted_and_licences_and_cpu_jobs_are() -> None:
    queue = [
        msgspec.structs.replace(waiting(1), reason="AssocGrpGRES"),
        msgspec.structs.replace(waiting(2), begin_s=NOW_S + 60),
        msgspec.structs.replace(waiting(3), priority=0),
        msgspec.structs.replace(waiting(4), reason="Licenses"),
        waiting(5, gpus=0),
        waiting(6),
    ]
    assert 6 in reached(queue, bf_max_job_user=3)
    assert 6 not in reached(queue, bf_max_job_user=2)


def test_tasks_of_an_array_count_up_to_the_limit_of_an_array() -> None:
    queue = [waiting(1, B), waiting(2, waiting_tasks=1000), waiting(3)]
    assert reached(queue, bf_max_job_user=20) == [1, 2]
    assert reached(queue, bf_max_job_user=21) == [1, 2, 3]
    assert reached(queue, bf_max_job_user=5, bf_max_job_array_resv=4) == [1, 2, 3]


def test_a_new_job_counts_after_those_ahead_of_it() -> None:
    new = msgspec.structs.replace(waiting(99), reason="BeginTime", begin_s=NOW_S + 30)
    first, last = msgspec.structs.replace(new, priority=9), msgspec.structs.replace(new, job_id=98, priority=1)
    assert reached(QUEUE, [first, last], bf_max_job_user=2) == [99]
    assert reached(QUEUE, [new], bf_max_job_user=4) == []
    assert reached(QUEUE, [new], bf_max_job_user=5) == [99]


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        ({}, False),
        ({"reason": "None"}, True),
        ({"reason": "Licenses"}, True),
        ({"reason": "ReqNodeNotAvail"}, True),
        ({"reason": "Resources"}, False),
        ({"required_nodes": "n1"}, True),
        ({"reservation": "course"}, True),
        ({"partition": "other"}, True),
    ],
)
def test_slurm_starts_jobs_in_their_order_until_one_has_to_wait(changes: dict[str, Any], *, starts: bool) -> None:
    """Whoever has not been tried yet may be about to start, and those behind it as well."""
    queue = [msgspec.structs.replace(waiting(1), **changes), waiting(2, B, partition="third")]
    new = msgspec.structs.replace(waiting(9), reason="BeginTime", begin_s=NOW_S + 30)
    assert reached(queue, [new], bf_max_job_user=1, bf_max_job_test=1) == ([9] if starts else [])


def test_of_several_partitions_one_is_enough_and_each_counts() -> None:
    queue = [waiting(1, B, partition="other"), waiting(2, partition="gpu,other"), waiting(3), waiting(4, B)]
    assert reached(queue, bf_max_job_part=1) == [1, 2]
    assert reached(queue, bf_max_job_user=2) == [1, 2, 4]


def test_jobs_of_a_higher_tier_are_looked_at_first() -> None:
    tiers = {"gpu": 1, "other": 10}
    order = QueueOrder(
        {name: PartitionRecord(name=name, max_time_s=None, max_nodes=None, tier=tier) for name, tier in tiers.items()}
    )
    queue = [waiting(1, priority=900), waiting(2, priority=800), waiting(3, partition="other")]
    reach = BackfillReach(queue, order, SchedulingRules(bf_max_job_test=2), NOW_S)
    assert [reach.reaches(each) for each in queue] == [True, False, True]
