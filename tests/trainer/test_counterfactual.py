"""Decisions taken again are worth what they change, and nothing where they change nothing."""

import msgspec
import numpy as np
import pytest

from rlalloc.bounds import Directives, NodeShape, SiteBounds, bounds_for
from rlalloc.heuristics import HEURISTICS
from rlalloc.job import Allocation
from rlalloc.observation import FEATURES, heuristic_shares
from rlalloc.speed import PRIOR
from rlalloc_trainer.counterfactual import LARGEST_REWARD, LabelSettings, label
from rlalloc_trainer.simulator import Cluster, SimulatedJob
from rlalloc_trainer.workload import generate, varied

ALONE = Cluster(1, NodeShape(gpus=8, cpus=64, mem_mib=64_000))
PRICE_EF = HEURISTICS["price-ef"]


def lonely_jobs(count: int) -> list[SimulatedJob]:
    """Jobs so far apart that each has the cluster for itself; on 1 to 8 GPUs."""
    request = Allocation(
        nodes=1, gpus_per_node=4, tasks_per_node=1, cpus_per_task=4, mem_mib_per_node=4000, time_limit_s=6000
    )
    return [
        SimulatedJob(
            submit_s=1e6 * number,
            user=0,
            job_class="train",
            request=request,
            bounds=bounds_for(request, Directives(gpus=(1, 8)), SiteBounds(), ALONE.shape),
            work_s=4000.0,
            curve=PRIOR,
            mem_mib_per_gpu_needed=100.0,
        )
        for number in range(count)
    ]


def test_alone_on_the_cluster_the_gain_is_the_jobs_own() -> None:
    """More GPUs than the heuristic's are a gain, fewer a loss, and as many are nothing."""
    settings = LabelSettings(decisions=20, alternatives=5, explored_cpu=0.0, explored_mem=0.0)
    labels = label(ALONE, lonely_jobs(20), PRICE_EF, settings, np.random.default_rng(0)).retaken
    heuristic = heuristic_shares(labels.observation[0]).gpu
    steps = np.round(3 * labels.shares[:, 0]) - round(3 * heuristic)  # counts 1, 2, 4, 8
    assert np.sign(labels.reward).tolist() == np.sign(steps).tolist()


def test_the_same_seed_gives_the_same_labels() -> None:
    workload = varied(5, jobs=40)
    settings = LabelSettings(decisions=6)
    one, other = (
        label(workload.cluster, generate(workload, 5), PRICE_EF, settings, np.random.default_rng(1)) for _ in range(2)
    )
    assert (one.retaken.reward == other.retaken.reward).all()
    assert (one.retaken.shares == other.retaken.shares).all()


def test_labels_are_of_the_promised_shape_and_size() -> None:
    workload = varied(6, jobs=40)
    settings = LabelSettings(decisions=6, alternatives=2)
    labels = label(workload.cluster, generate(workload, 6), PRICE_EF, settings, np.random.default_rng(1))
    assert len(labels.retaken) == settings.rows == 12
    assert labels.retaken.observation.shape == (12, len(FEATURES))
    assert np.abs(labels.retaken.reward).max() <= LARGEST_REWARD
    assert labels.observation.shape == (40, len(FEATURES))
    assert ((labels.reward <= 0) & (labels.reward >= -5)).all()


def test_a_stream_shorter_than_its_decisions_gives_what_it_has() -> None:
    settings = msgspec.structs.replace(LabelSettings(), decisions=50)
    labels = label(ALONE, lonely_jobs(3), PRICE_EF, settings, np.random.default_rng(0))
    assert len(labels.retaken) == 3 * settings.alternatives
    assert labels.reward == pytest.approx(np.full(3, labels.reward[0]))
