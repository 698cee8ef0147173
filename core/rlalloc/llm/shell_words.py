"""The commands of a batch script as lists of words. Nothing is run, nothing raises, and the time is bounded.

This is no shell: words, quotes, continuations, simple assignments and here-documents are understood, and everything
else (loops, conditions, arithmetic, command substitution) is read as if it were plain words. bashlex stops at what it
does not know and is under the GPL; tree-sitter-bash parses more, but what is needed beyond a tree (variables, arrays,
files) would be the same code.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

UNKNOWN: Final = "\x00"
"""Stands in a word for what cannot be known before the script runs: ``$(…)``, an unset variable."""
PLAN_MARK: Final = "\x01"
"""Stands in a word for a variable of rlalloc's plan."""
OF_THE_PLAN: Final = ("RLALLOC_DP", "RLALLOC_TP", "RLALLOC_PP")
MOST_CHARACTERS: Final = 262_144
_MOST_WORDS: Final = 20_000
_LONGEST_VALUE: Final = 8_192
_MOST_HERE_DOCUMENTS: Final = 64
_MOST_EXPANDED: Final = 1_000_000
"""All expansions of a script together, so that variables of variables cost no more than a long script."""

_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t\r]+|\\\r?\n)"
    r"|(?P<end>\n|&&|\|\||;;|[;&|])"
    r"|(?P<arithmetic>\$\(\((?:[^()\n]|\((?:[^()\n]|\([^()\n]{0,99}\)){0,99}\)){0,199}\)\)|\$\(\([^\n]{0,200}?\)\))"
    r"|(?P<substitution>\$\([^()\n]*\)|`[^`\n]*`)"
    r"|(?P<variable>\$[A-Za-z_][A-Za-z0-9_]*|\$\{[^{}\n]*\}|\$[0-9@*#?$!-])"
    r"|(?P<single>'[^']*')"
    r'|(?P<double>"(?:[^"\\]|\\.)*")'
    r"|(?P<escaped>\\.)"
    r"|(?P<bracket>[(){}])"
    r"|(?P<redirect>[0-9]?(?:<<<|<<-?|>>|>&|<|>))"
    r"|(?P<plain>[^\s\\'\"`$;&|(){}<>]+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([^{}\n]*)\}|\([^()\n]*\)|[0-9@*#?$!-])|`[^`\n]*`")
_DEFAULT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[@*]\])?(?::?[-=](.*))?", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_WHOLE_ARRAY: Final = re.compile(r"\"\$\{[A-Za-z_0-9]+\[@\]\}\"")
_ESCAPED_IN_QUOTES: Final = re.compile(r"\\(\r?\n|[\"$`\\])")
_HERE_DOCUMENT: Final = re.compile(r"<<-?[ \t]*(['\"]?)([A-Za-z_][A-Za-z0-9_]{0,63})\1([^\n]*)\n")
_INTO_FILE: Final = re.compile(r">{1,2}[ \t]*(['\"]?)([^\s'\";&|<>]+)\1")


class Script(msgspec.Struct, frozen=True):
    """``commands`` as words, ``files`` that the script writes from here-documents by name, and its ``variables``."""

    commands: tuple[tuple[str, ...], ...]
    files: Mapping[str, str]
    variables: dict[str, str]


def read_script(text: str, variables: Mapping[str, str] | None = None) -> Script:
    """Split a script into commands, with variables replaced where an earlier line assigns them plainly.

    ``variables`` are known before it begins. What lies beyond ``MOST_CHARACTERS`` is not read.
    """
    body, files = _without_here_documents(text[:MOST_CHARACTERS])
    reader = _Reader(dict(variables or {}))
    reader.read(body)
    written = {reader.expand(name): content for name, content in files.items()}
    return Script(tuple(reader.commands), written, reader.variables)


