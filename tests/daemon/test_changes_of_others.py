"""What others change between an update and our reading of it stays, where Slurm can have it with the request."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rlalloc.job import Allocation, ChosenType
from rlalloc.store import Application, Store
from rlallocd.process.uptime import uptime_s
from rlallocd.slurm import JobChanged, JobRecord, Slurm, UpdatePlan, UpdateRefused
from rlallocd.submissions.candidates import find_candidates
from rlallocd.transactions.changes_of_others import kept_changes
from rlallocd.transactions.transactions import Applier

from .slurm_in_memory import SlurmInMemory
from .test_journal_entries import DECIDED, REQUEST, as_size
from .test_redecision_rules import decision_for
from .test_request_sizes_and_tags import ENFORCE

BEGIN_S = int(time.time()) + 3600
FIELDS: Mapping[str, Callable[[str], Mapping[str, int | str]]] = {
    "CPUsPerTask": lambda value: {"cpus_per_task": int(value)},
    "NumCPUs": lambda value: {"min_cpus": int(value)},
    "MinCPUsNode": lambda value: {"min_cpus_per_node": int(value)},
    "MinMemoryNode": lambda value: {"mem_mib_per_node": int(value), "mem_mib_per_cpu": 0},
    "MinMemoryCPU": lambda value: {"mem_mib_per_node": 0, "mem_mib_per_cpu": int(value)},
    "TresPerNode": lambda value: {"tres_per_node": value, "gpus_per_node": int(value.rpartition(":")[2])},
}
"""Fields of scontrol that this Slurm knows, and what they make of a request."""


class UpdatingSlurm(SlurmInMemory):
    """It carries out updates of one job, and somebody else's update right after the first one."""

    def __init__(self, job: JobRecord, of_others: Mapping[str, str]) -> None:
        super().__init__([job])
        self.job_id = job.job_id
        self.of_others = of_others
        self.sent: list[dict[str, str]] = []
        self.dies_after: int | None = None
        self.refused: frozenset[str] = frozenset()

    @property
    def job(self) -> JobRecord:
        return self.queue[self.job_id]

    def update(self, plan: UpdatePlan) -> None:
        super().update(plan)
        if len(self.sent) == self.dies_after:
            raise KeyboardInterrupt
        self.sent.append(dict(plan.fields))
        self.set(self.sent[-1])
        if len(self.sent) == 1:
            self.set(self.of_others)

    def set(self, fields: Mapping[str, str]) -> None:
        job = self.job
        for name, value in fields.items():
            if name in FIELDS:
                job = msgspec.structs.replace(job, fields=msgspec.structs.replace(job.fields, **FIELDS[name](value)))
        now = job.fields
        if fields is self.of_others:  # as slurmctld does
            now = msgspec.structs.replace(now, min_cpus=max(now.min_cpus, now.min_cpus_per_node))
        excluded = fields.get("ExcNodeList", job.excluded_nodes)
        required = fields.get("ReqNodeList", job.required_nodes)
        self.queue[self.job_id] = msgspec.structs.replace(
            job,
            fields=now,
            cpus=max(now.min_cpus, now.min_cpus_per_node),
            gpus=now.gpus_per_node,
            mem_mib=float(now.mem_mib_per_node or now.mem_mib_per_cpu * now.min_cpus),
            excluded_nodes=excluded,
            required_nodes=required,
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    yield store
    store.close()


def submitted(**fields: int | str) -> JobRecord:
    """A job that is deferred for us."""
    job = as_size(REQUEST, **fields)
    tag = job.admin_comment.replace("begin=2000", f"begin={BEGIN_S}")
    return msgspec.structs.replace(job, begin_s=BEGIN_S, reason="BeginTime", admin_comment=tag)


def apply(
    slurm: UpdatingSlurm, store: Store, decided: Allocation = DECIDED, *, read_s: float | None = None
) -> Application:
    """Have it decided; returns the journal's entry afterwards."""
    (candidate,) = find_candidates([slurm.job], ENFORCE, set())
    decision = msgspec.structs.replace(decision_for(candidate.job), request=REQUEST, allocation=decided)
    store.add_decisions([decision])
    try:
        Applier(cast("Slurm", slurm), store, Counter()).apply([(candidate, decision)], read_s)
    except KeyboardInterrupt:  # the daemon is killed, another one starts
        slurm.dies_after = None
        Applier(cast("Slurm", slurm), store, Counter()).finish(store.open_applications())
    return store.applications(decision.id)[-1]


@pytest.mark.parametrize(
    "of_others",
    [
        {"MinCPUsNode": "20"},
        {"MinCPUsNode": "1"},
        {"MinMemoryNode": "3000"},
        {"MinMemoryCPU": "9000"},
        {"CPUsPerTask": "20"},
        {"TresPerNode": "gres:gpu:5"},
        {"MinCPUsNode": "20", "MinMemoryNode": "90000"},
    ],
    ids=str,
)
@pytest.mark.parametrize("dies_after", [None, 1], ids=["", "killed before the restoration"])
def test_what_others_set_after_the_update_stays(
    store: Store, of_others: Mapping[str, str], dies_after: int | None
) -> None:
    slurm = UpdatingSlurm(submitted(), of_others)
    slurm.dies_after = dies_after
    application = apply(slurm, store)
    wanted = UpdatingSlurm(submitted(), {})
    wanted.of_others = of_others
    wanted.set(of_others)
    assert slurm.job.fields == wanted.job.fields
    assert (application.state, slurm.begun) == ("restored", [7])
    assert len(slurm.sent) == 2
    assert not any("MemPerTres" in fields for fields in slurm.sent)  # an empty one would hide the memory that stays
    assert "request restored, except what someone else set" in application.detail


def test_of_a_job_whose_request_is_not_shown_nothing_is_taken_for_a_change_of_others(store: Store) -> None:
    slurm = UpdatingSlurm(submitted(), {"MinMemoryNode": "3000"})
    application = apply(slurm, store)
    assert kept_changes(application, slurm.job) is not None
    assert kept_changes(application, msgspec.structs.replace(slurm.job, unread=True)) is None


def test_a_job_that_waits_gets_its_request_back_and_keeps_what_its_user_set(store: Store) -> None:
    """After it was let go, its user set more CPUs per node than were decided: no node has both, for ever."""
    slurm = UpdatingSlurm(submitted(), {})
    assert apply(slurm, store).state == "begun"
    slurm.set({"MinCPUsNode": "20"})
    (history,) = store.histories({(7, int(slurm.job.submitted_s))}).values()
    applier = Applier(cast("Slurm", slurm), store, Counter())
    assert applier.take_back(7, history, "rlalloc off") == "not ours"
    (entry,) = applier.take_back_all([(7, history, "it waits for Reservation")])
    assert store.applications(entry.decision_id)[-1].state == "restored"
    assert slurm.job.fields.cpus_per_task == REQUEST.cpus_per_task
    assert (slurm.job.fields.min_cpus_per_node, slurm.job.fields.min_cpus) == (20, 20)


@pytest.mark.parametrize(
    ("of_others", "terms"),
    [
        ({"NumCPUs": "20"}, {}),
        ({"NumCPUs": "30", "MinCPUsNode": "20"}, {}),
        ({"MinMemoryNode": "40000"}, {}),
        ({"CPUsPerTask": "2"}, {}),
        ({"TresPerNode": "gres:gpu:5"}, {"gpus_per_node": 0, "gpus_per_job": 4, "tres_per_job": "gres:gpu:4"}),
    ],
    ids=["NumCPUs", "with NumCPUs", "between ours and the request's", "fewer CPUs per task", "--gpus"],
)
def test_where_slurm_may_not_have_it_with_the_request_the_whole_request_comes_back(
    store: Store, of_others: Mapping[str, str], terms: Mapping[str, int | str]
) -> None:
    slurm = UpdatingSlurm(submitted(**terms), of_others)
    application = apply(slurm, store)
    assert slurm.sent[1].keys() >= {"NumCPUs", "MinCPUsNode", "CPUsPerTask", "MinMemoryNode", "TresPerNode"}
    assert application.state == "restored"
    assert application.detail.startswith("request restored: ")
    assert "changed by someone else" in application.detail


def test_what_no_node_can_hold_does_not_stay(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = UpdatingSlurm(submitted(), {"MinCPUsNode": "100"})
    monkeypatch.setattr(
        slurm,
        "never_runs",
        lambda jobs: {job.job_id: "no node" for job in jobs if job.fields.min_cpus_per_node == 100},
    )
    assert apply(slurm, store).state == "restored"
    assert slurm.job.fields == submitted().fields


def test_nodes_that_others_name_stay(store: Store) -> None:
    """The job has two names to choose from, and the update failed for another reason."""
    named = msgspec.structs.replace(submitted(), required_nodes="n[1-2]")
    slurm = UpdatingSlurm(named, {"ReqNodeList": "n3", "MinCPUsNode": "20"})
    application = apply(slurm, store)
    assert application.state == "restored"
    assert "required nodes n3" in application.detail
    assert slurm.job.required_nodes == "n3"


@pytest.mark.parametrize(("of_others", "stays"), [("n9", "n9"), ("n9,v1", "")], ids=["theirs", "one is still ours"])
def test_nodes_that_others_leave_out_stay(store: Store, of_others: str, stays: str) -> None:
    slurm = UpdatingSlurm(submitted(), {"ExcNodeList": of_others})
    of_a_type = msgspec.structs.replace(
        DECIDED, gpu_type=ChosenType("a100", "v[1-2]", "", speed_up=2.0, least_speed_up=1.5)
    )
    assert apply(slurm, store, of_a_type).state == "restored"
    assert slurm.job.excluded_nodes == stays


class RefusingSlurm(UpdatingSlurm):
    """Somebody else's update comes just before those of these numbers, which rlalloc.lua therefore refuses."""

    def __init__(self, job: JobRecord, of_others: Mapping[str, str], *numbers: int) -> None:
        super().__init__(job, {})
        self.just_before = of_others
        self.numbers = numbers
        self.tried: list[str] = []

    def update(self, plan: UpdatePlan) -> None:
        self.tried.append(dict(plan.fields)["AdminComment"])
        if len(self.tried) in self.numbers:
            self.of_others = self.just_before
            self.set(self.of_others)
            raise JobChanged("Stale file handle for job 7")
        super().update(plan)


@pytest.mark.parametrize("of_others", [{"MinMemoryNode": "3000"}, {"NumCPUs": "12"}, {}], ids=str)
@pytest.mark.parametrize("release", ["done", "refused"])
def test_what_others_set_before_the_update_stays(
    store: Store, of_others: Mapping[str, str], release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the release does not go through: the next cycle must not take it for a part of our update."""
    slurm = RefusingSlurm(submitted(), of_others, 1)

    def refuse(_job_ids: Sequence[int], _begin_s: float) -> None:
        raise UpdateRefused("Stale file handle for job 7")

    if release == "refused":
        monkeypatch.setattr(slurm, "begin", refuse)
    application = apply(slurm, store, read_s=5.25)
    assert application.state == "left"
    assert application.detail.startswith("rlalloc.lua refused the update: since the job was read, someone else ")
    wanted = RefusingSlurm(submitted(), of_others, 1)
    wanted.of_others = of_others
    wanted.set(of_others)
    assert slurm.job.fields == wanted.job.fields
    assert slurm.begun == ([7] if release == "done" else [])
    (comment,) = slurm.tried
    assert comment.endswith(" rlalloc-decision:d1 rlalloc-read:5.25")


def test_what_others_set_of_an_array_before_the_update_stays(store: Store) -> None:
    """As long as no task stands alone, slurmctld has one record of it, and carries out nothing of the update."""
    array = msgspec.structs.replace(submitted(), is_array=True, array_job_id=7)
    slurm = RefusingSlurm(array, {"MinMemoryNode": "3000"}, 1)
    assert apply(slurm, store).state == "left"
    assert (len(slurm.tried), slurm.job.fields.mem_mib_per_node) == (1, 3000)


def test_nothing_is_taken_back_of_a_job_that_others_change_meanwhile(store: Store) -> None:
    """The next cycle sees whether it still waits by our doing."""
    slurm = RefusingSlurm(submitted(), {"NumCPUs": "40"}, 2)
    assert apply(slurm, store).state == "begun"
    (history,) = store.histories({(7, int(slurm.job.submitted_s))}).values()
    applier = Applier(cast("Slurm", slurm), store, Counter())
    (entry,) = applier.take_back_all([(7, history, "it waits for Reservation")])
    last = store.applications(entry.decision_id)[-1]
    assert (last.state, len(slurm.tried), slurm.job.fields.min_cpus) == ("begun", 2, 40)
    assert last.detail.startswith("nothing is taken back: ")


def test_what_others_set_before_the_restoration_stays(store: Store) -> None:
    slurm = RefusingSlurm(submitted(), {"MinMemoryNode": "3000"}, 2)
    slurm.of_others = {"MinCPUsNode": "1"}  # after the first
    application = apply(slurm, store)
    assert (application.state, slurm.begun) == ("restored", [7])
    assert (slurm.job.fields.mem_mib_per_node, slurm.job.fields.min_cpus_per_node) == (3000, 1)
    read_s = [float(comment.rpartition("rlalloc-read:")[2]) for comment in slurm.tried[1:]]
    assert len(read_s) == 2
    assert 0 < read_s[0] <= read_s[1] <= uptime_s()


def test_what_others_set_stays_however_often_they_change_the_job_before_the_restoration(store: Store) -> None:
    """The last of three attempts sends the whole request only if Slurm itself refused what was kept of theirs."""
    slurm = RefusingSlurm(submitted(), {"MinMemoryNode": "3000"}, 2, 3)
    slurm.of_others = {"MinCPUsNode": "1"}
    application = apply(slurm, store)
    assert (application.state, len(slurm.tried)) == ("restored", 4)
    assert (slurm.job.fields.mem_mib_per_node, slurm.job.fields.min_cpus_per_node) == (3000, 1)
