"""A short workload on a real site, rlalloc enforced, and the engine beside it: structure and order, no figures."""

from pathlib import Path

import pytest

from rlalloc.heuristics import price_ef
from rlalloc_simulator.workloads import read_workload
from rlalloc_validation.job_comparison import compare
from rlalloc_validation.recorded_run import RanJob, read_run
from rlalloc_validation.simulated_run import simulate
from rlalloc_validation.validate import prepare
from rlalloc_validation.validation_settings import WORKLOAD_FILE, ValidationSettings
from slurm_replay.replay_run import replay

SETTINGS = ValidationSettings(jobs=20, nodes=2, submit_for_s=10, load=1.5)


@pytest.mark.slurm
def test_a_workload_runs_on_a_real_site_and_in_the_engine(tmp_path: Path) -> None:
    prepare(tmp_path / "run", SETTINGS)
    replay(tmp_path / "run", "enforce")
    real = read_run(tmp_path / "run", "enforce")
    header, jobs = read_workload(tmp_path / "run" / WORKLOAD_FILE)
    assert [job.number for job in real.jobs] == [job.id for job in jobs]
    managed = {job.id for job in jobs if job.job_class is not None}
    decided = {job.number for job in real.jobs if job.decided is not None}
    assert decided <= managed
    assert len(decided) > len(managed) / 2  # a starved daemon lets some go as submitted
    for job, ran in zip(jobs, real.jobs, strict=True):
        assert ran.state in ("FAILED", "TIMEOUT") if job.end.state == "FAILED" else ran.state != "FAILED"
        assert ran.submitted_s - 1 <= (ran.started_s or 0) <= ran.ended_s  # Slurm has whole seconds
        if job.id not in managed:
            assert ran.size == job.request.allocation
        assert ran.started_by in ("main", "backfill")
    assert most_held(real.jobs) <= SETTINGS.gpus_per_node
    compared = compare(real, simulate(header, jobs, SETTINGS, real, price_ef))
    assert compared.figures.rank > 0.5


def most_held(jobs: tuple[RanJob, ...]) -> int:
    """GPUs held at once on the fullest node; what ends in a second makes room for what starts in it."""
    changes = [
        (time_s, sign * job.size.gpus_per_node, node)
        for job in jobs
        for node in job.nodes
        for time_s, sign in ((job.started_s or 0.0, 1), (job.ended_s, -1))
    ]
    held: dict[int, int] = {}
    most = 0
    for _, gpus, node in sorted(changes):
        held[node] = held.get(node, 0) + gpus
        most = max(most, held[node])
    return most
