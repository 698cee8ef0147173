"""Renders the man pages and the shell completions into ``etc``: ``python scripts/render_manual.py [FOLDER]``.

They are committed, because packages are built without docutils. man/rlalloc.1 has every command of ``rlalloc``,
man/rlallocd.8 and man/rlalloc-agent.8 the services, man/rlalloc.yaml.5 every key of the configuration: from the same
definitions as the reference pages. docutils turns them into roff. completion/rlalloc.bash, _rlalloc (zsh) and
rlalloc.fish are typer's own.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import docutils.core
import typer
from typer._completion_shared import get_completion_script

from render_reference import ROOT, SHIPPED, command_rows, commands_of, configuration_rows
from rlalloc import __version__
from rlalloc_agent import agent_app
from rlalloc_cli.main import app, mount_trainer
from rlallocd import daemon_app

COMPLETIONS: Final = {"bash": "rlalloc.bash", "zsh": "_rlalloc", "fish": "rlalloc.fish"}
_COMPLETE_VARIABLE: Final = "_RLALLOC_COMPLETE"
_SEE_ALSO: Final = "**rlalloc**\\(1), **rlalloc.yaml**\\(5), **rlallocd**\\(8), **rlalloc-agent**\\(8)"
_STATUSES: Final = {
    "0": "done",
    "1": "failed: Slurm, the store, the agent or a policy",
    "2": "wrong use or a wrong configuration",
    "3": "**rlalloc doctor** found a WARN, and nothing worse",
    "130": "interrupted",
}


def rlalloc_page() -> str:
    """rlalloc(1) as reStructuredText."""
    mount_trainer()
    parts = [
        *_head("rlalloc", 1, "GPU, CPU and memory shares for pending LLM jobs on Slurm"),
        *_section("SYNOPSIS", "**rlalloc** *COMMAND* [*OPTION*...] [*ARGUMENT*...]"),
        *_section(
            "DESCRIPTION",
            "**rlalloc** is the one command for people. Administrators check and steer the two "
            "services with it; users ask about their own jobs.",
        ),
        *_section("COMMANDS"),
    ]
    for path, command in commands_of(typer.main.get_command(app), ("rlalloc",)):
        parts += _subsection(" ".join(path), _plain(command.help), list(command_rows(command)))
    parts += _section("ENVIRONMENT", _terms({"RLALLOC_CONFIG": "the configuration file, as **--config**"}))
    parts += _section("FILES", _terms({"/etc/rlalloc/rlalloc.yaml": "the configuration, see **rlalloc.yaml**\\(5)"}))
    parts += _section("EXIT STATUS", _terms(_STATUSES))
    return "\n".join([*parts, *_section("SEE ALSO", _SEE_ALSO)])


def service_page(name: str, text: str, more: str, options: dict[str, str]) -> str:
    """The page of a service."""
    parts = [
        *_head(name, 8, text.rstrip(".")),
        *_section("SYNOPSIS", f"**{name}** [*OPTION*...]"),
        *_section("DESCRIPTION", f"{_plain(text)} systemd runs it as **{name}.service**. {more}"),
        *_section("OPTIONS", _terms(options)),
        *_section(
            "SIGNALS", _terms({"SIGHUP": "Reads again what may change without a restart.", "SIGTERM": "Ends."})
        ),
    ]
    return "\n".join([*parts, *_section("SEE ALSO", _SEE_ALSO)])


def _daemon_page() -> str:
    alone = typer.Typer(add_completion=False)
    alone.command()(daemon_app._command)  # noqa: SLF001 (the program's own definition)
    command = typer.main.get_command(alone)
    options = {
        name.replace("`", ""): f"{_sentence(_plain(meaning))} Default: {_plain(default)}."
        for name, meaning, default in command_rows(command)
    }
    return service_page("rlallocd", command.help or "", "Without it, jobs run as submitted.", options)


def _agent_page() -> str:
    parser = agent_app.command_line()
    options = {}
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way)
        written = ", ".join(action.option_strings) + (f" {action.metavar}" if action.metavar else "")
        options[written] = _sentence(_plain((action.help or "").replace("%(default)s", str(action.default))))
    more = "It reads policies and never writes them."
    return service_page("rlalloc-agent", parser.description or "", more, options)


def configuration_page() -> str:
    """rlalloc.yaml(5) as reStructuredText."""
    parts = [
        *_head("rlalloc.yaml", 5, "configuration of rlallocd, rlalloc-agent and rlalloc"),
        *_section("SYNOPSIS", "/etc/rlalloc/rlalloc.yaml"),
        *_section(
            "DESCRIPTION",
            "One YAML file. A key that is left out has its default. Durations are seconds, memory "
            "is MiB. **rlalloc config check** names what is wrong, **systemctl reload rlallocd** applies the "
            "file. A key with dots stands in the sections that the dots divide.",
        ),
        *_section("KEYS"),
    ]
    for key, values, default, meaning in configuration_rows(SHIPPED.read_text(encoding="utf-8")):
        facts = f"{_plain(values)}; default: {_listed(default)}." if values else f"Default: {_listed(default)}."
        parts.append(f"**{_escaped(key)}**\n    {_sentence(_plain(meaning))} {facts}\n")
    return "\n".join([*parts, *_section("SEE ALSO", _SEE_ALSO)])


def pages() -> dict[str, str]:
    """All man pages as roff, by their file names."""
    found = {
        "rlalloc.1": rlalloc_page(),
        "rlallocd.8": _daemon_page(),
        "rlalloc-agent.8": _agent_page(),
        "rlalloc.yaml.5": configuration_page(),
    }
    return {name: _as_roff(text) for name, text in found.items()}


def completions() -> dict[str, str]:
    """The completion scripts by their file names, as typer writes them."""
    return {
        file: get_completion_script(prog_name="rlalloc", complete_var=_COMPLETE_VARIABLE, shell=shell) + "\n"
        for shell, file in COMPLETIONS.items()
    }


def _as_roff(text: str) -> str:
    """Docutils' roff in ASCII, ragged and without hyphens in names, and without its own version in a comment."""
    settings = {
        "report_level": 1,
        "halt_level": 2,
        "datestamp": None,
        "generator": None,
        "output_encoding": "unicode",
    }
    roff: str = docutils.core.publish_string(text, writer="manpage", settings_overrides=settings)
    roff = re.sub(r'\A(\.\\".*\n)+', '.\\\\" Written by scripts/render_manual.py\n', roff)
    roff = re.sub(r"^(\.TH .*)$", r"\1\n.ad l\n.nh", roff, count=1, flags=re.MULTILINE)
    return re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", roff)


