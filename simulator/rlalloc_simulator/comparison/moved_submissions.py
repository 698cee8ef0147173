"""The same workload with its submissions moved by some seconds: what of a figure is chance, and what is not.

A full site amplifies small differences: two jobs that swap change who starts next, and so on. In one run of a
workload a user may wait half as long or twice as long as in the next one. Means over runs with moved submissions tell
what a policy does to a user from what one realisation did.
"""

from typing import Final

import msgspec
import numpy as np

from rlalloc_simulator.site_from_workload import Workload

MOVED_BY_S: Final = 300.0
"""Submissions are moved by up to so much, either way: a user might as well have come five minutes later. Runs that
are moved by 30 s agree with one another more than other weeks of the same site do."""


def moved(workload: Workload, replicate: int) -> Workload:
    """Return the workload of a replicate; number 0 is the workload as it is. Deterministic.

    Jobs keep their order. What policies know of a job stays what they knew in the workload as it is, and a
    cancellation or a begin time moves with its job.
    """
    if replicate == 0:
        return workload
    generator = np.random.default_rng((len(workload.jobs), 47, replicate))
    submits_s = np.array([job.submit_s for job in workload.jobs])
    later_s = np.sort(np.maximum(0.0, submits_s + generator.uniform(-MOVED_BY_S, MOVED_BY_S, len(submits_s))))
    jobs = tuple(
        msgspec.structs.replace(
            job,
            submit_s=submit_s,
            begin_s=job.begin_s + submit_s - job.submit_s,
            cancel_s=job.cancel_s + submit_s - job.submit_s,
        )
        for job, submit_s in zip(workload.jobs, later_s.tolist(), strict=True)
    )
    return workload._replace(jobs=jobs)
