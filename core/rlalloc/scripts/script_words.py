"""The words of a batch script that tell its size, as the submit plugin collects them. Pure functions.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way, in slurmctld: it interprets nothing, takes over
the words that a ``WordTable`` names, and writes them into the job's tag. tests/slurm_plugin/test_script_corpus.py
holds the two together. A word is ``name=value``, or ``name`` alone, without leading dashes and with ``-`` for ``_``.
In a value, whatever is not in ``A-Za-z0-9=,._/$:{}()*-`` is ``_``, and a variable that the script assigns once stands
as its value. What cannot be read as a whole is not read at all: a count could stand in the rest.
"""

import functools
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from rlalloc.scripts.script_code import code_of, fingerprint_of
from rlalloc.scripts.script_context import assigning_words, compared_words, conditions_of, file_words, setup_words
from rlalloc.scripts.script_values import (
    EFFORT_OF_VALUE,
    Effort,
    IncompleteError,
    Variables,
    all_of,
    begins_word,
    occurrences,
    value_at,
)

_EFFORT_OF_SRUN: Final = 3
_EFFORT_OF_UNCLEAN: Final = 6
_EFFORT_OF_NAME: Final = 2
_NUMBERS_OF_EFFORT: Final = 4
"""So many values that may be counts, of names that no table has, for an effort of 1."""
_SHORTEST_NAME: Final = 3
_BYTES_OF_EFFORT: Final = 16
"""Of the line of an srun, and of a value that is unclean: for an effort of 1."""
_LINE_BYTES: Final = 400
_WORDS_BYTES: Final = 2000
TOO_LONG: Final = "too-long"
"""Stands in the tag for words that the plugin did not all read."""
_TIMES_IN_FULL: Final = 16
"""So many times as much is read where slurmctld does not wait for it: in some tens of milliseconds at most."""

BLANK: Final = " \t\n\v\f\r"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_SEPARATOR: Final = re.compile(r"[ \t]*=?[ \t]*(?:\\\r?\n[ \t]*)?")
_BEFORE: Final = {
    separator: re.compile(rf"(?<![A-Za-z0-9_.$-])([A-Za-z0-9_.$-]+)([\"']?[ \t]*){separator}()[ \t]*")
    for separator in "=:"
}
"""A setting's name, and its separator: with a blank or a quote between, nothing is assigned in a shell."""
_AFTER_SHORT: Final = re.compile(r"[ =]")
_LOOKS_LIKE_OPTION: Final = re.compile(r"-[^0-9]")
SHORT_OF_COMMAND: Final = re.compile(r"([A-Za-z][A-Za-z0-9_.]*) -([A-Za-z])")
_SHORT_OPTION: Final = re.compile(r"[ \t]-([A-Za-z])[ =]?([0-9$][^ \t\n\v\f\r]*)")
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9=,._/$:{}()*-]")
STATES: Final = "states."
"""``states.vllm-tensor-parallel-size=4``: a name that no table has, which may be that of a count."""
_PARTS_OF_COUNTS: Final = ("gpu", "parallel", "world", "replica")
_ENDS_COUNT: Final = "degree"
_PARTS_OF_OTHERS: Final = ("mem", "batch", "block", "worker")
_BEGINS_PART: Final = re.compile(r"[dgprw][aeop][gpru]")
"""What the parts of counts begin with, for which the plugin searches first."""
_BEGINS_COUNT: Final = re.compile(r"[0-9]|\$[^(]")


class WordTable(msgspec.Struct, frozen=True):
    """Which words are collected.

    An entry of ``words`` is a long option (``--nnodes``), an option with one dash (``-tp``), a short option of srun
    or of a launcher (``srun -n``), or else a setting (``NAME=value``, ``name: value``). Options and settings are also
    found behind a prefix with a dot: ``--trainer.devices``, ``model.global_batch_size``. ``launchers`` are commands
    as they stand in a script; the word that follows one is its value.
    """

    words: tuple[str, ...]
    launchers: tuple[str, ...]

    @property
    def stamp(self) -> str:
        """Eight hexadecimal digits that differ between tables, and between readers that find other words."""
        return _stamp_of(self.words, self.launchers)


_READER: Final = "5"
"""As the intercept file's header: what an older plugin has read is not trusted."""


@functools.lru_cache(maxsize=16)
def _stamp_of(words: tuple[str, ...], launchers: tuple[str, ...]) -> str:
    """Kept: it is compared with the stamp in the tag of each job."""
    return hashlib.sha256("\n".join([_READER, *words, "", *launchers]).encode()).hexdigest()[:8]


