"""Turns a workload's file (docs/reference/workloads.md) into the engine's input."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rlalloc.late_decisions import LateRules
from rlalloc.sockets import Sockets
from rlalloc.speed.speed_belief import SpeedBelief
from rlalloc.speed.step_time import FloatArray
from rlalloc.urgency import UrgencyRules
from rlalloc_simulator.engine import NodeKind, PartitionKind, SimulatedSite, SubmittedJob, UserKind
from rlalloc_simulator.engine.job_table import device_of
from rlalloc_simulator.engine.simulated_pools import Asked, shape_for
from rlalloc_simulator.workloads import ClusterDescription, WorkloadJob

DEFAULT_PARTITION: Final = "gpu"
SIMULATED_URGENCY: Final = UrgencyRules(nice_band=10_000)
"""The nice band in comparisons: with priority/basic, so many later jobs may overtake a job."""


class Workload(NamedTuple):
    """A site and the jobs that are submitted to it, ascending in submission; its own source for comparisons."""

    site: SimulatedSite
    jobs: tuple[SubmittedJob, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the site and all jobs."""
        return hashlib.sha256(self.encoded()).hexdigest()

    def encoded(self) -> bytes:
        """The site and all jobs, for another process."""
        return msgspec.msgpack.encode((self.site, self.jobs), enc_hook=_plain)

    @classmethod
    def decoded(cls, data: bytes) -> "Workload":
        """What ``encoded`` returned. Jobs of which the same is believed share it: what follows from it is kept."""
        site, jobs = msgspec.msgpack.decode(data, type=cls, dec_hook=_array)
        beliefs: dict[bytes, SpeedBelief] = {}

        def shared(belief: SpeedBelief | None) -> SpeedBelief | None:
            if belief is None:
                return None
            return beliefs.setdefault(belief.mean.tobytes() + belief.covariance.tobytes(), belief)

        return cls(site, tuple(msgspec.structs.replace(job, speed=shared(job.speed)) for job in jobs))

    @property
    def origin(self) -> str:
        """The workload itself."""
        return self.digest

    def workload(self) -> "Workload":
        """Return it."""
        return self


def _plain(array: FloatArray) -> object:
    return array.tolist()


def _array(_kind: type, numbers: object) -> FloatArray:
    return np.array(numbers, dtype=np.float64)


def site_of(cluster: ClusterDescription, jobs: Sequence[WorkloadJob]) -> SimulatedSite:
    """Return the site that a workload describes, with the users of its jobs; Slurm is configured as by default.

    Without partitions in the description all nodes are in one, and jobs of any name go there.
    """
    partitions = {each.name: each.nodes for each in cluster.partitions} or {
        DEFAULT_PARTITION: tuple(group.name for group in cluster.nodes)
    }
    users = sorted({(job.user, job.account or "all") for job in jobs})
    return SimulatedSite(
        nodes=tuple(
            NodeKind(
                count=group.count,
                shape=group.shape,
                gpu_type=group.gpu_type,
                gres=group.gres,
                features=group.features,
                sockets=Sockets(group.sockets_per_node, group.cores_per_socket),
                partitions=tuple(name for name, groups in partitions.items() if group.name in groups),
            )
            for group in cluster.nodes
        ),
        partitions=tuple(PartitionKind(name=name) for name in partitions),
        users=tuple(UserKind(name=name, account=account) for name, account in users),
    )


def with_usual_scheduler(site: SimulatedSite, jobs: Sequence[WorkloadJob]) -> SimulatedSite:
    """Return the same site with its slurmctld as administrators set it up, and with Slurm's own delays.

    ``bf_window`` is the longest time limit of the jobs, as slurm.conf's manual advises. The delays are those with
    which the engine was validated against a real slurmctld.
    """
    longest_s = float(max((job.request.time_limit_s for job in jobs), default=0))
    scheduler = msgspec.structs.replace(
        site.scheduler,
        bf_window=max(site.scheduler.bf_window, longest_s),
        batch_sched_delay=3.0,
        prediction_window=30.0,
        time_limit_interval=30.0,
    )
    return msgspec.structs.replace(site, scheduler=scheduler)


