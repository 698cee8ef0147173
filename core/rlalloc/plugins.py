"""What installed distributions add by entry points: experts, rewards and metrics, beside our own.

``rlalloc.experts``   policies (job, view) -> Shares                        docs/reference/plugins.md
``rlalloc.rewards``   terms of the objective (consequences, setting) -> costs
``rlalloc.metrics``   figures (history) -> float
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar, cast

from rlalloc.errors import PluginError

Kind = TypeVar("Kind")

__all__ = ["PluginError", "Registry"]


class Registry(Generic[Kind]):
    """Things of one kind by name: ``own``, and what plug-ins bring under the entry point group ``group``.

    Nothing of a plug-in is imported before it is asked for by name.
    """

    def __init__(self, group: str, own: Mapping[str, Kind]) -> None:
        self.group = group
        self.own = own

    def names(self) -> tuple[str, ...]:
        """All names: our own first."""
        return (*self.own, *(name for name in _entry_points(self.group) if name not in self.own))

    def plugins(self) -> tuple[str, ...]:
        """The names that plug-ins bring."""
        return tuple(_entry_points(self.group))

    def get(self, name: str) -> Kind:
        """Return the thing of that name.

        Raises PluginError if there is none, two bring it, it has a name of ours, or it cannot be imported or called.
        """
        points = _entry_points(self.group).get(name, ())
        if name in self.own:
            if points:
                raise PluginError(f"{_words(points[0])}: the name is rlalloc's own; give it another one")
            return self.own[name]
        if not points:
            raise PluginError(f"no {self.group} {name!r}: there are {', '.join(self.names())}")
        if len(points) > 1:
            raise PluginError(f"{' and '.join(map(_words, points))} have one name; uninstall one of them")
        with self.errors_named(name):
            found = points[0].load()
        if not callable(found):
            raise PluginError(
                f"{self.describe(name)} is {type(found).__name__}: the entry point has to name a function"
            )
        return cast(Kind, found)

    def fingerprint(self) -> str:
        """What changes with the plug-ins that are installed: who they are, and their modules' SHA-256."""
        digest = hashlib.sha256()
        for name in self.plugins():
            for point in _entry_points(self.group)[name]:
                digest.update(_words(point).encode())
                with self.errors_named(name):
                    spec = find_spec(point.module)
                if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
                    digest.update(Path(spec.origin).read_bytes())
        return digest.hexdigest()

    def describe(self, name: str) -> str:
        """A plug-in and where it comes from, for messages."""
        points = _entry_points(self.group).get(name, ())
        return _words(points[0]) if points else f"{self.group} {name!r}"

    @contextmanager
    def errors_named(self, name: str) -> Iterator[None]:
        """Whatever a plug-in raises becomes a PluginError that names it."""
        try:
            yield
        except PluginError:
            raise
        except Exception as err:  # code of others may raise anything
            raise PluginError(
                f"{self.describe(name)} failed: {type(err).__name__}: {err}; fix it, or uninstall it"
            ) from err


@cache
def _entry_points(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Read once: installed distributions do not change under a running program."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=group):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


def _words(point: EntryPoint) -> str:
    origin = f" of {point.dist.name} {point.dist.version}" if point.dist is not None else ""
    return f"{point.group} {point.name!r} ({point.value}{origin})"
