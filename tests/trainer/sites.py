"""A site's experience, made by the simulator: what rlallocd would have stored."""

from pathlib import Path

import msgspec
import numpy as np

from rlalloc.allocation import shares_of
from rlalloc.bounds import NodeShape
from rlalloc.heuristics import HEURISTICS
from rlalloc.job import Allocation
from rlalloc.observation import SCHEMA_VERSION, encode
from rlalloc.store import Decision, Experience, Outcome, Store
from rlalloc_trainer.simulator import Cluster, JobRecord, Simulation, by_policy
from rlalloc_trainer.workload import Workload, generate

CLUSTER = Cluster(4, NodeShape(gpus=8, cpus=64, mem_mib=512_000))
DEMO_LIKE = Workload(cluster=CLUSTER, jobs=60, load=1.2, median_run_s=30.0, run_log_deviation=0.8)


def experience_of(workload: Workload, seed: int, policy: str = "price-ef") -> list[Experience]:
    """Run a stream and describe it as the store does; every second job is in shadow mode's hands."""
    jobs = generate(workload, seed)
    observations: list[np.ndarray] = []
    decide = by_policy(HEURISTICS[policy])

    def observe(number: int, simulation: Simulation) -> Allocation:
        observations.append(encode(simulation.job_view(number), simulation.cluster_view()))
        return decide(number, simulation) if number % 2 else jobs[number].request

    simulation = Simulation(workload.cluster, jobs, observe)
    simulation.run_until()
    return [
        _experience(number, record, observation)
        for number, (record, observation) in enumerate(zip(simulation.records(), observations, strict=True))
    ]


def stored(experiences: list[Experience], path: Path) -> Store:
    store = Store(f"sqlite:///{path}")
    store.add_decisions([experience.decision for experience in experiences])
    store.add_outcomes([experience.outcome for experience in experiences])
    return store


def _experience(number: int, record: JobRecord, observation: np.ndarray) -> Experience:
    job, allocation = record.job, record.allocation
    decision = Decision(
        id=f"d{number}",
        job_id=number + 1,
        submitted_s=job.submit_s,
        decided_s=job.submit_s,
        user=f"user{job.user}",
        account="llm",
        partition="gpu",
        job_name=f"job{number % 10}",
        job_class=job.job_class,
        rule="llm",
        mode="enforce",
        reason="",
        request=job.request,
        bounds=job.bounds,
        observation_schema=SCHEMA_VERSION,
        observation=observation.astype("<f4").tobytes(),
        queued=record.queued,
        dominant_share_requested=record.dominant_share,
        dominant_share_allocated=record.dominant_share,
        reference_s=record.reference_s,
        shares=shares_of(allocation, job.bounds),
        log_probability=0.0,
        policy_version="shipped-2",
        allocation=allocation,
    )
    outcome = Outcome(
        decision_id=decision.id,
        state=record.state,
        exit_code="0:0",
        eligible_s=job.submit_s,
        started_s=record.start_s,
        ended_s=record.end_s,
        nodes=allocation.nodes,
        gpus=allocation.gpus,
        cpus=allocation.cpus,
        mem_mib=float(allocation.mem_mib),
        max_rss_mib=None,
        consumed_energy_j=None,
        executed_shares=shares_of(allocation, job.bounds),
        reward=record.reward(),
    )
    return Experience(decision=decision, outcome=outcome)


def changed(experience: Experience, **outcome: object) -> Experience:
    return Experience(decision=experience.decision, outcome=msgspec.structs.replace(experience.outcome, **outcome))
