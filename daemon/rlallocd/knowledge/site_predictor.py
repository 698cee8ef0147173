"""The site's predictor of run times: what like jobs did lately, and the newest model that the trainer made."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from rlalloc.run_time import RunTimeEstimate
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.model_files import newest_model
from rlalloc.run_times.predictor import RunTimePredictor
from rlalloc.run_times.recent_runs import RecentRuns
from rlalloc.store import Store
from rlalloc.usage.family_kills import FamilyKills
from rlalloc.usage.past_usage import PastUsage
from rlalloc.usage.trimming_rules import DEFAULT_RULES, TrimmingSection
from rlallocd.knowledge.kept_answers import KeptAnswers
from rlallocd.process.interval import Interval

PAST_S: Final = 90 * 86_400.0
"""Of what ended longer ago, only a model knows."""
_READ_EVERY_S: Final = 60.0
_BEGIN_AGAIN_EVERY_S: Final = 86_400.0
"""What was imported meanwhile, and a model that was trained in the night, are taken up then. Until all is read again,
what was known before holds."""
MOST_A_LOOK: Final = 3_000
"""Past jobs that one look reads: it delays the cycle by about a second. The next cycle goes on."""
_STEP: Final = 1000


class _Learned:
    """What past jobs said up to ``until_s``; of that second, those ``at_end``."""

    def __init__(self, predictor: RunTimePredictor, usage: PastUsage, until_s: float) -> None:
        self.predictor = predictor
        self.usage = usage
        self.until_s = until_s
        self.at_end: set[tuple[str, float]] = set()


class SitePredictor:
    """Reads past jobs from the store as they come in, and answers by them and by the newest model.

    ``models`` is the folder with the trainer's models. ``progress`` is called while many past jobs are read.
    ``usage`` is what past jobs used; ``kills`` hears of them, too, and its owner adds the kills to it. ``all_read``
    says whether all past jobs are known: the oldest are read first. ``kept`` keeps what was learned from answers
    across restarts.
    """

    def __init__(
        self,
        store: Store,
        models: Path,
        progress: Callable[[], None] = lambda: None,
        rules: TrimmingSection = DEFAULT_RULES,
        kept: KeptAnswers | None = None,
    ) -> None:
        self.kills = FamilyKills()
        self._store = store
        self._models = models
        self._progress = progress
        self._known = self._next = _Learned(RunTimePredictor(RecentRuns()), PastUsage(rules), 0.0)
        self._kept = kept
        if kept is not None:
            self._known.predictor.given = kept.read()
        self.all_read = False
        self._running: set[str] = set()
        self._older_came = self._reads_older = False
        self._read = Interval()
        self._begun = Interval()

    @property
    def usage(self) -> PastUsage:
        """What past jobs used."""
        return self._known.usage

    def learn(self, now_s: float) -> bool:
        """Read past jobs, and the newest model, where that is due; whether any are known. Raises StoreError."""
        if self._begun.passed(_BEGIN_AGAIN_EVERY_S):
            self._begin_again(now_s)
        if self._read.passed(_READ_EVERY_S) and self._catch_up(now_s):
            self._read.restart()
            self.all_read = True
            self._take_up()
            if self._kept is not None:
                self._kept.write_if_due(self._known.predictor.given)
        return self._known.predictor.model is not None or self._known.predictor.recent.groups > 0

    def begin_again(self) -> None:
        """Read all past jobs anew, as soon as the latest reading is done: older ones have come."""
        self._older_came = True

    def knows_older(self, now_s: float) -> bool:
        """Continue reading if older jobs have come. Returns whether they are known now. Raises StoreError."""
        if not (self._older_came or self._reads_older):
            return False
        reads_older = self._reads_older
        if self._older_came and self._is_up_to_date:
            self._begin_again(now_s)
        self.learn(now_s)
        if not reads_older or not self._is_up_to_date:
            return False
        self._reads_older = False
        return True

    @property
    def _is_up_to_date(self) -> bool:
        return self.all_read and self._next is self._known

    def keep(self) -> None:
        """Write what was learned from answers, for the next start."""
        if self._kept is not None:
            self._kept.write(self._known.predictor.given)

    def estimate(self, jobs: Sequence[JobFacts], now_s: float) -> Sequence[RunTimeEstimate]:
        """Return an estimate for each job, by what was learned."""
        return self._known.predictor.estimate(jobs, now_s)

    def runs(self, job_id: str, facts: JobFacts, started_s: float) -> None:
        """Note that a job runs, or a task of an array under its own id; more than once is as good as once."""
        if job_id not in self._running:
            self._running.add(job_id)
            self._known.predictor.recent.started(job_id, facts, started_s)

    def still_running(self, job_ids: Collection[str]) -> None:
        """Note that of those that ran, only these run on."""
        for job_id in self._running.difference(job_ids):
            self._running.discard(job_id)
            self._known.predictor.recent.left(job_id)

    def _begin_again(self, now_s: float) -> None:
        self._begun.restart()
        predictor = RunTimePredictor(RecentRuns(), newest_model(self._models))  # may raise: nothing is changed before
        predictor.goes_on_for(self._known.predictor)
        self._reads_older, self._older_came = self._reads_older or self._older_came, False
        self._next = _Learned(predictor, PastUsage(self.usage.rules), now_s - PAST_S)
        if not self.all_read:
            self._take_up()
        self._read.expire()

    def _take_up(self) -> None:
        """Answer by what is read now; who runs is noted there anew."""
        if self._next is not self._known:
            self._next.usage.rules = self.usage.rules
            self._known, self._running = self._next, set()

    def _catch_up(self, now_s: float) -> bool:
        """Add jobs that have ended since the last look; those of its last second may come later than it.

        One whose end lies ahead, by a log of another time zone say, is added then: it would hide all before it.
        Returns whether these were all.
        """
        added, learned = 0, self._next
        for number, job in enumerate(self._store.history.past_jobs(since_s=learned.until_s, until_s=now_s)):
            if added == MOST_A_LOOK:
                return False
            key = job.job_id, job.submitted_s
            if job.ended_s > learned.until_s:
                learned.until_s, learned.at_end = job.ended_s, set()
            if key not in learned.at_end:
                learned.at_end.add(key)
                learned.predictor.ended(job)
                learned.usage.add(job)
                self.kills.ended(job)
                if learned is self._known:
                    self._running.discard(job.job_id)
                added += 1
            if number % _STEP == 0:
                self._progress()
        return True
