"""The part of a batch script that is searched for words, as the submit plugin cuts it out. Pure functions.

``slurm_plugin/rlalloc.lua`` reads the same bytes in the same way (``script_words``). Left out are comment
lines, and what an ``echo`` prints: text for people may name any command.
"""

import re
from collections import Counter
from typing import Final

SCRIPT_BYTES: Final = 16384
"""So much of a script is read: slurmctld accepts 4 MB, and waits meanwhile."""
_UNCUT_BYTES: Final = 6144
_CODE_BYTES: Final = 4096
_WORDS_BYTES_OF_CODE: Final = 1536
_FINGERPRINT_BYTES: Final = 256
_MOST_HASHES: Final = 80
"""So many ``#`` are looked at, comment lines and others; of these so many behind a blank."""
_MOST_INDENTED: Final = 20
_INDENTED_BYTES: Final = 64
_MOST_ECHOES: Final = 10
_ECHO_BYTES: Final = 400
"""A longer line of ``echo`` is not left out."""
_MOST_DIRECTIVES: Final = 16
_MOST_MENTIONS: Final = 32
"""So many lines are looked at that have ``#RLALLOC`` in them, wherever it stands."""
_DIRECTIVE_BYTES: Final = 1024
"""So much of all these lines is looked at, blanks with it."""
TAG_BYTES: Final = 400
TAG_WORDS: Final = 12
"""So many of their words have room in a job's tag."""
_THE_REST: Final = "_" * (TAG_BYTES + 1)
_EFFORT_OF_LINE: Final = 4
_EFFORT_OF_WORD: Final = 3
_EFFORT_OF_ECHO: Final = 2
_SAMPLES: Final = 32
_MOST_ALIKE: Final = 11

_DIRECTIVE: Final = re.compile(r"#RLALLOC(?=[ \t\v\f\r]|\Z)")
_WORD: Final = re.compile(r"[^ \t\n\v\f\r]+")
_INDENTATION: Final = re.compile(r"\n[ \t]*\Z")
_PRINTED: Final = tuple(
    re.compile(text)
    for text in (
        r"[ \t]*(?:-[neE]*[ \t]*|[neE]+[ \t]*)?\"(?:[^\"`\\\n$]|\$(?!\())*\"[ \t]*\r?(?=\n)",
        r"[ \t]*(?:-[neE]*[ \t]*|[neE]+[ \t]*)?'[^'\n]*'[ \t]*\r?(?=\n)",
        r"[^\"'`\\|>;&\n(]*(?=\n)",
    )
)
"""What may follow ``echo`` for the line to be left out: text alone, without a redirection, a pipe or a command."""


def code_of(script: bytes, times: int = 1) -> tuple[str, bool, int]:
    """Return the script's code, a character a byte, whether its words may be read, and the effort (``Effort``).

    It is empty where the text is no script: slurmctld would search it for too long. ``times``: so many times as much
    as the plugin reads.
    """
    text = script[: SCRIPT_BYTES * times].decode("latin-1")
    code, whole, effort = _without_comments(text, times)
    whole = whole and len(script) <= SCRIPT_BYTES * times and len(code) <= _UNCUT_BYTES * times
    code, for_echoes = _without_echoes(code[: _UNCUT_BYTES * times], times)
    if len(code) > _CODE_BYTES * times:
        code, whole = code[: _CODE_BYTES * times], False
    effort += for_echoes + directives_of(text)[1]
    whole = whole and len(code) <= _WORDS_BYTES_OF_CODE * times
    return ("", False, effort) if _is_no_script(code) else (code, whole, effort)


