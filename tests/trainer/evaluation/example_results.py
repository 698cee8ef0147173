"""Results of scenarios' workloads that were never run."""

from pathlib import Path

from rlalloc_simulator.comparison.workload_result import WorkloadResult
from rlalloc_simulator.comparison.worst_users import LEAST_JOBS
from rlalloc_simulator.knowledge import Knowledge
from rlalloc_trainer.evaluation.scenario_runs import WorkloadKey
from rlalloc_trainer.evaluation.scenarios import FileWeeks
from tests.simulator.comparison.example_results import result


def figures(jct_s: float, users: dict[str, tuple[int, float]] | None = None, p95: float = 2.0) -> WorkloadResult:
    """``users``: jobs and mean JCT of each."""
    return result(jct_s, p95=p95, users=users or {"ada": (LEAST_JOBS, jct_s)})


def key(scenario: str, week: int, load: float = 1.2, knowledge: Knowledge = "history") -> WorkloadKey:
    return WorkloadKey(FileWeeks(scenario, Path(), "", (0, 1, 2, 3)), week, load, knowledge)
