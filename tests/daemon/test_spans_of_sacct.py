"""How a long time is asked for in spans that sacct answers in time and memory holds."""

import os
import select
import time
from itertools import pairwise
from pathlib import Path

import pytest

from rlalloc.history import COLUMNS, ReadTally
from rlallocd.slurm import AnswerTooLong, Commands, EndedJobs, SlurmUnavailable, UpdateRefused, ended_jobs, in_spans
from rlallocd.slurm.accounting import accounting

HOUR_S = 3600.0
DAY_S = 86400.0


def spans(
    since_s: float, until_s: float, *, a_day_prints: float = 0.0, longest_s: float = DAY_S
) -> list[tuple[float, float]]:
    """The spans that a sacct is asked for which prints so much a day and gives up on longer spans."""
    asked = []

    def ask(since_s: float, until_s: float) -> EndedJobs:
        if until_s - since_s > longest_s:
            raise SlurmUnavailable("sacct gave no answer in 300 s")
        asked.append((since_s, until_s))
        return EndedJobs((), until_s, int(a_day_prints * (until_s - since_s) / DAY_S))

    assert [found.until_s for found in in_spans(ask, since_s, until_s)] == [until_s for _, until_s in asked]
    return asked


@pytest.mark.parametrize("a_day_prints", [0.0, 1e7, 1e9, 1e12])
@pytest.mark.parametrize("longest_s", [600.0, 5000.0, DAY_S])
def test_no_time_is_left_out_or_asked_for_twice(a_day_prints: float, longest_s: float) -> None:
    asked = spans(1000.0, 1000.0 + 5 * DAY_S, a_day_prints=a_day_prints, longest_s=longest_s)
    assert asked[0][0] == 1000.0
    assert asked[-1][1] == 1000.0 + 5 * DAY_S
    assert all(end_s == begin_s for (_, end_s), (begin_s, _) in pairwise(asked))


def test_a_quiet_site_is_asked_a_day_at_a_time() -> None:
    lengths_s = [end_s - begin_s for begin_s, end_s in spans(0.0, 100 * DAY_S)]
    assert lengths_s[0] == HOUR_S
    assert lengths_s[10] == DAY_S
    assert len(lengths_s) < 110


def test_a_busy_site_is_asked_for_no_more_than_memory_holds() -> None:
    asked = spans(0.0, DAY_S, a_day_prints=1e9)
    assert max(end_s - begin_s for begin_s, end_s in asked) * 1e9 / DAY_S < 2**26


def test_a_sacct_that_never_answers_ends_it() -> None:
    with pytest.raises(SlurmUnavailable, match="gave no answer"):
        spans(0.0, DAY_S, longest_s=100.0)
    assert spans(5.0, 5.0) == []


