"""Phase 4: the new policy's first jobs; then the agent is killed, then the daemon, while users go on submitting."""

from collections.abc import Mapping

import msgspec
from rich.table import Table

from rlalloc.store import Decision
from rlalloc_demo import checks
from rlalloc_demo.checks import Check
from rlalloc_demo.demo_configuration import GRACE_S
from rlalloc_demo.demo_measures import Ran, joined
from rlalloc_demo.demo_site import Place
from rlalloc_demo.demo_tables import fault_table
from rlalloc_demo.demo_workload import Submission, Submitted, Workloads
from rlalloc_demo.follow import accounted, begun, decisions_of, ended, follow, jobs_of, wait_for
from rlalloc_demo.screen import Screen

SLACK_S = 1.5
"""Slurm's times are whole seconds."""


class Faults(msgspec.Struct, frozen=True):
    """The jobs of this phase."""

    tables: list[Table]
    checks: list[Check]
    decisions: list[Decision]


def show_faults(place: Place, screen: Screen, workloads: Workloads, served: str) -> Faults:
    """Run the phase; returns its report and its checks."""
    screen.say(f"       jobs for policy {served}")
    new = follow(place, screen, workloads.after_training, begun)

    place.agent.kill()
    screen.say("       agent killed (kill -9); jobs come in")
    agentless = follow(place, screen, workloads.without_agent, begun)
    place.agent.start()  # waited for when the daemon is back: meanwhile decided jobs would end on a busy machine
    screen.say("       agent started again")

    open_before = _open_jobs(place, [*new, *agentless])
    place.daemon.kill()
    screen.say(
        f"       daemon killed (kill -9) with {len(open_before)} decided jobs not ended; jobs come in, deferred"
    )
    daemonless = follow(place, screen, workloads.without_daemon, begun)
    deferred = {job.job_id for job in jobs_of(place, daemonless) if "mode=enforce" in job.admin_comment}
    place.start_daemon()
    place.wait_for_agent()
    screen.say("       daemon started again; jobs come in")
    later = follow(place, screen, workloads.afterwards, ended)

    parts = {"new": new, "agentless": agentless, "daemonless": daemonless, "later": later}
    everything = [job for part in parts.values() for job in part]
    wait_until_ended(place, screen, everything)
    records = accounted(place, screen, everything)
    decisions = decisions_of(place, everything)
    ran = {name: joined(part, records) for name, part in parts.items()}
    tables = [
        fault_table("after training", ran["new"], decisions),
        fault_table("while the agent was dead", ran["agentless"], decisions),
        fault_table("while the daemon was dead", ran["daemonless"], decisions),
        fault_table("when both were back", ran["later"], decisions),
    ]
    found = [
        checks.completed("faults", [job for part in ran.values() for job in part], place),
        *_policy_checks(ran, decisions, served),
        *_agent_checks(ran["agentless"], decisions),
        *_daemon_checks(ran["daemonless"], decisions, deferred),
        _picked_up(place, open_before),
    ]
    return Faults(tables, found, list(decisions.values()))


def wait_until_ended(place: Place, screen: Screen, submitted: list[Submitted]) -> None:
    """Wait until jobs that were submitted earlier have ended."""
    submission = Submission(place.site, ())
    submission.submitted, submission.total = submitted, len(submitted)
    wait_for(place, screen, submission, ended)


def _open_jobs(place: Place, submitted: list[Submitted]) -> list[Decision]:
    """Decisions whose job has no outcome in the store so far."""
    decisions = decisions_of(place, submitted).values()
    ended = place.store.outcomes([decision.id for decision in decisions])
    return [decision for decision in decisions if decision.id not in ended]


def _policy_checks(ran: Mapping[str, list[Ran]], decisions: Mapping[int, Decision], served: str) -> list[Check]:
    by_policy = [*ran["new"], *ran["later"]]
    return [
        checks.all_decided("after training, and after the faults", by_policy, decisions),
        checks.each(
            f"these were decided by {served}, the policy in place",
            by_policy,
            lambda job: (
                decisions[job.record.job_id].policy_version == served if job.record.job_id in decisions else False
            ),
        ),
    ]


def _agent_checks(jobs: list[Ran], decisions: Mapping[int, Decision]) -> list[Check]:
    llm = [job for job in jobs if job.submitted.entry.kind != "ordinary"]

    def went_on(job: Ran) -> bool:
        decision = decisions.get(job.record.job_id)
        return (
            decision is not None
            and "agent" in decision.reason
            and (job.record.gpus, job.record.cpus) == (decision.request.gpus, decision.request.cpus)
            and job.wait_s < GRACE_S
        )

    return [
        checks.each("without the agent, LLM jobs went on as submitted, before their grace was over", llm, went_on)
    ]


def _daemon_checks(jobs: list[Ran], decisions: Mapping[int, Decision], deferred: set[int]) -> list[Check]:
    def began_by_itself(job: Ran) -> bool:
        return (
            job.record.job_id in deferred and job.record.job_id not in decisions and job.wait_s >= GRACE_S - SLACK_S
        )

    return [
        checks.each("without the daemon, deferred jobs began by themselves after the grace", jobs, began_by_itself)
    ]


def _picked_up(place: Place, open_before: list[Decision]) -> Check:
    ended = place.store.outcomes([decision.id for decision in open_before])
    lost = [f"job {decision.job_id}" for decision in open_before if decision.id not in ended]
    lost += [f"application {application.id}" for application in place.store.open_applications()]
    detail = f"outcomes of jobs {', '.join(str(decision.job_id) for decision in open_before) or '-'}"
    check = checks.none_of("the daemon picked up where it was", lost, detail)
    return check if open_before else Check(check.statement, holds=False, detail="no decided job was running then")
