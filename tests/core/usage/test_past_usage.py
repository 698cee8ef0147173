"""Floors from what like jobs used."""

import tracemalloc

import msgspec
import pytest

from rlalloc.past_job import Allotted, PastJob
from rlalloc.usage import past_usage
from rlalloc.usage.like_jobs import LikeJobs
from rlalloc.usage.past_usage import NOTHING_KNOWN, Floor, PastUsage
from rlalloc.usage.trimming_rules import TrimmingSection
from rlalloc.usage.used_amounts import amounts_of

GIB = 1024.0
RULES = TrimmingSection(exceeded=0.02)
LIKE = PastJob(
    job_id="1",
    user="ada",
    account="nlp",
    partition="gpu",
    name="train-7b",
    script="f00",
    submitted_s=0.0,
    started_s=10.0,
    ended_s=3610.0,
    state="COMPLETED",
    nodes=1,
    cpus=64,
    gpus=4,
    mem_mib=256 * GIB,
    node_rss_mib=50 * GIB,
    cpu_s_used=3600.0 * 8,
)


def later(number: int, **changes: object) -> PastJob:
    """A job like it, submitted a day after the one before."""
    moved = {name: getattr(LIKE, name) + 86_400.0 * number for name in ("submitted_s", "started_s", "ended_s")}
    return msgspec.structs.replace(LIKE, job_id=str(number + 2), **moved, **changes)


def after(*jobs: PastJob, rules: TrimmingSection = RULES) -> PastUsage:
    usage = PastUsage(rules)
    for job in jobs:
        usage.add(job)
    return usage


def past(number: int, **changes: object) -> list[PastJob]:
    return [later(each, **changes) for each in range(number)]


def test_a_floor_is_what_like_jobs_used_and_the_margins() -> None:
    floors = after(*past(120)).floors(later(200))
    assert floors.node_mib is not None
    assert floors.cpus_per_gpu is not None
    assert floors.node_mib.amount == pytest.approx(50 * GIB * 1.1)
    assert (floors.node_mib.kind, floors.node_mib.jobs) == ("script_and_size", 100)
    assert floors.cpus_per_gpu.amount == pytest.approx(2 * 1.25)


def test_too_thin_a_past_gives_no_floor() -> None:
    assert after().floors(LIKE) == NOTHING_KNOWN
    # Four like jobs are not enough, nor are like jobs where no margin could be learned.
    assert after(*past(4)).floors(LIKE) == NOTHING_KNOWN
    assert after(*past(40)).floors(LIKE) == NOTHING_KNOWN
    assert after(*past(120, node_rss_mib=None, cpu_s_used=None)).floors(LIKE) == NOTHING_KNOWN


def of_families(number: int, jobs: int, *, spread: float = 0.0) -> list[PastJob]:
    """Families that ran only ``jobs`` jobs each, one after the other; the last of each used more by ``spread``."""
    return [
        later(
            jobs * family + job,
            user=f"user{family}",
            account=f"account{family}",
            partition=f"partition{family}",
            node_rss_mib=(40 + family % 7) * GIB * (1.0 + spread * (job == jobs - 1) * (family % 3)),
        )
        for family in range(number)
        for job in range(jobs)
    ]


@pytest.mark.parametrize("jobs", [1, 2, 3, 4])
def test_of_few_like_jobs_a_margin_of_their_own_is_learned(jobs: int) -> None:
    """No family ever has more than the five jobs that a group of the usual size has at least."""
    usage = after(*of_families(120, jobs + 1))
    for job in past(jobs, user="new", account="new", partition="new"):
        usage.add(job)
    floor = usage.floors(later(0, user="new", account="new", partition="new")).node_mib
    assert floor is not None
    assert (floor.kind, floor.jobs) == ("script_and_size", jobs)
    assert floor.amount == pytest.approx(50 * GIB * 1.1)


def test_where_small_families_change_their_needs_nothing_is_trimmed_to_them() -> None:
    """The last job of two families in three uses twice or three times as much as the two before it."""
    new = {"user": "new", "account": "new", "partition": "new"}
    usage = after(*of_families(200, 3, spread=1.0), *past(2, **new))
    floor = usage.floors(later(0, **new)).node_mib
    assert floor is None or floor.amount > 2.9 * 50 * GIB