def with_urgency(site: SimulatedSite, rules: UrgencyRules = SIMULATED_URGENCY) -> SimulatedSite:
    """Return the same site, on which urgency counts: for policies whose urgency is not always 1."""
    return msgspec.structs.replace(site, interception=msgspec.structs.replace(site.interception, urgency=rules))


def with_late_decisions(site: SimulatedSite, after_s: float, rules: LateRules | None = None) -> SimulatedSite:
    """Return the same site, on which sizes are decided when jobs could start, ``after_s`` after resources were freed.

    With ``rules`` in the place of the site's own.
    """
    changed = msgspec.structs.replace(
        site.interception, late=True, late_after=after_s, late_rules=rules or site.interception.late_rules
    )
    return msgspec.structs.replace(site, interception=changed)


def submitted_from(jobs: Sequence[WorkloadJob], site: SimulatedSite) -> list[SubmittedJob]:
    """Return a workload's jobs; rlalloc decides about those with a class. Explicit priorities are ignored.

    Raises ValueError where a job names an unknown user, partition or job, DirectiveError where its directives leave
    no workable GPU count.
    """
    users = {(user.name, user.account): place for place, user in enumerate(site.users)}
    partitions = {partition.name: place for place, partition in enumerate(site.partitions)}
    places = {job.id: place for place, job in enumerate(jobs)}
    submitted = []
    for job in jobs:
        if job.partition and len(partitions) > 1 and job.partition not in partitions:
            raise ValueError(f"job {job.id}: no partition {job.partition!r}; there are {', '.join(partitions)}")
        if missing := [each.job for each in job.dependency if each.job not in places]:
            raise ValueError(f"job {job.id} depends on job {missing[0]}, which is not in the workload")
        if (user := (job.user, job.account or "all")) not in users:
            raise ValueError(f"job {job.id}: no user {job.user!r} of account {user[1]!r} on the site")
        partition = partitions.get(job.partition, 0)
        submitted.append(_submitted(job, users[user], partition, site, places))
    return submitted


def _submitted(
    job: WorkloadJob, user: int, partition: int, site: SimulatedSite, places: Mapping[int, int]
) -> SubmittedJob:
    request = job.request.allocation
    device = device_of(request, job.request.gpu_type, is_shard=job.request.shards)
    shape = shape_for(site, Asked(partition, device, job.request.constraint, job.request.sockets))
    plain = SubmittedJob(
        submit_s=job.submit_s,
        user=user,
        partition=partition,
        job_class=job.job_class or "train",
        request=request,
        bounds=job.bounds(shape),
        directives=job.parsed_directives,
        work_s=job.needs.run_time_s * job.speed_curve.at_size(request),
        curve=job.speed_curve,
        mem_mib_per_gpu_needed=job.needs.max_rss_mib / max(1, request.gpus_per_node),
        gpu_type=job.request.gpu_type or None,
        is_shard=job.request.shards,
        constraint=job.request.constraint,
        sockets=job.request.sockets,
        nice=job.nice,
        name=job.name,
        managed=job.job_class is not None,
        dependencies=tuple((each.kind, places[each.job]) for each in job.dependency),
    )
    return _with_checkpoint(_with_end(plain, job), job)


def _with_end(submitted: SubmittedJob, job: WorkloadJob) -> SubmittedJob:
    after_s = job.end.after_s
    if after_s is None:
        return submitted
    if job.end.state == "FAILED":
        part = min(1.0, after_s / job.needs.run_time_s)
        return msgspec.structs.replace(submitted, stops_at=part, stop_state="FAILED")
    if job.end.while_pending:
        return msgspec.structs.replace(submitted, cancel_s=job.submit_s + after_s)
    return msgspec.structs.replace(submitted, cancel_after_s=after_s)


def _with_checkpoint(submitted: SubmittedJob, job: WorkloadJob) -> SubmittedJob:
    if job.checkpoint is None:
        return submitted
    return msgspec.structs.replace(
        submitted,
        resumes=True,
        checkpoint_interval_s=job.checkpoint.every_s,
        restart_cost_s=job.checkpoint.restart_s,
    )
