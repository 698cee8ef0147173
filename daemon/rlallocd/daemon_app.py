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
from rlalloc.errors import ConfigError, PolicyError, RlallocError, StoreError, StoreUnfit
from rlalloc.interrupted_promotion import mend_interrupted_promotion
from rlalloc.logs import configure_logging
from rlalloc.policies import PolicyStore
from rlalloc.service import Watchdog, notify
from rlalloc.store import Store
from rlalloc.store.database import why_not_shared
from rlalloc.store.journal_seal import JournalKey
from rlallocd.agent_client import AgentClient, AgentUnavailable
from rlallocd.controller import Controller
from rlallocd.cycle_schedule import CycleSchedule
from rlallocd.daemon_state import StateFile
from rlallocd.installation_metrics import InstallationMetrics
from rlallocd.intercept import RuntimeDirectoryError, WakeFile
from rlallocd.metrics_server import MetricsServer, serve_metrics
from rlallocd.only_daemon import AnotherDaemonError, OnlyDaemon
from rlallocd.regular_checks import RegularChecks
from rlallocd.reload import reloaded
from rlallocd.signals import Signals
from rlallocd.slurm import OTHER_CLUSTERS, BackOff, Slurm, SlurmUnavailable, UpdateRefused, connect
from rlallocd.user_service import UserService

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
        with (
            closing(OnlyDaemon(config.runtime_directory)) as lock,
            closing(WakeFile(config.runtime_directory)) as wake,
            closing(AgentClient.of(config.agent, signals)) as agent,
        ):
            _Daemon(path, config, signals, lock, wake, agent).run()


def _refuse_other_clusters(environment: Mapping[str, str]) -> None:
    """One rlallocd is for one cluster, that of slurm.conf. Raises ConfigError where its environment names others."""
    if clusters := environment.get(OTHER_CLUSTERS):
        raise ConfigError(
            f"{OTHER_CLUSTERS} is set to {clusters!r} in the environment of rlallocd, which decides for the cluster "
            "of slurm.conf alone: remove it from /etc/default/rlalloc, and run an rlallocd beside each slurmctld"
        )


