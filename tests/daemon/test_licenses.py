"""When jobs may have the licences that they ask for, and what they see of the nodes until then."""

import math
from typing import Any

import msgspec
import pytest

from rlalloc.config import parse_config
from rlallocd.cluster.licenses import Licenses
from rlallocd.cluster.node_access import SiteFacts
from rlallocd.cluster.queue_order import QueueOrder
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.knowledge.known_run_times import LIMITS_ONLY
from rlallocd.slurm import Holder, JobRecord, LicenseRecord, ReservationRecord, SiteLimits
from rlallocd.slurm.license_text import license_counts, read_licenses
from rlallocd.slurm.limit_reader import LimitReader
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer
from rlallocd.submissions.candidates import find_candidates

from .slurm_in_memory import gpus as alike_gpus
from .test_cluster_views import A100, EXPECTED_S, NOW_S, job, views_of

NEW = job(99, "PENDING", licenses="solver", reason="BeginTime", begin_s=NOW_S + 30)
"""A job that comes in and waits for rlalloc."""
HOLDER = job(1, "RUNNING", licenses="solver", held_nodes="a1", gpus=2)
FREE = msgspec.structs.replace(A100[1], name="a3", devices=alike_gpus("a100", 8, 2))


def free_after_s(
    asking: JobRecord, *jobs: JobRecord, reserved: tuple[int, int] | None = None, **records: Any
) -> float:
    reservations = []
    if reserved is not None:
        start_s, end_s = reserved
        reservations = [
            ReservationRecord(
                name="course", nodes=frozenset(), start_s=NOW_S + start_s, end_s=NOW_S + end_s, licenses={"solver": 1}
            )
        ]
    known = {name: LicenseRecord(**record) for name, record in records.items()}
    licenses = Licenses(known, reservations, [*jobs, asking], QueueOrder({}), NOW_S, LIMITS_ONLY)
    return licenses.free_after_s(asking)


def remaining_s(running: JobRecord) -> float:
    return LIMITS_ONLY.remaining_s(running, NOW_S)


def test_a_job_waits_until_a_licence_is_returned() -> None:
    assert free_after_s(NEW, HOLDER, solver={"total": 2, "used": 1}) == 0
    assert free_after_s(NEW, HOLDER, solver={"total": 1, "used": 1}) == remaining_s(HOLDER)
    two = msgspec.structs.replace(NEW, licenses="solver:2")
    assert free_after_s(two, HOLDER, solver={"total": 2, "used": 1}) == remaining_s(HOLDER)


def test_a_holder_without_a_known_end_keeps_its_licence() -> None:
    """It has no time limit, and nothing is known of its run time; one past its limit has not ended either."""
    endless = msgspec.structs.replace(HOLDER, time_limit_s=0)
    assert free_after_s(NEW, endless, solver={"total": 1, "used": 1}) == math.inf
    overdue = msgspec.structs.replace(HOLDER, started_s=int(NOW_S) - 10 * HOLDER.time_limit_s)
    assert 0 < free_after_s(NEW, overdue, solver={"total": 1, "used": 1}) < math.inf


def test_who_has_just_taken_one_counts_before_slurm_is_asked_again() -> None:
    assert free_after_s(NEW, HOLDER, solver={"total": 1, "used": 0}) == remaining_s(HOLDER)


@pytest.mark.parametrize(
    ("changes", "is_ahead"),
    [
        ({"reason": "Licenses"}, True),
        ({"reason": "Priority"}, True),
        ({"reason": "BeginTime", "begin_s": NOW_S + 30, "admin_comment": "ours"}, True),
        ({"reason": "BeginTime", "begin_s": NOW_S + 30}, False),
        ({"reason": "Resources"}, False),
        ({"reason": "Dependency"}, False),
        ({"reason": "Licenses", "priority": 1}, False),
        ({"reason": "Licenses", "licenses": "other"}, False),
        ({"reason": "Licenses", "licenses": "solver:2"}, False),
    ],
)
def test_those_ahead_that_wait_for_nothing_but_a_licence_get_theirs_first(
    changes: dict[str, Any], *, is_ahead: bool
) -> None:
    """A job that needs more than are there does not keep one that needs fewer waiting."""
    tag = f"rlalloc:v=1;mode=enforce;rule=llm;class=train;begin={NOW_S + 30};user_begin=0"
    if "admin_comment" in changes:
        changes = changes | {"admin_comment": tag}
    ahead = job(2, "PENDING", **{"licenses": "solver", **changes})
    asking = msgspec.structs.replace(NEW, priority=2, admin_comment=tag)
    assert free_after_s(asking, ahead, solver={"total": 1}) == (EXPECTED_S if is_ahead else 0)
    assert free_after_s(asking, HOLDER, ahead, solver={"total": 1, "used": 1}) == pytest.approx(
        remaining_s(HOLDER) + (EXPECTED_S if is_ahead else 0)
    )


