"""What a failure makes fire that only doctor's checks show: a real site, a real Prometheus, the rules as shipped."""

import os
import signal
from typing import Any

import pytest

from rlalloc_testbed import Installation, start_site

from .conftest import Watch, fresh
from .test_alerts_live import rlalloc

pytestmark = [pytest.mark.slurm, pytest.mark.alerts]


def reload(installation: Installation, **changes: Any) -> None:
    """Take up a changed configuration; the daemon then checks at once, as it does every five minutes."""
    installation.write_config(**changes)
    installation.send("rlallocd", signal.SIGHUP)


def test_what_slurm_conf_lacks(watch: Watch) -> None:
    lacks = {"AccountingStorageTRES": None}
    with start_site(
        f"alerts-lacks-{os.getpid()}", task_prolog=None, job_submit_lua=None, extra_slurm_conf=lacks
    ) as site:
        installation = fresh(site)
        installation.write_config(mode="shadow")
        installation.start("rlalloc-agent")
        installation.start("rlallocd")
        try:
            server = watch(installation, healthy=False)
            server.wait_for("RlallocPluginNotCalled: submit plugin", "RlallocCheckFailed: GPU counts")
            reload(installation, mode="enforce")
            server.wait_for("RlallocNotEnforcing", "RlallocCheckFailed: TaskProlog")
        finally:
            installation.stop_all()


def test_rules_of_another_site_and_nodes_that_nobody_checked(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    reload(
        installation,
        rules=[{"name": "llm", "mode": "enforce", "partitions": ["gpuu"], "accounts": ["llmm"]}],
        nodes={"task_prolog": "checked"},
    )
    server.wait_for(
        "RlallocCheckFailed: partitions of rules",
        "RlallocCheckFailed: accounts of rules",
        "RlallocCheckWarns: checked nodes",
    )


def test_a_site_that_somebody_switched_off_in_shadow_mode(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    reload(installation, mode="shadow")
    done = rlalloc(installation, "off", "--all", "--why", "a test")
    assert done.returncode == 0, done.stderr
    try:
        reload(installation)
        server.wait_for("RlallocCheckWarns: switch")
    finally:
        assert rlalloc(installation, "on").returncode == 0


def test_slurmdbd_that_is_down(installation: Installation, watch: Watch) -> None:
    server = watch(installation)
    installation.site.stop_daemon("slurmdbd")
    try:
        reload(installation)
        server.wait_for("RlallocCheckWarns: accounting")
    finally:
        installation.site.start_daemon("slurmdbd")
