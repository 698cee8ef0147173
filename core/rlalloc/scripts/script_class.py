"""The class and the ``#RLALLOC`` words of a batch script, as the submit plugin finds them. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from rlalloc.job import JOB_CLASSES, JobClass
from rlalloc.scripts.script_code import SCRIPT_BYTES, TAG_BYTES, TAG_WORDS, code_of, directives_of
from rlalloc.scripts.script_words import TOO_LONG

OFF: Final = "off"
"""``#RLALLOC off`` leaves the job alone."""
CommandKind = Literal["serve", "finetune", "train", "evaluate"]
"""The keys of the configuration's section ``commands``."""
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9=,._-]")


def class_of_kind(kind: CommandKind) -> JobClass:
    """The class of the jobs that commands of a kind show: an evaluation serves a model."""
    return "serve" if kind == "evaluate" else kind


def directive_words(script: bytes) -> tuple[str, ...] | None:
    """Return the words of the ``#RLALLOC`` lines; None if there is no such line, ``too-long`` alone for too many."""
    words = _words_as_read(script)
    if words is None:
        return None
    clean = tuple(_UNCLEAN.sub("_", word) for word in words)
    short = len(clean) <= TAG_WORDS and len("+".join(clean)) <= TAG_BYTES
    return clean if short else (TOO_LONG,)


def _words_as_read(script: bytes) -> list[str] | None:
    """Return the first words of the lines, no more than the plugin reads."""
    return directives_of(script[:SCRIPT_BYTES].decode("latin-1"))[0]


def class_of(script: bytes, commands: Mapping[CommandKind, Sequence[str]]) -> JobClass | None:
    """Return what kind of LLM job a script is; None for one that rlalloc leaves alone."""
    words = _words_as_read(script)
    if OFF in (words or ()):
        return None
    for word in reversed(words or ()):
        for job_class in JOB_CLASSES:
            if word == f"class={job_class}":
                return job_class
    code, _, _ = code_of(script)
    found = (
        class_of_kind(kind)
        for kind, texts in commands.items()
        for text in texts
        if text.encode().decode("latin-1") in code
    )
    return next(found, "train" if words is not None else None)