def test_cpus_may_be_exceeded_more_often_than_memory() -> None:
    """One job in 200 needs twice as much of both: of memory that is too many, of CPUs it is not."""
    rules = msgspec.structs.replace(RULES, exceeded=0.005, cpus_exceeded=0.03)
    jobs = [
        later(
            each,
            cpu_s_used=3600.0 * (16 if each % 200 == 50 else 8),
            node_rss_mib=(100 if each % 200 == 50 else 50) * GIB,
        )
        for each in range(400)
    ]
    floors = after(*jobs, rules=rules).floors(later(500))
    assert floors.cpus_per_gpu is not None
    assert floors.cpus_per_gpu.amount == pytest.approx(2.0 * 1.25)
    assert floors.node_mib is None or floors.node_mib.amount > 99 * GIB


def test_a_need_that_one_job_in_fifty_has_is_known() -> None:
    jobs = [later(each, node_rss_mib=(100 if each % 50 == 25 else 50) * GIB) for each in range(149)]
    floor = after(*jobs).floors(later(200)).node_mib
    assert floor is not None
    assert floor.amount >= 100 * GIB


def test_only_what_had_ended_at_a_submission_is_scored() -> None:
    """A hundred jobs at once say nothing of what is known at the next submission."""
    at_once = [msgspec.structs.replace(LIKE, job_id=str(number)) for number in range(200)]
    assert after(*at_once).floors(later(1)) == NOTHING_KNOWN


def test_the_margin_grows_where_jobs_go_beyond_what_like_jobs_used() -> None:
    varied = [later(number, node_rss_mib=50 * GIB * (1 + number % 7 / 3)) for number in range(120)]
    steady, unsteady = (after(*jobs).floors(later(200)).node_mib for jobs in (past(120), varied))
    assert steady is not None
    assert unsteady is not None
    assert unsteady.amount >= 150 * GIB
    jumping = [later(number, node_rss_mib=50 * GIB * (4 if number % 24 == 23 else 1)) for number in range(240)]
    jumped = after(*jumping).floors(later(300)).node_mib
    assert jumped is None or jumped.amount >= 200 * GIB


def test_a_family_that_jumps_is_trimmed_where_it_asks_for_far_more() -> None:
    """One job in 150 uses five times as much, too many for the learned margin."""
    jobs = [later(each, node_rss_mib=(20 if each % 150 == 75 else 4) * GIB) for each in range(900)]
    usage = after(*jobs, rules=TrimmingSection())
    floor, of_little = (usage.floors(later(950, mem_mib=gib * GIB)).node_mib for gib in (256, 32))
    assert floor is not None
    assert floor.amount == 52 * GIB  # 2.5 times 20 GiB, in whole GiB for each of four GPUs
    assert floor.margin == pytest.approx(1.6)
    assert of_little is None


def test_a_job_that_asks_for_more_than_any_like_it_gets_as_much_more() -> None:
    usage = after(*past(120))
    usual, more = (usage.floors(later(200, mem_mib=gib * GIB)).node_mib for gib in (256, 512))
    assert usual is not None
    assert more is not None
    assert more.amount == pytest.approx(2 * usual.amount)


@pytest.mark.parametrize("account", ["nlp", "vision"])
def test_many_tiny_jobs_of_one_user_do_not_lower_the_floor_of_a_user_without_a_past(account: str) -> None:
    """An array of them is more than a group holds; 30 others used up to 56 GiB."""
    usage = after(*(later(each, user=f"user{each % 30}", node_rss_mib=(50 + each % 7) * GIB) for each in range(300)))
    new = later(400, user="new", account=account, name="first", script="")
    for job in past(100, user="eve", node_rss_mib=30.0, cpu_s_used=36.0):
        usage.add(msgspec.structs.replace(job, submitted_s=LIKE.submitted_s + 86_400.0 * 300))
    floors = usage.floors(new)
    assert floors.node_mib is None or floors.node_mib.amount >= 56 * GIB
    assert floors.cpus_per_gpu is None or floors.cpus_per_gpu.amount >= 2.0


