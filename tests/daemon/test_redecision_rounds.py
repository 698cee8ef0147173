"""Rounds of late decisions: who is asked about, and when the next round comes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rlalloc.config import Config, parse_config
from rlalloc.job import Allocation
from rlalloc.store import Application, JobHistory, Store
from rlallocd.decisions import redecision
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot
from rlallocd.decisions.redecision import redecide
from rlallocd.decisions.redecision_rounds import RedecisionRounds
from rlallocd.process.signals import Stopping
from rlallocd.slurm import (
    JobRecord,
    LicenseRecord,
    NodeRecord,
    PartitionRecord,
    RequestFields,
    SchedulingRules,
    SiteLimits,
)
from rlallocd.submissions.candidates import Candidate, find_redecision_candidates
from rlallocd.submissions.job_tag import read_tag
from rlallocd.transactions.journal_entries import entry_of
from tests.agent.running_server import Server

from .hand_clock import HandClock
from .slurm_in_memory import gpus
from .test_redecision_rules import EIGHT, decision_for, pending_job

NOW_S = 10_000.0
HEAD = 5
CONFIG = parse_config(
    """
    mode: enforce
    rules: [{name: llm, mode: enforce}]
    redecision: {every_s: 30, head: 5}
    agent: {deadline_s: 60}
    """,
    "test",
)
FULL, ROOMY = "full", "roomy"
FREE_GPUS = 2


class Room:
    """A waiting room with a store, and an agent that counts what it is asked."""

    def __init__(self, directory: Path, server: Server, config: Config) -> None:
        self.server = server
        self.config = config
        self.store = Store(f"sqlite:///{directory}/store.sqlite")
        self.agent = AgentClient(server.endpoint, config.agent.deadline_s)
        self.counters: Counter[str] = Counter()
        self.clock = HandClock()
        self.steps = 0
        self.processor = HandClock()
        self.question_takes_s = 0.0
        self.room = RedecisionRounds(
            self.store,
            self.agent,
            self.counters,
            progress=self.note_step,
            clock=self.clock,
            processor_clock=self.processor,
        )

    def note_step(self) -> None:
        """Count the steps that the watchdog hears of."""
        self.steps += 1
        self.processor.now_s += self.question_takes_s

    def add(self, jobs: Sequence[JobRecord]) -> None:
        """Write that these jobs were decided before, and left in the size that they asked for."""
        decisions = [decision_for(job) for job in jobs]
        self.store.add_decisions(
            [msgspec.structs.replace(each, id=f"of-{each.job_id}", allocation=each.request) for each in decisions]
        )

    def asked(self) -> tuple[int, int]:
        """Questions, and jobs in them, so far."""
        return self.server.counters["decide"], self.server.counters["jobs_decided"]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with Server(tmp_path) as server:
        room = Room(tmp_path, server, CONFIG)
        yield room
        room.agent.close()
        room.store.close()


def _jobs(partition: str, first_id: int, count: int) -> list[JobRecord]:
    return [pending_job(job_id, partition=partition) for job_id in range(first_id, first_id + count)]


def _nodes(partition: str, free_gpus: int) -> list[NodeRecord]:
    """Four nodes, of which one has free GPUs."""
    return [
        NodeRecord(
            name=f"{partition}{number}",
            partitions=(partition,),
            usable=True,
            cpus=64,
            cpus_used=0,
            mem_mib=512_000,
            mem_mib_used=0,
            devices=gpus("a100", 8, 8 - (free_gpus if number == 0 else 0)),
        )
        for number in range(4)
    ]


def _running(partition: str, job_id: int) -> JobRecord:
    """What holds the GPUs of a partition, for eight hours."""
    record = pending_job(job_id, partition=partition, state="RUNNING", reason="None", admin_comment="")
    return msgspec.structs.replace(record, gpus=30, time_limit_s=8 * 3600, started_s=int(NOW_S))


def _snapshot(jobs: Sequence[JobRecord], taken_s: float = NOW_S, free_gpus: int = FREE_GPUS) -> Snapshot:
    return Snapshot(
        taken_s=taken_s,
        jobs=(_running(FULL, 1001), _running(ROOMY, 1002), *jobs),
        nodes=(*_nodes(FULL, 0), *_nodes(ROOMY, free_gpus)),
        partitions={name: PartitionRecord(name=name, max_time_s=None, max_nodes=None) for name in (FULL, ROOMY)},
        limits=SiteLimits(enforced=False),
    )


def test_only_those_are_asked_about_that_could_start_and_no_more_than_the_head(room: Room) -> None:
    """Nothing is free in one partition; in the other, one node has eight free GPUs for twenty jobs."""
    jobs = [*_jobs(FULL, 1, 20), *_jobs(ROOMY, 101, 20)]
    room.add(jobs)
    decided = room.room.decide(_snapshot(jobs, free_gpus=7), CONFIG)
    assert 1 <= room.asked()[1] <= HEAD
    assert room.counters["redecision_asked"] == room.asked()[1]
    assert {candidate.job.partition for candidate, _ in decided} <= {ROOMY}


@pytest.mark.parametrize("step", ["job_view", "decision_from"])
def test_an_odd_job_keeps_its_size_and_does_not_keep_others_from_being_decided(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    jobs = _jobs(ROOMY, 101, 20)
    room.add(jobs)
    found = getattr(redecision, step)

    def odd(asked: Any, *rest: Any) -> object:
        if getattr(asked, "candidate", asked).job.job_id == 101:
            raise ZeroDivisionError("of this job")
        return found(asked, *rest)

    monkeypatch.setattr(redecision, step, odd)
    decided = {candidate.job.job_id for candidate, _ in room.room.decide(_snapshot(jobs), CONFIG)}
    assert decided
    assert 101 not in decided
    assert "job 101 keeps its size because of an error in rlalloc" in caplog.text


def test_a_stop_while_the_agent_is_asked_ends_the_round(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stops(*_: object, **__: object) -> None:
        raise Stopping("told to stop while the agent was asked")

    jobs = _jobs(ROOMY, 101, 20)
    room.add(jobs)
    monkeypatch.setattr(room.agent, "decide", stops)
    with pytest.raises(Stopping):
        room.room.decide(_snapshot(jobs), CONFIG)
    assert "an error in rlalloc" not in caplog.text


def test_no_more_are_made_smaller_for_a_hole_than_fit_into_it(room: Room) -> None:
    jobs = _jobs(ROOMY, 101, 20)
    room.add(jobs)
    decided = room.room.decide(_snapshot(jobs), CONFIG)
    sizes = [decision.allocation for _, decision in decided if decision.allocation is not None]
    assert 1 <= len(sizes) <= FREE_GPUS
    assert sum(size.gpus for size in sizes) <= FREE_GPUS
    for candidate, decision in decided:
        assert candidate.begun
        assert decision.request == EIGHT
        assert decision.predicted_gain is not None
        assert decision.predicted_gain >= CONFIG.redecision.min_gain
        assert decision.log_probability is None


@pytest.mark.parametrize(("tested", "is_asked"), [(1, False), (2, True)])
def test_nobody_is_asked_about_whom_backfill_does_not_look_at(room: Room, tested: int, *, is_asked: bool) -> None:
    """Another size would not start: bf_max_job_test ends before the second job of the queue."""
    first, second = _jobs(ROOMY, 101, 2)
    room.add([second])
    scheduling = SchedulingRules(bf_max_job_test=tested)
    room.room.decide(msgspec.structs.replace(_snapshot([first, second]), scheduling=scheduling), CONFIG)
    assert (room.asked()[0] > 0) == is_asked


@pytest.mark.parametrize(("of_a_user", "is_asked"), [(1, False), (2, True)])
def test_nobody_is_asked_about_who_is_one_too_many_of_a_user(room: Room, of_a_user: int, *, is_asked: bool) -> None:
    """Backfill would skip the second job of the user, whatever its size: bf_max_job_user."""
    first, second = _jobs(ROOMY, 101, 2)
    room.add([second])
    scheduling = SchedulingRules(bf_max_job_user=of_a_user)
    room.room.decide(msgspec.structs.replace(_snapshot([first, second]), scheduling=scheduling), CONFIG)
    assert (room.asked()[0] > 0) == is_asked


@pytest.mark.parametrize(("window_s", "is_asked"), [(400.0, False), (200.0, True)])
def test_backfill_reserves_nothing_beyond_its_window(room: Room, window_s: float, *, is_asked: bool) -> None:
    """The first job gets the whole partition in 300 s, and the second would run for longer: bf_window."""
    first, second = _jobs(ROOMY, 101, 2)
    first = msgspec.structs.replace(first, gpus=32, nodes=4, tasks=4, cpus=128, mem_mib=320_000)
    room.add([second])
    now = _snapshot([first, second])
    running = tuple(msgspec.structs.replace(job, time_limit_s=300) if job.running else job for job in now.jobs)
    scheduling = SchedulingRules(bf_window_s=window_s)
    room.room.decide(msgspec.structs.replace(now, jobs=running, scheduling=scheduling), CONFIG)
    assert (room.asked()[0] > 0) == is_asked


@pytest.mark.parametrize(("limit_s", "is_asked"), [(300, False), (0, True)])
def test_a_running_job_without_a_time_limit_frees_nothing_for_a_reservation(
    room: Room, limit_s: int, *, is_asked: bool
) -> None:
    """The first job wants the whole partition: backfill keeps nothing for it if that is free in a year."""
    first, second = _jobs(ROOMY, 101, 2)
    first = msgspec.structs.replace(first, gpus=32, nodes=4, tasks=4, cpus=128, mem_mib=320_000)
    room.add([second])
    now = _snapshot([first, second])
    running = tuple(msgspec.structs.replace(job, time_limit_s=limit_s) if job.running else job for job in now.jobs)
    scheduling = SchedulingRules(bf_window_s=86_400)
    room.room.decide(msgspec.structs.replace(now, jobs=running, scheduling=scheduling), CONFIG)
    assert (room.asked()[0] > 0) == is_asked


@pytest.mark.parametrize(("licenses", "is_asked"), [(0, False), (1, True)])
def test_nobody_is_asked_about_whose_licence_is_in_use(room: Room, licenses: int, *, is_asked: bool) -> None:
    (job,) = _jobs(ROOMY, 101, 1)
    job = msgspec.structs.replace(job, licenses="solver")
    room.add([job])
    limits = SiteLimits(enforced=False, licenses={"solver": LicenseRecord(total=1, used=1 - licenses)})
    room.room.decide(msgspec.structs.replace(_snapshot([job]), limits=limits), CONFIG)
    assert (room.asked()[0] > 0) == is_asked


@pytest.mark.parametrize(("licenses", "is_asked"), [(0, True), (1, False)])
def test_a_job_without_its_licence_keeps_nobody_waiting(room: Room, licenses: int, *, is_asked: bool) -> None:
    """Slurm has not said so yet of the first job, which wants the whole partition in 300 s."""
    first, second = _jobs(ROOMY, 101, 2)
    first = msgspec.structs.replace(first, gpus=32, nodes=4, tasks=4, cpus=128, mem_mib=320_000, licenses="solver")
    room.add([second])
    limits = SiteLimits(enforced=False, licenses={"solver": LicenseRecord(total=1, used=1 - licenses)})
    now = _snapshot([first, second])
    running = tuple(msgspec.structs.replace(job, time_limit_s=300) if job.running else job for job in now.jobs)
    room.room.decide(msgspec.structs.replace(now, jobs=running, limits=limits), CONFIG)
    assert (room.asked()[0] > 0) == is_asked


def test_only_sizes_that_are_given_count_against_limits(room: Room) -> None:
    """A proposal that does not pay is forgotten: it must not take of what others may have."""
    jobs = _jobs(ROOMY, 101, 20)
    room.add(jobs)
    snapshot = _snapshot(jobs)
    decided = room.room.decide(snapshot, CONFIG)
    assert snapshot.granted == {decision.job_id: decision.allocation for _, decision in decided}


def test_a_round_comes_when_resources_were_freed_and_else_after_its_interval(room: Room) -> None:
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)
    room.room.decide(_snapshot(jobs), CONFIG)
    rounds = room.asked()[0]
    assert rounds
    room.clock.now_s = 10
    assert room.room.decide(_snapshot(jobs, NOW_S + 10, free_gpus=3), CONFIG) == ()  # no job has ended
    assert room.asked()[0] == rounds
    freed = _snapshot(jobs, NOW_S + 11, free_gpus=4)
    ended = msgspec.structs.replace(freed, jobs=tuple(job for job in freed.jobs if job.job_id != 1002))
    room.room.decide(ended, CONFIG)
    now = room.asked()[0]
    assert now > rounds
    room.clock.now_s = 41
    room.room.decide(_snapshot(jobs, NOW_S + 41, free_gpus=6), CONFIG)
    assert room.asked()[0] > now


def test_a_round_that_took_long_is_followed_by_a_pause(room: Room) -> None:
    """What was freed meanwhile is not forgotten; the interval is the longest pause."""
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)

    def frees(now_s: float, free_gpus: int) -> int:
        """The questions of a cycle in which a node comes back."""
        before, whole = room.asked()[0], _snapshot(jobs, NOW_S + now_s, free_gpus=free_gpus)
        room.clock.now_s = now_s
        away = tuple(msgspec.structs.replace(node, usable=node.name != "full3") for node in whole.nodes)
        for nodes in (away, whole.nodes):
            room.room.decide(msgspec.structs.replace(whole, nodes=nodes), CONFIG)
        return room.asked()[0] - before

    room.question_takes_s = 0.05
    assert frees(0, 3)
    pause_s = 50 * room.processor.now_s  # a fiftieth of a core
    assert 4 < pause_s < CONFIG.redecision.every_s
    assert frees(pause_s - 1, 4) == 0
    room.clock.now_s, asked = pause_s + 1, room.asked()[0]
    room.room.decide(_snapshot(jobs, NOW_S + pause_s + 1, free_gpus=5), CONFIG)
    assert room.asked()[0] > asked
    room.question_takes_s = 100.0
    assert frees(50, 6)
    assert frees(79, 7) == 0
    assert frees(81, 2)


def test_a_node_that_comes_back_brings_a_round(room: Room) -> None:
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)
    whole = _snapshot(jobs)
    nodes = tuple(msgspec.structs.replace(node, usable=node.name != "roomy0") for node in whole.nodes)
    room.room.decide(msgspec.structs.replace(whole, nodes=nodes), CONFIG)
    assert room.asked() == (0, 0)  # the only one with free GPUs is away
    assert room.room.decide(whole, CONFIG)


def test_a_job_that_asked_for_all_memory_keeps_its_counts_when_it_is_decided_again(room: Room) -> None:
    """By --mem=0, where other nodes have less memory. Since our first update, its record names an amount."""
    asked = Allocation(1, 4, 1, 16, 300_000, 600)
    trimmed = msgspec.structs.replace(asked, cpus_per_task=8)
    before = pending_job(101, asked, partition=ROOMY, fields=RequestFields(min_nodes=1, min_cpus=16))
    fields = RequestFields(min_nodes=1, min_cpus=8, mem_mib_per_node=300_000)
    job = pending_job(101, trimmed, partition=ROOMY, fields=fields)
    first = msgspec.structs.replace(decision_for(job), id="first", request=asked, allocation=trimmed)
    tag = read_tag(job.admin_comment)
    assert tag is not None
    update = entry_of(Candidate(before, tag, "enforce"), first)

    def counts(entry: Application) -> tuple[int, ...]:
        history = JobHistory(decisions=(first,), applications=(msgspec.structs.replace(entry, state="begun"),))
        (pending,) = find_redecision_candidates([job], CONFIG, NOW_S)
        (decided,) = redecide([pending], {pending.key: history}, {}, _snapshot([job]), CONFIG, room.agent)
        assert decided[1].bounds is not None
        return decided[1].bounds.gpu_counts

    assert counts(update) == (1, 2, 4, 8)
    named = msgspec.structs.replace(before, fields=msgspec.structs.replace(before.fields, mem_mib_per_node=300_000))
    assert counts(msgspec.structs.replace(update, record=msgspec.json.encode(named).decode())) == (1, 2, 4)


def test_nobody_is_asked_about_again_until_something_has_changed(room: Room) -> None:
    jobs = _jobs(ROOMY, 101, 1)
    room.add(jobs)
    room.room.decide(_snapshot(jobs), CONFIG)
    asked = room.asked()
    room.clock.now_s = 31
    room.room.decide(_snapshot(jobs, NOW_S + 31), CONFIG)
    assert room.asked() == asked


@pytest.mark.parametrize("step_s", [-8_000.0, 86_400.0])
def test_a_step_of_the_clock_neither_hurries_a_round_nor_puts_it_off(room: Room, step_s: float) -> None:
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)
    room.room.decide(_snapshot(jobs), CONFIG)
    asked = room.asked()
    assert room.room.decide(_snapshot(jobs, NOW_S + step_s, free_gpus=4), CONFIG) == ()
    room.clock.now_s = 31
    room.room.decide(_snapshot(jobs, NOW_S + 31 + step_s, free_gpus=4), CONFIG)
    assert room.asked() > asked


def test_what_was_never_decided_is_not_decided_here(room: Room) -> None:
    assert room.room.decide(_snapshot(_jobs(ROOMY, 101, 3)), CONFIG) == ()
    assert room.asked() == (0, 0)


def test_without_the_agent_they_stay_and_are_asked_about_later(tmp_path: Path) -> None:
    server = Server(tmp_path)
    impatient = msgspec.structs.replace(CONFIG, agent=msgspec.structs.replace(CONFIG.agent, deadline_s=0.2))
    room = Room(tmp_path, server, impatient)
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)
    # The server has bound its socket and does not answer yet.
    assert room.room.decide(_snapshot(jobs), impatient) == ()
    assert room.counters == {"redecision_unanswered": 1}
    room.agent.close()

    patient = AgentClient(server.endpoint, CONFIG.agent.deadline_s)
    with server:
        assert RedecisionRounds(room.store, patient, room.counters).decide(_snapshot(jobs, NOW_S + 31), CONFIG)
    patient.close()
    room.store.close()


def test_each_job_and_each_question_is_a_step(room: Room) -> None:
    """A long queue, or a slow agent that answers, is no reason for the watchdog to end the daemon."""
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)
    room.room.decide(_snapshot(jobs), CONFIG)
    assert room.steps == room.asked()[0] + len(jobs) > len(jobs)


def test_it_can_be_switched_off(room: Room) -> None:
    jobs = _jobs(ROOMY, 101, 3)
    room.add(jobs)
    off = msgspec.structs.replace(CONFIG, redecision=msgspec.structs.replace(CONFIG.redecision, max_updates=0))
    assert room.room.decide(_snapshot(jobs), off) == ()
    assert room.asked() == (0, 0)
