"""packages/layout.toml and packages/lock/ are complete: what is added to the project is in a package, and pinned."""

import os
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import stage_packages

ROOT = Path(__file__).parent.parent
LAYOUTS = stage_packages.read_layouts(ROOT)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTALLED = ("core", "daemon", "agent", "simulator", "trainer", "cli")


def _named_files() -> set[Path]:
    patterns = [
        pattern.partition(" as ")[0]
        for layout in LAYOUTS.values()
        for given in layout.files.values()
        for pattern in ([given] if isinstance(given, str) else given)
    ]
    return {path for pattern in patterns for path in ROOT.glob(pattern)}


def test_each_python_package_is_in_one_package() -> None:
    found = {path.parent.name for folder in INSTALLED for path in (ROOT / folder).glob("*/__init__.py")}
    staged = Counter(module for layout in LAYOUTS.values() for module in layout.modules)
    assert staged == dict.fromkeys(found, 1)


def test_each_command_is_in_one_package() -> None:
    staged = Counter(command for layout in LAYOUTS.values() for command in layout.commands)
    assert staged == dict.fromkeys(PROJECT["project"]["scripts"], 1)


@pytest.mark.parametrize("folder", ["systemd", "slurm_plugin", "etc/man", "etc/completion"])
def test_each_file_of_the_site_is_in_a_package(folder: str) -> None:
    assert {path for path in (ROOT / folder).iterdir() if path.is_file()} <= _named_files()


@pytest.mark.parametrize(
    ("extra", "layers"),
    [
        ("daemon", ("controller",)),
        ("mysql", ("controller",)),
        ("postgresql", ("controller",)),
        ("agent", ("controller", "torch")),
        ("trainer", ("controller", "torch", "trainer")),
    ],
)
def test_the_pinned_versions_are_those_that_the_project_allows(extra: str, layers: tuple[str, ...]) -> None:
    """Where this fails: make lock."""
    lines = (line for layer in layers for line in stage_packages.pinned(ROOT, layer))
    pinned = {_plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    project = PROJECT["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pinned[_plain(wanted.name)]), text


def test_links_of_installed_documents_lead_to_installed_files() -> None:
    """README.md also names folders of the source, which no package has."""
    installed = [
        (path, Path(place) / (renamed or path.name if place.endswith("/") else ""))
        for place, given in LAYOUTS["rlalloc"].files.items()
        if place.startswith("usr/share/doc/")
        for pattern, _, renamed in (each.partition(" as ") for each in ([given] if isinstance(given, str) else given))
        for path in ROOT.glob(pattern)
    ]
    there = {str(place) for _, place in installed}
    dead = [
        f"{place}: {link}"
        for path, place in installed
        if path.suffix == ".md" and path != ROOT / "README.md"
        for link in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
        if "://" not in link and os.path.normpath(place.parent / link) not in there
    ]
    assert dead == []


def test_no_library_is_in_two_packages() -> None:
    layers = [layout.libraries for layout in LAYOUTS.values() if layout.libraries]
    names = Counter(
        _plain(line.partition("==")[0]) for layer in layers for line in stage_packages.pinned(ROOT, layer)
    )
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.skipif(shutil.which("rpmspec") is None, reason="needs rpm")
@pytest.mark.parametrize("libraries", [True, False])
def test_rpm_makes_the_same_packages(libraries: bool) -> None:
    names = [name for name, layout in LAYOUTS.items() if libraries or not layout.libraries]
    macros = {
        "rlalloc_version": "1",
        "rlalloc_python_name": "python3.11",
        "rlalloc_packages": " ".join(names),
        "with_libraries": int(libraries),
        **{f"lock_{layer}": "0" for layer in ("controller", "torch", "trainer")},
    }
    options = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    command = ["rpmspec", "-q", "--qf", "%{NAME}\n", *options, str(ROOT / "packages/rlalloc.spec")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == sorted(names), done.stderr


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
