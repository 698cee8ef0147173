"""A slurmctld that takes long for each message: a scontrol that changes many jobs ends within its time limit."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from rlallocd.slurm import Commands, Slurm, SlurmUnavailable
from rlallocd.slurm.control import Control
from rlallocd.slurm.pace import JobsPerCommand
from rlallocd.slurm.request_details import request_details
from rlallocd.transactions.job_updates import BATCH, JobUpdates

JOBS = [(job_id, 0.0) for job_id in range(1, BATCH + 1)]
SLOW_SCONTROL = """#!/bin/sh
for job in $(echo "${2#JobId=}" | tr , ' '); do
   sleep 0.03
   echo "$job" >>"$0.begun"
done
"""
TIMEOUT_S = 2.0
"""Enough for half of the jobs."""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that lists the jobs which slurmctld has let go."""
    program = tmp_path / "scontrol"
    program.write_text(SLOW_SCONTROL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "scontrol.begun"


def test_a_batch_is_let_go_by_commands_that_end_in_time(begun: Path) -> None:
    """One for the whole batch was ended on its way, and the rest of it had to wait for the next cycle."""
    commands = Commands(TIMEOUT_S)
    updates = JobUpdates(cast("Slurm", Control(commands)), lambda: None)
    assert updates.begin(JOBS)
    assert begun.read_text().split() == [str(job_id) for job_id, _ in JOBS]
    assert not commands.errors


def test_after_a_command_that_did_not_end_in_time_the_next_names_fewer_jobs(begun: Path) -> None:
    """Since the command before, slurmctld has become slow."""
    commands = Commands(TIMEOUT_S)
    control = Control(commands)
    control._jobs_per_command.most = BATCH
    updates = JobUpdates(cast("Slurm", control), lambda: None)
    with pytest.raises(SlurmUnavailable):
        updates.begin(JOBS)
    left = JOBS[len(begun.read_text().split()) :]
    assert left
    assert updates.begin(left)
    assert begun.read_text().split() == [str(job_id) for job_id, _ in JOBS]


class ShowsSlowly(Commands):
    """A scontrol that shows jobs, each of which takes slurmctld a while. Jobs that were shown are in ``shown``."""

    def __init__(self, job_s: float) -> None:
        super().__init__(TIMEOUT_S)
        self.job_s = job_s
        self.shown: list[int] = []

    def converse(self, *_words: str, lines: Sequence[str]) -> str:
        took_s = self.job_s * len(lines)
        time.sleep(min(took_s, self.timeout_s))
        if took_s > self.timeout_s:
            raise SlurmUnavailable("scontrol gave no answer in time")
        numbers = [int(line.removeprefix("show job ")) for line in lines]
        self.shown += numbers
        return "".join(f"JobId={number} JobName=llm NumNodes=1 NumCPUs=1 MinMemoryNode=1G \n" for number in numbers)


def test_many_jobs_are_shown_by_commands_that_end_in_time_and_the_rest_in_the_next_cycle() -> None:
    """A twentieth of a long queue, each by a message of its own, had one time limit together and never passed it."""
    commands, pace = ShowsSlowly(0.02), JobsPerCommand()
    left = dict.fromkeys(range(1, 201), "llm")
    cycles = 0
    while left:
        details = request_details(commands, left, 4000, pace)
        assert details
        assert len(details) < 200
        left = {job_id: name for job_id, name in left.items() if job_id not in details}
        cycles += 1
    assert commands.shown == list(range(1, 201))
    assert cycles > 1


def test_what_was_shown_before_slurmctld_stopped_to_answer_is_kept() -> None:
    class StopsAfterTwo(ShowsSlowly):
        def converse(self, *words: str, lines: Sequence[str]) -> str:
            if self.shown[10:]:
                raise SlurmUnavailable("scontrol gave no answer in time")
            return super().converse(*words, lines=lines)

    commands, names = StopsAfterTwo(0.0), dict.fromkeys(range(1, 201), "llm")
    assert list(request_details(commands, names, 4000, JobsPerCommand())) == commands.shown
    with pytest.raises(SlurmUnavailable):
        request_details(commands, names, 4000, JobsPerCommand())


def test_a_slurmctld_that_answers_at_once_shows_all_in_one_cycle() -> None:
    commands, pace = ShowsSlowly(0.0), JobsPerCommand()
    names = dict.fromkeys(range(1, 201), "llm")
    assert request_details(commands, names, 4000, pace).keys() == names.keys()
    assert pace.most == 100


def test_jobs_per_command_follow_what_the_last_command_took() -> None:
    pace = JobsPerCommand()
    steps = [
        (10, 0.0, 100),
        (100, 0.5, 100),
        (100, 5.0, 50),
        (50, 10.0, 12),
        (12, 0.1, 100),
        (1, 10.0, 1),
        (1, 0.1, 25),
    ]
    for jobs, seconds, most in steps:
        pace.took(jobs, seconds, timeout_s=10.0)
        assert pace.most == most, (jobs, seconds)
