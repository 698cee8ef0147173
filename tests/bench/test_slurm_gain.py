"""The gain on real sites: the demo's workload in the file's form, the figures, and the command on recorded runs."""

import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rlalloc_agent.served_policy import load_shipped
from rlalloc_demo.demo_workload import Entry, read_workloads
from rlalloc_simulator.workloads import WorkloadJob
from rlalloc_validation.chaos import TIMES
from rlalloc_validation.recorded_run import Run, write_run
from rlalloc_validation.simulated_run import simulate_at
from rlalloc_validation.validation_settings import Mode, ValidationError, ValidationSettings
from slurm_gain import gain_run
from slurm_gain.demo_as_workload import DemoWorkloadError, demo_workload, job_of
from slurm_gain.gain_plan import COMPARED, SIZED, Planned, plan, prepare
from slurm_gain.gain_prediction import BEGINS_S, policies, predictions_s
from slurm_gain.gains import Measured, Taken, measured_of, spread
from tests.testbed.validation.example_runs import SIZE, ran

SMALL = ValidationSettings(jobs=24, nodes=2, submit_for_s=40, load=1.2)
WORDS = ["--jobs", "24", "--minutes", "0.6666667", "--load", "1.2", "--seeds", "1", "--workload", "contention"]


def moldable(sbatch: str) -> WorkloadJob:
    return job_of(Entry(at=0, user="llm-alice", kind="declared", sbatch=sbatch), 1, 0.0)


@pytest.mark.parametrize(
    ("sbatch", "nodes", "gpus", "tasks", "cpus", "mem_mib"),
    [
        ("--gpus=4 --cpus-per-gpu=16 --mem=500G --time=1 speech.sbatch 24e6", 1, 4, 1, 64, 512_000),
        ("--gpus-per-node=4 --cpus-per-task=64 --mem-per-cpu=7G --time=1 pretrain.sbatch 30e6", 1, 4, 1, 64, 458_752),
        ("--gres=gpu:a100:2 --cpus-per-task=64 --mem=500G --time=1 finetune.sbatch 18e6", 1, 2, 1, 64, 512_000),
        (
            "--gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=8 --mem=480G --time=1 srun-train.sbatch 52e6",
            1, 8, 8, 8, 491_520,
        ),
        ("--time=1 pretrain-2-nodes.sbatch 90e6", 2, 8, 1, 64, 409_600),
        ("--gpus-per-node=2 --time=1 pretrain-2-nodes.sbatch 90e6", 2, 2, 1, 64, 409_600),
    ],
)  # fmt: skip
def test_what_the_demo_asks_for(sbatch: str, nodes: int, gpus: int, tasks: int, cpus: int, mem_mib: int) -> None:
    """Options of the command line count before those in the script, as with sbatch."""
    asked = moldable(sbatch).request
    assert (asked.nodes, asked.gpus_per_node, asked.tasks_per_node) == (nodes, gpus, tasks)
    assert (asked.cpus_per_task, asked.mem_mib_per_node, asked.time_limit_s) == (cpus, mem_mib, 60)


def test_the_demos_jobs_take_as_long_as_its_stand_ins() -> None:
    """48 million tokens at 3,000 a second on a GPU, 6.95 times as fast on eight; 20 seconds are an hour."""
    job = moldable("--gpus-per-node=8 --cpus-per-task=64 --mem=500G --time=1 finetune.sbatch 48e6")
    assert job.needs.run_time_s == pytest.approx(48e6 / (3000 * 6.95) / 3600 * 20, abs=1e-3)
    assert job.directives == "class=finetune gpus=1-8 cpus-per-gpu=2-8 mem-per-gpu=8G-64G"
    scripted = Entry(
        at=0,
        user="llm-alice",
        kind="by-script",
        sbatch="--gpus-per-node=2 --cpus-per-task=64 --mem=500G --time=1 finetune-plain.sbatch 18e6",
    )
    assert job_of(scripted, 1, 0.0).directives == "class=train gpus=1-4 cpus-per-gpu=8-32"
    starved = moldable("--gpus=4 --cpus-per-task=6 --mem=9G --time=1 speech.sbatch 24e6")
    assert starved.needs.run_time_s == pytest.approx(24e6 / (3000 * 3.7 * 0.5) / 3600 * 20, abs=1e-3)
    assert starved.speed_curve.cpus_per_gpu_needed == pytest.approx(3.0)


def test_a_seed_is_another_order_of_the_same_jobs() -> None:
    entries = read_workloads().workload
    _, as_it_stands = demo_workload(entries, 0)
    header, other = demo_workload(entries, 1)
    assert demo_workload(entries, 1) == (header, other)
    assert [job.user for job in as_it_stands] == [entry.user for entry in entries]
    assert [job.submit_s for job in other] == [job.submit_s for job in as_it_stands]
    assert [job.user for job in other] != [job.user for job in as_it_stands]
    assert Counter(map(work, other)) == Counter(map(work, as_it_stands))
    ours = {entry.kind for entry, job in zip(entries, as_it_stands, strict=True) if job.job_class is not None}
    assert ours == {"declared", "by-script", "serve"}


def work(job: WorkloadJob) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(job, id=1, submit_s=0.0))


@pytest.mark.parametrize(
    ("sbatch", "said"),
    [
        ("--exclusive --mem=1G --time=1 finetune.sbatch 1e6", "--exclusive is not known"),
        ("--gpus=1 --time=1 finetune.sbatch 1e6", "asks for no memory"),
        ("--gpus=1 --mem=1G --time=1 finetune.sbatch", "no argument"),
        ("--gpus=one --mem=1G --time=1 finetune.sbatch 1e6", "invalid"),
        ("--gpus=1 --mem=1G --time=1 nowhere.sbatch 1e6", "not complete"),
    ],
)
def test_what_cannot_be_read_is_named(sbatch: str, said: str) -> None:
    with pytest.raises(DemoWorkloadError, match=said):
        moldable(sbatch)


