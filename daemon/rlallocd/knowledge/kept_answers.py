"""The file in which a daemon keeps what it learned from its own answers about run times, across restarts."""

import logging
from pathlib import Path
from typing import Final

from rlalloc.errors import PolicyError
from rlalloc.run_times.given_answers import GivenAnswers
from rlalloc.system.shared_files import read_regular_file, replace_file
from rlallocd.process.interval import Interval

_log = logging.getLogger(__name__)

FILE: Final = "run_time_answers"
WRITE_EVERY_S: Final = 1800.0
"""The file has some megabytes at most. A daemon that is killed loses its answers since; ends are in the store."""


class KeptAnswers:
    """Reads the file once; writes it from time to time and at the end. If that fails, the log says what is lost."""

    def __init__(self, path: Path, *, pseudonyms: bool) -> None:
        self._path = path
        self._pseudonyms = pseudonyms
        self._written = Interval()
        self._written.restart()
        self._changes = 0

    def read(self) -> GivenAnswers:
        """What is in the file; nothing if there is none, or if it cannot be used."""
        try:
            return GivenAnswers.unpacked(read_regular_file(self._path), pseudonyms=self._pseudonyms)
        except FileNotFoundError:
            pass
        except (OSError, PolicyError) as err:
            _log.warning("what was learned about run times is left out, %s: %s", self._path, err)
        return GivenAnswers()

    def write_if_due(self, given: GivenAnswers) -> None:
        """Write the file if the last time was WRITE_EVERY_S ago."""
        if self._written.passed(WRITE_EVERY_S):
            self.write(given)

    def write(self, given: GivenAnswers) -> None:
        """Write the file, whole or not at all, if something has changed."""
        self._written.restart()
        if given.changes == self._changes:
            return
        try:
            replace_file(self._path, given.packed(pseudonyms=self._pseudonyms), 0o600)
        except (OSError, ValueError) as err:
            _log.warning("cannot keep what was learned about run times for the next start: %s", err)
        self._changes = given.changes
