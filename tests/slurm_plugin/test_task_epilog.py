"""The TaskEpilog on a real site: a job that ran out of a GPU's memory is marked, and slurmdbd keeps the mark."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlallocd.outcomes.ends_of_ours import GPU_MARKER
from slurm_testbed import MissingSoftwareError, NotPermittedError, Site, SiteSpec
from slurm_testbed.layout import DEFAULT_ROOT
from slurm_testbed.requirements import check_requirements

pytestmark = pytest.mark.slurm
EPILOG = Path(__file__).parents[2] / "slurm_plugin" / "task_epilog"
USER = "llm-alice"
OURS = {"RLALLOC_JOB": "1"}
TORCH = "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.' >&2; exit 1"
JOBS: dict[str, tuple[str, str, dict[str, str]]] = {
    "marked": (TORCH, "", OURS),
    "in its error file": (TORCH, "--error=err.txt", OURS),
    "keeps the user's comment": (TORCH, "--comment=mine", OURS),
    "in a step": (f'srun sh -c "{TORCH}"; exit 1', "", OURS),
    "another error": ("echo 'RuntimeError: mat1 and mat2'; exit 1", "", OURS),
    "not ours": (TORCH, "", {}),
    "no file": (TORCH, "--output=/dev/null", OURS),
}
MARKED = {"marked", "in its error file", "keeps the user's comment", "in a step"}


@pytest.fixture(scope="module")
def comments() -> Iterator[dict[str, str]]:
    """What slurmdbd has as each job's comment once all have ended."""
    try:
        check_requirements()
    except (MissingSoftwareError, NotPermittedError) as error:
        pytest.skip(str(error))
    name = f"epilog-{os.getpid()}"
    spec = SiteSpec(
        name=name,
        nodes=1,
        etc_files={"task_epilog": EPILOG},
        extra_slurm_conf={
            "AccountingStoreFlags": "job_comment",
            "TaskEpilog": f"{DEFAULT_ROOT.resolve()}/{name}/etc/task_epilog",
        },
    )
    with Site.start(spec, replace=True) as site:
        ids = {
            job: site.sbatch(f"#!/bin/bash\n{script}\n", user=USER, options=options.split(), environment=environment)
            for job, (script, options, environment) in JOBS.items()
        }
        site.wait_for_states(ids.values(), {"FAILED"}, timeout_s=120)
        yield {job: _comment(site, job_id, job in MARKED) for job, job_id in ids.items()}


def _comment(site: Site, job_id: int, expected: bool) -> str:
    """The comment that sacct prints; slurmdbd may hear of it a little later."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=Comment", f"--jobs={job_id}"]
    until_s = time.monotonic() + (30.0 if expected else 0.0)
    while True:
        found = site.run(command).strip()
        if GPU_MARKER in found or time.monotonic() > until_s:
            return found
        time.sleep(1.0)


@pytest.mark.parametrize("job", JOBS)
def test_who_is_marked(comments: dict[str, str], job: str) -> None:
    assert (GPU_MARKER in comments[job]) == (job in MARKED)


def test_a_comment_of_the_user_stays(comments: dict[str, str]) -> None:
    assert comments["keeps the user's comment"] == f"mine; {GPU_MARKER}"
