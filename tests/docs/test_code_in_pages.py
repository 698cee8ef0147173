"""Python in the pages is right: imports, dotted names, parameters."""

import importlib
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from rlalloc_research.__main__ import app as research
from rlalloc_simulator import engine
from tests.docs.test_links import DOCUMENTS, ROOT

IMPORT = re.compile(r"^ *from ((?:rlalloc|slurm_testbed)[\w.]*) import (.+)$", re.MULTILINE)
DOTTED = re.compile(r"`(rlalloc\w*(?:\.\w+)+)`")
MODULE_RUN = re.compile(r"-m (rlalloc_research[\w.]*)")
PARAMETERS = ("SchedulerParameters", "PriorityParameters", "Interception", "NodeOverhead")


def found(name: str) -> Any:
    """What a dotted name stands for: a module, or an attribute in one. Raises AttributeError."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return getattr(found(module), attribute)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_names_exist(document: Path) -> None:
    """Entry point groups look like names, and are none."""
    text = document.read_text(encoding="utf-8")
    groups = {"rlalloc.experts", "rlalloc.rewards", "rlalloc.metrics", "rlalloc.yaml", "rlalloc.lua", "rlalloc.cron"}
    for name in {*DOTTED.findall(text), *MODULE_RUN.findall(text)} - groups:
        found(name)
    for module, names in IMPORT.findall(text):
        for name in re.findall(r"\w+", names):
            found(f"{module}.{name}")


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_simulators_page_lists_every_parameter(name: str) -> None:
    text = (ROOT / "docs" / "explanation" / "simulator.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    fields = [field.name for field in msgspec.structs.fields(getattr(engine, name))]
    assert re.findall(r"`(\w+)`", row)[1:] == fields


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_research_commands_exist(document: Path) -> None:
    """Of ``make research``, with their options."""
    known = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in typer.main.get_command(research).commands.items()  # type: ignore[attr-defined]
    }
    for words in re.findall(r'RESEARCH_ARGS="([^"]+)"', document.read_text(encoding="utf-8")):
        command, *rest = words.replace("[", "").replace("]", "").split()
        if command != "COMMAND":
            assert {word for word in rest if word.startswith("-")} <= known[command], words
