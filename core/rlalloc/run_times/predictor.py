"""Answers how long jobs will run, by the site's model where there is one."""

from collections.abc import Sequence

import numpy as np

from rlalloc.past_job import PastJob
from rlalloc.run_time import PAST_THE_LIMIT_S, RunTimeEstimate
from rlalloc.run_times.expert_mix import answers_of
from rlalloc.run_times.fallback import estimate_without_model
from rlalloc.run_times.given_answers import GivenAnswers
from rlalloc.run_times.job_facts import JobFacts
from rlalloc.run_times.recent_runs import RecentRuns, user_and_alike
from rlalloc.run_times.run_time_model import RunTimeModel, calibrated


class RunTimePredictor:
    """Quantiles of run times of pending jobs; its owner tells it of starts (``recent``) and of ends.

    Without a model, like jobs answer: of the user, the account, the class, the partition, the site; then a
    share of the limit.
    """

    def __init__(self, recent: RecentRuns, model: RunTimeModel | None = None) -> None:
        self.recent = recent
        self.model = model
        self.given = GivenAnswers()

    def goes_on_for(self, other: "RunTimePredictor") -> None:
        """Take over what another predictor answered, and what it learned from that."""
        self.given = other.given

    def ended(self, job: PastJob) -> None:
        """Note that a job ended; jobs are to be told in the order of their ends, and may be told again."""
        self.recent.add(job)
        self.given.ended(job)

    def estimate(self, jobs: Sequence[JobFacts], now_s: float) -> list[RunTimeEstimate]:
        """Return an estimate for each job, from what is known at ``now_s`` [s since the epoch]."""
        if not jobs:
            return []
        if self.model is None:
            return [within_limit(estimate_without_model(self.recent, facts), facts) for facts in jobs]
        features = self.recent.features(jobs, now_s)
        raw = self.model.raw(features)
        answers = answers_of(features, raw)
        shift = self.given.mix.shift([user_and_alike(facts) for facts in jobs], answers)
        log_s = calibrated(raw + shift[:, None], self.model.offsets)
        self.given.remember(jobs, answers)
        seconds = np.exp2(np.clip(log_s, 0.0, 40.0)).tolist()
        parts = self.model.offsets.remaining_parts
        return [
            within_limit(RunTimeEstimate(low, median, high, self._source(facts), parts), facts)
            for (low, median, high), facts in zip(seconds, jobs, strict=True)
        ]

    def _source(self, facts: JobFacts) -> str:
        of_user = self.recent.group("user", facts)
        return f"model of past jobs; {0 if of_user is None else of_user.runs} runs of this user"


def within_limit(estimate: RunTimeEstimate, facts: JobFacts) -> RunTimeEstimate:
    """Return an estimate that does not go beyond the job's limit, but for the time that Slurm takes to end it."""
    if facts.limit is None:
        return estimate
    most = facts.limit + PAST_THE_LIMIT_S
    if estimate.high_s <= most:
        return estimate
    low_s, median_s = min(estimate.low_s, most), min(estimate.median_s, most)
    return RunTimeEstimate(low_s, median_s, most, estimate.source, estimate.remaining_parts)
