"""``rlalloc profile run --slurm`` on a real site: a job a point, torchrun and gloo in it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlalloc.speed.profile_file import Size, read_profile
from slurm_testbed import Site, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PROGRAM = [sys.executable, "-c", "from rlalloc_cli.main import main; main()", "profile", "run"]
SMALL = ["--model=gpt-1m", "--global-batch=8", "--micro-batch=2", "--sequence=32", "--warmup-steps=1"]
OPTIONS = ["--slurm", "--device=cpu", "--loader-workers=1", "--minutes=5", *SMALL]
ENDED = {"COMPLETED", "CANCELLED", "FAILED"}


@pytest.fixture
def folder(site: Site) -> Path:
    """A folder that the site's jobs see."""
    return Path(tempfile.mkdtemp(dir=site.directory))


def environment(site: Site) -> dict[str, str]:
    return site.environment() | {"COLUMNS": "160"}


def profiled(site: Site, folder: Path, words: Sequence[str], status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*PROGRAM, *words], cwd=folder, env=environment(site), capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def jobs_of(site: Site) -> dict[int, str]:
    printed = site.run(["squeue", "--noheader", "--states=all", "--name=rlalloc-profile", "--format=%i|%T"])
    return {int(line.split("|")[0]): line.split("|")[1] for line in printed.splitlines()}


def test_each_point_is_a_job_and_what_does_not_fit_is_settled(site: Site, folder: Path) -> None:
    before = set(jobs_of(site))
    words = ["a.yaml", "--gpus=1,2", "--mem-per-gpu=2G", "--steps=5", "--jobs=train-*", *OPTIONS]
    done = profiled(site, folder, [*words, "--cpus-per-gpu=1,500"])
    found = read_profile(folder / "a.yaml")
    by_size = {point.size: point for point in found.points}
    for gpus in (1, 2):
        measured = by_size[Size(gpus=gpus, nodes=1, cpus_per_gpu=1, mem_mib_per_gpu=2048)].measured
        assert measured is not None, done.stdout
        assert measured.tokens_per_s > 0
        assert 100 < measured.host_mem_mib < 2048 * gpus
        none = by_size[Size(gpus=gpus, nodes=1, cpus_per_gpu=500, mem_mib_per_gpu=2048)]
        assert none.outcome == "does-not-fit"
        assert none.why == "Slurm does not start it: PartitionConfig"
    ran = {job: state for job, state in jobs_of(site).items() if job not in before}
    assert sorted(ran.values()) == ["CANCELLED", "CANCELLED", "COMPLETED", "COMPLETED"]
    submitted = sorted(job for job, state in ran.items() if state == "COMPLETED")
    shown = site.run(["scontrol", "show", "job", str(submitted[1])])
    assert "NumCPUs=2" in shown
    assert "mem=4G" in shown
    assert [each.name for each in folder.iterdir()] == ["a.yaml"]


def test_ctrl_c_cancels_the_jobs_and_the_rest_follows(site: Site, folder: Path) -> None:
    before = set(jobs_of(site))
    words = ["a.yaml", "--gpus=1,2", *OPTIONS, "--steps=40"]
    running = subprocess.Popen(
        [*PROGRAM, *words, "--at-once=2"],
        cwd=folder,
        env=environment(site),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: sorted(state for job, state in jobs_of(site).items() if job not in before) == ["RUNNING"] * 2,
            what="both jobs run",
            timeout_s=120,
        )
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130, said
    ours = set(jobs_of(site)) - before
    assert set(site.wait_for_states(ours, ENDED).values()) == {"CANCELLED"}
    assert read_profile(folder / "a.yaml").points == ()

    # A call that was killed leaves its jobs: the next one follows them.
    killed = subprocess.Popen([*PROGRAM, *words], cwd=folder, env=environment(site), stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: "RUNNING" in jobs_of(site).values(), what="the job runs", timeout_s=120)
    finally:
        killed.kill()
        killed.wait()
    (left,) = set(jobs_of(site)) - before - ours
    profiled(site, folder, words)
    points = read_profile(folder / "a.yaml").points
    assert [point.outcome for point in points] == ["measured", "measured"], [point.why for point in points]
    assert len(set(jobs_of(site)) - before - ours) == 2  # the one that was left, and one more
    assert jobs_of(site)[left] == "COMPLETED"


def test_errors_of_slurm_and_of_jobs_are_shown(site: Site, folder: Path) -> None:
    wrong = profiled(site, folder, ["a.yaml", "--gpus=1", "--sbatch=--partition=nowhere", *OPTIONS], status=2)
    assert "invalid partition specified: nowhere" in wrong.stderr
    assert "--sbatch passes options" in wrong.stderr
    short = folder / "short.txt"
    short.write_text("too short")
    failed = profiled(site, folder, ["a.yaml", "--gpus=1", f"--data={short}", *OPTIONS], status=1)
    log = folder / "a.yaml.work" / "g1-n1-c1-m0" / "log.txt"
    assert f"FAILED; {log}: rlalloc.errors.ProfileError: --data {short}" in failed.stdout
    assert log.exists()
