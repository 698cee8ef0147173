"""All checks of a live site, gathered: what asks Slurm, systemd and the agent. Only ``--nodes`` changes anything."""

import time
from pathlib import Path
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import ConfigError
from rlalloc.messages import AgentState
from rlalloc_cli.doctor.finding import Finding, failure
from rlalloc_cli.doctor.machine_checks import (
    agent_findings,
    daemon_findings,
    file_findings,
    heartbeat_findings,
    just_started_s,
    plugin_findings,
    policy_findings,
    training_findings,
)
from rlalloc_cli.doctor.node_checks import checked_finding, named_nodes, node_findings
from rlalloc_cli.doctor.slurm_checks import OUR_TASK_PROLOG, TaskScripts, enforces, slurm_findings
from rlalloc_cli.doctor.store_checks import store_findings
from rlalloc_cli.doctor.switch_check import switch_findings
from rlalloc_cli.doctor.units import unit_state
from rlallocd.agent_client import AgentClient, AgentUnavailable
from rlallocd.daemon_state import read_daemon_state
from rlallocd.slurm import Commands, Slurm, SlurmError
from rlallocd.slurm.node_probe import NodeProbe
from rlallocd.slurm.site_settings import SiteSettings, read_site_settings

_MODULE: Final = Path("/usr/lib/rlalloc/rlalloc.lua")
_NODE_WITHIN_S: Final = 40.0
_TRAINER: Final = "rlalloc"
_DAEMON: Final = "rlallocd"


def all_findings(path: Path, config: Config) -> list[Finding]:
    """Everything that ``rlalloc doctor`` shows, for the configuration that was read from ``path``."""
    site, of_slurm = site_findings(config)
    conf = Path(site.slurm_conf if site is not None and site.slurm_conf else "/etc/slurm/slurm.conf")
    booted_s = site.booted_s if site is not None else 0.0
    return [
        *file_findings(path, config),
        *of_slurm,
        *plugin_findings(config, booted_s, _MODULE, conf.with_name("job_submit.lua")),
        *service_findings(config),
        *store_findings(config, (_daemon_user(), _TRAINER)),
    ]


def service_findings(config: Config) -> list[Finding]:
    """Daemon, agent, policy and training: what somebody on call asks first."""
    state, daemon = read_daemon_state(config.runtime_directory), unit_state("rlallocd.service")
    return [
        *switch_findings(config, state),
        *heartbeat_findings(config, starting=just_started_s(state, daemon) is not None),
        *daemon_findings(config, state, daemon),
        *agent_findings(agent_answer(config), unit_state("rlalloc-agent.service")),
        *policy_findings(config),
        *training_findings(config, unit_state("rlalloc-train.timer"), unit_state("rlalloc-train.service")),
    ]


def site_findings(config: Config) -> tuple[SiteSettings | None, list[Finding]]:
    """What Slurm has to be like for the configuration; one line where slurmctld does not answer."""
    commands = Commands(config.slurm.command_timeout_s)
    try:
        site = read_site_settings(commands, _daemon_user())
        nodes = Slurm(commands, "cli").nodes() if enforces(config) and site.task_prolog else None
    except SlurmError as err:
        return None, [failure("slurmctld", str(err), "scontrol ping")]
    scripts = TaskScripts(_text_of(site.task_prolog), _text_of(site.task_epilog))
    found = slurm_findings(config, site, scripts, time.time())
    return site, found if nodes is None else [*found, checked_finding(nodes, config)]


def findings_on_nodes(config: Config, text: str) -> list[Finding]:
    """Whether Slurm calls the TaskProlog on the nodes of a host list; raises WrongNodes. A small job asks each."""
    commands = Commands(max(_NODE_WITHIN_S, config.slurm.command_timeout_s))
    try:
        site = read_site_settings(commands, _daemon_user())
        nodes = named_nodes(text, Slurm(commands, "cli").nodes())
    except SlurmError as err:
        return [failure("nodes", str(err), "scontrol ping")]
    return node_findings(nodes, site.task_prolog, Path(OUR_TASK_PROLOG), NodeProbe(commands))


def agent_answer(config: Config) -> AgentState | str:
    """What the agent says of itself, or why it says nothing."""
    try:
        client = AgentClient.of(config.agent)
    except (ConfigError, AgentUnavailable) as err:
        return str(err)
    try:
        return client.state()
    except AgentUnavailable as err:
        return str(err)
    finally:
        client.close()


def _daemon_user() -> str:
    """As which rlallocd's unit runs."""
    unit = unit_state("rlallocd.service")
    return unit.user if unit is not None and unit.user else _DAEMON


def _text_of(path: str) -> str | None:
    """The text of a script; None where there is none here."""
    try:
        return Path(path).read_text(errors="replace") if path else None
    except OSError:
        return None
