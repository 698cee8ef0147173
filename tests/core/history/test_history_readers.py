"""Logs of ended jobs: what is read of them, what is left out, and that no text whatever raises."""

import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlalloc.errors import HistoryError
from rlalloc.history import COLUMNS, LogLines, ReadTally, read_file, read_sacct, read_swf
from rlalloc.past_job import PastJob

RECORDED = Path(__file__).parents[2] / "simulator" / "workloads" / "fixtures" / "sacct-22.05.txt"
HEADER = (
    "JobID|User|Account|Partition|QOS|JobName|State|Submit|Eligible|Start|End|TimelimitRaw|AllocTRES|TotalCPU|MaxRSS"
)
JOB = "7|ada|nlp|gpu|normal|train|COMPLETED|1000|1001|1100|1400|60|cpu=8,mem=64G,node=2,gres/gpu=4|00:20:00|"
BATCH = "7.batch||nlp|||batch|COMPLETED|1100|1100|1100|1400||cpu=4,mem=32G,node=1|00:05:00|5120K"
STEP = "7.0||nlp|||python|COMPLETED|1100|1100|1100|1400||cpu=8,mem=64G,node=2|00:15:00|2048M"
PAST = PastJob(
    job_id="7",
    user="ada",
    submitted_s=1000,
    started_s=1100,
    ended_s=1400,
    state="COMPLETED",
    nodes=2,
    cpus=8,
    gpus=4,
    mem_mib=64 * 1024,
    limit_s=3600,
    eligible_s=1001,
    account="nlp",
    partition="gpu",
    qos="normal",
    name="train",
    max_rss_mib=2048,
    cpu_s_used=1200,
)


def sacct(*lines: str, header: str = HEADER) -> tuple[list[PastJob], ReadTally]:
    tally = ReadTally()
    return list(read_sacct(LogLines.of_text("\n".join((header, *lines)) + "\n"), tally)), tally


def swf(*lines: str) -> tuple[list[PastJob], ReadTally]:
    tally = ReadTally()
    return list(read_swf(LogLines.of_text("\n".join(lines)), tally)), tally


def test_a_job_and_its_steps_are_one_past_job() -> None:
    (job,), tally = sacct(JOB, "7.extern||nlp|||extern|COMPLETED|1100|1100|1100|1400||cpu=8|00:00:00|", BATCH, STEP)
    assert job == PAST
    assert tally == ReadTally()


def test_the_steps_of_a_job_whose_row_cannot_be_read_are_not_those_of_the_job_before_it() -> None:
    """A name with a line end breaks the row of its job in two, and each has too few columns."""
    other = JOB.replace("7|ada", "8|eve").replace("train", "x\ny")
    (job,), tally = sacct(JOB, BATCH, STEP, other, BATCH.replace("7.", "8.").replace("5120K", "9000M"))
    assert job == PAST
    assert tally.unreadable == 2


def test_a_file_of_a_real_site() -> None:
    """Slurm 22.05: one job done, one failed, one cancelled while it waited, one running."""
    tally = ReadTally()
    done, failed = read_file(RECORDED, "sacct", tally)
    assert (done.job_id, done.nodes, done.cpus, done.gpus, done.mem_mib) == ("62", 2, 16, 8, 20 * 1024)
    assert (done.run_s, done.limit_s, done.max_rss_mib, done.cpu_s_used) == (5, 300, 10888 / 1024, 0.417)
    assert (failed.state, failed.max_rss_mib) == ("FAILED", None)
    assert tally == ReadTally(not_ended=1, never_started=1)


def test_columns_are_found_by_name_in_any_order_and_optional_ones_may_be_missing() -> None:
    (job,), _ = sacct("1400|1100|1000|COMPLETED|ada|7_3", header="End|Start|Submit|State|User|JobIDRaw")
    assert job == PastJob(
        job_id="7_3", user="ada", submitted_s=1000, started_s=1100, ended_s=1400, state="COMPLETED", nodes=1, cpus=1
    )


def test_what_other_columns_say_where_there_is_no_tres() -> None:
    header = "JobID;User;State;Submit;Start;End;NNodes;NCPUS;Timelimit;TotalCPU"
    (job,), _ = sacct("7;ada;CANCELLED by 1000;1000;1100;1400;2;64;1-02:00:00;02:30.500", header=header)
    assert (job.nodes, job.cpus, job.limit_s, job.cpu_s_used) == (2, 64, 26 * 3600, 150.5)
    assert job.state == "CANCELLED"


