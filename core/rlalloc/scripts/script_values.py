"""Values in a batch script, and what the script assigns to its variables, as the submit plugin reads them.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way (``rlalloc.scripts.script_words``). Pure functions.
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
_ARRAY: Final = re.compile(r"\([ \t]*(\$\([^()\n]*\)|\$\{?[A-Za-z_][A-Za-z0-9_]*\}?)[ \t]*\)")
"""``($(command))`` and ``($name)``: an array of the words of one text."""
_LENGTH: Final = re.compile(r"\$\{#([A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}")
_OF_ENVIRONMENT: Final = re.compile(r"int\(os\.[a-z.]+[\[(][\"']([A-Za-z0-9_]+)[\"'][\])]\)")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_PLACES: Final = 24
"""So many places are looked at where a variable's name stands, alone or inside of a longer one."""
_PLACES_OF_EFFORT: Final = 4
_EFFORT_OF_PLACE: Final = 2
"""Of one where it stands alone, neither expanded nor assigned."""
_CHANGES: Final = re.compile(r"\[| ?(?:[*/%&|^+-]=|\+\+|--)")
"""What changes a variable behind its name: ``N[0]=4``, ``((N -= 1))``, ``N+=1``, ``N++``."""
_STEPS: Final = re.compile(r"(?:\+\+|\(--)\Z")
_ENDS_ARGUMENT: Final = re.compile(r"[ \t\n\r\"';<>|&]|\Z")
_OPERAND_OR_KEY: Final = re.compile(r" [*/)]| [%+-][ 0-9$(]|[\"'] ?:")
_SUBSCRIPT: Final = re.compile(r"[\[(][\"']\Z")
_INSIDE_WORD: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-$")
_OF_NAME: Final = (_INSIDE_WORD - {".", "-"}) | {"{", "#"}
"""Beside a name: it is a part of a longer one, or is expanded."""
_BEFORE_ARGUMENT: Final = frozenset(" \t\"'=")


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


def occurrences(
    code: str, text: str, effort: Effort, cost: int, most: int = MOST_TIMES, step: int = 1
) -> Iterator[int]:
    """Where a text occurs: the first ``most`` places, each at the ``cost``, then -1 if there are more.

    Each search begins ``step`` after the place before. Raises IncompleteError.
    """
    at = code.find(text)
    for _ in range(most * effort.times):
        if at < 0:
            return
        effort.spend(cost)
        yield at
        at = code.find(text, at + step)
    if at >= 0:
        yield -1


def all_of(places: Iterable[int]) -> Iterator[int]:
    """The same occurrences. Raises IncompleteError instead of the -1."""
    for at in places:
        if at < 0:
            raise IncompleteError
        yield at


def begins_word(code: str, at: int) -> bool:
    """Whether a word may begin here."""
    return at == 0 or code[at - 1] not in _INSIDE_WORD


def is_changed(code: str, name: str, effort: Effort) -> bool:
    """Whether something other than ``name=value`` may set a variable. Raises IncompleteError.

    A command may set whatever name it has for an argument: ``read``, ``mapfile``, ``printf -v``, ``declare -n``,
    ``for``. So may arithmetic that names it. Not ``export``, nor a key of YAML, JSON or Python.
    """
    count = 0
    for at in all_of(occurrences(code, name, effort, 0, _MOST_PLACES, len(name))):
        count += 1
        end = at + len(name)
        before, after = code[at - 1] if at else "\n", code[end : end + 1]
        if before not in _OF_NAME and after not in _OF_NAME and after != "=":
            effort.spend(_EFFORT_OF_PLACE)
            if _changes_at(code, at, end):
                return True
    effort.spend(count // _PLACES_OF_EFFORT)
    return False


def _changes_at(code: str, at: int, end: int) -> bool:
    """Whether the name that stands here may be set."""
    before, after = code[at - 1] if at else "\n", code[end : end + 4]
    if _CHANGES.match(after) or _STEPS.search(code[max(0, at - 3) : at]):
        return True
    if before not in _BEFORE_ARGUMENT or not _ENDS_ARGUMENT.match(after) or _OPERAND_OR_KEY.match(after):
        return False
    return code[max(0, at - 7) : at] != "export " and not _SUBSCRIPT.search(code[max(0, at - 2) : at])


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
    """The value in quotes or in ``$(…)``, or the array, with which a text begins; ``_`` where its end is too far."""
    array = _ARRAY.match(part)
    if array is not None:
        return f"({array[1]})"
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

        ``unsure``: names that may have another value than the script assigns, such as one from outside.
        """
        self._code = code
        self._assignments = assignments
        self._effort = effort
        self._values: dict[str, str | None] = dict.fromkeys(unsure)
        self.changed: list[str] = []
        """Names looked up that the script does not assign, and changes otherwise."""
        self._most = _MOST_VARIABLES * effort.times
        self._looked_up = 0
        self._sums = 0

    def resolve(self, value: str) -> str:
        """Put what the script assigns in a variable's place, also inside of ``$((…))``. Raises IncompleteError.

        ``${#N[@]}`` is what counts the words of the command that fills the array: ``$(command | wc -w)``.
        """
        if not value.startswith("$"):
            return value
        self._effort.spend(EFFORT_OF_VARIABLE)
        value = self.follow(value)
        length = _LENGTH.fullmatch(value)
        array = self._assigned(length[1]) if length is not None else None
        if array is not None and array.startswith("($"):
            words = self.follow(array[1:-1])
            return f"{words[:-1]} | wc -w)" if re.match(r"\$\([^(]", words) else value
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
        """What the script assigns to a variable; None if it does not, or differently at different places.

        Nor if the variable may be set in another way. Raises IncompleteError.
        """
        if name not in self._values:
            if self._looked_up == self._most:
                return None
            self._looked_up += 1
            starts = self._assignments.get(name, ())
            values = {value_at(self._code, start) for start in starts[: MOST_TIMES * self._effort.times]}
            is_known = len(values) == 1 and len(starts) <= MOST_TIMES * self._effort.times
            self._values[name] = values.pop() if is_known else None
            if is_changed(self._code, name, self._effort):
                self._values[name] = None
                if not starts:
                    self.changed.append(name)
        return self._values[name]
