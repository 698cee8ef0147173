"""What a batch script has beside the words of a table: sizes that it compares, and configuration files.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way (``rlalloc.scripts.script_words``). Pure functions.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from rlalloc.scripts.script_values import (
    EFFORT_OF_VARIABLE,
    MOST_EFFORT,
    Effort,
    Variables,
    all_of,
    begins_word,
    occurrences,
)

COMPARES: Final = "compares"
"""``compares=SLURM_GPUS_ON_NODE``: the script has a condition on it, or changes it; ``compares=_`` for conditions
beyond the first."""
ENVIRONMENT: Final = "os.environ"
"""``compares=os.environ``: a Python program in the script sets a variable whose name it computes."""
FILE: Final = "file"
"""``file=7b.yaml``: a file that the script names and may read; ``file=run.sh``: another script that it may run."""
WRITES: Final = "writes"
"""``writes=7b.yaml``: such a file that the script itself writes."""
SOURCES: Final = "sources"
"""``sources=/opt/conda/etc/profile.d/conda.sh``: a file that the shell reads with ``source``."""
EVALS: Final = "evals"
"""``evals=conda``: a command whose output the shell runs, or ``env`` reads; or what ``eval`` runs itself."""
ASSIGNS: Final = "assigns"
"""``assigns=export``: a command that sets a variable whose name the script computes."""
ARGUMENTS: Final = "arguments"
"""The script passes on what stands behind its name on sbatch's command line."""
_TEST_BYTES: Final = 120
_MOST_TESTS: Final = 4
_EFFORT_OF_TEST: Final = 3
_EFFORT_OF_FILE: Final = 4
_EFFORT_IN_PYTHON: Final = 2
_MOST_NAMES: Final = 4
_TOKEN_BYTES: Final = 60
_EFFORT_OF_SETUP: Final = 2
_SETUP_BYTES: Final = 160
_BEFORE_BYTES: Final = 32
_EFFORT_OF_COMPUTED: Final = 2

_TESTS: Final = ("[ ", "((", "test ", "case ")
_PYTHON_SIZES: Final = ("device_count()", "world_size")
_PYTHON_ENVIRONMENT: Final = (ENVIRONMENT, "getenv")
_TO_THE_END: Final = {"[ ": re.compile(r"[^\n\]]*"), "((": re.compile(r"[^\n)]*")}
_COMMAND: Final = re.compile(r"[^\n;]*")
_OF_PRESENCE: Final = re.compile(r"[ !]*-[a-z] [^=<>!|&-]*\Z")
_COMPARISON: Final = re.compile(r"[ \t]*[=!<>]")
_IN_PYTHON: Final = re.compile(r"[a-z.]*[\[(][\"']([A-Za-z0-9_]+)[\"'][^\n)\]]*[\])]+[ \t]*[=!<>]")
"""``os.environ["WORLD_SIZE"]) == 8``, and an assignment to it."""
_COMPUTED_IN_PYTHON: Final = re.compile(
    r"\[[^\"'\n][^\n\]]*\]+[ \t]*=[^=]"
    r"|\.(?:update|setdefault)\([ \t]*{?[ \t]*[A-Za-z_*][A-Za-z0-9_.]*[ \t]*[^A-Za-z0-9_. \t=]"
)
"""``os.environ[name] = value``, ``os.environ.update(names)``."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+")
_NAME: Final = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_NAME_IN_ARITHMETIC: Final = re.compile(r"\$?\{?([A-Za-z_][A-Za-z0-9_]*)")
_ALL_ARGUMENTS: Final = ("$@", "{@", "$*")
_SUFFIXES: Final = (".yaml", ".yml", ".toml", ".json", ".sh")
_GOES_ON: Final = re.compile(r"[A-Za-z0-9_-]")
_TOKEN: Final = re.compile(r"[^ \t\n\"'`=;|&<>()/,]*\Z")
_SETUPS: Final = (
    ("source ", SOURCES, True),
    (". ", SOURCES, True),
    ("eval ", EVALS, True),
    ("env $(", EVALS, False),
)
"""What sets variables from elsewhere: its text, the word for it, and whether it has to be a command by itself."""
_BEFORE_COMMAND: Final = re.compile(
    r"(?:(?:\A|[\n;&|({!)`])[ \t]*|[\"']|(?:\A|[ \t\n\v\f\r])[\"'][ \t]+"
    r"|(?:\A|[ \t\n\v\f\r])[a-zA-Z_0-9]+=[^ \t\n]*[ \t]*"
    r"|(?:\A|[^a-z])(?:then|do|else|if|elif|while|until|builtin|command|time)[ \t]*)\Z"
)
"""A line's beginning, a separator, a quote, an assignment or a keyword: behind one of these, a command may begin."""
_ASSIGNING: Final = ("export", "declare", "typeset", "local", "readonly", "read", "mapfile", "readarray", "let")
_COMPUTED: Final = r"[ \t]*[\"']?[A-Za-z0-9_]*(?:`|\$(?![\"']))"
_COMPUTED_NAME: Final = re.compile(
    rf"(?:[ \t]*[^ \t\n;&|<>()\"'`$]+(?=[ \t])){{0,2}}{_COMPUTED}|-[a-zA-Z]*n[ \t]+[a-zA-Z0-9_]+=[\"']?[$`]"
)
"""Behind plain words, a name that begins with some letters and a ``$``; or ``-n ref=$name``."""
_ENV: Final = "env "
_COMPUTED_FOR_ENV: Final = re.compile(
    r"(?:[ \t]*(?:-[^ \t\n;&|<>()\"'`$]*|[^ \t\n;&|<>()\"'`$=]*=[^ \t\n;&|<>()\"'`]*)(?=[ \t])){0,2}"
    r"[ \t]*[\"']?[A-Za-z0-9_]*[$`][^ \t\n;&|<>\"'=]*="
)
"""Behind options and assignments, a name that begins with some letters and a ``$``."""
_ASSIGNS_AT: Final = {
    **{f"{command} ": _COMPUTED_NAME for command in _ASSIGNING},
    "printf -v ": re.compile(_COMPUTED),
    _ENV: _COMPUTED_FOR_ENV,
}
_OUTPUT: Final = re.compile(r"\$\([^()\n]*\)")
_SOURCED_FILE: Final = re.compile(r"[ \t]*([^ \t\r\n;&|<>()]*)")
_EVALUATED: Final = re.compile(r"[ \t\"'`$({]*([^ \t\r\n;&|<>()\"'`]*)")
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
        for at in occurrences(code, text, effort, _EFFORT_OF_TEST, _MOST_TESTS):
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
        for at in occurrences(code, text, effort, 1, _MOST_TESTS):
            if at < 0:
                yield "_"
            elif _COMPARISON.match(code, at + len(text)):
                yield text
    for text in _PYTHON_ENVIRONMENT:
        for at in occurrences(code, text, effort, _EFFORT_IN_PYTHON, _MOST_TESTS):
            start = at + len(text)
            part = code[start : start + _TEST_BYTES]
            if at < 0:
                yield "_"
            elif (found := _IN_PYTHON.match(part)) is not None:
                yield found[1]
            elif text == ENVIRONMENT and _COMPUTED_IN_PYTHON.match(part):
                yield text


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
        for at in occurrences(code, suffix, effort, _EFFORT_OF_FILE):
            if at < 0:
                yield FILE, "_"
            elif not _GOES_ON.match(code, at + len(suffix)):
                before = code[max(0, at - _TOKEN_BYTES) : at]
                token = _TOKEN.search(before)
                yield WRITES if _WRITTEN.search(before) else FILE, (token[0] if token is not None else "") + suffix


