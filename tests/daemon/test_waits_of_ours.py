"""Jobs that Slurm passes over in a size of ours, though their requests would fit: they get their requests back."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import StoreError
from rlalloc.job import Allocation, ChosenType
from rlalloc.store import Application, JobHistory, Store
from rlallocd.decisions.decisions import Snapshot
from rlallocd.slurm import (
    JobRecord,
    NodeNeeds,
    RequestFields,
    ReservationRecord,
    SiteLimits,
    SlurmUnavailable,
    UpdateRefused,
)
from rlallocd.transactions import waits_of_ours
from rlallocd.transactions.transactions import Applier as RealApplier
from rlallocd.transactions.waits_of_ours import WaitsOfOurs
from tests.core.test_store import APPLICATION
from tests.daemon.slurm_in_memory import NODE, SlurmInMemory, gpus

from .test_redecision_rules import EIGHT, decision_for, pending_job

FOUR = msgspec.structs.replace(EIGHT, gpus_per_node=4, cpus_per_task=16, mem_mib_per_node=40_000)
LONGER = msgspec.structs.replace(FOUR, gpus_per_node=2, time_limit_s=1200)
INTERVAL_S = 30.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store(f"sqlite:///{tmp_path}/store.sqlite")) as opened:
        yield opened


class Applier:
    """Notes the jobs that are taken back."""

    def __init__(self) -> None:
        self.open_jobs: frozenset[int] = frozenset()
        self.taken: list[tuple[int, str]] = []
        self.released: list[int] = []
        self.stay: set[int] = set()

    def take_back_all(self, jobs: Sequence[tuple[int, JobHistory, str]]) -> tuple[Application, ...]:
        self.taken += [(job_id, why) for job_id, _, why in jobs]
        return tuple(
            msgspec.structs.replace(APPLICATION, job_id=job_id) for job_id, _, _ in jobs if job_id not in self.stay
        )

    def release(self, job: JobRecord) -> bool:
        self.released.append(job.job_id)
        return False


def resized(store: Store, asked: Allocation, applied: Allocation) -> None:
    """Write down that job 7 asked for one size and was let go in another."""
    decision = msgspec.structs.replace(decision_for(pending_job(7)), request=asked, allocation=applied)
    store.add_decisions([decision])
    begun = msgspec.structs.replace(
        APPLICATION, decision_id=decision.id, job_id=7, state="begun", original=asked, intended=applied,
        record=None, own_nice=None, added_nice=None,
    )  # fmt: skip
    store.journal([begun])


def looked_at(
    store: Store,
    *moments: tuple[float, int],
    reason: str = "Priority",
    size: Allocation = EIGHT,
    cpus: int = 0,
    restarts: int = 0,
    reservation: str = "",
) -> list[tuple[int, str]]:
    """What is taken back in cycles at these times, with so many GPUs free, of a job whose NumCPUs may say more."""
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    for at_s, free_gpus in moments:
        node = msgspec.structs.replace(NODE, devices=gpus("a100", 8, 8 - free_gpus))
        fields = RequestFields(min_cpus=cpus)
        waits_for = {"reason": reason, "restarts": restarts, "reservation": reservation}
        job = pending_job(7, size, partition="gpu", gpu_type="", fields=fields, **waits_for)
        waits.give_back(Snapshot(at_s, (job,), (node,), {}, None), INTERVAL_S)
    return applier.taken


@pytest.mark.parametrize(("applied", "free"), [(EIGHT, 4), (LONGER, 4)], ids=["larger", "longer"])
def test_a_job_that_is_passed_over_for_an_interval_gets_its_request_back(
    store: Store, applied: Allocation, free: int
) -> None:
    resized(store, FOUR, applied)
    assert looked_at(store, (0.0, free), (INTERVAL_S, free)) == []
    assert looked_at(store, (0.0, free), (INTERVAL_S + 1, free)) == [
        (7, "it waits for Priority, and its request fits what is free")
    ]


def test_a_smaller_job_that_slurm_finds_no_nodes_for_gets_its_request_back(store: Store) -> None:
    """For example, its user has changed the CPUs per task, which then conflict with the CPUs of the decided size."""
    two = msgspec.structs.replace(FOUR, gpus_per_node=2)
    resized(store, FOUR, two)
    two_cycles = (0.0, 8), (INTERVAL_S + 1, 8)
    assert looked_at(store, *two_cycles, reason="Priority", size=two) == []
    assert looked_at(store, two_cycles[0], reason="Reservation", size=two) == []
    assert looked_at(store, *two_cycles, reason="Reservation", size=two) == [
        (7, "it waits for Reservation, and its request fits what is free")
    ]


def test_a_job_that_was_moved_into_a_reservation_gets_its_request_back(store: Store) -> None:
    two = msgspec.structs.replace(FOUR, gpus_per_node=2)
    resized(store, FOUR, two)
    assert looked_at(store, (0.0, 8), reason="Licenses", size=two, reservation="course") == [
        (7, "it was moved into reservation course, whose jobs run as submitted")
    ]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_job_whose_fields_conflict_with_its_size_does_not_wait_for_the_interval(
    store: Store, restarts: int
) -> None:
    """Slurm refused its user's NumNodes=2 and doubled NumCPUs all the same: no nodes hold that with its one task."""
    two = msgspec.structs.replace(FOUR, gpus_per_node=2)
    resized(store, FOUR, two)
    now = (0.0, 8)
    assert looked_at(store, now, reason="Reservation", size=two, cpus=two.cpus, restarts=restarts) == []
    more_memory = msgspec.structs.replace(two, mem_mib_per_node=50_000)  # of its user, who may keep it
    assert (
        looked_at(store, now, (1.0, 8), reason="Reservation", size=more_memory, cpus=two.cpus, restarts=restarts)
        == []
    )
    assert looked_at(store, now, reason="Priority", size=two, cpus=2 * two.cpus, restarts=restarts) == []
    assert looked_at(store, now, reason="Reservation", size=two, cpus=2 * two.cpus, restarts=restarts) == [
        (7, "it waits for Reservation, and its request fits what is free")
    ]


