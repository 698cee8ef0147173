"""Databases for the tests of the store."""

import uuid
from pathlib import Path

import pytest

from slurm_testbed import Site


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.slurm)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: a file, or one of the MariaDB that a Slurm site keeps its accounting in."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.sqlite"
    site: Site = request.getfixturevalue("site")
    return site.database_url(f"store_{uuid.uuid4().hex[:12]}")
