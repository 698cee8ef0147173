"""A policy that plans: what it sees, when it leaves its base, what it may cost."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from rlalloc.errors import PolicyError
from rlalloc.heuristics import Heuristic, Ordered, as_requested, largest, price_ef
from rlalloc.job import JobView, Shares
from rlalloc.urgency import UrgencyRules
from rlalloc.view import ClusterView
from rlalloc_research.__main__ import app
from rlalloc_research.planning import Planned, PlanningSettings
from rlalloc_research.planning.compared_planning import plain_or_planned
from rlalloc_research.planning.latency_budget import rollouts_within
from rlalloc_research.planning.planning_policy import lower_bounds
from rlalloc_simulator.driving import Driven, drive
from rlalloc_simulator.engine import Simulator, table_of
from rlalloc_simulator.site_from_workload import SIMULATED_URGENCY, Workload, with_urgency
from rlalloc_simulator.workloads import Header, write_workload
from tests.trainer.evaluation.example_workloads import CLUSTER, workload_job
from tests.trainer.sites import site_workload

FEW = PlanningSettings(futures=(8, 8))
LEAST_WORK_S = 10_000.0
"""No speed-up lets a job end before all have come."""


def run(workload: Workload, policy: Heuristic) -> Driven:
    return drive(Simulator(workload.site, table_of(workload.jobs, workload.site)), workload.jobs, policy)


def mean_jct_s(driven: Driven) -> float:
    return float((driven.outcomes["finished_s"] - driven.outcomes["submit_s"]).mean())


def rushed(hidden: float) -> Workload:
    """Jobs that all come before any of them ends; their work depends on ``hidden``, nothing else does."""
    workload = site_workload(5)
    jobs = [
        msgspec.structs.replace(
            job,
            submit_s=4.0 * number,
            work_s=(1 + number * hidden % 7) * LEAST_WORK_S,
            request=msgspec.structs.replace(job.request, time_limit_s=3600 * (1 + number % 5)),
            mem_mib_per_gpu_needed=0.0,
        )
        for number, job in enumerate(workload.jobs)
    ]
    return Workload(workload.site, tuple(jobs))


def test_hidden_run_times_change_no_decision() -> None:
    """Workloads that differ in what nobody can know get the same answers; some differ from the baseline's."""
    planned = [Planned(largest, FEW), Planned(largest, FEW)]
    one, other = (run(rushed(hidden), policy) for hidden, policy in zip((2.0, 5.0), planned, strict=True))
    assert (one.outcomes["work_s"] != other.outcomes["work_s"]).any()
    assert one.outcomes["finished_s"].tolist() != other.outcomes["finished_s"].tolist()
    np.testing.assert_array_equal(one.sizes, other.sizes)
    assert planned[0].changed == planned[1].changed > 0


def test_it_mends_a_base_that_takes_too_much() -> None:
    """The same answers each time; and a base that gives everybody the most there is loses to its neighbours."""
    workload = site_workload(1)
    once, again = run(workload, Planned(largest, FEW)), run(workload, Planned(largest, FEW))
    np.testing.assert_array_equal(once.outcomes["finished_s"], again.outcomes["finished_s"])
    assert mean_jct_s(once) < 0.9 * mean_jct_s(run(workload, largest))


def test_without_certainty_the_base_decides() -> None:
    workload = site_workload(1)
    planned = Planned(largest, msgspec.structs.replace(FEW, standard_errors=1e9))
    np.testing.assert_array_equal(run(workload, planned).sizes, run(workload, largest).sizes)
    assert (planned.planned > 10, planned.changed) == (True, 0)


def test_a_budget_that_holds_too_few_futures_leaves_it_to_the_base() -> None:
    workload = site_workload(1, jobs=20)
    planned = Planned(largest, msgspec.structs.replace(FEW, latency_budget=1e-3))
    np.testing.assert_array_equal(run(workload, planned).sizes, run(workload, largest).sizes)
    assert (planned.decisions, planned.planned) == (20, 0)


def test_futures_follow_from_the_budget() -> None:
    """The larger the rollouts the fewer, never counted above the budget; none where they would be too few."""
    limits = (4, 1000)
    within = [rollouts_within(1.0, limits, 16, jobs, 3) for jobs in (10, 100, 1000)]
    assert within[0].futures > within[1].futures > within[2].futures >= 4
    assert all(0.9 < each.counted_s <= 1.0 for each in within)
    assert rollouts_within(1.0, limits, 16, 100_000, 3).futures == 0
    assert rollouts_within(1.0, (4, 16), 16, 10, 3).futures == 16


def test_the_lower_bound_is_the_mean_less_standard_errors() -> None:
    advantages = np.array([[1.0, 3.0], [1.0, -1.0], [1.0, 1.0], [1.0, 1.0]])
    errors = math.sqrt(8 / 3) / 2
    np.testing.assert_allclose(lower_bounds(advantages, 2.0), [1.0, 1.0 - 2 * errors])


def test_where_urgency_counts_sizes_keep_the_order_that_the_base_would_give_them() -> None:
    """A size that it changed has the urgency of that size's run time, or the most."""
    workload = Workload(with_urgency(site_workload(1).site), site_workload(1).jobs)
    base = Ordered(price_ef)
    seen: list[tuple[Shares, Shares]] = []
    future = msgspec.structs.replace(FEW.future, urgency=SIMULATED_URGENCY)
    planned = Planned(base, msgspec.structs.replace(FEW, future=future, standard_errors=0.0))

    def policy(job: JobView, view: ClusterView) -> Shares:
        seen.append((base(job, view), planned(job, view)))
        return seen[-1][1]

    run(workload, policy)
    changed = [(before, after) for before, after in seen if before != after]
    assert len(changed) == planned.changed > 2
    assert any(after.urgency == 1.0 and after.gpu == before.gpu for before, after in changed)
    for before, after in changed:
        if after.gpu < before.gpu and after.urgency < 1.0:
            assert after.urgency <= before.urgency  # it takes longer


def test_any_policy_can_be_named_with_planning() -> None:
    planned, plain = plain_or_planned("planned:as-requested", None), plain_or_planned("as-requested", None)
    decides = planned.policy(UrgencyRules())
    assert isinstance(decides, Planned)
    assert decides.base is as_requested
    assert isinstance(plain_or_planned("planned:shipped", None).policy(UrgencyRules()), Planned)
    assert planned.digest != plain.digest
    ordered = planned.policy(SIMULATED_URGENCY)
    assert isinstance(ordered, Planned)
    assert isinstance(ordered.base, Ordered)
    assert ordered.settings.future.urgency == SIMULATED_URGENCY
    for wrong in ("planned:planned:price-ef", "planned:nobody"):
        with pytest.raises(PolicyError, match="write"):
            plain_or_planned(wrong, None)


def test_the_command_compares_a_policy_that_plans_with_its_base(tmp_path: Path) -> None:
    path = tmp_path / "site.jsonl"
    jobs = [
        workload_job(number, 86_400.0 * (number > 5) + 900.0 * number, gpus=4, run_s=3000.0)
        for number in range(1, 11)
    ]
    write_workload(path, Header(cluster=CLUSTER), jobs)
    told = ["--workload", str(path), "--loads", "1.5", "--settings", "sizes", "--workers", "1", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, ["planning", "planned:price-ef", "price-ef", *told])
    assert result.exit_code == 0, result.output
    assert "over as-requested in the same order" in result.output
