"""The class and the ``#RLALLOC`` words of a batch script, as the submit plugin finds them. Pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from rlalloc.job import JOB_CLASSES, JobClass
from rlalloc.scripts.script_code import SCRIPT_BYTES, TAG_BYTES, TAG_WORDS, code_of, directives_of
from rlalloc.scripts.script_values import begins_word
from rlalloc.scripts.script_words import BLANK, TOO_LONG

OFF: Final = "off"
"""``#RLALLOC off`` leaves the job alone."""
CommandKind = Literal["serve", "finetune", "train", "evaluate"]
"""The keys of the configuration's section ``commands``."""
_UNCLEAN: Final = re.compile(r"[^A-Za-z0-9=,._-]")
_CONTINUED: Final = re.compile(r"\\\r?\n")
_ENDS_COMMAND: Final = re.compile(r"[\n;&|]")
_BEFORE_BYTES: Final = 400
"""So far before its text, the beginning of an evaluation is looked for."""
_MOST_EVALUATIONS: Final = 8
"""So many times each text of an evaluation is looked for."""


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
    texts = {kind: [text.encode().decode("latin-1") for text in listed] for kind, listed in commands.items()}
    evaluations = [text for text in texts.get("evaluate", ()) if text in code]
    if evaluations:
        code = _without_evaluations(code, evaluations)
    for kind, listed in texts.items():
        if kind != "evaluate" and any(text in code for text in listed):
            return kind
    if evaluations:
        return "serve"
    return "train" if words is not None else None


def _without_evaluations(code: str, evaluations: Sequence[str]) -> str:
    """The code without its evaluations: neither what launches one nor its model's name shows that a script trains."""
    code = _CONTINUED.sub(" ", code)
    for text in evaluations:
        at = code.find(text)
        for _ in range(_MOST_EVALUATIONS):
            if at < 0:
                break
            start = at + len(text)
            if begins_word(code, at) and (start == len(code) or code[start] in BLANK):
                first = max(0, at - _BEFORE_BYTES)
                start = max(first, 1 + max(code.rfind(end, first, at) for end in "\n;&|"))
                found = _ENDS_COMMAND.search(code, at)
                code = code[:start] + ("" if found is None else code[found.start() :])
            at = code.find(text, start)
    return code
