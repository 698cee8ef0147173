"""The program ``rlalloc-agent``: wiring, signals, and what systemd has to be told.

SIGTERM and SIGINT end it with status 0. SIGHUP tries the current policy again, also one that could not be loaded.
"""

import argparse
import contextlib
import logging
import os
import sys
from collections import Counter
from pathlib import Path

import torch
import zmq

from rlalloc import __version__
from rlalloc.config import DEFAULT_PATH, Config, load_config
from rlalloc.curve_keys import agent_keys
from rlalloc.errors import ConfigError, PolicyError
from rlalloc.system.logs import configure_logging
from rlalloc.system.process_signals import ProcessSignals
from rlalloc.system.service import notify
from rlalloc_agent.policy_server import PolicyServer
from rlalloc_agent.served_policy import ServedPolicy

log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> None:
    """Run the agent. Exits with 0 when stopped, 1 when it cannot serve, 2 for wrong use."""
    options = command_line().parse_args(arguments)
    try:
        config = load_config(options.config)
        agent_keys(config.agent)
    except ConfigError as err:
        sys.stderr.write(f"rlalloc-agent: {err}\n")
        sys.exit(2)
    configure_logging(config.log_level, "rlalloc-agent")
    try:
        with contextlib.closing(ProcessSignals()) as signals:
            run(config, signals)
    except PolicyError as err:
        log.error("cannot serve: %s", err)  # noqa: TRY400 - the text says what to do
        sys.exit(1)
    except zmq.ZMQError as err:
        log.error("cannot listen at agent.endpoint %s: %s", config.agent.endpoint, err)  # noqa: TRY400
        sys.exit(1)


def run(config: Config, signals: ProcessSignals) -> None:
    """Serve policies as ``config`` says until a signal.

    Raises ConfigError (TCP without keys), PolicyError or zmq.ZMQError if that cannot be.
    """
    keys = agent_keys(config.agent)
    torch.set_num_threads(config.agent.torch_threads)
    counters: Counter[str] = Counter()
    policy = ServedPolicy(config.policy.directory, counters)
    before = os.umask(0o117)  # the socket is for owner and group: the daemon is another user of our group
    try:
        server = PolicyServer(config.agent.endpoint, policy, counters, keys=keys)
    finally:
        os.umask(before)

    def each_look() -> None:
        signals.heard()
        if signals.reload:
            signals.reload = False
            notify("RELOADING=1")
            policy.refresh(again=True)
            notify("READY=1")
        notify("WATCHDOG=1")

    with server:
        log.info("listening at %s", config.agent.endpoint, extra={"policy_version": policy.version})
        notify(f"READY=1\nSTATUS=serving policy {policy.version}")
        server.serve(lambda: signals.stop, each_look, signals.wake)
        notify("STOPPING=1")
    log.info("stopped")


def command_line() -> argparse.ArgumentParser:
    """The program's options."""
    parser = argparse.ArgumentParser(prog="rlalloc-agent", description="Answers rlallocd with a learned policy.")
    parser.add_argument("--config", type=Path, default=DEFAULT_PATH, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--version", action="version", version=f"rlalloc-agent {__version__}")
    return parser
