"""A burst of jobs: the watchdog hears of each step, and a stop need not wait for the last job."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from rlalloc.job import JobView, Shares
from rlalloc.store import Decision, Store
from rlalloc.user_messages import UserServiceError
from rlallocd.decisions import decisions, questions
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide
from rlallocd.decisions.questions import Question
from rlallocd.slurm import CommandDied, JobRecord, Slurm, SlurmUnavailable
from rlallocd.submissions.candidates import Candidate, find_candidates, job_view
from rlallocd.transactions import transactions
from rlallocd.transactions.left_alone import LeftAlone, OffRequest
from rlallocd.transactions.transactions import Applier

from .scripted_agent import agent_that_answers
from .slurm_in_memory import NODE, SlurmInMemory
from .test_redecision_rules import EIGHT, decision_for, pending_job
from .test_request_sizes_and_tags import ENFORCE

JOBS = 120
BEGIN_S = int(time.time()) + 3600
FOUR = msgspec.structs.replace(EIGHT, gpus_per_node=4)


def _deferred_job(job_id: int) -> JobRecord:
    job = pending_job(job_id)
    tag = job.admin_comment.replace("begin=2000", f"begin={BEGIN_S}")
    return msgspec.structs.replace(job, begin_s=BEGIN_S, reason="BeginTime", admin_comment=tag)


@pytest.fixture
def queue() -> list[JobRecord]:
    return [_deferred_job(job_id) for job_id in range(1, JOBS + 1)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield store
    store.close()


def _decided(queue: list[JobRecord], store: Store) -> list[tuple[Candidate, Decision]]:
    decided = [
        (
            candidate,
            msgspec.structs.replace(decision_for(candidate.job), id=str(candidate.job.job_id), allocation=FOUR),
        )
        for candidate in find_candidates(queue, ENFORCE, set())
    ]
    store.add_decisions([decision for _, decision in decided])
    return decided


def _applier(slurm: SlurmInMemory, store: Store, **callbacks: Callable[..., object]) -> Applier:
    return Applier(cast("Slurm", slurm), store, Counter(), **callbacks)  # type: ignore[arg-type]


def test_no_two_calls_without_a_sign_of_life(queue: list[JobRecord], store: Store) -> None:
    """Each call has a time limit, all of them together have none."""
    steps: list[str] = []
    slurm = SlurmInMemory(queue, steps.append)
    applier = _applier(slurm, store, progress=lambda: steps.append("progress"))
    applier.apply(_decided(queue, store))
    assert slurm.calls["scontrol update"] == JOBS
    assert len(slurm.begun) == JOBS
    assert set(steps[1::2]) == {"progress"}
    assert len(steps) == 2 * sum(slurm.calls.values())


def test_each_job_that_is_decided_is_a_sign_of_life(queue: list[JobRecord]) -> None:
    seen: list[None] = []
    agent = AgentClient("ipc:///nowhere", 0.01)
    snapshot = Snapshot(time.time(), tuple(queue), (NODE,), {}, None)
    decide(find_candidates(queue, ENFORCE, set()), snapshot, ENFORCE, agent, lambda: seen.append(None))
    agent.close()
    assert len(seen) >= JOBS


def test_an_odd_job_does_not_keep_others_from_being_decided(
    queue: list[JobRecord], monkeypatch: pytest.MonkeyPatch
) -> None:

    def odd(candidate: Candidate, *rest: Any) -> JobView:
        if candidate.job.job_id == 3:
            raise ZeroDivisionError("of this job")
        return job_view(candidate, *rest)

    monkeypatch.setattr(questions, "job_view", odd)
    agent = AgentClient("ipc:///nowhere", 0.01)
    snapshot = Snapshot(time.time(), tuple(queue), (NODE,), {}, None)
    decided = decide(find_candidates(queue, ENFORCE, set()), snapshot, ENFORCE, agent)
    agent.close()
    reasons = {decision.job_id: decision.reason.partition(":")[0] for _, decision in decided}
    assert [job_id for job_id, reason in reasons.items() if reason == "internal-error"] == [3]
    assert len([reason for reason in reasons.values() if reason == "no-agent"]) == JOBS - 1


def test_nor_does_one_whose_answer_leads_to_an_error(
    queue: list[JobRecord], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first_decision = decisions._first_decision

    def odd(question: Question, *rest: Any) -> Decision:
        if question.candidate.job.job_id == 3:
            raise OverflowError("of this job")
        return first_decision(question, *rest)

    monkeypatch.setattr(decisions, "_first_decision", odd)
    snapshot = Snapshot(time.time(), tuple(queue), (NODE,), {}, None)
    with agent_that_answers(Shares(1.0, 1.0, 1.0), tmp_path / "agent.sock") as endpoint:
        agent = AgentClient(endpoint, 5.0)
        decided = decide(find_candidates(queue, ENFORCE, set()), snapshot, ENFORCE, agent)
        agent.close()
    reasons = {decision.job_id: decision.reason.partition(":")[0] for _, decision in decided}
    assert [job_id for job_id, reason in reasons.items() if reason == "internal-error"] == [3]
    assert len(reasons) == JOBS


@pytest.mark.parametrize(("left_s", "reasons"), [(20.0, set()), (9.0, {"no-gpu-node"})])
def test_nodes_that_are_not_ready_yet_are_waited_for(
    queue: list[JobRecord], left_s: float, reasons: set[str]
) -> None:
    """As they are for some seconds after slurmctld's start: the job cannot start there either."""
    agent = AgentClient("ipc:///nowhere", 0.01)
    unready = msgspec.structs.replace(NODE, usable=False)
    snapshot = Snapshot(BEGIN_S - left_s, tuple(queue), (unready,), {}, None)
    decided = decide(find_candidates(queue, ENFORCE, set()), snapshot, ENFORCE, agent)
    agent.close()
    assert {decision.reason.partition(":")[0] for _, decision in decided} == reasons


