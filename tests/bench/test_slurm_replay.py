"""Submitting a workload's jobs where sbatch itself dies; a real sbatch cannot be made to."""

from collections.abc import Sequence
from typing import cast

import pytest

from slurm_replay import submission
from slurm_replay.submission import TRIES, submit
from slurm_testbed import Completed, Site, TestbedError

from .test_slurm_gain import moldable

JOB = moldable("--time=1 pretrain-2-nodes.sbatch 90e6")
KNOWN = [1, 2]
CRASHED, SUBMITTED = Completed((), -11, "", ""), Completed((), 0, "3;test\n", "")


class DyingSbatch:
    """A site whose sbatch ends as told, one time after the other; ``queue`` is what slurmctld knows."""

    def __init__(self, *ends: Completed, queue: Sequence[int] = KNOWN) -> None:
        self.ends = [*ends]
        self.queue = queue

    def try_run(self, _arguments: Sequence[str], **_how: object) -> Completed:
        return self.ends.pop(0)

    def run(self, _arguments: Sequence[str]) -> str:
        return "\n".join(map(str, self.queue))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "STORED_AFTER_S", 0.0)


def submitted(site: DyingSbatch) -> int:
    return submit(cast("Site", site), JOB, "#!/bin/sh\n", KNOWN)


def test_a_submission_that_died_is_repeated() -> None:
    site = DyingSbatch(CRASHED, SUBMITTED)
    assert submitted(site) == 3
    assert site.ends == []


def test_a_job_that_was_submitted_by_a_process_that_died_is_not_submitted_again() -> None:
    site = DyingSbatch(CRASHED, SUBMITTED, queue=[*KNOWN, 7])
    assert submitted(site) == 7
    assert site.ends == [SUBMITTED]


def test_what_cannot_be_submitted_is_named() -> None:
    with pytest.raises(TestbedError, match=r"job 1 of the workload, of llm-alice, .* ended by signal 11, 3 times"):
        submitted(DyingSbatch(*[CRASHED] * TRIES))
    refusal = Completed((), 1, "", "sbatch: error: Batch job submission failed: Invalid account\n")
    with pytest.raises(TestbedError, match=r"exit status 1: sbatch: error: .* Invalid account$"):
        submitted(DyingSbatch(refusal, SUBMITTED))
