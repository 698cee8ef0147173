"""Slurm's own word on whether a pending job could ever start: REQUEST_JOB_WILL_RUN with a job's id.

slurmctld tests its record of the job, as it is by now, on the nodes that are up: features, sockets, GPUs beside
cores, contiguous nodes, reservations, running jobs gone. No command of Slurm sends this request for a job that is
queued, but Slurm's Perl API does (Debian: libslurm-perl; RPMs: slurm-perlapi). Where it is missing, nothing is asked.

A slurmctld that has just started knows no node until it reports, and says that no job could ever start. So that word
counts only if it says so again after all nodes have reported.

A test holds slurmctld's lock on jobs, so jobs that ask alike are asked about once a while. The site's job_submit
plugins see each request as that of a job ``rlalloc-will-run``; what they answer is no word on its size.
"""

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import Final

from rlallocd.slurm.pace import BackOff
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import SlurmUnavailable
from rlallocd.slurm.slurm_records import JobRecord, NodeNeeds, RequestFields

_log = logging.getLogger(__name__)

_PERL: Final = ("perl", "-MSlurm", "-e")
_HAS_API: Final = 'print Slurm::new() ? "yes" : "no"'
_ASK: Final = r"""
my $slurm = Slurm::new() or die;
while (my $id = <STDIN>) {
    chomp $id;
    my $can = $slurm->job_will_run({job_id => $id, user_id => $>, group_id => $) + 0, min_nodes => 1,
        name => "rlalloc-will-run", script => "#!/bin/sh\n", environment => {PATH => "/"}, work_dir => "/"});
    my $errno = $slurm->get_errno();
    printf "%s %s %s\n", $id, $can ? $errno : 0, $can ? $slurm->strerror($errno) : "";
}
"""
_ANSWER: Final = re.compile(r"^(\d+) (\d+) (.*)$", re.MULTILINE)
_NEVER: Final = 2014  # slurm_errno.h: ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE, in all versions
_MOST: Final = 40
"""So many jobs are asked about at once; beyond, our own look at the nodes has to do."""
_HOLDS_FOR_S: Final = 60.0
_LONGEST_SILENCE_S: Final = 600.0

_Likeness = tuple[str, str, str, str, str, str, bool, int, NodeNeeds, RequestFields]


class WillRun:
    """``awaits_nodes`` says whether nodes have yet to report to slurmctld; ``clock`` returns monotonic seconds."""

    def __init__(
        self, commands: Commands, awaits_nodes: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._commands = commands
        self._awaits_nodes = awaits_nodes
        self._clock = clock
        self._back_off = BackOff(_LONGEST_SILENCE_S)
        self._silent_until_s = 0.0
        self._known: dict[_Likeness, tuple[float, str]] = {}

    def is_there(self) -> bool:
        """Whether Slurm's Perl API is installed and fits the Slurm of this machine."""
        try:
            return self._commands.converse(*_PERL, _HAS_API, lines=("",)) == "yes"
        except SlurmUnavailable:
            return False

    def never(self, jobs: Sequence[JobRecord]) -> dict[int, str]:
        """Those of some pending jobs that slurmctld could not place on its nodes if they were idle, in its words.

        Raises SlurmError.
        """
        now_s = self._clock()
        self._known = {like: answer for like, answer in self._known.items() if answer[0] > now_s}
        first = {_likeness(job): job.job_id for job in jobs}
        new = [like for like in first if like not in self._known][:_MOST]
        if new and now_s >= self._silent_until_s:
            said = self._confirmed(self._ask([first[like] for like in new]))
            self._known |= {like: (now_s + _HOLDS_FOR_S, said[first[like]]) for like in new if first[like] in said}
        nothing = (0.0, "")
        return {job.job_id: why for job in jobs if (why := self._known.get(_likeness(job), nothing)[1])}

    def _confirmed(self, said: dict[int, str]) -> dict[int, str]:
        """The answers without those that only say that slurmctld has just started."""
        doubtful = [job_id for job_id, why in said.items() if why]
        if not doubtful:
            return said
        again = {} if self._awaits_nodes() else self._ask(doubtful)
        return {job_id: why for job_id, why in said.items() if not why} | again

    def _ask(self, job_ids: Sequence[int]) -> dict[int, str]:
        try:
            text = self._commands.converse(*_PERL, _ASK, lines=[str(job_id) for job_id in job_ids])
        except SlurmUnavailable as err:
            self._silent_until_s = self._clock() + self._back_off.failed()
            _log.warning("slurmctld does not say whether jobs will run: %s", err)
            return {}
        self._back_off.succeeded()
        return {int(job_id): text if int(errno) == _NEVER else "" for job_id, errno, text in _ANSWER.findall(text)}


def _likeness(job: JobRecord) -> _Likeness:
    """What the answer depends on; limits of users and accounts are no part of the test."""
    return (
        *(job.partition, job.gpu_type, job.features, job.excluded_nodes, job.required_nodes, job.reservation),
        job.is_exclusive,
        job.time_limit_s,
        job.needs,
        job.fields,
    )