def test_a_range_without_end_does_not_keep_the_daemon_busy(queue: list[JobRecord]) -> None:
    """``#RLALLOC gpus=1-9999999`` listed a million counts, and asked the heuristics of each."""
    tag = queue[0].admin_comment.partition("ask=")[0] + "ask=gpus=1-9999999"
    job = msgspec.structs.replace(queue[0], admin_comment=tag)
    agent = AgentClient("ipc:///nowhere", 0.01)
    snapshot = Snapshot(time.time(), (job,), (NODE,), {}, None)
    ((_, decision),) = decide(find_candidates([job], ENFORCE, set()), snapshot, ENFORCE, agent)
    agent.close()
    assert decision.bounds is not None
    assert (decision.bounds.gpu_counts, decision.bounds.gpus.maximum_from) == ((1, 2, 4, 8), "partition")


def test_a_scontrol_that_dies_over_one_update_holds_that_job_alone(
    queue: list[JobRecord], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was carried out shows at a second reading in a later cycle: slurmctld may still work on it."""
    monkeypatch.setattr(transactions, "SECOND_READING_S", -1.0)

    def dies(command: str) -> None:
        if command == "scontrol update" and slurm.calls[command] == 3:
            raise CommandDied("scontrol ended before it answered: it said nothing")

    slurm = SlurmInMemory(queue, dies)
    applier = _applier(slurm, store)
    applier.apply(_decided(queue, store))
    assert slurm.calls["scontrol update"] == JOBS
    assert sorted(slurm.begun) == [job_id for job_id in range(1, JOBS + 1) if job_id != 3]
    (opened,) = store.open_applications()
    assert (opened.job_id, opened.state) == (3, "intended")
    applier.finish([opened])
    assert 3 not in slurm.begun
    applier.finish([opened])
    assert slurm.begun[-1] == 3
    assert store.open_applications() == ()
    assert "slurmctld never carried it out" in store.applications("3")[-1].detail


@pytest.fixture
def hangs_once(queue: list[JobRecord]) -> SlurmInMemory:
    """A slurmctld that gives no answer to the update of job 3."""

    def hangs(command: str) -> None:
        if command == "scontrol update" and slurm.calls[command] == 3:
            raise SlurmUnavailable("scontrol gave no answer in 30 s")

    slurm = SlurmInMemory(queue, hangs)
    return slurm


def _apply_in_vain(applier: Applier, queue: list[JobRecord], store: Store) -> None:
    with pytest.raises(SlurmUnavailable):
        applier.apply(_decided(queue, store))


def _carry_out(slurm: SlurmInMemory) -> None:
    slurm.queue[3] = pending_job(3, FOUR, begin_s=BEGIN_S, admin_comment=slurm.queue[3].admin_comment)


@pytest.mark.parametrize("sender", ["this process", "one before a restart", "another one before a takeover"])
def test_an_update_without_an_answer_may_be_carried_out_later(
    queue: list[JobRecord], store: Store, hangs_once: SlurmInMemory, sender: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slurmctld hangs for a while: right after it answers again, the job still reads as submitted."""
    monkeypatch.setattr(transactions, "SECOND_READING_S", 3600.0)
    first, second = (_applier(hangs_once, store) for _ in range(2))
    _apply_in_vain(first, queue, store)
    applier = {"this process": first, "one before a restart": _applier(hangs_once, store)}.get(sender, second)
    for _ in range(2):  # too soon after the first reading, the second says no more
        applier.finish(store.open_applications())
        assert 3 not in hangs_once.begun
    _carry_out(hangs_once)
    applier.finish(store.open_applications())
    assert hangs_once.begun[-1] == 3
    assert store.applications("3")[-1].state == "begun"


def test_an_update_without_an_answer_that_was_carried_out_is_settled_at_once(
    queue: list[JobRecord], store: Store, hangs_once: SlurmInMemory
) -> None:
    applier = _applier(hangs_once, store)
    _apply_in_vain(applier, queue, store)
    _carry_out(hangs_once)
    applier.finish(store.open_applications())
    assert 3 in hangs_once.begun


def test_an_update_that_was_never_carried_out_is_left_at_the_second_reading(
    queue: list[JobRecord], store: Store, hangs_once: SlurmInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "SECOND_READING_S", -1.0)
    applier = _applier(hangs_once, store)
    _apply_in_vain(applier, queue, store)
    applier.finish(store.open_applications())
    assert 3 not in hangs_once.begun
    applier.finish(store.open_applications())
    assert hangs_once.begun[-1] == 3
    assert "slurmctld never carried it out" in store.applications("3")[-1].detail


def test_a_scontrol_that_dies_over_a_restoration_holds_that_job_alone(queue: list[JobRecord], store: Store) -> None:
    """The next cycle restores it."""
    first, second = decided = _decided(queue[:2], store)
    size = {"nodes": 1, "cpus": 7, "fields": msgspec.structs.replace(queue[0].fields, min_cpus=7)}
    slurm = SlurmInMemory(queue[:2])

    def half_applied_then_dies(command: str) -> None:
        if command != "scontrol update":
            return
        if slurm.calls[command] == 2:
            slurm.queue |= {job_id: msgspec.structs.replace(job, **size) for job_id, job in slurm.queue.items()}
        if slurm.calls[command] == 3:
            raise CommandDied("scontrol ended before it answered: it said nothing")
        if slurm.calls[command] == 4:
            slurm.queue[2] = queue[1]

    slurm.called = half_applied_then_dies
    applier = _applier(slurm, store)
    applier.apply(decided)
    assert [store.applications(decision.id)[-1].state for _, decision in (first, second)] == ["restoring", "restored"]
    assert slurm.begun == [2]
    slurm.queue[1] = queue[0]
    applier.finish(store.open_applications())
    assert slurm.begun == [2, 1]
    assert store.applications("1")[-1].state == "restored"


def test_a_user_over_whose_request_a_scontrol_dies_is_to_ask_again(store: Store) -> None:
    def dies(command: str) -> None:
        if command == "scontrol update":
            raise CommandDied("scontrol update was ended by signal 9")

    job = pending_job(7)
    slurm = SlurmInMemory([job], dies)
    part = LeftAlone(cast("Slurm", slurm), store, _applier(slurm, store))

    def cycle() -> None:
        part.carry_out([job])

    with pytest.raises(UserServiceError, match="try again later"):
        part.requests.ask(OffRequest(7, job.user, 1, any_job=False), 1, cycle)


@pytest.mark.parametrize("after", [0, 1, 49, 50, 70])
def test_told_to_stop_it_lets_the_rest_go_as_submitted(queue: list[JobRecord], store: Store, after: int) -> None:
    slurm = SlurmInMemory(queue)
    decided = _decided(queue, store)
    _applier(slurm, store, stopping=lambda: slurm.calls["scontrol update"] >= after).apply(decided)
    assert slurm.calls["scontrol update"] == after
    assert sorted(slurm.begun) == list(range(1, JOBS + 1))
    assert slurm.calls["scontrol begin"] <= 4
    assert store.open_applications() == ()
    untouched = [store.applications(decision.id)[-1] for _, decision in decided[after:]]
    assert {(each.state, each.detail) for each in untouched} == {("left", "rlallocd was told to stop")}
