"""`rlalloc off JOBID` on a real slurmctld: the request comes back, whatever was decided, and to nobody else."""

import msgspec
import pytest

from rlalloc.errors import StoreError
from rlalloc.store.job_story import story_of
from rlalloc.user_messages import UserServiceError
from rlalloc_cli.explain_shortly import print_shortly
from rlalloc_testbed import USER
from rlallocd.slurm import JobRecord, SlurmUnavailable, UpdatePlan, UpdateRefused
from rlallocd.submissions.candidates import find_candidates, find_redecision_candidates
from rlallocd.submissions.decided_submissions import DecidedSubmissions
from rlallocd.submissions.job_tag import read_tag, with_skip
from rlallocd.submissions.request_sizes import Skipped, check_form, size_of
from rlallocd.transactions.left_alone import LeftAlone, OffRequest
from slurm_testbed import wait_until
from tests.daemon.test_apply_transactions import JOB, Engine, _waiting_job, engine

__all__ = ["engine"]
pytestmark = pytest.mark.slurm
STAYS = f"{JOB}sleep 300\n"


def left_alone(engine: Engine, request: OffRequest) -> tuple[str, dict[int, JobRecord]]:
    """What the loop answers in its next cycle, and the jobs as it then goes on with them."""
    part = LeftAlone(engine.slurm, engine.store, engine.applier)
    after: dict[int, JobRecord] = {}
    answer = part.requests.ask(
        request, 1, lambda: after.update({job.job_id: job for job in part.carry_out(engine.slurm.jobs())})
    )
    return answer, after


def own(job_id: int) -> OffRequest:
    return OffRequest(job_id, USER, 1234, any_job=False, reason="it measures speed")


def _fails(_: object) -> None:
    raise SlurmUnavailable("it is down")


