"""The nightly training's own unit, as installed, on a store with little in it."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rlalloc.past_job import PastJob
from tests.systemd import debian_slurm
from tests.trainer.sites import experience_of, site_workload, stored

if TYPE_CHECKING:
    from pathlib import Path

    from tests.systemd.systemd_container import Container

pytestmark = [pytest.mark.systemd, pytest.mark.slow]
STORE = "/var/lib/rlalloc/store.sqlite"


def _past_jobs() -> list[PastJob]:
    """Enough for a model of run times, which users and names predict."""
    generator = np.random.default_rng(1)
    start_s = 1_790_000_000.0
    found = []
    for number in range(1200):
        submitted_s = start_s + 60 * number
        run_s = generator.lognormal(6 + (number % 7) / 2, 0.5)
        found.append(
            PastJob(
                job_id=str(10_000 + number),
                user=f"user{number % 7}",
                name=f"train{number % 5}",
                account="research",
                partition="gpu",
                state="COMPLETED",
                submitted_s=submitted_s,
                started_s=submitted_s + 30,
                ended_s=submitted_s + 30 + run_s,
                nodes=1,
                cpus=8,
                gpus=1,
                limit_s=86_400,
            )
        )
    return found


def test_a_training_on_little_data_ends_with_a_verdict(rlalloc_container: Container, tmp_path: Path) -> None:
    """LightGBM and SAC run as the unit's user; whatever the gate says, row, version and use agree."""
    container = rlalloc_container
    store = stored(experience_of(site_workload(3, jobs=24)), tmp_path / "store.sqlite")
    store.history.add(_past_jobs())
    store.close()
    container.run("systemctl", "stop", "rlallocd", "rlalloc-agent")
    container.run("sh", "-c", f"rm -f {STORE}*")
    container.run(
        "sh", "-c", f"base64 -d >{STORE}", text=base64.b64encode((tmp_path / "store.sqlite").read_bytes()).decode()
    )
    container.start("rlallocd")  # it mends owner and mode of a file that root put there
    debian_slurm.wait_for(container, "stat", "-c", "%a %U %G", STORE, expect="660 slurm rlalloc")
    container.run("systemctl", "start", "--no-block", "rlalloc-train.service")
    debian_slurm.wait_for(
        container, "systemctl", "show", "-P", "SubState", "rlalloc-train.service", expect="dead", limit_s=900
    )
    journal = container.journal("rlalloc-train")
    assert container.run("systemctl", "show", "-P", "Result", "rlalloc-train.service").stdout == "success\n", journal
    assert re.search("run times: (stored v000001|no new model, the simple rules are as good)", journal)
    listed = container.run("rlalloc", "policy", "list").stdout
    assert "v000001" in listed
    owners = container.run("find", "/var/lib/rlalloc/policies", "-printf", "%u:%g\n").stdout.split()
    assert set(owners) == {"rlalloc:rlalloc"}
