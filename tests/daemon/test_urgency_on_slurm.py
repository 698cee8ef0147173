"""Urgency on a real slurmctld: who goes first under both priority plugins, and how a job gets its place back."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from rlalloc.store import Decision
from rlalloc.urgency import STEPS, nice_left
from rlalloc_testbed import USER, Installation, install, start_site
from slurm_testbed import Partition, Site, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("daemon/test_urgency_on_slurm")]  # asks for sites by name

HOLDER = "llm-bob"
"""Whose job holds all nodes until it is cancelled: no LLM job, and of no concern to rlalloc."""
RIGID = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=8 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G
: torchrun train.py
"""
MOLDABLE = RIGID + "#RLALLOC gpus=1-4\n"
LONG, SHORT, OWN_NICE = "--time=5:00:00", "--time=5", 5
MULTIFACTOR_ONLY = ("WeightAge", "MaxAge", "WeightFairshare", "WeightJobSize", "DecayHalfLife", "CalcPeriod")
BASIC = {f"Priority{key}": None for key in MULTIFACTOR_ONLY} | {"PriorityType": "priority/basic"}
NODES = {"basic_site": 1, "daemon_site": 2}
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def basic_site() -> Iterator[Site]:
    partitions = Partition(), Partition("other", default=False)
    with start_site(f"basic-{os.getpid()}", nodes=1, partitions=partitions, extra_slurm_conf=BASIC) as site:
        yield site


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Installation]]:
    """Start rlalloc with the given rules of urgency, on a site of the priority plugin that is named."""
    started: list[Installation] = []

    def begin(site: str, **rules: float) -> Installation:
        installation = install(
            request.getfixturevalue(site),
            grace_s=120,
            urgency={"nice_band": 100, **rules},
            redecision={"every_s": 0.5, "max_updates": 0},
        )
        for path in installation.site.directory.glob("store.sqlite*"):
            path.unlink()
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        started.append(installation)
        nodes = NODES[site]
        whole = (f"--nodes={nodes}", "--exclusive", "--mem=1000")
        holder = installation.site.sbatch("#!/bin/sh\nexec sleep 3600\n", user=HOLDER, options=whole)
        installation.site.wait_for_states([holder], {"RUNNING"}, timeout_s=PATIENCE_S)
        return installation

    yield begin
    for installation in started:
        installation.stop_all()
        (installation.runtime / "intercept").unlink(missing_ok=True)
        for user in (USER, HOLDER):
            installation.site.run(["scancel", "--user", user])
        _wait_for_empty_queue(installation.site)


def _wait_for_empty_queue(site: Site) -> None:
    wait_until(
        lambda: not site.run(["squeue", "--noheader"]).strip(), what="the queue is empty", timeout_s=PATIENCE_S
    )


@pytest.mark.parametrize("site", ["basic_site", "daemon_site"])
def test_the_shorter_goes_first_and_all_is_given_back_at_the_end(
    start: Callable[..., Installation], site: str
) -> None:
    rlalloc = start(site, patience=1000.0)
    rlalloc.send("rlallocd", signal.SIGSTOP)
    long = rlalloc.submit(RIGID, LONG, f"--nice={OWN_NICE}")
    moldable, short = rlalloc.submit(MOLDABLE, LONG), rlalloc.submit(RIGID, SHORT)
    priorities = {job_id: _priority(rlalloc, job_id) for job_id in (long, moldable, short)}
    rlalloc.send("rlallocd", signal.SIGCONT)
    of_long, of_moldable, of_short = (_applied(rlalloc, job_id) for job_id in (long, moldable, short))

    assert of_long.allocation == of_long.request  # it gets the nice only
    assert of_moldable.allocation != of_moldable.request
    assert 0 < (of_short.nice or 0) < (of_long.nice or 0) <= 100
    assert _nice(rlalloc, long) == OWN_NICE + (of_long.nice or 0)
    assert _nice(rlalloc, moldable) == of_moldable.nice
    assert _nice(rlalloc, short) == of_short.nice
    assert _priority(rlalloc, short) > max(_priority(rlalloc, long), _priority(rlalloc, moldable))
    told = rlalloc.explain(long)[0]
    assert told["decision"]["nice"] == of_long.nice
    assert (told["applications"][0]["own_nice"], told["applications"][0]["added_nice"]) == (OWN_NICE, of_long.nice)

    _as_user(rlalloc, moldable, "Nice=1")
    assert rlalloc.stop("rlallocd") == 0
    assert [_nice(rlalloc, job_id) for job_id in (long, moldable, short)] == [OWN_NICE, 1, 0]
    if site == "basic_site":  # with multifactor age has moved them
        assert [_priority(rlalloc, job_id) for job_id in (long, short)] == [priorities[long], priorities[short]]


