"""What the apply engine does of its own, on a real slurmctld: batches, updates in place, jobs that were forgotten.

The engine runs inside the test, on a site whose plugin defers jobs for a daemon that is not there.
"""

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
import pytest

from rlalloc.config import Config, load_config
from rlalloc.errors import StoreError
from rlalloc.job import Allocation
from rlalloc.store import Application, Decision, Store
from rlalloc.tres import parse_tres
from rlalloc_testbed import USER, Installation, install
from rlallocd.process.uptime import uptime_s
from rlallocd.slurm import JobRecord, RequestFields, Slurm, UpdatePlan, connect
from rlallocd.submissions.candidates import Candidate, find_candidates, find_deferred
from rlallocd.submissions.intercept import write_intercept
from rlallocd.submissions.job_tag import Tag
from rlallocd.submissions.request_sizes import size_of
from rlallocd.transactions import job_updates, settlement
from rlallocd.transactions.settlement import CHANGED_SINCE
from rlallocd.transactions.transactions import Applier
from slurm_testbed import Site

pytestmark = pytest.mark.slurm

JOB = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10
#RLALLOC gpus=1-2
: torchrun train.py
"""
RUNS = JOB.replace(": torchrun", "sleep 30; : torchrun")
FORMS = (
    "-N1 --gres=gpu:4 -c8 --mem=64G",
    "-N1 --gres=gpu:a100:4 -c8 --mem=64G",
    "-N2 --gpus-per-node=2 --ntasks-per-node=1 -c8 --mem=64G",
    "-N1 --gpus=4 -n4 -c2 --mem=64G",
    "-N1 --gpus-per-task=1 -n4 -c2 --mem=64G",
    "-N1 --gpus=4 --ntasks-per-gpu=1 -c2 --mem=64G",
    "-N1 --gpus=4 --cpus-per-gpu=2 --mem-per-gpu=8G",
    "-N1 --gres=gpu:4 -c8 --mem-per-cpu=4G",
    "-N1-2 --gres=gpu:4 -c8 --mem=64G",
    "-N1 --gres=gpu:4 -c8 --mem=64G --nodelist=n1",
    "-N1 --gres=gpu:4 -c8 --mem=0",
    "-N1 --gres=gpu:4 -c8 --mem=64G --exclusive",
)
WITHIN_S = 300


class Engine:
    """An Applier and what it works on."""

    def __init__(self, installation: Installation, config: Config) -> None:
        self.installation = installation
        self.site = installation.site
        self.config = config
        self.slurm: Slurm = connect(config.slurm)
        self.store = Store(config.store.url)
        self.applier = Applier(self.slurm, self.store, Counter())

    def candidates(self, *job_ids: int) -> list[Candidate]:
        found = find_candidates(self.slurm.jobs(), self.config, set())
        mine = (candidate for candidate in found if candidate.job.job_id in job_ids)
        return sorted(mine, key=lambda candidate: candidate.job.job_id)  # squeue's own order is by state and priority

    def decide(self, candidate: Candidate, **changes: int) -> tuple[Candidate, Decision]:
        """A decision on this size with some changes, written as the controller does."""
        job = candidate.job
        decision = Decision(
            id=f"{job.job_id}-{time.time()}",
            job_id=job.job_id,
            submitted_s=job.submitted_s,
            decided_s=time.time(),
            user=job.user,
            account=job.account,
            partition=job.partition,
            job_name=job.name,
            job_class="train",
            rule="llm",
            mode="enforce",
            reason="",
            request=size_of(job),
            allocation=msgspec.structs.replace(size_of(job), **changes) if changes else None,
        )
        self.store.add_decisions([decision])
        return candidate, decision

    def learn_that_updates_are_judged(self) -> None:
        """From then on, new jobs are not read again before their updates."""
        job_id = self.installation.submit(JOB)
        read_s = uptime_s()
        self.applier.apply([self.decide(self.candidates(job_id)[0], gpus_per_node=1, cpus_per_task=8)], read_s)

    def application(self, decision: Decision) -> Application:
        return self.store.applications(decision.id)[-1]

    def size(self, job_id: int) -> Allocation:
        """The size that a job asks for by now."""
        return size_of(self.slurm.read_back([job_id])[job_id])


@pytest.fixture
def engine(daemon_site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for path in daemon_site.directory.glob("store.sqlite*"):
        path.unlink()
    installation = install(
        daemon_site, grace_s=200, daemon={"poll_s": 1.0, "outcomes_every_s": 3600.0, "heartbeat_s": 100.0}
    )
    config = load_config(installation.config_path)
    write_intercept(config)
    for name, value in daemon_site.environment().items():
        monkeypatch.setenv(name, value)
    engine = Engine(installation, config)
    yield engine
    engine.store.close()
    installation.stop_all()
    (installation.runtime / "intercept").unlink()
    daemon_site.run(["scancel", "--user", USER])


def test_a_burst_is_updated_read_back_and_begun_in_batches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven jobs in batches of three; the last one's user lowers its time limit after the decision."""
    monkeypatch.setattr(job_updates, "BATCH", 3)
    jobs = [engine.installation.submit(JOB) for _ in range(7)]
    decided = [engine.decide(candidate, gpus_per_node=1, cpus_per_task=8) for candidate in engine.candidates(*jobs)]
    assert [decision.job_id for _, decision in decided] == jobs
    engine.site.run(["scontrol", "update", f"JobId={jobs[-1]}", "TimeLimit=5"], user=USER)
    calls: list[Sequence[str]] = []
    run, answered = engine.slurm._commands.run, engine.slurm._commands.answered

    def noted(*words: str) -> str:
        calls.append(words)
        return run(*words)

    def noted_together(words: Sequence[str], ask: Callable[[], str]) -> None:
        calls.append(words)
        answered(words, ask)

    monkeypatch.setattr(engine.slurm._commands, "run", noted)
    monkeypatch.setattr(engine.slurm._commands, "answered", noted_together)

    engine.applier.apply(decided)

    *good, changed = [engine.application(decision) for _, decision in decided]
    assert {application.state for application in good} == {"begun"}
    assert changed.state == "left"
    assert "time limit (s) 600 → 300" in changed.detail
    updates = [words for words in calls if any(word.startswith("CPUsPerTask=") for word in words)]
    assert ["NumNodes=1-1" in words for words in updates] == [True, False, False] * 2  # the first of each batch asks
    assert len([words for words in calls if "StartTime=now" in words]) == 3
    read_back = [words for words in calls if any(word.startswith("--jobs=") for word in words)]
    assert len(read_back) == 3  # before and after the first batch, which reads the second; the third has nothing
    engine.site.wait_for_states(jobs, {"COMPLETED"}, timeout_s=WITHIN_S)
    assert ["gres/gpu=1" in engine.installation.job(job_id)["TRES"] for job_id in jobs] == [True] * 6 + [False]
    assert engine.installation.job(jobs[-1])["TimeLimit"] == "00:05:00"


