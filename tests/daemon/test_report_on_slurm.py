"""``rlalloc report`` on a real site: its figures are those of raw sacct, added up here without rlalloc's code."""

import calendar
import contextlib
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlalloc_testbed import USER, Installation, install
from rlallocd.outcomes.ends_of_ours import GPU_MARKER
from rlallocd.slurm import Commands, span_of
from slurm_testbed import Site, wait_until

pytestmark = pytest.mark.slurm

PROGRAM = Path(sys.executable).parent / "rlalloc"
OURS = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10 --job-name=ours
#RLALLOC gpus=1-2 cpus-per-gpu=2-8
#RLALLOC mem-per-gpu=8G-64G
: torchrun train.py
sleep 3
"""
OTHER = "#!/bin/sh\n#SBATCH --ntasks=1 --cpus-per-task=2 --mem=100M --time=30 --gres=gpu:1\nsleep {seconds}\n"
KILLED = OTHER.replace("sleep {seconds}", f"scontrol update JobId=$SLURM_JOB_ID Comment={GPU_MARKER}\nexit 1")
"""What the TaskEpilog does for a job that ran out of a GPU's memory."""
HOSTILE = "</script><b>|\x1b[31m"
FIELDS = "JobID,JobIDRaw,Submit,State,ElapsedRaw,AllocTRES"


@pytest.fixture(scope="module")
def week(daemon_site: Site) -> Iterator[tuple[Installation, int, int]]:
    """A short week of all kinds of jobs, and a span that cuts some of them at its begin and at its end."""
    site = daemon_site
    rlalloc = install(site)
    try:
        for path in site.directory.glob("store.sqlite*"):
            path.unlink()
        rlalloc.start("rlalloc-agent")
        rlalloc.start("rlallocd")
        long = rlalloc.submit(OTHER.format(seconds=900), "--job-name=long")
        site.wait_for_states([long], ["RUNNING"])
        time.sleep(2)
        since_s = int(time.time())
        ours = rlalloc.submit(OURS)
        array = rlalloc.submit(OTHER.format(seconds=1), "--array=1-3", f"--job-name={HOSTILE}")
        suspended = rlalloc.submit(OTHER.format(seconds=5), "--job-name=suspended")
        site.wait_for_states([suspended], ["RUNNING"])
        site.run(["scontrol", "suspend", str(suspended)])
        again = rlalloc.submit(OTHER.format(seconds=900), "--job-name=again")
        cancelled = rlalloc.submit(OTHER.format(seconds=900), "--job-name=cancelled")
        killed = rlalloc.submit(KILLED, "--job-name=killed")
        bobs = site.sbatch(OTHER.format(seconds=1), user="llm-bob")
        never = rlalloc.submit(
            OTHER.format(seconds=1), "--nodes=2", "--gres=gpu:8", "--exclusive", "--job-name=never"
        )
        site.wait_for_states([again, cancelled], ["RUNNING"])
        wait_until(  # a run that is requeued before slurmdbd knows of its start has none in sacct, as if it never ran
            lambda: f"{again}|RUNNING" in raw(site, since_s, int(time.time()) + 1, "JobID,State"),
            what="slurmdbd knows of the start",
        )
        site.run(["scontrol", "requeue", str(again)])
        site.wait_for_states([ours, array, bobs], ["COMPLETED"])
        site.wait_for_states([killed], ["FAILED"])
        site.run(["scancel", str(cancelled), str(never)])
        site.run(["scontrol", "resume", str(suspended)])
        site.wait_for_states([suspended], ["COMPLETED"])
        # Not at once: slurmd may refuse a job that it has just ended ("Job credential revoked").
        site.run(["scontrol", "update", f"JobId={again}", "StartTime=now+5"])
        site.wait_for_states([again], ["RUNNING"])
        time.sleep(3)
        until_s = int(time.time()) - 1
        wait_until(
            lambda: f"{again}|RUNNING" in raw(site, since_s, until_s, "JobID,State"), what="slurmdbd knows all"
        )
        wait_until(lambda: rlalloc.explain(ours), what="the job was decided")
        yield rlalloc, since_s, until_s
    finally:  # also of an attempt that failed: one rlallocd at a time
        rlalloc.stop_all()
        (rlalloc.runtime / "intercept").unlink(missing_ok=True)
        site.run(["scancel", "--user", USER])


