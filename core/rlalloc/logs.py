"""Logging: to systemd's journal with structured fields where there is one, to stderr with the same fields elsewhere.

Fields go in by ``log.info("text", extra={"job_id": 7})`` and come out in the journal as ``JOB_ID=7``.
"""

import logging
import os
import sys
from typing import Final

FIELDS: Final = ("job_id", "decision_id", "policy_version", "skip_code", "rule", "counter")


class _FieldFormatter(logging.Formatter):
    """``2026-01-01T00:00:00 INFO rlallocd: text job_id=7``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        return super().format(record) + fields


def configure_logging(level: str, program: str) -> None:
    """Send all logging of this process to the journal (under systemd) or to stderr."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.handlers = [_journal_handler(program) or _stderr_handler()]


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