def test_what_users_change_between_decision_and_update_stays(engine: Engine) -> None:
    """Slurm answered 0 to each of them.

    On 23.11 and 24.11, the next update of any kind takes the second task away, so each is compared with a job that
    had the same change and then another update.
    """
    changes = (
        "TimeLimit=5",
        "MinMemoryNode=102400",
        "NumTasks=2",
        "MinCPUsNode=64",
        "CPUsPerTask=16",
        "TresPerNode=gres:gpu:3",
        "Nice=7",
    )
    jobs = [engine.installation.submit(JOB) for _ in changes]
    decided = [engine.decide(candidate, gpus_per_node=1, cpus_per_task=8) for candidate in engine.candidates(*jobs)]
    twins = [engine.installation.submit(JOB) for _ in changes]
    for job_id, change in zip(jobs + twins, changes * 2, strict=True):
        engine.site.run(["scontrol", "update", f"JobId={job_id}", change], user=USER)
    engine.applier.apply(decided)
    for (_, decision), twin, change in zip(decided, twins, changes, strict=True):
        application = engine.application(decision)
        assert application.state == "left", change
        assert "someone else changed it after the decision" in application.detail
        engine.site.run(["scontrol", "update", f"JobId={twin}", "Comment=another update"])
        assert engine.size(decision.job_id) == engine.size(twin), change


