"""Open entries of the journal: neither an odd job nor a store or an answer that fails stops the other jobs."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from rlalloc.errors import StoreError
from rlalloc.job import Allocation
from rlalloc.store import Application, ApplicationState, Store
from rlallocd.decisions.decisions import Snapshot
from rlallocd.slurm import CommandDied, JobRecord, RequestFields, SlurmUnavailable, UpdatePlan
from rlallocd.transactions import settlement
from rlallocd.transactions.journal_entries import restorations_for
from rlallocd.transactions.transactions import Applier
from rlallocd.transactions.waits_of_ours import WaitsOfOurs
from tests.core.test_store import APPLICATION
from tests.daemon.slurm_in_memory import NODE, SlurmInMemory
from tests.daemon.test_redecision_rules import EIGHT, decision_for, pending_job
from tests.daemon.test_waits_of_ours import FOUR, INTERVAL_S

TWO_NODES = msgspec.structs.replace(EIGHT, nodes=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store(f"sqlite:///{tmp_path}/store.sqlite")) as opened:
        yield opened


def of_size(size: Allocation, job_id: int = 7, reason: str = "Resources", **more: object) -> JobRecord:
    """A pending job that asks for a size."""
    fields = RequestFields(
        min_nodes=size.nodes,
        max_nodes=size.nodes,
        min_cpus=size.cpus,
        min_cpus_per_node=size.cpus_per_node,
        tasks_per_node=size.tasks_per_node,
        cpus_per_task=size.cpus_per_task,
        mem_mib_per_node=size.mem_mib_per_node,
        gpus_per_node=size.gpus_per_node,
        tres_per_node=f"gres:gpu:{size.gpus_per_node}",
    )
    return pending_job(job_id, size, reason=reason, partition="gpu", gpu_type="", fields=fields, **more)


class Restoring(SlurmInMemory):
    """Each update gives a job its request back, except the first ones that are not answered."""

    def __init__(self, jobs: Sequence[JobRecord]) -> None:
        super().__init__(jobs)
        self.unanswered = 0
        self.released: list[str] = []

    def release(self, target: str) -> None:
        super().release(target)
        self.released.append(target)

    def update(self, plan: UpdatePlan) -> None:
        super().update(plan)
        if self.unanswered:
            self.unanswered -= 1
            raise SlurmUnavailable("no answer")
        job_id = next(each for each in self.queue if plan.job_id in (each, self.queue[each].base_id))
        was, back = self.queue[job_id], of_size(FOUR, job_id)
        cpus = int(dict(plan.fields)["CPUsPerTask"])
        self.queue[job_id] = msgspec.structs.replace(
            was, gpus=back.gpus, cpus=back.cpus, mem_mib=back.mem_mib,
            fields=msgspec.structs.replace(back.fields, cpus_per_task=cpus),
        )  # fmt: skip


def journaled(store: Store, job_id: int, state: ApplicationState, before: JobRecord | None = None) -> Application:
    """An entry of a job that asked for four GPUs and got eight."""
    decision = msgspec.structs.replace(
        decision_for(pending_job(job_id)), id=str(job_id), request=FOUR, allocation=EIGHT
    )
    store.add_decisions([decision])
    entry = msgspec.structs.replace(
        APPLICATION,
        id=0,
        decision_id=decision.id,
        job_id=job_id,
        state=state,
        original=FOUR,
        intended=EIGHT,
        record=msgspec.json.encode(before or of_size(FOUR, job_id)).decode(),
        own_nice=None,
        added_nice=None,
        begins=False,
    )  # fmt: skip
    return store.journal([entry])[0]


def applier_of(slurm: SlurmInMemory, store: Store) -> Applier:
    return Applier(slurm, store, Counter())  # type: ignore[arg-type]


def cycle(slurm: SlurmInMemory, store: Store, applier: Applier, waits: WaitsOfOurs, at_s: float) -> None:
    with contextlib.suppress(SlurmUnavailable):
        applier.finish(store.open_applications())
        waits.give_back(Snapshot(at_s, tuple(slurm.queue.values()), (NODE,), {}, None), INTERVAL_S)


def test_a_job_that_its_fewest_nodes_cannot_divide_gets_its_request_back(store: Store) -> None:
    """-N3-5 -n8 --gpus=8 --cpus-per-gpu=4 was given four nodes; three do not divide eight GPUs."""
    asked = RequestFields(
        min_nodes=3, max_nodes=5, min_cpus=32, gpus_per_job=8, tres_per_job="gres:gpu:8", cpus_per_gpu=4,
        cpus_per_tres="gres:gpu:4", mem_mib_per_node=8000,
    )  # fmt: skip
    journaled(store, 7, "restoring", msgspec.structs.replace(pending_job(7, EIGHT, fields=asked), tasks=8, nodes=3))
    slurm = Restoring([of_size(EIGHT)])
    applier_of(slurm, store).finish(store.open_applications())
    assert store.open_applications() == ()


def test_one_odd_entry_does_not_stop_the_others(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with it: it stays open, and is tried again in the next cycle."""
    for job_id in (7, 8):
        journaled(store, job_id, "restoring")
    slurm = Restoring([of_size(EIGHT, 7), of_size(EIGHT, 8)])

    def odd(application: Application, job: JobRecord) -> tuple[UpdatePlan, ...]:
        if application.job_id == 7:
            raise ValueError("odd")
        return restorations_for(application, job)

    with monkeypatch.context() as patched:
        patched.setattr(settlement, "restorations_for", odd)
        applier_of(slurm, store).finish(store.open_applications())
    assert [each.job_id for each in store.open_applications()] == [7]
    applier_of(slurm, store).finish(store.open_applications())
    assert store.open_applications() == ()