def test_times_may_be_local_and_a_trailing_delimiter_is_no_column() -> None:
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1_790_000_000))
    line = JOB.replace("|1000|", f"|{local}|").replace("|1100|1400|", "|1790000100|1790000200|")
    (job,), _ = sacct(f"{line}|", header=f"\ufeff{HEADER}|")
    assert job.submitted_s == 1_790_000_000


def test_tasks_of_an_array_are_jobs_and_a_requeue_is_one_more() -> None:
    again = JOB.replace("|1000|1001|1100|1400|", "|1410|1411|1500|1600|")
    jobs, tally = sacct(
        JOB.replace("7|", "7_1|", 1), JOB.replace("7|", "7_2|", 1), JOB.replace("COMPLETED", "PREEMPTED"), again
    )
    assert [(job.job_id, job.state, job.submitted_s) for job in jobs] == [
        ("7_1", "COMPLETED", 1000),
        ("7_2", "COMPLETED", 1000),
        ("7", "PREEMPTED", 1000),
        ("7", "COMPLETED", 1410),
    ]
    assert not tally.unreadable


def test_jobs_that_run_or_never_ran_are_counted_and_left_out() -> None:
    jobs, tally = sacct(
        JOB.replace("COMPLETED", "RUNNING").replace("|1400|", "|Unknown|"),
        JOB.replace("COMPLETED", "PENDING").replace("|1100|1400|", "|Unknown|Unknown|"),
        JOB.replace("COMPLETED", "CANCELLED by 7").replace("|1100|", "|None|"),
        JOB.replace("7|", "7_[2-9%4]|", 1).replace("COMPLETED", "CANCELLED by 7").replace("|1100|", "|None|"),
    )
    assert (jobs, tally.not_ended, tally.never_started, tally.unreadable) == ([], 2, 2, 0)
    assert tally.describe() == "2 have not ended, 2 never started"
    at_its_end = JOB.replace("COMPLETED", "CANCELLED by 7").replace("|1100|1400|", "|1400|1400|")
    assert len(sacct(at_its_end)[0]) == 1
    assert sacct(at_its_end.replace("cpu=8,mem=64G,node=2,gres/gpu=4", ""))[1].never_started == 1


def test_a_delimiter_in_the_only_free_text_belongs_to_it() -> None:
    (job,), tally = sacct(JOB.replace("|train|", "|a|b|c|"))
    assert (job.name, job.user, job.gpus, tally.unreadable) == ("a|b|c", "ada", 4, 0)


def test_class_and_fingerprint_of_the_script_stand_in_our_tag() -> None:
    header = HEADER.replace("MaxRSS", "AdminComment")
    for comment, script, job_class in (
        ("rlalloc:v=1;mode=shadow;rule=llm;script=0af3", "0af3", ""),
        ("rlalloc:v=1;mode=shadow;class=finetune;begin=1;script=0af3", "0af3", "finetune"),
        ("rlalloc:v=1;mode=shadow;class=cook;script=0/3", "", ""),
        ("site=7 rlalloc:v=1;script=0af3;ask=gpus=1-8 rlalloc-decision:d", "0af3", ""),
        ("rlalloc:v=1;mode=shadow", "", ""),
        ("script=0af3;class=train", "", ""),
    ):
        (job,), _ = sacct(f"{JOB}{comment}", header=header)
        assert (job.script, job.job_class) == (script, job_class)


@pytest.mark.parametrize(
    "line",
    [
        "7|ada",
        "a line of an error message",
        JOB.replace("COMPLETED", "EXPLODED"),
        JOB.replace("|1000|", "|noon|"),
        JOB.replace("|1000|", "||"),
        JOB.replace("|1000|", f"|{'9' * 30}|"),
        JOB.replace("|1400|", "|1050|"),
        JOB.replace("cpu=8", "cpu=9.9.9"),
        JOB.replace("cpu=8", f"cpu={'9' * 400}"),
        JOB.replace("node=2", "node=9999999999"),
        JOB.replace("7|", f"{'7' * 40}|", 1),
    ],
)
def test_a_broken_line_is_counted_and_the_next_job_read(line: str) -> None:
    jobs, tally = sacct(line, JOB, BATCH, STEP)
    assert jobs == [PAST]
    assert tally.unreadable == 1
    assert "1 cannot be read (the first: line " in tally.describe()