def test_what_users_change_of_new_jobs_stays_though_these_are_not_read_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rlalloc.lua refuses the updates. A nice of the user's is no reason: the update does not set it."""
    engine.learn_that_updates_are_judged()
    changes = ("TimeLimit=5", "MinMemoryNode=102400", "QOS=normal", "Nice=7")
    jobs = [engine.installation.submit(script) for script in (*([JOB] * len(changes)), RUNS)]
    read_s = uptime_s()
    decided = [engine.decide(candidate, gpus_per_node=1, cpus_per_task=8) for candidate in engine.candidates(*jobs)]
    for job_id, change in zip(jobs, changes, strict=False):
        engine.site.run(["scontrol", "update", f"JobId={job_id}", change], user=USER)
    engine.slurm.begin([jobs[-1]], 0)
    engine.site.wait_for_states([jobs[-1]], {"RUNNING"}, timeout_s=WITHIN_S)
    read: list[Sequence[int]] = []
    read_back = engine.slurm.read_back

    def noted(job_ids: Sequence[int]) -> dict[int, JobRecord]:
        read.append(job_ids)
        return read_back(job_ids)

    monkeypatch.setattr(engine.slurm, "read_back", noted)
    engine.applier.apply(decided, read_s, frozenset(jobs))
    assert [len(job_ids) for job_ids in read] == [len(jobs)]
    *changed, nice, started = [engine.application(decision) for _, decision in decided]
    assert {each.state for each in (*changed, started)} == {"left"}
    assert {each.detail for each in (*changed, started)} == {CHANGED_SINCE}
    assert nice.state == "begun"
    engine.site.wait_for_states(jobs, {"COMPLETED"}, timeout_s=WITHIN_S)
    for job_id, change in zip(jobs, changes, strict=False):
        job = engine.installation.job(job_id)
        assert ("gres/gpu=1" if change == "Nice=7" else "gres/gpu=4") in job["TRES"].split(","), change
    assert "gres/gpu=4" in engine.installation.job(jobs[-1])["TRES"].split(",")
    assert engine.installation.job(jobs[0])["TimeLimit"] == "00:05:00"
    assert engine.installation.job(jobs[-2])["Nice"] == "7"