class _Sacct(Commands):
    """Prints one job of this name, with the delimiter that it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(timeout_s=1)
        self.name = name
        self.asked: dict[str, str] = {}

    def run(self, *words: str) -> str:
        self.asked = {name: value for name, _, value in (word.partition("=") for word in words)}
        (delimiter,) = (word.removeprefix("--delimiter=") for word in words if word.startswith("--delimiter="))
        return f"{delimiter.join(COLUMNS)}\n{_row('5', 'mallory', self.name, delimiter)}\n"

    def run_up_to(self, most_bytes: int, *words: str) -> str:
        if len(text := self.run(*words)) > most_bytes:
            raise AnswerTooLong("sacct printed more than that")
        return text


def _row(job_id: str, user: str, name: str, delimiter: str) -> str:
    values = {"JobID": job_id, "User": user, "JobName": name, "State": "COMPLETED", "Submit": "1000"}
    values |= {"Start": "1100", "End": "9000", "AllocTRES": "cpu=1,mem=1G,node=1,gres/gpu=1"}
    return delimiter.join(values.get(column, "") for column in COLUMNS)


@pytest.mark.parametrize("delimiter", ["\x1f", "|", "@"])
def test_no_name_makes_a_row_of_somebody_elses_job(delimiter: str) -> None:
    name = f"x\n{_row('77', 'victim', 'train', delimiter)}\n"
    (job,) = ended_jobs(_Sacct(name), 0.0, 10_000.0, tally := ReadTally()).jobs
    assert (job.job_id, job.user, job.name.split()[0]) == ("5", "mallory", "x")
    assert tally == ReadTally()
    (job,) = ended_jobs(_Sacct(f"a{delimiter}b"), 0.0, 10_000.0, ReadTally()).jobs
    assert (job.user, job.name) == ("mallory", f"a{delimiter}b".replace("\x1f", "_"))


@pytest.mark.parametrize(("days", "asked"), [(-1e6, "uts1000000"), (-400, None), (1, "now"), (400, "now")])
def test_times_are_moments_whatever_the_clock_did(days: float, asked: str | None) -> None:
    """Local times occur twice where clocks are set back, and sacct takes no start in the future."""
    sacct, now_s = _Sacct("x"), time.time()
    since_s = now_s + days * DAY_S
    accounting(sacct, [5], since_s)
    if asked == "now":
        assert abs(int(sacct.asked["--starttime"].removeprefix("uts")) - now_s) < 60
    else:
        assert sacct.asked["--starttime"] == (asked or f"uts{int(since_s)}")
    ended_jobs(sacct, 1_792_890_000.7, 1_792_890_600.2, ReadTally())
    assert (sacct.asked["--starttime"], sacct.asked["--endtime"]) == ("uts1792890000", "uts1792890600")


def test_an_answer_that_memory_is_not_to_hold_ends_the_command() -> None:
    commands = Commands(timeout_s=60)
    assert commands.run_up_to(6, "printf", "123456") == "123456"
    with pytest.raises(AnswerTooLong, match="yes printed more than"):
        commands.run_up_to(1000, "yes")
    with pytest.raises(UpdateRefused, match="no such span"):
        commands.run_up_to(1000, "sh", "-c", "echo no such span >&2; exit 1")
    with pytest.raises(SlurmUnavailable, match=r"gave no answer in 0\.2 s"):
        commands.within(0.2).run_up_to(1000, "sleep", "60")
    assert commands.calls == {"printf": 1, "yes": 1, "sh": 1, "sleep": 1}
    assert commands.errors == {"sh": 1, "sleep": 1}  # that there is too much is no fault


def test_only_the_shortest_span_is_read_whole() -> None:
    sacct = _Sacct("a" * 100)
    assert len(ended_jobs(sacct, 0.0, 600.0, ReadTally(), most_bytes=10).jobs) == 1
    with pytest.raises(AnswerTooLong):
        ended_jobs(sacct, 0.0, 3600.0, ReadTally(), most_bytes=10)


@pytest.mark.parametrize("end", ["wait", "exit 0"])
@pytest.mark.parametrize("most_bytes", [None, 1000], ids=["whole", "bounded"])
def test_a_wrapper_ends_with_all_that_it_started(tmp_path: Path, end: str, most_bytes: int | None) -> None:
    """Its child holds the pipe, and could do later what is taken for failed."""
    os.mkfifo(fifo := tmp_path / "fifo")
    held = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    words = ("sh", "-c", f"sleep 60 3>{fifo} & {end}")
    commands = Commands(timeout_s=2)
    with pytest.raises(SlurmUnavailable, match=r"gave no answer in 2 s"):
        commands.run(*words) if most_bytes is None else commands.run_up_to(most_bytes, *words)
    assert select.select([held], [], [], 20.0)[0], "the child still holds the other end"
    os.close(held)


def test_many_complaints_do_not_hold_up_the_answer() -> None:
    """A pipe takes no more than 64 KiB that nobody reads."""
    script = "head -c 200000 /dev/zero >&2; echo done"
    assert Commands(timeout_s=60).run_up_to(1000, "sh", "-c", script) == "done\n"
