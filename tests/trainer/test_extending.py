"""docs/reference/plugins.md as written: its files become a distribution, which the commands then know."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reference" / "plugins.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to work in; what the document's files make is installed in its ``packages``."""
    folder = tmp_path_factory.mktemp("extending")
    package = folder / "site-policies" / "site_policies"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "pyproject.toml").write_text(*blocks("toml"))
    experts, figures = blocks("python")
    (package / "experts.py").write_text(experts)
    (package / "figures.py").write_text(figures)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    made = subprocess.run(
        [*pip, "--disable-pip-version-check", "--target", "packages", "./site-policies"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    (folder / "rlalloc.yaml").write_text(*blocks("yaml"))
    return folder


def run(folder: Path, command: str) -> str:
    words = command.split()
    program = [str(Path(sys.executable).with_name("rlalloc")), *words[1:]]
    environment = os.environ | {"PYTHONPATH": str(folder / "packages"), "COLUMNS": "200"}
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_worked_example(installed: Path) -> None:
    """Every command of the document runs; the expert, the reward and the metric appear where it says."""
    commands = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    printed = {command.split()[2]: run(installed, command) for command in commands if command.startswith("rlalloc")}
    assert "Half of the GPUs" in printed["policies"]
    assert "site-policies 1.0" in printed["policies"]
    table = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in printed["run"].splitlines() if "│" in line}
    within_an_hour = [float(cell) for cell in table["started within an hour"]]
    assert len(within_an_hour) == 3
    assert all(0 < part <= 1 for part in within_an_hour)
    assert [float(cell.replace(",", "")) for cell in table["long_runs"]] != [0, 0, 0]
    assert table["mean"][0] != table["mean"][2]  # the expert is not price-ef
    assert ": OK" in printed["check"]
