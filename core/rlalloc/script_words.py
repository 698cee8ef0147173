"""The words of a batch script that tell its size, as the submit plugin collects them. Pure functions.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way, in slurmctld: it interprets nothing, takes over
the words that a ``WordTable`` names, and writes them into the job's tag. tests/slurm_plugin/test_script_corpus.py
holds the two together. A word is ``name=value``, or ``name`` alone, without leading dashes and with ``-`` for ``_``.
In a value, whatever is not in ``A-Za-z0-9=,._/$:{}()*-`` is ``_``, and a variable that the script assigns once stands
as its value. What cannot be read as a whole is not read at all: a count could stand in the rest.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from rlalloc.script_code import code_of, fingerprint_of
from rlalloc.script_context import compared_words, conditions_of, file_words
from rlalloc.script_values import Variables, begins_word, occurrences, value_at

_MOST_OPTIONS: Final = 200
_MOST_VALUES: Final = 28
_MOST_ENDINGS: Final = 20
"""So many occurrences of the ending that some settings share are looked at."""
_LEAST_ENDING: Final = 4
_NAME_BYTES: Final = 40
_LINE_BYTES: Final = 400
_WORDS_BYTES: Final = 2000
TOO_LONG: Final = "too-long"
"""Stands in the tag for words that were not all read: nothing is known of the script then."""

_BLANK: Final = " \t\n\v\f\r"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_SEPARATOR: Final = re.compile(r"[ \t]*=?[ \t]*(?:\\\r?\n[ \t]*)?")
_SETTING_SEPARATOR: Final = re.compile(r"[\"']?[ \t]*[=:][ \t]*")
_SETTING_NAME: Final = re.compile(r"[A-Za-z0-9_.$-]*\Z")
_AFTER_SHORT: Final = re.compile(r"[ =]")
_LOOKS_LIKE_OPTION: Final = re.compile(r"-[^0-9]")
_SHORT_OPTION: Final = re.compile(r"[ \t]-([A-Za-z])[ =]?([0-9$][^ \t\n\v\f\r]*)")
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9=,._/$:{}()*-]")


class WordTable(msgspec.Struct, frozen=True):
    """Which words are collected.

    An entry of ``words`` is a long option (``--nnodes``), an option with one dash (``-tp``), a short option of srun
    (``srun -n``), or else a setting (``NAME=value``, ``name: value``). Options and settings are also found behind a
    prefix with a dot: ``--trainer.devices``, ``model.global_batch_size``. ``launchers`` are commands as they stand in
    a script; the word that follows one is its value.
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
    return ScriptWords(words, fingerprint_of(code))


class _IncompleteError(Exception):
    """There is more of something than is looked at."""


def _words_of(code: str, table: WordTable) -> list[str] | None:
    """List the words; None if there are too many."""
    try:
        values = (
            *_options(code, table),
            *_settings(code, table),
            *_dashed(code, table),
            *_srun_options(code, table),
            *_launchers(code, table),
            *file_words(code),
        )
    except _IncompleteError:
        return None
    if len(values) > _MOST_VALUES:
        return None
    conditions = conditions_of(code)
    variables = Variables(code, conditions.unsure, len(values) + len(conditions.compared))
    found: dict[str, None] = {}
    for name, value in values:
        whole = value if value is None else variables.resolve(value)
        is_option = whole is not None and whole != value and _LOOKS_LIKE_OPTION.match(whole)
        found[name if whole is None or is_option else _word(name, whole)] = None
    found.update(dict.fromkeys(_word(name, value) for name, value in compared_words(conditions, variables)))
    return list(found)


def _word(name: str, value: str) -> str:
    return f"{name}={_UNCLEAN.sub('_', value)}"


def _options(code: str, table: WordTable) -> Iterator[tuple[str, str | None]]:
    """The long options. A word that begins with a dash is no value. Raises _IncompleteError for too many."""
    names = {entry[2:]: word_name(entry) for entry in table.words if entry.startswith("--")}
    names |= {long.replace("-", "_"): name for long, name in names.items()}
    at = 0
    for _ in range(_MOST_OPTIONS):
        at = code.find("--", at)
        if at < 0:
            return
        match = _NAME.match(code, at + 2)
        if match is None:
            at += len(code) - at - len(code[at:].lstrip("-"))
            continue
        at = match.end()
        name = names.get(match[0]) or names.get(match[0].rpartition(".")[2])
        if name is not None:
            separator = _SEPARATOR.match(code, at)
            value = value_at(code, separator.end()) if separator is not None and separator[0] else None
            yield name, None if value and (value == "-" or _LOOKS_LIKE_OPTION.match(value)) else value
    raise _IncompleteError


