"""The messages page has every warning and error that the services log, and no other line."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVICES = ("daemon", "agent", "core", "trainer")
SEVERE = {"warning", "error", "exception"}
PLACEHOLDERS = "KEY|NAME|VERSION|G|M|N|S|V|W|X|Y"
"""What a line of the page writes for something that differs; … stands for the rest."""


def logged() -> Iterator[tuple[str, str]]:
    """Level and text of every call of a logger, %s and the like replaced by X."""
    for package in SERVICES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name(id="_log" | "log"), attr=level), args=[first, *_]
                    ):
                        assert isinstance(first, ast.Constant), f"{path}:{node.lineno}: log a constant text"
                        yield level, re.sub(r"%[.\d]*[sdfg]", "X", str(first.value))


def documented() -> dict[str, str]:
    """Lines of the page with their levels, as patterns."""
    text = (ROOT / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
    table = text.split("## Log lines")[1].split("\n## ")[0]
    lines = dict(re.findall(r"^\| `([^`]+)` \| (\w+) \|", table, re.MULTILINE))
    return {
        re.sub(rf"\b(?:{PLACEHOLDERS})\b", r"\\S+", re.escape(line)).replace("…", ".*"): level
        for line, level in lines.items()
    }


def test_every_warning_and_error_is_on_the_page() -> None:
    patterns = documented()
    severe = [text for level, text in logged() if level in SEVERE]
    assert len(severe) > 15
    assert not [text for text in severe if not any(re.fullmatch(pattern, text) for pattern in patterns)]


def test_every_line_of_the_page_is_logged_at_its_level() -> None:
    found = [("error" if level == "exception" else level, text) for level, text in logged()]
    for pattern, level in documented().items():
        assert any(level == each and re.fullmatch(pattern, text) for each, text in found), pattern
