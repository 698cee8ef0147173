"""Pollux's step times and workloads, from tables made here in its format."""

from pathlib import Path

import pytest

from rlalloc_simulator.truths.pollux_tables import step_times_s
from rlalloc_simulator.truths.pollux_workloads import EVERYTHING, pollux_jobs
from rlalloc_simulator.workloads import WorkloadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """BERT: a step is 1 s of synchronisation once two GPUs take part, and 0.1 s a sample."""
    rows = [
        f"{placement},{local},{0.1 * local + sync},{sync}"
        for placement, sync in (("1", 0.0), ("2", 1.0), ("4", 1.0), ("44", 1.0), ("13", 5.0))
        for local in (4, 12)
    ]
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "placements.csv").write_text("\n".join(["placement,local_bsz,step_time,sync_time", *rows]))
    more = [f"6,24,{local},{0.1 * local + 2.0},2.0" for local in (4, 12)]
    (tmp_path / "bert" / "scalability.csv").write_text(
        "\n".join(["num_nodes,num_replicas,local_bsz,step_time,sync_time", *more])
    )
    (tmp_path / "workloads").mkdir()
    for number in (1, 2, 3, 4):
        jobs = [f"bert-{place},{100 * place},bert,{4 * number},48" for place in range(1, 4)]
        (tmp_path / "workloads" / f"workload-{number}.csv").write_text(
            "\n".join(["name,time,application,num_replicas,batch_size", *jobs])
        )
    return tmp_path


def test_a_batch_beyond_what_a_gpu_holds_is_accumulated(folder: Path) -> None:
    """48 samples: on one GPU four times 12, on two twice 12 with one synchronisation, on four and eight at once."""
    times_s = step_times_s(folder, "bert", 48)
    assert times_s == {1: pytest.approx(4.8), 2: pytest.approx(3.4), 4: pytest.approx(2.2), 8: pytest.approx(1.6),
                       24: pytest.approx(2.4)}  # fmt: skip


def test_a_published_workload(folder: Path) -> None:
    """3,732 steps of 2.2 s on the four GPUs that its users ask for; a limit no shorter than that."""
    jobs = pollux_jobs(folder, 1, 0, 4, drawn=False)
    assert [job.submit_s for job in jobs] == [100.0, 200.0, 300.0]
    for job in jobs:
        assert job.needs.run_time_s == pytest.approx(3732 * 2.2, rel=1e-6)
        assert job.request.time_limit_s > job.needs.run_time_s
        assert job.directives == "gpus=1-16"
        curve = job.speed_curve
        assert curve.at(8, 1e9) / curve.at(4, 1e9) == pytest.approx(2.2 / 1.6)
    assert pollux_jobs(folder, 1, 0, EVERYTHING, drawn=False)[0].directives == "gpus=1-64"


def test_a_draw_has_jobs_of_all_workloads(folder: Path) -> None:
    sizes = {job.request.gpus for seed in range(20) for job in pollux_jobs(folder, 1, seed, 4, drawn=True)}
    assert sizes == {4, 8, 12, 16}


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(WorkloadError, match=r"workload-1.csv: No such file"):
        pollux_jobs(folder / "absent", 1, 0, 4, drawn=False)
    with pytest.raises(WorkloadError, match="Pollux measured bert"):
        step_times_s(folder, "gpt", 48)
    (folder / "workloads" / "workload-2.csv").write_text("time\n1\n")
    with pytest.raises(WorkloadError, match="its columns are name, time"):
        pollux_jobs(folder, 2, 0, 4, drawn=False)
