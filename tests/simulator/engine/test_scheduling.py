"""The main scheduler, backfill and the choice of nodes, on cases that can be computed by hand."""

import msgspec
import pytest

from rlalloc_simulator.engine import (
    NodeKind,
    PartitionKind,
    PriorityParameters,
    SchedulerParameters,
    SimulatedSite,
    UserKind,
)
from tests.simulator.engine.by_hand import EASY, SHAPE, job, reasons, simulator, site, size, starts, states

NO_BACKFILL = SchedulerParameters(backfill=False)


def test_jobs_start_in_the_order_of_submission() -> None:
    jobs = [job(number, size(8)) for number in range(5)]
    assert starts(jobs, site(1)) == [0, 100, 200, 300, 400]


def test_without_backfill_nobody_passes_the_head_of_the_queue() -> None:
    jobs = [job(0, size(8, 120)), job(1, size(8, nodes=2)), job(2, size(1, 60), 50)]
    assert starts(jobs, site(scheduler=NO_BACKFILL)) == [0, 100, 200]


def test_a_short_job_is_backfilled_at_the_next_cycle() -> None:
    """The head starts at 120 at the latest; the third job has 60 s and the cycle at 30 s starts it."""
    jobs = [job(0, size(8, 200)), job(1, size(8, nodes=2)), job(2, size(8, 60), 50)]
    assert starts(jobs) == [0, 100, 30]


def test_a_job_that_would_delay_the_head_waits() -> None:
    jobs = [job(0, size(8, 200)), job(1, size(8, nodes=2)), job(2, size(8, 300), 50)]
    assert starts(jobs) == [0, 100, 200]


def test_reservations_are_of_whole_nodes() -> None:
    """The head will need 4 GPUs of the only node at 200 s; beside it there is room, but Slurm reserves the node."""
    jobs = [job(0, size(6, 200), 150), job(1, size(4, 600), 100), job(2, size(2, 600), 50)]
    assert starts(jobs, site(1)) == [0, 150, 150]


def test_conservative_backfill_reserves_for_each_and_easy_for_the_first_only() -> None:
    """The fourth has a reservation on node 2 from 420 s on, which the last one would run into; EASY makes none."""
    jobs = [
        job(0, size(8, 300), 300),
        job(0, size(4, 420), 420),
        job(1, size(8, 600)),  # on node 1 at 300 s
        job(2, size(5, 600)),  # on node 2 at 420 s
        job(3, size(4, 600), 500),  # fits node 2 now
    ]
    assert starts(jobs) == [0, 0, 300, 400, 400]
    assert starts(jobs, site(scheduler=EASY)) == [0, 0, 300, 400, 30]


def test_a_reservation_beyond_the_window_is_not_made() -> None:
    jobs = [job(0, size(7, 5000), 4000), job(1, size(8, 600)), job(2, size(1, 9000), 100)]
    assert starts(jobs, site(1)) == [0, 4000, 4100]
    near = SchedulerParameters(bf_window=3600.0)
    assert starts(jobs, site(1, scheduler=near)) == [0, 4000, 30]


def test_backfill_tests_no_more_than_bf_max_job_test() -> None:
    blocked = [job(0, size(8, 300), 300), job(1, size(8, nodes=2)), job(2, size(8, 6000)), job(3, size(8, 60), 50)]
    assert starts(blocked)[3] == 30
    assert starts(blocked, site(scheduler=SchedulerParameters(bf_max_job_test=2)))[3] > 300


def test_backfill_starts_no_more_than_bf_max_job_start_in_a_cycle() -> None:
    jobs = [job(0, size(8, 600), 600), job(1, size(8, nodes=2)), *(job(2, size(1, 60), 50) for _ in range(3))]
    one = SchedulerParameters(bf_max_job_start=1)
    assert starts(jobs, site(scheduler=one))[2:] == [30, 60, 90]


def test_the_tightest_set_of_consecutive_nodes_is_taken() -> None:
    """Nodes 1 and 3 to 4 are free: a job of two nodes takes 3 and 4, a job of one takes node 1."""
    jobs = [
        job(0, size(8), 50),
        job(0, size(8), 500),
        job(0, size(8), 50),
        job(0, size(8), 50),
        job(0, size(8), 500),
        job(100, size(8, nodes=1)),
        job(101, size(8, nodes=2)),
    ]
    made = simulator(jobs, site(5))
    made.run(102.0)
    held: dict[int, set[int]] = {number: set() for number in (5, 6)}
    for node in range(5):
        for slot in range(made.world.nodes[node]["running"]):
            number = int(made.world.slots[node, slot]["job"])
            if number in held:
                held[number].add(node)
    assert held == {5: {0}, 6: {2, 3}}


def test_nodes_of_lower_weight_come_first() -> None:
    kinds = (NodeKind(count=1, shape=SHAPE, weight=10), NodeKind(count=1, shape=SHAPE, weight=1))
    made = simulator([job(0, size(2))], SimulatedSite(nodes=kinds))
    made.run(1.0)
    assert made.world.free_devices[:, 0].tolist() == [8, 6]


