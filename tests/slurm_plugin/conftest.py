"""What all tests of the plugin need."""

import shutil

import pytest


@pytest.fixture(params=["lua5.1", "lua5.4"])
def interpreter(request: pytest.FixtureRequest) -> str:
    """Slurm is linked to 5.1 on Debian 12, to 5.4 elsewhere."""
    name: str = request.param
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
