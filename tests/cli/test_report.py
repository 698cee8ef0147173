"""Lines, fields and totals of ``rlalloc report``; tests/daemon/test_report_on_slurm.py has a real site."""

import re
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from rlalloc.job import Allocation
from rlalloc.store import Application, Store
from rlalloc.store.decided_jobs import DecidedJob, Undone
from rlalloc_cli.report.report_fields import FIELDS, FieldError, cell, clock, fields_of, row_of
from rlalloc_cli.report.report_text import RESULT_WORDS
from rlalloc_cli.report.report_totals import Totals, TotalsSoFar
from rlalloc_cli.report.reported_runs import RESULTS, Amounts, ReportedRun, RunJoiner
from rlallocd.slurm import AccountedRun, Span
from rlallocd.slurm.accounted_runs import read_runs
from tests.core.test_store import DECISION

SPAN = Span(1000, 2000)
ASKED = Allocation(1, 8, 1, 64, 65536, 3600)
GIVEN = Allocation(1, 4, 1, 32, 32768, 7200)
RUN = AccountedRun(
    name="7",
    raw_id=7,
    job_id=7,
    user="alice",
    account="llm",
    partition="gpu",
    qos="normal",
    state="COMPLETED",
    exit_code="0:0",
    submitted_s=1000,
    eligible_s=1000,
    started_s=1100,
    ended_s=1200,
    elapsed_s=100,
    run_s=100,
    limit_s=7200,
    tres="billing=32,cpu=32,gres/gpu=4,mem=32768M,node=1",
    requested_tres="billing=32,cpu=32,gres/gpu=4,mem=32768M,node=1",
    nodes=1,
    gpus=4,
    cpus=32,
    mem_mib=32768,
    cpu_s_used=1600.0,
    max_rss_mib=100.0,
    job_name="train",
    comment="",
)
JOB = DecidedJob(
    job_id=7, submitted_s=1000, user="alice", mode="enforce", rule="llm", reason="", asked=ASKED,
    policy_version="v1", decided=GIVEN, applied=GIVEN, slowdown=1.6,
)  # fmt: skip


def changed(struct: AccountedRun, **values: object) -> AccountedRun:
    return msgspec.structs.replace(struct, **values)


def report(runs: Collection[AccountedRun], *jobs: DecidedJob) -> tuple[list[ReportedRun], Totals]:
    totals, joiner = TotalsSoFar(SPAN), RunJoiner(lambda ids: [job for job in jobs if job.job_id in ids], SPAN)
    lines = list(joiner.reported(list(runs)))
    for line in lines:
        totals.add(line)
    return lines, totals.totals()


def test_a_changed_job_gives_back_what_it_did_not_hold() -> None:
    (line,), totals = report([RUN], JOB)
    assert (line.result, line.wait_s, line.jct_s) == ("changed", 100, 200)
    assert line.given == Amounts(400, 3200, 3276800) == totals.all.given
    assert line.net is not None
    assert line.net.gpu_s == pytest.approx(8 * 100 / 1.6 - 4 * 100)  # it would have been done sooner as asked
    assert totals.all.held == Amounts(400, 3200, 3276800)
    assert (totals.all.cpu_s_used, totals.all.cpu_s_of_used) == (1600, 3200)
    assert totals.by_policy["v1"].jobs == 1


def test_a_run_whose_gpus_slurm_does_not_account_holds_those_of_its_size() -> None:
    """AccountingStorageTRES lacks gres/gpu."""
    tres = "billing=32,cpu=32,mem=32768M,node=1"
    assert report([changed(RUN, gpus=0, tres=tres, requested_tres=tres)], JOB)[1].all == report([RUN], JOB)[1].all


@pytest.mark.parametrize(
    ("job", "result", "why"),
    [
        (None, "none", ""),
        (JOB, "changed", ""),
        (msgspec.structs.replace(JOB, decided=ASKED, applied=None), "kept", ""),
        (msgspec.structs.replace(JOB, decided=None, applied=None, reason="late: x"), "skipped", "late: x"),
        (msgspec.structs.replace(JOB, applied=None, mode="shadow"), "shadow", ""),
        (msgspec.structs.replace(JOB, applied=None), "open", ""),
        (
            msgspec.structs.replace(JOB, applied=None, undone=(Undone("restored", "it was half"),)),
            "undone",
            "restored: it was half",
        ),
    ],
)
def test_what_became_of_a_decision(job: DecidedJob | None, result: str, why: str) -> None:
    (line,), totals = report([RUN], *([job] if job is not None else []))
    assert (line.result, line.why) == (result, why)
    assert (line.given is not None) == (result == "changed")
    assert list(totals.by_result) == [result]
    assert totals.undone == ({why: 1} if result == "undone" else {})
    assert totals.skipped == ({"late": 1} if result == "skipped" else {})


def test_a_requeued_job_is_one_job_and_its_jct_counts_from_its_first_submission() -> None:
    first = changed(RUN, state="REQUEUED")
    second = changed(RUN, submitted_s=1300, started_s=1400, ended_s=1700, elapsed_s=300, run_s=300)
    lines, totals = report([second, first], JOB)
    assert [(line.result, line.again, line.jct_s) for line in lines] == [
        ("changed", False, None),
        ("changed", True, 700),
    ]
    assert (totals.all.jobs, totals.all.runs, totals.all.ended, totals.all.held.gpu_s) == (1, 2, 1, 1600)
    (alone,), _ = report([second], JOB)  # its first run ended before the span
    assert (alone.result, alone.again, alone.jct_s) == ("changed", True, 700)
    (other,), _ = report([changed(second, user="bob")], JOB)  # Slurm used the id again
    assert (other.result, other.jct_s) == ("none", 400)