@pytest.mark.parametrize(("what", "value"), [("mem_mib_per_node", 5000), ("cpus_per_task", 5)])
def test_memory_and_cpus_block_as_gpus_do(what: str, value: int) -> None:
    jobs = [job(0, size(1, **{what: value})), job(1, size(1, **{what: value}))]
    assert starts(jobs, site(1)) == [0, 100]


def test_a_job_gets_the_gpu_type_that_it_names() -> None:
    kinds = (
        NodeKind(count=1, shape=SHAPE, gpu_type="a100"),
        NodeKind(count=1, shape=SHAPE, gpu_type="h100", speed=2.0),
    )
    there = SimulatedSite(nodes=kinds)
    jobs = [job(0, size(8), gpu_type="h100"), job(1, size(8), gpu_type="h100"), job(2, size(8), gpu_type="a100")]
    made = simulator(jobs, there)
    made.run()
    assert made.outcomes()["start_s"].tolist() == [0, 50, 30]
    assert made.outcomes()["finished_s"].tolist() == [50, 100, 130]


def test_a_blocked_partition_does_not_block_another() -> None:
    kinds = (NodeKind(count=1, shape=SHAPE, partitions=("a",)), NodeKind(count=1, shape=SHAPE, partitions=("b",)))
    there = SimulatedSite(nodes=kinds, partitions=(PartitionKind(name="a"), PartitionKind(name="b")))
    jobs = [job(0, size(8)), job(1, size(8)), job(2, size(8), partition=1)]
    assert starts(jobs, there) == [0, 100, 2]


def test_a_partition_of_higher_tier_goes_first() -> None:
    there = SimulatedSite(
        nodes=(NodeKind(count=1, shape=SHAPE, partitions=("low", "high")),),
        partitions=(PartitionKind(name="low"), PartitionKind(name="high", priority_tier=2)),
    )
    jobs = [job(0, size(8)), job(1, size(8)), job(2, size(8), partition=1)]
    assert starts(jobs, there) == [0, 200, 100]


def test_nice_puts_a_job_behind_as_many_others() -> None:
    jobs = [job(0, size(8)), job(1, size(8), nice=2), job(2, size(8)), job(3, size(8))]
    assert starts(jobs, site(1)) == [0, 200, 100, 300]


def test_qos_and_size_order_the_queue_as_they_weigh() -> None:
    qos = PriorityParameters(type="multifactor", weight_qos=1000.0)
    jobs = [job(0, size(8)), job(1, size(8), qos_factor=0.1), job(2, size(8), qos_factor=0.9)]
    assert starts(jobs, site(1, priority=qos)) == [0, 200, 100]
    large = PriorityParameters(type="multifactor", weight_job_size=1000.0)
    jobs = [job(0, size(8)), job(1, size(1), 60), job(2, size(8))]
    assert starts(jobs, site(1, priority=large)) == [0, 200, 100]
    assert starts(jobs, site(1, priority=msgspec.structs.replace(large, favor_small=True))) == [0, 100, 160]


def test_age_makes_up_for_a_better_qos() -> None:
    """After 600 s in the queue the old job has 1,000 points of age; the new one comes with 500 of its QOS."""
    aged = PriorityParameters(type="multifactor", weight_age=1000.0, weight_qos=500.0, max_age=600.0)
    jobs = [job(0, size(8, 900), 900), job(1, size(8)), job(890, size(8), qos_factor=1.0)]
    assert starts(jobs, site(1, priority=aged)) == [0, 900, 1000]
    jobs = [job(0, size(8, 900), 300), job(1, size(8)), job(290, size(8), qos_factor=1.0)]
    assert starts(jobs, site(1, priority=aged)) == [0, 400, 300]


def test_who_has_used_less_goes_first() -> None:
    """User 0 has run for 700 s; from the calculation at 600 s on their fair-share is below that of user 1."""
    fair = PriorityParameters(type="multifactor", weight_fairshare=1000.0)
    jobs = [job(0, size(8, 900), 700, user=0), job(1, size(8), user=0), job(2, size(8), user=1)]
    assert starts(jobs, site(1, users=2, priority=fair)) == [0, 800, 700]


def test_accounts_weigh_before_users() -> None:
    """The account of users 0 and 1 has been served: a user who ran nothing goes behind all of another account."""
    users = tuple(UserKind(name=f"u{number}", account=account) for number, account in enumerate("aab"))
    fair = PriorityParameters(type="multifactor", weight_fairshare=1000.0)
    jobs = [job(0, size(8, 900), 700, user=0), job(1, size(8), user=1), job(2, size(8), user=2)]
    there = SimulatedSite(nodes=(NodeKind(count=1, shape=SHAPE),), users=users, priority=fair)
    assert starts(jobs, there) == [0, 800, 700]


def test_what_waits_says_why() -> None:
    made = simulator(
        [job(0, size(8), 500), job(1, size(8)), job(2, size(8)), job(3, size(1), begin_s=400.0)], site(1)
    )
    made.run(100.0)
    assert states(made) == ["RUNNING", "PENDING", "PENDING", "DEFERRED"]
    assert reasons(made) == ["None", "Resources", "Priority", "BeginTime"]
