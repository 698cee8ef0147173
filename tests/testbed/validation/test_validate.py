"""The workload, the engine's half, and the command on recorded runs: what the engine made stands for a real site."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from rlalloc.heuristics import price_ef
from rlalloc_simulator.workloads import read_workload
from rlalloc_validation.contention import contention
from rlalloc_validation.real_site import checkout
from rlalloc_validation.recorded_run import RanJob, Run, write_run
from rlalloc_validation.simulated_run import launch_s_of, simulate
from rlalloc_validation.validate import prepare
from rlalloc_validation.validate_command import validate
from rlalloc_validation.validation_settings import MODES, WORKLOAD_FILE, Mode, ValidationSettings

APP = typer.Typer()
APP.command()(validate)
SMALL = ValidationSettings(jobs=60, nodes=3, submit_for_s=120, load=1.2)
NOON_S = 1_800_000_000.0


def submitted(settings: ValidationSettings, mode: Mode) -> Run:
    """Of a real run only what the engine takes from it: when each job was submitted."""
    _, jobs = contention(settings)
    return Run(
        mode=mode,
        by="a test",
        jobs=tuple(
            RanJob(
                number=job.id,
                submitted_s=NOON_S + job.submit_s,
                noted_s=NOON_S + job.submit_s,
                started_s=None,
                ended_s=NOON_S,
                state="",
                size=job.request.allocation,
            )
            for job in jobs
        ),
    )


def in_engine(mode: Mode, launch_s: float = 0.0) -> Run:
    return simulate(*contention(SMALL), SMALL, submitted(SMALL, mode), price_ef, launch_s)


@pytest.mark.parametrize("seed", range(4))
def test_the_workload_has_contention_and_wrong_limits(seed: int) -> None:
    settings = ValidationSettings(seed=seed)
    header, jobs = contention(settings)
    assert (header, jobs) == contention(settings)
    assert len(jobs) == settings.jobs
    assert len({job.user for job in jobs}) > 3
    offered = sum(job.request.gpus * job.needs.run_time_s for job in jobs) / settings.gpus / settings.submit_for_s
    assert offered == pytest.approx(settings.load, rel=0.15)
    burst_s = settings.submit_for_s / 8
    first = sum(job.gpu_s for job in jobs if job.submit_s < burst_s) / settings.gpus / burst_s
    assert first > 1.0
    assert all(job.request.time_limit_s % 60 == 0 for job in jobs)
    assert max(job.request.nodes for job in jobs) > 1
    assert any(job.needs.run_time_s > job.request.time_limit_s + 30 for job in jobs)
    assert any(job.end.state == "FAILED" for job in jobs)


def test_the_engine_takes_submissions_from_the_real_run_and_sizes_only_when_enforced() -> None:
    off, shadow, enforced = (in_engine(mode) for mode in MODES)
    wanted = [job.submitted_s for job in submitted(SMALL, "off").jobs]
    np.testing.assert_allclose([job.submitted_s for job in off.jobs], wanted, atol=1e-3)
    _, jobs = contention(SMALL)
    assert [job.size for job in off.jobs] == [job.request.allocation for job in jobs]
    assert [msgspec.structs.replace(job, decided=None) for job in shadow.jobs] == list(off.jobs)
    rigid = {job.id for job in jobs if job.job_class is None}
    resized = {a.number for a, b in zip(off.jobs, enforced.jobs, strict=True) if a.size != b.size}
    assert resized
    assert not resized & rigid
    assert {job.state for job in off.jobs} == {"COMPLETED", "FAILED", "TIMEOUT"}


def test_what_launching_takes_is_measured_from_a_run() -> None:
    header, jobs = contention(SMALL)
    for launch_s in (0.0, 0.4):
        assert launch_s_of(header, jobs, SMALL, in_engine("enforce", launch_s)) == pytest.approx(launch_s, abs=1e-3)


def recorded(folder: Path, *modes: Mode) -> Path:
    prepare(folder, SMALL)
    assert read_workload(folder / WORKLOAD_FILE) == contention(SMALL)
    for mode in modes:
        write_run(folder, in_engine(mode))
    return folder


def ran_later(job: RanJob, by_s: float) -> RanJob:
    return msgspec.structs.replace(job, started_s=(job.started_s or 0.0) + by_s, ended_s=job.ended_s + by_s)


def invoke(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(APP, [*map(str, words)])
    return done.exit_code, done.output


def test_the_engine_is_no_second_from_itself(tmp_path: Path) -> None:
    """The whole command, on two recorded runs that are the engine's own."""
    folder = recorded(tmp_path / "run", "off", "shadow")
    code, said = invoke(folder, "--recorded", "--mode", "off", "--mode", "shadow", "--png", tmp_path / "both.png")
    assert code == 0, said
    assert "60 jobs on 24 GPUs" in said
    assert "0 of 60 waits differ" in said
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_is_far_off_misses_its_targets(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", "off")
    run = in_engine("off")
    late = [
        msgspec.structs.replace(job, started_s=(job.started_s or 0) + 40, ended_s=job.ended_s + 40)
        for job in run.jobs
    ]
    write_run(folder, msgspec.structs.replace(run, jobs=tuple(late)))
    code, said = invoke(folder, "--recorded", "--mode", "off")
    assert code == 1
    assert "missed: off: median error of the wait 40.0 s, at most 10 s" in said


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    assert invoke(tmp_path / "none", "--recorded", "--mode", "often")[0] == 2
    code, said = invoke(tmp_path / "none", "--recorded")
    assert code == 1
    assert "name a folder that make validate" in " ".join(said.split())
    folder = recorded(tmp_path / "run", "off")
    code, said = invoke(folder, "--recorded")
    assert code == 1
    assert "run the workload on the real site first" in " ".join(said.split())
    code, said = invoke(folder)
    assert "is not empty" in said


def test_the_real_site_comes_from_this_checkout() -> None:
    assert (checkout() / "pyproject.toml").is_file()
