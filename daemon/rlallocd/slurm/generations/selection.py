"""Chooses the generation by slurmctld's version. Nothing else in rlalloc compares versions of Slurm."""

import functools
import importlib
import logging
import pkgutil
import re
from typing import Final

from rlallocd.slurm.generations.capabilities import Capabilities
from rlallocd.slurm.slurm_errors import SlurmError, UnexpectedAnswer

_log = logging.getLogger(__name__)

_PACKAGE: Final = __name__.rpartition(".")[0]
_MODULES: Final = "slurm_"

Release = tuple[int, int]


@functools.cache
def generations() -> tuple[Capabilities, ...]:
    """All generations that this package has a module for, oldest first."""
    found = [
        importlib.import_module(f"{_PACKAGE}.{module.name}").CAPABILITIES
        for module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__)
        if module.name.startswith(_MODULES)
    ]
    return tuple(sorted(found, key=lambda each: _release(each.holds_from)))


def capabilities_of(slurm_version: str) -> Capabilities:
    """The generation that this version of slurmctld, such as ``25.05.3``, belongs to.

    A version between two generations counts as the older one, a version after the newest as the newest, with a
    warning in the log. Raises SlurmError for a version before the oldest, UnexpectedAnswer for no version.
    """
    release = _release(slurm_version)
    known = generations()
    if release < _release(known[0].holds_from):
        raise SlurmError(f"slurmctld is Slurm {slurm_version}; rlalloc needs {known[0].holds_from} or later")
    if release > _release(known[-1].release):
        _log.warning(
            "slurmctld is Slurm %s, and rlalloc was tested up to %s: it is treated as %s",
            *(slurm_version, known[-1].release, known[-1].release),
        )
    return [each for each in known if _release(each.holds_from) <= release][-1]


def same_release(one: str, other: str) -> bool:
    """Whether two versions belong to one release: pyslurm writes ``22.5`` for Slurm's ``22.05``."""
    return _release(one) == _release(other)


def _release(version: str) -> Release:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise UnexpectedAnswer(f"{version!r} is not a version of Slurm")
    return int(match[1]), int(match[2])
