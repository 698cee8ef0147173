"""The program rlallocd: reads the configuration, wires the parts, runs the loop until it is told to stop."""

import logging
import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer
from prometheus_client import CollectorRegistry, ProcessCollector

from rlalloc.config import DEFAULT_PATH, Config, load_config
from rlalloc.errors import ConfigError, RlallocError, StoreError, StoreUnfit
from rlalloc.system.logs import configure_logging
from rlalloc.system.service import Watchdog, notify
from rlallocd.checks.regular_checks import RegularChecks
from rlallocd.controller import Controller
from rlallocd.cycle_schedule import CycleSchedule
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.metrics.installation_metrics import InstallationMetrics
from rlallocd.metrics.metrics_server import MetricsServer, serve_metrics
from rlallocd.process.daemon_state import StateFile
from rlallocd.process.garbage_collection import collect_rarely
from rlallocd.process.reload import reloaded
from rlallocd.process.runtime_files import RuntimeFiles
from rlallocd.process.signals import Signals
from rlallocd.process.site_connection import SiteConnection
from rlallocd.slurm import OTHER_CLUSTERS, BackOff, SlurmError, SlurmUnavailable, UpdateRefused
from rlallocd.submissions.intercept import RuntimeDirectoryError, withdraw_intercept

_log = logging.getLogger("rlallocd")

_WATCHDOG_EVERY_S: Final = 5.0
"""However long the schedule waits, the service manager hears from us in this time."""
_LONGEST_WAIT_AT_START_S: Final = 5.0
_LONGEST_MIGRATION_S: Final = 1800.0
"""So long may a store of an earlier version take to be opened."""