class _Daemon:
    """The running program: its configuration, its parts and what systemd hears of it."""

    def __init__(
        self, path: Path, config: Config, signals: Signals, lock: OnlyDaemon, wake: WakeFile, agent: AgentClient
    ) -> None:
        self._path = path
        self._config = config
        self._signals = signals
        self._lock = lock
        self._wake = wake
        self._agent = agent
        self._watchdog = Watchdog()
        self._metrics = CollectorRegistry()
        ProcessCollector(registry=self._metrics)
        self._installation = InstallationMetrics(path, config, self._watchdog)
        self._metrics.register(self._installation)
        self._metrics_server: MetricsServer | None = None
        self._users: UserService | None = None
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
            if self._users is not None:
                self._users.close()

    def _run(self) -> None:
        self._watchdog.allow_steps_of(_LONGEST_MIGRATION_S)
        notify("READY=1\nSTATUS=connecting to slurmctld and the store")
        self._serve_metrics()
        found = self._connect_patiently()
        if found is None:
            return
        store, slurm, controller = found
        self._allow_slow_steps()
        try:
            self._metrics.register(controller.metrics.registry)
            self._installation.connected = True
            self._installation.checks = RegularChecks(self._path, self._config, slurm.commands_apart())
            self._serve_users(controller)
            self._tell_mode(controller)
            config = self._config
            _log.info("mode %s, grace %d s, poll %g s", controller.config.mode, config.grace_s, config.daemon.poll_s)
            self._loop(controller)
            notify("STOPPING=1")
            controller.stop()
        finally:
            store.close()

    def _connect_patiently(self) -> tuple[Store, Slurm, Controller] | None:
        """Wait for the store and slurmctld, however long; None if told to stop meanwhile."""
        back_off = BackOff(_LONGEST_WAIT_AT_START_S)
        said = ""
        while not self._signals.stop:
            if self._signals.reload:
                self._reload(None)
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

    def _connect(self) -> tuple[Store, Slurm, Controller]:
        """Open the store and reach slurmctld. Raises StoreError or SlurmError."""
        key = JournalKey(self._config.store.key_file)
        store = Store(self._config.store.url, skip_unreadable=True, seal=key.seal)
        try:
            if key.is_new:
                if store.has_seals() and not why_not_shared(self._config.store.url):
                    raise StoreError(  # noqa: TRY301 (closes the store)
                        "the journal is sealed with the key of another machine, and there is none here: copy "
                        f"{self._config.store.key_file} from there, for rlallocd's user alone (mode 0600); if it is "
                        "lost, see docs/admin/security.md"
                    )
                store.seal_journal()
                key.keep()
            self._watchdog.feed()
            self._mend_promotion(store)
            slurm = connect(self._config.slurm)
            return (
                store,
                slurm,
                Controller(
                    self._config,
                    slurm,
                    store,
                    self._agent,
                    progress=self._watchdog.feed,
                    stopping=lambda: self._signals.stop,
                ),
            )
        except BaseException:
            store.close()
            raise

    def _mend_promotion(self, store: Store) -> None:
        """Record what a killed training left unrecorded; no job depends on it."""
        try:
            for done in mend_interrupted_promotion(PolicyStore(self._config.policy.directory), store, wait=False):
                _log.warning("an interrupted promotion: %s", done)
        except (PolicyError, StoreError) as err:
            _log.warning("cannot see whether a promotion was interrupted: %s", err)

    def _loop(self, controller: Controller) -> None:
        """Cycle whenever the schedule says so; calls of the plugin and signals are heard meanwhile."""
        schedule = CycleSchedule(self._config, time.monotonic())
        while not self._signals.stop:
            if self._signals.reload:
                self._reload(controller)
                schedule = CycleSchedule(self._config, time.monotonic())
            wait_s = schedule.wait_s(time.monotonic())
            if wait_s > 0:
                if self._signals.wait(min(wait_s, _WATCHDOG_EVERY_S), self._wake.fileno()):
                    self._wake.clear()
                    schedule.woken(time.monotonic())
            else:
                report = controller.cycle()
                schedule.cycled(report, self._config, time.monotonic())
                self._tell_mode(controller)
                self._state.cycled(controller.counters, report.decided)
                self._renew_runtime_files(controller)
            self._watchdog.feed()

    def _renew_runtime_files(self, controller: Controller) -> None:
        """Make again what somebody has removed with the runtime directory, as soon as there is one again.

        Raises AnotherDaemonError where another rlallocd has been started meanwhile: this one has to end.
        """
        try:
            self._lock.renew()
            self._wake.renew()
        except AnotherDaemonError:
            raise
        except RuntimeDirectoryError as err:
            _log.error("users and the plugin do not reach rlallocd, jobs run as submitted: %s", err)
            return
        if self._users is not None and not self._users.is_there:
            self._users.close()
            self._users = None
        if self._users is None:
            self._serve_users(controller)

    def _serve_users(self, controller: Controller) -> None:
        """Answer users about their own jobs; where that cannot be, no job depends on it."""
        try:
            self._users = UserService(self._config, controller.off_requests, controller.switch)
        except OSError as err:
            _log.warning("cannot answer users in %s: %s", self._config.runtime_directory, err.strerror or err)

    def _tell_mode(self, controller: Controller) -> None:
        """Tell systemd and the state file which mode is in force, where it has changed."""
        mode, reason = controller.config.mode, controller.mode_reason
        if (mode, reason) != self._told:
            self._told = mode, reason
            notify(f"STATUS=mode {mode}" + (f": {reason}" if reason else ""))
        self._state.modes(mode, self._config.mode, reason, switched_off=controller.switch.off)

    def _reload(self, controller: Controller | None) -> None:
        """Take up a changed configuration; a wrong one is refused and the old one stays."""
        self._signals.reload = False
        notify("RELOADING=1")
        try:
            new, needs_restart = reloaded(self._config, load_config(self._path))
            self._agent.reconfigure(new.agent)
        except (ConfigError, AgentUnavailable) as err:
            _log.error("cannot reload the configuration, the old one stays in force: %s", err)
        else:
            self._take_up(new, controller)
            self._installation.took_up(new, whole=not needs_restart)
            _log.info("configuration reloaded: mode %s", new.mode)
            for key in needs_restart:
                _log.warning("%s has changed, which a reload does not take up: run systemctl restart rlallocd", key)
        notify("READY=1")

    def _take_up(self, config: Config, controller: Controller | None) -> None:
        old, self._config = self._config, config
        if self._users is not None:
            self._users.config = config
        configure_logging(config.log_level, "rlallocd")
        if controller is not None:
            self._allow_slow_steps()
            controller.reconfigure(config)
        if self._installation.checks is not None:
            self._installation.checks.reconfigure(config)
        if config.metrics != old.metrics:
            self._serve_metrics()

    def _serve_metrics(self) -> None:
        if self._metrics_server is not None:
            self._metrics_server.close()
        self._metrics_server = serve_metrics(self._config.metrics.listen, self._metrics)

    def _allow_slow_steps(self) -> None:
        """A step is one command of Slurm's or one question to the agent."""
        self._watchdog.allow_steps_of(max(self._config.slurm.command_timeout_s, self._config.agent.deadline_s))


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
