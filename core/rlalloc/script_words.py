"""The words of a batch script that tell its size, as the submit plugin collects them. Pure functions.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way, in slurmctld: it interprets nothing, takes over
the words that a ``WordTable`` names, and writes them into the job's tag. tests/slurm_plugin/test_script_corpus.py
holds the two together. A word is ``name=value``, or ``name`` alone, without leading dashes and with ``-`` for ``_``.
In a value, whatever is not in ``A-Za-z0-9=,._/$:{}()*-`` is ``_``, and a variable that the script assigns once stands
as its value.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

SCRIPT_BYTES: Final = 16384
"""So much of a script is read: slurmctld accepts 4 MB, and waits meanwhile."""
_CODE_BYTES: Final = 4096
_FINGERPRINT_BYTES: Final = 1024
_MOST_LINES: Final = 400
_MOST_OPTIONS: Final = 250
_MOST_VALUES: Final = 28
_MOST_TIMES: Final = 4
"""So many occurrences of one setting, launcher or variable are looked at."""
_MOST_VARIABLES: Final = 6
_MOST_SUMS: Final = 2
_MOST_TERMS: Final = 4
_MOST_STEPS: Final = 2
_LINE_BYTES: Final = 200
_SAMPLES: Final = 64
_MOST_ALIKE: Final = 20
_VALUE_BYTES: Final = 200
_ARITHMETIC_BYTES: Final = 48
_WORDS_BYTES: Final = 2000
TOO_LONG: Final = "too-long"
"""Stands in the tag for words that were not all read: nothing is known of the script then."""

_BLANK: Final = " \t\n\v\f\r"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_SEPARATOR: Final = re.compile(r"[ \t]*=?[ \t]*(?:\\\r?\n[ \t]*)?")
_SETTING_SEPARATOR: Final = re.compile(r"[\"']?[ \t]*[=:][ \t]*")
_AFTER_SHORT: Final = re.compile(r"[ =]")
_LOOKS_LIKE_OPTION: Final = re.compile(r"-[^0-9]")
_PLAIN_VALUE: Final = re.compile(r"[^ \t\n\v\f\r;|&\"'`()]+")
_SHORT_OPTION: Final = re.compile(r"[ \t]-([A-Za-z])[ =]?([0-9$][^ \t\n\v\f\r]*)")
_VARIABLE: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9=,._/$:{}()*-]")
_INSIDE_WORD: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-$")


class WordTable(msgspec.Struct, frozen=True):
    """Which words are collected.

    An entry of ``words`` is a long option (``--nnodes``), an option with one dash (``-tp``), a short option of srun
    (``srun -n``), or else a setting (``NAME=value``, ``name: value``). ``launchers`` are commands as they stand in a
    script; the word that follows one is its value.
    """

    words: tuple[str, ...]
    launchers: tuple[str, ...]

    @property
    def stamp(self) -> str:
        """Eight hexadecimal digits that differ between tables."""
        return hashlib.sha256("\n".join([*self.words, "", *self.launchers]).encode()).hexdigest()[:8]


class ScriptWords(msgspec.Struct, frozen=True):
    """What a script shows: its words, or None if they were not all read; and a fingerprint without its digits."""

    words: tuple[str, ...] | None
    fingerprint: str


def word_name(entry: str) -> str:
    """Return the name that an entry's words have: ``nproc-per-node`` for ``--nproc_per_node``, ``srun-n``."""
    return entry.replace(" -", "-").lstrip("-").replace("_", "-").replace(" ", "-")


def read_script(script: bytes, table: WordTable) -> ScriptWords:
    """Read a batch script as the plugin does."""
    code, whole = code_of(script)
    words: tuple[str, ...] | None = None
    if whole:
        found = _words_of(code, table)
        if found is not None and len("+".join(found)) <= _WORDS_BYTES:
            words = tuple(found)
    return ScriptWords(words, _fingerprint(code))


def code_of(script: bytes) -> tuple[str, bool]:
    """Return the script without comment lines, a character a byte, and whether that is all of it.

    It is empty where the text is no script: slurmctld would search it for too long.
    """
    text = script[:SCRIPT_BYTES].decode("latin-1")
    lines = text.split("\n")
    first = (line + "\n" for line in lines[:_MOST_LINES])
    code = "".join(line for line in first if not _is_comment(line))
    if len(lines) <= _MOST_LINES and not _is_comment(lines[-1]):
        code = code[:-1]  # no newline stands behind the last line
    whole = len(script) <= SCRIPT_BYTES and len(lines) <= _MOST_LINES and len(code) <= _CODE_BYTES
    code = code[:_CODE_BYTES]
    return ("", False) if _is_no_script(code) else (code, whole)


def _is_comment(line: str) -> bool:
    return line.lstrip(" \t").startswith("#")


def _is_no_script(text: str) -> bool:
    """Whether a third of a long text is the same byte, blanks aside."""
    if len(text) < 16 * _SAMPLES:
        return False
    counts = Counter(text[number * number * 37 % len(text)] for number in range(1, _SAMPLES + 1))
    return any(count >= _MOST_ALIKE and byte != " " for byte, count in counts.items())


def _words_of(code: str, table: WordTable) -> list[str] | None:
    """List the words: options, settings, srun's short options, launchers; None if there are too many options."""
    found: dict[str, None] = {}
    variables = _Variables(code)
    at_options = _options(code, table)
    if at_options is None:
        return None
    values = (*at_options, *_settings(code, table), *_srun_options(code, table), *_launchers(code, table))
    if len(values) > _MOST_VALUES:
        return None
    for name, value in values:
        whole = value if value is None else variables.resolve(value)
        is_option = whole is not None and whole != value and _LOOKS_LIKE_OPTION.match(whole)
        found[name if whole is None or is_option else f"{name}={_UNCLEAN.sub('_', whole)}"] = None
    return list(found)


