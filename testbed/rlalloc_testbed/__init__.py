"""rlalloc on a real Slurm site: the plugin in slurmctld, the agent and the daemon as processes of their own.

For tests and benchmarks; ``slurm_testbed`` makes the site itself.
"""

from rlalloc_testbed.compared_site import FIRST_COME, compared_site
from rlalloc_testbed.installation import PLUGIN, USER, Installation, install, install_on_backup, start_site

__all__ = [
    "FIRST_COME",
    "PLUGIN",
    "USER",
    "Installation",
    "compared_site",
    "install",
    "install_on_backup",
    "start_site",
]
