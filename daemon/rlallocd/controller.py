"""One cycle of rlallocd: one snapshot, finish what is open, decide what is new, collect what has ended."""

import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec

from rlalloc.config import Config
from rlalloc.errors import LeaseLost, RlallocError, StoreError
from rlalloc.history.earlier_reading import unread_s_at_start
from rlalloc.job import Mode
from rlalloc.run_times.model_files import FOLDER as MODELS
from rlalloc.store import Decision, Store
from rlallocd.cluster.unchecked_nodes import UncheckedNodes
from rlallocd.cycle_schedule import CycleReport
from rlallocd.decisions.agent_client import AgentClient
from rlallocd.decisions.decisions import Snapshot, decide, left_as_submitted
from rlallocd.decisions.redecision_rounds import RedecisionRounds
from rlallocd.knowledge.expected_run_times import ExpectedRunTimes, named_by
from rlallocd.knowledge.family_runs import FamilyRuns
from rlallocd.knowledge.kept_answers import FILE as KEPT_ANSWERS
from rlallocd.knowledge.kept_answers import KeptAnswers
from rlallocd.knowledge.known_usage import KnownUsage
from rlallocd.knowledge.site_predictor import SitePredictor
from rlallocd.knowledge.site_profiles import SiteProfiles
from rlallocd.metrics.metrics import Metrics
from rlallocd.outcomes.earlier_jobs import EarlierJobs
from rlallocd.outcomes.ended_job_collection import EndedJobCollection
from rlallocd.outcomes.kills_of_ours import KillsOfOurs
from rlallocd.outcomes.outcome_collection import OutcomeCollection
from rlallocd.process.daemon_state import FAILURES
from rlallocd.process.interval import Interval
from rlallocd.process.mode_in_force import config_in_force, why_not_enforce
from rlallocd.process.signals import Stopping
from rlallocd.process.switched_off import SiteSwitchInUse
from rlallocd.process.uptime import uptime_s
from rlallocd.slurm import (
    AccountingRecord,
    EndedJobs,
    JobRecord,
    Slurm,
    SlurmError,
)
from rlallocd.slurm_readings import SlurmReadings
from rlallocd.submissions.candidates import Candidate, find_candidates, find_deferred, is_left_to_decide
from rlallocd.submissions.decided_submissions import DecidedSubmissions
from rlallocd.submissions.intercept import RuntimeDirectoryError, withdraw_intercept, write_intercept
from rlallocd.submissions.job_tag import read_tag
from rlallocd.submissions.long_scripts import LongScripts
from rlallocd.transactions.left_alone import LeftAlone, OffRequests
from rlallocd.transactions.nice_decay import NiceDecay
from rlallocd.transactions.transactions import Applier
from rlallocd.transactions.waits_of_ours import WaitsOfOurs

_log = logging.getLogger(__name__)

