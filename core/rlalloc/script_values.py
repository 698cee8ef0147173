"""Values in a batch script, and what the script assigns to its variables, as the submit plugin reads them.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way (``rlalloc.script_words``). Pure functions.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

MOST_TIMES: Final = 8
"""So many occurrences of one command, option or loop are looked at."""
MOST_EFFORT: Final = 80
"""So much is looked at in one script, each thing counted by about what it costs slurmctld (a microsecond is 1)."""
EFFORT_OF_VALUE: Final = 3
EFFORT_OF_VARIABLE: Final = 3
_MOST_VARIABLES: Final = 12
_MOST_SUMS: Final = 2
_MOST_TERMS: Final = 4
_MOST_STEPS: Final = 3
_VALUE_BYTES: Final = 100
_ARITHMETIC_BYTES: Final = 64

_PLAIN_VALUE: Final = re.compile(r"[^ \t\n\v\f\r;|&\"'`()]+")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_OF_ENVIRONMENT: Final = re.compile(r"int\(os\.[a-z.]+[\[(][\"']([A-Za-z0-9_]+)[\"'][\])]\)")
_LOOP: Final = re.compile(r"for ([A-Za-z_][A-Za-z0-9_]*) ")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSIDE_WORD: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-$")


class IncompleteError(Exception):
    """There is more of something than is looked at."""


class Effort:
    """How much is looked at in one script. ``times``: so many times as much as the plugin looks at."""

    def __init__(self, times: int = 1) -> None:
        self.times = times
        self._spent = 0

    def spend(self, effort: int) -> None:
        """Count something. Raises IncompleteError where it is too much."""
        self._spent += effort
        if self._spent > MOST_EFFORT * self.times:
            raise IncompleteError


def occurrences(code: str, text: str, most: int = MOST_TIMES) -> Iterator[int]:
    """Where a text stands, for the first ``most``; then -1 if there are more."""
    at = code.find(text)
    for _ in range(most):
        if at < 0:
            return
        yield at
        at = code.find(text, at + 1)
    if at >= 0:
        yield -1


def begins_word(code: str, at: int) -> bool:
    """Whether a word may begin here."""
    return at == 0 or code[at - 1] not in _INSIDE_WORD


def value_at(code: str, start: int) -> str | None:
    """The value that begins here; ``_`` for one that is too long to be read, None where there is none."""
    part = code[start : start + _VALUE_BYTES]
    match = _PLAIN_VALUE.match(part)
    if match is None or match[0] == "$":
        return _enclosed_value(part)
    if match[0] == "\\":
        return None
    if match.end() == _VALUE_BYTES:
        return "_"
    if match[0] == "int" and (environment := _OF_ENVIRONMENT.match(part)) is not None:
        return f"${environment[1]}"
    value = match[0].rstrip(",]")
    return value if "{" in value else value.rstrip("}")


def _enclosed_value(part: str) -> str | None:
    """The value in quotes or in ``$(…)`` with which a text begins; ``_`` where its end is too far."""
    for first, last in (('"', '"'), ("'", "'"), ("`", "`"), ("$((", "))"), ("$(", ")")):
        if part.startswith(first):
            end = part.find(last, len(first))
            if end < 0:
                return "_"
            inner = part[len(first) : end]
            return inner if first in "\"'" else f"$({inner})" if first == "`" else f"{first}{inner}{last}"
    return None


class Variables:
    """What a script assigns to its variables."""

    def __init__(
        self,
        code: str,
        assignments: Mapping[str, Sequence[int]],
        effort: Effort,
        unsure: Iterable[str] = (),
    ) -> None:
        """``assignments``: where the values begin that the script assigns, by name.

        ``unsure``: names that may have another value than the script assigns, such as one from outside. Raises
        IncompleteError.
        """
        self._code = code
        self._assignments = assignments
        self._effort = effort
        loops = list(occurrences(code, "for ", MOST_TIMES * effort.times))
        effort.spend(sum(at >= 0 for at in loops))
        looped = [_LOOP.match(code, at) for at in loops if at >= 0 and begins_word(code, at)]
        self._values: dict[str, str | None] = dict.fromkeys(unsure)
        self._values.update({match[1]: None for match in looped if match is not None})
        self._known = -1 not in loops
        self._most = _MOST_VARIABLES * effort.times
        self._looked_up = 0
        self._sums = 0

    def resolve(self, value: str) -> str:
        """Put what the script assigns in a variable's place, also inside of ``$((…))``. Raises IncompleteError."""
        if not value.startswith("$"):
            return value
        self._effort.spend(EFFORT_OF_VARIABLE)
        value = self.follow(value)
        most = _MOST_SUMS * self._effort.times
        if not value.startswith("$((") or len(value) > _ARITHMETIC_BYTES or self._sums == most:
            return value
        self._sums += 1
        inside = re.sub(r"[ \t$]", "", value[3:])
        return "$((" + _IDENTIFIER.sub(lambda name: self.follow(name[0], bare=True), inside, count=_MOST_TERMS)

    def follow(self, value: str, *, bare: bool = False) -> str:
        """Follow a variable to its value, through some assignments; ``bare``: its name stands without $."""
        match = (_IDENTIFIER if bare else _VARIABLE).fullmatch(value)
        for _ in range(_MOST_STEPS):
            assigned = self._assigned(match[match.re.groups]) if match is not None else None
            if assigned is None:
                break
            value = assigned
            match = _VARIABLE.fullmatch(value)
        return value

    def _assigned(self, name: str) -> str | None:
        """What the script assigns to a variable; None if it does not, or differently at different places."""
        if name not in self._values:
            if self._looked_up == self._most or not self._known:
                return None
            self._looked_up += 1
            starts = self._assignments.get(name, ())
            values = {value_at(self._code, start) for start in starts[: MOST_TIMES * self._effort.times]}
            is_known = len(values) == 1 and len(starts) <= MOST_TIMES * self._effort.times
            self._values[name] = values.pop() if is_known else None
        return self._values[name]
