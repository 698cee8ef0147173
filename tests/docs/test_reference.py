"""The reference has what the code has, and no other: keys, commands, reasons; and commands in the pages are right."""

import functools
import re
import shlex
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import typer

from render_reference import ROOT, comments_of, configuration_page, configuration_rows, pages
from rlalloc.config import Config, parse_config
from rlalloc.heuristics.named import EXPERTS
from rlalloc_cli.main import app, mount_trainer
from rlallocd.submissions.request_sizes import FORMS_SKIPPED
from tests.docs.test_links import DOCUMENTS

REFERENCE: Final = ROOT / "docs" / "reference"
SHIPPED: Final = (ROOT / "etc" / "rlalloc.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_pages_are_as_rendered(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pages()[page], "run python scripts/render_reference.py"


def keys_of(tree: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The paths of all keys of a configuration as plain data; of a list, those of its items."""
    if isinstance(tree, list | tuple):
        return {key for item in tree for key in keys_of(item, path)}
    if not isinstance(tree, dict):
        return set()
    return {(*path, name) for name in tree} | {
        key for name, each in tree.items() for key in keys_of(each, (*path, name))
    }


def test_configuration_lists_every_key_with_its_default_and_meaning() -> None:
    """Read from the page, not from what rendered it."""
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| (?:[^|]+\| )?(.+?) \|(?: (.*?) \|)?$", configuration_page(SHIPPED), re.MULTILINE
    )
    headings = re.findall(r"^## ([a-z_.]+)$", configuration_page(SHIPPED), re.MULTILINE)
    known = {".".join(path) for path in keys_of(msgspec.to_builtins(Config(), enc_hook=str))}
    assert {name for name, _, _ in rows} | set(headings) == known
    explained = {name: meaning for name, _, meaning in rows if not name.startswith("commands.")}
    assert not [name for name, meaning in explained.items() if not meaning]
    assert not [name for name in headings if not comments_of(SHIPPED).get(tuple(name.split(".")))]


def test_the_shipped_file_has_every_key_with_its_default() -> None:
    assert parse_config(SHIPPED, "etc/rlalloc.yaml") == Config()
    assert set(comments_of(SHIPPED)) == keys_of(msgspec.to_builtins(Config(), enc_hook=str))


def test_a_comment_with_a_bar_keeps_its_key() -> None:
    """Such a key was missing in rlalloc.yaml(5)."""
    shipped = SHIPPED.replace("# the time limit of one command", "# of scontrol | sacct")
    assert shipped != SHIPPED
    meanings = {name: meaning for name, _, _, meaning in configuration_rows(shipped)}
    assert meanings["slurm.command_timeout_s"] == "of scontrol \\| sacct"
    assert meanings.keys() == {name for name, *_ in configuration_rows(SHIPPED)}


def test_a_comment_behind_a_key_may_go_on_below() -> None:
    text = "a:\n  b: 1  # first\n        # second\n  # of c\n  c: 2\n"
    assert comments_of(text) == {("a",): "", ("a", "b"): "first second", ("a", "c"): "of c"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1  # first\n    # second\nb: 2\n", "line 3: the comment 'second' must begin in column 1, as the key b"),
        ("a: [1,\n  2]  # both\n", "line 2: put the comment of a behind its key or above it"),
    ],
)
def test_a_comment_that_could_be_taken_for_another_keys_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        comments_of(text)


def test_messages_list_every_skip_reason() -> None:
    text = (REFERENCE / "messages.md").read_text(encoding="utf-8")
    table = text.split("## Skip reasons")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(FORMS_SKIPPED)


def test_messages_list_every_other_reason() -> None:
    """Whatever name a Skipped is raised with anywhere in the daemon."""
    text = (REFERENCE / "messages.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "daemon" / "rlallocd").rglob("*.py"))
    raised = set(re.findall(r"Skipped\((?:[^()]|\([^()]*\))*?,\s*\"([a-z-]+)\"\s*\)", source)) | {"no-agent"}
    assert raised > {"late", "limit", "directive", "no-rule", "no-gpu-node"}
    assert not {name for name in raised if f"| `{name}` |" not in text}


@functools.cache
def commands() -> dict[str, set[str]]:
    """The options of each command of ``rlalloc``."""
    mount_trainer()
    found: dict[str, set[str]] = {}

    def walk(command: Any, path: str) -> None:
        for name, each in getattr(command, "commands", {}).items():
            walk(each, f"{path} {name}")
        if not getattr(command, "commands", {}):
            found[path] = {
                option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
            }

    walk(typer.main.get_command(app), "rlalloc")
    return found


def typed(document: Path) -> set[str]:
    """What a document lets its reader type: the commands of its code blocks and code spans."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?:    |\$ )(rlalloc [^#|<>;&\n]*)", text, re.MULTILINE) + re.findall(
        r"`(rlalloc [^`\n]*)`", text
    )
    return {line.strip() for line in lines}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_exist_with_their_options(document: Path) -> None:
    """A changelog names what was there; all other documents name what is."""
    known = commands()
    groups = {path.rsplit(" ", 1)[0] for path in known}
    for line in typed(document) if document.name != "CHANGELOG.md" else ():
        words = shlex.split(line.replace("'", " "))
        name = next((" ".join(words[:count]) for count in (3, 2) if " ".join(words[:count]) in known), None)
        assert name is not None or line in groups or " ".join(words[:2]) in groups, line
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known.get(name or "", set()) | {"--version", "--help"}, line


def test_the_walk_finds_commands() -> None:
    assert {"rlalloc explain", "rlalloc train run", "rlalloc simulate convert"} <= set(commands())


def test_the_policys_page_lists_every_heuristic() -> None:
    text = (ROOT / "docs" / "explanation" / "policy.md").read_text(encoding="utf-8")
    assert not [name for name in EXPERTS.own if f"`{name}`" not in text]


def test_metrics_that_are_named_exist_with_their_labels() -> None:
    """In all pages and READMEs; tests/daemon/test_metrics.py holds the table to what rlallocd serves."""
    table = (REFERENCE / "metrics.md").read_text(encoding="utf-8")
    known = dict(re.findall(r"^\| `(rlallocd_\w+)(?:\{(\w+)\})?` \|", table, re.MULTILINE))
    pages_but_history = [page for page in DOCUMENTS if page.name != "CHANGELOG.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages_but_history)
    named = set(re.findall(r"\b(rlallocd_\w+)(?:\{(\w+))?", text))
    assert not {(name, label) for name, label in named if known.get(name) is None or label not in ("", known[name])}


def test_messages_list_every_row_of_explain() -> None:
    text = (REFERENCE / "messages.md").read_text(encoding="utf-8").split("## rlalloc explain")[1].split("\n## ")[0]
    listed = {
        label for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for label in re.findall(r"`(.+?)`", row)
    }
    source = (ROOT / "cli" / "rlalloc_cli" / "explain.py").read_text(encoding="utf-8")
    printed = set(re.findall(r"yield \"([^\"]+)\", ", source))
    assert listed == printed | {"observed"}


def test_verdicts_on_the_page_are_those_of_the_trainer() -> None:
    text = (REFERENCE / "messages.md").read_text(encoding="utf-8").split("## Verdicts")[1].split("\n## ")[0]
    phrases = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    trainer = ROOT / "trainer" / "rlalloc_trainer"
    source = "\n".join(path.read_text(encoding="utf-8") for path in trainer.rglob("*.py"))
    assert not [phrase for phrase in phrases if phrase not in source]
