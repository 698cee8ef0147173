"""The demo's files agree with the product that they show."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlalloc.config import load_config
from rlalloc.speed import CURVES
from rlalloc_demo.demo_configuration import demo_configuration, with_values
from rlalloc_demo.demo_measures import joined, summaries
from rlalloc_demo.demo_site import JOBS
from rlalloc_demo.demo_workload import Entry, Submitted, read_workloads
from rlallocd.slurm import AccountingRecord


def test_the_stand_in_has_the_measured_speeds_of_the_product() -> None:
    """speed.json, read by a python3 that knows nothing of rlalloc, has the figures of rlalloc.speed."""
    table = json.loads((JOBS / "speed.json").read_text(encoding="utf-8"))["curves"]
    assert set(table) == set(CURVES)
    for name, curve in CURVES.items():
        assert tuple(table[name]["gpus"]) == curve.gpus
        assert tuple(table[name]["speedup"]) == curve.speedup
        assert table[name]["cpus_per_gpu_needed"] == curve.cpus_per_gpu_needed


def test_the_configuration_is_the_shipped_one_with_other_values(tmp_path: Path) -> None:
    """It loads, in the mode asked for, and its rule would enforce."""
    path = tmp_path / "rlalloc.yaml"
    path.write_text(demo_configuration(tmp_path, "shadow"), encoding="utf-8")
    config = load_config(path)
    assert config.mode == "shadow"
    assert config.rules[0].mode == "enforce"
    assert config.store.url == f"sqlite:///{tmp_path}/rlalloc/store.sqlite"
    assert config.store.key_file == tmp_path / "rlalloc" / "journal.key"
    assert config.objective.price.horizon_s == 80.0


def test_values_are_set_by_section_and_key_and_comments_stay() -> None:
    """The same key in another section is another key; one that is not there is an error."""
    text = "mode: shadow  # why\nrules:\n  - name: llm\n    mode: off\n"
    assert with_values(text, {"rules.mode": "enforce"}) == text.replace("off", "enforce")
    assert "mode: off  # why" in with_values(text, {"mode": "off"})
    with pytest.raises(KeyError, match="nothing"):
        with_values(text, {"nothing": "1"})


def test_every_job_of_the_workload_has_its_script() -> None:
    """All parts of workload.yaml name scripts that exist, and all kinds of jobs occur."""
    workloads = read_workloads()
    entries = [
        *workloads.workload,
        *workloads.after_training,
        *workloads.without_agent,
        *workloads.without_daemon,
        *workloads.afterwards,
    ]
    assert all((JOBS / entry.script).is_file() for entry in entries)
    assert {entry.kind for entry in workloads.workload} == {"declared", "by-script", "rigid", "serve", "ordinary"}
    assert any(entry.script == "gpt.sbatch" for entry in workloads.workload)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a mount of its own")
def test_gpt_trains_where_localhost_has_no_address(tmp_path: Path) -> None:
    """The GPT of the demo looks no name up: with nothing in /etc/hosts and no name server it trains."""
    (tmp_path / "nothing").touch()
    (tmp_path / "llm").symlink_to(JOBS)
    (tmp_path / "venv").symlink_to(sys.prefix)
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    srun.chmod(0o755)
    hidden = " && ".join(f"mount --bind {tmp_path}/nothing {path}" for path in ("/etc/hosts", "/etc/resolv.conf"))
    given = {"SLURM_CPUS_PER_TASK": "1", "SLURM_GPUS_ON_NODE": "2", "SLURM_JOB_ID": "7"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{hidden} && exec bash {JOBS}/gpt.sbatch"],
        env={"PATH": f"{srun.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), **given},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "step  40" in done.stdout
    assert "on 2 processes" in done.stdout


@dataclass
class _Job:
    """What differs between the jobs of the next test."""

    job_id: int
    start_s: int
    end_s: int
    gpus: int


def test_a_summary_has_waits_runs_and_hours() -> None:
    """Means over the jobs; GPU-hours in hours stood for, 20 seconds each."""
    entry = Entry(at=0.0, user="llm-alice", kind="declared", sbatch="finetune.sbatch")
    jobs = [_Job(1, 100, 120, 8), _Job(2, 110, 150, 2)]
    records = {
        job.job_id: AccountingRecord(
            job_id=job.job_id,
            part="",
            state="COMPLETED",
            exit_code="0:0",
            submitted_s=100,
            eligible_s=100,
            started_s=job.start_s,
            ended_s=job.end_s,
            nodes=1,
            cpus=4,
            gpus=job.gpus,
            mem_mib=1.0,
            max_rss_mib=None,
            consumed_energy_j=None,
        )
        for job in jobs
    }
    ran = joined([Submitted(job.job_id, entry, 99.5) for job in jobs], records)
    total = summaries(ran)["all"]
    assert (total.wait_s, total.run_s, total.jct_s, total.makespan_s) == (5.0, 30.0, 35.0, 50)
    assert total.gpu_hours == (8 * 20 + 2 * 40) / 20
    assert total.states == (("COMPLETED", 2),)