def test_who_only_waits_longer_may_move_to_another_partition(start: Callable[..., Installation]) -> None:
    """Slurm checks the limits there: no part of such a job's size counts as set by an administrator."""
    rlalloc = start("basic_site", patience=1000.0)
    as_submitted, resized = rlalloc.submit(RIGID, LONG), rlalloc.submit(MOLDABLE, LONG)
    assert _applied(rlalloc, as_submitted).nice
    assert _applied(rlalloc, resized).nice
    for job_id, partition in ((as_submitted, "other"), (resized, "gpu")):
        rlalloc.site.try_run(["scontrol", "update", f"JobId={job_id}", "Partition=other"], user=USER)
        assert rlalloc.job(job_id)["Partition"] == partition


def test_what_was_added_falls_while_a_job_waits(start: Callable[..., Installation]) -> None:
    rlalloc = start("daemon_site", patience=1000.0, starvation_limit_s=8.0)
    job_id = rlalloc.submit(RIGID, LONG, f"--nice={OWN_NICE}")
    decision = _applied(rlalloc, job_id)
    added = decision.nice or 0
    assert added > 0
    assert decision.patience_s == 8.0
    seen = [_nice(rlalloc, job_id)]

    def is_its_own() -> bool:
        seen.append(_nice(rlalloc, job_id))
        return seen[-1] == OWN_NICE

    wait_until(is_its_own, what="nothing is left of it", timeout_s=PATIENCE_S)
    assert seen == sorted(seen, reverse=True)
    assert set(seen) <= {OWN_NICE + nice_left(added, steps) for steps in range(STEPS + 1)}
    assert rlalloc.log("rlallocd").count(f"job {job_id}: nice ") <= STEPS
    assert [each["state"] for each in rlalloc.explain(job_id)[0]["applications"]] == ["begun"]


def test_by_default_order_is_left_alone(start: Callable[..., Installation]) -> None:
    rlalloc = start("daemon_site", nice_band=0)
    job_id = rlalloc.submit(RIGID, LONG)
    decision = rlalloc.decision(job_id)
    assert decision.shares is not None
    assert decision.shares.urgency < 0.5
    assert decision.nice is None
    wait_until(lambda: rlalloc.job(job_id)["Reason"] in ("Resources", "Priority"), what="it was let go")
    assert _nice(rlalloc, job_id) == 0
    assert rlalloc.application(decision) is None


def _applied(rlalloc: Installation, job_id: int) -> Decision:
    decision = rlalloc.decision(job_id)

    def begun() -> bool:
        application = rlalloc.application(decision)
        return application is not None and application.state == "begun"

    wait_until(begun, what=f"the decision for job {job_id} is applied", timeout_s=PATIENCE_S)
    return decision


def _nice(rlalloc: Installation, job_id: int) -> int:
    return int(rlalloc.job(job_id)["Nice"])


def _priority(rlalloc: Installation, job_id: int) -> int:
    return int(rlalloc.job(job_id)["Priority"])


def _as_user(rlalloc: Installation, job_id: int, change: str) -> None:
    rlalloc.site.run(["runuser", "-u", USER, "--", "scontrol", "update", f"JobId={job_id}", change])