class ScriptWords(msgspec.Struct, frozen=True):
    """What a script shows: its words, or None if they were not all read; and a fingerprint without its digits."""

    words: tuple[str, ...] | None
    fingerprint: str


def word_name(entry: str) -> str:
    """Return the name that an entry's words have: ``nproc-per-node`` for ``--nproc_per_node``, ``srun-n``."""
    return entry.replace(" -", "-").lstrip("-").replace("_", "-").replace(" ", "-")


def read_script(script: bytes, table: WordTable, times: int = 1) -> ScriptWords:
    """Read a batch script as the plugin does; with ``times``, so many times as much of it."""
    code, whole, spent = code_of(script, times)
    words: tuple[str, ...] | None = None
    if whole:
        found = _words_of(code, table, spent, times)
        if found is not None and len("+".join(found)) <= _WORDS_BYTES * times:
            words = tuple(found)
    return ScriptWords(words, fingerprint_of(code))


def read_long_script(script: bytes, table: WordTable) -> ScriptWords:
    """Read a batch script as rlallocd does, which asks for those that the plugin did not read in full."""
    as_plugin = read_script(script, table)
    return as_plugin if as_plugin.words is not None else read_script(script, table, _TIMES_IN_FULL)


def _words_of(code: str, table: WordTable, spent: int, times: int) -> list[str] | None:
    """List the words; None if there is too much to look at."""
    effort = Effort(times)
    assignments: dict[str, list[int]] = defaultdict(list)
    found: dict[str, None] = {}
    try:
        effort.spend(spent)
        values = (
            *_options(code, table, effort),
            *_settings(code, table, effort, assignments),
            *_dashed(code, table, effort),
            *_launchers(code, table, effort),
            *file_words(code, effort),
            *setup_words(code, effort),
            *assigning_words(code, effort),
        )
        effort.spend(EFFORT_OF_VALUE * len(values))
        conditions = conditions_of(code, effort)
        variables = Variables(code, assignments, effort, conditions.unsure)
        for name, value in values:
            whole = value if value is None else variables.resolve(value)
            is_option = whole is not None and whole != value and _LOOKS_LIKE_OPTION.match(whole)
            if whole is not None and not is_option and _UNCLEAN.search(whole):
                effort.spend(_EFFORT_OF_UNCLEAN + len(whole) // _BYTES_OF_EFFORT)
            found[name if whole is None or is_option else _word(name, whole)] = None
        found.update(dict.fromkeys(_word(name, value) for name, value in compared_words(conditions, variables)))
    except IncompleteError:
        return None
    return list(found)


def _word(name: str, value: str) -> str:
    return f"{name}={clean(value)}"


def clean(value: str) -> str:
    """A value as it stands in a word."""
    return _UNCLEAN.sub("_", value)


def _options(code: str, table: WordTable, effort: Effort) -> Iterator[tuple[str, str | None]]:
    """The long options. A word that begins with a dash is no value. Raises IncompleteError for too many."""
    names = {entry[2:]: word_name(entry) for entry in table.words if entry.startswith("--")}
    names |= {long.replace("-", "_"): name for long, name in names.items()}
    numbers = 0
    at = code.find("--")
    while at >= 0:
        effort.spend(1)
        match = _NAME.match(code, at + 2)
        if match is None:
            at += len(code) - at - len(code[at:].lstrip("-"))
        else:
            at = match.end()
            name = names.get(match[0]) or names.get(match[0].rpartition(".")[2])
            if name is not None:
                separator = _SEPARATOR.match(code, at)
                value = value_at(code, separator.end()) if separator is not None and separator[0] else None
                yield name, None if value and (value == "-" or _LOOKS_LIKE_OPTION.match(value)) else value
            elif len(match[0]) >= _SHORTEST_NAME and _BEGINS_COUNT.match(code, at + 1) and code[at] in "= ":
                numbers += 1
                if _may_count(match[0], effort):
                    yield _states(match[0]), value_at(code, at + 1)
        at = code.find("--", at)
    effort.spend(numbers // _NUMBERS_OF_EFFORT)


def _settings(
    code: str, table: WordTable, effort: Effort, assignments: dict[str, list[int]]
) -> Iterator[tuple[str, str | None]]:
    """The values of settings, also behind a prefix with a dot; not that in ``${name:-default}``.

    Adds to ``assignments`` where the script assigns something to a name. Raises IncompleteError for too many.
    """
    names = {entry: word_name(entry) for entry in table.words if not entry.startswith("-")}
    for separator, before in _BEFORE.items():
        effort.spend(code.count(separator))
        numbers = 0
        for match in before.finditer(code):
            if separator == "=" and not match[2]:
                assignments[match[1]].append(match.start(3))
            name = names.get(match[1]) or names.get(match[1].rpartition(".")[2])
            is_default = code[max(0, match.start() - 2) : match.start()] == "${"
            if match[1].startswith("-"):
                continue
            if name is not None and not is_default:
                yield name, value_at(code, match.end())
            elif name is None and len(match[1]) >= _SHORTEST_NAME and _BEGINS_COUNT.match(code, match.end()):
                numbers += 1
                if _may_count(match[1], effort) and not is_default:
                    yield _states(match[1]), value_at(code, match.end())
        effort.spend(numbers // _NUMBERS_OF_EFFORT)


def _may_count(name: str, effort: Effort) -> bool:
    """Whether a name that no table has may be that of a count: ``--actor_num_gpus``, ``vllm_tensor_parallel_size``.

    Raises IncompleteError for too many.
    """
    lowered = name.lower()
    if _BEGINS_PART.search(lowered) is None:
        return False
    effort.spend(_EFFORT_OF_NAME)
    counts = lowered.endswith(_ENDS_COUNT) or any(part in lowered for part in _PARTS_OF_COUNTS)
    return counts and not any(part in lowered for part in _PARTS_OF_OTHERS)


def _states(name: str) -> str:
    return STATES + name.rpartition(".")[2].replace("_", "-")


def _dashed(code: str, table: WordTable, effort: Effort) -> Iterator[tuple[str, str | None]]:
    """The values of options with one dash."""
    for entry in table.words:
        if entry.startswith("-") and not entry.startswith("--"):
            for at in all_of(occurrences(code, entry, effort, 1)):
                if begins_word(code, at) and _AFTER_SHORT.match(code, at + len(entry)):
                    yield word_name(entry), value_at(code, at + len(entry) + 1)


def _short_options(
    code: str, names: Mapping[str, str], effort: Effort, ends: Iterable[int]
) -> Iterator[tuple[str, str]]:
    """The short options on the lines of a command. Raises IncompleteError for too many."""
    for end in all_of(ends):
        line = _rest_of_line(code, end)
        effort.spend(_EFFORT_OF_SRUN + len(line) // _BYTES_OF_EFFORT)
        for letter, value in _SHORT_OPTION.findall(line):
            if letter in names:
                yield names[letter], value


def _launchers(code: str, table: WordTable, effort: Effort) -> Iterator[tuple[str, str | None]]:
    """The short options of srun; launchers with their short options and the next word, ``--`` for a long option."""
    short: dict[str, dict[str, str]] = defaultdict(dict)
    for entry in table.words:
        if (match := SHORT_OF_COMMAND.fullmatch(entry)) is not None:
            short[match[1]][match[2]] = word_name(entry)
    ends_of_srun = list(_commands(code, "srun", effort))
    yield from _short_options(code, short["srun"], effort, ends_of_srun)
    for entry in table.launchers:
        ends = ends_of_srun if entry == "srun" else list(_commands(code, entry, effort))
        if entry != "srun" and entry in short:
            yield from _short_options(code, short[entry], effort, ends)
        for end in ends:
            if end >= 0:
                value = value_at(code, end + 1) or ""
                yield word_name(entry), "--" if value.startswith("--") else None if value[:1] in ("", "-") else value


def _commands(code: str, entry: str, effort: Effort) -> Iterator[int]:
    """Where each occurrence of a command ends; -1 behind the first ones. Raises IncompleteError."""
    for at in occurrences(code, entry, effort, 1):
        end = at + len(entry)
        if at < 0:
            yield -1
        elif begins_word(code, at) and (end == len(code) or code[end] in BLANK):
            yield end


def _rest_of_line(code: str, start: int) -> str:
    """To the end of the command's line, continued lines with it."""
    part = code[start : start + _LINE_BYTES].replace("\\\r\n", " ").replace("\\\n", " ")
    return part.partition("\n")[0]


@functools.lru_cache(maxsize=4096)
def words_from_tag(text: str) -> tuple[str, ...] | None:
    """Read the tag's field of words; None if they were not all read at submission.

    Kept: a job's tag is read several times, and many jobs have the same script.
    """
    return None if text == TOO_LONG else tuple(word for word in text.split("+") if word)


def as_pairs(words: Iterable[str]) -> list[tuple[str, str | None]]:
    """Split words into names and values; None for a word without a value."""
    pairs = (word.partition("=") for word in words)
    return [(name, value if separator else None) for name, separator, value in pairs]
