"""What each package must not import (docs/explanation/architecture.md), also not through others."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("core", "agent", "daemon", "cli", "simulator", "trainer", "research", "testbed", "demo", "bench")
RUNS_A_POLICY = {
    "simulator/rlalloc_simulator/comparison/runner.py": "whatever compares policies",
    "simulator/rlalloc_simulator/recorded_outcomes.py": "what a site would have recorded, to learn from",
    "trainer/rlalloc_trainer/advantages/counterfactual.py": "decisions that are taken again, to learn from",
    "research/rlalloc_research/planning_latency.py": "a policy's decisions, to time them",
    "research/rlalloc_research/price_check/forced_sizes.py": "one job's decision, taken again in each size",
    "testbed/rlalloc_validation/simulated_run.py": "the simulator, compared with a real slurmctld",
}
"""Modules that may drive a simulator by a policy, and what for: only one of them compares policies."""

FORBIDDEN = {
    "rlalloc.config rlalloc.observation rlalloc.messages rlalloc.policy.policies rlalloc.store rlalloc.reward": (
        "torch",
        "zmq",
        "rlallocd",
        "rlalloc_agent",
        "rlalloc_trainer",
    ),
    "rlallocd.daemon_app": ("torch", "rlalloc_trainer", "rlalloc_agent"),
    "rlalloc_agent.agent_app": ("rlallocd", "rlalloc_trainer", "pyslurm"),
    "rlalloc_simulator.commands.workload_commands rlalloc_simulator.driving rlalloc_simulator.report "
    "rlalloc_simulator.comparison.runner rlalloc_simulator.comparison.load_comparison": (
        "torch",
        "rlallocd",
        "rlalloc_agent",
        "rlalloc_trainer",
        "pyslurm",
    ),
    "rlalloc_trainer.commands.train_commands rlalloc_trainer.pipelines.retrain": ("rlallocd", "pyslurm"),
    "rlalloc_cli.main": ("torch",),
}


@pytest.mark.parametrize("modules", FORBIDDEN)
def test_nothing_forbidden_is_imported(modules: str) -> None:
    program = f"import sys, {modules.replace(' ', ', ')}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint(FORBIDDEN[modules])


def test_only_one_module_runs_policies_to_compare_them() -> None:
    """Tables, the gate, pretraining and tuning all show results of the same runner."""
    sources = [
        path
        for folder in ("core", "agent", "daemon", "cli", "simulator", "trainer", "research", "testbed", "demo")
        for path in (ROOT / folder).rglob("*.py")
    ]
    drives = {str(path.relative_to(ROOT)) for path in sources if re.search(r"(?<!def )\bdrive\(", path.read_text())}
    assert drives == set(RUNS_A_POLICY)


def test_module_names_are_unique() -> None:
    """A stack trace or an import list names one module: not eleven `app.py`."""
    modules = [
        path.name
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert [name for name, times in Counter(modules).items() if times > 1] == []
