"""Which policy is served: the store's current version, or the one that ships with the agent."""

import logging
import os
from collections import Counter
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import Final

import torch

from rlalloc.errors import PolicyError
from rlalloc.policy.policies import CURRENT, Manifest, PolicyStore
from rlalloc_agent.actor import Actor, load_actor
from rlalloc_agent.policy_routing import RoutedPolicy

log = logging.getLogger(__name__)

_ABSENT: Final = (0, 0)


class ServedPolicy:
    """The policy that answers, and its version. It follows the policy store's ``current`` link.

    ``problem`` says why the store's current version is not the one that answers; it is empty where there is none.
    ``counters`` counts ``policy_loaded`` and ``policy_load_failed``. Raises PolicyError only if the policy that
    ships with the agent is needed and damaged.
    """

    def __init__(self, directory: Path, counters: Counter[str]) -> None:
        self._store = PolicyStore(directory)
        self._counters = counters
        self._seen = _ABSENT
        self.problem = ""
        actor, manifest = load_shipped()
        self.actor = RoutedPolicy(actor, manifest.routing)
        self.version = manifest.version
        self.refresh()

    def refresh(self, *, again: bool = False) -> None:
        """Take up the current version if the link to it changed since the last look. One lstat when it did not.

        Where a version cannot be loaded, the policy in place goes on to answer: after a start the one that ships with
        the agent. That version is not tried again until the link is replaced, or with ``again``.
        """
        link = self._link()
        if link == self._seen and not again:
            return
        self._seen = link
        version = self._store.current()
        try:
            actor, manifest = load_shipped() if version is None else load_actor(self._store.path(version))
            _warm_up(actor)
        except PolicyError as err:
            self._counters["policy_load_failed"] += 1
            self.problem = f"policy {version or 'shipped'} cannot be served: {err}"
            log.error(  # noqa: TRY400 - a damaged file is no bug of ours: its trace helps nobody
                "%s; policy %s answers instead",
                self.problem,
                self.version,
                extra={"policy_version": self.version, "counter": "policy_load_failed"},
            )
            return
        self.problem = ""
        self._counters["policy_loaded"] += 1
        self.actor, self.version = RoutedPolicy(actor, manifest.routing), manifest.version
        where = manifest.routing.describe()
        log.info("serving policy %s (%s)", self.version, where, extra={"policy_version": self.version})

    def _link(self) -> tuple[int, int]:
        """What changes whenever the link is replaced; promotion makes a new one each time."""
        try:
            found = os.lstat(self._store.directory / CURRENT)
        except OSError:
            return _ABSENT
        return found.st_ino, found.st_mtime_ns


def load_shipped() -> tuple[Actor, Manifest]:
    """Return the policy that ships with the agent. Raises PolicyError if the installation is damaged."""
    with shipped_folder() as folder:
        return load_actor(folder)


def shipped_folder() -> AbstractContextManager[Path]:
    """Give the folder of the policy that ships with the agent."""
    return resources.as_file(resources.files("rlalloc_agent") / "shipped")


def _warm_up(actor: Actor) -> None:
    """Run once, so that the first real request does not pay for torch's first steps. Raises PolicyError on NaN."""
    with torch.inference_mode():
        shares, _ = actor.mean(torch.zeros(1, actor.features))
    if not bool(shares.isfinite().all()):
        raise PolicyError("it answers with numbers that are not finite: promote another version")
