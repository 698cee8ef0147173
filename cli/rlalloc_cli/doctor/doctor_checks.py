"""All checks of a live site, gathered: what asks Slurm, systemd and the agent. Only ``--nodes`` changes anything."""

from pathlib import Path
from typing import Final

from rlalloc.config import Config
from rlalloc.errors import ConfigError
from rlalloc.messages import AgentState
from rlalloc_cli.doctor.node_checks import named_nodes, node_findings
from rlallocd.checks.finding import Finding, failure
from rlallocd.checks.machine_checks import (
    agent_findings,
    daemon_findings,
    heartbeat_findings,
    just_started_s,
    policy_findings,
    training_findings,
)
from rlallocd.checks.site_checks import daemon_user, installation_findings
from rlallocd.checks.slurm_checks import OUR_TASK_PROLOG
from rlallocd.checks.switch_check import switch_findings
from rlallocd.checks.units import unit_state
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.process.daemon_state import read_daemon_state
from rlallocd.slurm import Commands, Slurm, SlurmError
from rlallocd.slurm.node_probe import NodeProbe
from rlallocd.slurm.site_settings import read_site_settings

_NODE_WITHIN_S: Final = 40.0


def all_findings(path: Path, config: Config) -> list[Finding]:
    """Everything that ``rlalloc doctor`` shows, for the configuration that was read from ``path``."""
    commands = Commands(config.slurm.command_timeout_s)
    return [*installation_findings(path, config, commands, daemon_user()), *service_findings(config)]


def service_findings(config: Config) -> list[Finding]:
    """Daemon, agent, policy and training: what somebody on call asks first."""
    state, daemon = read_daemon_state(config.runtime_directory), unit_state("rlallocd.service")
    return [
        *switch_findings(config, state),
        *heartbeat_findings(
            config,
            starting=just_started_s(state, daemon) is not None,
            standby=state is not None and bool(state.standby) and not state.stopped,
        ),
        *daemon_findings(config, state, daemon),
        *agent_findings(agent_answer(config), unit_state("rlalloc-agent.service")),
        *policy_findings(config),
        *training_findings(config, unit_state("rlalloc-train.timer"), unit_state("rlalloc-train.service")),
    ]


def findings_on_nodes(config: Config, text: str) -> list[Finding]:
    """Whether Slurm calls the TaskProlog on the nodes of a host list; raises WrongNodes. A small job asks each."""
    commands = Commands(max(_NODE_WITHIN_S, config.slurm.command_timeout_s))
    try:
        site = read_site_settings(commands, daemon_user())
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
