"""The nightly training's own unit, as installed, on a store with little in it."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from rlalloc.past_job import PastJob
from rlalloc.store import Experience
from tests.systemd import debian_slurm
from tests.systemd.short_training import at_usual_priority, short_training
from tests.trainer.sites import experience_of, site_workload, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.systemd.systemd_container import Container

pytestmark = pytest.mark.systemd
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


def _moved(experience: Experience) -> Experience:
    """Simulated time begins at 0: rlallocd would delete what is that old."""
    since_s = time.time() - 30 * 86_400
    decision, outcome = experience.decision, experience.outcome
    return Experience(
        decision=msgspec.structs.replace(
            decision, submitted_s=int(decision.submitted_s + since_s), decided_s=decision.decided_s + since_s
        ),
        outcome=msgspec.structs.replace(
            outcome,
            eligible_s=(outcome.eligible_s or 0.0) + since_s,
            started_s=(outcome.started_s or 0.0) + since_s,
            ended_s=outcome.ended_s + since_s,
        ),
    )


def _put_store(container: Container, path: Path, *, jobs: int, past_jobs: list[PastJob]) -> None:
    """Give the site a store with so many decisions that ended."""
    store = stored([_moved(each) for each in experience_of(site_workload(3, jobs=jobs))], path)
    store.history.add(past_jobs)
    store.close()
    container.run("systemctl", "stop", "rlallocd", "rlalloc-agent")
    container.run("sh", "-c", f"rm -f {STORE}*")
    container.run("sh", "-c", f"base64 -d >{STORE}", text=base64.b64encode(path.read_bytes()).decode())
    container.start("rlallocd")  # it mends owner and mode of a file that root put there
    debian_slurm.wait_for(container, "stat", "-c", "%a %U %G", STORE, expect="660 rlallocd rlalloc")


@pytest.fixture
def site(rlalloc_container: Container) -> Iterator[Container]:
    """A running site; its store is an empty one afterwards."""
    container = rlalloc_container
    units = ("rlalloc-agent", "rlallocd")
    container.run("systemctl", "reset-failed", *units, check=False)
    container.start(*units)
    yield container
    container.run("systemctl", "stop", "rlallocd")
    container.run("sh", "-c", f"rm -f {STORE}*")
    container.run("systemctl", "reset-failed", *units, check=False)
    container.start(*units)


def test_a_training_on_little_data_ends_with_a_verdict(site: Container, tmp_path: Path) -> None:
    """LightGBM and the store's experience are read and judged as the unit's user, and nothing else is left behind.

    Twelve jobs are too few for SAC, whose part alone takes minutes; with 24 it was run by hand.
    """
    container = site
    _put_store(container, tmp_path / "store.sqlite", jobs=12, past_jobs=_past_jobs())
    with at_usual_priority(container):
        container.start("rlalloc-train.service", limit_s=600)
    journal = container.journal("rlalloc-train")
    assert "12 jobs with an outcome to learn from, trainer.min_experience asks for 20" in journal
    assert re.search("run times: (stored v000001|no new model, the simple rules are as good)", journal)
    told = json.loads(container.run("rlalloc", "doctor", "--json", check=False).stdout)["findings"]
    (training,) = [finding for finding in told if finding["what"] == "training"]
    assert training["level"] == "OK"
    assert "12 jobs with an outcome" in training["found"]
    # The lock is of whoever came first: rlallocd takes it at its start. It also writes the switch for the whole site.
    of_rlallocd = ("!", "-name", ".lock", "!", "-name", "switch.json")
    owned = container.run("find", "/var/lib/rlalloc/policies", *of_rlallocd, "-printf", "%u:%g %P\\n").stdout
    assert [each for each in owned.splitlines() if not each.startswith("rlalloc:rlalloc ")] == []


@pytest.mark.skipif("RLALLOC_WEEK" not in os.environ, reason="takes minutes: make week")
def test_a_policy_is_trained_and_judged_in_the_units_sandbox(site: Container, tmp_path: Path) -> None:
    """Numba compiles, worker processes simulate, torch learns; the version and its verdict are stored."""
    container = site
    _put_store(container, tmp_path / "store.sqlite", jobs=24, past_jobs=[])
    with short_training(container):
        container.start("rlalloc-train.service", limit_s=600)
    assert "the candidate is " in container.journal("rlalloc-train")
    assert "v000001" in container.run("rlalloc", "policy", "list").stdout
    cached = container.run("find", "/var/cache/rlalloc", "-name", "*.nbc", "-printf", "%u\\n").stdout.split()
    assert set(cached) == {"rlalloc"}
    container.run("sh", "-c", "rm -rf /var/lib/rlalloc/policies/*")
