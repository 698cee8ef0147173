"""The man pages have every command, option and key; groff, man and lexgrog accept them; completion completes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from render_manual import COMPLETIONS, completions, main, pages
from render_reference import ROOT
from rlalloc.config import Config

from .test_reference import commands, keys_of

PAGES = ("rlalloc.1", "rlallocd.8", "rlalloc-agent.8", "rlalloc.yaml.5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("build")
    assert main([str(made)]) == 0
    return made


def shown(page: Path) -> str:
    """What man shows, in one line."""
    done = subprocess.run(
        ["man", "-l", str(page)],
        env=os.environ | {"MANWIDTH": "200", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": "", "PAGER": "cat"},
        capture_output=True,
        text=True,
        check=True,
    )
    return " ".join(done.stdout.split())


def test_these_are_the_pages() -> None:
    assert set(pages()) == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_page_shows_what_a_rendered_one_does(folder: Path, name: str) -> None:
    """Compared as man shows them, because other versions of docutils write other roff."""
    assert shown(ROOT / "etc" / "man" / name) == shown(folder / "man" / name), "run python scripts/render_manual.py"


@pytest.mark.parametrize("name", COMPLETIONS.values())
def test_a_committed_completion_is_as_rendered(name: str) -> None:
    text = (ROOT / "etc" / "completion" / name).read_text(encoding="utf-8")
    assert text == completions()[name], "run python scripts/render_manual.py"


@pytest.mark.parametrize("name", PAGES)
def test_groff_man_and_the_index_accept_a_page(folder: Path, name: str) -> None:
    page = folder / "man" / name
    groff = subprocess.run(["groff", "-Tutf8", "-ww", "-man", page], capture_output=True, text=True, check=False)
    assert (groff.returncode, groff.stderr) == (0, "")
    indexed = subprocess.run(["lexgrog", page], capture_output=True, text=True, check=False)
    assert indexed.returncode == 0, indexed.stdout
    assert f'"{name.rpartition(".")[0]} - ' in indexed.stdout
    man = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, text=True, check=False)
    assert (man.returncode, man.stderr) == (0, "")


def test_every_command_with_each_option_is_in_the_page(folder: Path) -> None:
    text = shown(folder / "man" / "rlalloc.1")
    unbroken = text.replace(" ", "")  # a line may end within an option
    for name, options in commands().items():
        assert f"{name} " in text
        assert not [option for option in options if option.startswith("-") and option not in unbroken], name


def test_every_key_is_in_the_page(folder: Path) -> None:
    text = shown(folder / "man" / "rlalloc.yaml.5")
    tree = keys_of(msgspec.to_builtins(Config(), enc_hook=str))
    leaves = {path for path in tree if not any(other[: len(path)] == path and other != path for other in tree)}
    assert len(leaves) > 60
    assert not [path for path in leaves if ".".join(path) not in text]


@pytest.mark.parametrize(("program", "page"), [("rlallocd", "rlallocd.8"), ("rlalloc-agent", "rlalloc-agent.8")])
def test_what_a_services_help_shows_is_in_its_page(folder: Path, program: str, page: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name(program), "--help"],
        env=os.environ | {"COLUMNS": "200", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=True,
    )
    options = set(re.findall(r"(?<!\w)--[a-z-]+", done.stdout)) - {"--help"}
    assert "--config" in options
    assert not [option for option in options if option not in shown(folder / "man" / page)]


def test_bash_completes_a_command(folder: Path) -> None:
    """With the file as it is installed, by bash itself."""
    script = f"""
    source {folder}/completion/rlalloc.bash
    COMP_WORDS=(rlalloc pol); COMP_CWORD=1
    _rlalloc_completion {Path(sys.executable).with_name("rlalloc")}
    echo "${{COMPREPLY[*]}}"
    """
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["policy"], done.stderr


def test_each_shell_has_its_completion() -> None:
    assert set(completions()) == set(COMPLETIONS.values())
    assert "#compdef rlalloc" in completions()["_rlalloc"]
    assert "complete --command rlalloc" in completions()["rlalloc.fish"]
