"""The page of ``rlalloc report --html``: self-contained, and no user's name is more than text."""

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from rlalloc.history import Pseudonyms
from rlalloc.store import Experience
from rlalloc.store.decided_jobs import DecidedJob, Undone
from rlalloc_cli.report import report_command
from rlalloc_cli.report.report_page import RunsToShow, page_of
from rlalloc_cli.report.report_sources import Asked, Report
from rlalloc_cli.report.report_totals import TotalsSoFar
from rlalloc_cli.report.report_what_if import not_among, what_if_lines
from rlalloc_cli.report.reported_runs import RunJoiner
from rlalloc_simulator.comparison.paired_statistics import Interval
from rlalloc_trainer.pipelines.what_if import WhatIf
from tests.cli.test_report import JOB, RUN, SPAN, changed
from tests.core.history.test_history_readers import PAST
from tests.core.test_store import DECISION, OUTCOME

HOSTILE = "</td><script>alert('1')</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"
FOUND = WhatIf(
    policy="shipped", partition="gpu", jobs=300, moldable=200, others=96, workloads=30, advice="enforce",
    jct=Interval(0.84, 0.79, 0.9), p95=Interval(0.93, 0.88, 0.99), wait=Interval(0.7, 0.6, 0.8),
    gpu_hours=Interval(0.96, 0.94, 0.98), killed=0.0004, worst_user=1.08, recommendation="Enforce it.",
    assumptions=("One.", "Two."),
)  # fmt: skip
TOO_FEW = WhatIf(policy="shipped", jobs=3, moldable=0, advice="unknown", recommendation="Too few jobs to say.")


class Elements(HTMLParser):
    """What a browser would make of a page, as far as it matters here."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(found: WhatIf | None = None, name: str = "train", *jobs: DecidedJob) -> str:
    asked = Asked(user=name, account=name, partition=name)
    report = cast(Report, SimpleNamespace(span=SPAN, asked=asked, everybody=True))
    joiner, totals, shown = RunJoiner(lambda _: jobs or [JOB], SPAN), TotalsSoFar(SPAN), RunsToShow()
    run = changed(RUN, job_name=name, user=name, state="OUT_OF_MEMORY")
    for line in joiner.reported([run, changed(RUN, raw_id=8, job_id=8, name="8", job_name=name, user=name)]):
        totals.add(line)
        shown.add(line)
    return page_of(report, totals.totals(), shown, found)


def test_a_users_names_are_text() -> None:
    why = msgspec.structs.replace(
        JOB, job_id=8, applied=None, undone=(Undone("restored", HOSTILE),), policy_version=HOSTILE, user=HOSTILE
    )
    elements = Elements(page(None, HOSTILE, msgspec.structs.replace(JOB, policy_version=HOSTILE), why))
    assert {tag for tag, _ in elements.found}.isdisjoint({"script", "img"})
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    text = " ".join(elements.text)
    assert HOSTILE in text
    assert f"restored: {HOSTILE}" in text
    assert elements.open == []


def test_what_cannot_be_seen_in_a_name_is_shown() -> None:
    """A control character is no HTML, and one that turns the direction round would make another name of it."""
    assert "a_[31m_c" in " ".join(Elements(page(None, "a\x1b[31m\u202ec")).text)


@pytest.mark.parametrize("found", [None, FOUND, TOO_FEW])
def test_the_page_needs_nothing_else(found: WhatIf | None) -> None:
    text = page(found)
    elements = Elements(text)
    assert elements.open == []
    attributes = [(tag, name) for tag, each in elements.found for name in each]
    assert not [each for each in attributes if each[1] in ("src", "href", "srcset", "data", "action")]
    assert not re.search(r"url\(|@import|https?://", text)
    assert {"script", "link", "iframe", "object"}.isdisjoint({tag for tag, _ in elements.found})
    for media in (
        "width=device-width",
        "prefers-color-scheme: dark",
        "@media print",
        "max-width: 44rem",
        "default-src 'none'",
    ):
        assert media in text


def test_the_page_says_what_the_totals_say() -> None:
    elements = Elements(page())
    text = re.sub(r"\s+", " ", " ".join(elements.text))
    assert "0.11 GPU-hours given back" in text  # 4 GPUs for 100 s
    assert "Jobs killed by our doing" in text
    assert "of them our doing 1 0 1 0" in text
    assert "What if" not in text


def test_the_verdict_comes_with_its_interval_and_assumptions() -> None:
    text = re.sub(r"\s+", " ", " ".join(Elements(page(FOUND)).text))
    for said in (
        "Enforce it.",
        "-16.0% [-21.0, -10.0]",
        "0.04% of the jobs",
        "is met",
        "One.",
        "1.08 of as requested",
    ):
        assert said in text
    lines = "\n".join(what_if_lines(FOUND))
    for said in ("Enforce it.", "mean JCT                 -16.0% [-21.0, -10.0]", "- One.", "90% intervals over 30"):
        assert said in lines
    assert max(map(len, lines.splitlines())) <= 80


def test_too_few_jobs_have_no_figures() -> None:
    text = " ".join(Elements(page(TOO_FEW)).text)
    assert "Too few jobs to say." in text
    assert "Assumed" not in text
    assert list(what_if_lines(TOO_FEW))[1:] == ["Too few jobs to say."]


def test_runs_of_decided_jobs_are_simulated_once_also_after_a_requeue(tmp_path: Path) -> None:
    """Also under the pseudonym of their user."""
    found = [Experience(decision=DECISION, outcome=OUTCOME)]
    first = msgspec.structs.replace(
        PAST, job_id=str(DECISION.job_id), user=DECISION.user, submitted_s=DECISION.submitted_s
    )
    again = msgspec.structs.replace(first, submitted_s=first.submitted_s + 500)
    others = [msgspec.structs.replace(again, user="bob"), msgspec.structs.replace(again, job_id="8")]
    disguised = Pseudonyms(tmp_path / "history.key").of(again)
    assert list(not_among(found, [first, again, disguised, *others])) == others


def test_an_empty_span_has_a_page() -> None:
    report: Any = SimpleNamespace(span=SPAN, asked=Asked(), everybody=True)
    text = page_of(report, TotalsSoFar(SPAN).totals(), RunsToShow(), None)
    assert Elements(text).open == []
    assert str(math.nan) not in re.findall(r"\w+", text)


@pytest.mark.parametrize("planted", [".week.html.unfinished", "week.html.new", "week.html"])
def test_a_page_is_never_written_through_a_link_or_into_a_file_of_somebody_else(tmp_path: Path, planted: str) -> None:
    """In a directory that others may write, root's file could be overwritten, and the page be read."""
    of_root = tmp_path / "of_root"
    of_root.write_text("as before")
    place = tmp_path / planted
    for hard in (False, True):
        if hard:
            place.hardlink_to(of_root)
        else:
            place.symlink_to(of_root)
        report_command.write_page(tmp_path / "week.html", "names of jobs")
        assert of_root.read_text() == "as before"
        assert (tmp_path / "week.html").read_text() == "names of jobs"
        assert (tmp_path / "week.html").stat().st_mode & 0o077 == 0
        place.unlink(missing_ok=True)
