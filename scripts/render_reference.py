"""Renders the reference pages that follow from the code: ``python scripts/render_reference.py [--check]``.

docs/reference/configuration.md has every key of ``rlalloc.config``: types, ranges and defaults from the structs, the
meaning from the comments in etc/rlalloc.yaml. docs/reference/cli.md has every command that ``rlalloc`` knows,
docs/reference/features.md every feature of an observation, docs/reference/environment.md every variable of a job's
environment that differs. With ``--check`` nothing is written; exit 1 if a committed
page is out of date. tests/docs runs the same check.
"""

import functools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_origin, get_type_hints

import msgspec
import typer
from msgspec import inspect

from rlalloc.config import Config
from rlalloc.observation import DECLARED, LARGEST_FEATURE
from rlalloc_cli.main import app, mount_trainer

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = ROOT / "docs" / "reference"
SHIPPED: Final = ROOT / "etc" / "rlalloc.yaml"
_PLAIN: Final = {
    inspect.StrType: "text",
    inspect.BoolType: "`true`, `false`",
    inspect.NoneType: "null",
    inspect.CustomType: "absolute path",
}
"""What a key of such a type takes; the one custom type of the configuration is a path."""
_WORDS: Final = {int: "N", float: "X", Path: "PATH"}
"""What stands for a value of an option that names no word of its own."""
_KEY: Final = re.compile(r"^( *)(- )?([A-Za-z_]+):(.*)$")

CONFIGURATION_HEAD: Final = """# Configuration

rlalloc reads one YAML file, `/etc/rlalloc/rlalloc.yaml`. `etc/rlalloc.yaml` in the project is the shipped file, with
every key and its default. Both programs and the command `rlalloc` take another file with `--config`, the command also
by the environment variable `RLALLOC_CONFIG`.

    rlalloc config check      # names an unknown key, a wrong type or a value out of range, and what is allowed
    rlalloc config show       # prints the configuration in force, defaults included
    systemctl reload rlallocd # applies a changed file; a wrong one is refused and the old one stays

A key that is left out has its default. Durations are seconds, memory is MiB. A reload applies everything but keys
marked "needs a restart" (`systemctl restart rlallocd`) or "restart rlalloc-agent".
"""
CLI_HEAD: Final = """# Commands

`rlalloc` is the one command for people. `rlallocd` and `rlalloc-agent` are services; both take `--config FILE` only.
Commands below `train` and `simulate`, and `evaluate`, need the extra `trainer`.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | failed: Slurm, the store, the agent or a policy; or a target was missed |
| 2 | wrong use or a wrong configuration |
| 3 | `rlalloc doctor` found a WARN, and nothing worse |
| 130 | interrupted |
"""


FEATURES_HEAD: Final = f"""# Features

What a [policy](../explanation/policy.md) sees of a job and its partition; `rlalloc explain` shows the values as
*observed*. All features are without units and clipped to ±{LARGEST_FEATURE:g}. A name keeps its meaning across
versions. Beside them, each question carries what every served heuristic would answer.
"""
ENVIRONMENT_HEAD: Final = """# The environment of a job

What the batch script of a job and its steps see that they would not see without rlalloc. Everything that this table
does not name is the same, except what names the site, the node or the moment, such as `SLURM_JOB_ID`.

- **every job**: all jobs of a site with rlalloc's TaskProlog.
- **jobs of rlalloc**: those that `rlalloc.lua` has marked in mode enforce, resized or not. A job that it skips at
  submission is none of them.
- **resized jobs**: those that have another size than their request, or a type of GPU that rlalloc chose, whoever of
  Slurm and rlalloc sets the variable.

A type of GPU that rlalloc chose (`rules.choose_gpu_types`) is in no variable: the job has the environment of a
request without a type, on nodes of that type.

`script` is the environment of the batch script, `step` that of a task of a plain `srun` in it. A variable marked with
"only if set" is changed only where it is there without rlalloc.
"""
ENVIRONMENT_TAIL: Final = """
A step of a job that was submitted with `--export=NONE` sees Slurm's variables only, and so no `RLALLOC_*`.

## Jobs inside jobs

sbatch passes its environment on to the job that it submits. A job that is submitted from inside a job of rlalloc does
not see the `RLALLOC_*` variables of that job, nor those of Slurm's variables that describe its size
(`SLURM_SET_BY_RLALLOC` lists them), unless it asks for them itself. Without rlalloc it would see the latter, and many
an `srun` in it would fail. `slurm_plugin/README.md` says how. If the TaskProlog has lowered
`SRUN_CPUS_PER_TASK`, the inner job sees the lower number.

`make floor` compares the environments of random submissions with and without rlalloc
([floor](../results/floor.md)). `tests/daemon/forms` compares those of each form in each size.
"""


