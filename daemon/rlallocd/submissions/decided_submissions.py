"""Which submissions of jobs were decided, also once a requeue has given their jobs other submit times."""

import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from rlalloc.store import JobKey
from rlalloc.store.submissions import submission_of
from rlallocd.slurm import JobRecord
from rlallocd.submissions.job_tag import read_tag


class DecidedSubmissions(Collection[JobKey]):
    """The keys of decided jobs: the id that sbatch printed, and the submit second under which they were decided."""

    def __init__(self, users: Mapping[JobKey, str]) -> None:
        """``users`` are those of the jobs, by key."""
        self._users: defaultdict[int, dict[int, str]] = defaultdict(dict)
        self._renamed: dict[int, tuple[JobRecord, JobRecord]] = {}
        self.update(users)

    def update(self, users: Mapping[JobKey, str]) -> None:
        """Add jobs that have been decided."""
        for (job_id, submitted_s), user in users.items():
            self._users[job_id][submitted_s] = sys.intern(user)

    def __contains__(self, key: object) -> bool:
        """Whether a job was decided under this very key."""
        match key:
            case (int(job_id), submitted_s):
                return submitted_s in self._users.get(job_id, ())
        return False

    def __iter__(self) -> Iterator[JobKey]:
        """All keys."""
        return ((job_id, submitted_s) for job_id, users in self._users.items() for submitted_s in users)

    def __len__(self) -> int:
        """How many there are."""
        return sum(map(len, self._users.values()))

    def as_first_submitted(self, jobs: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
        """The same jobs; requeued ones have the submit time under which they were decided.

        A requeue (by an administrator, a preemption or a lost node) gives a job another submit time and leaves the
        rest. The same record of Slurm gives the same object each time.
        """
        before, self._renamed = self._renamed, {}
        return tuple(self._first(job, before.get(job.job_id)) if job.restarts else job for job in jobs)

    def _first(self, job: JobRecord, known: tuple[JobRecord, JobRecord] | None) -> JobRecord:
        submitted_s = submission_of(job.submitted_s, job.user, self._users.get(job.base_id, {}))
        if submitted_s is None or submitted_s == job.submitted_s or read_tag(job.admin_comment) is None:
            return job
        if known is None or known[0] is not job or known[1].submitted_s != submitted_s:
            known = job, msgspec.structs.replace(job, submitted_s=submitted_s)
        self._renamed[job.job_id] = known
        return known[1]
