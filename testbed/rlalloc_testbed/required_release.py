"""For tests that want Slurm of another Debian release: skipped, with the reason, where it is not to be had."""

import functools

import pytest

from slurm_testbed import ReleaseUnavailableError, releases


def require(release: str) -> None:
    """Unpack Slurm of a Debian release where it is not there yet; skip the calling test where that cannot be."""
    reason = _obstacle(release)
    if reason is not None:
        pytest.skip(reason)


@functools.cache
def _obstacle(release: str) -> str | None:
    """Why a release is not to be had, asked once a process, as an archive that is away can take minutes to say so."""
    try:
        releases.provide(release)
    except ReleaseUnavailableError as error:
        return str(error)
    return None
