"""Which jobs slurmctld is asked about, and what its answers are taken for."""

from collections.abc import Sequence

import msgspec

from rlallocd.slurm import JobRecord, NodeNeeds, SlurmUnavailable
from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.will_run import WillRun
from tests.daemon.test_request_sizes_and_tags import JOB

NEVER = "2014 Requested node configuration is not available"


def all_reported() -> bool:
    return False


class Answers(Commands):
    """Slurm's Perl API, with an answer for each job or none at all."""

    def __init__(self, answers: dict[int, str] | None) -> None:
        super().__init__(timeout_s=1.0)
        self.answers = answers
        self.asked: list[list[int]] = []

    def converse(self, *words: str, lines: Sequence[str]) -> str:
        assert words[0] == "perl"
        self.asked.append([int(line) for line in lines])
        if self.answers is None:
            raise SlurmUnavailable("perl gave no answer in 1 s")
        return "".join(f"{job_id} {self.answers.get(int(job_id), '0 ')}\n" for job_id in lines)


def jobs(*job_ids: int, **changes: object) -> list[JobRecord]:
    return [msgspec.structs.replace(JOB, job_id=job_id, **changes) for job_id in job_ids]


def test_jobs_that_ask_alike_share_an_answer_for_a_while() -> None:
    now_s = 0.0
    slurm = Answers({1: NEVER, 2: NEVER})
    will_run = WillRun(slurm, all_reported, clock=lambda: now_s)
    queue = jobs(1, 2) + jobs(3, features="large")
    assert set(will_run.never(queue)) == set(will_run.never(queue)) == {1, 2}
    assert [len(asked) for asked in slurm.asked] == [2, 1]
    now_s = 61.0
    assert set(will_run.never(jobs(1))) == {1}
    assert slurm.asked[2:] == [[1], [1]]


def test_a_job_that_asks_more_of_its_nodes_has_an_answer_of_its_own() -> None:
    """Once, the word on the one with --contiguous was taken for the one without."""
    slurm = Answers({1: NEVER})
    contiguous = jobs(1, needs=NodeNeeds(contiguous=True)) + jobs(2)
    assert set(WillRun(slurm, all_reported, clock=lambda: 0.0).never(contiguous)) == {1}
    assert slurm.asked[0] == [1, 2]


def test_a_slurmctld_that_has_just_started_is_asked_again() -> None:
    """Before its nodes have reported, it says of every job that it could never start."""
    slurm, awaited = Answers({1: NEVER}), True
    will_run = WillRun(slurm, lambda: awaited, clock=lambda: 0.0)
    assert will_run.never(jobs(1)) == {}
    awaited, slurm.answers = False, {}
    assert will_run.never(jobs(1)) == {}
    assert slurm.asked == [[1], [1]]


def test_nodes_that_report_between_two_questions_are_counted() -> None:
    slurm = Answers({1: NEVER})

    def report() -> bool:
        slurm.answers = {}
        return False

    assert WillRun(slurm, report).never(jobs(1)) == {}


def test_only_its_word_on_the_nodes_counts() -> None:
    """A site's job_submit plugin may refuse the request, and the job may have left the queue."""
    slurm = Answers({1: NEVER, 2: "2025 Job violates a rule of the site", 3: "2017 Invalid job id specified"})
    apart = [each for number in range(4) for each in jobs(number + 1, features=f"f{number}")]
    assert WillRun(slurm, all_reported).never(apart) == {1: "Requested node configuration is not available"}


def test_without_an_answer_jobs_go_on_and_it_is_not_asked_again_at_once() -> None:
    slurm = Answers(None)
    will_run = WillRun(slurm, all_reported, clock=lambda: 0.0)
    assert will_run.never(jobs(1)) == will_run.never(jobs(1)) == {}
    assert slurm.asked == [[1]]


def test_a_batch_of_many_kinds_is_not_all_asked_about() -> None:
    slurm = Answers({})
    WillRun(slurm, all_reported).never([each for number in range(50) for each in jobs(number, features=f"f{number}")])
    assert [len(asked) for asked in slurm.asked] == [40]