def test_each_task_of_an_array_takes_one() -> None:
    array = job(2, "PENDING", licenses="solver", reason="Licenses", waiting_tasks=3)
    asking = msgspec.structs.replace(NEW, priority=2, begin_s=NOW_S, reason="Licenses")
    assert free_after_s(asking, array, solver={"total": 1}) == 3 * EXPECTED_S
    assert free_after_s(asking, array, solver={"total": 4}) == 0


def test_reserved_licences_are_not_there_for_who_would_run_into_the_reservation() -> None:
    one = {"total": 1}
    short = msgspec.structs.replace(NEW, time_limit_s=600)
    inside = msgspec.structs.replace(NEW, reservation="course")
    assert [free_after_s(each, reserved=(1800, 9000), solver=one) for each in (NEW, short, inside)] == [9000, 0, 0]
    assert free_after_s(short, reserved=(-600, 300), solver=one) == 300
    assert free_after_s(NEW, reserved=(1800, 9000), solver={"total": 2}) == 0


def test_licences_of_another_server_that_others_use_are_free_at_an_unknown_time() -> None:
    asking = msgspec.structs.replace(NEW, licenses="cad@flex:2")
    for deficit, after_s in ((3, 0), (4, math.inf)):
        records: dict[str, Any] = {"cad@flex": {"total": 5, "deficit": deficit}}
        assert free_after_s(asking, **records) == after_s


@pytest.mark.parametrize(
    ("asked", "after_s"),
    [("solver,cad", remaining_s(HOLDER)), ("solver|cad", 0), ("cad:2", 0), ("unknown", 0), ("", 0), ("cad(n1):9", 0)],
)
def test_all_that_a_job_names_count_or_the_first_of_alternatives(asked: str, after_s: float) -> None:
    asking = msgspec.structs.replace(NEW, licenses=asked)
    assert free_after_s(asking, HOLDER, solver={"total": 1, "used": 1}, cad={"total": 2}) == after_s


# What the job sees


def test_no_node_is_free_for_a_job_until_its_licence_is() -> None:
    """What others free before counts from then on; a job without the licence sees the nodes as they are."""
    facts = SiteFacts(licenses={"solver": LicenseRecord(total=1, used=1)})
    short = job(3, "RUNNING", held_nodes="a2", gpus=8, time_limit_s=700)
    views = views_of([*A100, FREE], [HOLDER, short], facts=facts)
    view, usual = views.for_job(NEW), views.for_job(msgspec.structs.replace(NEW, licenses=""))
    assert view.releases[:, 0].min() == remaining_s(HOLDER) > remaining_s(short)
    assert view.releases[:, 1].sum() == usual.releases[:, 1].sum() + usual.free[:, 0].sum()
    assert usual.releases[:, 0].min() == remaining_s(short)
    assert view.free.max() == 0
    access = views.access_of(NEW)
    assert views.pool(access).open(views.pools.free).max() == 0


def test_a_job_whose_licence_is_free_at_an_unknown_time_cannot_start_now() -> None:
    facts = SiteFacts(licenses={"solver": LicenseRecord(total=1, deficit=1)})
    for running in ([], [job(3, "RUNNING", held_nodes="a2", gpus=8)]):
        view = views_of([*A100, FREE], running, facts=facts).for_job(NEW)
        assert view.free.max() == 0
        assert all(math.isfinite(each) for each in view.releases[:, 0])


def test_backfill_reserves_nothing_for_a_job_without_its_licence() -> None:
    facts = SiteFacts(licenses={"solver": LicenseRecord(total=1, used=1)})
    asleep = msgspec.structs.replace(FREE, asleep=True)
    views = views_of([A100[0], asleep], [HOLDER], facts=facts)
    without, asking = (views.access_of(msgspec.structs.replace(NEW, licenses=asked)) for asked in ("", "solver"))
    assert (len(views.limits(without)), len(views.limits(asking))) == (2, 0)


# What Slurm prints