def setup_words(code: str, effort: Effort) -> Iterator[tuple[str, str | None]]:
    """The words of what may set any variable: files that the shell reads, and what it evaluates.

    Raises IncompleteError.
    """
    for text, name, is_command in _SETUPS:
        for at in all_of(occurrences(code, text, effort, _EFFORT_OF_SETUP, step=len(text))):
            if begins_word(code, at) and (
                not is_command or _BEFORE_COMMAND.search(code[max(0, at - _BEFORE_BYTES) : at])
            ):
                start = at + len(text)
                part = code[start : start + _SETUP_BYTES]
                value = _sourced_file(part) if name == SOURCES else _evaluated_command(part)
                if value is not None:
                    yield name, value


def assigning_words(code: str, effort: Effort) -> Iterator[tuple[str, str]]:
    """The words of commands that set a variable whose name the script computes: it may be any variable.

    Raises IncompleteError.
    """
    for text, arguments in _ASSIGNS_AT.items():
        for at in all_of(occurrences(code, text, effort, 1, MOST_EFFORT, step=len(text))):
            if begins_word(code, at) and arguments.match(code, at + len(text)):
                effort.spend(_EFFORT_OF_COMPUTED)
                if text == _ENV or _BEFORE_COMMAND.search(code[max(0, at - _BEFORE_BYTES) : at]):  # srun env
                    yield ASSIGNS, text.partition(" ")[0]
                    break


def _sourced_file(part: str) -> str | None:
    """The file without quotes and with ``$`` for each ``$(…)``; None for no file, ``_`` if it cannot be read."""
    is_cut = len(part) == _SETUP_BYTES
    part = _OUTPUT.sub("$", _OUTPUT.sub("$", re.sub(r"`[^`\n]*`", "$", part)))
    found = _SOURCED_FILE.match(part)
    end = 0 if found is None else found.end()
    if found is None or not found[1]:
        return "_" if part[end : end + 1] in tuple("<>()") else None
    return "_" if is_cut and end == len(part) else re.sub(r"[\"']", "", found[1])


def _evaluated_command(part: str) -> str | None:
    """The command whose output is evaluated, or the first word of what is; None where there is nothing."""
    text = part.lstrip(" \t")
    found = _EVALUATED.match(part)
    return re.sub(r"[{}]", "", found[1]) if found is not None and text and text[0] not in "\r\n;&|" else None
