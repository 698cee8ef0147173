"""What a batch script has beside the words of a table: sizes that it compares, and configuration files.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way (``rlalloc.script_words``). Pure functions.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from rlalloc.script_values import (
    EFFORT_OF_VARIABLE,
    MOST_TIMES,
    Effort,
    Variables,
    begins_word,
    occurrences,
)

COMPARES: Final = "compares"
"""``compares=SLURM_GPUS_ON_NODE``: the script has a condition on it, or changes it; ``compares=_`` for conditions
beyond the first."""
FILE: Final = "file"
"""``file=7b.yaml``: a file that the script names and may read; ``file=run.sh``: another script that it may run."""
WRITES: Final = "writes"
"""``writes=7b.yaml``: such a file that the script itself writes."""
ARGUMENTS: Final = "arguments"
"""The script passes on what stands behind its name on sbatch's command line."""
_TEST_BYTES: Final = 120
_MOST_TESTS: Final = 4
_EFFORT_OF_TEST: Final = 3
_EFFORT_OF_FILE: Final = 4
_EFFORT_IN_PYTHON: Final = 2
_MOST_NAMES: Final = 4
_TOKEN_BYTES: Final = 60

_TESTS: Final = ("[ ", "((", "test ", "case ")
_PYTHON_SIZES: Final = ("device_count()", "world_size")
_PYTHON_ENVIRONMENT: Final = ("os.environ", "getenv")
_TO_THE_END: Final = {"[ ": re.compile(r"[^\n\]]*"), "((": re.compile(r"[^\n)]*")}
_COMMAND: Final = re.compile(r"[^\n;]*")
_OF_PRESENCE: Final = re.compile(r"[ !]*-[a-z] [^=<>!|&-]*\Z")
_COMPARISON: Final = re.compile(r"[ \t]*[=!<>]")
_IN_PYTHON: Final = re.compile(r"[a-z.]*[\[(][\"']([A-Za-z0-9_]+)[\"'][^\n)\]]*[\])]+[ \t]*[=!<>]")
"""``os.environ["WORLD_SIZE"]) == 8``, and an assignment to it."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+")
_NAME: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_NAME_IN_ARITHMETIC: Final = re.compile(r"\$?\{?([A-Za-z_][A-Za-z0-9_]*)")
_ALL_ARGUMENTS: Final = ("$@", "{@", "$*")
_SUFFIXES: Final = (".yaml", ".yml", ".toml", ".json", ".sh")
_GOES_ON: Final = re.compile(r"[A-Za-z0-9_-]")
_TOKEN: Final = re.compile(r"[^ \t\n\"'`=;|&<>()/,]*\Z")
_SOURCED: Final = re.compile(r"(?:source|[ \t\n;&|(]\.)[ \t]+[\"']?[^ \t\n\"'`=;|&<>(),]*\Z")
_WRITTEN: Final = re.compile(r"(?:>|tee )[ \t]*[\"']?[^ \t\n\"'`=;|&<>(),]*\Z")


class Conditions(msgspec.Struct, frozen=True):
    """What the script's conditions name.

    ``compared`` are names, or the text of a command substitution; ``unsure`` are names that are tested for being set.
    """

    compared: tuple[str, ...]
    unsure: tuple[str, ...]


def conditions_of(code: str, effort: Effort) -> Conditions:
    """Return the variables in the script's conditions. Raises IncompleteError."""
    compared: dict[str, None] = {}
    unsure: dict[str, None] = {}
    for text in _TESTS:
        for at in occurrences(code, text, _MOST_TESTS * effort.times):
            effort.spend(_EFFORT_OF_TEST if at >= 0 else 0)
            if at < 0:
                compared["_"] = None
            elif text == "((" and at > 0 and code[at - 1] == "$":
                pass
            elif text in ("[ ", "((") or begins_word(code, at):
                inside = _condition(code, at, text)
                names = (_NAME_IN_ARITHMETIC if text == "((" else _NAME).findall(inside)[:_MOST_NAMES]
                is_unsure = text == "[ " and _OF_PRESENCE.match(inside) is not None
                (unsure if is_unsure else compared).update(dict.fromkeys(names))
                if "$(" in inside:
                    compared[inside[inside.index("$(") :]] = None
    compared.update(dict.fromkeys(_sizes_in_python(code, effort)))
    effort.spend(EFFORT_OF_VARIABLE * len(compared))
    return Conditions(tuple(compared), tuple(unsure))


def _sizes_in_python(code: str, effort: Effort) -> Iterator[str]:
    """What a Python program in the script compares, or assigns to its environment."""
    for text in _PYTHON_SIZES:
        for at in occurrences(code, text, _MOST_TESTS * effort.times):
            effort.spend(1 if at >= 0 else 0)
            if at < 0 or _COMPARISON.match(code, at + len(text)):
                yield text if at >= 0 else "_"
    for text in _PYTHON_ENVIRONMENT:
        for at in occurrences(code, text, _MOST_TESTS * effort.times):
            effort.spend(_EFFORT_IN_PYTHON if at >= 0 else 0)
            start = at + len(text)
            found = _IN_PYTHON.match(code[start : start + _TEST_BYTES])
            if at < 0 or found is not None:
                yield "_" if at < 0 or found is None else found[1]


def _condition(code: str, at: int, text: str) -> str:
    start = at + len(text)
    part = code[start : start + _TEST_BYTES]
    found = _TO_THE_END.get(text, _COMMAND).match(part)
    return "" if found is None else found[0]


def compared_words(conditions: Conditions, variables: Variables) -> Iterator[tuple[str, str]]:
    """The words of the conditions, each name as what the script assigns to it; and of what it changes otherwise.

    Raises IncompleteError.
    """
    for name in conditions.compared:
        yield COMPARES, variables.follow(name, bare=True) if _IDENTIFIER.fullmatch(name) else name
    for name in variables.changed:
        yield COMPARES, name


def file_words(code: str, effort: Effort) -> Iterator[tuple[str, str | None]]:
    """The words of files that may be configurations or other scripts, by their names without folders.

    And of arguments that are passed on. Raises IncompleteError.
    """
    if any(text in code for text in _ALL_ARGUMENTS):
        yield ARGUMENTS, None
    for suffix in _SUFFIXES:
        for at in occurrences(code, suffix, MOST_TIMES * effort.times):
            effort.spend(_EFFORT_OF_FILE if at >= 0 else 0)
            if at < 0:
                yield FILE, "_"
            elif not _GOES_ON.match(code, at + len(suffix)):
                before = code[max(0, at - _TOKEN_BYTES) : at]
                token = _TOKEN.search(before)
                if suffix == ".sh" and _SOURCED.search(before):
                    continue  # a setup for the shell: of what it sets, the words show only the names
                yield WRITES if _WRITTEN.search(before) else FILE, (token[0] if token is not None else "") + suffix