@pytest.mark.parametrize(("start_s", "comes_back"), [(500, False), (9000, True)], ids=["met", "not met"])
def test_a_job_whose_request_would_meet_a_reservation_too_keeps_its_size(
    store: Store, start_s: int, *, comes_back: bool
) -> None:
    """Before a maintenance most jobs wait like that, and nodes are free."""
    resized(store, FOUR, msgspec.structs.replace(FOUR, gpus_per_node=2))
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    maintenance = ReservationRecord(name="m", nodes=frozenset({NODE.name}), start_s=start_s, end_s=start_s + 900)
    limits = SiteLimits(enforced=False, reservations=(maintenance,))
    job = pending_job(7, reason="ReqNodeNotAvail", partition="gpu", gpu_type="")
    for at_s in (0.0, INTERVAL_S + 1):
        waits.give_back(Snapshot(at_s, (job,), (NODE,), {}, limits), INTERVAL_S)
    assert bool(applier.taken) == comes_back


def test_a_job_that_does_not_start_on_a_type_chosen_for_it_gets_its_request_back(store: Store) -> None:
    """Even where its request would not start either: it is to start on the first GPUs that are free."""
    chosen = ChosenType("a100", "n2", "", 2.0, 1.2)
    resized(store, FOUR, msgspec.structs.replace(FOUR, gpu_type=chosen))
    assert looked_at(store, (0.0, 0), (INTERVAL_S, 0)) == []
    assert looked_at(store, (0.0, 0), (INTERVAL_S + 1, 0)) == [
        (7, "it waits for Priority, and it did not start on a100 at once")
    ]


