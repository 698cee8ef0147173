"""What rlallocd reads itself, where the submit plugin did not look at all of a script."""

from typing import cast

import msgspec
import pytest

from rlalloc.config import Config
from rlalloc.scripts.script_words import TOO_LONG
from rlallocd.slurm import Slurm, SlurmUnavailable
from rlallocd.submissions.candidates import Candidate
from rlallocd.submissions.job_tag import read_tag
from rlallocd.submissions.long_scripts import LongScripts

from .test_redecision_rules import pending_job

CONFIG = Config()
STAMP = CONFIG.word_table.stamp
LONG = (
    b"#!/bin/sh\nx " + b"--name-of-another 1 " * 200 + b"\ntorchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py\n"
)


class Scripts:
    """A Slurm that has scripts, and counts how often it is asked for one."""

    def __init__(self, script: bytes | None) -> None:
        self.script = script
        self.asked: list[int] = []
        self.down = False

    def batch_script(self, job_id: int) -> bytes | None:
        self.asked.append(job_id)
        if self.down:
            raise SlurmUnavailable("down")
        return self.script


def candidate(job_id: int, rest: str = "words=too-long", table: str = STAMP) -> Candidate:
    tag = read_tag(
        f"rlalloc:v=1;mode=enforce;rule=llm;class=train;begin=0;user_begin=0;ask=;table={table};script=1;{rest}"
    )
    assert tag is not None
    return Candidate(pending_job(job_id, gpu_type=""), tag, "enforce")


def words_of(scripts: LongScripts, *candidates: Candidate) -> list[str]:
    return [each.tag.collected for each in scripts.complete(candidates, CONFIG)]


READ = "nproc-per-node=$SLURM_GPUS_ON_NODE+torchrun=--"


def test_a_long_script_is_asked_for_once() -> None:
    slurm = Scripts(LONG)
    scripts = LongScripts(cast(Slurm, slurm))
    for _ in range(2):
        assert words_of(scripts, candidate(1), candidate(2, "words=gpus=4")) == [READ, "gpus=4"]
    assert slurm.asked == [1]


@pytest.mark.parametrize("script", [None, b"#!/bin/sh\n" + b"x --gpus 4\n" * 100_000])
def test_what_cannot_be_had_or_read_stays_unknown(script: bytes | None) -> None:
    slurm = Scripts(script)
    scripts = LongScripts(cast(Slurm, slurm))
    assert [words_of(scripts, candidate(1)) for _ in range(2)] == [[TOO_LONG], [TOO_LONG]]
    assert slurm.asked == [1]


def test_no_script_is_asked_for_that_is_not_needed() -> None:
    """Of a job that was skipped, and of one that was read by another table: its words are not used."""
    slurm = Scripts(LONG)
    scripts = LongScripts(cast(Slurm, slurm))
    assert (
        words_of(scripts, candidate(1, "words=too-long;skip=reservation"), candidate(2, table="0")) == [TOO_LONG] * 2
    )
    assert slurm.asked == []


def test_a_burst_of_long_scripts_and_a_silent_slurmctld_do_not_hold_other_jobs_up() -> None:
    slurm = Scripts(LONG)
    scripts = LongScripts(cast(Slurm, slurm))
    burst = [candidate(number) for number in range(1, 31)]
    slurm.down = True
    assert words_of(scripts, *burst) == [TOO_LONG] * 30
    assert slurm.asked == [1]
    slurm.down = False
    assert words_of(scripts, *burst) == [READ] * 20 + [TOO_LONG] * 10
    assert words_of(scripts, *burst) == [READ] * 30
    assert len(slurm.asked) == 31


def test_a_slow_slurmctld_is_not_asked_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the watchdog is told of each script."""
    now_s = [0.0]
    monkeypatch.setattr("rlallocd.submissions.long_scripts.time.monotonic", lambda: now_s[0])
    slurm, signs = Scripts(LONG), []

    def progress() -> None:
        signs.append(now_s[0])
        now_s[0] += 3.0

    scripts = LongScripts(cast(Slurm, slurm), progress)
    assert words_of(scripts, *(candidate(number) for number in range(1, 6))) == [READ] * 2 + [TOO_LONG] * 3
    assert signs == [0.0, 3.0]


def test_another_job_of_the_same_id_is_another_script() -> None:
    slurm = Scripts(LONG)
    scripts = LongScripts(cast(Slurm, slurm))
    first = candidate(1)
    later = msgspec.structs.replace(
        first, job=msgspec.structs.replace(first.job, submitted_s=first.job.submitted_s + 9)
    )
    words_of(scripts, first, later)
    assert slurm.asked == [1, 1]
