"""What jobs that rlalloc decided tell of their families' speed: read from the store's past jobs as they end."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from rlalloc.history.pseudonyms import real_user
from rlalloc.past_job import PastJob
from rlalloc.speed.family_speeds import FamilySpeeds, SizedRun
from rlalloc.store import Store
from rlallocd.process.interval import Interval

LATEST: Final = 5000
"""Past jobs that are read at first."""
_AGAIN_S: Final = 3600.0
"""Past jobs are added some time after they ended: so far back is read again."""


class FamilyRuns:
    """Keeps ``speeds`` up to date. Tasks of arrays tell nothing: they are decided as one.

    Nor do jobs for which a type of GPU was chosen: it is the type that makes them faster.
    """

    def __init__(self, store: Store) -> None:
        self.speeds = FamilySpeeds()
        self._store = store
        self._read = Interval()
        self._reached_s: float | None = None

    def read(self, every_s: float) -> None:
        """Read what ended since the last time, if ``every_s`` have passed. Raises StoreError."""
        if not self._read.passed(every_s):
            return
        self._read.restart()
        history = self._store.history
        if self._reached_s is None:
            ended: Sequence[PastJob] = history.recent(LATEST)[::-1]
        else:
            ended = tuple(history.past_jobs(since_s=self._reached_s - _AGAIN_S))
        if ended:
            self._reached_s = min(ended[-1].ended_s, time.time())  # an imported log's clock may be ahead
            for run in self._runs_of(ended):
                self.speeds.add(run)

    def _runs_of(self, ended: Iterable[PastJob]) -> Iterable[SizedRun]:
        telling = {
            (int(job.job_id), int(job.submitted_s)): job
            for job in ended
            if job.gpus > 0 and job.job_id.isdecimal() and job.state in {"COMPLETED", "TIMEOUT"}
        }
        decided = self._store.histories_of_runs({key: real_user(job.user) for key, job in telling.items()})
        for key, job in telling.items():
            if key in decided and decided[key].size.gpu_type is None:
                first = decided[key].decisions[0]
                had = job.allotted or job
                yield SizedRun(
                    key,
                    first.user,
                    first.job_name,
                    first.request,
                    had.gpus,
                    had.nodes,
                    job.run_s,
                    job.state == "TIMEOUT",
                )
