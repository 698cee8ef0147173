"""Every link, image, anchor and path in the documents leads somewhere, and nothing is out of reach."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("[!.]*/README.md")])
NOTES = sorted(ROOT.glob("research/notes/*.md"))
CODE_BLOCK = re.compile(r"^```[\s\S]*?^```$|^(?:    |\t)(?! *[-|0-9]).*$", re.MULTILINE)
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
SOURCE_PATH = re.compile(
    r"`((?:agent|bench|cli|core|daemon|demo|docs|etc|research|scripts|simulator|slurm_plugin|systemd|testbed|tests|trainer)"
    r"/[\w./-]*)`"
)
MENTION = re.compile(r"docs/[\w/-]+\.(?:md|png|svg|txt)")


def prose(document: Path) -> str:
    """The text of a document without its code."""
    return CODE_BLOCK.sub("", document.read_text(encoding="utf-8"))


def anchors_of(document: Path) -> set[str]:
    """The anchors of a page's headings, as mkdocs (and GitHub, for headings without signs) makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


def links_of(document: Path) -> Iterator[tuple[str, Path, str]]:
    """The links inside the project: as written, what they lead to, and the anchor there."""
    for link in LINK.findall(prose(document)):
        if not re.match(r"https?://|mailto:", link):
            path, _, anchor = link.partition("#")
            yield link, (document.parent / path).resolve() if path else document, anchor


@pytest.mark.parametrize("document", DOCUMENTS + NOTES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    dead = [link for link, target, _ in links_of(document) if not target.exists()]
    assert not dead
    lost = [link for link, target, anchor in links_of(document) if anchor and anchor not in anchors_of(target)]
    assert not lost


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_files_that_are_named_exist(document: Path) -> None:
    """A changelog names what was there; all other documents name what is."""
    named = SOURCE_PATH.findall(document.read_text(encoding="utf-8")) if document.name != "CHANGELOG.md" else []
    assert not [path for path in named if not (ROOT / path).exists()]


def test_documents_that_the_code_names_exist() -> None:
    """In docstrings, comments, messages and the shipped files."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    suffixes = {".py", ".lua", ".yaml", ".sh", ".service", ".timer", ".toml", ""}
    dead = {
        f"{name}: {mention}"
        for name in tracked.splitlines()
        if (ROOT / name).suffix in suffixes and (ROOT / name).is_file()
        for mention in MENTION.findall((ROOT / name).read_text(encoding="utf-8", errors="ignore"))
        if not (ROOT / mention).exists()
    }
    assert not dead


def test_every_page_is_within_two_clicks_of_the_readme() -> None:
    first = {target for _, target, _ in links_of(ROOT / "README.md")}
    second = {target for page in first if page.suffix == ".md" for _, target, _ in links_of(page)}
    assert not set(DOCS.rglob("*.md")) - first - second


def test_every_note_of_an_experiment_is_listed_and_named_by_its_results() -> None:
    """The results stand in the site and in the packages, which have no research/: they name the file."""
    assert NOTES
    assert not set(NOTES) - {target for _, target, _ in links_of(ROOT / "research" / "README.md")}
    for note in NOTES:
        assert f"`{note.relative_to(ROOT)}`" in (DOCS / "results" / note.name).read_text(encoding="utf-8")


def test_every_picture_is_shown() -> None:
    shown = {target for document in DOCUMENTS for _, target, _ in links_of(document)}
    assert not {path for suffix in ("png", "svg", "txt") for path in DOCS.rglob(f"*.{suffix}")} - shown


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """As ``make docs`` builds it; a page that the navigation lacks is a warning, and a warning an error."""
    pytest.importorskip("mkdocs", reason="pip install 'rlalloc[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "index.html").exists()
    fetched = re.findall(
        r"<(?:link|script|img)[^>]*(?:href|src)=\"?https?://[^ >]*", (tmp_path / "site" / "user.html").read_text()
    )
    assert not fetched


def test_every_result_has_a_date_a_command_and_its_limits() -> None:
    """A command is a code block or a make target; limits stand under that word, or in what to read first."""
    for page in (DOCS / "results").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        if page.name != "index.md":
            assert re.search(r"^\*\*(?:\d+ to )?\d+ \w+ 20\d\d", text, re.MULTILINE), f"{page.name}: no date"
            assert re.search(r"^    .*(?:rlalloc|make |python)", text, re.MULTILINE), f"{page.name}: no command"
            assert re.search(r"\*\*Limits|## Limits|## Read this first", text), f"{page.name}: no limits"
