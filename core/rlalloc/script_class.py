"""The class and the ``#RLALLOC`` words of a batch script, as the submit plugin finds them. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from rlalloc.job import JOB_CLASSES, JobClass
from rlalloc.script_code import SCRIPT_BYTES, code_of, lines_with_directives
from rlalloc.script_words import TOO_LONG

OFF: Final = "off"
"""``#RLALLOC off`` leaves the job alone."""
_MOST_BYTES: Final = 400
_MOST_WORDS: Final = 20
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9=,._-]")
_WORD: Final = re.compile(r"[^ \t\n\v\f\r]+")


def directive_words(script: bytes) -> tuple[str, ...] | None:
    """Return the words of the ``#RLALLOC`` lines; None if there is no such line, ``too-long`` alone for too many."""
    words, whole = _words_as_read(script)
    if words is None:
        return None
    clean = tuple(_UNCLEAN.sub("_", word) for word in words)
    short = whole and len(clean) <= _MOST_WORDS and len("+".join(clean)) <= _MOST_BYTES
    return clean if short else (TOO_LONG,)


def _words_as_read(script: bytes) -> tuple[tuple[str, ...] | None, bool]:
    """Return the first words of the lines, no more than the plugin reads, and whether all lines were looked at."""
    lines, whole, _ = lines_with_directives(script[:SCRIPT_BYTES].decode("latin-1"))
    if whole and not lines:
        return None, True
    words: list[str] = []
    for word in (word for line in lines for word in _WORD.findall(line)):
        if len("+".join([*words, ""])) > _MOST_BYTES or len(words) > _MOST_WORDS:
            break
        words.append(word)
    return tuple(words), whole


def class_of(script: bytes, commands: Mapping[JobClass, Sequence[str]]) -> JobClass | None:
    """Return what kind of LLM job a script is; None for one that rlalloc leaves alone."""
    words, _ = _words_as_read(script)
    if OFF in (words or ()):
        return None
    for word in reversed(words or ()):
        for job_class in JOB_CLASSES:
            if word == f"class={job_class}":
                return job_class
    code, _, _ = code_of(script)
    found = (
        job_class
        for job_class, texts in commands.items()
        for text in texts
        if text.encode().decode("latin-1") in code
    )
    return next(found, "train" if words is not None else None)
