"""``rlalloc history evaluate`` on a small log."""

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import Run, config, run  # noqa: F401 (fixtures)
from tests.core.run_times.synthetic_site import synthetic_jobs

pytest.importorskip("lightgbm")


def swf_line(number: int, user: int, run_s: float, submitted_s: float, limit_s: float) -> str:
    fields = [number, submitted_s, 10, run_s, 4, -1, -1, 4, limit_s, -1, 1, user, 1, user, 1, 1, -1, -1]
    return " ".join(f"{value:.0f}" for value in fields)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    first_s = 1.7e9
    lines = ["; UnixStartTime: 1700000000"]
    for job in synthetic_jobs(600):
        user = int(job.user.removeprefix("user")) * 3 + job.gpus
        lines.append(
            swf_line(int(job.job_id), user, max(1.0, job.run_s), job.submitted_s - first_s, job.limit_s or 1.0)
        )
    path = tmp_path / "site.swf"
    path.write_text("\n".join([*lines, "not a job"]) + "\n")
    return path


@pytest.mark.slow
def test_the_table_and_the_json_have_the_same_figures(run: Run, log: Path) -> None:  # noqa: F811
    done = run("history", "evaluate", str(log), "--from", "swf")
    assert done.returncode == 0, done.stderr
    assert "480 jobs of site.swf, after 120 others" in " ".join(done.stdout.split())
    assert "1 cannot be read (the first: line 602" in done.stderr
    as_json = run("history", "evaluate", str(log), "--from", "swf", "--json")
    found = json.loads(as_json.stdout)
    figures = found["predictors"]
    at_submission, _, running = done.stdout.partition("Remaining times of running jobs")
    for text, of in ((at_submission, figures), (running, found["remaining"])):
        rows = {
            cells[0]: cells[1:]
            for line in text.splitlines()
            if len(cells := [cell.strip() for cell in line.split("│")[1:-1]]) == 4
        }
        assert set(rows) == set(of)
        for name, row in rows.items():
            assert row[0] == f"{of[name]['log2_error']:.2f}"
            assert row[1] == f"{of[name]['rank_correlation']:.3f}"
    assert f"{found['running']:,} at 1,000 moments" in " ".join(running.split())
    assert figures["predictor"]["rank_correlation"] > figures["limit x median use"]["rank_correlation"]


def test_wrong_use_gives_one_line(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    missing = run("history", "evaluate", str(tmp_path / "none"))
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1
    few = run("history", "evaluate", str(log), "--from", "swf", "--last", "20")
    assert few.returncode == 2
    assert "found 20 jobs that ran: give at least 200" in few.stderr


def test_trimming_is_replayed_on_a_log_with_uses(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """400 jobs of one name that hold 50 of 256 GiB, one of them suddenly 200."""
    header = "JobID|User|JobName|State|Submit|Start|End|AllocTRES|TotalCPU|MaxRSS|NTasks|NNodes"
    lines = [header]
    for number in range(1, 2001):
        begin_s, held = 1_700_000_000 + 7200 * number, 200 if number == 1900 else 50
        times = f"{begin_s}|{begin_s + 60}|{begin_s + 3660}"
        lines.append(f"{number}|ada|train|COMPLETED|{times}|cpu=64,mem=256G,gres/gpu=4,node=1|08:00:00|||1")
        lines.append(f"{number}.batch|||COMPLETED|{times}||08:00:00|{held}G|1|1")
    log = tmp_path / "sacct.txt"
    log.write_text("\n".join(lines) + "\n")
    done = run("history", "evaluate", str(log), "--usage", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["jobs"], found["killed"]) == (1600, 1)
    assert found["given_back_gib_hours"] > 0.8 * found["over_asked_gib_hours"]
    assert found["given_back_cpu_hours"] > 0.8 * found["over_asked_cpu_hours"]
    shown = run("history", "evaluate", str(log), "--usage")
    assert "GiB-hours" in shown.stdout


def test_a_log_without_uses_says_what_it_lacks(run: Run, log: Path) -> None:  # noqa: F811
    done = run("history", "evaluate", str(log), "--from", "swf", "--usage")
    assert (done.returncode, "MaxRSS" in done.stderr) == (2, True)
