"""Past jobs that rlalloc resized, in the sizes that their users asked for."""

import re
from collections.abc import Sequence

import msgspec

from rlalloc.past_job import Allotted, PastJob
from rlalloc.store import JobHistory, Store
from rlalloc.view import slowdown


def as_requested(jobs: Sequence[PastJob], store: Store) -> list[PastJob]:
    """The same jobs, those that rlalloc changed as requested, and beside that as they ran. Raises StoreError."""
    keys = [(int(re.split("[_+]", job.job_id)[0]), int(job.submitted_s)) for job in jobs]
    ours = store.histories_of_runs({key: job.user for key, job in zip(keys, jobs, strict=True)})
    return [_as_requested(job, ours[key]) if key in ours else job for key, job in zip(keys, jobs, strict=True)]


def _as_requested(job: PastJob, history: JobHistory) -> PastJob:
    request = history.request
    limit_s = float(request.time_limit_s) or None
    if not history.applied or history.size == request:
        return msgspec.structs.replace(job, limit_s=limit_s)
    return msgspec.structs.replace(
        job,
        nodes=request.nodes,
        cpus=request.cpus,
        gpus=request.gpus,
        mem_mib=float(request.mem_mib),
        limit_s=limit_s,
        allotted=Allotted(
            nodes=job.nodes,
            cpus=job.cpus,
            gpus=job.gpus,
            mem_mib=job.mem_mib,
            limit_s=job.limit_s,
            slowdown=slowdown(request, history.size),
        ),
    )