_REMEMBER_DECIDED_FOR_S = 30 * 86400.0


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
        self.switch = SiteSwitchInUse(config.policy.directory, slurm.config.slurm_user)
        self.switch.look()
        self.config = config_in_force(config, slurm.config, switched_off=self.switch.off)
        self.counters: Counter[str] = Counter()
        self.metrics = Metrics(self.counters, slurm.calls, slurm.errors)
        slurm.time_calls(self.metrics.called_slurm)
        agent.took = self.metrics.asked_agent
        self._slurm = slurm
        self._store = store
        self._agent = agent
        self._progress = progress
        self._applier = Applier(slurm, store, self.counters, progress=progress, stopping=stopping)
        self._left_alone = LeftAlone(slurm, store, self._applier)
        self._waits = WaitsOfOurs(store, self._applier)
        self._decided = DecidedSubmissions(store.decided_jobs(time.time() - _REMEMBER_DECIDED_FOR_S))
        self._readings = SlurmReadings(slurm, self.counters, progress)
        self._ended_jobs = EndedJobCollection(store, self.counters)
        unread_s = unread_s_at_start(store.history, self.config, time.time())
        self._earlier_jobs = EarlierJobs(store, self.counters, unread_s)
        self._family_runs = FamilyRuns(store)
        self._profiles = SiteProfiles(self.counters)
        self._scripts = LongScripts(slurm, progress)
        self._redecision = RedecisionRounds(store, agent, self.counters, self._scripts.complete, progress=progress)
        named = named_by(config.history)
        kept = KeptAnswers(config.store.key_file.with_name(KEPT_ANSWERS), pseudonyms=config.history.pseudonymize)
        self._predictor = SitePredictor(store, config.policy.directory / MODELS, progress, config.trimming, kept)
        self._run_times = ExpectedRunTimes(self._predictor, store, self.counters, named)
        self._usage = KnownUsage(self._predictor, self.counters, named, lambda: self._family_runs.speeds.profiles)
        kills = KillsOfOurs(store, self._predictor.kills, self.counters, named)
        self._outcomes = OutcomeCollection(store, self.counters, kills)
        self._nice_decay = NiceDecay(slurm, store, self.counters, progress=progress)
        self._unchecked = UncheckedNodes()
        self._heartbeat = Interval()
        self._pending = 0
        self._failures = 0

    def cycle(self) -> CycleReport:
        """Do everything that is due. Failures of Slurm, the store and the system are logged and counted."""
        self.counters["cycles"] += 1
        self._readings.begin()
        began_s, processor_s = time.monotonic(), _processor_s()
        decided, failed = 0, False
        jobs: Sequence[JobRecord] = ()
        try:
            if self.switch.look():
                self._take_up_mode()
                self._beat()
            snapshot = self._snapshot()
            snapshot = msgspec.structs.replace(snapshot, jobs=self._left_alone.carry_out(snapshot.jobs))
            jobs = snapshot.jobs
            self._pending = sum(job.pending and read_tag(job.admin_comment) is not None for job in snapshot.jobs)
            decided = self._decide_and_apply(snapshot)
            self._redecide_and_apply(snapshot)
            self._beat()
            self._collect_outcomes(snapshot)
            if self._slurm.config.has_slurmdbd:
                self._collect_past_jobs(snapshot.taken_s)
            self._family_runs.read(self.config.history.every_s)
        except Stopping as err:
            _log.info("the cycle stopped early: %s", err)
        except SlurmError as err:
            failed = True
            self.counters["slurm_errors"] += 1
            _log.warning("Slurm failed, the next cycle tries again: %s", err)
        except LeaseLost as err:
            _log.warning("the cycle ended early: %s", err)
        except StoreError as err:
            self.counters["store_errors"] += 1
            _log.error("the store failed, jobs run as submitted: %s", err)
            self._go_on_without_store(jobs)
        except RuntimeDirectoryError as err:
            self.counters["runtime_directory_errors"] += 1
            _log.error("cannot renew the intercept file, jobs run as submitted: %s", err)
        except OSError as err:
            self.counters["system_errors"] += 1
            _log.exception("the cycle failed, jobs run as submitted: %s", err)
        except Exception as err:  # noqa: BLE001 (a fault of ours must not end the daemon again after each start)
            self.counters["internal_errors"] += 1
            _log.exception("the cycle failed because of an error in rlalloc, jobs run as submitted: %r", err)
        self.counters["unreadable_rows"] = self._store.unreadable
        failures = sum(self.counters[name] for name in FAILURES)
        self.metrics.cycled(took_s=time.monotonic() - began_s, now_s=time.time(), failed=failures > self._failures)
        self.switch.cycled(self.config.mode, self.config.grace_s, failed=failures > self._failures)
        self._failures = failures
        return CycleReport(
            began_s=began_s,
            decided=decided,
            calls=self._readings.calls,
            reading_s=self._readings.reading_s,
            processor_s=_processor_s() - processor_s,
            failed=failed,
            jobs_of_ours=self._pending > 0,
        )

    def reconfigure(self, config: Config) -> None:
        """Take up another configuration from the next cycle on; ``process.reload`` says which keys need a restart."""
        self._wanted = config
        self._take_up_mode()
        self._predictor.usage.rules = config.trimming
        self._heartbeat.expire()
        self._readings.forget_partitions()
        self._slurm.set_command_timeout(config.slurm.command_timeout_s)
        self._slurm.forget_limits()

    @property
    def off_requests(self) -> OffRequests:
        """Where users' requests to leave a job alone go."""
        return self._left_alone.requests

    @property
    def mode_reason(self) -> str:
        """Why the mode in force is not the configuration's; empty where it is."""
        return self.switch.reason or why_not_enforce(self._wanted, self._slurm.config)

    def stop(self) -> None:
        """Leave the cluster clean: intercept no more, let deferred jobs go at once, and give nices back."""
        try:
            withdraw_intercept(self.config)
            jobs = self._decided.as_first_submitted(self._slurm.jobs())
            self._let_go(self._deferred_without_update(jobs), "rlallocd stops")
            self._nice_decay.give_back(jobs, time.time())
        except Exception as err:  # noqa: BLE001 (whatever is wrong, what follows is still to be done)
            _log.warning(
                "cannot let deferred jobs go, they begin by themselves within %d s: %s",
                self.config.grace_s,
                err,
                exc_info=None if isinstance(err, RlallocError) else err,
            )
        self.keep_learned()

    def keep_learned(self) -> None:
        """Write what is only in memory, for the next controller."""
        self._predictor.keep()

    def _decide_and_apply(self, snapshot: Snapshot) -> int:
        opened = self._store.open_applications()
        self.metrics.looked_at(
            self.config.mode, taken_s=snapshot.taken_s, pending=self._pending, unfinished=len(opened)
        )
        # A job that waits when rlalloc is switched off gets a decision, so that `rlalloc explain` tells who did it.
        but_for_switch = config_in_force(self._wanted, self._slurm.config)
        deferred = find_deferred(snapshot.jobs, snapshot.taken_s)
        self.metrics.waiting(deferred, snapshot.taken_s, self.config.grace_s)
        self._applier.finish(opened)
        unfinished = {each.job_id for each in opened}
        self._let_go(
            [
                job
                for job in deferred
                if job.job_id not in unfinished and not is_left_to_decide(job, but_for_switch, self._decided)
            ],
            "there is nothing to decide for them any more",
        )
        self._waits.give_back(snapshot, self.config.redecision.every_s)
        candidates = find_candidates(snapshot.jobs, but_for_switch, self._decided)
        if not candidates:
            return 0
        known = ("", self.config.word_table.stamp)
        self.counters["stale_tables"] += sum(candidate.tag.table not in known for candidate in candidates)
        asked_s = time.monotonic()
        decided = self._decide(candidates, snapshot)
        self.metrics.decision_s.observe(time.monotonic() - asked_s)
        self._record(decided)
        self._decided.update({candidate.key: candidate.job.user for candidate, _ in decided})
        self.counters.update(f"decided_{_kind(decision.mode, decision.reason)}" for _, decision in decided)
        self._applier.apply(decided, snapshot.read_s, snapshot.new_jobs)
        done_s = time.time()
        waited = [candidate.job for candidate, _ in decided if candidate.deferred_by_us]
        for job in waited:
            self.metrics.begin_s.observe(max(0.0, done_s - job.submitted_s))
        if self.switch.off:
            self.switch.let_go(len(waited))
        return len(decided)

    def _decide(self, candidates: Sequence[Candidate], snapshot: Snapshot) -> Sequence[tuple[Candidate, Decision]]:
        if self.switch.off:
            why = self.switch.skip_reason
            return [(each, left_as_submitted(each, snapshot, why)) for each in candidates]
        complete = self._scripts.complete(candidates, self.config)
        return self._left_alone.naming_who(decide(complete, snapshot, self.config, self._agent, self._progress))

    def _go_on_without_store(self, jobs: Sequence[JobRecord]) -> None:
        """While the store fails: finish updates that are under way, and let all other jobs go at once, as submitted.

        ``jobs`` are those of the cycle's begin: some of them may have been let go since, and are not again.
        """
        try:
            self._applier.finish_without_store()
            if self._deferred_without_update(jobs):
                self._let_go(self._deferred_without_update(self._readings.jobs()), "the store failed")
        except SlurmError as err:
            self.counters["slurm_errors"] += 1
            _log.warning("Slurm failed, the next cycle tries again: %s", err)
        except LeaseLost as err:  # it could not be renewed
            _log.warning("the cycle ended early: %s", err)
        except Exception as err:  # noqa: BLE001 (as in a cycle)
            self.counters["internal_errors"] += 1
            _log.exception("the cycle failed because of an error in rlalloc, jobs run as submitted: %r", err)

    def _deferred_without_update(self, jobs: Sequence[JobRecord]) -> list[JobRecord]:
        """Jobs that still wait for us though no update of them is open: they are as submitted."""
        unfinished = self._applier.open_jobs
        return [job for job in find_deferred(jobs, time.time()) if job.base_id not in unfinished]

    def _let_go(self, deferred: Sequence[JobRecord], why: str) -> None:
        if deferred:
            self._applier.let_go(deferred)
            _log.info("let %d deferred jobs go as they are: %s", len(deferred), why)

    def _redecide_and_apply(self, snapshot: Snapshot) -> None:
        decided = self._redecision.decide(snapshot, self.config)
        self._record(decided)
        self._applier.apply(decided, snapshot.read_s)
        open_jobs = {decision.job_id for _, decision in decided}
        self._nice_decay.decay(snapshot.jobs, self.config, snapshot.taken_s, open_jobs)

    def _record(self, decided: Sequence[tuple[Candidate, Decision]]) -> None:
        self._store.add_decisions([decision for _, decision in decided])
        self._waits.forget([candidate.key for candidate, _ in decided])
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
        if self._readings.renew_partitions():
            self._take_up_mode()
        read_s = uptime_s()
        jobs = self._decided.as_first_submitted(self._readings.jobs())
        nodes = self._readings.nodes_beside(jobs)
        config = self._slurm.config
        snapshot = Snapshot(
            taken_s=now_s,
            jobs=jobs,
            nodes=nodes,
            partitions=self._readings.partitions,
            limits=self._readings.limits(jobs, self._decided),
            memory_limits=(config.max_mem_mib_per_node, config.max_mem_mib_per_cpu),
            run_times=self._run_times.of(jobs, now_s),
            usage=self._usage,
            speeds=self._family_runs.speeds,
            unchecked=self._unchecked.among(nodes, self.config),
            scheduling=config.scheduling,
            gpu_defaults=config.gpu_defaults,
            read_s=read_s,
            new_jobs=self._readings.new_jobs,
        )
        self.metrics.snapshot_s.observe(self._readings.reading_s)
        return snapshot

    def _take_up_mode(self) -> None:
        """Enforce only where the site can; it is asked with the partitions."""
        before = self.config.mode
        self.config = config_in_force(self._wanted, self._slurm.config, switched_off=self.switch.off)
        if self.config.mode != before:
            self._heartbeat.expire()
        if (reason := why_not_enforce(self._wanted, self._slurm.config)) and not self.switch.off:
            _log.warning("not enforcing: %s", reason)

    def _collect_outcomes(self, snapshot: Snapshot) -> None:
        def queued() -> Collection[tuple[int, int]]:
            return {(job.base_id, job.submitted_s) for job in snapshot.jobs if job.pending or job.running}

        self._outcomes.collect(queued, self.config, self._accounting)

    def _accounting(self, job_ids: Sequence[int], since_s: float) -> Sequence[AccountingRecord]:
        """Sacct's records; none without slurmdbd.

        Its calls count in the budget; its time does not, for slurmctld has no part in it.
        """
        if not self._slurm.config.has_slurmdbd:
            return ()
        return self._readings.counted(partial(self._slurm.accounting, job_ids, since_s))

    def _collect_past_jobs(self, now_s: float) -> None:
        """Collect newly ended jobs; if none are left, those that ended before the first start."""
        self._ended_jobs.collect(self._ask_for_ended_jobs, self.config, now_s)
        ask = self._slurm.earlier_ended_jobs
        if self._ended_jobs.caught_up and self._earlier_jobs.collect(ask, self.config, now_s):
            self._predictor.begin_again()
        self.metrics.history_unread_seconds.set(self._earlier_jobs.unread_s)
        self._run_times.take_up_older(now_s)

    def _ask_for_ended_jobs(self, since_s: float, until_s: float) -> EndedJobs:
        return self._readings.counted(partial(self._slurm.ended_jobs, since_s, until_s))

    def _beat(self) -> None:
        """Renew the intercept file: without a successful cycle the plugin stops deferring jobs."""
        if self._heartbeat.passed(self.config.daemon.heartbeat_s):
            write_intercept(self.config, self._slurm.capabilities.skipped_forms)
            self._heartbeat.restart()


def _processor_s() -> float:
    """Processor time [s] so far of this process and of the commands that it ran."""
    commands = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + commands.ru_utime + commands.ru_stime


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