def directives_of(text: str) -> tuple[list[str] | None, int]:
    """Return the first words of the ``#RLALLOC`` lines, None if there is no such line, and the effort.

    Only a line that begins with it is one: an ``echo`` may print it, or a program search for it. A word that is too
    long for a tag stands for what is not looked at.
    """
    found: list[str] = []
    mentions = 0
    for line in text.split("\n"):
        if "#RLALLOC" not in line:
            continue
        mentions += 1
        directive = _DIRECTIVE.match(line)
        if mentions > _MOST_MENTIONS or (directive is not None and len(found) == _MOST_DIRECTIVES):
            found.append(_THE_REST)
            break
        if directive is not None:
            found.append(line[directive.end() :])
    lines = sum(line is not _THE_REST for line in found)
    effort = mentions + _EFFORT_OF_LINE * lines
    if not found:
        return None, effort
    joined = " ".join(found)
    if len(joined) > _DIRECTIVE_BYTES:
        joined = f"{joined[:_DIRECTIVE_BYTES]} {_THE_REST}"
    words: list[str] = []
    for word in _WORD.findall(joined):
        if len("+".join([*words, ""])) > TAG_BYTES or len(words) > TAG_WORDS:
            break
        words.append(word)
    return words, effort + _EFFORT_OF_WORD * len(words)


def fingerprint_of(code: str) -> str:
    """Return a polynomial hash modulo 2^31 - 1 of the code's beginning and end.

    Without blanks and digits, which runs of one script differ in.
    """
    if len(code) > 2 * _FINGERPRINT_BYTES:
        code = code[:_FINGERPRINT_BYTES] + code[-_FINGERPRINT_BYTES:]
    state = 7
    for byte in code.encode("latin-1"):
        if byte > 57 or 32 < byte < 48:
            state = (state * 31 + byte) % 2_147_483_647
    return str(state)


def _without_comments(text: str, times: int) -> tuple[str, bool, int]:
    """Leave comment lines out; whether all of them were found; and the effort."""
    kept: list[str] = []
    start, at, hashes, indented = 0, text.find("#"), 0, 0
    while at >= 0 and hashes < _MOST_HASHES * times:
        hashes += 1
        if at and text[at - 1] in " \t":
            indented += 1
            if indented > _MOST_INDENTED * times:
                break
        line = _line_start(text, at)
        if line is None:
            at = text.find("#", at + 1)
            continue
        kept.append(text[start:line])
        newline = text.find("\n", at)
        start = newline + 1 if newline >= 0 else len(text)
        at = text.find("#", start)
    return "".join((*kept, text[start:])), at < 0, hashes + indented


def _without_echoes(code: str, times: int) -> tuple[str, int]:
    """Leave out what an ``echo`` on a line of its own prints; and the effort."""
    kept: list[str] = []
    start, at, echoes = 0, code.find("echo "), 0
    while at >= 0 and echoes < _MOST_ECHOES * times:
        echoes += 1
        if at == 0 or code[at - 1] in " \t\n":
            printed = next(
                (match for text in _PRINTED if (match := text.match(code, at + 5, at + 5 + _ECHO_BYTES))), None
            )
            if printed is not None and _line_start(code, at) is not None:
                kept.append(code[start:at])
                start = printed.end()
        at = code.find("echo ", max(start, at + 5))
    return "".join((*kept, code[start:])), _EFFORT_OF_ECHO * echoes


def _line_start(text: str, at: int) -> int | None:
    """Where the line begins whose first text stands at a place; None where something else stands before it.

    A line that is indented further than is looked at begins at its text.
    """
    before = "\n" * (at < _INDENTED_BYTES) + text[max(0, at - _INDENTED_BYTES) : at]
    blanks = _INDENTATION.search(before)
    if blanks is not None:
        return at - (len(before) - blanks.start() - 1)
    return at if before and not before.strip(" \t") else None


def _is_no_script(text: str) -> bool:
    """Whether a third of a long text is the same byte, blanks aside. Squares: no regular text looks like one byte."""
    if len(text) < 32 * _SAMPLES:
        return False
    counts = Counter(text[number * number * 37 % len(text)] for number in range(1, _SAMPLES + 1))
    return any(count >= _MOST_ALIKE and byte != " " for byte, count in counts.items())