class _Reader:
    """Walks over the tokens once. A word is kept as pieces until it ends."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.commands: list[tuple[str, ...]] = []
        self._command: list[str] = []
        self._pieces: list[str] = []
        self._split = False
        self._array: str | None = None
        self._words = 0
        self._expanded = 0

    def read(self, text: str) -> None:
        position, end = 0, len(text)
        while position < end and self._words < _MOST_WORDS:
            if text[position] == "#" and not self._pieces:
                newline = text.find("\n", position)
                position = end if newline < 0 else newline
                continue
            match = _TOKEN.match(text, position)
            if match is None:
                break
            self._take(match.lastgroup or "other", match[0])
            position = match.end()
        self._end_command()

    def expand(self, text: str) -> str:
        """Replace variables, those with a default (``${TP:-4}``) too; what is not known becomes ``UNKNOWN``."""
        if "$" not in text and "`" not in text:
            return text
        return _VARIABLE.sub(self._value_of, text)[:_LONGEST_VALUE]

    def _value_of(self, match: re.Match[str]) -> str:
        name, rest = match[1], match[2]
        default: str | None = None
        if rest is not None:
            parts = _DEFAULT.fullmatch(rest)
            if parts is None:
                return UNKNOWN
            name, default = parts[1], parts[2]
        if name in OF_THE_PLAN and name not in self.variables:
            return PLAN_MARK
        value = self.variables.get(name or "", default)
        self._expanded += len(value or "")
        return UNKNOWN if value is None or self._expanded > _MOST_EXPANDED else value

    def _take(self, kind: str, text: str) -> None:
        if kind == "blank":
            self._end_word()
        elif kind == "end":
            if text == "\n" and self._array is not None:
                self._end_word()
            else:
                self._end_command()
        elif kind == "bracket":
            self._bracket(text)
        elif kind == "redirect":
            self._end_word()
            self._pieces.append(text)
            self._end_word()
        elif kind != "other":  # a quote without its other half, or a lone dollar
            self._pieces.append(self._piece(kind, text))

    def _piece(self, kind: str, text: str) -> str:
        """What one token adds to a word."""
        if kind == "single":
            return text[1:-1]
        if kind == "escaped":
            return text[1]
        if kind in ("arithmetic", "substitution"):
            return UNKNOWN
        if kind == "variable":
            self._split = True
            return self.expand(text)
        if kind == "double":
            self._split = self._split or _WHOLE_ARRAY.fullmatch(text) is not None
            return _ESCAPED_IN_QUOTES.sub(lambda each: each[1].strip("\r\n"), self.expand(text[1:-1]))
        return text

    def _bracket(self, bracket: str) -> None:
        opened = _ASSIGNMENT.fullmatch("".join(self._pieces)) if bracket == "(" else None
        if opened is not None:
            self._end_command(keep_word=True)
            self._pieces = []
            self._array = opened[1] if opened[2] != "+" else f"+{opened[1]}"
        elif bracket == ")" and self._array is not None:
            self._end_word()
            name, value = self._array, " ".join(self._command)
            self._array, self._command = None, []
            if name.startswith("+"):
                name, value = name[1:], f"{self.variables.get(name[1:], '')} {value}"
            self.variables[name] = value[:_LONGEST_VALUE]
        elif bracket in "()":
            self._end_command()
        else:
            self._pieces.append(bracket)

    def _end_word(self) -> None:
        if not self._pieces:
            return
        word, split = "".join(self._pieces)[:_LONGEST_VALUE], self._split
        self._pieces, self._split = [], False
        # A word that came from a variable is split at blanks, as a shell does; an assignment is not.
        parts = word.split() if split and not _ASSIGNMENT.match(word) else [word]
        self._words += len(parts)
        self._command.extend(parts)

    def _end_command(self, *, keep_word: bool = False) -> None:
        if not keep_word:
            self._end_word()
        words = self._command
        self._command, self._array = [], None
        while words and words[0] in ("export", "declare", "local", "readonly", "then", "do", "else"):
            words = words[1:]
        while words and (assigned := _ASSIGNMENT.match(words[0])) is not None:
            value = words[0][assigned.end() :]
            if assigned[2]:
                value = self.variables.get(assigned[1], "") + value
            if UNKNOWN in value and value.count(UNKNOWN) == len(value):
                self.variables.pop(assigned[1], None)
            else:
                self.variables[assigned[1]] = value[:_LONGEST_VALUE]
            words = words[1:]
        if words:
            self.commands.append(tuple(words))


def _without_here_documents(text: str) -> tuple[str, dict[str, str]]:
    """Take here-documents out of a script; those that go into a file are returned by the file's name."""
    kept: list[str] = []
    files: dict[str, str] = {}
    position = 0
    for _ in range(_MOST_HERE_DOCUMENTS):
        match = _HERE_DOCUMENT.search(text, position)
        if match is None:
            break
        closing = re.compile(rf"^\t*{match[2]}[ \t\r]*$", re.MULTILINE).search(text, match.end())
        if closing is None:
            kept.append(text[position : match.end()])
            position = match.end()
            continue
        start_of_line = text.rfind("\n", 0, match.start()) + 1
        line = text[start_of_line : match.end()]
        into = _INTO_FILE.search(line)
        if into is not None:
            files[into[2]] = text[match.end() : closing.start()]
        kept.append(text[position : match.start()] + "\n")
        position = closing.end()
    return "".join(kept) + text[position:], files
