"""A site's experience, made by the simulator: what rlallocd would have stored."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from rlalloc.allocation import shares_of
from rlalloc.config import ObjectiveSection
from rlalloc.heuristics import as_requested, price_ef
from rlalloc.job import Allocation, JobView, Shares
from rlalloc.observation import SCHEMA_ID, EncodedQuestion, encode
from rlalloc.store import Decision, Experience, Outcome, Store
from rlalloc.view import ClusterView, expected_run_time_s
from rlalloc_simulator.driving import drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.engine.engine_records import STATE_NAMES
from rlalloc_simulator.site_from_workload import Workload, site_of, submitted_from
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_job import End, NodeGroup
from rlalloc_simulator.workloads.workload_model import load_model
from rlallocd.outcomes.outcome_costs import costs_of_run, reward_of
from rlallocd.slurm import AccountingRecord
from tests.plugin_failures import no_plugin_fails

NODES = NodeGroup("node", count=4, gpus=8, cpus=64, mem_mib=512_000)


def site_workload(seed: int, jobs: int = 60) -> Workload:
    """Jobs that all complete, on four nodes."""
    settings = GeneratorSettings(NODES, hours=24.0, load=1.5, seed=seed)
    made = [msgspec.structs.replace(job, end=End()) for job in generate(load_model("philly"), settings)][:jobs]
    site = site_of(settings.description, made)
    return Workload(site, tuple(submitted_from(made, site)))


def experience_of(workload: Workload) -> list[Experience]:
    """Run a workload under price-EF and describe it as the store does; every second job is in shadow mode's hands."""
    decided: dict[int, _Decided] = {}
    asked = [0]

    def remember(waiting: list[int]) -> None:
        asked[0] = waiting[0]

    def policy(job: JobView, view: ClusterView) -> Shares:
        decided[asked[0]] = _Decided(encode(job, view), view)
        return price_ef(job, view) if asked[0] % 2 else as_requested(job, view)

    simulator = Simulator(workload.site, table_of(workload.jobs, workload.site))
    driven = drive(simulator, workload.jobs, policy, before=remember)
    return [
        _experience(workload, number, driven.outcomes[number], decided[number], driven.sizes[number])
        for number in range(len(workload.jobs))
    ]


@dataclass(frozen=True, eq=False)
class _Decided:
    question: EncodedQuestion
    view: ClusterView


def stored(experiences: list[Experience], path: Path) -> Store:
    store = Store(f"sqlite:///{path}")
    store.add_decisions([experience.decision for experience in experiences])
    store.add_outcomes([experience.outcome for experience in experiences])
    return store


def _experience(workload: Workload, number: int, outcome: np.void, decided: _Decided, size: np.ndarray) -> Experience:
    job = workload.jobs[number]
    nodes, gpus, cpus, mem_mib, limit_s = size[:5].tolist()
    allocation = Allocation(
        nodes=nodes,
        gpus_per_node=gpus,
        tasks_per_node=1,
        cpus_per_task=cpus,
        mem_mib_per_node=mem_mib,
        time_limit_s=limit_s,
    )
    decision = Decision(
        id=f"d{number}",
        job_id=number + 1,
        submitted_s=job.submit_s,
        decided_s=job.submit_s,
        user=workload.site.users[job.user].name,
        account="llm",
        partition="gpu",
        job_name=f"job{number % 10}",
        job_class=job.job_class,
        rule="llm",
        mode="enforce",
        reason="",
        request=job.request,
        bounds=job.bounds,
        observation_schema=SCHEMA_ID,
        observation=decided.question.features.tobytes(),
        alternatives=dict(decided.question.alternatives),
        queued=int(outcome["queued"]),
        dominant_share_requested=decided.view.dominant_share(allocation),
        dominant_share_allocated=decided.view.dominant_share(allocation),
        reference_s=expected_run_time_s(job, job.request),
        shares=shares_of(allocation, job.bounds),
        log_probability=0.0,
        policy_version="shipped-3",
        allocation=allocation,
    )
    record = AccountingRecord(
        job_id=number + 1,
        part="",
        state=STATE_NAMES[outcome["first_state"]],
        exit_code="0:0",
        submitted_s=int(job.submit_s),
        eligible_s=int(job.submit_s),
        started_s=round(outcome["first_start_s"]),
        ended_s=round(outcome["first_end_s"]),
        nodes=allocation.nodes,
        cpus=allocation.cpus,
        gpus=allocation.gpus,
        mem_mib=float(allocation.mem_mib),
        max_rss_mib=None,
        consumed_energy_j=None,
    )
    costs = costs_of_run(decision, record, ObjectiveSection(), no_plugin_fails, applied=True)
    assert costs is not None
    executed = Outcome(
        decision_id=decision.id,
        state=record.state,
        exit_code="0:0",
        eligible_s=job.submit_s,
        started_s=float(outcome["first_start_s"]),
        ended_s=float(outcome["first_end_s"]),
        nodes=allocation.nodes,
        gpus=allocation.gpus,
        cpus=allocation.cpus,
        mem_mib=float(allocation.mem_mib),
        max_rss_mib=None,
        consumed_energy_j=None,
        executed_shares=shares_of(allocation, job.bounds),
        reward=reward_of(costs, ObjectiveSection()),
        costs=costs,
    )
    return Experience(decision=decision, outcome=executed)


def changed(experience: Experience, **outcome: object) -> Experience:
    return Experience(decision=experience.decision, outcome=msgspec.structs.replace(experience.outcome, **outcome))