def ending_of(setting: str) -> str:
    """Return what a setting is looked for by: its last part, if that is long enough."""
    start = max(setting.rfind("_"), setting.rfind("."))
    return setting[start:] if start > 0 and len(setting) - start >= _LEAST_ENDING else setting


def _settings(code: str, table: WordTable) -> Iterator[tuple[str, str | None]]:
    """The values of settings, by their endings. Raises _IncompleteError for too many occurrences of one."""
    settings = [entry for entry in table.words if not entry.startswith(("-", "srun -"))]
    for ending in dict.fromkeys(map(ending_of, settings)):
        names = {entry: word_name(entry) for entry in settings if ending_of(entry) == ending}
        at = code.find(ending)
        for _ in range(_MOST_ENDINGS):
            if at < 0:
                break
            last = at + len(ending)
            separator = _SETTING_SEPARATOR.match(code, last)
            name = _setting_name(code, last, names) if separator is not None else None
            if separator is not None and name is not None:
                yield name, value_at(code, separator.end())
            at = code.find(ending, at + 1)
        if at >= 0:
            raise _IncompleteError


def _setting_name(code: str, end: int, names: dict[str, str]) -> str | None:
    """The name of the setting that ends here, also behind a prefix with a dot; not that in ``${name:-default}``."""
    match = _SETTING_NAME.search(code, max(0, end - _NAME_BYTES), end)
    if match is None or match[0].startswith("-") or code[max(0, match.start() - 2) : match.start()] == "${":
        return None
    return names.get(match[0]) or names.get(match[0].rpartition(".")[2])


def _dashed(code: str, table: WordTable) -> Iterator[tuple[str, str | None]]:
    """The values of options with one dash."""
    for entry in table.words:
        if entry.startswith("-") and not entry.startswith("--"):
            for at in occurrences(code, entry):
                if at < 0:
                    raise _IncompleteError
                if begins_word(code, at) and _AFTER_SHORT.match(code, at + len(entry)):
                    yield word_name(entry), value_at(code, at + len(entry) + 1)


def _srun_options(code: str, table: WordTable) -> Iterator[tuple[str, str]]:
    wanted = {entry[len("srun -") :]: word_name(entry) for entry in table.words if entry.startswith("srun -")}
    for end in _commands(code, "srun"):
        if end < 0:
            raise _IncompleteError
        for letter, value in _SHORT_OPTION.findall(_rest_of_line(code, end)):
            if letter in wanted:
                yield wanted[letter], value


def _launchers(code: str, table: WordTable) -> Iterator[tuple[str, str | None]]:
    """Launchers and the word behind each: a program, or ``--`` for a long option."""
    for entry in table.launchers:
        for end in _commands(code, entry):
            if end >= 0:
                value = value_at(code, end + 1) or ""
                yield word_name(entry), "--" if value.startswith("--") else None if value[:1] in ("", "-") else value


def _commands(code: str, entry: str) -> Iterator[int]:
    """Where each occurrence of a command ends; -1 behind the first ones, if there are more."""
    for at in occurrences(code, entry):
        end = at + len(entry)
        if at < 0:
            yield -1
        elif begins_word(code, at) and (end == len(code) or code[end] in _BLANK):
            yield end


def _rest_of_line(code: str, start: int) -> str:
    """To the end of the command's line, continued lines with it."""
    part = code[start : start + _LINE_BYTES].replace("\\\r\n", " ").replace("\\\n", " ")
    return part.partition("\n")[0]


def words_from_tag(text: str) -> tuple[str, ...] | None:
    """Read the tag's field of words; None if they were not all read at submission."""
    return None if text == TOO_LONG else tuple(word for word in text.split("+") if word)


def as_pairs(words: Iterable[str]) -> list[tuple[str, str | None]]:
    """Split words into names and values; None for a word without a value."""
    pairs = (word.partition("=") for word in words)
    return [(name, value if separator else None) for name, separator, value in pairs]
