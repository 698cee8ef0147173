"""``rlalloc simulate run`` as a person types it."""

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from rlalloc_simulator.commands.simulate_run_command import _that_fit, run
from rlalloc_simulator.commands.workload_commands import app as workloads_app
from rlalloc_simulator.report.figure_table import Row
from rlalloc_simulator.report.page import Picture, page
from rlalloc_simulator.report.simulation_report import BACKFILLS

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workloads") / "day.jsonl"
    options = ("--load", "1.2", "--nodes", "2", "--hours", "12", "--seed", "4", "-o", str(path))
    result = CliRunner().invoke(workloads_app, ["generate", "philly", *options])
    assert result.exit_code == 0, result.output
    return path


def command() -> typer.Typer:
    alone = typer.Typer(add_completion=False)
    alone.command("run")(run)
    return alone


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(command(), [str(argument) for argument in arguments])


class Seen(HTMLParser):
    """Collects the sources of a page and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        self.cells += tag == "td"
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_table_page_pictures_and_figures(workload: Path, tmp_path: Path) -> None:
    """Two policies side by side; the page holds all by itself."""
    html, folder, figures = tmp_path / "day.html", tmp_path / "pictures", tmp_path / "day.json"
    result = simulate(
        workload, "--policy", "as-submitted", "--policy", "repaired", "--backfill", "easy",
        "--html", html, "--png", folder, "--json", figures,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    for words in (
        "as-submitted",
        "repaired",
        "JCT [h:mm:ss]",
        "p99",
        "bounded slowdown",
        "GPU-hours",
        "Jain's index",
    ):
        assert words in result.output
    names = {path.name for path in folder.iterdir()}
    assert names == {"timeline.png", "cdf.png", "gantt-as-submitted.png", "gantt-repaired.png"}
    assert all(path.read_bytes().startswith(PNG) for path in folder.iterdir())
    seen = Seen()
    seen.feed(html.read_text())
    assert not seen.open
    assert len(seen.sources) == 4
    assert all(source.startswith("data:image/png;base64,") for source in seen.sources)
    found = msgspec.json.decode(figures.read_bytes())
    assert list(found["policies"]) == ["as-submitted", "repaired"]
    plain = found["policies"]["as-submitted"]
    assert plain["jobs"] == len(workload.read_text().splitlines()) - 1
    assert plain["jct_s"]["mean"] > plain["wait_s"]["mean"] > 0
    assert found["policies"]["repaired"]["cpu_use"] < plain["cpu_use"]
    assert seen.cells == 2 * sum(line.startswith("│   ") for line in result.output.splitlines())


def test_the_same_workload_gives_the_same_bytes(workload: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        assert simulate(workload, "--html", tmp_path / name, "--json", tmp_path / f"{name}.json").exit_code == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere.jsonl",), 2, "name a workload that rlalloc simulate convert or generate made"),
        (("WORKLOAD", "--policy", "best"), 2, "no policy 'best': write one of as-requested"),
        (("WORKLOAD", "--backfill", "fast"), 2, "--backfill fast: write one of easy, conservative, none"),
        (("HOMELESS",), 2, "the header names no cluster"),
        (("EMPTY",), 2, "there is no job in it"),
        (("HUGE",), 2, "can never run on its partition"),
        (("WORKLOAD", "--html", "/proc/nowhere/page.html"), 1, "name a file in a folder that you may write to"),
        (("WORKLOAD", "--png", "/proc/nowhere"), 1, "name a folder that you may write to"),
    ],
)
def test_wrong_use(workload: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    """Exit 2 for what was typed or is in the file, 1 for what cannot be written; and what to do instead."""
    header, first, *_ = workload.read_text().splitlines()
    files = {
        "HOMELESS": re.sub(r',"cluster":.*', "}", header) + "\n" + first,
        "EMPTY": header,
        "HUGE": header + "\n" + first.replace('"gpus_per_node":', '"gpus_per_node":9'),
    }
    places = {"WORKLOAD": str(workload)}
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
        places[name] = str(tmp_path / name)
    result = simulate(*(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == code, result.output
    assert words in result.stderr


def test_a_narrow_terminal_gets_several_tables() -> None:
    """Each holds what fits, at least one policy, and none is left out."""
    names = ["as-submitted", "repaired", "price-ef", "a-name-that-is-longer-than-a-column", "sjf"]
    assert _that_fit(names, 200) == [slice(0, 5)]
    assert _that_fit(names, 90) == [slice(0, 3), slice(3, 5)]
    assert _that_fit(names, 10) == [slice(place, place + 1) for place in range(5)]


def test_the_page_escapes_what_comes_from_files() -> None:
    evil = "<script>alert('x')</script>"
    text = page(evil, [evil], [evil], [Row(evil, evil, (evil,))], [Picture(evil, f'"{evil}', PNG)])
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 9  # once for each place
    assert "http" not in text


def test_documentation_names_every_option_and_kind_of_backfill() -> None:
    text = (Path(__file__).parents[3] / "docs" / "explanation" / "simulator.md").read_text()
    assert "rlalloc simulate run" in text
    for parameter in typer.main.get_command(command()).params:
        for option in parameter.opts:
            assert not option.startswith("--") or f"`{option}" in text, option
    for kind in BACKFILLS:
        assert f"`{kind}`" in text