def test_a_job_that_runs_by_now_is_not_updated(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update may take nodes and time from a job that runs."""
    job_id = engine.installation.submit(RUNS)
    decided = engine.decide(engine.candidates(job_id)[0], gpus_per_node=1, cpus_per_task=8)
    engine.slurm.begin([job_id], 0)
    engine.site.wait_for_states([job_id], {"RUNNING"}, timeout_s=WITHIN_S)
    sent: list[UpdatePlan] = []
    monkeypatch.setattr(engine.slurm, "update", sent.append)
    engine.applier.apply([decided])
    assert not sent
    application = engine.application(decided[1])
    assert (application.state, application.detail) == ("left", "it started as submitted")
    engine.applier.finish([msgspec.structs.replace(application, state="restoring", detail="it had no node")])
    application = engine.application(decided[1])
    assert (application.state, application.detail) == ("restored", "request restored: it had no node")


def _waiting_job(engine: Engine) -> int:
    """A job that waits for something else than us."""
    job_id = engine.installation.submit(JOB)
    engine.site.run(["scontrol", "hold", str(job_id)])
    engine.slurm.begin([job_id], 0)
    return job_id


def test_a_job_that_does_not_wait_for_us_is_updated_where_it_stands(engine: Engine) -> None:
    job_id = _waiting_job(engine)
    before = engine.installation.job(job_id)
    ((candidate, decision),) = [engine.decide(each, gpus_per_node=1) for each in engine.candidates(job_id)]
    assert not candidate.deferred_by_us
    engine.applier.apply([(candidate, decision)])
    application = engine.application(decision)
    assert (application.state, application.begins) == ("begun", False)
    assert engine.size(job_id) == application.intended
    after = engine.installation.job(job_id)
    for field in ("EligibleTime", "Priority", "Reason"):
        assert after[field] == before[field], field
    engine.site.run(["scontrol", "release", str(job_id)])
    engine.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=WITHIN_S)
    assert "gres/gpu=1" in engine.installation.job(job_id)["TRES"]


def test_nobody_begins_before_the_begin_time_of_its_own(engine: Engine) -> None:
    """One of before the end of the grace: resized, kept as submitted, and let go by a daemon that stops."""
    jobs = [engine.installation.submit(JOB, "--begin=now+100") for _ in range(3)]
    resized, kept, let_go = engine.candidates(*jobs)
    engine.applier.apply([engine.decide(resized, gpus_per_node=1), engine.decide(kept)])
    engine.applier.let_go([let_go.job])
    for candidate in (resized, kept, let_go):
        assert candidate.tag.user_begin < candidate.tag.begin
        assert (
            engine.slurm.read_back([candidate.job.job_id])[candidate.job.job_id].begin_s == candidate.tag.user_begin
        )


def test_an_update_in_place_that_fails_leaves_the_job_as_before_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resized twice; of the second update only the first words arrive."""
    job_id = _waiting_job(engine)
    engine.applier.apply([engine.decide(engine.candidates(job_id)[0], gpus_per_node=2, cpus_per_task=16)])
    as_before = engine.size(job_id)
    _cut_short(engine, monkeypatch, {job_id})
    second = engine.decide(engine.candidates(job_id)[0], gpus_per_node=1, cpus_per_task=8, mem_mib_per_node=20480)
    engine.applier.apply([second])
    application = engine.application(second[1])
    assert application.state == "restored"
    assert application.original == as_before
    assert engine.size(job_id) == as_before


def test_a_restoration_that_fails_three_times_stays_open_for_the_next_cycle(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = engine.installation.submit(JOB)
    decided = engine.decide(engine.candidates(job_id)[0], gpus_per_node=1, cpus_per_task=8)
    update = engine.slurm.update
    sent: list[UpdatePlan] = []

    def fail(plan: UpdatePlan) -> None:
        sent.append(plan)
        update(UpdatePlan(job_id=plan.job_id, fields=plan.fields[:5] if len(sent) == 1 else (("AdminComment", "x"),)))

    with monkeypatch.context() as failing:
        failing.setattr(engine.slurm, "update", fail)
        engine.applier.apply([decided])
    assert len(sent) == 1 + settlement.RESTORATIONS
    (application,) = engine.store.open_applications()
    assert application.state == "restoring"
    assert engine.installation.job(job_id)["Reason"] in ("BeginTime", "None")
    engine.applier.finish(engine.store.open_applications())
    assert engine.application(decided[1]).state == "restored"
    engine.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=WITHIN_S)
    assert "gres/gpu=4" in engine.installation.job(job_id)["TRES"]


@pytest.mark.parametrize(("unread_from", "state"), [(1, "left"), (2, "begun")], ids=["before", "after"])
def test_a_job_of_which_scontrol_does_not_show_the_request_is_neither_updated_nor_taken_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, unread_from: int, state: str
) -> None:
    """Before the update it is left as it is; after it, the next cycle verifies it."""
    job_id = engine.installation.submit(JOB)
    decided = engine.decide(engine.candidates(job_id)[0], gpus_per_node=1, cpus_per_task=8)
    read_back, readings = engine.slurm.read_back, itertools.count(1)

    def without_details(job_ids: Sequence[int]) -> dict[int, JobRecord]:
        found = read_back(job_ids)
        if next(readings) < unread_from:
            return found
        none = RequestFields()
        return {each: msgspec.structs.replace(job, fields=none, unread=True) for each, job in found.items()}

    with monkeypatch.context() as failing:
        failing.setattr(engine.slurm, "read_back", without_details)
        engine.applier.apply([decided])
    assert len(engine.store.open_applications()) == unread_from - 1
    engine.applier.finish(engine.store.open_applications())
    assert engine.application(decided[1]).state == state
    assert engine.size(job_id).gpus == {"left": 4, "begun": 1}[state]


