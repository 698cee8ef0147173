"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from slurm_testbed import Site, SiteSpec
from tests.coverage_summary import coverage_by_package
from tests.postgresql_server import PostgresqlServer, postgresql_server
from tests.worker_groups import check_groups, group_by_shared_fixture

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


pytest.register_assert_rewrite("tests.daemon.contract")  # what it asserts is to be shown as a test's own

# Machines are shared and noisy: no test measures time, not even an example's. Each run tries the same examples, so
# that a failure is one of the change under test; --hypothesis-profile=search draws others.
settings.register_profile("search", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.hookimpl(wrapper=True)  # a wrapper comes before pytest-xdist, which reads the groups here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Group tests by what they share, and run once more what failed on a real site or in a container.

    Daemons on a shared machine are now and then starved of a core. The summary names each test that needed it. What
    is a function of values is never run twice.
    """
    group_by_shared_fixture(items)
    for item in items:
        if item.get_closest_marker("slurm") or item.get_closest_marker("systemd"):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))
    yield
    if config.getoption("loadgroup", default=False):  # as pytest-xdist tells its workers
        check_groups(items)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the coverage by package where it was measured: ``make coverage`` does."""
    if not config.pluginmanager.hasplugin("_cov"):
        return
    for folder, percent in coverage_by_package().items():
        terminalreporter.write_line(f"coverage of {folder:<10}{percent:4.0f} %")


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A running Slurm site of 4 nodes with 8 GPUs each, for the whole session."""
    with Site.start(SiteSpec(name=f"pytest-{os.getpid()}")) as running:
        yield running


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A running PostgreSQL for the whole session."""
    with postgresql_server() as running:
        yield running
