"""The site's predictor of run times: what like jobs did lately, and the newest model that the trainer made."""

import logging
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
from rlallocd.interval import Interval

_log = logging.getLogger(__name__)

PAST_S: Final = 90 * 86_400.0
"""Of what ended longer ago, only a model knows."""
_READ_EVERY_S: Final = 60.0
_BEGIN_AGAIN_EVERY_S: Final = 86_400.0
"""What was imported meanwhile, and a model that was trained in the night, are taken up then."""
MOST_A_LOOK: Final = 5_000
"""Past jobs that one look reads: it delays the cycle by about a second. The next cycle goes on."""
_STEP: Final = 1000


class SitePredictor:
    """Reads past jobs from the store as they come in, and answers by them and by the newest model.

    ``models`` is the folder with the trainer's models. ``progress`` is called while many past jobs are read.
    ``usage`` is what past jobs used; ``kills`` hears of them, too, and its owner adds the kills to it.
    """

    def __init__(
        self,
        store: Store,
        models: Path,
        progress: Callable[[], None] = lambda: None,
        rules: TrimmingSection = DEFAULT_RULES,
    ) -> None:
        self.usage = PastUsage(rules)
        self.kills = FamilyKills()
        self._store = store
        self._models = models
        self._progress = progress
        self._predictor = RunTimePredictor(RecentRuns())
        self._until_s = 0.0
        self._at_end: set[tuple[str, float]] = set()
        self._running: set[str] = set()
        self._read = Interval()
        self._begun = Interval()

    def estimate(self, jobs: Sequence[JobFacts], now_s: float) -> Sequence[RunTimeEstimate | None]:
        """Return an estimate for each job; None as long as nothing has been learned. Raises StoreError."""
        if self._begun.passed(_BEGIN_AGAIN_EVERY_S):
            self._begin_again(now_s)
        if self._read.passed(_READ_EVERY_S) and self._catch_up():
            self._read.restart()
        if jobs and self._predictor.model is None and self._predictor.recent.group("site", jobs[0]) is None:
            return [None] * len(jobs)
        return self._predictor.estimate(jobs, now_s)

    def runs(self, job_id: str, facts: JobFacts, started_s: float) -> None:
        """Note that a job runs, or a task of an array under its own id; more than once is as good as once."""
        if job_id not in self._running:
            self._running.add(job_id)
            self._predictor.recent.started(job_id, facts, started_s)

    def still_running(self, job_ids: Collection[str]) -> None:
        """Note that of those that ran, only these run on."""
        for job_id in self._running.difference(job_ids):
            self._running.discard(job_id)
            self._predictor.recent.left(job_id)

    def _begin_again(self, now_s: float) -> None:
        self._begun.restart()
        self._predictor = RunTimePredictor(RecentRuns(), newest_model(self._models))
        self.usage = PastUsage(self.usage.rules)
        self._until_s = now_s - PAST_S
        self._at_end, self._running = set(), set()
        self._read.expire()

    def _catch_up(self) -> bool:
        """Add jobs that have ended since the last look; those of its last second may come later than it.

        Returns whether these were all.
        """
        added = 0
        for number, job in enumerate(self._store.history.past_jobs(since_s=self._until_s)):
            if added == MOST_A_LOOK:
                return False
            key = job.job_id, job.submitted_s
            if job.ended_s > self._until_s:
                self._until_s, self._at_end = job.ended_s, set()
            if key not in self._at_end:
                self._at_end.add(key)
                self._predictor.recent.add(job)
                self.usage.add(job)
                self.kills.ended(job)
                self._running.discard(job.job_id)
                added += 1
            if number % _STEP == 0:
                self._progress()
        return True
