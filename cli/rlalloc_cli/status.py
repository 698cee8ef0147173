"""``rlalloc status``: the agent, the store and the latest decisions on one screen."""

import time

from rich.table import Table

from rlalloc.config import Config
from rlalloc.errors import StoreMissing
from rlalloc.policies import PolicyStore
from rlalloc.store import Store
from rlalloc_cli.terminal import CONSOLE, duration, local_time

_LATEST = 10
_MANY = 10_000
"""Rows of a table that are counted: counting millions would take seconds."""


def print_status(config: Config) -> None:
    """Print how things are; a dead agent, or a store that is not there yet, is a fact to be shown, not an error.

    Raises StoreError, PolicyError.
    """
    CONSOLE.print(
        f"mode      {config.mode}; rules: {', '.join(f'{r.name} {config.mode_of(r)}' for r in config.rules)}"
    )
    CONSOLE.print(f"plugin    {_plugin_line(config)}")
    CONSOLE.print(f"agent     {_agent_line(config)}")
    CONSOLE.print(f"policy    in use: {PolicyStore(config.policy.directory).current() or 'the shipped policy'}")
    try:
        store = Store(config.store.url, read_only=True, skip_unreadable=True)
    except StoreMissing as err:
        CONSOLE.print(f"store     {err}")
        return
    try:
        print_store(store)
    finally:
        store.close()


def print_store(store: Store) -> None:
    """Print how large the store is, and the latest decisions."""
    CONSOLE.print(f"store     {', '.join(_count(*each) for each in sorted(store.counts(_MANY + 1).items()))}")
    table = Table(title="latest decisions", title_justify="left")
    for heading in ("job", "decided", "user", "class", "mode", "request", "allocation", "policy"):
        table.add_column(heading, overflow="fold")
    for decision in store.recent_decisions(_LATEST):
        allocation = decision.allocation
        table.add_row(
            str(decision.job_id),
            local_time(decision.decided_s),
            decision.user,
            decision.job_class,
            decision.mode,
            f"{decision.request.gpus} GPUs",
            f"{allocation.gpus} GPUs" if allocation else f"skipped: {decision.reason}",
            decision.policy_version or "-",
        )
    CONSOLE.print(table)


def _count(table: str, rows: int) -> str:
    return f"{rows} {table}" if rows <= _MANY else f"over {_MANY} {table}"


def _plugin_line(config: Config) -> str:
    from rlallocd.intercept import stamp_in_force

    stamp, ours = stamp_in_force(config), config.word_table.stamp
    if stamp is None:
        return (
            f"no table of words in {config.runtime_directory}: rlallocd is not running, or is older than this command"
        )
    if stamp != ours:
        return f"reads scripts with table {stamp}, but the configuration file has {ours}: systemctl reload rlallocd"
    return f"reads scripts with table {stamp}, the one in the configuration file"


def _agent_line(config: Config) -> str:
    from rlallocd.agent_client import AgentClient, AgentUnavailable

    client = AgentClient(config.agent.endpoint, config.agent.deadline_s)
    try:
        state = client.state()
    except AgentUnavailable as err:
        return str(err)
    finally:
        client.close()
    counted = ", ".join(f"{count} {name}" for name, count in sorted(state.counters.items()) if count)
    line = (
        f"serves {state.policy_version} for {duration(time.time() - state.started_s)}; {counted or 'no requests yet'}"
    )
    return f"{line}\n          {state.problem}" if state.problem else line