def configuration_page(shipped: str) -> str:
    """Return the configuration reference; ``shipped`` is etc/rlalloc.yaml's text, whose comments explain keys."""
    meanings = comments_of(shipped)
    parts = [CONFIGURATION_HEAD, *_section((), Config, meanings)]
    return "\n".join(parts).rstrip() + "\n"


def comments_of(text: str) -> dict[tuple[str, ...], str]:
    """Return the comment of each key by its path: the lines right above it and what stands behind it.

    What stands behind a key may go on in lines below, each # below the first. Raises ValueError for a comment that
    begins neither there nor where the key below it does, and for one behind a later line of a list.
    """
    found: dict[tuple[str, ...], str] = {}
    path: list[tuple[int, str]] = []
    above: list[tuple[int, str]] = []
    behind_at = None
    for number, line in enumerate(text.splitlines(), 1):
        here = tuple(name for _, name in path)
        if line.lstrip().startswith("#"):
            column, words = line.index("#"), line.lstrip(" #").rstrip()
            if column == behind_at:
                found[here] = f"{found[here]} {words}".strip()
            else:
                above.append((column, words))
            continue
        match = _KEY.match(line)
        if match is not None:
            wrong = [words for column, words in above if column != len(match[1])]
            if wrong:
                raise ValueError(
                    f"line {number}: the comment {wrong[0]!r} must begin in column {len(match[1]) + 1}, as the key "
                    f"{match[3]} does, or below the # of the comment that it continues"
                )
            indent = len(match[1]) + len(match[2] or "")
            path = [step for step in path if step[0] < indent] + [(indent, match[3])]
            before, mark, behind = match[4].partition(" # ")
            behind_at = match.start(4) + len(before) + 1 if mark else None
            found[tuple(name for _, name in path)] = " ".join([*(words for _, words in above), behind]).strip()
        else:
            if " # " in line:
                raise ValueError(f"line {number}: put the comment of {'.'.join(here)} behind its key or above it")
            behind_at = None
        above = []
    return found


