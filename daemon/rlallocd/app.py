"""The program rlallocd: reads the configuration, wires the parts, runs the loop until it is told to stop."""

import logging
import math
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
import zmq

from rlalloc.config import DEFAULT_PATH, SlurmSection, load_config
from rlalloc.errors import ConfigError, RlallocError
from rlalloc.logs import configure_logging
from rlalloc.service import notify
from rlalloc.store import Store
from rlallocd.agent_client import AgentClient
from rlallocd.controller import Controller
from rlallocd.intercept import WakeFile
from rlallocd.metrics import serve_metrics
from rlallocd.slurm import BackOff, Slurm, SlurmUnavailable, connect
from rlallocd.timetable import Timetable

_log = logging.getLogger("rlallocd")

_WATCHDOG_EVERY_S: Final = 5.0
"""However long the timetable waits, the service manager hears from us in this time."""


class _Signals:
    """What signals asked for since they were last looked at."""

    def __init__(self) -> None:
        self.stop = False
        self.reload = False
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGHUP, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.stop = True


def run(path: Path) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads the configuration again. Raises RlallocError if it cannot start."""
    signals = _Signals()
    config = load_config(path)
    configure_logging(config.log_level, "rlallocd")
    store = Store(config.store.url, skip_unreadable=True)
    slurm = _connect_patiently(config.slurm, signals)
    if slurm is None:
        return
    agent = AgentClient(config.agent.endpoint, config.agent.deadline_s)
    wake = WakeFile(config.runtime_directory)
    controller = Controller(config, slurm, store, agent)
    metrics_server = serve_metrics(config.metrics.listen, controller.metrics)
    notify("READY=1")
    _log.info("mode %s, grace %d s, poll %g s", config.mode, config.grace_s, config.daemon.poll_s)
    _loop(path, controller, wake, signals)
    notify("STOPPING=1")
    controller.stop()
    if metrics_server is not None:
        metrics_server.close()
    wake.close()
    agent.close()
    store.close()


def _loop(path: Path, controller: Controller, wake: WakeFile, signals: _Signals) -> None:
    """Cycle whenever the timetable says so; calls of the plugin and signals are heard meanwhile."""
    poller = zmq.Poller()
    poller.register(wake.fileno(), zmq.POLLIN)
    timetable = Timetable(controller.config, time.monotonic())
    while not signals.stop:
        if signals.reload:
            signals.reload = False
            _reload(path, controller)
            timetable = Timetable(controller.config, time.monotonic())
        wait_s = timetable.wait_s(time.monotonic())
        if wait_s > 0:
            if _poll(poller, min(wait_s, _WATCHDOG_EVERY_S)):
                wake.clear()
                timetable.woken(time.monotonic())
        else:
            timetable.cycled(controller.cycle(), controller.config, time.monotonic())
        notify("WATCHDOG=1")


def _poll(poller: zmq.Poller, timeout_s: float) -> bool:
    """Whether the plugin called; a signal ends the wait early."""
    try:
        return bool(poller.poll(math.ceil(timeout_s * 1000)))
    except InterruptedError:
        return False


def _connect_patiently(section: SlurmSection, signals: _Signals) -> Slurm | None:
    """Wait for slurmctld, however long; None if told to stop meanwhile."""
    back_off = BackOff(_WATCHDOG_EVERY_S)
    while not signals.stop:
        try:
            return connect(section)
        except SlurmUnavailable as err:
            _log.warning("waiting for slurmctld: %s", err)
            notify("WATCHDOG=1")
            time.sleep(back_off.failed())
    return None


def _reload(path: Path, controller: Controller) -> None:
    """Take up a changed configuration; a wrong one is refused and the old one stays."""
    notify("RELOADING=1")
    try:
        controller.reconfigure(load_config(path))
        _log.info("configuration read again: mode %s", controller.config.mode)
    except ConfigError as err:
        _log.error("the old configuration stays: %s", err)
    notify("READY=1")


def _command(config: Annotated[Path, typer.Option(help="The configuration file.")] = DEFAULT_PATH) -> None:
    """Intercept pending LLM jobs, ask the policy agent for their sizes, apply them and keep the outcomes."""
    try:
        run(config)
    except ConfigError as err:
        typer.echo(f"rlallocd: {err}", err=True)
        raise typer.Exit(2) from err
    except RlallocError as err:
        typer.echo(f"rlallocd: {err}", err=True)
        raise typer.Exit(1) from err


def main() -> None:
    """Console script."""
    typer.run(_command)


if __name__ == "__main__":
    main()
