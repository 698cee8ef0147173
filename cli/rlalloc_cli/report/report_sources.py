"""Where a report is read from: sacct, and the store, or rlallocd where the user may not read the store."""

import contextlib
import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rlalloc.config import Config
from rlalloc.errors import RlallocError
from rlalloc.store import Store
from rlalloc.store.decided_jobs import DecidedJob
from rlalloc.system.run_as_owner import name_of
from rlalloc.user_messages import MOST_JOBS_ASKED, AskDecided, Decided, ask_daemon
from rlalloc_cli.own_jobs import daemon_directory, store_for_me
from rlalloc_cli.report.report_totals import Totals, TotalsSoFar
from rlalloc_cli.report.reported_runs import Lookup, ReportedRun, RunJoiner
from rlallocd.slurm import AccountedRun, Commands, RunFilter, Span, UpdateRefused, runs_in, span_of

_SACCT_TIMEOUT_S: Final = 300.0


class WrongQuestion(RlallocError):
    """The report cannot be asked for in this way: a time that Slurm does not read, or somebody else's jobs."""


class Asked(NamedTuple):
    """What to report, in sacct's words; empty for sacct's defaults, and for all."""

    starttime: str = ""
    endtime: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""


class Report:
    """The lines of a report, once, and then their totals.

    ``everybody`` is false for an ordinary user, who sees own jobs only. ``store`` is None for them, too.
    """

    def __init__(self, asked: Asked, lookup: Lookup, config: Config, store: Store | None) -> None:
        """Raises SlurmError or WrongQuestion."""
        self.asked = asked
        self.config = config
        self.store = store
        self.everybody = store is not None
        if not self.everybody and asked.user not in ("", name_of(os.geteuid())):
            raise WrongQuestion("you may report your own jobs only: leave out --user, or ask an administrator")
        self._commands = Commands(_SACCT_TIMEOUT_S)
        try:
            self.span = span_of(self._commands, asked.starttime, asked.endtime)
        except UpdateRefused as err:
            raise WrongQuestion(f"Slurm does not take these times: {err.said}") from err
        if self.span.until_s <= self.span.since_s:
            raise WrongQuestion("--starttime must lie before --endtime")
        users = asked.user if self.everybody else name_of(os.geteuid())
        self._filter = RunFilter(users, asked.account, asked.partition, everybody=self.everybody)
        self._joiner = RunJoiner(lookup, self.span)
        self._totals = TotalsSoFar(self.span)

    def runs(self) -> Iterator[ReportedRun]:
        """All lines, in portions by the time at which runs became eligible. Raises SlurmError or StoreError.

        The first portion is asked for at once, so that a wrong question is told before anything is printed. Raises
        WrongQuestion.
        """
        portions = runs_in(self._commands, self.span, self._filter)
        try:
            first = next(portions, [])
        except UpdateRefused as err:
            raise WrongQuestion(f"sacct refuses this: {err.said.removeprefix('sacct: error: ')}") from err
        return self._reported(itertools.chain([first], portions))

    def _reported(self, portions: Iterable[list[AccountedRun]]) -> Iterator[ReportedRun]:
        for portion in portions:
            for run in self._joiner.reported(portion):
                self._totals.add(run)
                yield run

    def totals(self) -> Totals:
        """The totals of the lines so far."""
        return self._totals.totals()


@contextlib.contextmanager
def open_report(path: Path, asked: Asked) -> Iterator[Report]:
    """The report: of all users for those who may read the store, else of this user's own jobs, through rlallocd.

    Raises ConfigError, StoreError, SlurmError, UserServiceError or WrongQuestion.
    """
    opened = store_for_me(path)
    if opened is None:
        yield Report(asked, _of_daemon, Config(), None)
        return
    config, store = opened
    with contextlib.closing(store):
        yield Report(asked, store.sizes.of, config, store)


def _of_daemon(job_ids: Collection[int]) -> Iterator[DecidedJob]:
    """What rlallocd tells this user of these jobs, as many at a time as it takes."""
    ids = sorted(job_ids)
    for first in range(0, len(ids), MOST_JOBS_ASKED):
        answer = ask_daemon(daemon_directory(), AskDecided(tuple(ids[first : first + MOST_JOBS_ASKED])))
        if isinstance(answer, Decided):
            yield from answer.jobs


__all__ = ["Asked", "Report", "Span", "WrongQuestion", "open_report"]
