"""The span of time that sacct understands by its options, in epoch seconds, also where local times occur twice.

Slurm itself reads the options: ``sacct --verbose`` says what it made of them, in local times without a zone. In the
hour in which clocks are set back, such a time is two moments. If the option named a moment (``now``, ``now-1hour``,
``uts1792890000``), sacct in a zone of its own says which. If it named the local time, both passes belong to the span.
"""

import calendar
import re
import secrets
import time
from typing import Final, NamedTuple

from rlallocd.slurm.slurm_commands import Commands
from rlallocd.slurm.slurm_errors import UnexpectedAnswer

_WINDOW: Final = re.compile(r"in the time window from (.{24}) to (.{24})")
_INSTANT: Final = re.compile(r"at the time instant (.{24})")
"""In place of a window where both ends look the same: an empty one, or one from a local time to its second pass."""
_FAR_ZONE: Final = "FAR24"
_FAR_S: Final = 86400
"""24 hours behind UTC, as no place is: a local time that is read there is another moment than at home."""
_SAME_S: Final = 1800
"""Two calls take ``now`` at different seconds; the two passes of a clock are an hour apart, or half of one."""
_LEAST_S: Final = 1_000_000
"""The least that sacct takes."""
_LONG_AGO, _LONG_AFTER = "uts1000000000", "uts4102444800"


class Span(NamedTuple):
    """From ``since_s`` to ``until_s``, epoch seconds."""

    since_s: int
    until_s: int


def moment(epoch_s: float) -> str:
    """A moment as sacct's options take it: a local time is two moments where clocks are set back."""
    return f"uts{max(_LEAST_S, int(epoch_s))}"


def span_of(commands: Commands, starttime: str, endtime: str) -> Span:
    """The span that sacct understands by its options ``--starttime`` and ``--endtime``; empty for their defaults.

    Raises SlurmError, UpdateRefused with sacct's words for what it does not understand.
    """
    begin, end = (_passes(text) for text in _window(commands, starttime, endtime))
    if len(begin) > 1:
        begin = _narrowed(begin, _window(commands.in_zone(_FAR_ZONE), starttime, _LONG_AFTER)[0])
    if len(end) > 1:
        end = _narrowed(end, _window(commands.in_zone(_FAR_ZONE), _LONG_AGO, endtime)[1])
    if begin == end and len(begin) == 1:
        raise UnexpectedAnswer("sacct reports an empty time span: it begins and ends at the same time")
    return Span(begin[0], end[-1])


def _window(commands: Commands, starttime: str, endtime: str) -> tuple[str, str]:
    """Both ends as sacct prints them."""
    times = [f"--{name}={text}" for name, text in (("starttime", starttime), ("endtime", endtime)) if text]
    nobody = f"--name=rlalloc-{secrets.token_hex(8)}"
    said = commands.run_verbosely("sacct", "--verbose", "--noheader", "--allocations", nobody, *times)
    if found := _WINDOW.search(said):
        return found[1], found[2]
    if found := _INSTANT.search(said):
        return found[1], found[1]
    raise UnexpectedAnswer(f"sacct names no time window: {said[:200]!r}")


def _read(text: str) -> time.struct_time:
    try:
        return time.strptime(text)
    except ValueError as err:
        raise UnexpectedAnswer(f"sacct names a time that cannot be read: {text!r}") from err


def _passes(text: str) -> list[int]:
    """The moments at which local clocks show this, in order: two where they are set back."""
    shown = _read(text)[:6]
    try:
        moments = {int(time.mktime((*shown, 0, 0, summer))) for summer in (-1, 0, 1)}
    except OverflowError as err:
        raise UnexpectedAnswer(f"sacct names a time that cannot be read: {text!r}") from err
    return sorted(moment for moment in moments if time.localtime(moment)[:6] == shown)


def _narrowed(passes: list[int], far_text: str) -> list[int]:
    """The one of them that sacct means in another zone, too; both where it means none of them."""
    meant_s = calendar.timegm(_read(far_text)) + _FAR_S
    return [each for each in passes if abs(each - meant_s) < _SAME_S] or passes