def _options(code: str, table: WordTable) -> list[tuple[str, str | None]] | None:
    """The long options, None if there are too many to look at. A word that begins with a dash is no value."""
    names = {entry[2:]: word_name(entry) for entry in table.words if entry.startswith("--")}
    names |= {long.replace("-", "_"): name for long, name in names.items()}
    found: list[tuple[str, str | None]] = []
    at = 0
    for _ in range(_MOST_OPTIONS):
        at = code.find("--", at)
        if at < 0:
            return found
        match = _NAME.match(code, at + 2)
        if match is None:
            at += len(code) - at - len(code[at:].lstrip("-"))
            continue
        at = match.end()
        if match[0] in names:
            separator = _SEPARATOR.match(code, at)
            value = _value_at(code, separator.end()) if separator is not None and separator[0] else None
            found.append(
                (names[match[0]], None if value and (value == "-" or _LOOKS_LIKE_OPTION.match(value)) else value)
            )
    return None


def _settings(code: str, table: WordTable) -> Iterator[tuple[str, str | None]]:
    """The values of settings, and of options with one dash."""
    for entry in table.words:
        if entry.startswith(("--", "srun -")):
            continue
        separator = _AFTER_SHORT if entry.startswith("-") else _SETTING_SEPARATOR
        for at in _occurrences(code, entry):
            if _begins_word(code, at) and (match := separator.match(code, at + len(entry))) is not None:
                yield word_name(entry), _value_at(code, match.end())


def _srun_options(code: str, table: WordTable) -> Iterator[tuple[str, str]]:
    wanted = {entry[len("srun -") :]: word_name(entry) for entry in table.words if entry.startswith("srun -")}
    for end in _commands(code, "srun"):
        for letter, value in _SHORT_OPTION.findall(_rest_of_line(code, end)):
            if letter in wanted:
                yield wanted[letter], value


def _launchers(code: str, table: WordTable) -> Iterator[tuple[str, str | None]]:
    for entry in table.launchers:
        for end in _commands(code, entry):
            value = _value_at(code, end + 1)
            yield word_name(entry), None if value is None or value.startswith("-") else value


def _occurrences(code: str, text: str) -> Iterator[int]:
    at = -1
    for _ in range(_MOST_TIMES):
        at = code.find(text, at + 1)
        if at < 0:
            return
        yield at


def _begins_word(code: str, at: int) -> bool:
    return at == 0 or code[at - 1] not in _INSIDE_WORD


def _commands(code: str, entry: str) -> Iterator[int]:
    """Where each occurrence of a command ends."""
    for at in _occurrences(code, entry):
        end = at + len(entry)
        if _begins_word(code, at) and (end == len(code) or code[end] in _BLANK):
            yield end


def _rest_of_line(code: str, start: int) -> str:
    """To the end of the command's line, continued lines with it."""
    part = code[start : start + _LINE_BYTES].replace("\\\r\n", " ").replace("\\\n", " ")
    return part.partition("\n")[0]


def _value_at(code: str, start: int) -> str | None:
    """The value that begins here; ``_`` for one that is too long to be read, None where there is none."""
    part = code[start : start + _VALUE_BYTES]
    match = _PLAIN_VALUE.match(part)
    if match is None or match[0] == "$":
        return _enclosed_value(part)
    if match[0] == "\\":
        return None
    if match.end() == _VALUE_BYTES:
        return "_"
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


class _Variables:
    """What a script assigns to its variables."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._values: dict[str, str | None] = {}
        self._sums = 0

    def resolve(self, value: str) -> str:
        """Put what the script assigns in the place of a variable, also inside of ``$((…))``."""
        value = self._follow(value)
        if not value.startswith("$((") or len(value) > _ARITHMETIC_BYTES or self._sums == _MOST_SUMS:
            return value
        self._sums += 1
        inside = re.sub(r"[ \t$]", "", value[3:])
        return "$((" + _IDENTIFIER.sub(lambda name: self._follow(name[0], bare=True), inside, count=_MOST_TERMS)

    def _follow(self, value: str, *, bare: bool = False) -> str:
        """Follow a variable to its value, through at most two assignments; ``bare``: its name stands without $."""
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
            if len(self._values) >= _MOST_VARIABLES:
                return None
            starts = (at for at in _occurrences(self._code, f"{name}=") if _begins_word(self._code, at))
            values = {_value_at(self._code, at + len(name) + 1) for at in starts}
            self._values[name] = values.pop() if len(values) == 1 else None
        return self._values[name]


def _fingerprint(code: str) -> str:
    """A polynomial hash modulo 2^31 - 1 of the first bytes without blanks and digits, which runs differ in."""
    state = 7
    for byte in code[:_FINGERPRINT_BYTES].encode("latin-1"):
        if byte > 57 or 32 < byte < 48:
            state = (state * 31 + byte) % 2_147_483_647
    return str(state)


def words_from_tag(text: str) -> tuple[str, ...] | None:
    """Read the tag's field of words; None if they were not all read at submission."""
    return None if text == TOO_LONG else tuple(word for word in text.split("+") if word)


def as_pairs(words: Iterable[str]) -> list[tuple[str, str | None]]:
    """Split words into names and values; None for a word without a value."""
    pairs = (word.partition("=") for word in words)
    return [(name, value if separator else None) for name, separator, value in pairs]