def test_a_store_that_fails_after_the_updates_lets_no_job_start_half_changed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one update only the first words arrived: it is restored, the other is let go; the journal follows later."""
    half, whole = engine.candidates(engine.installation.submit(JOB), engine.installation.submit(JOB))
    decided = [engine.decide(each, gpus_per_node=1, cpus_per_task=8) for each in (half, whole)]
    _cut_short(engine, monkeypatch, {half.job.job_id})

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(engine.store, "set_applications", full)
        with pytest.raises(StoreError):
            engine.applier.apply(decided)
        assert engine.size(half.job.job_id).gpus_per_node != 1
        engine.applier.finish_without_store()
    assert (engine.size(half.job.job_id), engine.size(whole.job.job_id).gpus_per_node) == (decided[0][1].request, 1)
    assert find_deferred(engine.slurm.jobs(), time.time()) == ()
    assert not engine.applier.open_jobs
    assert len(engine.store.open_applications()) == 2
    engine.applier.finish(engine.store.open_applications())
    assert [engine.application(decision).state for _, decision in decided] == ["restored", "begun"]
    assert not engine.store.open_applications()


def test_jobs_of_all_forms_are_as_decided_or_as_submitted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each form three jobs: one as decided, one whose update is cut short and that is restored, one untouched."""
    jobs = {
        (form, part): engine.site.sbatch("#!/bin/sh\ntrue\n", user=USER, options=[*form.split(), "--begin=now+3600"])
        for form in FORMS
        for part in ("decided", "restored", "untouched")
    }
    ours = ",".join(str(job_id) for job_id in jobs.values())
    engine.site.run(
        ["scontrol", "update", f"JobId={ours}", "AdminComment=perhaps ours"]
    )  # only such are read in full
    records = {job.job_id: job for job in engine.slurm.jobs()}
    decided = []
    for (_, part), job_id in jobs.items():
        if part != "untouched":
            job = records[job_id]
            tag = Tag(mode="enforce", rule="llm", job_class="train", begin=job.begin_s, user_begin=0)
            half = max(1, size_of(job).gpus_per_node // 2)
            candidate = Candidate(job, tag, "enforce")
            decided.append(engine.decide(candidate, gpus_per_node=half, mem_mib_per_node=16 * 1024))
    _cut_short(engine, monkeypatch, {job_id for (_, part), job_id in jobs.items() if part == "restored"})

    engine.applier.apply(decided)

    for _, decision in decided:
        application = engine.application(decision)
        form, part = next(key for key, job_id in jobs.items() if job_id == decision.job_id)
        assert (form, application.state) == (form, "begun" if part == "decided" else "restored"), application.detail
    engine.slurm.begin(list(jobs.values()), 0)
    engine.site.wait_for_states(jobs.values(), {"COMPLETED"}, timeout_s=WITHIN_S)
    had = {key: parse_tres(engine.installation.job(job_id)["TRES"]) for key, job_id in jobs.items()}
    for form in FORMS:
        # Of -N1-2 Slurm makes one node or two, as they are free.
        assert _on_each_node(had[form, "restored"]) == _on_each_node(had[form, "untouched"]), form
    for _, decision in decided:
        form, part = next(key for key, job_id in jobs.items() if job_id == decision.job_id)
        if part == "decided" and decision.allocation is not None:
            tres = had[form, part]
            found = (tres["node"], tres["cpu"], tres["gres/gpu"], tres["mem"])
            size = decision.allocation
            assert (form, *found) == (form, size.nodes, size.cpus, size.gpus, size.mem_mib)


def _on_each_node(tres: Mapping[str, float]) -> dict[str, float]:
    return {name: count / tres["node"] for name, count in tres.items()}


def _cut_short(engine: Engine, monkeypatch: pytest.MonkeyPatch, job_ids: set[int]) -> None:
    """Let only the first words of the next update of each of these jobs arrive."""
    update = engine.slurm.update

    def cut(plan: UpdatePlan) -> None:
        if plan.job_id in job_ids:
            job_ids.remove(plan.job_id)
            first = itertools.takewhile(lambda each: each[0] != "TresPerNode", plan.fields)
            plan = UpdatePlan(job_id=plan.job_id, fields=tuple(first))
        update(plan)

    monkeypatch.setattr(engine.slurm, "update", cut)


def test_a_job_that_was_decided_and_not_let_go_is_let_go_by_the_next_daemon(engine: Engine) -> None:
    """Killed between the decision to leave a job as submitted and its release."""
    job_id = engine.installation.submit(JOB)
    ((candidate, _),) = [engine.decide(each) for each in engine.candidates(job_id)]
    assert candidate.deferred_by_us
    engine.installation.start("rlallocd")
    engine.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=WITHIN_S)
    started = datetime.fromisoformat(engine.installation.job(job_id)["StartTime"])
    assert started.timestamp() < candidate.tag.begin
    engine.installation.stop("rlallocd", signal.SIGTERM)