def run(path: Path) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads the configuration again. Raises RlallocError if it cannot start."""
    with closing(Signals()) as signals:
        config = load_config(path)
        configure_logging(config.log_level, "rlallocd")
        _refuse_other_clusters(os.environ)
        collect_rarely()
        with (
            closing(RuntimeFiles(config)) as files,
            closing(AgentClient.of(config.agent, signals)) as agent,
        ):
            _Daemon(path, config, signals, files, agent).run()


def _refuse_other_clusters(environment: Mapping[str, str]) -> None:
    """One rlallocd is for one cluster, that of slurm.conf. Raises ConfigError where its environment names others."""
    if clusters := environment.get(OTHER_CLUSTERS):
        raise ConfigError(
            f"{OTHER_CLUSTERS} is set to {clusters!r} in the environment of rlallocd, which decides for the cluster "
            "of slurm.conf alone: remove it from /etc/default/rlalloc, and run an rlallocd beside each slurmctld"
        )


class _Daemon:
    """The running program: its configuration, its parts and what systemd hears of it."""

    def __init__(self, path: Path, config: Config, signals: Signals, files: RuntimeFiles, agent: AgentClient) -> None:
        self._path = path
        self._config = config
        self._signals = signals
        self._files = files
        self._agent = agent
        self._watchdog = Watchdog()
        self._metrics = CollectorRegistry()
        ProcessCollector(registry=self._metrics)
        self._installation = InstallationMetrics(path, config, self._watchdog)
        self._metrics.register(self._installation)
        self._metrics_server: MetricsServer | None = None
        self._controller: Controller | None = None
        self._stands_by = ""
        self._told: tuple[str, str] | None = None
        self._state = StateFile(config.runtime_directory, config.mode)

    def run(self) -> None:
        """Be ready at once, connect however long that takes, then cycle until told to stop."""
        try:
            self._run()
        except RlallocError as err:
            self._state.failed(str(err))
            raise
        finally:
            self._state.close()
            if self._installation.checks is not None:
                self._installation.checks.close()
            if self._metrics_server is not None:
                self._metrics_server.close()

    def _run(self) -> None:
        self._watchdog.allow_steps_of(_LONGEST_MIGRATION_S)
        notify("READY=1\nSTATUS=connecting to slurmctld and the store")
        self._serve_metrics()
        while (site := self._connect_patiently()) is not None:
            with closing(site):
                self._allow_slow_steps()
                if self._installation.checks is None:
                    self._installation.checks = RegularChecks(self._path, self._config, site.slurm.commands_apart())
                self._loop(site)
                if self._signals.stop:
                    notify("STOPPING=1")
                    self._end_controller()
                    return
                self._forget_controller()

    def _connect_patiently(self) -> SiteConnection | None:
        """Wait for the store and slurmctld, however long; None if told to stop meanwhile."""
        back_off = BackOff(_LONGEST_WAIT_AT_START_S)
        said = ""
        while not self._signals.stop:
            if self._signals.reload:
                self._reload()
            try:
                return self._connect()
            except StoreUnfit:
                raise
            except (SlurmUnavailable, UpdateRefused, StoreError) as err:
                if str(err) != said:
                    said = str(err)
                    _log.warning("not connected yet, jobs run as submitted: %s", err)
                    notify(f"STATUS=waiting: {err}")
                self._state.waits_for(str(err))
            self._watchdog.feed()
            self._signals.wait(back_off.failed())
        return None

    def _connect(self) -> SiteConnection:
        """Open the store and reach slurmctld; where there is one alone, act. Raises StoreError or SlurmError."""
        site = SiteConnection(self._config, self._watchdog.feed)
        try:
            if site.control is None:
                self._make_controller(site)
        except BaseException:
            site.close()
            raise
        return site

    def _make_controller(self, site: SiteConnection) -> Controller:
        """Begin to act for the site. Raises StoreError or SlurmError."""
        controller = Controller(
            self._config,
            site.slurm,
            site.store,
            self._agent,
            progress=self._watchdog.feed,
            stopping=lambda: self._signals.stop,
        )
        self._controller = controller
        self._metrics.register(controller.metrics.registry)
        self._installation.connected = True
        self._note_standby("")
        self._files.serve_users(controller, "")
        self._tell_mode(controller)
        config = self._config
        _log.info("mode %s, grace %d s, poll %g s", controller.config.mode, config.grace_s, config.daemon.poll_s)
        return controller

    def _forget_controller(self) -> None:
        """Forget all that is known of jobs: another rlallocd has acted since."""
        if self._controller is not None:
            self._metrics.unregister(self._controller.metrics.registry)
            self._controller.keep_learned()
            self._controller = None

    def _end_controller(self) -> None:
        """Leave the cluster clean; while this one stands by, the other rlallocd does that."""
        if self._stands_by:
            self._forget_controller()
        elif self._controller is not None:
            self._controller.stop()

    def _loop(self, site: SiteConnection) -> None:
        """Cycle whenever the schedule says so; calls of the plugin and signals are heard meanwhile."""
        schedule = CycleSchedule(self._config, time.monotonic())
        while not self._signals.stop and not site.has_changed:
            if self._signals.reload:
                self._reload()
                schedule = CycleSchedule(self._config, time.monotonic())
            wait_s = schedule.wait_s(time.monotonic())
            if wait_s > 0:
                if self._signals.wait(min(wait_s, _WATCHDOG_EVERY_S), self._files.wake.fileno()):
                    self._files.wake.clear()
                    schedule.woken(time.monotonic())
            elif (controller := self._controller_that_may_act(site)) is not None:
                report = controller.cycle()
                schedule.cycled(report, self._config, time.monotonic())
                self._tell_mode(controller)
                self._state.cycled(controller.counters, report.decided)
                self._files.renew(controller, "")
            else:
                schedule.stood_by(self._config, time.monotonic())
                self._files.renew(self._controller, self._stands_by)
            self._watchdog.feed()

    def _controller_that_may_act(self, site: SiteConnection) -> Controller | None:
        """The controller; None while the rlallocd beside another slurmctld is to act."""
        if site.control is None:
            return self._controller
        try:
            turn = site.control.keep()
            if turn.others_acted:
                self._forget_controller()
            if not turn.why_not:
                site.keep_key()
                return self._act_again(self._controller or self._make_controller(site))
            why = turn.why_not
        except (SlurmError, StoreError) as err:
            why = str(err)
        self._stand_by(why)
        return None

    def _act_again(self, controller: Controller) -> Controller:
        """Act with what was known before: nobody else has acted since."""
        if self._stands_by:
            self._note_standby("")
            self._told = None
        return controller

    def _stand_by(self, why: str) -> None:
        """Leave all to another rlallocd. Should slurmctld take over here first, its plugin leaves jobs alone."""
        if why != self._stands_by:
            _log.info("stands by: %s", why)
            notify(f"STATUS=standby: {why}")
            if not self._stands_by:
                try:
                    withdraw_intercept(self._config)
                except RuntimeDirectoryError as err:
                    _log.error("the plugin of this machine is not told that rlallocd stands by: %s", err)
        self._note_standby(why)
        self._state.stands_by(why)

    def _note_standby(self, why: str) -> None:
        self._stands_by = why
        self._installation.connected = not why
        self._installation.stands_by = bool(why)

    def _tell_mode(self, controller: Controller) -> None:
        """Tell systemd and the state file which mode is in force, where it has changed."""
        mode, reason = controller.config.mode, controller.mode_reason
        if (mode, reason) != self._told:
            self._told = mode, reason
            notify(f"STATUS=mode {mode}" + (f": {reason}" if reason else ""))
        self._state.modes(mode, self._config.mode, reason, switched_off=controller.switch.off)

    def _reload(self) -> None:
        """Take up a changed configuration; a wrong one is refused and the old one stays."""
        self._signals.reload = False
        notify("RELOADING=1")
        try:
            new, needs_restart = reloaded(self._config, load_config(self._path))
            self._agent.reconfigure(new.agent)
        except (ConfigError, AgentUnavailable) as err:
            _log.error("cannot reload the configuration, the old one stays in force: %s", err)
        else:
            self._take_up(new)
            self._installation.took_up(new, whole=not needs_restart)
            _log.info("configuration reloaded: mode %s", new.mode)
            for key in needs_restart:
                _log.warning("%s has changed, which a reload does not take up: run systemctl restart rlallocd", key)
        notify("READY=1")

    def _take_up(self, config: Config) -> None:
        old, self._config = self._config, config
        self._files.take_up(config)
        configure_logging(config.log_level, "rlallocd")
        if self._controller is not None:
            self._allow_slow_steps()
            self._controller.reconfigure(config)
        if self._installation.checks is not None:
            self._installation.checks.reconfigure(config)
        if config.metrics != old.metrics:
            self._serve_metrics()

    def _serve_metrics(self) -> None:
        if self._metrics_server is not None:
            self._metrics_server.close()
        self._metrics_server = serve_metrics(self._config.metrics.listen, self._metrics)

    def _allow_slow_steps(self) -> None:
        """A step is one command of Slurm's, a ping of its controllers, or one question to the agent."""
        self._watchdog.allow_steps_of(max(2 * self._config.slurm.command_timeout_s, self._config.agent.deadline_s))


def _command(config: Annotated[Path, typer.Option(help="The configuration file.")] = DEFAULT_PATH) -> None:
    """Intercept pending LLM jobs, ask the policy agent for their sizes, apply them and keep the outcomes."""
    try:
        run(config)
    except (ConfigError, StoreUnfit) as err:  # what does not get better by being started again
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
