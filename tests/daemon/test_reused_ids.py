"""A slurmctld that has lost its state gives the ids of earlier jobs to new ones."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlalloc_testbed import USER, Installation, install, start_site
from rlalloc_testbed.installation import PROGRAMS
from slurm_testbed import wait_until

from .conftest import MOLDABLE

pytestmark = pytest.mark.slurm


@pytest.fixture
def shadow() -> Iterator[Installation]:
    with start_site(f"reused-{os.getpid()}") as site:
        installation = install(site, mode="shadow")
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        yield installation
        installation.stop_all()


def test_explain_does_not_take_a_job_for_an_earlier_one(shadow: Installation) -> None:
    """The later one names no LLM command."""
    site, job_id = shadow.site, shadow.submit(MOLDABLE)
    explain: list[str | Path] = [PROGRAMS / "rlalloc", "explain", str(job_id), "--config", str(shadow.config_path)]
    wait_until(lambda: (told := shadow.explain(job_id)) and told[0]["outcome"], what="its outcome", timeout_s=90)
    assert "would give" in site.run(explain)
    site.stop_daemon("slurmctld")
    for path in (site.directory / "state").glob("job_state*"):
        path.unlink()
    site.start_daemon("slurmctld")
    site.wait_for_nodes()
    assert shadow.submit("#!/bin/sh\nexec sleep 600\n", "--gpus=1") == job_id
    no_decision = f"no decision for job {job_id}: its script has no #RLALLOC line"
    said = wait_until(
        lambda: no_decision in (text := " ".join(site.try_run(explain).error_output.split())) and text,
        what=f"slurmdbd knows all of the new job {job_id}",
        timeout_s=60,
    )
    assert "an earlier job with this id was decided at 20" in said
    assert [each["decision"]["user"] for each in shadow.explain(job_id)] == [USER]
