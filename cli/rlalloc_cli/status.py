"""``rlalloc status``: what a person on call needs, on one screen of 80 columns."""

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Final

from rich.table import Table
from rich.text import Text

from rlalloc.config import Config
from rlalloc.errors import StoreError
from rlalloc.history.earlier_reading import earlier_reading
from rlalloc.local_times import duration, local_time
from rlalloc.policy.policies import SHIPPED_NAME, PolicyStore
from rlalloc.store import Decision, Store
from rlalloc_cli.doctor.doctor_checks import service_findings
from rlalloc_cli.terminal import CONSOLE
from rlallocd.checks.finding import Finding, worst
from rlallocd.checks.machine_checks import daemon_findings
from rlallocd.checks.store_checks import disk_findings
from rlallocd.checks.units import unit_state
from rlallocd.process.daemon_state import DaemonState, read_daemon_state

_LATEST: Final = 8
_MANY: Final = 10_000
"""Rows of a table that are counted: counting millions would take seconds."""
_TABLES: Final = {"applications": "updates", "past_jobs": "past jobs", "policies": "trained policies"}
"""Tables of the store whose names are not for people."""
_HARMED_DAYS: Final = 30
_LONGEST_COMPLAINT: Final = 240
"""Characters; the journal has all of it."""
_COLUMNS: Final = (("job", 8), ("decided", 11), ("user", 10), ("class", 8), ("mode", 7))
"""Columns of the latest decisions, and how many characters each has; what was decided has the other 31 of 80."""
_LINES: Final = (
    ("plugin", ("heartbeat", "words")),
    ("daemon", ("rlallocd", "version", "cycles", "mode")),
    ("agent", ("rlalloc-agent",)),
    ("policy", ("policy",)),
    ("trainer", ("timer", "training")),
)
"""Lines of the screen, and the checks that each shows."""


def print_status(config: Config) -> bool:
    """Print how things are, and return whether all is well.

    A dead agent, or a store that is not there or fails, is a fact to be shown. Raises PolicyError.
    """
    state = read_daemon_state(config.runtime_directory)
    findings = service_findings(config)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=7)
    grid.add_column(overflow="fold")
    if switched := [finding for finding in findings if finding.what == "switch"]:
        grid.add_row("switch", _finding_text(switched, ()))
    grid.add_row("mode", _mode_line(config, state))
    for name, checks in _LINES:
        shown = [finding for finding in findings if finding.what in checks]
        grid.add_row(name, _finding_text(shown, _more(name, config, state)))
    if little := [finding for finding in disk_findings(config) if finding.level != "OK"]:
        findings += little
        grid.add_row("disk", _finding_text(little, ()))
    try:
        with contextlib.closing(Store(config.store.url, read_only=True, skip_unreadable=True)) as store:
            of_store = store_lines(store, config)
    except StoreError as err:
        grid.add_row("store", Text(f"FAIL {err}", "bold red"))
        CONSOLE.print(grid)
        return False
    CONSOLE.print(grid)
    for line in of_store:
        CONSOLE.print(line)
    return worst(findings) != "FAIL"


def print_daemon_status(config: Config, state: DaemonState | None) -> bool:
    """Print what members of rlalloc-readers may see: how rlallocd is; return whether it is well."""
    findings = daemon_findings(config, state, unit_state("rlallocd.service"))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=7)
    grid.add_column(overflow="fold")
    if state is not None and state.switched_off:
        grid.add_row("switch", Text(f"WARN {state.mode_reason}", "yellow"))
    grid.add_row("mode", _mode_line(config, state))
    grid.add_row("daemon", _finding_text(findings, _more("daemon", config, state)))
    CONSOLE.print(grid)
    CONSOLE.print("agent, policy, training and store: shown to root and the group rlalloc", style="dim")
    return worst(findings) != "FAIL"


def store_lines(store: Store, config: Config) -> list[str | Table]:
    """How large the store is, how much of the past is still unread, the latest decisions. Raises StoreError."""
    reading = earlier_reading(store.history, config, time.time())
    unread = [f"history {reading.describe()}"] if reading is not None and reading.unread_s else []
    counts = ", ".join(_count(*each) for each in sorted(store.counts(_MANY + 1).items()))
    harmed = Counter(each.outcome.our_doing for each in store.ends_of_our_doing(time.time() - _HARMED_DAYS * 86_400))
    causes = ", ".join(f"{number} by {cause}" for cause, number in sorted(harmed.items(), key=str))
    return [
        f"store   {counts}",
        *unread,
        f"killed  {causes or 'no job'} in a size that rlalloc chose, in {_HARMED_DAYS} days",
        _latest(store.recent_decisions(_LATEST)),
    ]


def _latest(decisions: Sequence[Decision]) -> Table:
    table = Table(title="latest decisions", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading, width in _COLUMNS:
        table.add_column(heading, no_wrap=True, overflow="ellipsis", min_width=width, max_width=width)
    table.add_column("GPUs asked -> given, by policy", overflow="fold")
    for decision in decisions:
        table.add_row(
            str(decision.job_id),
            local_time(decision.decided_s)[5:-3],
            decision.user,
            decision.job_class,
            decision.mode,
            _given(decision),
        )
    return table


def _given(decision: Decision) -> str:
    """What was decided, whole: on a narrow screen it is folded."""
    asked = decision.request.gpus
    if decision.allocation is None:
        return f"{asked}, skipped: {decision.skip_code}"
    return f"{asked} -> {decision.allocation.gpus}, {decision.policy_version or '-'}"


def _mode_line(config: Config, state: DaemonState | None) -> str:
    mode = config.mode if state is None else state.mode
    rules = ", ".join(f"{rule.name} {config.mode_of(rule)}" for rule in config.rules)
    return f"{mode}; rules of the file: {rules}"


def _finding_text(findings: Sequence[Finding], more: Sequence[str]) -> Text:
    """What was found, one line each; what is not OK with its level and remedy."""
    text = Text()
    for finding in findings:
        line = f"{finding.found}\n"
        if finding.level == "OK":
            text.append(line)
        else:
            text.append(f"{finding.level} ", "bold red" if finding.level == "FAIL" else "yellow")
            text.append(f"{line.rstrip()} -> {finding.remedy}\n")
    for line in more:
        text.append(f"{line}\n")
    text.rstrip()
    return text


def _more(name: str, config: Config, state: DaemonState | None) -> list[str]:
    """Facts beside the checks: when the daemon last cycled, decided and complained; how old the policy is."""
    now_s = time.time()
    if name == "daemon" and state is not None:
        ago = "none yet" if state.cycle_s is None else f"{duration(now_s - state.cycle_s)} ago"
        decided = local_time(state.decision_s) if state.decision_s else "none since its start"
        lines = [f"last cycle {ago}, last decision {decided}"]
        if state.problem and (state.has_open_problem or not state.stopped):
            said = shorten(state.problem, _LONGEST_COMPLAINT, placeholder=" …")
            lines.append(f"last complaint {local_time(state.problem_s)}: {said}")
        return lines
    if name == "policy":
        return _promotion_lines(config.policy.directory)
    return []


def _promotion_lines(directory: Path) -> list[str]:
    policies = PolicyStore(directory)
    current = policies.current() or SHIPPED_NAME
    changes = [change for change in policies.promotions() if change.version == current]
    if not changes:
        return []
    last = changes[-1]
    return [f"put in use {local_time(last.time_s)} by {last.by or 'unknown'}"]


def _count(table: str, rows: int) -> str:
    named = _TABLES.get(table, table)
    return f"{rows} {named}" if rows <= _MANY else f"over {_MANY} {named}"
