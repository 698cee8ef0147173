"""What enforcing would have changed: on a site's own jobs, with an interval, a verdict and a recommendation."""

import math
import re

import msgspec
import pytest

from rlalloc.job import Range
from rlalloc.past_job import PastJob
from rlalloc.store import Experience
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_trainer.pipelines.what_if import LEAST_MOLDABLE, Effort, _judged, what_if
from rlalloc_trainer.promotion.policy_versions import load_shipped_version
from tests.trainer.sites import experience_of, site_workload

OTHER = PastJob(
    job_id="900", user="other", submitted_s=0.0, started_s=10.0, ended_s=3610.0, state="COMPLETED", nodes=1, cpus=8,
    gpus=8, mem_mib=1000.0, limit_s=7200.0, partition="gpu",
)  # fmt: skip


@pytest.fixture(scope="module")
def experiences() -> list[Experience]:
    found = experience_of(site_workload(1))
    return [_with_range(one) for one in found]


def _with_range(one: Experience) -> Experience:
    """With a range of GPUs, as a ``#RLALLOC`` line declares it."""
    bounds, gpus = one.decision.bounds, one.decision.request.gpus
    assert bounds is not None
    wide = msgspec.structs.replace(
        bounds, gpus=Range(1, gpus, "directive", "request"), gpu_counts=tuple(sorted({1, max(1, gpus // 2), gpus}))
    )
    return msgspec.structs.replace(one, decision=msgspec.structs.replace(one.decision, bounds=wide))


def test_a_site_reads_what_enforcing_would_have_changed(experiences: list[Experience]) -> None:
    learned = load_shipped_version()
    others = [
        OTHER,
        msgspec.structs.replace(OTHER, job_id="901", gpus=99),
        msgspec.structs.replace(OTHER, partition="x"),
    ]
    found = what_if(experiences, others, learned, map, effort=Effort(workloads=4, jobs=40))
    assert (found.policy, found.partition, found.others, found.workloads) == (learned.version, "gpu", 1, 4)
    assert found.jobs <= len(experiences)
    assert found.jct is not None
    assert 0.2 < found.jct.low <= found.jct.estimate <= found.jct.high < 5
    assert found.advice in ("enforce", "pilot", "stay")
    assert (found.advice == "stay") == bool(found.failures)
    assert len(found.assumptions) >= 5
    again = what_if(experiences, others, learned, map, effort=Effort(workloads=4, jobs=40))
    assert again == found


def test_too_few_jobs_are_said(experiences: list[Experience]) -> None:
    few = what_if(experiences[: LEAST_MOLDABLE - 1], [], load_shipped_version(), map)
    assert few.advice == "unknown"
    assert f"Too few jobs to say: {LEAST_MOLDABLE - 1} of this span" in few.recommendation
    assert few.jct is None
    rigid = [
        msgspec.structs.replace(one, decision=msgspec.structs.replace(one.decision, bounds=None))
        for one in experiences
    ]
    assert what_if(rigid, [], load_shipped_version(), map).advice == "bounds"


def result(jct_s: float, killed: int = 0) -> WorkloadResult:
    return WorkloadResult(
        jobs=100, jct_s=jct_s, jct_p95_s=2 * jct_s, jct_p99_s=3 * jct_s, wait_s=jct_s / 2, bounded_slowdown=1.0,
        gpu_hours=10.0, gpu_use=0.5, killed=killed, killed_by_policy=killed, requeues=0, users={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ratios", "killed", "advice", "said"),
    [
        ((0.8, 0.85, 0.9), 0, "enforce", "Enforce, one rule first: mean JCT would have been 15."),
        ((0.99, 1.0, 1.005), 0, "pilot", "changed little"),
        ((1.1, 1.2, 1.3), 0, "stay", r"never worse is not met \(JCT, p95\)"),
        ((0.8, 0.85, 0.9), 1, "stay", r"\(killed\)"),
    ],
)
def test_the_recommendation_follows_the_bar(ratios: tuple[float, ...], killed: int, advice: str, said: str) -> None:
    found = _judged([result(100 * ratio, killed) for ratio in ratios], [result(100) for _ in ratios])
    assert found.advice == advice
    assert found.jct is not None
    assert isinstance(found.jct, Interval)
    assert found.jct.estimate == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert re.search(said, found.recommendation)
