"""Time limits as people choose them."""

import numpy as np
import pytest

from rlalloc_simulator.workloads.chosen_limits import limits_named, round_limit_s, with_limits
from rlalloc_simulator.workloads.generator import GeneratorSettings, generate
from rlalloc_simulator.workloads.workload_errors import WorkloadError
from rlalloc_simulator.workloads.workload_job import NodeGroup, WorkloadJob
from rlalloc_simulator.workloads.workload_model import load_model

HOUR_S = 3600


def jobs() -> list[WorkloadJob]:
    nodes = NodeGroup("node", 4, 8, 96, 768_000)
    return list(generate(load_model("philly"), GeneratorSettings(cluster=nodes, hours=48.0, load=1.0, seed=3)))


@pytest.mark.parametrize(
    ("run_s", "hours"), [(1, 1), (3600, 1), (3601, 4), (5 * HOUR_S, 12), (13 * HOUR_S, 24), (60 * HOUR_S, 96)]
)
def test_the_smallest_round_limit_that_fits(run_s: float, hours: int) -> None:
    assert round_limit_s(run_s) == hours * HOUR_S


def test_half_name_a_round_limit_and_half_the_maximum() -> None:
    """No job ends at its limit, nothing else of a job changes, and the limit says little of its run time."""
    recorded = jobs()
    chosen = list(with_limits(recorded, "people", 0))
    most_s = round_limit_s(max(job.needs.run_time_s for job in recorded))
    at_most = [job.request.time_limit_s == most_s for job in chosen]
    assert 0.45 < np.mean(at_most) < 0.6
    for before, after, most in zip(recorded, chosen, at_most, strict=True):
        assert after.needs == before.needs
        assert after.request.time_limit_s >= after.needs.run_time_s
        assert most or after.request.time_limit_s == round_limit_s(after.needs.run_time_s)


def test_recorded_limits_stay_and_a_seed_gives_the_same_limits() -> None:
    recorded = jobs()
    assert with_limits(recorded, "recorded", 0) is recorded
    assert with_limits(recorded, "people", 1) == with_limits(recorded, "people", 1)
    assert with_limits(recorded, "people", 1) != with_limits(recorded, "people", 2)
    assert with_limits([], "people", 1) == []


def test_a_wrong_word_is_named() -> None:
    with pytest.raises(WorkloadError, match="--limits users: write recorded or people"):
        limits_named("users")
