"""Checks of a site whose slurmctld has a backup: whether another rlallocd could go on where this one stops."""

import socket

from rlalloc.config import Config
from rlalloc.errors import StoreUnfit
from rlalloc.store.database import why_not_shared
from rlalloc.store.file_systems import file_system_of
from rlallocd.checks.finding import Finding, good, warning
from rlallocd.slurm import host_of_this_machine
from rlallocd.slurm.site_settings import SiteSettings

_HOW = "docs/admin/two-controllers.md"


def controller_findings(config: Config, site: SiteSettings) -> list[Finding]:
    """Whether store and policies are both machines'; nothing on a site with one slurmctld."""
    if len(site.controllers) < 2:
        return []
    hosts, name = ", ".join(site.controllers), socket.gethostname()
    if not host_of_this_machine(site.controllers, name):
        return [warning("controllers", f"{name} is none of those in slurm.conf: {hosts}", _HOW)]
    try:
        obstacle = why_not_shared(config.store.url)
    except StoreUnfit as err:
        obstacle = str(err)
    if obstacle:
        return [warning("controllers", f"{obstacle}: the rlallocd of a backup cannot take over", _HOW)]
    directory = config.policy.directory
    if not file_system_of(directory).is_network:
        said = f"{directory} is no network file system: is it the same on {hosts}?"
        return [warning("controllers", said, f"{_HOW}; if it is, ignore this")]
    return [good("controllers", f"{hosts}: store and policies are shared")]
