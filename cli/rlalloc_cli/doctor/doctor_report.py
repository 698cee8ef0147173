"""Findings as a table for people, or as JSON; and the exit status that follows from the worst."""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from rlalloc_cli.terminal import CONSOLE
from rlallocd.checks.finding import Finding, Level, worst

EXIT: Final[dict[Level, int]] = {"OK": 0, "WARN": 3, "FAIL": 1}
_STYLE: Final[dict[Level, str]] = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}


def print_findings(findings: Sequence[Finding]) -> None:
    """A line for each finding, with the remedy below it where there is one."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = finding.found if not finding.remedy else f"{finding.found}\n-> {finding.remedy}"
        table.add_row(Text(finding.level, _STYLE[finding.level]), Text(finding.what), Text(text))
    CONSOLE.print(table)


def findings_as_json(findings: Sequence[Finding]) -> str:
    """The same for programs: the worst level, and each finding."""
    return msgspec.json.format(
        msgspec.json.encode({"worst": worst(findings), "findings": msgspec.to_builtins(findings)})
    ).decode()
