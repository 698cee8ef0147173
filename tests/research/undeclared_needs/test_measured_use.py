"""Logs with the use that they measured: requests are assumed, and the replay runs on what jobs really used."""

from pathlib import Path

import pytest

from rlalloc.usage.trimming_rules import TrimmingSection
from rlalloc_research.undeclared_needs.measured_use import (
    SIZES,
    cautious_requests,
    default_requests,
    measured_jobs,
    requests_for,
    with_requests,
)
from rlalloc_research.undeclared_needs.needs_table import measured_rows

pytestmark = pytest.mark.research


def line(number: int, *, processors: int = 24, cpu_s: int = 60, used_kib: int = 102_400, asked_kib: int = -1) -> str:
    """A job of one user and one executable that ran for ten minutes; CPU time and memory are per processor."""
    times = f"{number} {3600 * number} 0 600 {processors} {cpu_s} {used_kib}"
    return f"{times} {processors} 7200 {asked_kib} 1 1 1 1 1 -1 -1 -1"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "site.swf"


def test_use_per_processor_stays_in_each_size(log: Path) -> None:
    log.write_text("\n".join([line(1), line(2, processors=13), line(3, used_kib=0), line(4, cpu_s=0)]))
    jobs = measured_jobs(log, 100)
    assert len(jobs) == 2  # of the others, memory or CPU time is not known
    whole, part = with_requests(jobs, default_requests, SIZES["node"])
    assert (whole.nodes, whole.gpus, whole.cpus, whole.node_rss_mib) == (2, 2, 24, 1200)
    assert (part.nodes, part.cpus, part.node_rss_mib, part.mem_mib) == (2, 13, 700, 2 * 7 * 4096)
    _, part = with_requests(jobs, default_requests, SIZES["processor"])
    assert (part.nodes, part.gpus, part.cpus, part.cpu_s_used) == (2, 14, 14, 13 * 60)


def test_nobody_asked_for_less_than_they_used(log: Path) -> None:
    log.write_text("\n".join(line(number, used_kib=1024 * used) for number, used in enumerate((300, 5000, 10, 300))))
    jobs = measured_jobs(log, 100)
    assert default_requests(jobs) == [4096, 8192, 4096, 4096]
    first, most, *later = cautious_requests(jobs)
    assert 1.2 * 300 <= first <= 4096
    assert most == pytest.approx(1.05 * 5000)
    assert later == [4096, 4096]


def test_a_log_with_requests_keeps_them(log: Path) -> None:
    log.write_text(line(1, asked_kib=204_800))
    jobs = measured_jobs(log, 100)
    (own,) = requests_for(jobs).values()
    assert own(jobs) == [200]


def test_the_replay_gives_back_what_steady_jobs_do_not_use(log: Path) -> None:
    log.write_text("\n".join(line(number) for number in range(400)))
    rows = list(measured_rows([log], 1000, 0.5, TrimmingSection(exceeded=0.02), lambda _what, _done: None))
    assert len(rows) == 4
    for row in rows:
        assert (row.log, row.figures.jobs, row.figures.killed) == ("site", 200, 0)
        assert row.figures.memory_back > 0.5 or "multiple" in row.assumed
    node = rows[1].figures
    assert node.cpus_back == pytest.approx((12 - 2) / (12 - 1.2))
