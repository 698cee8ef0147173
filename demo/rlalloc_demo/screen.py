"""What the demo shows while it runs: on a terminal a few live lines below the log, elsewhere a line now and then."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rlalloc.store import Decision

LATEST: Final = 6
QUIET_LINE_EVERY_S: Final = 10.0


class Progress(msgspec.Struct, frozen=True):
    """How far the jobs of a phase are, and the latest decisions, newest first."""

    total: int
    pending: int
    running: int
    ended: int
    gpus_used: int
    gpus: int
    decisions: tuple[Decision, ...]


class Screen:
    """The demo's terminal; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()
        self._phase = ""
        self._phase_began = self._began
        self._words = ""
        self._progress: Progress | None = None
        self._live: Live | None = None
        self._last_line = 0.0
        self._shown: set[str] = set()
        self.lengths: list[tuple[str, float]] = []
        """Phases and their lengths in seconds."""

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, transient=True, refresh_per_second=4, get_renderable=self._live_lines
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish_phase()
        if self._live is not None:
            self._live.stop()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._began

    def phase(self, title: str) -> None:
        """Begin a phase."""
        self.finish_phase()
        self._phase, self._phase_began = title, time.monotonic()
        self._last_line = self._phase_began
        self.console.rule(Text(f"{_clock(self.elapsed_s)}  {title}", style="bold"), align="left", style="dim")
        self.waiting("")

    def finish_phase(self) -> None:
        """Note how long the phase took."""
        if self._phase:
            self.lengths.append((self._phase, time.monotonic() - self._phase_began))
        self._phase = ""

    def say(self, words: RenderableType) -> None:
        """Print something that stays."""
        self.console.print(words)

    def waiting(self, for_what: str) -> None:
        """Show what is waited for, on a terminal."""
        self._words, self._progress = for_what, None

    def progress(self, progress: Progress) -> None:
        """Show how far the jobs are."""
        self._words, self._progress = _counts(progress), progress
        if self._live is None and time.monotonic() - self._last_line >= QUIET_LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.console.print(f"{_clock(self.elapsed_s)}  {_counts(progress)}")
            self._print_new(progress.decisions)

    def _print_new(self, decisions: Sequence[Decision]) -> None:
        new = [decision for decision in decisions if decision.id not in self._shown]
        self._shown.update(decision.id for decision in new)
        for decision in reversed(new[:3]):
            self.console.print(decision_line(decision))

    def _live_lines(self) -> Group:
        """What stands below the log on a terminal, made anew several times a second."""
        if not self._phase:
            return Group()
        status = Text.assemble((f"{_clock(self.elapsed_s)}  ", "bold"), (self._phase, "cyan"))
        if self._progress is None:
            return Group(status, f"      {self._words}")
        latest = [decision_line(decision) for decision in self._progress.decisions[:LATEST]]
        return Group(status, f"      {self._words}", _bar(self._progress), *latest)


def decision_line(decision: Decision) -> Text:
    """One decision in one line: what was asked, what the policy said."""
    asked, given = decision.request, decision.allocation
    text = Text.assemble(
        "       job ",
        (f"{decision.job_id:<4}", "bold"),
        f"{decision.user:<10} {decision.job_name:<14} "
        f"{asked.gpus:>2} GPUs {asked.cpus:>3} CPUs {asked.mem_mib / 1024:>3.0f} GiB",
    )
    if given is None:
        return text.append(f"  as submitted: {decision.reason}", "yellow")
    style = "green" if decision.mode == "enforce" else "dim"
    text.append(f" → {given.gpus:>2} GPUs {given.cpus:>3} CPUs {given.mem_mib / 1024:>3.0f} GiB", style)
    return text.append(f"  {decision.mode}, {decision.policy_version}", "dim")


def _counts(progress: Progress) -> str:
    to_come = progress.total - progress.pending - progress.running - progress.ended
    return (
        f"{to_come} to come, {progress.pending} pending, "
        f"{progress.running} running, {progress.ended} ended; {progress.gpus_used} of {progress.gpus} GPUs in use"
    )


def _bar(progress: Progress) -> Text:
    used = progress.gpus_used
    return Text.assemble("       GPUs ", ("█" * used, "green"), ("░" * (progress.gpus - used), "dim"))


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    return f"{minutes}:{second:02}"
