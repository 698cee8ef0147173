"""Databases for the tests of the store."""

import uuid
from pathlib import Path

import pytest

from slurm_testbed import Site
from tests.postgresql_server import PostgresqlServer

# What starts the server is asked for by its name only: each on one worker.
_POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.xdist_group("tests/postgresql"))
_MARIADB = pytest.param("mariadb", marks=[pytest.mark.slurm, pytest.mark.xdist_group("tests/site")])


@pytest.fixture(params=["sqlite", _POSTGRESQL, _MARIADB])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: a file, one of a PostgreSQL, or one of the MariaDB that a site keeps its accounting in."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.sqlite"
    if request.param == "postgresql":
        server: PostgresqlServer = request.getfixturevalue("postgresql")
        return server.database_url()
    site: Site = request.getfixturevalue("site")
    return site.database_url(f"store_{uuid.uuid4().hex[:12]}")
