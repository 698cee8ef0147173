"""Scripts at which rlalloc.lua did not look in full, since slurmctld would have waited for it: rlallocd reads them.

The tag of such a job says ``words=too-long``. The script is asked of slurmctld once, and kept while the daemon runs.
What cannot be had stays unknown: the job keeps what it asked for.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from rlalloc.config import Config
from rlalloc.scripts.script_words import TOO_LONG, read_long_script
from rlallocd.slurm import Slurm, SlurmUnavailable
from rlallocd.submissions.candidates import Candidate

_log = logging.getLogger(__name__)

_MOST_ASKED: Final = 20
_LONGEST_S: Final = 5.0
"""Scripts a cycle, and for how long they are asked for: each is a call of scontrol, and other jobs wait meanwhile."""
_MOST_KEPT: Final = 512

_Key = tuple[int, int, str]
"""Job id, submit second, and the stamp of the table of words."""


class LongScripts:
    """The words of these scripts."""

    def __init__(self, slurm: Slurm, progress: Callable[[], None] = lambda: None) -> None:
        """Nothing is asked yet. ``progress`` is called after each script."""
        self._slurm = slurm
        self._progress = progress
        self._words: OrderedDict[_Key, str] = OrderedDict()

    def complete(self, candidates: Sequence[Candidate], config: Config) -> tuple[Candidate, ...]:
        """The candidates, those with a long script with its words in their tags, as far as slurmctld gives it.

        Those beyond the first ones that are not known yet stay as they are.
        """
        asked, until_s = 0, time.monotonic() + _LONGEST_S
        complete = []
        for candidate in candidates:
            tag = candidate.tag
            key = (*candidate.key, tag.table)
            found = None
            if tag.collected == TOO_LONG and tag.table == config.word_table.stamp and not tag.skip:
                found = self._words.get(key)
                if found is None and asked < _MOST_ASKED and time.monotonic() < until_s:
                    asked += 1
                    try:
                        found = self._read(key, config)
                    except SlurmUnavailable as err:
                        asked = _MOST_ASKED
                        _log.warning("cannot read the script of job %d, it keeps its size: %s", key[0], err)
                    self._progress()
            complete.append(
                candidate
                if found is None
                else msgspec.structs.replace(candidate, tag=msgspec.structs.replace(tag, collected=found))
            )
        return tuple(complete)

    def _read(self, key: _Key, config: Config) -> str:
        """Ask for a script; what it says is kept, also that it cannot be had. Raises SlurmUnavailable."""
        script = self._slurm.batch_script(key[0])
        words = None if script is None else read_long_script(script, config.word_table).words
        self._words[key] = TOO_LONG if words is None else "+".join(words)
        if len(self._words) > _MOST_KEPT:
            self._words.popitem(last=False)
        return self._words[key]