def test_a_type_is_given_up_whatever_nodes_a_job_waits_for(store: Store) -> None:
    """A node that goes down for a moment does not begin the interval anew."""
    resized(store, FOUR, msgspec.structs.replace(FOUR, gpu_type=ChosenType("a100", "n2", "", 2.0, 1.2)))
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    node = msgspec.structs.replace(NODE, devices=gpus("a100", 8, 8))
    for at_s, reason in ((0.0, "Priority"), (20.0, "ReqNodeNotAvail"), (INTERVAL_S + 1, "Resources")):
        job = pending_job(7, reason=reason, partition="gpu", gpu_type="")
        waits.give_back(Snapshot(at_s, (job,), (node,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [7]


@pytest.mark.parametrize("typed", [True, False])
def test_a_requeued_job_does_not_wait_for_the_type_that_was_chosen_for_it(store: Store, *, typed: bool) -> None:
    """A size that has no type stays with a requeued job, as long as a node can hold it."""
    resized(
        store,
        FOUR,
        msgspec.structs.replace(EIGHT, gpu_type=ChosenType("a100", "n2", "", 2.0, 1.2) if typed else None),
    )
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    node = msgspec.structs.replace(NODE, devices=gpus("a100", 8, 4))
    job = pending_job(7, reason="Priority", partition="gpu", gpu_type="", restarts=1)
    for at_s in (0.0, INTERVAL_S + 1):
        waits.give_back(Snapshot(at_s, (job,), (node,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == ([7] if typed else [])
    too_small = msgspec.structs.replace(node, devices=gpus("a100", 4, 4))
    waits.give_back(Snapshot(INTERVAL_S + 2, (job,), (too_small,), {}, None), INTERVAL_S)
    assert applier.taken


@pytest.mark.parametrize("restored", [True, False])
def test_a_requeued_task_of_an_array_gets_its_request_back(store: Store, *, restored: bool) -> None:
    """Also if the others have theirs back, but not while they get it. A task that has its request keeps it."""
    resized(store, FOUR, EIGHT)
    if restored:
        store.set_applications(store.begun_since(0.0), "restored", 1.0, "no node can hold it")
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    node = msgspec.structs.replace(NODE, devices=gpus("a100", 4, 0))
    tasks = [
        pending_job(
            job_id, size, reason="Resources", partition="gpu", gpu_type="", restarts=1, array_job_id=7, is_array=True
        )
        for job_id, size in ((8, EIGHT), (9, FOUR))
    ]
    applier.open_jobs = frozenset({7})
    waits.give_back(Snapshot(0.0, tuple(tasks), (node,), {}, None), INTERVAL_S)
    assert applier.taken == []
    applier.open_jobs = frozenset()
    waits.give_back(Snapshot(1.0, tuple(tasks), (node,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [8]


@pytest.mark.parametrize("reason", ["ReqNodeNotAvail", "Reservation", "Resources"])
def test_a_job_comes_back_whose_longer_limit_meets_a_reservation_whatever_slurm_calls_it(
    store: Store, reason: str
) -> None:
    resized(store, FOUR, LONGER)
    applier = Applier()
    reserved = ReservationRecord(name="course", nodes=frozenset({NODE.name}), start_s=900, end_s=9000)
    limits = SiteLimits(enforced=False, reservations=(reserved,))
    job = pending_job(7, reason=reason, partition="gpu", gpu_type="")
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    waits.give_back(Snapshot(0.0, (job,), (NODE,), {}, limits), INTERVAL_S)
    ((job_id, why),) = applier.taken
    assert job_id == 7
    assert f"it waits for {reason}: there is no node" in why
    assert "outside reservation course; its request would fit" in why


def test_only_time_without_a_break_counts(store: Store) -> None:
    resized(store, FOUR, EIGHT)
    assert looked_at(store, (0.0, 4), (20.0, 3), (40.0, 4), (60.0, 4)) == []


def test_a_new_decision_gets_an_interval_of_its_own(store: Store) -> None:
    resized(store, FOUR, EIGHT)
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    node = msgspec.structs.replace(NODE, devices=gpus("a100", 8, 4))
    job = pending_job(7, reason="Priority", partition="gpu", gpu_type="")
    for at_s in (0.0, 25.0, 50.0):
        if at_s == 25.0:
            waits.forget([(7, job.submitted_s)])
        waits.give_back(Snapshot(at_s, (job,), (node,), {}, None), INTERVAL_S)
    assert applier.taken == []
    waits.give_back(Snapshot(56.0, (job,), (node,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [7]


@pytest.mark.parametrize(
    ("asked", "applied", "free", "reason"),
    [
        (FOUR, EIGHT, 3, "Priority"),
        (FOUR, EIGHT, 8, "Priority"),
        (EIGHT, FOUR, 8, "Priority"),
        (FOUR, EIGHT, 4, "Dependency"),
    ],
    ids=["the request would not fit", "it fits itself", "it asks for less", "it waits for another job"],
)
def test_any_other_job_keeps_its_size(
    store: Store, asked: Allocation, applied: Allocation, free: int, reason: str
) -> None:
    resized(store, asked, applied)
    assert looked_at(store, (0.0, free), (100.0, free), reason=reason) == []


def task(size: Allocation, reason: str, cpus_per_task: int, job_id: int = 8) -> JobRecord:
    """A task of array 7 that has a size, except for the CPUs per task that its user has set."""
    fields = RequestFields(
        min_nodes=1, max_nodes=1, min_cpus=size.cpus, min_cpus_per_node=size.cpus_per_node, tasks_per_node=1,
        cpus_per_task=cpus_per_task, mem_mib_per_node=size.mem_mib_per_node, gpus_per_node=size.gpus_per_node,
    )  # fmt: skip
    return pending_job(
        job_id, size, reason=reason, partition="gpu", gpu_type="", fields=fields, array_job_id=7, is_array=True
    )


def cycles(store: Store, *tasks: JobRecord) -> Applier:
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    for at_s, job in enumerate(tasks):
        waits.give_back(Snapshot(float(at_s), (job,), (NODE,), {}, None), INTERVAL_S)
    return applier


@pytest.mark.parametrize("reason", ["BadConstraints", "JobArrayTaskLimit"])
def test_a_task_whose_user_has_set_other_cpus_per_task_gets_its_request_back(store: Store, reason: str) -> None:
    """As a job that is no task does, and before Slurm tries it. A task that has its request keeps what it has."""
    resized(store, FOUR, EIGHT)
    assert [job_id for job_id, _ in cycles(store, task(EIGHT, reason, 24)).taken] == [8]
    assert [job_id for job_id, _ in cycles(store, task(EIGHT, reason, 40)).taken] == [8]
    assert cycles(store, task(EIGHT, "JobArrayTaskLimit", 32)).taken == []
    assert cycles(store, task(FOUR, reason, 24), task(FOUR, reason, 8)).taken == []


@pytest.mark.parametrize(
    ("before", "is_slurms"),
    [
        (task(EIGHT, "Resources", 32, job_id=7), True),  # its update has given the task a job id of its own
        (task(EIGHT, "JobArrayTaskLimit", 32), True),
        (task(FOUR, "BadConstraints", 2), True),  # seen, but its request could not be given back
        (task(EIGHT, "JobHeldAdmin", 32), False),
        (task(EIGHT, "JobHeldAdmin", 32, job_id=7), False),
        (task(EIGHT, "JobHeldUser", 24), False),
        (None, False),
    ],
)
def test_a_task_that_slurmctld_holds_gets_its_request_back_and_is_released(
    store: Store, before: JobRecord | None, *, is_slurms: bool
) -> None:
    """An administrator's hold, which has the same reason, stays, and so does one that could be theirs.

    Its request comes back in any case.
    """
    resized(store, FOUR, EIGHT)
    held = task(EIGHT, "JobHeldAdmin", 24)
    moments = ([] if before is None else [before]) + [held, held, task(FOUR, "JobHeldAdmin", 24)]
    applier = cycles(store, *moments)
    assert set(applier.taken) == {(8, "its CPUs were changed and do not go with its size")}
    assert applier.released == [8] * is_slurms


@pytest.mark.parametrize("reason", ["JobHeldUser", "Dependency", "BeginTime", "Priority", "QOSMaxJobsPerUserLimit"])
def test_a_job_with_other_cpus_than_its_tasks_gets_its_request_back_whatever_it_waits_for(
    store: Store, reason: str
) -> None:
    """If it started, its srun might wait for ever. Where others have changed too much, nobody tries it again."""
    resized(store, FOUR, EIGHT)
    asked = RequestFields(min_nodes=1, min_cpus=6, min_cpus_per_node=6, cpus_per_task=EIGHT.cpus_per_task)
    job = pending_job(7, EIGHT, reason=reason, partition="gpu", gpu_type="", fields=asked)
    why = "its CPUs were changed and do not go with its size"
    assert cycles(store, job).taken == [(7, why)]
    applier = Applier()
    applier.stay = {7}
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    changed = msgspec.structs.replace(job, fields=msgspec.structs.replace(asked, mem_mib_per_node=1000))
    for at_s, seen in enumerate((job, job, changed, changed)):
        waits.give_back(Snapshot(float(at_s), (seen,), (NODE,), {}, None), INTERVAL_S)
    assert len(applier.taken) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"partition": "small"},
        {"features": "small"},
        {"excluded_nodes": NODE.name},
        {"required_nodes": "n2"},
        {"needs": NodeNeeds(tmp_disk_mib=1000)},
        {"reason": "BadConstraints"},
        {"state": "RUNNING"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_job_that_has_changed_is_looked_at_again_beside_others_that_have_not(
    store: Store, change: dict[str, object]
) -> None:
    """Its user has moved it to a node that its decided size does not fit, or Slurm shows another reason or state."""
    resized(store, FOUR, EIGHT)
    small = msgspec.structs.replace(
        NODE, name="n2", partitions=("small", "gpu"), features=frozenset(("small",)), tmp_disk_mib=1000,
        devices=gpus("a100", 4, 4),
    )  # fmt: skip
    nodes = (msgspec.structs.replace(NODE, devices=gpus("a100", 8, 8)), small)
    tasks = task(EIGHT, "Priority", 32), task(EIGHT, "Priority", 32, job_id=9)
    changed = msgspec.structs.replace(tasks[0], **change)
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    for at_s, jobs in enumerate((tasks, tasks, (changed, tasks[1]))):
        assert applier.taken == []
        waits.give_back(Snapshot(float(at_s), jobs, nodes, {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [8] * changed.pending


@pytest.mark.parametrize(
    ("size", "free", "stays", "comes_back"),
    [
        (msgspec.structs.replace(FOUR, gpus_per_node=2), 8, {}, {"reason": "Reservation"}),
        (EIGHT, 4, {"restarts": 1}, {}),
    ],
    ids=["other reasons", "one was requeued"],
)
def test_jobs_that_do_not_wait_alike_are_not_looked_at_together(
    store: Store, size: Allocation, free: int, stays: dict[str, object], comes_back: dict[str, object]
) -> None:
    resized(store, FOUR, size)
    node = msgspec.structs.replace(NODE, devices=gpus("a100", 8, 8 - free))
    tasks = tuple(
        msgspec.structs.replace(task(size, "Priority", size.cpus_per_task, job_id=job_id), **changes)
        for job_id, changes in ((8, stays), (9, comes_back))
    )
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    for at_s in (0.0, INTERVAL_S + 1):
        waits.give_back(Snapshot(at_s, tasks, (node,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [9]


def test_what_was_decided_is_read_for_a_job_with_the_id_of_an_earlier_one(store: Store) -> None:
    resized(store, FOUR, EIGHT)
    job = pending_job(7, EIGHT, reason="BadConstraints", partition="gpu", gpu_type="")
    undecided = msgspec.structs.replace(job, submitted_s=job.submitted_s - 1)
    assert cycles(store, undecided, undecided).taken == []
    assert [job_id for job_id, _ in cycles(store, undecided, job).taken] == [7]


def test_what_a_store_that_failed_did_not_say_is_read_in_the_next_cycle(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    resized(store, FOUR, EIGHT)
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    snapshot = Snapshot(0.0, (task(EIGHT, "BadConstraints", 32),), (NODE,), {}, None)

    def fail(_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(store.sizes, "of", fail)
        with pytest.raises(StoreError):
            waits.give_back(snapshot, INTERVAL_S)
    waits.give_back(snapshot, INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [8]


def test_not_all_jobs_get_their_requests_back_in_one_cycle(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """New jobs wait to be decided meanwhile."""
    monkeypatch.setattr(waits_of_ours, "_MOST_IN_A_CYCLE", 1)
    resized(store, FOUR, EIGHT)
    applier = Applier()
    waits = WaitsOfOurs(store, applier)  # type: ignore[arg-type]
    tasks = tuple(task(EIGHT, "BadConstraints", 24, job_id=job_id) for job_id in (8, 9))
    waits.give_back(Snapshot(0.0, tasks, (NODE,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [8]
    waits.give_back(Snapshot(1.0, tasks[1:], (NODE,), {}, None), INTERVAL_S)
    assert [job_id for job_id, _ in applier.taken] == [8, 9]


def test_a_hold_of_an_administrator_after_the_request_came_back_stays(store: Store) -> None:
    resized(store, FOUR, EIGHT)
    back = task(FOUR, "Resources", 24)
    applier = cycles(store, task(EIGHT, "BadConstraints", 24), back, task(FOUR, "JobHeldAdmin", 24))
    assert [job_id for job_id, _ in applier.taken] == [8]
    assert applier.released == []


@pytest.mark.parametrize("error", [None, UpdateRefused("already done"), SlurmUnavailable("no answer")])
def test_a_release_that_slurm_refuses_does_not_end_the_cycle(store: Store, error: Exception | None) -> None:
    """The task may have been cancelled. Where slurmctld does not answer, nothing more is sent in this cycle."""

    def called(command: str) -> None:
        if command == "scontrol release" and error is not None:
            raise error

    slurm = SlurmInMemory([task(FOUR, "JobHeldAdmin", 24)], called)
    applier = RealApplier(slurm, store, Counter())  # type: ignore[arg-type]
    with pytest.raises(SlurmUnavailable) if isinstance(error, SlurmUnavailable) else contextlib.nullcontext():
        applier.release(slurm.queue[8])
    assert slurm.queue[8].held == (error is not None)
