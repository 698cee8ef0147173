"""The site that a workload is run on: without rlalloc, or with rlallocd and rlalloc-agent in one mode."""

import os
from contextlib import AbstractContextManager

from rlalloc_testbed import FIRST_COME, Installation, compared_site
from rlalloc_validation.validation_settings import Mode, ValidationSettings, decides_late, sizes_jobs
from slurm_testbed import Site


def site_for(
    settings: ValidationSettings, mode: Mode, users: tuple[str, ...]
) -> AbstractContextManager[tuple[Site, Installation | None]]:
    """Start a site as the settings say, and rlalloc on it unless ``mode`` is off; both end at the block's end.

    Raises TestbedError, and PolicyError if the policy that ships with the agent is damaged.
    """
    looks = {
        "nodes": settings.nodes,
        "gpus_per_node": settings.gpus_per_node,
        "cpus_per_node": settings.cpus_per_node,
        "mem_mib_per_node": settings.mem_mib_per_node,
        "users": users,
        "scheduler_parameters": scheduler_words(settings),
        "extra_slurm_conf": {**FIRST_COME, "MinJobAge": "3600"},
    }
    rlalloc = None if mode == "off" else rlalloc_settings(settings, mode)
    return compared_site(f"replay-{mode}-{os.getpid()}", looks, rlalloc)


def scheduler_words(settings: ValidationSettings) -> dict[str, str]:
    """SchedulerParameters of the site. bf_window is in minutes there."""
    return {
        "bf_interval": str(settings.bf_interval_s),
        "bf_resolution": str(settings.bf_resolution_s),
        "bf_window": str(settings.bf_window_s // 60),
        "sched_interval": str(settings.sched_interval_s),
        "batch_sched_delay": str(settings.batch_sched_delay_s),
    }


def rlalloc_settings(settings: ValidationSettings, mode: Mode) -> dict[str, object]:
    """The settings beside the testbed's usual ones: the policy's mean, and when it decides."""
    of_rlalloc = "enforce" if sizes_jobs(mode) else mode
    return {
        "mode": of_rlalloc,
        "rules": [{"name": "llm", "mode": of_rlalloc}],
        "grace_s": settings.grace_s,
        "daemon": {"poll_s": float(settings.poll_s), "outcomes_every_s": 30.0, "heartbeat_s": 5.0},
        "redecision": {"every_s": float(settings.bf_interval_s), "leave_alone_s": 1.0}
        if decides_late(mode)
        else {"max_updates": 0},
    }
