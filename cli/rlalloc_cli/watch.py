"""``rlalloc watch``: the screen of ``rlalloc status`` with the queue, renewed until q or Ctrl-C."""

import contextlib
import select
import sys
import termios
import time
import tty
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rlalloc.config import Config
from rlalloc.errors import RlallocError
from rlalloc.local_times import local_time
from rlalloc_cli.status import print_status
from rlalloc_cli.terminal import CONSOLE, make_console

_QUEUE: Final = {
    "rlallocd_pending_jobs": "{} pending",
    "rlallocd_deferred_jobs": "{} waiting for rlallocd",
    "rlallocd_deferred_longest_wait_seconds": "longest wait {} s",
    "rlallocd_open_applications": "{} open updates",
}
"""Metrics of rlallocd, and what is printed of each."""
_METRICS_WITHIN_S: Final = 3.0


def watch(config: Config, every_s: float, *, once: bool) -> bool:
    """Show the screen, and renew it ``every_s``; once only where that is asked for or nobody sits at a terminal.

    Returns whether all was well in the end.
    """
    if once or not (CONSOLE.is_terminal and sys.stdin.isatty()):
        screen, well = _screen(config)
        CONSOLE.print(screen)
        return well
    well = True
    # A console of its own: what CONSOLE captures would have the live screen in it.
    console = make_console()
    with _keys(), Live(Text("reading"), console=console, screen=True, auto_refresh=False) as live:
        while True:
            screen, well = _screen(config)
            live.update(Group(screen, Text(f"{local_time(time.time())}  q ends", "dim")), refresh=True)
            if _q_pressed(every_s):
                return well


def _screen(config: Config) -> tuple[Text, bool]:
    """The queue of ours above what ``rlalloc status`` prints; a store that fails is a line of it."""
    with CONSOLE.capture() as captured:
        CONSOLE.print(_queue_line(config.metrics.listen))
        try:
            well = print_status(config)
        except RlallocError as err:
            CONSOLE.print(Text(f"FAIL {err}", "bold red"))
            well = False
    return Text.from_ansi(captured.get().rstrip("\n")), well


def _queue_line(listen: str) -> str:
    """Jobs of ours in the queue, as rlallocd's metrics have them."""
    if not listen:
        return "queue   not known: metrics.listen is empty"
    try:
        with urllib.request.urlopen(f"http://{listen}/metrics", timeout=_METRICS_WITHIN_S) as answer:
            text = answer.read().decode()
    except OSError:
        return "queue   not known: rlallocd serves no metrics"
    return queue_text(text)


def queue_text(exposition: str) -> str:
    """The line of the queue, from metrics in Prometheus' text format; ``?`` for one that is missing."""
    try:
        values = {
            sample.name: f"{sample.value:.0f}"
            for family in text_string_to_metric_families(exposition)
            for sample in family.samples
            if sample.name in _QUEUE
        }
    except ValueError:
        return "queue   not known: what answers at metrics.listen is not rlallocd"
    return f"queue   {', '.join(words.format(values.get(name, '?')) for name, words in _QUEUE.items())}"


@contextmanager
def _keys() -> Iterator[None]:
    """Hear of each key at once, without its echo."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _q_pressed(within_s: float) -> bool:
    """Whether q is pressed within this time, or the terminal goes away."""
    until_s = time.monotonic() + within_s
    while (left_s := until_s - time.monotonic()) > 0:
        with contextlib.suppress(InterruptedError):
            if select.select([sys.stdin], [], [], left_s)[0] and sys.stdin.read(1) in ("q", "Q", ""):
                return True
    return False
