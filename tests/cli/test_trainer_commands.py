"""The trainer's commands where not all of the trainer is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = """
import os, sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ["BLOCKED"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
"""


def _run(directory: Path, blocked: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``rlalloc`` as if the blocked modules were not installed."""
    (directory / "sitecustomize.py").write_text(BLOCK)
    return subprocess.run(
        [Path(sys.executable).parent / "rlalloc", *words],
        env=os.environ | {"PYTHONPATH": str(directory), "BLOCKED": blocked},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_trainer_there_are_the_other_commands(tmp_path: Path) -> None:
    done = _run(tmp_path, "rlalloc_trainer rlalloc_simulator", "--help")
    assert done.returncode == 0
    assert "explain" in done.stdout
    assert "simulate" not in done.stdout


@pytest.mark.parametrize("words", ["train run --config rlalloc.yaml", "simulate run workload.json", "evaluate"])
def test_without_a_package_of_its_extra_a_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rlalloc.yaml").write_text(f"policy: {{directory: {tmp_path}/policies}}\n")
    done = _run(tmp_path, "numba torch", *words.split())
    assert done.returncode == 1
    assert "pip install 'rlalloc[trainer]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_other_commands_do_not_need_it(tmp_path: Path) -> None:
    assert _run(tmp_path, "numba torch", "--version").returncode == 0


def test_anything_else_that_is_missing_is_a_fault_of_ours_and_shown(tmp_path: Path) -> None:
    """A module that was renamed, say: the commands must not just vanish."""
    for module, words in (("rlalloc_trainer.commands.train_commands", "--help"), ("llvmlite", "simulate run x.json")):
        done = _run(tmp_path, module, *words.split())
        assert done.returncode == 1
        assert f"No module named '{module}'" in done.stderr