def _head(name: str, section: int, meaning: str) -> list[str]:
    rule = "=" * len(name)
    said = _escaped(meaning if meaning[:2].isupper() else meaning[0].lower() + meaning[1:])
    dash = "-" * len(said)
    return [
        rule,
        name,
        rule,
        "",
        dash,
        said,
        dash,
        "",
        f":Manual section: {section}",
        f":Version: rlalloc {__version__}",
        "",
    ]


def _section(title: str, text: str = "") -> list[str]:
    return [title, "=" * len(title), "", text, ""]


def _subsection(title: str, text: str, rows: list[tuple[str, str, str]]) -> list[str]:
    return [title, "-" * len(title), "", text, "", _options(rows), ""]


def _options(rows: list[tuple[str, str, str]]) -> str:
    """Arguments and options, each with its meaning and default."""
    return "\n".join(_option_lines(rows))


def _option_lines(rows: list[tuple[str, str, str]]) -> Iterator[str]:
    for name, meaning, default in rows:
        end = {"": "", "required": " Required."}.get(default, f" Default: {_plain(default)}.")
        yield f"**{_plain(name)}**\n    {_sentence(_plain(meaning)) or 'See above.'}{end}\n"


def _terms(terms: dict[str, str]) -> str:
    return "\n".join(f"**{_escaped(term)}**\n    {meaning}\n" for term, meaning in terms.items())


def _sentence(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _plain(text: str | None) -> str:
    """Markdown of the reference as reStructuredText without markup."""
    words = " ".join((text or "").replace("\\|", "|").split())
    return _escaped(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", words).replace("`", ""))


def _listed(default: str) -> str:
    """A default; a list as JSON gets spaces, so that lines can break."""
    return _plain(re.sub(r",(?=\S)", ", ", default) if default[:2] in ("`[", "`{") else default)


def _escaped(text: str) -> str:
    return re.sub(r"([\\*|_`])", r"\\\1", text)


def main(arguments: list[str]) -> int:
    """Write everything."""
    folder = Path(arguments[0]) if arguments else ROOT / "etc"
    for kind, files in (("man", pages()), ("completion", completions())):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / kind / name).write_text(text, encoding="utf-8")
            sys.stdout.write(f"{folder / kind / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
