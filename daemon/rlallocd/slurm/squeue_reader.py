"""Jobs from columns of squeue: the same facts as its JSON, at a sixth of the cost.

With 2,000 jobs ``squeue --json`` takes 0.4 s and 100 MB, these columns 0.06 s (docs/results/slurm-load.md):
squeue and rlallocd spend the time, not slurmctld. Neither can ask for changes only.

A row that is as in the last reading stands for the same record. request_details.py reads what the columns leave out,
for the few jobs that rlalloc may change.

squeue prints all waiting tasks of an array in one row. These include tasks with job ids of their own, which were
requeued or changed alone (``_combine_pending_array_tasks`` in print.c). If rlalloc may change such a task, the reader
asks for it by its id. Then squeue prints a row for it.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from rlallocd.slurm.json_reader import JsonReader
from rlallocd.slurm.pace import BackOff, JobsPerCommand
from rlallocd.slurm.request_details import RequestDetails, request_details
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer, UnknownJob, UpdateRefused
from rlallocd.slurm.slurm_records import JobRecord, NodeRecord, RequestFields, with_splits
from rlallocd.slurm.squeue_columns import Marks, Row, at_this_moment, record_of

_log = logging.getLogger(__name__)

_JOBS_PER_CALL: Final = 1000  # a command line has an end
_LONGEST_WITHOUT_COLUMNS_S: Final = 600.0
"""However often the columns cannot be read, they are tried again after this time."""
_FIRST_UNREADABLE_S: Final = 60.0
_LONGEST_UNREADABLE_S: Final = 600.0
"""A job that cannot be read even when it is asked for alone is asked for again after these times."""


class _PutOff(NamedTuple):
    """A request that cannot be read, and until when it is not asked for again."""

    back_off: BackOff
    until_s: float


class _Seen(NamedTuple):
    """What a row stood for in the last reading, and by which details."""

    request_key: str
    details: RequestDetails | None
    record: JobRecord


class SqueueReader:
    """Reads jobs from columns, all else through ``json_reader``.

    When columns cannot be read, ``json_reader`` reads the jobs, too, until a back-off is over: one odd answer must
    not cost a site the fast reading until the next restart. ``clock`` returns monotonic seconds.
    """

    name = "the commands' columns and JSON"

    def __init__(
        self, commands: Commands, json_reader: JsonReader, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._json_reader = json_reader
        self._clock = clock
        self._back_off = BackOff(_LONGEST_WITHOUT_COLUMNS_S)
        self._json_until_s: float | None = None
        self._seen: dict[str, _Seen] = {}
        self._queued = 0
        self._jobs_per_command = JobsPerCommand()
        self._jobs: tuple[JobRecord, ...] = ()
        self._details: dict[str, RequestDetails] = {}
        self._put_off: dict[str, _PutOff] = {}
        self._unlisted_users: set[str] = set()
        """Users for whom ``squeue --user`` lists no jobs, because this host does not know their names."""

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that slurmctld knows: ended ones too, for MinJobAge seconds. Raises SlurmError."""
        if self._put_off:
            self._seen = {
                key: each
                for key, each in self._seen.items()
                if not each.record.unread or self._is_put_off(each.request_key)
            }
        read = self._rows_or_none(self._seen)
        if read is None:
            return self._json_reader.jobs()
        keys, new = read
        self._queued = len(keys)
        self._read_details_of_ours(new.values())
        if own_tasks := self._own_tasks(keys, new):
            read = self._rows_or_none(self._seen, _of_jobs(own_tasks))
            if read is None:
                return self._json_reader.jobs()
            self._read_details_of_ours(read[1].values())
            keys, new = keys + read[0], new | read[1]
            self._forget_tasks(set(own_tasks) - self._ids_of(keys, new))
        if not new and len(keys) == len(self._seen):
            return self._jobs
        gone = {seen.request_key: seen for key in self._seen.keys() - set(keys) if (seen := self._seen[key])}
        read_now = {key: self._see(row, gone.get(row.request_key)) for key, row in new.items()}
        all_seen = {key: self._seen.get(key) or read_now[key] for key in keys}
        self._seen = {  # others are read again in the next cycle
            key: each for key, each in all_seen.items() if not each.record.unread or each.request_key in self._put_off
        }
        self._forget_details(gone.keys() - {row.request_key for row in new.values()})
        self._jobs = with_splits(each.record for each in all_seen.values())
        return self._jobs

    def read_back(self, job_ids: Sequence[int]) -> dict[int, JobRecord]:
        """The jobs of these ids that slurmctld still knows, with every request field. Raises SlurmError."""
        if not job_ids:
            return {}
        if len(job_ids) > _JOBS_PER_CALL:
            return self._json_reader.read_back(job_ids)
        asked = set(job_ids)
        rows = self._rows_of(asked)
        wanted = {key: row for key, row in rows.items() if row.job_id in asked} if rows is not None else {}
        missing = asked.difference(row.job_id for row in wanted.values())
        if missing and any(row.has_tasks for row in wanted.values()):  # some of them may be in such a row
            rows = self._rows_of(missing)
            wanted |= {key: row for key, row in rows.items() if row.job_id in missing} if rows is not None else {}
        if rows is None:
            return self._json_reader.read_back(job_ids)
        self._read_details([row for row in wanted.values() if row.is_pending])
        for key in wanted:
            self._seen.pop(key, None)
        return {row.job_id: self._see(row, None).record for row in wanted.values()}

    def _rows_of(self, job_ids: Set[int]) -> dict[str, Row] | None:
        """The rows of these jobs; None while columns cannot be read. Raises SlurmUnavailable.

        To a squeue that names several jobs, slurmctld sends the whole queue; with ``--user``, only that user's jobs.
        """
        jobs = _of_jobs(job_ids)
        users = {job.user for job in self._jobs if job.job_id in job_ids} - self._unlisted_users
        of_one_user = len(users) == 1 and len(job_ids) > 1 and self._json_until_s is None
        found: dict[str, Row] = {}
        if of_one_user:
            with suppress(UnexpectedAnswer, UpdateRefused):
                _, found = self._rows({}, jobs, f"--user={next(iter(users))}")
            if job_ids <= _ids_in(found):
                return found
        read = self._rows_or_none({}, jobs)  # only a job that is missing here is gone
        if read is not None and of_one_user and read[1] and not found:
            self._unlisted_users |= users
        return None if read is None else read[1]

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Every node. Raises SlurmError."""
        return self._json_reader.nodes()

    def _own_tasks(self, keys: Sequence[str], new: Mapping[str, Row]) -> list[int]:
        """Ids of tasks that rlalloc may change and that squeue has added to the rows of their arrays."""
        own_tasks = {job_id for details in self._details.values() for job_id in details.own_tasks}
        if own_tasks:
            own_tasks -= self._ids_of(keys, new)
        return sorted(own_tasks)[:_JOBS_PER_CALL]

    def _ids_of(self, keys: Sequence[str], new: Mapping[str, Row]) -> set[int]:
        return {new[key].job_id if key in new else self._seen[key].record.job_id for key in keys}

    def _forget_tasks(self, ended: Set[int]) -> None:
        """Ask no longer for tasks that slurmctld has forgotten."""
        for key, details in self._details.items():
            if not ended.isdisjoint(details.own_tasks):
                left = tuple(job_id for job_id in details.own_tasks if job_id not in ended)
                self._details[key] = msgspec.structs.replace(details, own_tasks=left)

    def _rows_or_none(self, known: Container[str], *options: str) -> tuple[list[str], dict[str, Row]] | None:
        """The keys of squeue's rows, and those rows that are not ``known``; None while columns cannot be read.

        Raises SlurmUnavailable.
        """
        if self._json_until_s is not None and self._clock() < self._json_until_s:
            return None
        try:
            read = self._rows(known, *options)
        except UnknownJob:
            read = [], {}
        except (UnexpectedAnswer, UpdateRefused) as err:
            wait_s = self._back_off.failed()
            self._json_until_s = self._clock() + wait_s
            _log.warning("squeue is read as JSON, which is slower, for the next %.0f s: %s", wait_s, err)
            return None
        if self._json_until_s is not None:
            _log.info("squeue is read in columns again")
            self._back_off.succeeded()
            self._json_until_s = None
        return read

    def _rows(self, known: Container[str], *options: str) -> tuple[list[str], dict[str, Row]]:
        marks = Marks(self._json_reader.capabilities)
        command = "squeue", "--all", "--states=all", "--noheader", "--noconvert"
        keys = marks.keys(self._commands.run(*command, *options, marks.option))
        return keys, {key: marks.row(key) for key in keys if key not in known}

    def _read_details_of_ours(self, rows: Iterable[Row]) -> None:
        self._read_details([row for row in rows if row.may_be_ours and self._lacks_details(row.request_key)])

    def _read_details(self, rows: Sequence[Row]) -> None:
        """Read what columns leave out, for jobs that rlalloc may change."""
        found = request_details(
            self._commands, {row.job_id: row.name for row in rows}, self._queued, self._jobs_per_command
        )
        for row in rows:
            if (details := found.get(row.job_id)) is not None:
                self._details[row.request_key] = details
                self._put_off.pop(row.request_key, None)
            elif row.job_id in found:
                before = self._put_off.get(row.request_key)
                back_off = before.back_off if before else BackOff(_LONGEST_UNREADABLE_S, first_s=_FIRST_UNREADABLE_S)
                self._put_off[row.request_key] = _PutOff(back_off, self._clock() + back_off.failed())

    def _lacks_details(self, request_key: str) -> bool:
        return request_key not in self._details and not self._is_put_off(request_key)

    def _is_put_off(self, request_key: str) -> bool:
        return (put_off := self._put_off.get(request_key)) is not None and self._clock() < put_off.until_s

    def _see(self, row: Row, before: _Seen | None) -> _Seen:
        """What a row stands for; ``before`` is that of a row with the same request."""
        details = self._details.get(row.request_key)
        if before is not None and before.details is details and before.record.has_run == row.has_nodes:
            return before._replace(record=at_this_moment(before.record, row))
        record = record_of(row, details, self._json_reader.capabilities)
        if details is None and row.may_be_ours:  # its memory could be per CPU: only its totals are certain
            record = msgspec.structs.replace(record, fields=RequestFields(), unread=True)
        return _Seen(row.request_key, details, record)

    def _forget_details(self, requests: Iterable[str]) -> None:
        for request_key in requests:
            self._details.pop(request_key, None)
        if len(self._details) > len(self._seen):  # of jobs that left right after they were read back
            live = {seen.request_key for seen in self._seen.values()}
            self._details = {key: details for key, details in self._details.items() if key in live}
        if self._put_off:
            live = {seen.request_key for seen in self._seen.values()}
            self._put_off = {key: put_off for key, put_off in self._put_off.items() if key in live}


def _of_jobs(job_ids: Iterable[int]) -> str:
    return f"--jobs={','.join(map(str, job_ids))}"


def _ids_in(rows: Mapping[str, Row]) -> set[int]:
    return {row.job_id for row in rows.values()}