def test_a_table_without_the_columns_says_how_to_make_it() -> None:
    with pytest.raises(HistoryError, match=r"column End is missing .* sacct --allusers .* --format=JobID,User"):
        sacct(JOB, header=HEADER.replace("|End|", "|Wend|"))
    with pytest.raises(HistoryError, match="column JobID is missing"):
        sacct(header=JOB)


@given(st.lists(st.text()), st.sampled_from([HEADER, "|".join(COLUMNS), "JobID,User,State,Submit,Start,End"]))
def test_no_text_raises(lines: list[str], header: str) -> None:
    sacct(*lines, header=header)
    swf(*lines)


CELLS = st.one_of(
    st.sampled_from(
        ["7", "7_1", "COMPLETED", "1000", "1400", "-1", "1e999", "nan", "9" * 5000, "0001-01-01", "9999-12-31"]
    ),
    st.from_regex(r"[0-9]{0,5}-?[0-9]{0,20}:[0-9]{0,3}(:[0-9]+)?", fullmatch=True),
    st.from_regex(r"(cpu|mem|node|gres/gpu)=[0-9.]{0,12}[KMGTPZ]?(,mem=[0-9.]*)?", fullmatch=True),
    st.text(max_size=10),
)


@given(st.lists(st.lists(CELLS, min_size=15, max_size=15)))
def test_no_table_raises_and_what_is_read_of_it_can_be_stored(rows: list[list[str]]) -> None:
    jobs, _ = sacct(*("|".join(row) for row in rows))
    jobs += swf(*(" ".join(cell.replace(" ", "") or "-1" for cell in (*row, *row[:3])) for row in rows))[0]
    for job in jobs:
        assert msgspec.json.decode(msgspec.json.encode(job), type=PastJob) == job
        assert max(job.nodes, job.cpus, job.gpus) < 2**31
        assert len(job.user) <= 64
        assert "\0" not in job.name
        assert job.run_s >= 0


def test_a_text_is_read_on_from_where_it_was_left() -> None:
    text = "\n".join((HEADER, JOB, BATCH, JOB.replace("7|", "8|", 1), BATCH, JOB.replace("7|", "9|", 1), ""))
    lines = LogLines.of_text(text)
    jobs = read_sacct(lines, ReadTally())
    assert next(jobs).job_id == "7"
    resume_at = lines.start
    assert [job.job_id for job in read_sacct(LogLines.of_text(text), ReadTally(), resume_at)] == ["8", "9"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    jobs, tally = sacct("x" * 5_000_000, JOB)
    assert len(jobs) == 1
    assert tally.unreadable == 1
    assert len(tally.first_fault) < 200


SWF = (
    "; UnixStartTime: 820454400",
    "1 60 10 3600 8 1800 2048 8 7200 4096 1 12 3 17 2 5 -1 -1",
    "2 70 -1 0 -1 -1 -1 4 600 -1 5 12 3 17 2 5 -1 -1",
    "3 80 5 100 4 -1 -1 -1 -1 -1 0 12 -1 -1 -1 -1 -1 -1",
    "3 80 5 50 4 -1 -1 -1 -1 -1 2 12 -1 -1 -1 -1 -1 -1",
)


def test_swf() -> None:
    (done, failed), tally = swf(*SWF)
    assert done == PastJob(
        job_id="1",
        user="u12",
        submitted_s=820454460,
        started_s=820454470,
        ended_s=820458070,
        state="COMPLETED",
        nodes=1,
        cpus=8,
        mem_mib=32,
        limit_s=7200,
        account="g3",
        partition="q2",
        qos="p5",
        script="e17",
        max_rss_mib=2,
        cpu_s_used=14400,
    )
    assert (failed.state, failed.limit_s, failed.account, failed.script) == ("FAILED", None, "", "")
    assert (tally.never_started, tally.unreadable) == (1, 0)


@pytest.mark.parametrize("line", ["1 2 3", SWF[1].replace(" 3600 ", " long "), SWF[1].replace(" 1 12 ", " 9 12 ")])
def test_a_broken_line_of_swf_is_counted(line: str) -> None:
    jobs, tally = swf(SWF[0], line, SWF[3])
    assert (len(jobs), tally.unreadable) == (1, 1)
    assert tally.first_fault.startswith("line 2: ")
