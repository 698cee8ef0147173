"""``rlalloc profile``, the real thing in small: torchrun, gloo, two processes on this machine's CPUs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rlalloc.speed.family_speeds import FamilySpeeds
from rlalloc.speed.profile_file import AppliesTo, Profile, Size, read_profile, write_profile
from rlalloc.speed.speed_prior import PRIOR_BELIEF
from slurm_testbed import wait_until
from tests.cli.rlalloc_command import run_rlalloc
from tests.core.profiles import on_cpus, profile
from tests.core.test_family_speeds import ASKED

Profiled = Callable[..., subprocess.CompletedProcess[str]]

SMALL = ["--model=gpt-1m", "--global-batch=8", "--micro-batch=2", "--sequence=32", "--steps=5", "--warmup-steps=1"]
ON_CPUS = ["--device=cpu", "--loader-workers=1"]
ONE = Size(gpus=1, nodes=1, cpus_per_gpu=1)
TWO = Size(gpus=2, nodes=1, cpus_per_gpu=1)
needs_two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")


@pytest.fixture
def profiled(tmp_path: Path) -> Profiled:
    """Run ``rlalloc profile …`` in an empty folder."""

    def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        known = os.environ | {"COLUMNS": "160", "RLALLOC_CONFIG": str(tmp_path / "rlalloc.yaml")}
        done = run_rlalloc("profile", *words, environment=known, directory=tmp_path)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


@pytest.mark.slow
@needs_two_cpus
def test_two_sizes_are_measured_and_used(profiled: Profiled, tmp_path: Path) -> None:
    done = profiled(
        "run", "a.yaml", "--gpus=1,2", *SMALL, *ON_CPUS, "--jobs=train-7b*", "--plot=a.png", "--cpus-per-gpu=1"
    )
    found = read_profile(tmp_path / "a.yaml")
    assert [point.size for point in found.points] == [ONE, TWO]
    for point in found.points:
        assert point.measured is not None, point.why
        measured = point.measured
        # A step takes 8 sequences of 32 tokens: speed and steps were measured apart.
        assert measured.tokens_per_s * measured.step_s == pytest.approx(256, rel=0.7)
        assert measured.step_s <= measured.step_p90_s
        assert 0.0 <= measured.stalled < 1.0
        assert measured.gpu_mem_mib == 0
        assert measured.host_mem_mib > 100
    first, second = (point.measured for point in found.points)
    assert first is not None
    assert second is not None
    assert second.host_mem_mib > first.host_mem_mib  # two processes
    assert found.conditions.accelerator
    assert "applies to jobs named train-7b*" in done.stdout
    assert "2 of 2 points" in done.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.png", "a.yaml"]
    known = FamilySpeeds([found]).of("ann", "train-7b-3", ASKED)
    assert known.belief is not PRIOR_BELIEF
    assert known.source == "profile a, which names it"

    before = (tmp_path / "a.yaml").stat().st_mtime_ns
    profiled("run", "a.yaml", "--gpus=1,2", *SMALL, *ON_CPUS)  # nothing is missing
    assert (tmp_path / "a.yaml").stat().st_mtime_ns == before
    refused = profiled("run", "a.yaml", "--gpus=1", *SMALL[:-2], "--steps=6", "--warmup-steps=1", *ON_CPUS, status=2)
    assert "was measured with steps 5, not 6" in refused.stderr


@pytest.mark.slow
@needs_two_cpus
def test_what_was_measured_outlives_ctrl_c_and_the_rest_follows(profiled: Profiled, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    words = ["run", str(path), "--gpus=1,2", *SMALL[:-2], "--warmup-steps=1", *ON_CPUS]
    # The second point begins with seconds of imports: it does not end before it is interrupted.
    program = [sys.executable, "-c", "from rlalloc_cli.main import main; main()", "profile"]
    running = subprocess.Popen(
        [*program, *words, "--steps=20"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )

    def second_began() -> bool:
        assert running.poll() is None, "it ended by itself"
        return (tmp_path / "a.yaml.work" / "g2-n1-c1-m0" / "log.txt").exists()

    try:
        wait_until(second_began, what="the second point", timeout_s=300, interval_s=0.05)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        _, said = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130, said
    assert "the same command goes on from there" in said
    kept = read_profile(path)
    assert [point.size for point in kept.points] == [ONE]
    wait_until(
        lambda: not [line for line in _processes() if str(tmp_path) in line], what="the end of the point's processes"
    )

    done = profiled(*words, "--steps=20")
    found = read_profile(path)
    assert [point.outcome for point in found.points] == ["measured", "measured"]
    assert found.points[0] == kept.points[0]
    assert "1 of 2 points" in done.stderr
    assert "0 of 2 points" not in done.stderr


@pytest.mark.slow
def test_a_killed_call_leaves_no_process(profiled: Profiled, tmp_path: Path) -> None:
    program = [sys.executable, "-c", "from rlalloc_cli.main import main; main()", "profile", "run", "a.yaml"]
    running = subprocess.Popen(
        [*program, "--gpus=1", *SMALL[:-2], "--warmup-steps=1", "--steps=90000", *ON_CPUS], cwd=tmp_path
    )
    try:
        wait_until(
            lambda: any("measured_steps" in line and str(tmp_path) in line for line in _processes()),
            what="the training",
            timeout_s=300,
        )
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: not [line for line in _processes() if str(tmp_path) in line], what="its end", timeout_s=60)


def _processes() -> list[str]:
    return subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.slow
def test_points_that_do_not_fit_are_settled_and_a_failed_one_shows_its_log(
    profiled: Profiled, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("too short")
    words = ["run", "a.yaml", *SMALL, *ON_CPUS]
    done = profiled(*words, "--gpus=1", "--cpus-per-gpu=1,4096", "--mem-per-gpu=40M", status=0)
    points = {point.size.cpus_per_gpu: point for point in read_profile(tmp_path / "a.yaml").points}
    assert points[4096].outcome == "does-not-fit"
    assert "4096 CPUs: this process may use" in done.stdout
    assert points[1].outcome == "out-of-memory"
    assert "host memory" in points[1].why

    failed = profiled(*words, "--gpus=1", f"--data={short}", status=1)
    log = tmp_path / "a.yaml.work" / "g1-n1-c1-m0" / "log.txt"
    assert f"{log}: rlalloc.errors.ProfileError: --data {short}: name a file of more than" in failed.stdout
    assert "the same command tries them again" in failed.stderr
    again = profiled(*words, "--gpus=1")
    assert read_profile(tmp_path / "a.yaml").points[0].outcome == "measured", again.stdout
    assert not (tmp_path / "a.yaml.work").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a.txt"], "ends in .yaml"),
        (["a.yaml", "--gpus=0", "--device=cpu"], "--gpus 0"),
        (["a.yaml", "--gpus=3", "--device=cpu"], "--global-batch 32 does not divide by 3 GPUs"),
        (["a.yaml", "--gpus=1", "--device=cpu", "--model=gpt-9t"], "gpt-25m"),
        (["a.yaml", "--gpus=1", "--device=cpu", "--backend=nccl"], "needs GPUs"),
        (["a.yaml", "--gpus=1", "--device=cpu", "--data=none.txt"], "no such file"),
        (["a b.yaml", "--gpus=1", "--device=cpu"], "name"),
        (["none/a.yaml", "--gpus=1"], "cannot write"),  # auto: torch is asked for GPUs
        (["a.yaml", "--gpus=1", "--slurm", "--model=largest"], "only for GPUs of this machine"),
    ],
)
def test_wrong_use_says_what_to_do(profiled: Profiled, tmp_path: Path, words: list[str], said: str) -> None:
    assert said in profiled("run", *words, status=2).stderr


def test_no_sbatch_is_named(tmp_path: Path) -> None:
    known = {"PATH": str(tmp_path)}
    done = run_rlalloc("profile", "run", "a.yaml", "--slurm", environment=known, directory=tmp_path)
    assert done.returncode == 1
    assert "sbatch is not installed or not in PATH" in done.stderr


def install(profiled: Profiled, tmp_path: Path, found: Profile, status: int = 0) -> subprocess.CompletedProcess[str]:
    (tmp_path / "rlalloc.yaml").write_text(yaml.safe_dump({"speed": {"profiles": str(tmp_path / "profiles")}}))
    write_profile(found, tmp_path / "a.yaml")
    return profiled("install", "a.yaml", status=status)


def test_a_profile_is_installed_under_its_name(profiled: Profiled, tmp_path: Path) -> None:
    found = profile(0.8, AppliesTo(jobs=("train-7b*",), gpu_types=("a100",)))
    done = install(profiled, tmp_path, found)
    target = tmp_path / "profiles" / "gpt-25m-a100.yaml"
    assert read_profile(target) == found
    assert f"{target}: applies to jobs named train-7b* and in part other jobs on a100" in done.stdout
    assert target.stat().st_mode & 0o444 == 0o444  # rlallocd is another user


def test_what_would_change_nothing_is_not_installed(profiled: Profiled, tmp_path: Path) -> None:
    to_none = install(profiled, tmp_path, profile(0.8, AppliesTo()), status=1)
    assert "applies to no job" in to_none.stderr
    of_cpus = install(profiled, tmp_path, on_cpus(profile(0.8, AppliesTo(gpu_types=("a100",)))), status=1)
    assert "applies to no job" in of_cpus.stderr
    one_size = install(profiled, tmp_path, profile(0.8, AppliesTo(jobs=("a",)), counts=(8,)), status=1)
    assert "more --gpus" in one_size.stderr
    assert not (tmp_path / "profiles").exists()


def test_a_broken_file_is_refused(profiled: Profiled, tmp_path: Path) -> None:
    (tmp_path / "rlalloc.yaml").write_text("")
    (tmp_path / "a.yaml").write_text("format: rlalloc-profile-1\nname: 7\n")
    for words in (["show", "a.yaml"], ["install", "a.yaml"]):
        assert "a.yaml: no profile that can be used" in profiled(*words, status=1).stderr
    assert "no profile that can be used" in profiled("run", "a.yaml", "--gpus=1", status=2).stderr


def test_show_prints_points_and_slowdowns(profiled: Profiled, tmp_path: Path) -> None:
    write_profile(profile(0.5, AppliesTo(jobs=("train-7b*",)), cpus_needed=4.0), tmp_path / "a.yaml")
    shown = profiled("show", "a.yaml", "--plot=a.svg").stdout
    assert "A job that it names, submitted with 32 GPUs" in shown
    rows = {line.split()[1]: line.split()[3] for line in shown.splitlines() if line.startswith("│") and "." in line}
    assert float(rows["8"]) == pytest.approx(2.0, rel=0.05)
    assert "CPUs that a GPU needs for full speed: 4." in shown or "for full speed: 3.9" in shown
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert "name a file that ends in" in profiled("show", "a.yaml", "--plot=a.xyz", status=1).stderr


def test_one_gpu_count_shows_how_many_cpus_it_needs(profiled: Profiled, tmp_path: Path) -> None:
    """On a machine with one GPU, the CPU counts are all that a profile compares."""
    write_profile(profile(0.5, AppliesTo(), counts=(1,), cpus_needed=4.0), tmp_path / "a.yaml")
    shown = profiled("show", "a.yaml", "--plot=a.svg").stdout
    assert "measured on fewer than two GPU counts" in shown
    assert "CPUs that a GPU needs for full speed: " in shown
    assert "fewest whose data loader stalls no longer than with more: 1" in shown
    assert "<!-- CPUs per GPU, on 1 GPU -->" in (tmp_path / "a.svg").read_text()
    write_profile(profile(0.5, AppliesTo(), counts=(1,), cpus=(2,)), tmp_path / "b.yaml")
    assert "measured with one number of CPUs per GPU" in profiled("show", "b.yaml").stdout
