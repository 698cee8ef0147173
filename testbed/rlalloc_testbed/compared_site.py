"""A site as one of several that are compared: alike, without rlalloc or with it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rlalloc_testbed.installation import Installation, install, start_site
from slurm_testbed import DEFAULT_ROOT, Site, SiteSpec

FIRST_COME: Final[Mapping[str, str | None]] = {
    "PriorityType": "priority/basic",
    "PriorityWeightAge": None,
    "PriorityMaxAge": None,
    "PriorityWeightFairshare": None,
    "PriorityWeightJobSize": None,
    "PriorityDecayHalfLife": None,
    "PriorityCalcPeriod": None,
}
"""Slurm's default, in which jobs start in the order of submission: after a few starts, fair-share would order the
queues of like sites in different ways."""


def _nothing(_site: Site) -> None:
    """Leave the site as it is."""


@contextmanager
def compared_site(
    name: str,
    looks: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
    *,
    agent: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    prepare: Callable[[Site], None] = _nothing,
) -> Iterator[tuple[Site, Installation | None]]:
    """Start a site that ``looks`` as given (of SiteSpec), and rlalloc on it; both end at the block's end.

    ``settings`` are those of ``install``; with None the site has no rlalloc. ``agent`` is another command in the
    place of rlalloc-agent, ``environment`` is for both daemons. ``prepare`` sets the site up before rlalloc starts.
    Raises TestbedError.
    """
    if settings is None:
        with Site.start(SiteSpec(name=name, **looks), DEFAULT_ROOT, replace=True) as site:
            prepare(site)
            yield site, None
        return
    with start_site(name, **looks) as site:
        prepare(site)
        rlalloc = install(site, **settings)
        rlalloc.environment.update(environment or {})
        try:
            rlalloc.start("rlalloc-agent", agent)
            rlalloc.start("rlallocd")
            yield site, rlalloc
        finally:
            rlalloc.stop_all()