@pytest.mark.parametrize(("account", "kind", "fewest"), [("nlp", "account", 3), ("vision", "partition", 5)])
def test_a_user_without_a_past_gets_a_floor_only_by_enough_other_users(account: str, kind: str, fewest: int) -> None:
    def floor_by(users: int, **of_one: object) -> Floor | None:
        jobs = (later(each, user=f"user{each % users}", **of_one if each % users == 0 else {}) for each in range(200))
        return after(*jobs).floors(later(300, user="new", account=account, name="first", script="")).node_mib

    floor = floor_by(fewest)
    assert floor is not None
    assert (floor.kind, floor.jobs) == (kind, 5 * fewest)
    assert floor_by(fewest - 1) is None
    assert floor_by(fewest, node_rss_mib=None) is None  # of one of them nobody knows what the jobs used


@pytest.mark.parametrize(("gpus", "gib"), [(4, 50.0), (8, 100.0), (16, 200.0), (6, 61.2), (2, 50.0)])
def test_with_other_gpus_on_a_node(gpus: int, gib: float) -> None:
    """Between sizes that are known by the square root; beyond them by what is safe."""
    group = LikeJobs()
    group.add(amounts_of(LIKE), LIKE.ended_s)
    if gpus == 6:
        group.add(amounts_of(msgspec.structs.replace(LIKE, gpus=8)), LIKE.ended_s)
    assert max(group.memory(later(1, gpus=gpus))) == pytest.approx(gib * GIB, rel=0.01)


def test_how_far_that_is_off_is_learned() -> None:
    """Here all memory belongs to the GPUs, and each job has another number of them than the one before."""
    sizes = (1, 2, 4, 8)
    jobs = [
        later(number, script="", gpus=(gpus := sizes[number % 4]), node_rss_mib=12 * GIB * gpus)
        for number in range(400)
    ]
    floor = after(*jobs).floors(later(500, script="", gpus=16)).node_mib
    assert floor is None or floor.amount >= 12 * GIB * 16


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED", "NODE_FAIL"])
def test_a_run_that_was_cut_short_counts_only_where_it_used_more(state: str) -> None:
    short = {
        "state": state,
        "ended_s": LIKE.started_s + 86_400.0 * 150 + 300.0,
        "started_s": LIKE.started_s + 86_400.0 * 150,
    }
    before = after(*past(120)).floors(later(200)).node_mib
    for used, factor in ((5 * GIB, 1.0), (100 * GIB, 2.0)):
        cut = msgspec.structs.replace(later(150), node_rss_mib=used, cpu_s_used=None, **short)
        floor = after(*past(120), cut).floors(later(200)).node_mib
        assert before is not None
        assert floor is not None
        assert floor.amount >= factor * before.amount * 0.999


def test_a_job_that_ran_out_of_memory_is_taken_to_need_what_its_user_asked_for() -> None:
    had = Allotted(nodes=1, cpus=64, gpus=4, mem_mib=60 * GIB, limit_s=None)
    killed = later(150, state="OUT_OF_MEMORY", allotted=had, node_rss_mib=59 * GIB)
    assert amounts_of(killed).node_mib == 256 * GIB
    floor = after(*past(120), killed).floors(later(200)).node_mib
    assert floor is None or floor.amount >= 256 * GIB


def test_a_job_whose_cpus_were_all_at_work_is_taken_to_need_what_its_user_asked_for() -> None:
    had = Allotted(nodes=1, cpus=8, gpus=4, mem_mib=256 * GIB, limit_s=None)
    assert amounts_of(later(1, allotted=had)).cpus_per_gpu == 16
    assert amounts_of(later(1)).cpus_per_gpu == 2


def test_memory_of_a_short_run_says_nothing() -> None:
    assert not amounts_of(msgspec.structs.replace(LIKE, ended_s=LIKE.started_s + 60)).node_mib > 0


def test_jobs_in_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_usage, "MOST_ROWS", 40)
    usage = after(*(later(number, user=f"user{number % 3}", account=f"account{number % 3}") for number in range(60)))
    assert 30 < usage._rows == sum(map(len, usage._groups.values())) <= 40


@pytest.mark.slow
def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site of many users, each with names of their own; the cap is scaled down and up again."""
    monkeypatch.setattr(past_usage, "MOST_GROUPS", 2000)
    tracemalloc.start()
    try:
        usage = PastUsage(RULES)
        for number in range(400):  # each user has six groups
            for again in range(20):
                usage.add(later(number * 20 + again, user=f"user{number}", script=f"s{number}"))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert usage.groups == 2000
    assert held / 2000 * 60_000 < 180e6  # the learned margins, which do not grow with the groups, are scaled, too