def explained(engine: Engine, job_id: int, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    print_shortly(story_of(engine.store, job_id))
    return " ".join(capsys.readouterr().out.split())


def test_a_job_that_was_resized_twice_has_its_first_request_again(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its time limit; the journal says who asked, and no daemon decides it again."""
    job_id = _waiting_job(engine)
    request = engine.size(job_id)
    for changes in ({"gpus_per_node": 2, "time_limit_s": 1200}, {"gpus_per_node": 1, "time_limit_s": 2400}):
        engine.applier.apply([engine.decide(engine.candidates(job_id)[0], **changes)])
        assert engine.size(job_id).gpus_per_node == changes["gpus_per_node"]
    answer, after = left_alone(engine, own(job_id))
    assert "it has its request back: 1 node" in answer
    assert engine.size(job_id) == request
    ((_, history),) = engine.store.histories({(job_id, after[job_id].submitted_s)}).items()
    assert [each.state for each in history.applications] == ["restored"] * 3
    assert all(f"{USER} (uid 1234) asked" in each.detail for each in history.applications)
    assert (history.size, history.applied) == (request, False)
    told = explained(engine, job_id, capsys)
    assert " given 1 node" not in told
    assert f"{USER} (uid 1234) asked to leave it alone: it measures speed" in told.partition("left alone 20")[2]
    assert f"has now its request: {request.describe()}" in told
    now = engine.slurm.read_back([job_id])[job_id]
    tag = read_tag(now.admin_comment)
    assert tag is not None
    assert tag.skip == "off"
    assert read_tag(after[job_id].admin_comment) == tag
    waiting = msgspec.structs.replace(now, reason="Resources")
    assert find_redecision_candidates([waiting], engine.config, 0.0) == ()
    assert left_alone(engine, own(job_id))[0] == f"job {job_id} is left alone already"
    engine.site.run(["scontrol", "release", str(job_id)])
    engine.site.wait_for_states([job_id], {"COMPLETED"}, timeout_s=300)
    assert "gres/gpu=4" in engine.installation.job(job_id)["TRES"]


def test_a_job_that_does_not_say_how_many_nodes(engine: Engine) -> None:
    """Slurmctld guesses a number of nodes for the restored job, and the restoration ends nevertheless."""
    script = JOB.replace("--nodes=1 ", "").replace("--ntasks-per-node=1 ", "").replace("#RLALLOC gpus=1-2\n", "")
    job_id = engine.installation.submit(script, "--hold")
    engine.applier.apply([engine.decide(engine.candidates(job_id)[0], gpus_per_node=2)])
    assert engine.size(job_id).gpus == 2
    left_alone(engine, own(job_id))
    assert engine.store.open_applications() == ()
    assert engine.slurm.read_back([job_id])[job_id].fields.gpus_per_node == 4


def test_a_job_that_is_not_decided_yet_is_skipped_by_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision, which comes in the same cycle, says who asked."""
    job_id = engine.installation.submit(JOB)
    part = LeftAlone(engine.slurm, engine.store, engine.applier)
    monkeypatch.setattr("tests.daemon.test_left_alone.LeftAlone", lambda *_: part)
    answer, after = left_alone(engine, own(job_id))
    assert answer == f"job {job_id} is left alone from now on; it runs as submitted"
    (candidate,) = find_candidates([after[job_id]], engine.config, set())
    assert candidate.deferred_by_us
    with pytest.raises(Skipped, match="to be left alone"):
        check_form(candidate.job, candidate.tag.skip)
    _, decision = engine.decide(candidate)
    ((_, skipped),) = part.naming_who(
        [(candidate, msgspec.structs.replace(decision, reason="off: to be left alone"))]
    )
    assert skipped.reason == f"off: {USER} (uid 1234) asked to leave it alone: it measures speed"


def test_a_size_that_somebody_else_set_since_stays(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    job_id = _waiting_job(engine)
    engine.applier.apply([engine.decide(engine.candidates(job_id)[0], gpus_per_node=2)])
    engine.site.run(["scontrol", "update", f"JobId={job_id}", "MinMemoryNode=10240"], user=USER)
    changed = engine.size(job_id)
    answer, _ = left_alone(engine, own(job_id))
    assert answer == f"job {job_id} is left alone from now on; it keeps the size that it has"
    assert engine.size(job_id) == changed
    assert "has now the size that somebody else has set since" in explained(engine, job_id, capsys)


def test_a_job_whose_update_is_under_way_is_not_left_in_our_size(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm failed between an update and its reading: who asks then has to ask again, and gets the request."""
    job_id = _waiting_job(engine)
    request = engine.size(job_id)
    decided = [engine.decide(engine.candidates(job_id)[0], gpus_per_node=2)]
    with monkeypatch.context() as patched:
        update = engine.slurm.update

        def fails_from_then_on(plan: UpdatePlan) -> None:
            update(plan)
            patched.setattr(engine.slurm, "read_back", _fails)

        patched.setattr(engine.slurm, "update", fails_from_then_on)
        with pytest.raises(SlurmUnavailable):
            engine.applier.apply(decided)
    assert engine.size(job_id).gpus_per_node == 2
    with pytest.raises(UserServiceError, match="try again in a few seconds"):
        left_alone(engine, own(job_id))
    tag = read_tag(engine.slurm.read_back([job_id])[job_id].admin_comment)
    assert tag is not None
    assert tag.skip != "off"
    engine.applier.finish(engine.store.open_applications())
    assert "it has its request back" in left_alone(engine, own(job_id))[0]
    assert engine.size(job_id) == request


def test_a_request_that_is_not_back_yet_is_not_said_to_be(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to the user nor in the journal: what was decided holds until the request has been read back."""
    job_id = _waiting_job(engine)
    request = engine.size(job_id)
    for changes in ({"gpus_per_node": 2}, {"gpus_per_node": 1}):
        engine.applier.apply([engine.decide(engine.candidates(job_id)[0], **changes)])

    def states() -> list[str]:
        (history,) = engine.store.histories({(job_id, engine.slurm.read_back([job_id])[job_id].submitted_s)}).values()
        return [each.state for each in history.applications]

    with monkeypatch.context() as failing:
        update = engine.slurm.update

        def only_comments(plan: UpdatePlan) -> None:
            if len(plan.fields) > 1:
                raise UpdateRefused("not now")
            update(plan)

        failing.setattr(engine.slurm, "update", only_comments)
        assert "Slurm has not given its request back so far" in left_alone(engine, own(job_id))[0]
    assert states() == ["begun", "begun", "restoring"]
    assert engine.size(job_id).gpus_per_node == 1
    engine.applier.finish(engine.store.open_applications())
    assert states() == ["restored"] * 3
    assert engine.size(job_id) == request


def test_who_asks_again_after_a_failure_gets_the_request(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store failed once the tag had said that the job is left alone."""
    job_id = _waiting_job(engine)
    request = engine.size(job_id)
    engine.applier.apply([engine.decide(engine.candidates(job_id)[0], gpus_per_node=1)])

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(engine.store, "journal", full)
        with pytest.raises(StoreError):
            left_alone(engine, own(job_id))
    assert engine.size(job_id) != request
    assert "it has its request back" in left_alone(engine, own(job_id))[0]
    assert engine.size(job_id) == request
    assert left_alone(engine, own(job_id))[0] == f"job {job_id} is left alone already"


def test_requeued_tasks_and_the_rest_of_their_array(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each requeued task has its own record, even in a row of squeue with others. A running task stays as it is."""
    array = engine.installation.submit(STAYS, "--array=0-4%3")
    request = engine.size(array)
    engine.applier.apply([engine.decide(engine.candidates(array)[0], gpus_per_node=1)])
    decided = DecidedSubmissions({(array, job.submitted_s): job.user for job in engine.slurm.jobs()})

    def tasks() -> list[JobRecord]:
        return [job for job in decided.as_first_submitted(engine.slurm.jobs()) if job.base_id == array]

    def waiting() -> dict[str, JobRecord]:
        return {job.array_tasks: job for job in tasks() if job.pending}

    wait_until(lambda: sum(job.running for job in tasks()) == 3, what="three tasks run", timeout_s=60)
    engine.site.run(["scontrol", "hold", str(array)])
    engine.site.run(["scontrol", "requeuehold", f"{array}_0,{array}_1"])
    wait_until(lambda: waiting().keys() == {"0", "1", "3-4"}, what="two tasks wait by themselves", timeout_s=60)
    assert engine.slurm.read_back([job.job_id for job in tasks()]).keys() == {job.job_id for job in tasks()}
    part = LeftAlone(engine.slurm, engine.store, engine.applier)
    after: dict[int, JobRecord] = {}
    update, refused = engine.slurm.update, waiting()["0"].job_id

    def refuses_one(plan: UpdatePlan) -> None:
        if plan.job_id == refused:
            raise UpdateRefused("not this one")
        update(plan)

    def carry_out() -> None:
        after.update({job.job_id: job for job in part.carry_out(tasks())})

    with monkeypatch.context() as refusing:
        refusing.setattr(engine.slurm, "update", refuses_one)
        said = part.requests.ask(own(array), 1, carry_out)
    assert "it has its request back" in said
    assert said.endswith("; not this one")
    answer = part.requests.ask(own(array), 1, carry_out)
    assert answer.count("it has its request back") == 1
    assert waiting().keys() == {"0", "1", "3-4"}
    for name, job in waiting().items():
        assert size_of(job) == request, name
        assert job.waiting_tasks == (2 if name == "3-4" else 1)
        for record in (job, after[job.job_id]):
            tag = read_tag(record.admin_comment)
            assert tag is not None
            assert tag.skip == "off"
    (runs,) = (job for job in tasks() if job.running)
    tag = read_tag(runs.admin_comment)
    assert tag is not None
    assert (runs.gpus, tag.skip) == (1, "")
    (history,) = engine.store.histories({(array, runs.submitted_s)}).values()
    assert len(history.decisions) == 3  # the decision, and one for each time


def test_nobody_elses_job_and_none_that_runs(engine: Engine) -> None:
    """Root may have any pending job left alone; the refusal does not say whether there is such a job."""
    job_id = _waiting_job(engine)
    running = engine.site.sbatch("#!/bin/sh\nsleep 300\n", user=USER)
    engine.site.wait_for_states([running], {"RUNNING"})
    for request in (OffRequest(job_id, "llm-mallory", 9, any_job=False), own(999_999)):
        with pytest.raises(UserServiceError, match="of yours is in the queue"):
            left_alone(engine, request)
    with pytest.raises(UserServiceError, match="no job 999999 is in the queue"):
        left_alone(engine, OffRequest(999_999, "root", 0, any_job=True))
    with pytest.raises(UserServiceError, match="has started"):
        left_alone(engine, own(running))
    assert "left alone from now on" in left_alone(engine, OffRequest(job_id, "root", 0, any_job=True))[0]
    no_llm = engine.site.sbatch("#!/bin/sh\ntrue\n", user=USER, options=["--hold"])
    assert "does not cover" in left_alone(engine, own(no_llm))[0]


def test_without_slurmctld_the_user_hears_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = _waiting_job(engine)

    part = LeftAlone(engine.slurm, engine.store, engine.applier)
    monkeypatch.setattr(engine.slurm, "update", _fails)

    def cycle() -> None:
        with pytest.raises(SlurmUnavailable):
            part.carry_out(engine.slurm.jobs())

    with pytest.raises(UserServiceError, match="try again later"):
        part.requests.ask(own(job_id), 1, cycle)
    with pytest.raises(UserServiceError, match="try again later"):  # no cycle comes
        part.requests.ask(own(job_id), 0.01, lambda: None)
    assert part.requests.take() == []


@pytest.mark.parametrize(
    ("comment", "tagged"),
    [
        ("site rlalloc:v=1;mode=enforce;ask= rlalloc-decision:x", "site rlalloc:v=1;mode=enforce;ask=;skip=off"),
        ("rlalloc:v=1;skip=time-min;mode=enforce", "rlalloc:v=1;mode=enforce;skip=off"),
    ],
)
def test_the_tag_names_the_reason_once(comment: str, tagged: str) -> None:
    assert with_skip(comment, "off").startswith(tagged)
    assert with_skip(with_skip(comment, "off"), "off") == with_skip(comment, "off")
