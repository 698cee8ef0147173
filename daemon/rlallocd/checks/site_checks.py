"""What is checked by asking Slurm: the settings that a configuration of rlalloc needs of its site."""

import time
from pathlib import Path
from typing import Final

from rlalloc.config import Config
from rlallocd.checks.configuration_check import file_findings
from rlallocd.checks.controller_checks import controller_findings
from rlallocd.checks.directory_checks import directory_findings
from rlallocd.checks.finding import Finding, failure
from rlallocd.checks.journal_check import journal_findings
from rlallocd.checks.machine_checks import plugin_findings, wake_findings
from rlallocd.checks.slurm_checks import (
    TaskScripts,
    checked_finding,
    chooses_types,
    enforces,
    gpu_types_finding,
    slurm_findings,
)
from rlallocd.checks.store_checks import disk_findings, store_findings
from rlallocd.checks.units import unit_state
from rlallocd.slurm import Commands, Slurm, SlurmError
from rlallocd.slurm.site_settings import SiteSettings, read_site_settings

_MODULE: Final = Path("/usr/lib/rlalloc/rlalloc.lua")
_TRAINER: Final = "rlalloc"
_DAEMON: Final = "rlallocd"


def installation_findings(path: Path, config: Config, commands: Commands, user: str) -> list[Finding]:
    """Whether the installation fits its configuration, read from ``path``: file, Slurm, plugin and store.

    ``user`` is that of rlallocd.
    """
    site, of_slurm = site_findings(config, commands, user)
    return [
        *file_findings(path, config, user),
        *of_slurm,
        *(_called_findings(config, site) if site is not None else ()),
        *directory_findings(config, user, _TRAINER),
        *(controller_findings(config, site) if site is not None else ()),
        *store_findings(config, (user, _TRAINER)),
        *journal_findings(config, user),
        *disk_findings(config),
    ]


def _called_findings(config: Config, site: SiteSettings) -> list[Finding]:
    """Whether slurmctld calls the plugin, and the plugin reaches rlallocd."""
    conf = Path(site.slurm_conf or "/etc/slurm/slurm.conf")
    return [
        *plugin_findings(site.booted_s, _module_beside(conf), conf.with_name("job_submit.lua")),
        *wake_findings(config, site.slurm_user),
    ]


def site_findings(config: Config, commands: Commands, user: str) -> tuple[SiteSettings | None, list[Finding]]:
    """What Slurm has to be like for the configuration; one line where slurmctld does not answer."""
    try:
        site = read_site_settings(commands, user)
        prolog_counts = enforces(config) and bool(site.task_prolog)
        nodes = Slurm(commands, "cli").nodes() if prolog_counts or chooses_types(config) else ()
    except SlurmError as err:
        return None, [failure("slurmctld", str(err), "scontrol ping")]
    nodes_checked = checked_finding(nodes, config) if prolog_counts else None
    called = nodes_checked is not None and nodes_checked.level == "OK"
    scripts = TaskScripts(_text_of(site.task_prolog), _text_of(site.task_epilog), called=called)
    found = slurm_findings(config, site, scripts, time.time())
    if chooses_types(config):
        found.append(gpu_types_finding(nodes, config))
    return site, found if nodes_checked is None else [*found, nodes_checked]


def daemon_user() -> str:
    """As which rlallocd's unit runs."""
    unit = unit_state("rlallocd.service")
    return unit.user if unit is not None and unit.user else _DAEMON


def _module_beside(conf: Path) -> Path:
    """rlalloc.lua, as slurm_plugin/job_submit.lua looks for it: beside slurm.conf, else as installed."""
    beside = conf.with_name("rlalloc.lua")
    return beside if beside.exists() else _MODULE


def _text_of(path: str) -> str | None:
    """The text of a script; None where there is none here."""
    try:
        return Path(path).read_text(errors="replace") if path else None
    except OSError:
        return None
