"""The engine starts every job when an independent, slow implementation in plain Python does."""

import numpy as np
import pytest

from rlalloc_simulator.engine import SchedulerParameters
from tests.simulator.engine.by_hand import SHAPE, job, simulator, site, size
from tests.simulator.engine.slow_reference import RigidJob, starts_of

SEEDS = range(12)


def workload(seed: int, nodes: int, count: int = 40) -> list[RigidJob]:
    """Jobs of all sizes, more than the nodes can run at once; run times on whole tenths of seconds."""
    generator = np.random.default_rng(seed)
    jobs = []
    submit_s = 0.0
    for _ in range(count):
        submit_s += float(generator.choice([0.0, 5.0, 30.0, 45.5, 200.0]))
        wide = int(generator.integers(1, nodes + 1)) if generator.random() < 0.3 else 1
        gpus = 8 if wide > 1 else int(generator.choice([1, 2, 4, 5, 8]))
        limit_s = float(generator.choice([60, 120, 300, 660, 1500, 3600]))
        run_s = round(limit_s * float(generator.uniform(0.1, 1.0)), 1)
        mem = int(generator.choice([500, 1000, 4500])) if gpus < 8 else 8000
        jobs.append(RigidJob(submit_s, wide, (gpus, max(1, gpus // 2), mem), limit_s, run_s))
    return jobs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("reserve_for", [1, 3, None])
def test_every_job_starts_as_in_the_reference(seed: int, reserve_for: int | None) -> None:
    nodes = 2 + seed % 5
    reference = workload(seed, nodes)
    submitted = [
        job(
            each.submit_s,
            size(
                each.need[0],
                int(each.limit_s),
                each.nodes,
                cpus_per_task=each.need[1],
                mem_mib_per_node=each.need[2],
            ),
            each.run_s,
        )
        for each in reference
    ]
    scheduler = SchedulerParameters(bf_job_part_count_reserve=reserve_for or 0)
    made = simulator(submitted, site(nodes, scheduler=scheduler))
    made.run()
    expected = starts_of(reference, nodes, (SHAPE.gpus, SHAPE.cpus, SHAPE.mem_mib), reserve_for)
    np.testing.assert_allclose(made.outcomes()["start_s"], expected, atol=1e-6)
    assert made.world.clock[0]["backfilled"] > 0
