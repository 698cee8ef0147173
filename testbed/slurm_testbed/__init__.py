r"""A real Slurm site on one machine, in a directory of its own.

Use it from Python::

    from slurm_testbed import Site, SiteSpec

    with Site.start(SiteSpec(name="example")) as site:
        job_id = site.sbatch("#!/bin/sh\nsrun hostname\n", user="llm-alice", options=["--gres=gpu:2"])
        site.wait_for_states([job_id], {"COMPLETED"})

or from a shell: ``python -m slurm_testbed up``. See testbed/README.md.
"""

from .layout import DEFAULT_ROOT, Ports
from .site import Site
from .site_jobs import Completed
from .specification import Gres, NodeKind, Partition, SiteSpec
from .testbed_errors import (
    CommandFailedError,
    DaemonFailedError,
    InvalidSpecError,
    MissingSoftwareError,
    NotPermittedError,
    ReleaseUnavailableError,
    SiteExistsError,
    SiteNotFoundError,
    TestbedError,
    WaitTimedOutError,
)
from .waiting import wait_until

__all__ = [
    "DEFAULT_ROOT",
    "CommandFailedError",
    "Completed",
    "DaemonFailedError",
    "Gres",
    "InvalidSpecError",
    "MissingSoftwareError",
    "NodeKind",
    "NotPermittedError",
    "Partition",
    "Ports",
    "ReleaseUnavailableError",
    "Site",
    "SiteExistsError",
    "SiteNotFoundError",
    "SiteSpec",
    "TestbedError",
    "WaitTimedOutError",
    "wait_until",
]
