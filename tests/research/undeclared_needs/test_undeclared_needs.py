"""The replay with undeclared needs, on small tables of the published form."""

import json
from pathlib import Path

import pytest

from rlalloc.usage.trimming_rules import TrimmingSection
from rlalloc.usage.usage_replay import UsageReplay
from rlalloc_research.undeclared_needs.logged_jobs import NODE_GPUS, philly
from rlalloc_research.undeclared_needs.true_needs import VARIED, TrueNeeds

pytestmark = pytest.mark.research


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = ["timestamp,duration,num_gpus,gpu_time,cluster"]
    rows += [
        f"2017-10-{1 + n // 100:02} {n % 24:02}:{n % 60:02}:00,{600 + n},{2 ** (n % 5)},0,vc" for n in range(1500)
    ]
    (tmp_path / "philly").mkdir()
    (tmp_path / "philly" / "philly.csv").write_text("\n".join(rows))
    model = {"mem": 60, "tput_cpu_x_mem": [[0.1, 0.5], [0.1, 1.0], [0.1, 1.0]]}
    (tmp_path / "table.json").write_text(json.dumps({"models": {"models-4": {"one": model}}}))
    return tmp_path


@pytest.mark.parametrize("assumed", VARIED)
def test_needs_are_within_what_was_asked_and_a_smaller_size_may_kill(data: Path, assumed: str) -> None:
    jobs = philly(data, 1500)
    assert all(job.gpus <= NODE_GPUS * job.nodes for job in jobs)
    truth = TrueNeeds(jobs, data / "table.json", VARIED[assumed], 0)
    for number, job in enumerate(truth.jobs):
        node_mib = job.mem_mib / job.nodes
        assert 0 < (job.node_rss_mib or 0) <= node_mib
        assert not truth.run(number, node_mib, job.cpus / job.gpus).killed
        assert truth.run(number, 0.99 * (job.node_rss_mib or 0), job.cpus / job.gpus).killed
        assert truth.run(number, node_mib, 1.0).slowdown == pytest.approx(2.0)


def test_a_replay_gives_back_what_steady_families_do_not_need(data: Path) -> None:
    truth = TrueNeeds(philly(data, 1500), data / "table.json", VARIED["steady"], 0)
    found = UsageReplay(truth.jobs, truth, TrimmingSection(exceeded=0.02), 300).run()
    assert found.killed_part < 0.02
    assert found.memory_back > 0.2
