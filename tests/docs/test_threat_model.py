"""Each threat on the security page names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "admin" / "security.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def threats() -> list[str]:
    """The rows of the table of threats."""
    section = PAGE.read_text(encoding="utf-8").split("## Threats\n")[1].split("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", threats(), ids=lambda row: " ".join(row.split("|")[1:3]).strip())
def test_each_threat_is_held_by_tests(row: str) -> None:
    named = TEST.findall(row)
    assert named
    for path, name in named:
        assert name in functions_in(ROOT / path), f"{path} has no {name}"


def test_the_page_has_each_kind_of_attacker() -> None:
    who = {row.split("|")[1].strip() for row in threats()}
    assert {"a user with a job", "root on a compute node", "the network between two hosts", "the supply chain"} < who
