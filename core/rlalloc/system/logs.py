"""Logging: to systemd's journal with structured fields where there is one, to stderr with the same fields elsewhere.

Fields go in by ``log.info("text", extra={"job_id": 7})`` and come out in the journal as ``JOB_ID=7``.
"""

import logging
import os
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

FIELDS: Final = ("job_id", "decision_id", "policy_version", "skip_code", "rule", "counter")


_REPEAT_EVERY_S: Final = 600.0
_MESSAGES_KEPT: Final = 1000

COUNTED: Final[Counter[tuple[str, bool]]] = Counter()
"""Warnings and errors of this process: by level in lower case, and whether the line was held back as a repeat."""


class RepeatFilter(logging.Filter):
    """Lets a warning or an error through that was logged before only after ``every_s``, and says how often it was.

    A full disk or a stopped slurmctld fails every cycle: that is one line, not one line each few seconds. Messages
    that differ in anything, such as a job's id, are different messages.
    """

    def __init__(self, every_s: float = _REPEAT_EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._said: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """When each message was last let through, and how often it was held back since; oldest first."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record; the text of one that was held back before gets a count."""
        if record.levelno < logging.WARNING:
            return True
        key, now_s = (record.name, record.getMessage()), self._clock()
        said_s, held_back = self._said.get(key, (-self._every_s, 0))
        repeats = now_s - said_s < self._every_s
        COUNTED[record.levelname.lower(), repeats] += 1
        if repeats:
            self._said[key] = said_s, held_back + 1
            return False
        self._said[key] = now_s, 0
        self._said.move_to_end(key)
        if len(self._said) > _MESSAGES_KEPT:
            self._said.popitem(last=False)
        if held_back:
            times = "once" if held_back == 1 else f"{held_back} times"
            record.msg, record.args = f"{key[1]} (and {times} since it was last logged)", None
        return True


class _FieldFormatter(logging.Formatter):
    """``2026-01-01T00:00:00 INFO rlallocd: text job_id=7``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        return super().format(record) + fields


def configure_logging(level: str, program: str) -> None:
    """Send all logging of this process to the journal (under systemd) or to stderr, repeats only now and then."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    handler = _journal_handler(program) or _stderr_handler()
    handler.addFilter(RepeatFilter())
    root.handlers = [handler]
    logging.getLogger("alembic").setLevel(logging.WARNING)  # the store says which revision it is brought to


def _journal_handler(program: str) -> logging.Handler | None:
    if "JOURNAL_STREAM" not in os.environ:
        return None
    try:
        import systemd.journal
    except ImportError:
        return None

    def send(message: str, /, **fields: object) -> None:
        """The journal takes upper-case fields only; those of Python's own records are left out."""
        ours = {name.upper(): str(fields[name]) for name in FIELDS if name in fields}
        systemd.journal.send(message, **ours, **{name: value for name, value in fields.items() if name.isupper()})

    handler: logging.Handler = systemd.journal.JournalHandler(sender_function=send, SYSLOG_IDENTIFIER=program)
    return handler


def _stderr_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"))
    return handler