@pytest.mark.parametrize(
    ("values", "killed", "ours"),
    [
        ({"state": "TIMEOUT"}, "timeout", "timeout"),
        ({"state": "OUT_OF_MEMORY"}, "out-of-memory", "out-of-memory"),
        ({"state": "FAILED", "comment": "x rlalloc:gpu-out-of-memory"}, "gpu-out-of-memory", "gpu-out-of-memory"),
        ({"state": "FAILED", "exit_code": "137:0"}, None, "out-of-memory"),
        ({"state": "FAILED"}, None, None),
        ({"state": "RUNNING", "ended_s": None}, None, None),
    ],
)
def test_kills_of_ours_and_of_others(values: dict[str, object], killed: str | None, ours: str | None) -> None:
    (line,), totals = report([changed(RUN, **values)], JOB)
    assert (line.killed_by, line.our_doing) == (killed, ours)
    assert totals.by_result["changed"].our_doing == ({ours: 1} if ours else {})
    (line,), totals = report([changed(RUN, **values)])
    assert (line.killed_by, line.our_doing) == (killed, None)
    assert totals.all.killed == ({killed: 1} if killed else {})


def test_what_lies_outside_of_the_span_is_no_wait_and_no_end() -> None:
    _, totals = report([changed(RUN, submitted_s=800, started_s=900), changed(RUN, raw_id=8, ended_s=2500)])
    assert (totals.all.waits.count, totals.all.jct.count) == (1, 1)


def test_fields_are_named_as_in_sacct() -> None:
    assert [field.name for field in fields_of("jobid, STATE%12,User%-5")] == ["JobID", "State", "User"]
    assert [field.width for field in fields_of("jobid,state%12,User%-5")] == [-12, 12, -5]
    for wrong in ("", "JobID,", "Nonsense", "JobID%x"):
        with pytest.raises(FieldError, match="is not a field; write NAME or NAME%WIDTH with one of: JobID, "):
            fields_of(wrong)
    assert [clock(seconds) for seconds in (None, 59, 3600, 90061)] == ["", "00:00:59", "01:00:00", "1-01:01:01"]
    assert [cell("abcdef", width) for width in (4, 8, -8)] == ["abc+", "  abcdef", "abcdef  "]


def test_no_name_moves_the_cursor() -> None:
    """Nor is it read in another order than it was written."""
    (line,), _ = report([changed(RUN, job_name="a\x1b[2J\nb\x9b\u202ec é")])
    assert row_of(line, fields_of("JobName")) == ["a_[2J_b__c é"]


def test_the_page_has_every_field_and_result() -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin" / "report.md").read_text(encoding="utf-8")
    fields = page.split("## Fields")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.+) \|$", fields, re.MULTILINE))
    results = {"-" if name == "none" else name: RESULT_WORDS[name] for name in RESULTS}
    assert rows == {field.name: field.meaning for field in FIELDS} | results


def test_names_and_comments_may_have_lines_of_their_own() -> None:
    row = [*("7", "7", "alice", "llm", "gpu", "normal", "CANCELLED by 0", "0:0"), *["1"] * 5, "UNLIMITED"]
    row += ["cpu=1,node=1", "cpu=1", "00:00:01", "", "a\nb\n\nc", "d\n\ne\n8|8"]
    text = "\x1f!".join(row) + "\n" + "\x1f!".join(["7.batch", *row[1:]]) + "\n"
    (run,) = read_runs(text, "\x1f!")
    assert (run.job_name, run.state, run.limit_s, run.cpus) == ("a\nb\n\nc", "CANCELLED", None, 1)


@pytest.mark.parametrize("odd", ["Unknown", "", "²", "9" * 400], ids=range(4))
def test_a_row_that_cannot_be_read_is_left_out_and_told(odd: str, caplog: pytest.LogCaptureFixture) -> None:
    row = [*("7", "7", "alice", "llm", "gpu", "normal", "COMPLETED", "0:0"), *["1"] * 5, "UNLIMITED"]
    row += ["cpu=1,node=1", "cpu=1", "00:00:01", "", "a", "b"]
    other = [*("8", "8"), *row[2:8], odd, *row[9:]]
    text = "".join("\x1f!".join(each) + "\n" for each in (other, row, ["8", "8", *row[2:10], odd, *row[11:]]))
    seven, eight = read_runs(text, "\x1f!")
    assert (seven.name, eight.name, eight.started_s) == ("7", "8", None)
    assert "leaves out job 8," in caplog.text


def test_sizes_in_the_store(tmp_path: Path) -> None:
    """The last change that was begun counts; without one, the first decision."""
    later = msgspec.structs.replace(DECISION, id="d2", decided_s=DECISION.decided_s + 1, policy_version="v9")
    other = msgspec.structs.replace(DECISION, id="d3", job_id=8)
    step = Application(
        id=0, decision_id=DECISION.id, job_id=DECISION.job_id, state="restored", original=DECISION.request,
        intended=GIVEN, begin_s=0, detail="it was half", changed_s=1.0,
    )  # fmt: skip
    with closing(Store(f"sqlite:///{tmp_path}/store.sqlite")) as store:
        store.add_decisions([DECISION, later, other])
        store.journal([step])
        (job,) = store.sizes.of([DECISION.job_id])
        assert (job.applied, job.policy_version, job.asked) == (None, DECISION.policy_version, DECISION.request)
        assert job.undone == (Undone("restored", "it was half"),)
        store.journal([msgspec.structs.replace(step, decision_id="d2", state="begun")])
        (job,) = store.sizes.of([DECISION.job_id])
        assert (job.applied, job.policy_version) == (GIVEN, "v9")
        assert [each.job_id for each in store.sizes.of(range(2000))] == [7, 8]
