"""What each package must not import (docs/explanation/architecture.md), also not through others."""

import subprocess
import sys

import pytest

FORBIDDEN = {
    "rlalloc.config rlalloc.observation rlalloc.messages rlalloc.policies rlalloc.store rlalloc.reward": (
        "torch",
        "zmq",
        "rlallocd",
        "rlalloc_agent",
        "rlalloc_trainer",
    ),
    "rlallocd.daemon_app": ("torch", "rlalloc_trainer", "rlalloc_agent"),
    "rlalloc_agent.agent_app": ("rlallocd", "rlalloc_trainer", "pyslurm"),
    "rlalloc_simulator.commands.workload_commands rlalloc_simulator.driving rlalloc_simulator.report": (
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