def run(mode: Mode, *ends_s: float, **changes: object) -> Run:
    jobs = tuple(ran(number, 0, 0, end_s, **changes) for number, end_s in enumerate(ends_s, start=1))
    return Run(mode=mode, by="a test", load_of_machine=(1.5, 0.0, 0.0), jobs=jobs)


def test_figures_of_a_workload() -> None:
    runs: dict[Mode, Run] = {
        "off": run("off", 10, 30),
        "repaired": run("repaired", 10, 10, size=msgspec.structs.replace(SIZE, gpus_per_node=2)),
        "late": run("late", 10, 20),
        "enforce": run("enforce", 5, 20, state="TIMEOUT"),
    }
    predicted_s: dict[Mode, tuple[float, ...]] = dict.fromkeys(runs, (30.0,))
    found = measured_of("demo", 1, runs, {**predicted_s, "off": (30.0, 50.0), "repaired": (10.0,)})
    assert (found.ratio("repaired", "real"), found.ratio("repaired", "predicted")) == (0.5, 0.25)
    assert found.ratio("enforce", "real", "repaired") == 1.25
    assert [found.taken[mode].resized for mode in COMPARED] == [0, 2, 0, 0]
    assert [found.taken[mode].ended_otherwise for mode in COMPARED] == [0, 0, 2, 0]
    with pytest.raises(ValidationError, match="ran other jobs"):
        measured_of("demo", 1, {**runs, "enforce": run("enforce", 5)}, {})


def test_the_spread_over_seeds_is_of_ratios() -> None:
    def of(seed: int, before_s: float, after_s: float) -> Measured:
        jcts: tuple[tuple[Mode, float], ...] = (("off", before_s), ("repaired", after_s))
        taken = {
            mode: Taken(jct_s=jct_s, predictions_s=(1.0,), resized=0, ended_otherwise=0, machine_load=0.0)
            for mode, jct_s in jcts
        }
        return Measured(workload="demo", seed=seed, jobs=1, taken=taken)

    found = spread([of(0, 100, 25), of(1, 10, 10)], "repaired", "real")
    assert found.mean == pytest.approx(0.5)
    assert (found.least, found.largest) == (0.25, 1.0)


def test_runs_of_another_plan_are_not_taken_up(tmp_path: Path) -> None:
    (planned,) = plan(("contention",), 1, SMALL)
    prepare(planned, tmp_path)
    prepare(planned, tmp_path)
    assert planned.missing(tmp_path) == COMPARED
    (other,) = plan(("contention",), 1, msgspec.structs.replace(SMALL, load=0.5))
    with pytest.raises(ValidationError, match="other settings"):
        prepare(other, tmp_path)


@pytest.mark.slow
def test_the_prediction_knows_what_launching_takes() -> None:
    (planned,) = plan(("contention",), 1, msgspec.structs.replace(SMALL, jobs=6, submit_for_s=400, load=0.02))
    header, jobs = planned.jobs()
    nothing, launch = (predictions_s(header, jobs, SMALL, {"off": None}, after_s)["off"] for after_s in (0.0, 2.0))
    later_s = [after - before for before, after in zip(nothing, launch, strict=True)]
    assert later_s == pytest.approx([2.0] * TIMES, abs=0.3)  # an empty site: nobody waits for anybody


def test_repaired_changes_no_gpu_count() -> None:
    """Nobody declares a range of GPUs there; what else is declared stays, and CPUs are cut to it."""
    (planned,) = plan(("contention",), 1, SMALL)
    asked = {job.id: job.request for job in planned.jobs()[1]}
    repaired, late = (in_engine(planned, mode) for mode in ("repaired", "late"))
    assert all(job.size.gpus == asked[job.number].gpus for job in repaired.jobs)
    assert any(job.size.cpus_per_node < asked[job.number].cpus_per_node for job in repaired.jobs)
    assert any(job.size.gpus != asked[job.number].gpus for job in late.jobs)


def in_engine(planned: Planned, mode: Mode) -> Run:
    """What stands for a real run: the engine's, submitted as planned."""
    header, jobs = planned.jobs()
    at_s = {job.id: BEGINS_S + job.submit_s for job in jobs}
    return simulate_at(header, jobs, planned.settings, at_s, mode, policies()[mode])


def test_the_command_on_recorded_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (planned,) = plan(("contention",), 1, SMALL)
    kept, png = tmp_path / "kept", tmp_path / "gain.png"
    prepare(planned, kept)
    runs = {mode: in_engine(planned, mode) for mode in COMPARED}
    for found in runs.values():
        write_run(planned.folder(kept), msgspec.structs.replace(found, policy="another"))
    monkeypatch.setattr(sys, "argv", ["slurm_gain", str(kept), "--recorded", "--png", str(png), *WORDS])
    assert gain_run.main() == 1
    assert "was run with policy another" in capsys.readouterr().err
    for mode in SIZED:
        write_run(planned.folder(kept), msgspec.structs.replace(runs[mode], policy=load_shipped()[1].version))
    assert gain_run.main() == 0
    said = capsys.readouterr().out
    mean_s = sum(job.jct_s for job in runs["off"].jobs) / SMALL.jobs
    row = next(line for line in said.splitlines() if "as submitted" in line)
    assert f" {mean_s:.1f} " in row
    assert "contention" in row
    assert png.read_bytes().startswith(b"\x89PNG")


def test_without_runs_the_command_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["slurm_gain", str(tmp_path), "--recorded", *WORDS])
    assert gain_run.main() == 1
    assert "run the command without --recorded" in capsys.readouterr().err
