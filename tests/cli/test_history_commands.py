"""``rlalloc history``: what an administrator imports and sees."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlalloc.config import Config
from rlalloc.history import Importer
from rlalloc.history.earlier_reading import EARLIER, IMPORTED
from rlalloc.store import Store
from rlalloc_cli.history_import import import_live
from rlallocd.slurm import EndedJobs
from slurm_testbed import wait_until
from tests.cli.test_cli import Run, config, run  # noqa: F401 (fixtures)
from tests.core.history.test_history_readers import BATCH, HEADER, JOB, SWF


@pytest.fixture
def log(tmp_path: Path, config: Path) -> Path:  # noqa: F811
    """A log of sacct's with twenty jobs, of a site that keeps them for a hundred years; its store is empty."""
    settings = f"\nhistory: {{key_file: '{tmp_path}/history.key'}}\n"
    config.write_text(config.read_text().replace("sqlite'}", "sqlite', keep_history_days: 36500}") + settings)
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join((HEADER, *(f"{number}{JOB[1:]}\n{number}{BATCH[1:]}" for number in range(20)))) + "\n")
    Store(f"sqlite:///{tmp_path}/store.sqlite").close()
    return path


def stored(tmp_path: Path) -> list[str]:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite", read_only=True)
    found = [job.job_id for job in store.history.past_jobs()]
    store.close()
    return found


