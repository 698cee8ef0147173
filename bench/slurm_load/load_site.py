"""The measured site: a long queue, rlallocd and rlalloc-agent with their default settings."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from rlalloc.store import Store
from rlalloc_testbed import USER, Installation, install, start_site
from slurm_testbed import Site, wait_until

NODES: Final = 4
JOB: Final = """#!/bin/sh
#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=32 --mem=200G --time=10 --output=/dev/null
#RLALLOC gpus=1-2 cpus-per-gpu=2-8
: torchrun train.py
"""
"""A moldable training job: each one is decided, resized, verified and begun."""
OTHER_USER: Final = "llm-bob"
OTHER_JOB: Final = "#!/bin/sh\n#SBATCH --nodes=1 --gpus-per-node=4 --mem=200G --output=/dev/null\n./simulate\n"
"""A job that is none of rlalloc's: no rule covers it."""
_FILLER: Final = "#!/bin/sh\nsleep 86400\n"
_AT_ONCE: Final = 2
_CHUNK: Final = 1000
_PATIENCE_S: Final = 300.0


@contextmanager
def full_site(**changes: Any) -> Iterator[Site]:
    """A full cluster, on which no job can start; ``changes`` are of SiteSpec."""
    many = {"MaxJobCount": "100000"}
    with start_site(f"bench-{os.getpid()}", nodes=NODES, extra_slurm_conf=many, **changes) as site:
        site.sbatch(
            _FILLER, user=USER, options=[f"--nodes={NODES}", "--exclusive", "--mem=1000", "--time=1-00:00:00"]
        )
        for user in (USER, OTHER_USER):
            for name, script in {"job.sh": JOB, "other.sh": OTHER_JOB}.items():
                (site.home(user) / name).write_text(script)
        yield site


@contextmanager
def measured_place(**changes: Any) -> Iterator[Installation]:
    """A full cluster with rlalloc enforced and all else at its default; ``changes`` are of SiteSpec."""
    with full_site(**changes) as site:
        rlalloc = install(site, grace_s=60, daemon={}, agent={"endpoint": f"ipc://{site.run_directory}/agent.sock"})
        try:
            rlalloc.start("rlalloc-agent")
            rlalloc.start("rlallocd")
            yield rlalloc
        finally:
            rlalloc.stop_all()


def submit(site: Site, jobs: int) -> list[int]:
    """Submit jobs through sbatch as fast as it goes; returns their ids."""
    return _submit(site, jobs, USER, "job.sh")


def submit_others(site: Site, jobs: int, user: str) -> None:
    """Submit jobs that no rule covers, each with a record of its own."""
    for first in range(0, jobs, _CHUNK):
        _submit(site, min(_CHUNK, jobs - first), user, "--job-name=other-$i --time=$i other.sh")


def _submit(site: Site, jobs: int, user: str, words: str) -> list[int]:
    loop = f"for i in $(seq {jobs // _AT_ONCE}); do sbatch --parsable {words}; done"
    text = site.run(["sh", "-c", " & ".join([f"({loop})"] * _AT_ONCE) + "; wait"], user=user, timeout_s=_PATIENCE_S)
    return sorted(int(line) for line in text.split())


def wait_until_begun(rlalloc: Installation, job_ids: list[int]) -> None:
    """Wait until the journal shows the end of each job's application. Asks the store, not slurmctld."""
    wanted = set(job_ids)
    wait_until(lambda: wanted <= begun(rlalloc), what="all jobs to be begun", timeout_s=_PATIENCE_S, interval_s=0.5)


def begun(rlalloc: Installation) -> set[int]:
    """The jobs that were released with the decided size, by the journal."""
    store = Store(rlalloc.settings["store"]["url"])
    try:
        return {application.job_id for application in store.begun_since(0)}
    finally:
        store.close()


def waiting_for_us(rlalloc: Installation) -> int:
    """Jobs that slurmctld still shows as deferred."""
    return rlalloc.site.run(["squeue", "--noheader", "--states=PENDING", "--format=%r"]).split().count("BeginTime")


def commit() -> str:
    """The commit that is measured, with a plus where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False, cwd=_here()
    )
    return done.stdout.strip() or "unknown"


def _here() -> str:
    return os.path.dirname(__file__)  # noqa: PTH120 - a string is what subprocess wants
