"""The scripts and configuration files that a script names, read through a function that the caller gives."""

import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

import yaml

from rlalloc.llm.facts import FactFinder, Facts
from rlalloc.llm.script_options import OPTIONS, read_whole
from rlalloc.llm.shell_words import UNKNOWN, read_script

ReadFile = Callable[[str], str | None]
"""Returns a file's text, or None where there is none or it may not be read. It need not limit the size."""
MOST_FILES: Final = 24
"""So many files of one script are read at most."""
MOST_FILE_CHARACTERS: Final = 65_536
"""A longer file is not read: half a configuration would be another one."""
_MOST_KEYS: Final = 4_000
_DEEPEST: Final = 12
_MOST_NESTED: Final = 100
"""A loader of YAML calls itself for each level, that of libyaml until the stack ends."""
_YAML_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""It makes texts only; that of libyaml, which takes a tenth of the time, where PyYAML has it."""
_MOST_DOTS: Final = 300
"""On a line of TOML: the time that tomllib takes grows with the square of a dotted key's parts."""
_MOST_NESTED_SCRIPTS: Final = 3
_CONFIG: Final = re.compile(r"\.(json|ya?ml|toml)$", re.IGNORECASE)
_IN_DEEPSPEED: Final = ("zero_optimization", "train_micro_batch_size_per_gpu", "deepspeed_config")
_SCRIPT_OPTIONS: Final = frozenset({"bash", "sh", "source", ".", "zsh"})


def facts_of_script(text: str, read_file: ReadFile | None = None) -> Facts:
    """Say what a batch script tells of an LLM job; of several commands, the one that tells most.

    It reads files by ``read_file`` as the script names them, here-documents of the script first. It never raises for
    any content, and runs nothing.
    """
    library = _Library(read_file)
    return max(_finders(text, library, {}, depth=0), key=_how_much_it_tells, default=FactFinder()).facts()


def _how_much_it_tells(finder: FactFinder) -> tuple[bool, int]:
    """A command that says which model it is tells more than another, such as ``conda activate vllm``."""
    found = finder.found
    has_model = finder.architecture is not None or "model" in found or "hidden" in found
    return has_model, (finder.architecture is not None) + len(found)


class _Library:
    """Files by name, each read once; the script's own here-documents come first."""

    def __init__(self, read_file: ReadFile | None) -> None:
        self._read_file = read_file
        self._texts: dict[str, str | None] = {}
        self._scripts_read: set[str] = set()

    def add(self, files: Mapping[str, str]) -> None:
        self._texts.update({name: text for name, text in files.items() if len(text) <= MOST_FILE_CHARACTERS})

    def script(self, name: str) -> str | None:
        """Return the text of a script, once: it may name itself."""
        if name in self._scripts_read:
            return None
        self._scripts_read.add(name)
        return self.text(name)

    def text(self, name: str) -> str | None:
        if name in self._texts:
            return self._texts[name]
        if self._read_file is None or len(self._texts) >= MOST_FILES or UNKNOWN in name or len(name) > 4096:
            return None
        text = self._read_file(name)
        if text is not None and len(text) > MOST_FILE_CHARACTERS:
            text = None
        self._texts[name] = text
        return text


def _finders(text: str, library: _Library, variables: dict[str, str], depth: int) -> Iterator[FactFinder]:
    script = read_script(text, variables)
    sourced = _sourced_variables(script.commands, library)
    if sourced:
        script = read_script(text, {**variables, **sourced})
    library.add(script.files)
    for command in script.commands:
        finder = FactFinder()
        finder.words(command)
        _read_named(command, finder, library)
        yield finder
        if depth < _MOST_NESTED_SCRIPTS:
            found = (library.script(name) for name in _nested_scripts(command))
            for nested in (*filter(None, found), *_strings_run_by_a_shell(command)):
                yield from _finders(nested, library, script.variables.copy(), depth + 1)


def _sourced_variables(commands: tuple[tuple[str, ...], ...], library: _Library) -> dict[str, str]:
    """What the files assign that a script reads by ``source`` or ``.``."""
    found: dict[str, str] = {}
    names = [command[1] for command in commands if len(command) > 1 and command[0] in ("source", ".")]
    for name in names[:MOST_FILES]:
        text = library.text(name)
        if text is not None:
            found.update(read_script(text, found).variables)
    return found


def _nested_scripts(command: tuple[str, ...]) -> Iterator[str]:
    for word, following in pairwise(command):
        if word.rpartition("/")[2] in _SCRIPT_OPTIONS and not following.startswith("-"):
            yield following
    if command[0].endswith((".sh", ".bash", ".slurm", ".sbatch")):
        yield command[0]