def test_importing_again_adds_nothing(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    done = run("history", "import", str(log))
    assert (done.returncode, done.stdout) == (0, "20 past jobs read, 20 of them new\n")
    assert run("history", "import", str(log)).stdout == "0 past jobs read, 0 of them new\n"
    log.write_text(log.read_text() + f"99{JOB[1:]}\n")  # made anew, one job longer
    assert run("history", "import", str(log)).stdout == "21 past jobs read, 1 of them new\n"
    assert len(stored(tmp_path)) == 21


def test_an_import_begins_no_store_where_none_is_mounted(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    store = tmp_path / "store.sqlite"
    store.unlink()
    refused = run("history", "import", str(log))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "if it lies on a shared file system, mount that" in refused.stderr
    assert not store.exists()
    assert run("history", "import", str(log), "--create").returncode == 0
    assert len(stored(tmp_path)) == 20


def test_an_interrupted_import_goes_on_where_it_stopped(
    run: Run,  # noqa: F811
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlalloc.history.log_import._BATCH", 6)
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    positions: list[int] = []

    def interrupt_after_two(position: int) -> None:
        positions.append(position)
        if len(positions) == 3:
            raise KeyboardInterrupt

    importer = Importer(store.history, kept_from_s=0, disguise=lambda job: job)
    with log.open("rb") as opened, pytest.raises(KeyboardInterrupt):
        importer.add_file(opened, "sacct", interrupt_after_two)
    store.close()
    assert len(stored(tmp_path)) == 12
    assert run("history", "import", str(log)).stdout == "8 past jobs read, 8 of them new\n"
    assert stored(tmp_path) == [str(number) for number in range(20)]


def test_ctrl_c_ends_an_import_and_keeps_what_it_has_done(run: Run, log: Path, config: Path, tmp_path: Path) -> None:  # noqa: F811
    log.write_text("\n".join((HEADER, *(f"{number}{JOB[1:]}" for number in range(100_000)))))
    command: list[str | Path] = [
        Path(sys.executable).parent / "rlalloc",
        "history",
        "import",
        str(log),
        "--config",
        str(config),
    ]
    # A signal that comes while coverage holds its lock would leave the program waiting for it for ever.
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=unmeasured) as process:
        wait_until(lambda: stored(tmp_path), what="some jobs are stored")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    before = len(stored(tmp_path))
    assert 0 < before < 100_000
    left = 100_000 - before
    assert run("history", "import", str(log)).stdout == f"{left} past jobs read, {left} of them new\n"


def test_what_cannot_be_read_is_one_line(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    log.write_text(log.read_text() + "sacct: error: slurmdbd\n")
    done = run("history", "import", str(log))
    assert done.returncode == 0
    assert "besides: 1 cannot be read (the first: line 42: found 1 fields" in done.stdout
    for words, said in (
        ([str(tmp_path / "missing")], "No such file or directory; name a file"),
        ([str(tmp_path)], "Is a directory; name a file"),
        ([str(log), "--from", "swf"], "not one line is of the format swf"),
    ):
        failed = run("history", "import", *words)
        assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
        assert said in failed.stderr
    swf = tmp_path / "log.swf"
    swf.write_text("\n".join(SWF))
    assert "column JobID is missing" in run("history", "import", str(swf)).stderr
    assert run("history", "import", str(swf), "--from", "swf").stdout.startswith("2 past jobs read, 2 of them new")
    assert run("history", "import", str(log), "--starttime", "2026-01-01").returncode == 2
    assert run("history", "import", "--starttime", "2026-01-02", "--endtime", "2026-01-01").returncode == 2


def test_jobs_older_than_the_site_keeps_them_are_left_out(run: Run, log: Path, config: Path) -> None:  # noqa: F811
    config.write_text(config.read_text().replace("36500", "90"))
    said = "20 past jobs read, 0 of them new, 20 left out that ended before store.keep_history_days\n"
    assert run("history", "import", str(log)).stdout == said


def test_pseudonyms_follow_from_a_key_that_only_the_owner_reads(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    log.write_text(log.read_text() + f"99{JOB[1:].replace('|train|', '|train_2026-01-31|')}\n")
    log.write_text(log.read_text() + f"98{JOB[1:].replace('|train|', '|train_2026-02-01|').replace('ada', 'bob')}\n")
    assert run("history", "import", str(log), "--pseudonymize").returncode == 0
    store = Store(f"sqlite:///{tmp_path}/store.sqlite", read_only=True)
    jobs = {job.job_id: job for job in store.history.past_jobs()}
    store.close()
    one, dated, other = jobs["1"], jobs["99"], jobs["98"]
    assert one.user == dated.user != other.user
    assert dated.name == other.name != one.name
    for name in (one.user, one.account, one.name):
        assert name.replace("-", "").isalpha()
        assert not {"ada", "nlp", "train"} & {name}
    key = tmp_path / "history.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.write_text("lost")
    failed = run("history", "import", str(log), "--pseudonymize")
    assert failed.returncode == 1
    assert "not a key; restore it from a backup" in failed.stderr


def test_the_site_decides_whether_names_are_kept(run: Run, log: Path, config: Path, tmp_path: Path) -> None:  # noqa: F811
    """A key that is there is used: names from before agree with those of today."""
    config.write_text(config.read_text().replace("history: {", "history: {pseudonymize: true, "))
    users = set()
    for _ in range(2):
        assert run("history", "import", str(log), "--create").returncode == 0
        store = Store(f"sqlite:///{tmp_path}/store.sqlite", read_only=True)
        users |= {job.user for job in store.history.past_jobs()}
        store.close()
        (tmp_path / "store.sqlite").unlink()
    assert len(users) == 1
    assert users != {"ada"}


def test_show_says_what_the_history_says(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    """Limits of an hour and of ten minutes, run times of five minutes and of fifty seconds."""
    empty = run("history", "show")
    assert (empty.returncode, empty.stderr.count("\n")) == (1, 1)
    short = (
        JOB.replace("|1400|60|", "|1150|10|")
        .replace(",gres/gpu=4", "")
        .replace("COMPLETED", "FAILED")
        .replace("ada", "[/bob]")
    )
    log.write_text(log.read_text() + "".join(f"{number}{short[1:]}\n" for number in range(20, 25)))
    run("history", "import", str(log))
    shown = " ".join(run("history", "show").stdout.replace("│", " ").split())
    for words in (
        "25 past jobs of 2 users and 1 accounts",
        "known of them: their peak memory 80%, their CPU time 100%, their script 0%",
        "limit / run time 12 12 12 12 12",
        "80.0% of the jobs with a limit ask exactly 1:00:00, the commonest one",
        "rank correlation of limit and run time: 1.000",
        "COMPLETED 20 80.0% FAILED 5 20.0%",
        "none 5 20.0% 0 0.0% up to 4 20 80.0% 7 100.0%",
        "1970-01 25 100.0%",
    ):
        assert words in shown, words
    found = json.loads(run("history", "show", "--json").stdout)
    assert (found["run_s"], found["wait_s"][2], found["users"]) == ([50.0, 300.0, 300.0, 300.0, 300.0], 99.0, 2)


def test_show_and_status_say_how_far_the_past_is_read(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    def read_back(days: float) -> None:
        store = Store(f"sqlite:///{tmp_path}/store.sqlite")
        store.history.add([], {EARLIER: time.time() - days * 86400})
        store.close()

    said = "no past jobs yet: once rlallocd runs, it reads the last 90 days from sacct by itself"
    assert said in run("history", "show").stderr
    read_back(41)
    assert "rlallocd goes on, read back to" in run("history", "show").stderr  # nothing has ended yet
    run("history", "import", str(log))
    assert re.search(r"rlallocd goes on, read back to .* 20\d\d: 41 of 90 days", run("history", "show").stdout)
    assert re.search(r"^history read back to .* 20\d\d: 41 of 90 days", run("status").stdout, re.MULTILINE)
    read_back(91)
    assert not any("read back to" in run(*words).stdout for words in (("history", "show"), ("status",)))


def test_show_draws_run_times_against_limits(run: Run, log: Path, tmp_path: Path) -> None:  # noqa: F811
    run("history", "import", str(log))
    assert run("history", "show", "--plot", str(tmp_path / "limits.svg")).returncode == 0
    assert (tmp_path / "limits.svg").read_text().count("<svg") == 1
    failed = run("history", "show", "--plot", str(tmp_path / "limits.foo"))
    assert failed.returncode == 1
    assert "name a file that ends in .png, .svg or .pdf" in failed.stderr


@pytest.mark.parametrize(
    ("since_days", "imported_days", "latest_days"), [(2, None, None), (2, 3, 3), (3, 2, 1), (None, None, 1)]
)
def test_an_import_of_a_part_does_not_count_as_one_of_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    since_days: float | None,
    imported_days: float | None,
    latest_days: float | None,
) -> None:
    """With a gap before it, rlallocd would not read the days before, nor would a later import."""
    monkeypatch.setattr(
        "rlalloc_cli.history_import.ended_jobs",
        lambda _commands, _since_s, until_s, _tally: EndedJobs((), until_s, 0),
    )
    now_s, store = time.time(), Store(f"sqlite:///{tmp_path}/store.sqlite")
    if imported_days is not None:
        store.history.add([], {IMPORTED: now_s - imported_days * 86400})
    since_s = None if since_days is None else now_s - since_days * 86400
    importer = Importer(store.history, kept_from_s=0, disguise=lambda job: job)
    import_live(importer, store, Config(), since_s, now_s - 86400)
    assert store.history.position(IMPORTED) == (None if latest_days is None else now_s - latest_days * 86400)
    store.close()
