"""A site whose daemon a real Prometheus watches."""

import itertools
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from rlalloc.policy.last_training import note_training
from rlalloc_testbed import PLUGIN, USER, Installation, install, start_site
from slurm_testbed import Site, wait_until

from .prometheus_server import PrometheusServer

Watch = Callable[..., PrometheusServer]
AS_ROOT: Final = "RlallocCheckWarns: AdminLevel"
"""What always fires on these sites: their rlallocd runs as root, and an AdminLevel would be enough."""
COMPLETE: Final = {"TaskEpilog": str(PLUGIN / "task_epilog"), "AccountingStoreFlags": "job_comment"}
"""What doctor wants in slurm.conf beside what each site has."""


@pytest.fixture(scope="session")
def alert_site() -> Iterator[Site]:
    with start_site(f"alerts-{os.getpid()}", extra_slurm_conf=COMPLETE) as site:
        yield site


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def fresh(site: Site) -> Installation:
    """An installation that is not started yet: with a training that succeeded, without a store or policies."""
    for path in site.directory.glob("store.sqlite*"):
        path.unlink()
    shutil.rmtree(site.directory / "policies", ignore_errors=True)
    note_training(site.directory / "policies", "kept the policy in use", failed=False)
    found = install(site, metrics={"listen": f"127.0.0.1:{free_port()}"})
    found.write_config(agent=found.settings["agent"] | {"deadline_s": 1.0})  # less than a scrape may take
    return found


@pytest.fixture
def installation(alert_site: Site) -> Iterator[Installation]:
    """One that runs."""
    found = fresh(alert_site)
    found.start("rlalloc-agent")
    found.start("rlallocd")
    yield found
    found.stop_all()
    (found.runtime / "intercept").unlink(missing_ok=True)
    alert_site.run(["scancel", "--user", USER])


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Starts a Prometheus for an installation, and waits until it has seen that all is well: no alert fires.

    One that is started where something is wrong already (``healthy=False``) has never seen anything else.
    """
    running = []
    numbers = itertools.count()

    def start(installation: Installation, *, healthy: bool = True) -> PrometheusServer:
        folder = tmp_path / f"prometheus-{next(numbers)}"
        server = PrometheusServer(folder, installation.settings["metrics"]["listen"], free_port())
        running.append(server)
        server.__enter__()
        wait_until(lambda: server.query("rlallocd_mode"), what="Prometheus has the daemon's metrics", timeout_s=60)
        wait_until(lambda: server.query("count_over_time(up[1m]) > 3"), what="several scrapes", timeout_s=60)
        wait_until(lambda: server.query("rlallocd_check_level"), what="the daemon's checks", timeout_s=60)
        if healthy:
            wait_until(lambda: AS_ROOT in server.firing(), what="the one alert that always fires", timeout_s=60)
            assert server.firing() == {AS_ROOT}
        return server

    yield start
    for server in running:
        server.__exit__()
