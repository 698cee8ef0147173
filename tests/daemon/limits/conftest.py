"""A site that enforces limits, with rlalloc on it."""

import os
from collections.abc import Iterator

import pytest

from rlalloc_testbed import USER, Installation, install, start_site
from slurm_testbed import Site, wait_until

WORKER = "llm-bob"
"""The user whose jobs run all the while; the limits that tests set are on another's."""
_FOUR_GPUS = "#SBATCH --nodes=1 --gpus-per-node=4 --ntasks-per-node=1 --cpus-per-task=8 --mem=4G\n"


def script(directives: str, body: str) -> str:
    """A training job of four GPUs with one ``#RLALLOC`` line."""
    return f"#!/bin/sh\n{_FOUR_GPUS}#RLALLOC {directives}\n: torchrun train.py\n{body}\n"


class LimitedSite:
    """The site, the installation on it, and what tests do to its limits."""

    def __init__(self, installation: Installation) -> None:
        self.rlalloc = installation
        self.site: Site = installation.site

    def set_limit(self, setting: str) -> None:
        """Set a limit of the user's own association, such as ``MaxWall=20``, and let the daemon see it."""
        self.site.run(["sacctmgr", "--immediate", "modify", "user", USER, "set", setting])
        value = setting.partition("=")[2]
        shown = value if "=" in value else f"={value}"
        show = ["scontrol", "show", "assoc_mgr", f"users={USER}", "flags=assoc", "--oneliner"]
        wait_until(
            lambda: any(f"UserName={USER}" in line and shown in line for line in self.site.run(show).splitlines()),
            what=f"slurmctld knows of {setting}",
            timeout_s=60,
        )
        self.reload()

    def reload(self) -> None:
        """Let the daemon read all limits anew."""
        self.rlalloc.read_again()

    def allocated(self, job_id: int) -> dict[str, int]:
        """What a job has or had, by TRES."""
        tres = self.rlalloc.job(job_id)["TRES"]
        return {
            name: int(count)
            for name, _, count in (part.partition("=") for part in tres.split(","))
            if count.isdigit()
        }


@pytest.fixture(scope="session")
def limited_site() -> Iterator[LimitedSite]:
    # Jobs that have ended are looked at when other tests are done, however long these take.
    kept = {"MinJobAge": "3600"}
    with start_site(
        f"enforcing-{os.getpid()}", enforce="associations,limits,qos,safe", extra_slurm_conf=kept
    ) as site:
        installation = install(site, grace_s=60)
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        try:
            yield LimitedSite(installation)
        finally:
            installation.stop_all()


@pytest.fixture(scope="session")
def timed_jobs(limited_site: LimitedSite) -> dict[str, int]:
    """Jobs of minutes, which run while the other tests do: see test_end_to_end_time_limits.py.

    The control gets back the time limit that it was submitted with.
    """
    work = script("gpus=1", 'if [ "$SLURM_GPUS_ON_NODE" = 4 ]; then sleep 20; else sleep 78; fi')
    trap = script("gpus=1", "trap 'exit 0' USR1\nsleep 600 & wait $!\nexit 1")
    site = limited_site.site
    jobs = {
        "longer": site.sbatch(work, user=WORKER, options=["--time=1"]),
        "control": site.sbatch(work, user=WORKER, options=["--time=1"]),
        "signal": site.sbatch(trap, user=WORKER, options=["--time=1", "--signal=B:USR1@240"]),
    }
    site.wait_for_states([jobs["control"]], {"RUNNING"}, timeout_s=120)
    site.run(["scontrol", "update", f"JobId={jobs['control']}", "TimeLimit=1"])
    return jobs


@pytest.fixture
def limited(limited_site: LimitedSite, timed_jobs: dict[str, int]) -> Iterator[LimitedSite]:
    """The site without limits and without jobs of the user, before and after."""
    assert timed_jobs
    yield limited_site
    limited_site.site.run(["scancel", "--user", USER])
    none = "GrpTRES=cpu=-1,gres/gpu=-1 MaxTRES=cpu=-1,gres/gpu=-1 MaxWall=-1"
    limited_site.site.run(["sacctmgr", "--immediate", "modify", "user", USER, "set", *none.split()])
    wait_until(
        lambda: not limited_site.site.run(["squeue", "--noheader", "--user", USER]),
        what="the user's jobs have left",
        timeout_s=120,
    )
