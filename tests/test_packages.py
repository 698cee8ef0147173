"""Which package imports which, also inside functions (docs/explanation/architecture.md); module names are unique."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "core/rlalloc": {"rlalloc"},
    "daemon/rlallocd": {"rlalloc", "rlallocd"},
    "agent/rlalloc_agent": {"rlalloc", "rlalloc_agent"},
    "simulator/rlalloc_simulator": {"rlalloc", "rlalloc_simulator"},
    "trainer/rlalloc_trainer": {"rlalloc", "rlalloc_agent", "rlalloc_simulator", "rlalloc_trainer"},
    "cli/rlalloc_cli": {
        "rlalloc",
        "rlallocd",
        "rlalloc_agent",
        "rlalloc_simulator",
        "rlalloc_trainer",
        "rlalloc_cli",
    },
}
"""Our packages, beside others', that a package of the product may import."""
OURS = {Path(package).name for package in MAY_IMPORT} | {
    "rlalloc_research", "rlalloc_testbed", "rlalloc_validation", "slurm_testbed", "rlalloc_demo",
    "slurm_gain", "slurm_load", "slurm_replay", "tests",
}  # fmt: skip
NEEDS_TORCH = {"agent/rlalloc_agent", "trainer/rlalloc_trainer"}
SHARED_NAMES = {"__init__", "__main__"}


def sources(package: str) -> Iterator[Path]:
    yield from (ROOT / package).rglob("*.py")


def imported(path: Path) -> set[str]:
    """The packages that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_what_stands_below_it(package: str) -> None:
    wrong = {
        str(path.relative_to(ROOT)): sorted(found)
        for path in sources(package)
        if (found := (imported(path) & OURS) - MAY_IMPORT[package])
    }
    assert wrong == {}


@pytest.mark.parametrize("package", sorted(set(MAY_IMPORT) - NEEDS_TORCH))
def test_torch_is_for_the_agent_and_the_trainer(package: str) -> None:
    assert [str(path) for path in sources(package) if "torch" in imported(path)] == []


def test_module_names_are_unique_in_the_product() -> None:
    """A stack trace or an import list names a module; its name says which one it is."""
    places: dict[str, list[str]] = defaultdict(list)
    for package in MAY_IMPORT:
        for path in sources(package):
            if path.stem not in SHARED_NAMES:
                places[path.stem].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
