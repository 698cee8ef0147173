"""What is wrong with a configuration file, for the person who mends it: key, what was found, what is allowed."""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, get_args

import msgspec

from rlalloc.job import JOB_CLASSES, MODES
from rlalloc.scripts.script_class import CommandKind

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "mode": MODES,
    "backend": ("auto", "pyslurm", "cli"),
    "will_run": ("auto", "off"),
    "exploration": ("sample", "mean"),
    "task_prolog": ("checked", "trusted"),
    "log_level": ("debug", "info", "warning", "error"),
    "commands": get_args(CommandKind),
    "classes": JOB_CLASSES,
}


def explain_mistake(error: str, tree: Any, root: type[msgspec.Struct]) -> str:
    """Turn msgspec's text about ``tree``, which should have been a ``root``, into such a line."""
    message, _, where = error.partition(" - at ")
    of_key = where.startswith("`key` in ")
    path = where.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.+)`", message, re.DOTALL)
    if unknown is not None:
        prefix = f"{path}." if path else ""
        return f"{prefix}{_printable(unknown[1])}: unknown key{_meant(unknown[1], path, root)}"
    found, name = _value_at(tree, path), path or "the file"
    if of_key and message.startswith("Expected `str`"):
        keys = [repr(key) for key in found if not isinstance(key, str)] if isinstance(found, dict) else []
        return f"{name}: {', '.join(keys)}: a key has to be a word; write it in quotes"
    if found is None and "got `null`" in message:
        return f"{name}: nothing is written for it; write a value, or remove the line"
    said = f"{name}: {message}; found {found!r}"
    if re.match(r"Expected `(int|float)`, got `str`", message):
        return f"{said}. Write a decimal number, without quotes and without a unit"
    choices = _CHOICES.get(re.sub(r"\[.*", "", path.rpartition(".")[2]), ())
    if message.startswith("Expected `bool`"):
        choices = ("true", "false")
    if not choices:
        return f"{said}. Write it in quotes" if re.match(r"Expected `str`, got `(int|float|bool)`", message) else said
    word = re.search(r"Invalid enum value '(.*)'", message, re.DOTALL)
    near = _nearest(word[1], choices) if word is not None else ""
    return f"{said}{near or '.'} Allowed: {', '.join(choices)}"


def _meant(key: str, path: str, root: type[msgspec.Struct]) -> str:
    """What an unknown key in the section at ``path`` may have been meant to be, and what is allowed there."""
    allowed = _keys_at(path, root)
    if not (hint := _nearest(key, allowed)):
        homes = [each for each in _keys_at("", root) if each != path and key in _keys_at(each, root)]
        hint = f"; it is a key of {' and of '.join(homes)}." if homes else "."
    return f"{hint} Allowed: {', '.join(allowed)}"


def _nearest(found: str, allowed: Iterable[str]) -> str:
    """A question for the one of the allowed words that is meant; empty where none is near."""
    words = {word.lower(): word for word in allowed}
    close = difflib.get_close_matches(found.lower(), words, n=1)
    return f"; did you mean {words[close[0]]!r}?" if close else ""


def _keys_at(path: str, root: type[msgspec.Struct]) -> Sequence[str]:
    """The keys of the section at ``path``, or of each of its entries; none where a site chooses them."""
    struct: Any = root
    for part in re.findall(r"[A-Za-z_]+", path):
        kind = next(field.type for field in msgspec.structs.fields(struct) if field.encode_name == part)
        kinds = (kind, *get_args(kind))
        struct = next((each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)), None)
        if struct is None:
            return ()
    return [field.encode_name for field in msgspec.structs.fields(struct)]


def _printable(text: str) -> str:
    """Without what would act on a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _value_at(tree: Any, path: str) -> Any:
    for name, index in re.findall(r"([A-Za-z_-]+)|\[(\d+|\.\.\.)\]", path):
        try:
            tree = tree[name] if name else tree[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            return tree
    return tree