def commands_page() -> str:
    """Return the reference of all commands, arguments and options."""
    mount_trainer()
    parts = [CLI_HEAD]
    for path, command in commands_of(typer.main.get_command(app), ("rlalloc",)):
        parts.append(f"## {' '.join(path)}\n")
        parts.append(f"{_one_line(command.help)}\n")
        rows = [f"| {name} | {meaning} | {default} |" for name, meaning, default in command_rows(command)]
        if rows:
            parts.append("\n".join(["| argument or option | meaning | default |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts).rstrip() + "\n"


def features_page() -> str:
    """Return the reference of all features, in their order."""
    rows = [f"| `{feature.name}` | {feature.meaning} |" for feature in DECLARED]
    return "\n".join([FEATURES_HEAD, "| feature | meaning |", "|---|---|", *rows]) + "\n"


def environment_page() -> str:
    """Return the reference of all variables that differ in a job's environment."""
    sys.path.append(str(ROOT / "testbed"))
    from rlalloc_twins.environment_differences import table

    return f"{ENVIRONMENT_HEAD}\n{table()}\n{ENVIRONMENT_TAIL}"


@functools.cache
def pages() -> dict[Path, str]:
    """Return all rendered pages by where they belong."""
    return {
        PAGES / "configuration.md": configuration_page(SHIPPED.read_text(encoding="utf-8")),
        PAGES / "cli.md": commands_page(),
        PAGES / "features.md": features_page(),
        PAGES / "environment.md": environment_page(),
    }


def _section(path: tuple[str, ...], struct: type, meanings: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    """The table of ``struct``'s own keys, then a section for each struct or mapping in it."""
    rows, deeper = [], []
    for field in inspect.type_info(struct).fields:  # type: ignore[attr-defined]  # of a struct it is a StructType
        here = (*path, field.encode_name)
        inner = _struct_in(field.type)
        if inner is not None or here == ("commands",):
            deeper.append((here, inner))
        else:
            default = _default(field)
            rows.append(
                f"| `{'.'.join(here)}` | {_values(field.type)} | {default} | {_cell(meanings.get(here, ''))} |"
            )
    if rows:
        yield "\n".join(["| key | values | default | meaning |", "|---|---|---|---|", *rows]) + "\n"
    for here, inner in deeper:
        yield f"## {'.'.join(here)}\n"
        yield f"{meanings.get(here, '')}\n"
        if inner is None:
            yield _commands_of_classes()
        else:
            yield from _section(here, inner, meanings)


def _struct_in(kind: inspect.Type) -> type | None:
    """The struct that a key holds, or that the items of its list are."""
    if isinstance(kind, inspect.VarTupleType):
        kind = kind.item_type
    return kind.cls if isinstance(kind, inspect.StructType) else None


def _commands_of_classes() -> str:
    rows = [f"| `commands.{name}` | {_cell(_code(*words))} |" for name, words in Config().commands.items()]
    return "\n".join(["| key | default |", "|---|---|", *rows]) + "\n"


def _values(kind: inspect.Type) -> str:
    """What may stand behind a key, for a person."""
    match kind:
        case inspect.LiteralType(values=values):
            text = _code(*values)
        case inspect.IntType() | inspect.FloatType():
            text = _number(kind)
        case inspect.VarTupleType(item_type=item):
            text = f"list of {_values(item)}"
        case inspect.TupleType(item_types=items):
            text = f"[{', '.join(_values(item) for item in items)}]"
        case inspect.DictType(value_type=value):
            text = f"names with a {_values(value)} each"
        case inspect.UnionType(types=types):
            text = " or ".join(_values(each) for each in types)
        case _:
            text = _PLAIN[type(kind)]
    return text


def _number(kind: inspect.IntType | inspect.FloatType) -> str:
    limits = ((">", kind.gt), ("≥", kind.ge), ("<", kind.lt), ("≤", kind.le))
    stated = ", ".join(f"{sign} {limit:,}" for sign, limit in limits if limit is not None)
    return f"{'whole number' if isinstance(kind, inspect.IntType) else 'number'} {stated}".rstrip()


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return _cell(f"`{value if isinstance(value, str | Path) and value != '' else text}`")


def commands_of(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below a group. Any: typer brought click's classes in once, and its own from 0.29 on."""
    inner: Mapping[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield path, command
    for name, each in inner.items():
        yield from commands_of(each, (*path, name))


def command_rows(command: Any) -> Iterator[tuple[str, str, str]]:
    """Each argument and option of a command: how it is written, its meaning, its default."""
    hints = get_type_hints(command.callback)
    for parameter in command.params:
        if parameter.name != "help":  # what typer adds to every command
            yield _parameter(parameter, hints)


def configuration_rows(shipped: str) -> Iterator[tuple[str, str, str, str]]:
    """Each key of the configuration: its path, what it takes, its default and its meaning, as the page has them."""
    cell = r" ((?:[^|\\]|\\.)*) \|"
    for line in configuration_page(shipped).splitlines():
        if match := re.match(rf"\| `([^`]+)` \|{cell}{cell}{cell}$", line):
            yield match[1], match[2], match[3], match[4]
        elif match := re.match(rf"\| `(commands\.[^`]+)` \|{cell}$", line):
            yield match[1], "", match[2], "Parts of command lines that show this class."


def _parameter(parameter: Any, hints: Mapping[str, Any]) -> tuple[str, str, str]:
    several = get_origin(hints[parameter.name]) is list or parameter.nargs == -1
    words = parameter.metavar or _WORDS.get(hints[parameter.name], "TEXT")
    word = words.strip("[]").removesuffix("...").rstrip("]")
    if parameter.param_type_name == "option":
        value = "" if getattr(parameter, "is_flag", False) else f" {word}"
        name = ", ".join(f"`{option}{value}`" for option in (*parameter.opts, *parameter.secondary_opts)) + (
            ", repeatable" if several else ""
        )
    else:
        name = f"`{word if parameter.metavar else parameter.name.upper()}{'...' if several else ''}`"
    return name, _one_line(getattr(parameter, "help", "") or ""), _cli_default(parameter)


def _cli_default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    empty = parameter.default is False or parameter.default in (None, "", (), [])
    return "" if empty else f"`{parameter.default}`"


def _one_line(text: str | None) -> str:
    return _cell(" ".join((text or "").split()))


def _cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|")


def _code(*words: object) -> str:
    return ", ".join(f"`{word}`" for word in words)


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them."""
    old = [page for page, text in pages().items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for page in old:
            sys.stderr.write(f"{page.relative_to(ROOT)} is out of date: run python scripts/render_reference.py\n")
        return 1 if old else 0
    for page in old:
        page.write_text(pages()[page], encoding="utf-8")
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
