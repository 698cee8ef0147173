"""A job that rlalloc has changed stays with its QOS, partition and account.

slurmctld takes the new size for an administrator's word: it would not check the limits of another one.
"""

import os
from collections.abc import Iterator

import pytest

from rlalloc_testbed import USER, Installation, install, start_site
from rlalloc_testbed.installation import PROGRAMS
from slurm_testbed import wait_until
from slurm_testbed.specification import Partition

from .conftest import script

pytestmark = pytest.mark.slurm

MOVES = ("QOS=tight", "Partition=small", "Account=tight")
REFUSED = "Job violates accounting/QOS policy"


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """The QOS, the partition and the account have less than the decided size, but not less than the request."""
    small = Partition(name="small", default=False, max_time="0:30:00")
    enforced = "associations,limits,qos,safe"
    with start_site(f"moves-{os.getpid()}", nodes=1, enforce=enforced, partitions=(Partition(), small)) as site:
        for words in (
            "add qos tight set MaxTRESPerJob=cpu=8",
            "add account tight MaxTRESPerJob=cpu=8",
            f"add user {USER} account=tight",
            f"modify user {USER} set qos=normal,tight defaultqos=normal",
        ):
            site.run(["sacctmgr", "--immediate", *words.split()])
        installation = install(site, grace_s=60)
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        try:
            yield installation
        finally:
            installation.stop_all()


def move(ours: Installation, job_id: int, where: str, user: str | None) -> str:
    """What scontrol complains about."""
    return ours.site.try_run(["scontrol", "update", f"JobId={job_id}", where], user=user).error_output


def places(ours: Installation, job_id: int) -> tuple[str, str, str]:
    job = ours.job(job_id)
    return job["QOS"], job["Partition"], job["Account"]


def test_only_an_administrator_moves_a_resized_job(installation: Installation) -> None:
    submit = ("--time=10", "--hold")
    resized = installation.submit(script("cpus-per-gpu=4-4", "exec sleep 600"), *submit)
    requested = installation.submit(script("off", "exec sleep 600"), *submit)
    wait_until(lambda: installation.job(resized)["NumCPUs"] == "16", what="it is resized", timeout_s=120)
    before = places(installation, resized)

    for where in MOVES:
        assert REFUSED in move(installation, resized, where, USER)
    assert places(installation, resized) == before
    assert move(installation, resized, f"QOS={before[0]}", USER) == ""
    assert move(installation, resized, "TimeLimit=5", USER) == ""

    installation.site.run([PROGRAMS / "rlalloc", "off", str(resized), "--config", str(installation.config_path)])
    wait_until(lambda: installation.job(resized)["NumCPUs"] == "8", what="it has its request", timeout_s=120)
    for where in MOVES:
        assert REFUSED in move(installation, resized, where, USER)
    assert places(installation, resized) == before

    for where in MOVES:
        assert move(installation, requested, where, USER) == ""
        assert move(installation, resized, where, None) == ""
    assert places(installation, requested) == places(installation, resized) == ("tight", "small", "tight")
