"""One cycle of rlallocd: one snapshot, finish what is open, decide what is new, collect what has ended."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from rlalloc.config import Config
from rlalloc.errors import PluginError, RlallocError, StoreError
from rlalloc.job import Mode
from rlalloc.run_times.model_files import FOLDER as MODELS
from rlalloc.store import Application, Decision, Position, Store
from rlallocd.agent_client import AgentClient
from rlallocd.candidates import Candidate, find_candidates, find_deferred, is_left_to_decide
from rlallocd.cycle_schedule import CycleReport
from rlallocd.decisions import Snapshot, decide
from rlallocd.ended_job_collection import EndedJobCollection
from rlallocd.expected_run_times import ExpectedRunTimes, named_by
from rlallocd.family_runs import FamilyRuns
from rlallocd.intercept import RuntimeDirectoryError, withdraw_intercept, write_intercept
from rlallocd.interval import Interval
from rlallocd.job_tag import read_tag
from rlallocd.limits import is_of_a_size, may_be_ours
from rlallocd.metrics import Metrics
from rlallocd.mode_in_force import config_in_force, why_not_enforce
from rlallocd.nice_decay import NiceDecay
from rlallocd.outcomes import outcomes_of
from rlallocd.redecision_rounds import RedecisionRounds
from rlallocd.retention import Retention
from rlallocd.signals import Stopping
from rlallocd.site_predictor import SitePredictor
from rlallocd.site_profiles import SiteProfiles
from rlallocd.slurm import (
    JOBS_PER_CALL,
    AccountingRecord,
    EndedJobs,
    JobRecord,
    NodeRecord,
    PartitionRecord,
    SiteLimits,
    Slurm,
    SlurmError,
)
from rlallocd.transactions import Applier

_log = logging.getLogger(__name__)

_Read = TypeVar("_Read")
_WATCH_LIMITS_FOR_S: Final = 3600.0
_PARTITIONS_EVERY_S: Final = 60.0
_NODES_EVERY_S: Final = 15.0
"""Every snapshot shows jobs that start and end, and then nodes are read again. Without such a change they are read
after this time, for nodes that go down; while one is down, in each cycle."""
_REMEMBER_DECIDED_FOR_S = 30 * 86400.0
_WAIT_FOR_OUTCOMES_FOR_S = 90 * 86400.0
"""rlalloc no longer asks for a job that slurmdbd does not report as ended by then (because it was purged, say)."""


class Controller:
    """Everything that one cycle does, and what it counts."""

    def __init__(
        self,
        config: Config,
        slurm: Slurm,
        store: Store,
        agent: AgentClient,
        *,
        progress: Callable[[], None] = lambda: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """``progress`` is called after each step of a cycle. Where ``stopping`` says so, no more jobs are touched."""
        self._wanted = config
        self.config = config_in_force(config, slurm.config)
        self.counters: Counter[str] = Counter()
        self.metrics = Metrics(self.counters, slurm.calls, slurm.errors)
        self._slurm = slurm
        self._store = store
        self._agent = agent
        self._progress = progress
        self._applier = Applier(slurm, store, self.counters, progress=progress, stopping=stopping)
        self._decided = set(store.decided_jobs(time.time() - _REMEMBER_DECIDED_FOR_S))
        self._partitions: dict[str, PartitionRecord] = {}
        self._partitions_read = Interval()
        self._nodes: tuple[NodeRecord, ...] = ()
        self._nodes_read = Interval()
        self._holding: frozenset[tuple[int, int, str]] = frozenset()
        self._outcomes_read = Interval()
        self._outcomes_after: Position | None = None
        self._retention = Retention(store, self.counters)
        self._ended_jobs = EndedJobCollection(store, self.counters)
        self._family_runs = FamilyRuns(store)
        self._profiles = SiteProfiles(self.counters)
        self._redecision = RedecisionRounds(store, agent, self.counters)
        predictor = SitePredictor(store, config.policy.directory / MODELS, progress)
        self._run_times = ExpectedRunTimes(predictor, store, self.counters, named_by(config.history))
        self._nice_decay = NiceDecay(slurm, store, self.counters, progress=progress)
        self._heartbeat = Interval()
        self._pending = 0
        self._calls = 0
        self._reading_s = 0.0

    def cycle(self) -> CycleReport:
        """Do everything that is due. Failures of Slurm, the store and the system are logged and counted."""
        self.counters["cycles"] += 1
        self._calls, self._reading_s = 0, 0.0
        began_s = time.monotonic()
        decided, failed = 0, False
        try:
            snapshot = self._snapshot()
            self._pending = sum(job.pending and read_tag(job.admin_comment) is not None for job in snapshot.jobs)
            decided = self._decide_and_apply(snapshot)
            self._redecide_and_apply(snapshot)
            self._beat()
            self._collect_outcomes(snapshot)
            self._ended_jobs.collect(self._ask_for_ended_jobs, self.config, snapshot.taken_s)
            self._family_runs.read(self.config.history.every_s)
        except Stopping as err:
            _log.info("the cycle stopped early: %s", err)
        except SlurmError as err:
            failed = True
            self.counters["slurm_errors"] += 1
            _log.warning("Slurm failed, the next cycle tries again: %s", err)
        except StoreError as err:
            self.counters["store_errors"] += 1
            _log.error("the store failed, jobs run as submitted: %s", err)
        except RuntimeDirectoryError as err:
            self.counters["runtime_directory_errors"] += 1
            _log.error("cannot renew the intercept file, jobs run as submitted: %s", err)
        except OSError as err:
            self.counters["system_errors"] += 1
            _log.exception("the cycle failed, jobs run as submitted: %s", err)
        self.counters["unreadable_rows"] = self._store.unreadable
        self.metrics.cycle_s.observe(time.monotonic() - began_s)
        return CycleReport(
            began_s=began_s,
            decided=decided,
            calls=self._calls,
            reading_s=self._reading_s,
            failed=failed,
            jobs_of_ours=self._pending > 0,
        )

    def reconfigure(self, config: Config) -> None:
        """Take up another configuration from the next cycle on; rlallocd.reload says which keys need a restart."""
        self._wanted = config
        self._take_up_mode()
        self._heartbeat.expire()
        self._partitions_read.expire()
        self._slurm.set_command_timeout(config.slurm.command_timeout_s)
        self._slurm.forget_limits()

    @property
    def mode_reason(self) -> str:
        """Why the mode in force is not the configuration's; empty where it is."""
        return why_not_enforce(self._wanted, self._slurm.config)

    def stop(self) -> None:
        """Leave the cluster clean: intercept no more, let deferred jobs go at once, and give nices back."""
        try:
            withdraw_intercept(self.config)
            jobs = self._slurm.jobs()
            self._let_go(
                [
                    job
                    for job in find_deferred(jobs, time.time())
                    if (job.base_id, job.submitted_s) not in self._decided
                ],
                "rlallocd stops",
            )
            self._nice_decay.give_back(jobs, time.time())
        except (RlallocError, OSError) as err:
            _log.warning(
                "cannot let deferred jobs go, they begin by themselves within %d s: %s", self.config.grace_s, err
            )

    def _decide_and_apply(self, snapshot: Snapshot) -> int:
        jobs = {job.job_id: job for job in snapshot.jobs}
        opened = self._store.open_applications()
        self.metrics.looked_at(
            self.config.mode, taken_s=snapshot.taken_s, pending=self._pending, unfinished=len(opened)
        )
        self._applier.finish(opened)
        unfinished = {each.job_id for each in opened}
        self._let_go(
            [
                job
                for job in find_deferred(snapshot.jobs, snapshot.taken_s)
                if job.job_id not in unfinished and not is_left_to_decide(job, self.config, self._decided)
            ],
            "there is nothing to decide for them any more",
        )
        if any(job.pending and is_of_a_size(job.reason) for job in snapshot.jobs):
            begun = self._store.begun_since(snapshot.taken_s - _WATCH_LIMITS_FOR_S)
            self._applier.undo_limited([each for each in begun if _may_wait_for_us(each, jobs)], jobs)
        candidates = find_candidates(snapshot.jobs, self.config, self._decided)
        if not candidates:
            return 0
        asked_s = time.monotonic()
        decided = decide(candidates, snapshot, self.config, self._agent, self._progress)
        self.metrics.decision_s.observe(time.monotonic() - asked_s)
        self._record(decided)
        self._decided.update(candidate.key for candidate, _ in decided)
        self.counters.update(f"decided_{_kind(decision.mode, decision.reason)}" for _, decision in decided)
        self._applier.apply(decided)
        done_s = time.time()
        for candidate, _ in decided:
            if candidate.deferred_by_us:
                self.metrics.begin_s.observe(max(0.0, done_s - candidate.job.submitted_s))
        return len(decided)

    def _let_go(self, deferred: Sequence[JobRecord], why: str) -> None:
        if deferred:
            self._applier.let_go(deferred)
            _log.info("let %d deferred jobs go as they are: %s", len(deferred), why)

    def _redecide_and_apply(self, snapshot: Snapshot) -> None:
        decided = self._redecision.decide(snapshot, self.config)
        self._record(decided)
        self._applier.apply(decided)
        open_jobs = {decision.job_id for _, decision in decided}
        self._nice_decay.decay(snapshot.jobs, self.config, snapshot.taken_s, open_jobs)

    def _record(self, decided: Sequence[tuple[Candidate, Decision]]) -> None:
        self._store.add_decisions([decision for _, decision in decided])
        for _, decision in decided:
            if decision.skip_code:
                self.counters[f"skipped_{decision.skip_code}"] += 1
            _log.info(
                "job %d, %s: %s",
                decision.job_id,
                decision.mode,
                _what(decision),
                extra={
                    "job_id": decision.job_id,
                    "decision_id": decision.id,
                    "policy_version": decision.policy_version or "-",
                    "skip_code": decision.skip_code or "-",
                },
            )

    def _snapshot(self) -> Snapshot:
        """Everything that this cycle knows of the cluster: one call for the jobs, and rarely others."""
        now_s = time.time()
        self._profiles.read_into(self._family_runs.speeds, self.config)
        if self._partitions_read.passed(_PARTITIONS_EVERY_S):
            self._partitions = self._read(self._slurm.partitions)
            self._partitions_read.restart()
            self._take_up_mode()
        jobs = self._read(self._slurm.jobs)
        config = self._slurm.config
        snapshot = Snapshot(
            taken_s=now_s,
            jobs=jobs,
            nodes=self._nodes_beside(jobs),
            partitions=self._partitions,
            limits=self._limits(jobs),
            memory_limits=(config.max_mem_mib_per_node, config.max_mem_mib_per_cpu),
            run_times=self._run_times.of(jobs, now_s),
            speeds=self._family_runs.speeds,
        )
        self.metrics.snapshot_s.observe(self._reading_s)
        return snapshot

    def _take_up_mode(self) -> None:
        """Enforce only where the site can; it is asked with the partitions."""
        before, self.config = self.config.mode, config_in_force(self._wanted, self._slurm.config)
        if self.config.mode != before:
            self._heartbeat.expire()
        if self.mode_reason:
            _log.warning("not enforcing: %s", self.mode_reason)

    def _nodes_beside(self, jobs: tuple[JobRecord, ...]) -> tuple[NodeRecord, ...]:
        """The nodes as last read, or read again where a job has started or ended since."""
        holding = frozenset((job.job_id, job.started_s, job.state) for job in jobs if job.running)
        old = self._nodes_read.passed(_NODES_EVERY_S) or not all(node.usable for node in self._nodes)
        if old or holding != self._holding:
            self._nodes = self._read(self._slurm.nodes)
            self._nodes_read.restart()
            self._holding = holding
        return self._nodes

    def _read(self, read: Callable[[], _Read]) -> _Read:
        """Read from slurmctld: the calls count in the budget, the time in the share for readings."""
        asked_s = time.monotonic()
        try:
            return self._counted(read)
        finally:
            self._reading_s += time.monotonic() - asked_s

    def _counted(self, read: Callable[[], _Read]) -> _Read:
        """Count the calls of a reading: those of Slurm's commands, or one for pyslurm."""
        before = sum(self._slurm.calls.values())
        try:
            return read()
        finally:
            self._calls += max(1, sum(self._slurm.calls.values()) - before)
            self._progress()

    def _limits(self, jobs: Sequence[JobRecord]) -> SiteLimits | None:
        """The limits of the users whose jobs we decide; None, and no job is changed, if they cannot be read."""
        users = {
            job.user
            for job in jobs
            if (job.pending or (job.running and (job.job_id, job.submitted_s) not in self._decided))
            and read_tag(job.admin_comment)
        }
        if not users:
            return None
        try:
            return self._read(lambda: self._slurm.limits(sorted(users)))
        except SlurmError as err:
            self.counters["limits_unread"] += 1
            _log.warning("cannot read limits, jobs run as submitted: %s", err)
            return None

    def _collect_outcomes(self, snapshot: Snapshot) -> None:
        """Every ``outcomes_every_s``: ask sacct what became of jobs that left the queue, and forget old decisions."""
        if not self._outcomes_read.passed(self.config.daemon.outcomes_every_s):
            return
        self._outcomes_read.restart()
        queued = {(job.base_id, job.submitted_s) for job in snapshot.jobs if job.pending or job.running}
        now_s = time.time()
        self._retention.drop_old(self.config.store, now_s, queued)
        page = self._store.jobs_without_outcome(
            now_s - _WAIT_FOR_OUTCOMES_FOR_S, besides=queued, after=self._outcomes_after
        )
        self._outcomes_after = page.after
        histories = self._store.histories(page.jobs)
        if not histories:
            return
        records = self._accounting(
            sorted({job_id for job_id, _ in histories}), min(submitted_s for _, submitted_s in histories)
        )
        outcomes = outcomes_of(histories.values(), records, self.config.objective, self._plugin_failed)
        self._store.add_outcomes(outcomes)
        self.counters.update(f"outcomes_{outcome.state}" for outcome in outcomes)

    def _accounting(self, job_ids: Sequence[int], since_s: float) -> list[AccountingRecord]:
        """Sacct's records. Its calls count in the budget; its time does not, for slurmctld has no part in it."""
        records: list[AccountingRecord] = []
        for first in range(0, len(job_ids), JOBS_PER_CALL):
            some = job_ids[first : first + JOBS_PER_CALL]
            records += self._counted(partial(self._slurm.accounting, some, since_s))
        return records

    def _ask_for_ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        return self._counted(partial(self._slurm.ended_jobs, since_s, until_s))

    def _plugin_failed(self, err: PluginError) -> None:
        self.counters["plugin_errors"] += 1
        _log.error("cannot compute the reward of outcomes: %s", err)

    def _beat(self) -> None:
        """Renew the intercept file: without a successful cycle the plugin stops deferring jobs."""
        if self._heartbeat.passed(self.config.daemon.heartbeat_s):
            write_intercept(self.config, self._slurm.capabilities.skipped_forms)
            self._heartbeat.restart()


def _may_wait_for_us(application: Application, jobs: Mapping[int, JobRecord]) -> bool:
    job = jobs.get(application.job_id)
    return job is not None and may_be_ours(job.reason, application.original, application.intended)


def _what(decision: Decision) -> str:
    """A decision in one line of the log."""
    if decision.allocation is None:
        return f"skipped: {decision.reason}"
    size = decision.allocation.describe()
    if decision.predicted_gain is not None:
        return f"{size}, decided again while pending, expected to save {decision.predicted_gain:.0%}"
    return size + (f", nice +{decision.nice}" if decision.nice else "")


def _kind(mode: Mode, reason: str) -> str:
    return "skipped" if reason else mode
