"""The store keeps what was written, and says what is open."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.errors import StoreError
from rlalloc.job import Allocation, Shares
from rlalloc.objective import Resources
from rlalloc.observation import FEATURES, SCHEMA_ID
from rlalloc.run_time import RunTimeEstimate
from rlalloc.speed.longer_limits import ExpectedSlowdown
from rlalloc.store import Application, Circumstances, Decision, JobHistory, OldDecision, Outcome, PolicyRow, Store
from rlalloc.store.job_story import story_of
from rlalloc.store.migrations.versions.r0003_feature_names import NAMES_OF_0_1

SIZE = Allocation(
    nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=32, mem_mib_per_node=1024, time_limit_s=600
)
DECISION = Decision(
    id="d1",
    job_id=7,
    submitted_s=1000,
    decided_s=1795240378.25,
    user="alice",
    account="llm",
    partition="gpu",
    job_name="it's a\nname",
    job_class="train",
    rule="llm",
    mode="enforce",
    reason="",
    request=SIZE,
    bounds=bounds_for(SIZE, Directives(gpus=(1, 8)), SiteBounds(), NodeShape(8, 64, 512_000)),
    observation_schema=1,
    observation=b"\x00\x01",
    alternatives={"price-ef": Shares(0.5, 0.25, 0.0), "equal-share": Shares(1.0, 0.25, 0.0, 0.4)},
    queued=3,
    dominant_share_requested=0.5,
    dominant_share_allocated=0.25,
    reference_s=264.0,
    shares=Shares(0.1, 0.2, 0.3, 0.4),
    log_probability=-1.5,
    policy_version="v000001",
    allocation=msgspec.structs.replace(SIZE, gpus_per_node=2),
    circumstances=Circumstances(
        cluster=Resources(gpus=32, cpus=256, mem_mib=2_048_000), node_gpus=8, user_running_gpus=4
    ),
    nice=12,
    patience_s=1056.0,
    run_time=RunTimeEstimate(100.0, 264.0, 500.5, "20 runs of this user", (0.07, 0.93)),
    slowdown=ExpectedSlowdown(1.6, 1.96, "profile gpt-25m, which names it"),
)
APPLICATION = Application(
    id=0,
    decision_id="d1",
    job_id=7,
    state="intended",
    original=SIZE,
    intended=SIZE,
    begin_s=0,
    detail="",
    changed_s=1001,
    begins=False,
    record='{"job_id": 7}',
    own_nice=-3,
    added_nice=12,
)
OUTCOME = Outcome(
    decision_id="d1",
    state="COMPLETED",
    exit_code="0:0",
    eligible_s=1001,
    started_s=1002,
    ended_s=1100,
    nodes=1,
    gpus=2,
    cpus=32,
    mem_mib=1024,
    max_rss_mib=None,
    consumed_energy_j=None,
    executed_shares=Shares(0.1, 0.2, 0.3, 0.4),
    reward=-0.5,
    cpu_s_used=12.5,
    mem_mib_used=700.0,
    costs={"jct": 0.5, "mem_waste": None},
)


def test_rows_come_back_as_they_went_in(url: str) -> None:
    store = Store(url)
    store.add_decisions([DECISION])
    store.add_outcomes([OUTCOME])
    store.add_policy(PolicyRow(version="v000001", parent=None, created_s=1, promoted=True, verdict={"why": "better"}))
    store.close()
    again = Store(url)
    assert again.decisions_of(7) == (DECISION,)
    assert again.outcome("d1") == OUTCOME
    assert again.policies()[0].promoted is True
    assert again.policies()[0].verdict == {"why": "better"}
    (experience,) = again.experience()
    assert (experience.decision, experience.outcome) == (DECISION, OUTCOME)
    again.close()


def test_shares_of_before_there_was_an_urgency_can_be_read(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    store.add_decisions([DECISION])
    with sqlite3.connect(tmp_path / "store.sqlite") as connection:
        connection.execute("UPDATE decisions SET shares = '[0.1,0.2,0.3]', nice = NULL, patience_s = NULL")
    (decision,) = store.decisions_of(7)
    assert (decision.shares, decision.nice) == (Shares(0.1, 0.2, 0.3, 1.0), None)
    store.close()


def test_open_applications_are_those_that_have_not_ended(url: str) -> None:
    store = Store(url)
    store.add_decisions([DECISION])
    (first,) = store.journal([APPLICATION])
    assert store.open_applications() == (first,)
    store.set_applications([first], "applied", 1002, "read back")
    assert store.open_applications()[0].state == "applied"
    store.set_applications([first], "begun", 1003, "let go")
    assert store.open_applications() == ()
    assert store.applications("d1")[0].detail == "let go"
    store.close()


def test_decided_jobs_are_identified_by_id_and_submission(url: str) -> None:
    store = Store(url)
    store.add_decisions([DECISION])
    assert store.decided_jobs(0) == {(7, 1000): DECISION.user}
    assert store.decided_jobs(2000) == {(7, 1000): DECISION.user}  # it waits, or runs, or may be requeued
    assert store.jobs_without_outcome(0) == (((7, 1000),), None)
    assert store.jobs_without_outcome(DECISION.decided_s + 1).jobs == ()
    assert store.jobs_without_outcome(0, besides={(7, 999), (8, 1000)}).jobs == ((7, 1000),)
    assert store.jobs_without_outcome(0, besides={(7, 1000)}).jobs == ()
    store.add_outcomes([OUTCOME])
    assert store.jobs_without_outcome(0).jobs == ()
    assert store.decided_jobs(0) == {(7, 1000): DECISION.user}
    assert store.decided_jobs(2000) == {}
    store.close()


def test_a_jobs_history_is_found_by_id_and_submission(url: str) -> None:
    """The id was used before, by another job; the present one was decided twice, and its outcome is that of both."""
    before = msgspec.structs.replace(DECISION, id="d0", submitted_s=10, decided_s=11)
    again = msgspec.structs.replace(
        DECISION, id="d2", decided_s=DECISION.decided_s + 60, predicted_gain=0.4, log_probability=None
    )
    store = Store(url)
    store.add_decisions([DECISION, before, again])
    (first,) = store.journal([APPLICATION])
    assert store.histories([(7, 1000), (7, 99), (8, 1000)]) == {
        (7, 1000): JobHistory(decisions=(DECISION, again), applications=(first,))
    }
    store.set_applications([first], "begun", 1002, "let go")
    (second,) = store.journal([msgspec.structs.replace(APPLICATION, decision_id="d2", begins=False)])
    assert not second.begins
    assert store.histories([(7, 1000)])[7, 1000].in_force == DECISION
    store.set_applications([second], "begun", 1062, "while it waited")
    assert store.histories([(7, 1000)])[7, 1000].in_force == again

    assert store.jobs_without_outcome(0).jobs == ((7, 10), (7, 1000))
    store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id="d2")])
    assert store.jobs_without_outcome(0).jobs == ((7, 10),)
    store.close()


def test_a_run_after_a_requeue_belongs_to_the_latest_earlier_submission_of_its_user(url: str) -> None:
    """Slurm gives a requeued job another submit time."""
    before = msgspec.structs.replace(DECISION, id="d0", submitted_s=10, decided_s=11)
    store = Store(url)
    store.add_decisions([DECISION, before])
    runs = {(7, 10): "x", (7, 9): DECISION.user, (7, 500): DECISION.user, (7, 2000): DECISION.user, (7, 2001): "bob"}
    found = store.histories_of_runs({**runs, (8, 2000): DECISION.user, (7, 2002): None})
    assert {key: history.decisions for key, history in found.items()} == {
        (7, 10): (before,),
        (7, 500): (before,),
        (7, 2000): (DECISION,),
        (7, 2002): (DECISION,),
    }
    store.close()


def test_what_a_restoration_takes_back_is_restored_with_it(url: str) -> None:
    """All that was decided for its job, and nothing of a job that had the id before; not earlier, and only that."""
    before = msgspec.structs.replace(DECISION, id="d0", submitted_s=10, decided_s=11)
    again = msgspec.structs.replace(DECISION, id="d2", decided_s=DECISION.decided_s + 60)
    store = Store(url)
    store.add_decisions([DECISION, before, again])

    def journal(decision_id: str) -> Application:
        (application,) = store.journal([msgspec.structs.replace(APPLICATION, decision_id=decision_id)])
        return application

    def states() -> list[str]:
        return [each.state for decision_id in ("d0", "d1", "d2") for each in store.applications(decision_id)]

    begun = [journal(decision_id) for decision_id in ("d0", "d1")]
    store.set_applications(begun, "begun", 1002, "let go")
    second = journal("d2")
    store.set_applications([second], "restored", 1003, "it was neither")
    assert states() == ["begun", "begun", "restored"]
    store.set_applications([second], "begun", 1004, "let go")
    restoration = journal("d2")
    store.set_applications([restoration], "restoring", 1005, "its user asked")
    assert states() == ["begun", "begun", "begun", "restoring"]
    store.set_applications([restoration], "restored", 1006, "its user asked")
    assert states() == ["begun", "restored", "restored", "restored"]
    store.close()


def test_what_comes_back_to_one_task_of_an_array_is_not_taken_back_from_the_others(url: str) -> None:
    store = Store(url)
    store.add_decisions([DECISION])
    store.set_applications(store.journal([APPLICATION]), "begun", 1002, "let go")
    of_task = store.journal([msgspec.structs.replace(APPLICATION, job_id=DECISION.job_id + 1)])
    store.set_applications(of_task, "restored", 1003, "no node can hold it")
    assert [each.state for each in store.applications(DECISION.id)] == ["begun", "restored"]
    (chapter,) = story_of(store, DECISION.job_id)
    assert [each.state for each in chapter.applications] == ["begun"]
    assert [(each.job_id, each.detail) for each in chapter.of_tasks] == [(DECISION.job_id + 1, "no node can hold it")]
    store.close()


def test_jobs_without_an_outcome_come_a_page_at_a_time(url: str) -> None:
    """Decisions of one moment too; a page is not shorter for the jobs that are known not to have ended."""
    decisions = [
        msgspec.structs.replace(DECISION, id=f"d{number:02}", job_id=number % 10, decided_s=DECISION.decided_s)
        for number in range(20)
    ]
    store = Store(url)
    store.add_decisions(decisions)
    pages = []
    after = None
    while True:
        page = store.jobs_without_outcome(0, besides={(3, 1000), (4, 1000)}, after=after, limit=3)
        pages.append([job_id for job_id, _ in page.jobs])
        if (after := page.after) is None:
            break
    assert all(len(page) <= 3 for page in pages)
    assert {job_id for page in pages for job_id in page} == {0, 1, 2, 5, 6, 7, 8, 9}
    store.close()


def test_what_is_deleted_is_gone_with_all_that_belongs_to_it(url: str) -> None:
    other = msgspec.structs.replace(DECISION, id="d2", job_id=8, decided_s=DECISION.decided_s + 1)
    store = Store(url)
    store.add_decisions([DECISION, other])
    store.journal([APPLICATION])
    store.add_outcomes([msgspec.structs.replace(OUTCOME, decision_id="d2")])
    before_s = DECISION.decided_s + 2
    first, second = store.old_decisions(before_s, after=None, limit=10)
    assert first == OldDecision("d1", (7, 1000), DECISION.decided_s, is_experience=False, is_open=True)
    assert second == OldDecision("d2", (8, 1000), other.decided_s, is_experience=True, is_open=False)
    assert store.old_decisions(before_s, after=(first.decided_s, "d1"), limit=10) == (second,)
    store.delete_decisions(["d1", "d2"])
    assert store.counts(10) == {"applications": 0, "decisions": 0, "outcomes": 0, "past_jobs": 0, "policies": 0}
    store.close()


def test_an_outcome_without_reward_is_no_experience(url: str) -> None:
    store = Store(url)
    store.add_decisions([DECISION])
    store.add_outcomes([msgspec.structs.replace(OUTCOME, reward=None)])
    assert store.experience() == ()
    store.close()


def test_sqlite_is_in_wal_mode(tmp_path: Path) -> None:
    Store(f"sqlite:///{tmp_path}/store.sqlite").close()
    connection = sqlite3.connect(tmp_path / "store.sqlite")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_a_store_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(StoreError, match=r"nowhere.*check store.url"):
        Store("sqlite:////nowhere/store.sqlite")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts")
def test_a_read_only_file_system_is_named_with_its_remedy(tmp_path: Path) -> None:
    """As after an error of the disk. A unit that started on it does not see that it became writable."""
    Store(f"sqlite:///{tmp_path}/store.sqlite").close()
    opens = "import sys; from rlalloc.store import Store; Store(sys.argv[1], read_only=len(sys.argv) > 2)"
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    for more in ((), ("read-only",)):
        command = [sys.executable, "-c", opens, f"sqlite:///{tmp_path}/store.sqlite", *more]
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh", str(tmp_path), *command]
        said = subprocess.run(inside, capture_output=True, text=True, check=False).stderr
        assert "StoreError" in said
        assert "its file system is read-only: make it writable, then restart rlallocd" in said


def test_the_names_of_features_are_kept_once(url: str) -> None:
    """Those of rlalloc 0.1 are there from the migration on."""
    store = Store(url)
    assert store.feature_names() == {7: NAMES_OF_0_1}
    for number in range(2):
        store.add_decisions([msgspec.structs.replace(DECISION, id=f"d{number}", observation_schema=SCHEMA_ID)])
    assert store.feature_names() == {7: NAMES_OF_0_1, SCHEMA_ID: FEATURES}
    store.close()
