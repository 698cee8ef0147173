"""What the product runs: its own code and pinned libraries, and nothing that it reads from disk or wire."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("core", "daemon", "agent", "cli", "simulator", "trainer")
RUNS_CODE = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
"""Modules whose files can run code when they are read."""
CALLS_THAT_RUN = {
    "eval",
    "exec",
    "torch.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "np.load",
    "numpy.load",
    "os.system",
}
LOCK = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.+!]+")


def modules() -> list[Path]:
    return [path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))]


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    return {node.module.split(".")[0]} if isinstance(node, ast.ImportFrom) and node.module else set()


def faults(path: Path, source: str) -> list[str]:
    """What in a module could run what it reads."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if wrong := imported(node) & RUNS_CODE:
            found.append(f"{path}: imports {', '.join(wrong)}")
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        options = {option.arg: ast.unparse(option.value) for option in node.keywords}
        loads_numbers = called in ("np.load", "numpy.load") and options.get("allow_pickle") in (None, "False")
        if called in CALLS_THAT_RUN and not loads_numbers:
            found.append(f"{path}: calls {called}")
        if options.get("shell") == "True":
            found.append(f"{path}: runs a shell")
    return found


def test_nothing_that_is_read_can_run_code() -> None:
    assert len(modules()) > 100
    assert not [fault for path in modules() for fault in faults(path, path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(f)",
        "eval(x)",
        "run(c, shell=True)",
        "np.load(f, allow_pickle=True)",
    ],
)
def test_such_code_would_be_found(source: str) -> None:
    assert faults(Path("x.py"), source)


def test_every_library_of_the_packages_is_pinned() -> None:
    locks = sorted((ROOT / "packages" / "lock").glob("*.txt"))
    assert len(locks) >= 3
    for path in locks:
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert not [line for line in lines if LOCK.fullmatch(line) is None], path
