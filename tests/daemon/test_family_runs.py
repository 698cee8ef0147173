"""What ended jobs tell of their family's speed, and the time limit of its next job."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rlalloc.heuristics import BASELINE_NAME
from rlalloc.history import Pseudonyms
from rlalloc.job import Shares
from rlalloc.messages import Decided, PolicyAnswer
from rlalloc.observation import EncodedQuestion
from rlalloc.past_job import PastJob
from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from rlalloc.store import Decision, Store
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.knowledge.family_runs import FamilyRuns
from rlallocd.slurm import PartitionRecord, SiteLimits
from rlallocd.submissions.candidates import find_candidates

from .slurm_in_memory import NODE
from .test_redecision_rules import EIGHT, decision_for, pending_job
from .test_request_sizes_and_tags import ENFORCE

ENDED_S = 5_000.0


class Smallest:
    """An agent that gives every job the least."""

    def decide(self, questions: Sequence[EncodedQuestion], *, sample: bool) -> Decided:
        del sample
        return Decided(
            request_id="", policy_version="v1", answers=tuple(PolicyAnswer(Shares(0, 0, 0), 0.0) for _ in questions)
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield store
    store.close()


def add(
    store: Store,
    job_id: str,
    gpus: int,
    run_s: float,
    state: str = "COMPLETED",
    requeued_after_s: int = 0,
    named: Callable[[PastJob], PastJob] = lambda job: job,
) -> None:
    """A job of the family of ``pending_job`` that was decided and has ended, perhaps after a requeue."""
    job = pending_job(int(job_id.partition("_")[0]))
    decision = msgspec.structs.replace(decision_for(job), id=job_id, submitted_s=job.submitted_s, job_id=job.job_id)
    store.add_decisions([decision])
    ended = PastJob(
        job_id=job_id,
        user=job.user,
        submitted_s=job.submitted_s + requeued_after_s,
        started_s=ENDED_S - run_s,
        ended_s=ENDED_S,
        state=state,
        nodes=1,
        cpus=8,
        gpus=gpus,
    )
    store.history.add([named(ended)])


def add_flat_family(store: Store, requeued_after_s: int = 0) -> None:
    """Runs take as long on one GPU as on eight."""
    for number in range(1, 17):
        add(store, str(number), 8 if number % 2 else 1, 300.0, requeued_after_s=requeued_after_s)


@pytest.mark.parametrize("requeued_after_s", [0, 500])
def test_runs_in_different_sizes_move_the_belief_of_their_family_only(store: Store, requeued_after_s: int) -> None:
    add_flat_family(store, requeued_after_s)
    runs = FamilyRuns(store)
    runs.read(0.0)
    job = pending_job(1)
    assert runs.speeds.of(job.user, job.name, EIGHT).belief is not PRIOR_BELIEF
    assert runs.speeds.of("somebody else", job.name, EIGHT).belief is PRIOR_BELIEF


def test_a_pseudonym_hides_no_run_after_a_requeue(store: Store, tmp_path: Path) -> None:
    named = Pseudonyms(tmp_path / "history.key").of
    for number in range(1, 17):
        add(store, str(number), 8 if number % 2 else 1, 300.0, requeued_after_s=500, named=named)
    runs = FamilyRuns(store)
    runs.read(0.0)
    job = pending_job(1)
    assert runs.speeds.of(job.user, job.name, EIGHT).belief is not PRIOR_BELIEF


def test_what_ends_later_is_read_later_and_once(store: Store) -> None:
    runs = FamilyRuns(store)
    runs.read(0.0)
    add_flat_family(store)
    runs.read(3600.0)  # not yet
    job = pending_job(1)
    assert runs.speeds.of(job.user, job.name, EIGHT).belief is PRIOR_BELIEF
    runs.read(0.0)
    belief = runs.speeds.of(job.user, job.name, EIGHT).belief
    assert belief is not PRIOR_BELIEF
    runs.read(0.0)
    assert runs.speeds.of(job.user, job.name, EIGHT).belief is belief


def test_a_job_that_ends_in_the_future_hides_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    monkeypatch.setattr("tests.daemon.test_family_runs.ENDED_S", now_s + 86_400.0)
    add(store, "99", 8, 300.0)
    runs = FamilyRuns(store)
    runs.read(0.0)
    monkeypatch.setattr("tests.daemon.test_family_runs.ENDED_S", now_s)
    add_flat_family(store)
    runs.read(0.0)
    job = pending_job(1)
    assert runs.speeds.of(job.user, job.name, EIGHT).belief is not PRIOR_BELIEF


def test_arrays_and_jobs_that_failed_tell_nothing(store: Store) -> None:
    for number in range(1, 17):
        add(store, f"{number}_1" if number % 2 else str(number), 8 if number % 2 else 1, 300.0)
        add(store, str(100 + number), 4, 300.0, state="FAILED")
    runs = FamilyRuns(store)
    runs.read(0.0)
    job = pending_job(1)
    assert runs.speeds.of(job.user, job.name, EIGHT).belief is PRIOR_BELIEF


def test_a_family_that_scales_badly_gets_a_shorter_limit(store: Store) -> None:
    add_flat_family(store)
    runs = FamilyRuns(store)
    runs.read(0.0)
    known, unknown = (limit_s(speeds) for speeds in (runs.speeds, FamilySpeeds()))
    assert EIGHT.time_limit_s < known < unknown


def test_a_family_that_scales_badly_gets_fewer_gpus(store: Store) -> None:
    """What answers by default sees the family's own scaling."""
    add_flat_family(store)
    runs = FamilyRuns(store)
    runs.read(0.0)
    known, unknown = (answer_of(speeds) for speeds in (runs.speeds, FamilySpeeds()))
    assert known.gpu < unknown.gpu


def answer_of(speeds: FamilySpeeds) -> Shares:
    """What the baseline would give the job."""
    answers = decision_of(speeds).alternatives
    assert answers is not None
    return answers[BASELINE_NAME]


def limit_s(speeds: FamilySpeeds) -> int:
    """The time limit of a job that gets the least."""
    allocation = decision_of(speeds).allocation
    assert allocation is not None
    return allocation.time_limit_s


def decision_of(speeds: FamilySpeeds) -> Decision:
    """The decision for a pending job under an agent that gives the least."""
    job = pending_job(99)
    tag = job.admin_comment.partition("ask=")[0].replace("begin=2000", "begin=9000") + "ask=gpus=1-8"
    job = msgspec.structs.replace(job, begin_s=9000, reason="BeginTime", admin_comment=tag)
    partitions = {"gpu": PartitionRecord(name="gpu", max_time_s=None, max_nodes=None)}
    snapshot = Snapshot(1000.0, (job,), (NODE,), partitions, SiteLimits(enforced=False), speeds=speeds)
    ((_, decision),) = decide(
        find_candidates([job], ENFORCE, set()), snapshot, ENFORCE, cast(AgentClient, Smallest())
    )
    assert decision.allocation is not None, decision.reason
    return decision
