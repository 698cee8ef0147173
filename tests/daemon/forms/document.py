"""The tables in docs/explanation/submission-forms.md, one a version, written by the test that saw it."""

import re
from collections.abc import Mapping
from pathlib import Path

from .form_checks import problems_of
from .matrix import AS_SUBMITTED, COLUMNS, FORMS, SKIPPED
from .runs import Cell, allocated


def table_of(cells: Mapping[tuple[str, str], Cell]) -> str:
    """The table of one version's cells."""
    lines = [_row("form", COLUMNS), "|---" * (len(COLUMNS) + 1) + "|"]
    for name, form in FORMS.items():
        control = cells[name, AS_SUBMITTED]
        if control.skipped:
            lines.append(_row(f"`{form.options}`", [f"skipped: {control.skipped}", *[""] * (len(COLUMNS) - 1)]))
            continue
        words = [_word(cells.get((name, change)), control, name) for change in COLUMNS]
        lines.append(_row(f"`{form.options}`", words))
    for name, (options, _) in SKIPPED.items():
        skipped = cells[name, AS_SUBMITTED].skipped
        lines.append(_row(f"`{options}`", [f"skipped: {skipped}", *[""] * (len(COLUMNS) - 1)]))
    return "\n".join(lines)


def has_table(document: Path, version: str) -> bool:
    """Whether the document has the marks for a version's table."""
    return _place(version).search(document.read_text(encoding="utf-8")) is not None


def committed_table(document: Path, version: str) -> str:
    """The table of a version as it stands in the document."""
    match = _place(version).search(document.read_text(encoding="utf-8"))
    return match[2].rstrip("\n") if match else ""


def write_table(document: Path, version: str, table: str) -> None:
    """Put a version's table into the document, which has the marks for it."""
    text = document.read_text(encoding="utf-8")
    document.write_text(_place(version).sub(lambda match: f"{match[1]}{table}\n{match[3]}", text), encoding="utf-8")


def _place(version: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- Slurm {re.escape(version)} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _row(first: str, words: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join([first, *words]) + " |"


def _word(cell: Cell | None, control: Cell, name: str) -> str:
    if cell is None:
        return "n/a"
    if problems_of(cell, FORMS[name], control):
        return "no"
    if FORMS[name].whole_nodes and cell.change == "restored" and allocated(cell) != allocated(control):
        return "not exclusive"
    return "yes"