def test_what_its_user_sets_after_its_release_stays_while_the_store_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry has ended, though the store has not been told yet. It is told once it answers."""
    entry = journaled(store, 7, "intended")
    slurm = Restoring([of_size(EIGHT)])
    applier = applier_of(slurm, store)

    def fails(*_: object) -> None:
        raise StoreError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(store, "set_applications", fails)
        applier.finish_without_store()
        assert applier.open_jobs == frozenset()
        slurm.queue[7] = of_size(TWO_NODES)
        applier.finish_without_store()
        with pytest.raises(StoreError):  # it can be read, and not written
            applier.finish(store.open_applications())
        applier.finish_without_store()
    assert slurm.queue[7].nodes == 2
    applier.finish(store.open_applications())
    assert slurm.queue[7].nodes == 2
    assert [each.state for each in store.applications(entry.decision_id)] == ["begun"]


@pytest.mark.parametrize("unanswered", [0, 1])
@pytest.mark.parametrize(("job_id", "released"), [(8, "8"), (7, "7_3")], ids=["own id", "the array's id"])
def test_a_task_that_slurmctld_holds_is_released_also_if_one_answer_was_lost(
    store: Store, job_id: int, released: str, unanswered: int
) -> None:
    """For the array's id, scontrol would release all tasks of the array, also those that their user holds."""
    journaled(store, 7, "begun", of_size(FOUR, array_job_id=7, array_tasks="3"))
    array = {"array_job_id": 7, "array_tasks": "3"}
    slurm = Restoring([of_size(EIGHT, job_id, "JobArrayTaskLimit", **array)])
    applier = applier_of(slurm, store)
    waits = WaitsOfOurs(store, applier)
    cycle(slurm, store, applier, waits, 0.0)
    held = of_size(EIGHT, job_id, "JobHeldAdmin", **array)
    more_cpus = msgspec.structs.replace(held.fields, cpus_per_task=EIGHT.cpus_per_task - 8)
    slurm.queue[job_id] = msgspec.structs.replace(held, fields=more_cpus)
    slurm.unanswered = unanswered
    for at_s in range(1, 4):
        cycle(slurm, store, applier, waits, float(at_s))
    assert slurm.released == [released]
    assert (slurm.queue[job_id].reason, slurm.queue[job_id].gpus) == ("None", FOUR.gpus)


@pytest.mark.parametrize("is_split", [False, True])
def test_an_array_whose_waiting_tasks_are_not_known_is_released_only_as_a_whole(
    store: Store, *, is_split: bool
) -> None:
    slurm = Restoring([of_size(FOUR, 7, "JobHeldAdmin", array_job_id=7, is_split=is_split)])
    assert not applier_of(slurm, store).release(slurm.queue[7])
    assert slurm.released == ([] if is_split else ["7"])


def test_of_an_array_whose_waiting_tasks_are_not_known_nothing_is_taken_back(store: Store) -> None:
    """Nobody could name them in an update, and the entry would stay open."""
    journaled(store, 7, "begun", of_size(FOUR, array_job_id=7, array_tasks="3"))
    slurm = Restoring([of_size(EIGHT, 7, "BadConstraints", array_job_id=7, is_split=True)])
    applier = applier_of(slurm, store)
    cycle(slurm, store, applier, WaitsOfOurs(store, applier), 0.0)
    assert store.open_applications() == ()
    assert slurm.calls["scontrol update"] == 0


def test_a_release_whose_scontrol_died_is_tried_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = Restoring([of_size(FOUR, 8, "JobHeldAdmin", array_job_id=7, array_tasks="3")])
    applier = applier_of(slurm, store)

    def dies(_: str) -> None:
        raise CommandDied("scontrol release was ended by signal 9")

    with monkeypatch.context() as patched:
        patched.setattr(slurm, "release", dies)
        assert applier.release(slurm.queue[8])
    assert not applier.release(slurm.queue[8])
    assert slurm.queue[8].reason == "None"


def test_a_restoration_that_a_killed_slurmctld_forgot_is_done_again(store: Store) -> None:
    """The journal says that the request is back; the job waits in the decided size again."""
    journaled(store, 7, "restored")
    slurm = Restoring([of_size(FOUR, 7, "BadConstraints")])
    applier = applier_of(slurm, store)
    waits = WaitsOfOurs(store, applier)
    cycle(slurm, store, applier, waits, 0.0)
    assert slurm.calls["scontrol update"] == 0
    slurm.queue[7] = of_size(EIGHT, 7, "BadConstraints")
    cycle(slurm, store, applier, waits, 1.0)
    assert slurm.queue[7].gpus == FOUR.gpus


def test_a_job_whose_size_is_no_longer_ours_is_read_back_once(store: Store) -> None:
    """It waits for a limit in a size of its user's."""
    journaled(store, 7, "begun")
    slurm = Restoring([of_size(TWO_NODES, 7, "BadConstraints")])
    applier = applier_of(slurm, store)
    waits = WaitsOfOurs(store, applier)
    for at_s in range(5):
        cycle(slurm, store, applier, waits, float(at_s))
    assert slurm.calls["squeue"] == 1
    slurm.queue[7] = of_size(EIGHT, 7, "BadConstraints")
    cycle(slurm, store, applier, waits, 6.0)
    assert slurm.queue[7].gpus == FOUR.gpus
