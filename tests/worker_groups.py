"""Which tests run on one worker of pytest-xdist, and in which order groups are handed out.

A Slurm site or a container takes many seconds to start. With ``--dist loadgroup`` all tests that share one run on one
worker, so that it is started once. Those that take longest come first: else one worker is busy when the others have
nothing left. Before them comes what compiles the simulator's engine for all: else several workers compile it at once.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from _pytest.fixtures import FixtureDef

FIRST: Final = ("compiles", "systemd", "slurm", "slow")
"""Markers in the order in which their tests are handed out: by how long they take, behind what compiles."""


def group_by_shared_fixture(items: list[pytest.Item]) -> None:
    """Mark the tests that share a fixture with the name of its group, and put those that take longest first."""
    for item in items:
        group = _group(item)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    ranks: dict[str, int] = {}
    for item in items:
        name = _name(item)
        ranks[name] = min(ranks.get(name, len(FIRST)), _rank(item))
    items.sort(key=lambda item: ranks[_name(item)])


def check_groups(items: list[pytest.Item]) -> None:
    """Raise UsageError where pytest-xdist has not taken up the groups: it does so by the ends of the tests' ids."""
    for item in items:
        marker = item.get_closest_marker("xdist_group")
        if marker is not None and not item.nodeid.endswith(f"@{marker.args[0]}"):
            raise pytest.UsageError(f"pytest-xdist ignores groups with pytest {pytest.__version__}: {item.nodeid}")


def _name(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker else item.nodeid


def _rank(item: pytest.Item) -> int:
    ranks = (rank for rank, marker in enumerate(FIRST) if item.get_closest_marker(marker))
    return next(ranks, len(FIRST))


def _group(item: pytest.Item) -> str:
    """The fixture of this project that several tests share and that needs no other such one; empty for none.

    Those whose name begins with ``_`` are for every test of a folder and make nothing that takes long.
    """
    if not isinstance(item, pytest.Function):
        return ""
    shared = {
        name: found[-1]
        for name, found in item._fixtureinfo.name2fixturedefs.items()
        if found[-1].scope != "function" and found[-1].baseid.startswith("tests") and not name.startswith("_")
    }
    roots = [name for name, each in shared.items() if not shared.keys() & set(each.argnames)]
    if not roots:
        return ""
    root = min(roots, key=lambda name: (shared[name].baseid.count("/"), name))
    return _label(root, shared[root], item)


def _label(name: str, fixture: FixtureDef[object], item: pytest.Function) -> str:
    # Each module has its own instance of such a fixture, even if the fixture is the folder's.
    of = item.nodeid.partition("::")[0] if fixture.scope == "module" else fixture.baseid
    where = of.removeprefix("tests/").removesuffix(".py")
    parts: Sequence[object] = ()
    if fixture.params and name in item.callspec.indices:
        parts = (item.callspec.indices[name],)
    return "/".join(map(str, (where, name, *parts)))
