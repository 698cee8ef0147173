"""Each table of research/ is made by one documented command."""

import re
from pathlib import Path

from typer.testing import CliRunner

from rlalloc_research.__main__ import app

README = Path(__file__).parents[2] / "research" / "README.md"
COMMANDS = tuple(command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands)


def output_of(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_readme_lists_every_command() -> None:
    listed = re.findall(r"^\| `([a-z-]+)", README.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_help_lists_every_command() -> None:
    shown = output_of("--help")
    assert all(name in shown for name in COMMANDS)


def test_typical_advantages() -> None:
    printed = output_of("typical-advantages", "--workloads", "1")
    assert "Typical advantages" in printed
    assert "jct" in printed


def test_gpu_types() -> None:
    printed = output_of("gpu-types", "--workloads", "1", "--jobs", "30")
    assert "Slurm takes first" in printed
    assert printed.count(" → ") == 12


def test_advantage_noise() -> None:
    assert "correlation" in output_of("advantage-noise", "--workloads", "2", "--futures", "2")


def test_critic_fit_names_what_it_wants(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["critic-fit", str(tmp_path)])
    assert done.exit_code == 2
    assert "training folder of `rlalloc train policy" in done.output


def test_an_unknown_task_is_named() -> None:
    done = CliRunner().invoke(app, ["sac-check", "--task", "chess"])
    assert done.exit_code == 2
    assert "--task chess: write one of pendulum, cluster" in done.output
