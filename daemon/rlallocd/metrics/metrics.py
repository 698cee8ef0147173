"""The metrics that rlallocd serves to Prometheus; each is described in docs/reference/metrics.md."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as PlainCounter
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rlalloc.job import MODES, Mode
from rlalloc.usage.family_kills import Cause
from rlallocd.slurm import JobRecord

_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
_CALL_SECONDS: Final = (0.002, 0.005, 0.01, 0.02, *_SECONDS)

_PLAIN: Final = {
    "cycles": ("rlallocd_cycles", "Cycles of the loop."),
    "store_errors": ("rlallocd_store_errors", "Cycles that failed because the store failed."),
    "dropped_decisions": ("rlallocd_dropped_decisions", "Decisions that were deleted because of their age."),
    "past_jobs": ("rlallocd_past_jobs", "Jobs of the site that were added to the history when they had ended."),
    "history_errors": ("rlallocd_history_errors", "Attempts to add past jobs that failed and are made again."),
    "dropped_past_jobs": ("rlallocd_dropped_past_jobs", "Past jobs that were deleted because of their age."),
    "unreadable_rows": (
        "rlallocd_unreadable_rows",
        "Rows of the store that were skipped because they cannot be read.",
    ),
    "runtime_directory_errors": ("rlallocd_intercept_errors", "Cycles that could not renew the intercept file."),
    "system_errors": (
        "rlallocd_system_errors",
        "Cycles that failed because the operating system refused something; the log names it.",
    ),
    "internal_errors": (
        "rlallocd_internal_errors",
        "Cycles that failed because of an error in rlalloc; the log has the traceback.",
    ),
    "run_times_unknown": (
        "rlallocd_run_times_unknown",
        "Jobs of which only the time limit is known, because their run times could not be estimated.",
    ),
    "profiles_left_out": (
        "rlallocd_profiles_left_out",
        "Profiles of speeds that were left out because they cannot be read.",
    ),
    "usage_unknown": (
        "rlallocd_usage_unknown",
        "Decisions without what like jobs used, because that could not be found out.",
    ),
    "plugin_errors": ("rlallocd_plugin_errors", "Outcomes without a reward because a term of a plug-in failed."),
    "limits_unread": ("rlallocd_limits_unread", "Cycles that could not read the limits: no job was changed."),
    "licenses_unread": (
        "rlallocd_licenses_unread",
        "Cycles in which the licences were unknown: no job that asks for licences was changed.",
    ),
    "stale_tables": (
        "rlallocd_stale_tables",
        "Jobs whose scripts the plugin read with another table of words than rlallocd.",
    ),
    "slurm_errors": (
        "rlallocd_failed_cycles",
        "Cycles that failed because Slurm did not answer or could not be read.",
    ),
}
"""Key of the controller's counters: metric and its meaning."""
_LABELLED: Final[Mapping[str, tuple[str, str, tuple[str, ...], str]]] = {
    "decided": (
        "rlallocd_decided",
        "mode",
        ("enforce", "shadow", "skipped"),
        "Jobs decided, by mode; skipped: they keep their requests, for a reason.",
    ),
    "skipped": (
        "rlallocd_skipped",
        "code",
        ("late", "limit", "no-agent"),
        "Jobs that keep their requests, by the code of the reason.",
    ),
    "applications": (
        "rlallocd_applications",
        "state",
        ("begun", "gone", "left", "lost", "restored"),
        "Updates that are finished, by their final state.",
    ),
    "outcomes": ("rlallocd_outcomes", "state", (), "Decided jobs that have ended, by the state that sacct reports."),
    "our_doing": (
        "rlallocd_ends_of_our_doing",
        "cause",
        get_args(Cause),
        "Jobs that were killed, or ran out of a GPU's memory, in a size smaller than they asked for.",
    ),
    "redecision": (
        "rlallocd_redecision",
        "step",
        ("asked", "unanswered", "updated"),
        "Pending jobs asked about again, updated; rounds unanswered.",
    ),
    "nice_decay": (
        "rlallocd_nice_decay",
        "step",
        ("lowered", "stuck"),
        "Nices lowered, and those that stay though they were lowered.",
    ),
}
"""The first part of a key (``skipped`` of ``skipped_deadline``): metric, its label, values that are served from the
start (for Prometheus, a series that begins with one has not increased), its meaning."""