def raw(site: Site, since_s: int, until_s: int, fields: str = FIELDS, *more: str) -> str:
    """What sacct itself prints, cut at the ends of the span by sacct."""
    span = [f"--starttime=uts{since_s}", f"--endtime=uts{until_s}"]
    command = ["sacct", "-a", "-D", "-X", "-P", "-n", "-T", "--noconvert", *span, f"--format={fields}", *more]
    return site.run(["env", "SLURM_TIME_FORMAT=%s", *command])


def summed(rows: str) -> Counter[str]:
    """Seconds of nodes, CPUs, GPUs and MiB in sacct's rows."""
    sums: Counter[str] = Counter()
    for line in rows.splitlines():
        elapsed, tres = line.split("|")[-2:]
        for name, number in re.findall(r"(cpu|mem|node|gres/gpu)=(\d+)M?", tres):
            sums[name] += int(elapsed) * int(number)
    return sums


def reported(rlalloc: Installation, *words: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
    done = rlalloc.site.try_run(
        [PROGRAM, "report", *words],
        user=user,
        environment={
            "RLALLOC_CONFIG": str(rlalloc.config_path),
            "RLALLOC_RUNTIME_DIRECTORY": str(rlalloc.runtime),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
    )
    return subprocess.CompletedProcess(done.arguments, done.status, done.output, done.error_output)


def as_json(rlalloc: Installation, since_s: int, until_s: int, *words: str, user: str | None = None) -> Any:
    done = reported(rlalloc, "-S", f"uts{since_s}", "-E", f"uts{until_s}", "--json", *words, user=user)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_figure_is_sacct_s(week: tuple[Installation, int, int]) -> None:
    rlalloc, since_s, until_s = week
    rows = raw(rlalloc.site, since_s, until_s)
    found = as_json(rlalloc, since_s, until_s)
    theirs = sorted(line.split("|")[:5] for line in rows.splitlines())
    ours = [
        [run["job_id"], str(run["job_id_raw"]), str(run["submit_s"]), run["state"], str(run["elapsed_s"])]
        for run in found["runs"]
    ]
    assert sorted(ours) == [[*line[:3], line[3].split()[0], line[4]] for line in theirs]
    states = {run["state"] for run in found["runs"]}
    assert {"COMPLETED", "REQUEUED", "RUNNING", "CANCELLED"} <= states
    held, sums = found["totals"]["all"]["held"], summed(rows)
    assert (held["gpu_s"], held["cpu_s"], held["mem_mib_s"]) == (sums["gres/gpu"], sums["cpu"], sums["mem"])
    cut = [run for run in found["runs"] if run["elapsed_s"] < run["run_s"]]
    assert len({run["job_id"] for run in cut}) >= 2  # one at each end


def seconds(text: str) -> float:
    """Slurm's ``[DD-]HH:MM:SS`` or ``MM:SS.mmm``."""
    days, _, rest = text.rpartition("-")
    found = 0.0
    for part in rest.split(":"):
        found = 60 * found + float(part)
    return 86_400 * int(days or 0) + found


def quantile(values: list[float], part: float) -> float:
    """Between the two values next to it, by its distance from both."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = ordered[int(place)]
    return below + (place - int(place)) * (ordered[min(int(place) + 1, len(ordered) - 1)] - below)


def test_waits_run_times_kills_and_cpu_time_are_what_raw_sacct_adds_up_to(
    week: tuple[Installation, int, int],
) -> None:
    """Of whole runs, without --truncate; a requeued job's time counts from its first submission."""
    rlalloc, since_s, until_s = week
    names = "JobID,JobIDRaw,Submit,Start,End,State,ElapsedRaw,AllocTRES,TotalCPU,Comment"
    span = (f"--starttime=uts{since_s}", f"--endtime=uts{until_s}")
    query = ("sacct", "-a", "-D", "-P", "-n", "--noconvert", *span, f"--format={names}")
    rows = [line.split("|") for line in rlalloc.site.run(["env", "SLURM_TIME_FORMAT=%s", *query]).splitlines()]
    runs = [row for row in rows if "." not in row[0] and row[7]]  # no steps, and none that never held anything
    first_s = {row[1]: min(int(each[2]) for each in runs if each[1] == row[1]) for row in runs}
    waits = [int(row[3]) - int(row[2]) for row in runs if since_s <= int(row[3]) <= until_s]
    ended = [row for row in runs if row[5].split()[0] in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT")]
    ended = [row for row in ended if int(row[4]) <= until_s]
    times = {
        "waits": [float(each) for each in waits],
        "run_times": [float(row[6]) for row in ended],
        "jct": [float(int(row[4]) - first_s[row[1]]) for row in ended],
    }
    totals = as_json(rlalloc, since_s, until_s)["totals"]["all"]
    for name, values in times.items():
        assert len(values) >= 5, name
        assert totals[name]["count"] == len(values), name
        assert totals[name]["mean_s"] == pytest.approx(sum(values) / len(values)), name
        assert totals[name]["median_s"] == pytest.approx(quantile(values, 0.5)), name
        assert totals[name]["p95_s"] == pytest.approx(quantile(values, 0.95)), name
    assert totals["ended"] == len(ended)
    killed = [row for row in ended if row[5] == "FAILED" and GPU_MARKER in row[9]]
    assert totals["killed"] == {"gpu-out-of-memory": len(killed)}
    assert len(killed) == 1
    whole = [row for row in runs if int(row[3]) >= since_s and row[4].isdigit() and int(row[4]) <= until_s]
    used = [row for row in whole if seconds(row[8])]
    assert len(used) >= 5
    assert totals["cpu_s_used"] == pytest.approx(sum(seconds(row[8]) for row in used))
    cpus = [int(re.findall(r"cpu=(\d+)", row[7])[0]) for row in used]
    assert totals["cpu_s_of_used"] == sum(int(row[6]) * count for row, count in zip(used, cpus, strict=True))


def test_portions_of_a_span_add_up_to_it(
    week: tuple[Installation, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run comes once, although sacct prints it for each portion that it ran in."""
    from rlallocd.slurm import Commands, RunFilter, Span, accounted_runs, runs_in

    rlalloc, since_s, until_s = week
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, rlalloc.site.environment()[name])
    monkeypatch.setattr(accounted_runs, "_FIRST_SPAN_S", 3)
    monkeypatch.setattr(accounted_runs, "_FEW_CHARACTERS", 0)
    portions = list(runs_in(Commands(300), Span(since_s, until_s), RunFilter()))
    assert len(portions) >= 3
    found = sorted([run.name, str(run.submitted_s), str(run.elapsed_s)] for runs in portions for run in runs)
    rows = raw(rlalloc.site, since_s, until_s, "JobID,Submit,ElapsedRaw")
    assert found == sorted(line.split("|") for line in rows.splitlines())


def test_what_was_asked_decided_applied_and_given_back(week: tuple[Installation, int, int]) -> None:
    rlalloc, since_s, until_s = week
    found = as_json(rlalloc, since_s, until_s)
    (run,) = (run for run in found["runs"] if run["job_name"] == "ours")
    assert (run["result"], run["mode"], run["asked"]["gpus"], run["asked"]["cpus"]) == ("changed", "enforce", 4, 32)
    name = run["job_id"]
    printed = rlalloc.site.run(["sacct", "-nPX", f"-j{name}", "--noconvert", "-o", "ElapsedRaw,AllocTRES"]).strip()
    elapsed_s, tres = int(printed.split("|")[0]), dict(re.findall(r"(\w+)=(\d+)", printed))
    assert run["applied"]["gpus"] == run["held"]["gpus"] == int(tres["gpu"]) < 4
    given = (4 - int(tres["gpu"])) * elapsed_s, (32 - int(tres["cpu"])) * elapsed_s
    assert (run["given"]["gpu_s"], run["given"]["cpu_s"]) == given
    assert run["given"]["mem_mib_s"] == (204800 - int(tres["mem"])) * elapsed_s
    totals = found["totals"]
    assert totals["by_result"]["changed"]["given"] == totals["all"]["given"] == run["given"]
    assert totals["by_policy"][run["policy"]]["jobs"] == 1
    again = [run for run in found["runs"] if run["job_name"] == "again"]
    assert [run["again"] for run in again] == [False, True]
    assert totals["all"]["jobs"] == totals["all"]["runs"] - 1


def test_a_user_gets_own_jobs_only(week: tuple[Installation, int, int]) -> None:
    """Neither the configuration nor the store can be read by them: rlallocd tells what was decided."""
    rlalloc, since_s, until_s = week
    rlalloc.config_path.chmod(0o600)
    try:
        mine = as_json(rlalloc, since_s, until_s, user=USER)
        bobs = as_json(rlalloc, since_s, until_s, user="llm-bob")
        refused = reported(rlalloc, "--user=llm-bob", user=USER)
    finally:
        rlalloc.config_path.chmod(0o644)
    assert {run["user"] for run in mine["runs"]} == {USER}
    assert [run["result"] for run in mine["runs"] if run["job_name"] == "ours"] == ["changed"]
    assert [run["user"] for run in bobs["runs"]] == ["llm-bob"]
    assert refused.returncode == 2
    assert "your own jobs only" in refused.stderr


def test_the_table_fits_a_terminal_and_filters_are_saccts(week: tuple[Installation, int, int]) -> None:
    rlalloc, since_s, until_s = week
    span = ("-S", f"uts{since_s}", "-E", f"uts{until_s}")
    shown = reported(rlalloc, *span)
    assert shown.returncode == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80, shown.stdout
    assert "REQUEUED" in shown.stdout
    parsable = reported(rlalloc, *span, "-u", "llm-bob", "-P", "-o", "JobID,State,ElapsedRaw,JobName").stdout
    rows = raw(rlalloc.site, since_s, until_s, "JobID,State,ElapsedRaw,JobName", "-u", "llm-bob")
    assert parsable.splitlines()[1:] == rows.splitlines()
    hostile = reported(rlalloc, *span, "-P", "-o", "JobName,User").stdout
    assert "\x1b" not in hostile
    assert "</script><b>__[31m|llm-alice" in hostile
    assert reported(rlalloc, *span, "--totals", "--partition=gpu").stdout.startswith(time.strftime("%Y-"))


def test_the_page_and_what_enforcing_would_change(week: tuple[Installation, int, int], tmp_path: Path) -> None:
    """Of so few jobs nothing can be said, and that is what it says."""
    rlalloc, since_s, until_s = week
    page = tmp_path / "week.html"
    span = ("-S", f"uts{since_s}", "-E", f"uts{until_s}")
    done = reported(rlalloc, *span, "--what-if", "--html", str(page))
    assert done.returncode == 0, done.stderr
    assert page.stat().st_mode & 0o077 == 0
    text = page.read_text(encoding="utf-8")
    assert "Too few jobs to say: 1 of this span were decided" in text
    assert "&lt;/script&gt;&lt;b&gt;" not in text  # a job that rlalloc left alone is in the totals only
    assert "<script" not in text
    assert "simulating 1 decided jobs" in done.stderr


AUTUMN_S = calendar.timegm((2026, 10, 25, 0, 30, 0))
"""02:30 in Berlin and 01:30 in London, for the first time that night; an hour later for the second time."""
SPRING_S = calendar.timegm((2026, 3, 29, 0, 30, 0))
"""01:30 in Berlin; half an hour later it is three o'clock."""
HOUR_S = 3600


@pytest.mark.parametrize(
    ("zone", "starttime", "endtime", "span"),
    [
        ("Europe/Berlin", f"uts{AUTUMN_S}", f"uts{AUTUMN_S + HOUR_S}", (AUTUMN_S, AUTUMN_S + HOUR_S)),
        ("Europe/Berlin", f"uts{AUTUMN_S + HOUR_S}", f"uts{AUTUMN_S + 5000}", (AUTUMN_S + HOUR_S, AUTUMN_S + 5000)),
        ("Europe/Berlin", f"uts{AUTUMN_S}", f"uts{AUTUMN_S + 900}", (AUTUMN_S, AUTUMN_S + 900)),
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25T02:30:01", (AUTUMN_S, AUTUMN_S + HOUR_S + 1)),
        ("Europe/Berlin", "2026-10-25", "2026-10-26", (AUTUMN_S - 9000, AUTUMN_S - 9000 + 25 * HOUR_S)),
        ("Europe/London", f"uts{AUTUMN_S}", f"uts{AUTUMN_S + 900}", (AUTUMN_S, AUTUMN_S + 900)),
        ("Europe/London", "2026-10-25T01:30", "2026-10-25T01:30:01", (AUTUMN_S, AUTUMN_S + HOUR_S + 1)),
        ("Europe/Berlin", "2026-03-29T01:30", "2026-03-29T03:30", (SPRING_S, SPRING_S + HOUR_S)),
        ("Europe/Berlin", f"uts{SPRING_S}", f"uts{SPRING_S + HOUR_S}", (SPRING_S, SPRING_S + HOUR_S)),
        ("Europe/Berlin", "2026-03-29", "2026-03-30", (SPRING_S - 5400, SPRING_S - 5400 + 23 * HOUR_S)),
    ],
)
def test_spans_where_clocks_are_changed(
    site_commands: Commands, zone: str, starttime: str, endtime: str, span: tuple[int, int]
) -> None:
    """A moment is that moment; a local time that comes twice begins a span at the first and ends it at the second."""
    with local_zone(zone):
        assert span_of(site_commands.in_zone(zone), starttime, endtime) == span


def test_a_local_time_that_is_left_out_is_what_slurm_makes_of_it(site_commands: Commands) -> None:
    with local_zone("Europe/Berlin"):
        found = span_of(site_commands.in_zone("Europe/Berlin"), "2026-03-29T02:30", "2026-03-29T04:00")
    assert found.since_s in (SPRING_S, SPRING_S + HOUR_S)
    assert found.until_s == SPRING_S + 5400


@pytest.fixture
def site_commands(daemon_site: Site, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name, value in daemon_site.environment().items():
        monkeypatch.setenv(name, value)
    return Commands(timeout_s=60)


@contextlib.contextmanager
def local_zone(zone: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as here:
        here.setenv("TZ", zone)
        time.tzset()
        yield
    time.tzset()


def test_what_cannot_be_asked_is_said(week: tuple[Installation, int, int]) -> None:
    rlalloc, since_s, _ = week
    for words, said in (
        (["--starttime=rubbish"], "Slurm does not take these times"),
        (["-S", f"uts{since_s}", "-E", f"uts{since_s - 60}"], "after end time"),
        (["--user=nosuchuser"], "rlalloc: sacct refuses this: Invalid user id: nosuchuser\n"),
        (["--user=nosuchuser", "--json"], "nosuchuser"),
        (["--user=nosuchuser", "--parsable2"], "nosuchuser"),
    ):
        done = reported(rlalloc, *words)
        assert done.stdout == "", words
        assert done.returncode in (1, 2), words
        assert said in done.stderr
        assert "Traceback" not in done.stderr
