"""The Slurm job of a point: its script and how it is submitted."""

import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from rlalloc.speed.profile_file import Size
from rlalloc_cli.profile_on_slurm import SlurmOptions, SlurmPoints, sbatch_options, script_of
from rlalloc_trainer.profiling.point_files import PointTask
from rlallocd.slurm import BatchJobs, BatchState, Commands, SlurmUnavailable
from tests.trainer.test_profiling import CONDITIONS

FOLDER = Path("/shared/with blank/100%/g8")
SIZE = Size(gpus=8, nodes=2, cpus_per_gpu=3, mem_mib_per_gpu=1024)
OPTIONS = SlurmOptions(device="cuda", gpu_type="a100", minutes=10, at_once=2, sbatch=("--partition=long", "--time=5"))


@pytest.mark.parametrize("size", [SIZE, msgspec.structs.replace(SIZE, nodes=1)])
def test_the_script_runs_one_task_a_node_and_is_left_alone(tmp_path: Path, size: Size) -> None:
    """Run by bash with commands that print what they were given."""
    for name, body in (("scontrol", "echo n7\necho n8"), ("srun", 'printf "%s\\n" "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    script = script_of(FOLDER, size)
    assert "#RLALLOC off" in script.splitlines()
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[7-8]"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert f"--ntasks={size.nodes}" in words
    assert f"--cpus-per-task={24 // size.nodes}" in words
    assert words[words.index("rlalloc_trainer.profiling.point_launch") + 1 :] == [
        str(FOLDER),
        *(["n7:20012"] if size.nodes == 2 else []),
    ]


def test_options_ask_for_what_a_node_needs_and_the_users_count() -> None:
    words = sbatch_options(FOLDER, SIZE, OPTIONS)
    assert {"--nodes=2", "--gres=gpu:a100:4", "--cpus-per-task=12", "--mem=4096M", "--time=12"} <= set(words)
    assert "--output=/shared/with blank/100%%/g8/log.txt" in words
    assert words[-2:] == ["--partition=long", "--time=5"]  # sbatch takes the last
    bare = sbatch_options(FOLDER, Size(gpus=1, nodes=1, cpus_per_gpu=1), _on_cpus())
    assert not [word for word in bare if word.startswith(("--gres", "--mem"))]


def _on_cpus() -> SlurmOptions:
    return msgspec.structs.replace(OPTIONS, device="cpu", gpu_type="")


class Queue(BatchJobs):
    """slurmctld out of reach after the first submission: no real site does that on demand."""

    def __init__(self) -> None:
        super().__init__(Commands(1.0))
        self.asked = 0

    def submit(self, script: Path, options: object) -> int:
        assert script.read_text().startswith("#!/bin/bash\n")
        return 7

    def states(self, job_ids: object) -> dict[int, BatchState]:
        self.asked += 1
        if self.asked == 1:
            raise SlurmUnavailable("squeue gave no answer")
        return {7: BatchState("PENDING", "Priority")}


def test_a_slurmctld_that_is_away_for_a_moment_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlalloc_cli.profile_on_slurm._LOOK_EVERY_S", 0.0)
    points = SlurmPoints(Queue(), OPTIONS)
    task = PointTask(conditions=CONDITIONS, size=SIZE, text="/text", timeout_s=60.0)
    folder = tmp_path / "point"
    points.start(folder, task)
    points.pause()
    assert points.ended(folder, SIZE) is None
    assert "no answer" in points.describe()
    points.pause()
    assert points.ended(folder, SIZE) is None
    assert points.describe() == "Slurm jobs: 1 pending (Priority)"
    assert shlex.split((folder / "job").read_text()) == ["7"]