class Metrics:
    """All metrics of one daemon. ``counters`` are the controller's; the others are Slurm's commands, by command."""

    def __init__(
        self, counters: Mapping[str, int], slurm_calls: Mapping[str, int], slurm_errors: Mapping[str, int]
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Counters(counters, slurm_calls, slurm_errors))
        self.cycle_s = self._histogram("rlallocd_cycle_seconds", "One cycle, from its snapshot to its last call.")
        self.snapshot_s = self._histogram("rlallocd_snapshot_seconds", "Reading jobs, nodes and partitions.")
        self.decision_s = self._histogram("rlallocd_decision_seconds", "Views, the agent's answer and allocations.")
        self.begin_s = self._histogram("rlallocd_begin_seconds", "From a job's submission until it was let go.")
        self.agent_s = self._histogram(
            "rlallocd_agent_request_seconds", "A question for shares to the agent, however it ended.", _CALL_SECONDS
        )
        self.agent_failures = PlainCounter(
            "rlallocd_agent_failures",
            "Questions for shares that the agent did not answer in time, or refused.",
            registry=self.registry,
        )
        self.slurm_call_s = Histogram(
            "rlallocd_slurm_call_seconds",
            "One call of a command of Slurm's, however it ended.",
            ["command"],
            buckets=_CALL_SECONDS,
            registry=self.registry,
        )
        self._last_cycle = self._gauge("rlallocd_last_cycle_timestamp_seconds", "When the last cycle ended.")
        self._last_success = self._gauge(
            "rlallocd_last_success_timestamp_seconds", "When the last cycle without a failure ended."
        )
        self._deferred = self._gauge(
            "rlallocd_deferred_jobs", "Pending jobs that still wait for rlallocd, when last read."
        )
        self._longest = self._gauge(
            "rlallocd_deferred_longest_wait_seconds", "How long the longest of them has waited since its submission."
        )
        self._grace = self._gauge(
            "rlallocd_grace_seconds", "After how long a job that waits for rlallocd begins by itself."
        )
        self._pending = self._gauge("rlallocd_pending_jobs", "Pending jobs with rlalloc's tag, when last read.")
        self._open = self._gauge("rlallocd_open_applications", "Updates that the latest cycle found unfinished.")
        self._taken = self._gauge("rlallocd_snapshot_timestamp_seconds", "When the queue was last read.")
        self.history_unread_seconds = self._gauge(
            "rlallocd_history_unread_seconds", "How much of the site's past is still to be read from sacct."
        )
        self._mode = Gauge(
            "rlallocd_mode", "1 for the mode in force, 0 for the others.", ["mode"], registry=self.registry
        )

    def cycled(self, *, took_s: float, now_s: float, failed: bool) -> None:
        """Note the end of a cycle of ``took_s`` seconds at ``now_s``."""
        self.cycle_s.observe(took_s)
        self._last_cycle.set(now_s)
        if not failed:
            self._last_success.set(now_s)

    def asked_agent(self, seconds: float, answered: bool) -> None:  # noqa: FBT001 (a callback of AgentClient)
        """Note a question for shares."""
        self.agent_s.observe(seconds)
        if not answered:
            self.agent_failures.inc()

    def called_slurm(self, command: str, seconds: float) -> None:
        """Note a call of one of Slurm's commands."""
        self.slurm_call_s.labels(command).observe(seconds)

    def waiting(self, deferred: Sequence[JobRecord], taken_s: float, grace_s: float) -> None:
        """Note which jobs still waited for us at ``taken_s``."""
        self._deferred.set(len(deferred))
        self._longest.set(max((0.0, *(taken_s - job.submitted_s for job in deferred))))
        self._grace.set(grace_s)

    def looked_at(self, mode: Mode, *, taken_s: float, pending: int, unfinished: int) -> None:
        """Note what the snapshot taken at ``taken_s`` showed."""
        self._pending.set(pending)
        self._open.set(unfinished)
        self._taken.set(taken_s)
        for each in MODES:
            self._mode.labels(each).set(each == mode)

    def _histogram(self, name: str, meaning: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(name, meaning, buckets=buckets, registry=self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, registry=self.registry)


class _Counters(Collector):
    """Counters as they are kept elsewhere, read when Prometheus asks."""

    def __init__(
        self, counters: Mapping[str, int], slurm_calls: Mapping[str, int], slurm_errors: Mapping[str, int]
    ) -> None:
        self._counters = counters
        self._slurm_calls = slurm_calls
        self._slurm_errors = slurm_errors

    def collect(self) -> Iterator[Metric]:
        counters = dict(self._counters)  # the loop's thread goes on counting
        for key, (name, meaning) in _PLAIN.items():
            yield CounterMetricFamily(name, meaning, value=counters.get(key, 0))
        for prefix, (name, label, known, meaning) in _LABELLED.items():
            start = f"{prefix}_"
            found = {key.removeprefix(start): count for key, count in counters.items() if key.startswith(start)}
            yield _family(name, label, meaning, (dict.fromkeys(known, 0) | found).items())
        yield _family(
            "rlallocd_slurm_calls", "command", "Calls of Slurm's commands.", dict(self._slurm_calls).items()
        )
        yield _family(
            "rlallocd_slurm_errors", "command", "Calls that failed or were refused.", dict(self._slurm_errors).items()
        )


def _family(name: str, label: str, meaning: str, counts: Iterable[tuple[str, int]]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, meaning, labels=[label])
    for value, count in counts:
        family.add_metric([value], count)
    return family