def _strings_run_by_a_shell(command: tuple[str, ...]) -> Iterator[str]:
    """The commands in ``bash -c '…'``."""
    for shell, option, text in zip(command, command[1:], command[2:], strict=False):
        if shell.rpartition("/")[2] in _SCRIPT_OPTIONS and re.fullmatch(r"-[a-z]*c", option):
            yield text


def _read_named(command: tuple[str, ...], finder: FactFinder, library: _Library) -> None:
    """Read the configurations that a command names, then the model's own config.json; options win over files."""
    said = dict(finder.found)
    origin = dict(finder.origin)
    for word in command:
        value = word.partition("=")[2] if word.startswith("-") and "=" in word else word
        if _CONFIG.search(value):
            _read_configuration(value, finder, library)
    if finder.found.get("framework") == "deepspeed":
        said.pop("framework", None)  # LLaMA-Factory or axolotl, but DeepSpeed keeps the states
    finder.found.update(said)
    finder.origin.update({name: origin[name] for name in said})
    model = finder.found.get("model")
    if isinstance(model, str) and (text := library.text(posixpath.join(model, "config.json"))) is not None:
        config = parse_configuration(text)
        if isinstance(config, Mapping):
            finder.config(config, posixpath.join(model, "config.json"))


def _read_configuration(name: str, finder: FactFinder, library: _Library, depth: int = 0) -> None:
    text = library.text(name)
    config = parse_configuration(text) if text is not None else None
    if not isinstance(config, Mapping):
        return
    if "num_hidden_layers" in config or "n_layer" in config:
        finder.config(config, name)
        return
    for path, value in _leaves(config):
        keys = [part.lower().replace("_", "-") for part in path]
        for key in (".".join(keys[-2:]), keys[-1]):
            if key in OPTIONS:
                finder.take(key, value, name)
                break
        else:
            finder.take(keys[-1], value, name)
        if depth == 0 and _CONFIG.search(value) and keys[-1] in ("deepspeed", "deepspeed-config-file", "fsdp-config"):
            _read_configuration(value, finder, library, depth + 1)
    if any(key in config for key in _IN_DEEPSPEED):
        finder.note("framework", "deepspeed", name)
        if (batch := read_whole(str(config.get("train_batch_size")))) is not None:
            finder.note("global_batch", batch, name)  # elsewhere this name is a batch of one GPU
    _read_torchtitan(config, finder, name)


def _read_torchtitan(config: Mapping[str, Any], finder: FactFinder, name: str) -> None:
    """What only torchtitan's files say: ``[model] name = "llama3", flavor = "70B"``."""
    model = config.get("model")
    if isinstance(model, Mapping) and isinstance(model.get("flavor"), str) and isinstance(model.get("name"), str):
        finder.note("framework", "torchtitan", name)
        finder.note("model", f"{model['name']}-{model['flavor']}", name)


def parse_configuration(text: str) -> Any:
    """Read JSON, YAML or TOML into plain mappings, lists and texts; None if it is none. Raises nothing."""
    if len(text) > MOST_FILE_CHARACTERS:
        return None
    try:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        pass
    if _is_deep(text):
        return None
    if all(line.count(".") <= _MOST_DOTS for line in text.split("\n")):
        try:
            return _as_texts(tomllib.loads(text))
        except (tomllib.TOMLDecodeError, ValueError, RecursionError):
            pass
    try:
        return yaml.load(text, Loader=_YAML_LOADER)  # noqa: S506 - it makes texts only
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _is_deep(text: str) -> bool:
    """Whether a text is YAML that is nested deeper than any configuration; read piece by piece, without recursion."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_YAML_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _MOST_NESTED:
                return True
    except (yaml.YAMLError, ValueError):  # then it is no YAML
        pass
    return False


def _as_texts(node: Any) -> Any:
    """What TOML says, with texts for numbers and dates, as in the other formats."""
    if isinstance(node, Mapping):
        return {str(key): _as_texts(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_as_texts(value) for value in node]
    return node if isinstance(node, bool) else str(node)


def _leaves(config: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """All values with the keys that lead to each, in order; so many that an alias of aliases does not matter."""
    stack: list[tuple[tuple[str, ...], Any]] = [((), config)]
    for _ in range(_MOST_KEYS):
        if not stack:
            return
        path, node = stack.pop()
        if isinstance(node, Mapping) and len(path) < _DEEPEST:
            stack.extend(((*path, str(key)[:200]), value) for key, value in reversed(list(node.items())[:_MOST_KEYS]))
        elif isinstance(node, list) and len(path) < _DEEPEST:
            if path and all(isinstance(each, str) for each in node):
                yield path, ",".join(node[:100])
            else:
                stack.extend((path, value) for value in reversed(node[:_MOST_KEYS]))
        elif path and isinstance(node, str | bool) and len(str(node)) <= 1000:
            yield path, str(node)
