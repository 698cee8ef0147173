"""Metrics that are found out when Prometheus asks: the daemon's connection, the agent, policy, training, disk, clock.

They are served from the daemon's start, before it has reached slurmctld and the store. Nothing here raises: what
cannot be read is left out, or is zero, as docs/reference/metrics.md says.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rlalloc import __version__
from rlalloc.config import Config
from rlalloc.errors import ConfigError, PolicyError
from rlalloc.job import MODES
from rlalloc.messages import AgentState
from rlalloc.policy.last_training import read_last_training
from rlalloc.policy.policies import SHIPPED_NAME, PolicyStore
from rlalloc.system.logs import COUNTED
from rlalloc.system.service import Watchdog
from rlallocd.checks.regular_checks import RegularChecks
from rlallocd.decisions.agent_client import AgentClient, AgentUnavailable
from rlallocd.submissions.intercept import expires_s

_LEVELS: Final = ("warning", "error")
_RESULTS: Final = ("failed", "kept", "promoted")
_ASK_AGENT_EVERY_S: Final = 5.0
_CHANGES: Final = ("promotion", "forced", "rollback")


class InstallationMetrics(Collector):
    """``config`` is replaced when the daemon takes up another.

    ``connected`` is set once it can cycle, ``stands_by`` while another rlallocd acts. ``checks`` are the daemon's
    own, once it has begun with them.
    """

    def __init__(self, path: Path, config: Config, watchdog: Watchdog) -> None:
        """``path`` is the configuration's file, of which ``config`` was just read."""
        self._path = path
        self._watchdog = watchdog
        self.connected = False
        self.stands_by = False
        self.config = config
        self.checks: RegularChecks | None = None
        self._taken_up = _bytes_of(path)
        self._asked_s = float("-inf")
        self._agent_state: AgentState | None = None

    def took_up(self, config: Config, *, whole: bool) -> None:
        """Note a reload; ``whole``: no changed key waits for a restart."""
        self.config = config
        self._taken_up = _bytes_of(self._path) if whole else None

    def collect(self) -> Iterator[Metric]:
        """Everything, asked now."""
        now_s = time.time()
        version = GaugeMetricFamily("rlallocd_build_info", "1, with the version of rlallocd.", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
        yield GaugeMetricFamily("rlallocd_time_seconds", "The clock of this machine.", value=now_s)
        heartbeat_s = now_s - self._watchdog.silent_s()
        yield GaugeMetricFamily(
            "rlallocd_heartbeat_timestamp_seconds",
            "When the loop of rlallocd last made progress, at work or waiting.",
            value=max(0.0, heartbeat_s),
        )
        yield GaugeMetricFamily(
            "rlallocd_connected",
            "1 once rlallocd has reached slurmctld and the store; 0 while it stands by.",
            value=self.connected,
        )
        yield GaugeMetricFamily(
            "rlallocd_standby",
            "1 while the rlallocd beside another slurmctld is to act, 0 otherwise.",
            value=self.stands_by,
        )
        yield from self._configuration()
        yield from self._agent()
        yield from self._policy()
        yield from self._training()
        yield from self._room()
        yield from self._checks()
        yield from _logged()

    def _configuration(self) -> Iterator[Metric]:
        wanted = GaugeMetricFamily(
            "rlallocd_configured_mode", "1 for the mode that the configuration asks for.", labels=["mode"]
        )
        for mode in MODES:
            wanted.add_metric([mode], mode == self.config.mode)
        yield wanted
        yield GaugeMetricFamily(
            "rlallocd_configuration_in_force",
            "1 while the configuration file is the one that rlallocd goes by, 0 where it was changed since.",
            value=self._taken_up is not None and self._taken_up == _bytes_of(self._path),
        )
        yield GaugeMetricFamily(
            "rlallocd_intercept_expires_timestamp_seconds",
            "Until when the plugin goes by the intercept file; 0 where there is none.",
            value=expires_s(self.config) or 0,
        )

    def _agent(self) -> Iterator[Metric]:
        """How the agent is, asked at most every _ASK_AGENT_EVERY_S, whoever asks us."""
        if time.monotonic() - self._asked_s > _ASK_AGENT_EVERY_S:
            self._agent_state = self._ask_agent()
            self._asked_s = time.monotonic()
        state = self._agent_state
        yield GaugeMetricFamily(
            "rlallocd_agent_up",
            "1 if the agent answered when last asked, within its deadline.",
            value=state is not None,
        )
        if state is None:
            return
        serves = GaugeMetricFamily(
            "rlallocd_agent_policy_info", "1, with the policy version that the agent serves.", labels=["version"]
        )
        serves.add_metric([state.policy_version], 1)
        yield serves
        yield GaugeMetricFamily(
            "rlallocd_agent_policy_unusable",
            "1 while the agent cannot serve the version in use and serves another one.",
            value=bool(state.problem),
        )
        yield GaugeMetricFamily(
            "rlallocd_agent_start_timestamp_seconds", "When the agent was started.", value=state.started_s
        )

    def _ask_agent(self) -> AgentState | None:
        """Ask the agent through a socket of this thread's own, no longer than a decision would wait."""
        try:
            with contextlib.closing(AgentClient.of(self.config.agent)) as client:
                return client.state()
        except (AgentUnavailable, ConfigError):  # no answer, or no keys any more
            return None

    def _policy(self) -> Iterator[Metric]:
        policies = PolicyStore(self.config.policy.directory)
        current = policies.current() or SHIPPED_NAME
        info = GaugeMetricFamily(
            "rlallocd_policy_info", "1, with the policy version that is in use.", labels=["version"]
        )
        info.add_metric([current], 1)
        yield info
        if current != SHIPPED_NAME:
            with contextlib.suppress(PolicyError):
                yield GaugeMetricFamily(
                    "rlallocd_policy_created_timestamp_seconds",
                    "When the version in use was trained; absent for the shipped one.",
                    value=policies.manifest(current).created_s,
                )
        with contextlib.suppress(PolicyError):
            changes = policies.promotions()
            counts = dict.fromkeys(_CHANGES, 0)
            for change in changes:
                counts["rollback" if change.undoes else "forced" if change.forced else "promotion"] += 1
            family = CounterMetricFamily(
                "rlallocd_policy_changes", "Changes of the policy in use, by their kind.", labels=["kind"]
            )
            for kind, count in counts.items():
                family.add_metric([kind], count)
            yield family
            yield GaugeMetricFamily(
                "rlallocd_policy_change_timestamp_seconds",
                "When the policy in use was last changed; 0 where it never was.",
                value=changes[-1].time_s if changes else 0,
            )

    def _training(self) -> Iterator[Metric]:
        last = read_last_training(self.config.policy.directory)
        yield GaugeMetricFamily(
            "rlallocd_training_last_end_timestamp_seconds",
            "When a training last ended without being stopped; 0 where none ever did.",
            value=last.ended_s if last is not None else 0,
        )
        yield GaugeMetricFamily(
            "rlallocd_training_last_success_timestamp_seconds",
            "When a training last ended without an error; 0 where none ever did.",
            value=last.succeeded_s or 0 if last is not None else 0,
        )
        came_to = None
        if last is not None and last.ended_s:
            came_to = "failed" if last.failed else "promoted" if last.promoted else "kept"
        results = GaugeMetricFamily(
            "rlallocd_training_last_result",
            "1 for what the last training came to: failed, the policy was kept, or a new one promoted.",
            labels=["result"],
        )
        for result in _RESULTS:
            results.add_metric([result], result == came_to)
        yield results

    def _room(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "rlallocd_filesystem_available_bytes",
            "Room for rlallocd in the file system of a directory of its.",
            labels=["directory"],
        )
        for name, directory in _directories(self.config).items():
            with contextlib.suppress(OSError):
                found = os.statvfs(directory)
                family.add_metric([name], found.f_bavail * found.f_frsize)
        yield family

    def _checks(self) -> Iterator[Metric]:
        """What the latest checks found; nothing before the first."""
        checks = self.checks
        if checks is None or not checks.done_s:
            return
        family = GaugeMetricFamily(
            "rlallocd_check_level",
            "What a check of rlalloc doctor found: 0 OK, 1 WARN, 2 FAIL.",
            labels=["check"],
        )
        for what, level in checks.levels.items():
            family.add_metric([what], level)
        yield family
        yield GaugeMetricFamily(
            "rlallocd_checks_timestamp_seconds", "When rlallocd last did these checks.", value=checks.done_s
        )


def _directories(config: Config) -> Mapping[str, Path]:
    """The directories that must have room, by what is in them; a database server has its own."""
    found = {"policies": config.policy.directory, "runtime": config.runtime_directory}
    url = sa.make_url(config.store.url)
    if url.get_backend_name() == "sqlite" and url.database:
        found["store"] = Path(url.database).parent
    return found


def _logged() -> Iterator[Metric]:
    counted = dict(COUNTED)
    lines = CounterMetricFamily(
        "rlallocd_log_messages", "Warnings and errors, also those that were held back.", labels=["level"]
    )
    repeats = CounterMetricFamily(
        "rlallocd_log_repeats",
        "Those that the log does not have, because they repeat a line of it.",
        labels=["level"],
    )
    for level in _LEVELS:
        held_back = counted.get((level, True), 0)
        lines.add_metric([level], counted.get((level, False), 0) + held_back)
        repeats.add_metric([level], held_back)
    yield lines
    yield repeats


def _bytes_of(path: Path) -> bytes | None:
    """What a file has; None where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None