def test_licences_are_read() -> None:
    text = (
        "LicenseName=cad@flex Total=5 Used=0 Free=1 Reserved=0 Remote=yes LastConsumed=4 LastDeficit=4 LastUpdate=0\n"
        "LicenseName=solver Total=3 Used=1 Free=2 Reserved=1 Remote=no\n"
        "LicenseName=fabric Total=3 Used=3 Free=0 Reserved=0 Remote=no Nodes=n[1-2] Mode=1\n"
    )
    assert read_licenses(text) == {
        "cad@flex": LicenseRecord(total=5, used=0, deficit=4),
        "solver": LicenseRecord(total=3, used=1),
    }
    assert read_licenses("No licenses configured in Slurm.\n") == {}
    with pytest.raises(UnexpectedAnswer, match="licences"):
        read_licenses("LicenseName=solver Total=many\n")


class Site(Commands):
    """A site without limits that notes what it was asked, and says ``licenses`` of its licences."""

    def __init__(self) -> None:
        super().__init__(timeout_s=1)
        self.asked: list[str] = []
        self.licenses = "LicenseName=solver Total=3 Used=1 Free=2 Reserved=0 Remote=no\n"

    def run(self, *words: str) -> str:
        self.asked.append(words[2])
        return self.licenses if words[2] == "licenses" else ""


ALICE = Holder("alice", "llm", "normal", "gpu")


def test_licences_are_read_for_jobs_that_ask_for_some_and_kept_for_some_seconds() -> None:
    site = Site()
    reader = LimitReader(site)
    found = [reader.read({ALICE}, enforced=False, licenses=asked).licenses for asked in (False, True, True, False)]
    assert site.asked == ["reservation", "licenses"]
    assert found == [{}, *[{"solver": LicenseRecord(total=3, used=1)}] * 3]


def test_licences_that_cannot_be_read_leave_the_other_limits_and_are_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    reader, readable = LimitReader(site), site.licenses
    with caplog.at_level("INFO"):
        for said in ("LicenseName=solver Total=many\n", "LicenseName=solver Total=none\n", readable):
            site.licenses = said
            reader.forget()
            found = reader.read({ALICE}, enforced=False, licenses=True)
            assert (found.licenses is None) == (said != readable)
    assert [line.partition(",")[0] for line in caplog.messages] == ["cannot read licences", "licences are read again"]


def test_a_job_whose_licences_could_not_be_read_takes_its_place_in_the_queue_of_others() -> None:
    """It may start at any moment, so a job behind it does not count on its room."""
    with_licenses, without = (job(1, "PENDING", reason="Priority", licenses=each) for each in ("solver", ""))
    behind = msgspec.structs.replace(NEW, licenses="")
    unread, known = (
        views_of([*A100, FREE], [ahead], facts=SiteFacts(licenses=None)).for_job(behind)
        for ahead in (with_licenses, without)
    )
    assert unread.queued.tolist() == known.queued.tolist() != []


@pytest.mark.parametrize(
    ("left_s", "reasons"), [(20.0, ["no-agent"]), (9.0, ["licenses-unread", "no-agent", "request-unread"])]
)
def test_a_job_waits_until_its_licences_and_its_request_can_be_read_and_then_runs_as_submitted(
    left_s: float, reasons: list[str]
) -> None:
    begin_s = int(NOW_S + left_s)
    tag = f"rlalloc:v=1;mode=enforce;rule=llm;class=train;begin={begin_s};user_begin=0"
    ours: dict[str, Any] = {"reason": "BeginTime", "begin_s": begin_s, "admin_comment": tag, "is_batch": True}
    queue = [job(number, "PENDING", licenses=asked, **ours) for number, asked in ((1, "solver"), (2, ""))]
    queue.append(job(3, "PENDING", unread=True, **ours))
    config = parse_config("{mode: enforce, rules: [{name: llm}]}", "test")
    snapshot = Snapshot(NOW_S, tuple(queue), (*A100, FREE), {}, SiteLimits(enforced=False, licenses=None))
    agent = AgentClient("ipc:///nowhere", 0.01)
    decided = decide(find_candidates(queue, config, set()), snapshot, config, agent)
    agent.close()
    assert sorted(decision.reason.partition(":")[0] for _, decision in decided) == reasons


def test_what_a_job_asks_for_is_counted() -> None:
    assert license_counts("solver:2,cad@server,solver=1;x|y:3") == {"solver": 3, "cad@server": 1, "x": 1, "y": 3}
    assert license_counts("") == {}
