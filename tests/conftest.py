"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from slurm_testbed import Site, SiteSpec

if TYPE_CHECKING:
    from collections.abc import Iterator


# Machines are shared and noisy: no test measures time, not even an example's.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A running Slurm site of 4 nodes with 8 GPUs each, for the whole session."""
    with Site.start(SiteSpec(name=f"pytest-{os.getpid()}")) as running:
        yield running
